//! The ceiling of each holder in the log, and how it follows what the holder holds. A ceiling is an eighth above what
//! its holder holds, where capacity allows: so most answers need no new promise. Where more has to be promised,
//! ceilings that are too high are lowered in the same change, so that together they never rise above the capacity.
//! Those of holders that have gone, and those a quarter too high, are lowered with the next change that is needed
//! anyway, or after a second. No step visits every holder: a holder whose ceiling may be above what it holds is in a
//! queue since that became so.

use std::{
    collections::{BTreeMap, VecDeque},
    sync::Arc,
};

use super::{Bounds, Pending, PromiseReport, horizons::Horizons};
use crate::{
    Amount, Ceiling, Changes, Epoch, HolderKind, Millis, Sum,
    ledger::{Holder, Ledger},
    planted::{self, Fault},
};

/// Lowerings alone cause a change no more often than this.
const LOWERING_PAUSE: Millis = Millis(1000);
/// The most lowerings in one change, besides those that compensate what it raises.
const LOWERINGS: usize = 4096;
/// How far a ceiling lies above what is held, as a part of that.
const SLACK: f64 = 0.125;
/// A ceiling above so many times what is held is too high.
const TOO_HIGH: f64 = 1.25;
/// More than half of what is free may be promised by so much of the capacity.
const TOLERANCE: f64 = 1.0 / 64.0;

/// The promises of one life of a resource.
pub(in crate::resource) struct Keeper {
    epoch: Epoch,
    /// The number of the last changes that were taken, and of the last that are known to be stored.
    taken: u64,
    acknowledged: u64,
    inherited_until: Millis,
    unheard: usize,
    /// By slot of the ledger.
    state: Vec<HolderState>,
    /// Forgotten holders that the log still has ceilings of.
    gone: BTreeMap<(HolderKind, Arc<str>), Promised>,
    /// Σ ceilings as the log will have it once all that was taken is applied.
    sum: Sum,
    /// Holders whose leases have changed since changes were last taken.
    touched: Vec<u32>,
    /// All holders with ceilings above what they hold, and perhaps others.
    slack: VecDeque<u32>,
    /// All holders with ceilings that are too high, and perhaps others.
    too_high: VecDeque<u32>,
    /// The end of the longest lease given since changes were last taken.
    furthest: Millis,
    horizons: Horizons,
    /// What the horizon of the leases given before changes were last taken waits for.
    awaited_horizon: Option<u64>,
    lowered_at: Millis,
}

/// A holder's ceiling in the log.
#[derive(Debug, Clone, Copy, Default)]
struct Promised {
    ceiling: Amount,
    /// Whether this epoch wrote it; else it ends with the horizon of the epoch that did.
    ours: bool,
    /// The number of the changes that last raised it.
    number: u64,
}

#[derive(Debug, Clone, Copy, Default)]
struct HolderState {
    promised: Promised,
    /// It was inherited: messages of it that are under way may have been sent to an earlier master.
    inherited: bool,
    /// It has not asked yet.
    unheard: bool,
    /// The queues it is in. They are kept by slot, so the next holder in its slot is in them too.
    touched: bool,
    in_slack: bool,
    in_too_high: bool,
}

/// A change that is being built.
#[derive(Default)]
struct Draft {
    forgotten: Vec<(HolderKind, Arc<str>)>,
    lowered: Vec<u32>,
    raised: Vec<u32>,
}

impl Keeper {
    pub(in crate::resource) fn new(epoch: Epoch, inherited_until: Millis) -> Keeper {
        Keeper {
            epoch,
            taken: 0,
            acknowledged: 0,
            inherited_until,
            unheard: 0,
            state: Vec::new(),
            gone: BTreeMap::new(),
            sum: Sum::ZERO,
            touched: Vec::new(),
            slack: VecDeque::new(),
            too_high: VecDeque::new(),
            furthest: Millis::default(),
            horizons: Horizons::default(),
            awaited_horizon: None,
            lowered_at: Millis::default(),
        }
    }

    /// The holder in this slot has a ceiling of an earlier epoch.
    pub(in crate::resource) fn inherit(&mut self, slot: u32, ceiling: Amount) {
        let state = self.state(slot);
        state.promised = Promised { ceiling, ours: false, number: 0 };
        (state.inherited, state.unheard) = (true, true);
        self.unheard += 1;
        self.sum += ceiling;
    }

