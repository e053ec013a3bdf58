//! BUDGET: an amount that may be spent in each period, and never more.
//!
//! # Leases of a budget
//! The lease of a holder is a *cumulative allowance*: in this period it may spend up to so much in all. It is used like
//! any lease, until its short end. But it counts as held until the end of the *period*, because what has been spent
//! does not come back. So the invariant of all leases, Σ held ≤ capacity, is the promise of a budget.
//!
//! With each request a holder reports what it has spent. It gets a new allowance: what it has spent, and a *slice* in
//! advance. The slice is what it wants, at most a share of what is left ([`BudgetSettings::slice_share`]), so slices
//! shrink as the end nears and a crash loses little. A smaller allowance returns the difference when the holder has
//! confirmed it (rule 1). If the holder has spent more meanwhile, it claims what it has spent.
//!
//! | | message | spent | held | left of 100 |
//! |---|---|---|---|---|
//! | 1 | `a` → server: wants 20 | 0 | 0 | 100 |
//! | 2 | server → `a`: up to 20 | 0 | 20 | 80 |
//! | 3 | `a` → server: spent 15, wants 20 | 15 | 20 | 80 |
//! | 4 | server → `a`: up to 35 | 15 | 35 | 65 |
//! | 5 | `a` → server: spent 18, wants nothing | 18 | 35 | 65 |
//! | 6 | server → `a`: up to 18 | 18 | 35 | 65 |
//! | 7 | `a` → server: has 18, spent 18 | 18 | 18 | 82 |
//!
//! A client that reserves an amount spends it in advance, and may take a part of it back. So a report may be smaller
//! than the one before. It counts if it comes with the first confirmation of a lease, since then it is newer than all
//! before. Otherwise only a larger one does.
//!
//! # Incarnations
//! Reports are sums, so they belong to one *incarnation* of a holder: a process that restarts begins anew and has spent
//! nothing. Each incarnation has a record of its own. A record whose holder is silent is *consumed*: all that it
//! held joins the unclaimed leases of [`crate::lease::inherited`], which here mean "spent by holders that are gone". If
//! the holder is alive after all, it is told to start over as another incarnation. A release consumes what its sender
//! has spent, and frees the rest.
//!
//! [`BudgetSettings::slice_share`]: crate::policy::settings::BudgetSettings::slice_share

use std::{collections::HashMap, sync::Arc};

use crate::{
    lease::{confirm::NEVER, promises::StoredPeriod},
    planted::{self, Fault},
    policy::period::Span,
    resource::{Answer, Ask, BudgetLease, Lease, NodeInstance, Release, Resource, Spent},
    types::{Amount, HolderKind, Millis, Now, Sum},
};
use pace::{Credit, Pace};
use thresholds::BudgetEvent;
use usage::Usage;

mod pace;
mod periods;
pub mod report;
pub mod thresholds;
pub mod usage;

/// A client is gone if it has been silent for this many lease lengths.
const SILENT_LEASES: u64 = 3;
/// Maximum number of records visited per tick in the search for silent clients.
const VISITS_PER_TICK: usize = 4096;
/// The slices of child nodes may be this much larger than those of clients, because many clients depend on them.
const NODE_FACTOR: f64 = 4.0;
/// The smallest slice, if so much is left and wanted.
const UNIT: Amount = Amount::ONE;

#[derive(Debug, Default)]
pub(super) struct Budget {
    /// The current period; absent until the first request, and below a parent until the first supply.
    period: Option<Span>,
    /// Its start and the horizon of its leases, on the clock of this master in milliseconds. It may have started before
    /// that clock did.
    start: i128,
    horizon: Millis,
    /// The amount of the current period, with what was carried over and adjusted.
    amount: Amount,
    /// The period of the inherited total, until the first period begins.
    inherited: Option<StoredPeriod>,
    /// Whether the settings have changed, so that the period may be another.
    is_outdated: bool,
    /// The smallest useful slices of holders, by slot.
    needs: HashMap<u32, Amount>,
    /// Present with `pace` after the first round.
    pace: Option<Pace>,
    /// With `pace`: what each holder may get beyond its allowance, by slot.
    credits: HashMap<u32, Credit>,
    /// How many thresholds were reported in this period, of which amount.
    reported: (usize, Amount),
    events: Vec<BudgetEvent>,
    usage: Usage,
    /// When silent clients are looked for next, and the slot to start from.
    next_search: (Millis, usize),
}

impl Budget {
    pub(super) fn period(&self) -> Option<Span> {
        self.period
    }

    fn is_current(&self, unix: i64) -> bool {
        !self.is_outdated && self.period.is_some_and(|span| unix < span.end)
    }
}

/// The id of the record of one incarnation.
fn record_id(id: &str, incarnation: u64) -> Arc<str> {
    format!("{id} ({incarnation:016x})").into()
}

/// The id of the holder whose incarnation has this record.
pub fn holder_of_record(record: &str) -> &str {
    record.rsplit_once(" (").map_or(record, |(id, _)| id)
}

/// The incarnation that has this record, in hexadecimal.
pub fn incarnation_of_record(record: &str) -> &str {
    record.rsplit_once(" (").map_or("", |(_, incarnation)| incarnation.trim_end_matches(')'))
}

impl Resource {
    /// Creates the budget if the settings are those of one. If they no longer are, its records are dropped.
    pub(super) fn renew_budget(&mut self) {
        match (self.settings.is_budget(), &mut self.budget) {
            (true, None) => {
                self.budget = Some(Box::default());
                if self.awaits_supply() {
                    self.forget_claims();
                }
            }
            (true, Some(budget)) => budget.is_outdated = true,
            (false, Some(_)) => {
                self.drop_records();
                self.budget = None;
            }
            (false, None) => {}
        }
    }

    pub(super) fn drop_record(&mut self, slot: u32) {
        let holder = self.book.remove_holder(slot);
        self.forget(slot, &holder.claims, holder.watch);
        if let Some(budget) = &mut self.budget {
            budget.needs.remove(&slot);
            budget.credits.remove(&slot);
            budget.usage.forget(slot);
        }
    }

    /// Counts an amount as spent by holders that are gone.
    fn consume(&mut self, amount: Amount) {
        let change = self.book.consume(amount, NEVER);
        self.apply_change(change);
    }

    /// What a lease of a budget says besides its capacity.
    pub(super) fn budget_lease(&self, starts_over: bool) -> Option<BudgetLease> {
        let period = self.budget.as_ref()?.period?;
        Some(BudgetLease { period, starts_over })
    }

    /// Gives a request the id of its record, and drops what it says about another period. Returns the answer if there
    /// is nothing to decide.
    pub(super) fn prepare_spender(&mut self, ask: &mut Ask, now: Now) -> Result<(), Answer> {
        let Some(budget) = &self.budget else { return Ok(()) };
        let Some(spent) = &mut ask.spent else { return Err(Answer::NeedsReport) };
        if ask.kind == HolderKind::Node && ask.instance.is_none() {
            return Err(Answer::NeedsReport);
        }
        if self.has_parent() && !self.book.keeps_promises() {
            return Err(Answer::NeedsStorage);
        }
        // Below a parent, the first supply begins the first period. Until then nothing may be applied.
        let Some(period) = budget.period.filter(|_| !self.is_between_periods(now)) else { return Err(Answer::NotYet) };
        if ask.kind == HolderKind::Node {
            // A lease that has ended counts until the end of the period, so it can be confirmed or claimed.
            ask.has = ask.has.or(ask.had);
        }
        if period.start != spent.period {
            self.note_late_usage(ask.kind, &ask.id, spent, now.at);
            (ask.has, ask.outstanding, spent.amount) = (None, None, Amount::ZERO);
        }
        ask.id = spender_id(ask.kind, &ask.id, spent.incarnation, ask.instance);
        ask.has = ask.has.filter(|has| has.token.is_some());
        (ask.had, ask.drops_late) = (None, true);
        let (kind, amount) = (ask.kind, spent.amount);
        let starts_over = match kind {
            HolderKind::Node => {
                ask.outstanding = ask.outstanding.or(Some(Amount::ZERO));
                false
            }
            HolderKind::Client => {
                ask.outstanding = Some(amount);
                (ask.has.is_some() || amount > Amount::ZERO) && !self.knows_spender(ask)
            }
        };
        if !starts_over {
            return Ok(());
        }
        self.note_unknown_usage(kind, Arc::clone(&ask.id), period, amount, now.at);
        Err(self.start_over(now))
    }