    pub(in crate::resource) fn inherited_until(&self) -> Millis {
        self.inherited_until
    }

    pub(in crate::resource) fn is_inherited(&self, slot: u32) -> bool {
        self.state.get(slot as usize).is_some_and(|state| state.inherited)
    }

    pub(in crate::resource) fn is_unheard(&self, slot: u32) -> bool {
        self.state.get(slot as usize).is_some_and(|state| state.unheard)
    }

    /// Whether the log still has ceilings of forgotten holders.
    pub(in crate::resource) fn has_gone(&self) -> bool {
        !self.gone.is_empty()
    }

    /// When lowerings may cause a change of their own, if there may be any.
    pub(in crate::resource) fn next_lowering(&self) -> Option<Millis> {
        let waiting = !self.gone.is_empty() || !self.too_high.is_empty();
        waiting.then(|| self.lowered_at.plus(LOWERING_PAUSE))
    }

    /// A holder has come.
    pub(in crate::resource) fn holder_came(&mut self, slot: u32, kind: HolderKind, id: &Arc<str>) {
        let before = if self.gone.is_empty() { None } else { self.gone.remove(&(kind, Arc::clone(id))) };
        self.state(slot).promised = before.unwrap_or_default();
    }

    /// A holder may hold less than before; or nothing, and has been forgotten.
    pub(in crate::resource) fn looked_at(&mut self, slot: u32, forgotten: Option<Holder>) {
        match forgotten {
            None => self.mark_touched(slot),
            Some(holder) => self.holder_left(slot, holder),
        }
    }

    fn holder_left(&mut self, slot: u32, holder: Holder) {
        let state = self.state(slot);
        let HolderState { promised, unheard, .. } = *state;
        *state = HolderState { promised: Promised::default(), inherited: false, unheard: false, ..*state };
        self.unheard -= usize::from(unheard);
        if promised.ceiling > Amount::ZERO {
            self.gone.insert((holder.kind, holder.id), promised);
        }
    }

    /// A holder has asked. Returns whether it is an inherited one that did so for the first time.
    pub(in crate::resource) fn mark_heard(&mut self, slot: u32) -> bool {
        self.mark_touched(slot);
        let first = std::mem::take(&mut self.state(slot).unheard);
        self.unheard -= usize::from(first);
        first
    }

    /// What it holds has changed.
    pub(in crate::resource) fn mark_touched(&mut self, slot: u32) {
        if !std::mem::replace(&mut self.state(slot).touched, true) {
            self.touched.push(slot);
        }
    }

    /// A lease may be believed until then.
    pub(in crate::resource) fn cover_until(&mut self, end: Millis) {
        self.furthest = self.furthest.max(end);
    }

    pub(in crate::resource) fn acknowledge(&mut self, number: u64) {
        self.acknowledged = self.acknowledged.max(number.min(self.taken));
        self.horizons.acknowledge(self.acknowledged);
    }

    pub(in crate::resource) fn report(&self) -> PromiseReport {
        PromiseReport {
            promised: self.sum,
            unheard: self.unheard,
            inherited_until: self.inherited_until,
            horizon: self.horizons.acknowledged(),
            under_way: self.taken - self.acknowledged,
        }
    }

    pub(in crate::resource) fn bytes(&self) -> usize {
        size_of::<Self>()
            + self.state.capacity() * size_of::<HolderState>()
            + (self.touched.capacity() + self.slack.capacity() + self.too_high.capacity()) * size_of::<u32>()
    }