    /// Whether all that a client reports is counted: in its record, or in the inherited leases.
    fn knows_spender(&self, ask: &Ask) -> bool {
        let known = self.book.ledger().find(ask.kind, &ask.id).map(|slot| &self.book.ledger().holder(slot).leases);
        if known.is_some_and(|leases| leases.has_given() || leases.claimed() > Amount::ZERO) {
            return true;
        }
        let Some(has) = ask.has else { return false };
        let is_former = has.token.is_some_and(|token| self.book.is_former(token));
        let claimed = has.capacity.max(ask.outstanding.unwrap_or_default());
        is_former && self.book.has_inherited() && Sum::from(claimed) <= Sum::from(self.book.unclaimed())
    }

    /// An empty lease for a client whose earlier allowances are consumed.
    pub(super) fn start_over(&mut self, now: Now) -> Answer {
        let (length, refresh) = self.lengths(now);
        Answer::Granted(Lease {
            token: self.book.issue_token(),
            capacity: Amount::ZERO,
            length,
            refresh,
            expiry_time: now.unix.saturating_add((length.0 / 1000) as i64),
            safe_capacity: 0.0,
            priority: 0,
            is_unlimited: false,
            pool: None,
            budget: self.budget_lease(true),
        })
    }

    /// Notes the report of a request that was applied.
    pub(super) fn note_spent(&mut self, slot: u32, spent: Option<&Spent>, now: Millis) {
        let (Some(budget), Some(spent)) = (&mut self.budget, spent) else { return };
        if spent.need > Amount::ZERO {
            budget.needs.insert(slot, spent.need);
        } else {
            budget.needs.remove(&slot);
        }
        if self.book.ledger().holder(slot).kind == HolderKind::Client {
            self.book.raise_spent(slot, spent.amount, now, NEVER);
        }
        self.note_usage(slot, now);
    }

    /// The newest allowance of a holder.
    fn allowance(&self, slot: u32) -> Amount {
        let leases = &self.book.ledger().holder(slot).leases;
        leases.current(Millis::default()).max(leases.claimed())
    }

    /// The due of a holder: what it has spent, and a slice in advance.
    pub(super) fn budget_due(&self, slot: u32) -> Amount {
        let Some(budget) = &self.budget else { return Amount::ZERO };
        let holder = self.book.ledger().holder(slot);
        let spent = holder.leases.reported();
        let wants = self.allocation.ruled_wants(&holder.claims);
        if wants <= Sum::ZERO {
            return spent;
        }
        let mut left = (Sum::from(self.settings.capacity) - self.book.ledger().sums().held).max(Sum::ZERO);
        left += Sum::from(holder.held()) - Sum::from(spent);
        if let Some(pace) = budget.pace.filter(|_| self.settings.is_paced()) {
            return self.paced_due(slot, pace, left);
        }
        let share = match holder.kind {
            HolderKind::Client => self.settings.budget.slice_share,
            HolderKind::Node => (self.settings.budget.slice_share * NODE_FACTOR).min(1.0),
        };
        let need = budget.needs.get(&slot).copied().unwrap_or(UNIT);
        let maximum = Amount::clamped(left.get() * share).max(need.max(UNIT)).min(left.floor());
        let slice = maximum.min(wants.ceil());
        // Whole units, so that no fractions are stranded, unless a caller waits for more.
        let whole = slice.floor();
        let slice = if whole >= need { whole } else { slice };
        slice_beyond(spent, slice, left)
    }