    /// The changes to promise, and what the answers since the last call wait for.
    pub(super) fn take(&mut self, ledger: &Ledger, bounds: Bounds, now: Millis) -> Pending {
        let before = self.sum;
        let mut draft = Draft::default();
        let touched = std::mem::take(&mut self.touched);
        for slot in &touched {
            self.follow_held(*slot, ledger, &mut draft);
        }
        let lazily = planted::is(Fault::LowersLazily);
        if let Some(capacity) = bounds.capacity.filter(|_| !lazily) {
            self.lower_others(before.max(capacity.into()), ledger, &mut draft);
        }
        let furthest = std::mem::take(&mut self.furthest);
        let horizon = self.horizons.next(furthest, bounds.lease, self.inherited_until).filter(|_| furthest > now);
        let needed = horizon.is_some() || !draft.raised.is_empty();
        if (needed && !lazily) || (self.has_lowerings(ledger, bounds) && now >= self.lowered_at.plus(LOWERING_PAUSE)) {
            self.lower(ledger, bounds, &mut draft);
            self.lowered_at = now;
        }
        self.loosen(ledger, bounds, &draft.raised);
        let changes = self.build_changes(draft, horizon, ledger, now);
        let raises = touched.iter().map(|slot| self.state[*slot as usize].promised.number);
        let raised = raises.max().filter(|number| *number > self.acknowledged);
        self.touched = touched;
        self.touched.clear();
        self.awaited_horizon = self.horizons.awaited(furthest);
        Pending { changes, awaits: raised.max(self.awaited_horizon) }
    }

    /// What the newest lease of this holder, given before changes were last taken, waits for.
    pub(super) fn awaited(&self, slot: u32) -> Option<u64> {
        let raised = self.state.get(slot as usize).map(|state| state.promised.number);
        raised.filter(|number| *number > self.acknowledged).max(self.awaited_horizon)
    }

    fn state(&mut self, slot: u32) -> &mut HolderState {
        let slot = slot as usize;
        if self.state.len() <= slot {
            self.state.resize(slot + 1, HolderState::default());
        }
        &mut self.state[slot]
    }

    /// Raises a ceiling to what is held, or notes that it is above that.
    fn follow_held(&mut self, slot: u32, ledger: &Ledger, draft: &mut Draft) {
        self.state(slot).touched = false;
        if ledger.get(slot).is_none() {
            return;
        }
        let held = ledger.held(slot);
        let Promised { ceiling, ours, .. } = self.state(slot).promised;
        // A holder that asked without getting a lease keeps its inherited ceiling and horizon: this epoch may not have
        // a horizon yet.
        let begins = !ours && held > Amount::ZERO && ledger.holder(slot).leases.are_of_this_epoch();
        if held > ceiling || begins {
            self.put(slot, held);
            self.state(slot).promised.ours = true;
            draft.raised.push(slot);
        } else {
            self.queue(slot, held);
        }
    }

    fn put(&mut self, slot: u32, ceiling: Amount) {
        let old = std::mem::replace(&mut self.state(slot).promised.ceiling, ceiling);
        self.sum -= old;
        self.sum += ceiling;
    }

    /// Puts a holder into the queues where it belongs.
    fn queue(&mut self, slot: u32, held: Amount) {
        let state = self.state(slot);
        let ceiling = state.promised.ceiling;
        if ceiling > held && !std::mem::replace(&mut state.in_slack, true) {
            self.slack.push_back(slot);
        }
        if is_too_high(ceiling, held) && !std::mem::replace(&mut self.state(slot).in_too_high, true) {
            self.too_high.push_back(slot);
        }
    }

    /// Lowers other ceilings until the sum is no more than `most`, or until each is what its holder holds.
    fn lower_others(&mut self, most: Sum, ledger: &Ledger, draft: &mut Draft) {
        while self.sum > most {
            if !self.forget_one(draft) && !self.tighten_one(ledger, draft) {
                return;
            }
        }
    }

    fn forget_one(&mut self, draft: &mut Draft) -> bool {
        let Some((holder, promised)) = self.gone.pop_first() else { return false };
        self.sum -= promised.ceiling;
        draft.forgotten.push(holder);
        true
    }

    /// Takes the slack of the holder that has had it for longest.
    fn tighten_one(&mut self, ledger: &Ledger, draft: &mut Draft) -> bool {
        let Some(slot) = self.slack.pop_front() else { return false };
        self.state(slot).in_slack = false;
        if ledger.get(slot).is_some() {
            let held = ledger.held(slot);
            if held < self.state(slot).promised.ceiling {
                self.put(slot, held);
                draft.lowered.push(slot);
            }
        }
        true
    }

    fn has_lowerings(&self, ledger: &Ledger, bounds: Bounds) -> bool {
        let tolerated = bounds.capacity.map_or(0.0, |capacity| capacity.get() * TOLERANCE);
        !self.gone.is_empty() || !self.too_high.is_empty() || self.excess(ledger, bounds) > tolerated
    }