    /// A client returns its allowance: what it has spent is consumed, the rest is free.
    pub(super) fn release_spender(&mut self, release: &Release, now: Millis) {
        let (Some(budget), Some(spent)) = (&self.budget, &release.spent) else { return };
        let Some(period) = budget.period.filter(|span| span.start == spent.period) else { return };
        let id = spender_id(release.kind, &release.id, spent.incarnation, release.instance);
        let Some(slot) = self.book.ledger().find(release.kind, &id) else {
            return self.note_unknown_usage(release.kind, id, period, spent.amount, now);
        };
        // A release is the last message of an incarnation. If it comes late, a late request may have claimed for this
        // incarnation what belongs to others. So the rest of a claim is free only if the release names a lease of this
        // master, which is newer than the claim.
        let leases = &self.book.ledger().holder(slot).leases;
        let held = leases.held(now);
        let is_newer = release.token.is_some_and(|token| !self.book.is_former(token));
        let is_own = is_newer || leases.claimed() == Amount::ZERO;
        let mut consumed = if is_own { spent.amount } else { held };
        if planted::is(Fault::ReturnCountsTwice) {
            consumed = spent.amount.saturating_sub(held.saturating_sub(spent.amount));
        }
        self.finish_usage(slot, Some(spent.amount.min(held)), Amount::ZERO, now);
        self.drop_record(slot);
        self.consume(consumed.min(held));
    }

    /// Consumes the records of clients that have been silent for long.
    pub(super) fn consume_silent(&mut self, now: Millis) {
        let Some(budget) = &self.budget else { return };
        let (due, from) = budget.next_search;
        if now < due {
            return;
        }
        let silence = Millis(self.settings.lease.0 * SILENT_LEASES);
        let (mut silent, mut next) = (Vec::new(), None);
        for (visited, (slot, holder)) in self.book.ledger().iter_from(from).enumerate() {
            if visited == VISITS_PER_TICK {
                next = Some(slot as usize);
                break;
            }
            let is_gone = holder.asked.is_none_or(|asked| now.since(asked.at) >= silence);
            if holder.kind == HolderKind::Client && is_gone && !self.book.ledger().is_inherited(slot) {
                silent.push(slot);
            }
        }
        for slot in silent {
            let leases = &self.book.ledger().holder(slot).leases;
            let (held, lost) = (leases.held(now), leases.held(now).saturating_sub(leases.reported()));
            self.finish_usage(slot, None, lost, now);
            self.drop_record(slot);
            self.counters.expired += 1;
            if !planted::is(Fault::ExpiryFrees) {
                self.consume(held);
            }
        }
        let search = next.map_or((now.plus(self.settings.lease), 0), |slot| (now, slot));
        if let Some(budget) = &mut self.budget {
            budget.next_search = search;
        }
    }

    /// The record of the incarnation of a holder that asked last, among the first `maximum` records.
    pub(super) fn newest_spender(&self, kind: HolderKind, id: &str, maximum: usize) -> Option<u32> {
        self.budget.as_ref()?;
        let records = self.book.ledger().iter_from(0).take(maximum);
        let of_holder = records.filter(|(_, holder)| holder.kind == kind && holder_of_record(&holder.id) == id);
        of_holder.max_by_key(|(_, holder)| holder.asked.map(|asked| asked.at)).map(|(slot, _)| slot)
    }
}

/// The allowance of a holder that has spent so much and may spend `slice` of the amount that is `left`. Rounded up if
/// something is left, or it would not cover a call that needs all of the slice. Never less than what is spent.
fn slice_beyond(spent: Amount, slice: Amount, left: Sum) -> Amount {
    let (mut due, mut most) = (Sum::from(spent), Sum::from(spent));
    due += slice;
    most += left;
    due.ceil().min(most.floor()).max(spent)
}

/// The id of the record of a holder. An incarnation of a child node is its instance.
pub(super) fn spender_id(
    kind: HolderKind,
    id: &Arc<str>,
    incarnation: u64,
    instance: Option<NodeInstance>,
) -> Arc<str> {
    match (kind, instance) {
        (HolderKind::Client, _) if planted::is(Fault::SharesIncarnations) => record_id(id, 0),
        (HolderKind::Client, _) => record_id(id, incarnation),
        (HolderKind::Node, Some(instance)) => record_id(id, instance.node.get()),
        (HolderKind::Node, None) => Arc::clone(id),
    }
}