    /// By how much the slack of all is more than half of what is free.
    fn excess(&self, ledger: &Ledger, bounds: Bounds) -> f64 {
        bounds.capacity.map_or(f64::MIN, |capacity| {
            let held = ledger.sums().held;
            (self.sum - held).get() - (Sum::from(capacity) - held).max(Sum::ZERO).get() / 2.0
        })
    }

    fn lower(&mut self, ledger: &Ledger, bounds: Bounds, draft: &mut Draft) {
        let most = draft.forgotten.len() + draft.lowered.len() + LOWERINGS;
        let room = |draft: &Draft| draft.forgotten.len() + draft.lowered.len() < most;
        while room(draft) && self.forget_one(draft) {}
        while room(draft)
            && let Some(slot) = self.too_high.pop_front()
        {
            self.state(slot).in_too_high = false;
            if ledger.get(slot).is_some() {
                let held = ledger.held(slot);
                if is_too_high(self.state(slot).promised.ceiling, held) {
                    // An eighth of a tiny amount may be lost in rounding.
                    let ceiling = above(held, self.target_ceiling(slot, ledger));
                    self.put(slot, if is_too_high(ceiling, held) { held } else { ceiling });
                    draft.lowered.push(slot);
                    self.queue(slot, held);
                }
            }
        }
        while room(draft) && self.excess(ledger, bounds) > 0.0 && self.tighten_one(ledger, draft) {}
    }

    /// How far a ceiling should lie above what is held. Older leases that are larger than the newest are going to end:
    /// an eighth above the newest is enough, even if that is below what is held.
    fn target_ceiling(&self, slot: u32, ledger: &Ledger) -> Amount {
        let enough = Amount::clamped(ledger.granted(slot).get() * (1.0 + SLACK));
        enough.saturating_sub(ledger.held(slot))
    }

    /// Lets the ceilings that are raised lie a little above what is held, as far as half of what is free allows.
    fn loosen(&mut self, ledger: &Ledger, bounds: Bounds, raised: &[u32]) {
        let wishes: Sum = raised.iter().map(|slot| self.target_ceiling(*slot, ledger)).collect();
        let mut left = bounds.capacity.map_or(wishes, |_| Amount::clamped(-self.excess(ledger, bounds)).into());
        let part = if wishes <= left { 1.0 } else { left.get() / wishes.get() };
        for slot in raised {
            let held = ledger.held(*slot);
            let ceiling = above(held, Amount::clamped(self.target_ceiling(*slot, ledger).get() * part));
            let cost = Sum::from(ceiling) - held.into();
            if cost <= left {
                left -= cost;
                self.put(*slot, ceiling);
            }
            self.queue(*slot, held);
        }
    }

    /// Turns the draft into changes.
    fn build_changes(
        &mut self,
        draft: Draft,
        horizon: Option<Millis>,
        ledger: &Ledger,
        now: Millis,
    ) -> Option<Changes> {
        let Draft { forgotten, lowered, raised } = draft;
        if horizon.is_none() && forgotten.is_empty() && lowered.is_empty() && raised.is_empty() {
            return None;
        }
        self.taken += 1;
        for slot in &raised {
            self.state(*slot).promised.number = self.taken;
        }
        let forgotten = forgotten.into_iter().map(|(kind, id)| Ceiling { kind, id, amount: Amount::ZERO });
        let named = lowered.iter().chain(&raised).map(|slot| {
            let holder = ledger.holder(*slot);
            let amount = self.state[*slot as usize].promised.ceiling;
            Ceiling { kind: holder.kind, id: Arc::clone(&holder.id), amount }
        });
        let ceilings = forgotten.chain(named).collect();
        let horizon = horizon.map(|until| self.horizons.propose(self.taken, until, now));
        Some(Changes { epoch: self.epoch, number: self.taken, ceilings, horizon })
    }
}

/// The sum, rounded down: ceilings must not add up to more than there is.
fn above(held: Amount, slack: Amount) -> Amount {
    let mut sum = Sum::from(held);
    sum += slack;
    held.max(sum.floor())
}

fn is_too_high(ceiling: Amount, held: Amount) -> bool {
    ceiling.get() > held.get() * TOO_HIGH
}
