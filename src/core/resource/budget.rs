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
//! A client that reserves an amount spends it in advance, and may take a part of it back. So a report may be smaller than
//! the one before. It counts if it comes with the first confirmation of a lease, since then it is newer than all before.
//! Otherwise only a larger one does.
//!
//! # Pace
//! Usually a budget is served first come, first served. With `pace` it is spread over its period: what may be out grows
//! by what is left, divided by the time that is left, and the allocation divides it between holders by their wants.
//! A holder saves its share as a [`Credit`] until it asks. A call that needs more than its credit is served, and its holder
//! waits until the debt is paid.
//!
//! # Incarnations
//! Reports are sums, so they belong to one *incarnation* of a holder: a process that restarts begins anew and has spent
//! nothing. Each incarnation has a record of its own. A record whose holder is silent is *consumed*: all that it
//! held joins the unclaimed leases of [`crate::lease::inherited`], which here mean "spent by holders that are gone". If
//! the holder is alive after all, it is told to start over as another incarnation. A release consumes what its sender
//! has spent, and frees the rest.
//!
//! # Periods
//! At a root the period follows from the wall time ([`Periods`]), below a parent from the parent's lease. A new period
//! begins without records. Requests name their period; the allowance of another one confirms nothing. No lease is given
//! in the last second of a period and in the first seconds of the next ([`CLOCK_ALLOWANCE`]), so that a new master whose
//! clock is a little behind cannot reopen the period before.
//!
//! The quorum stores a total, as for all leases. Its horizon lies a quarter of a period after the period's end. So a new
//! master can tell a total of this period from one of the period before: the latter's horizon has passed when half of
//! this period has. Whatever it inherits of this period stays consumed until holders claim it.
//!
//! [`BudgetSettings::slice_share`]: crate::policy::settings::BudgetSettings::slice_share
//! [`Periods`]: crate::policy::period::Periods

use std::{collections::HashMap, sync::Arc};

use crate::{
    allocation::KnownTerms,
    planted::{self, Fault},
    policy::period::Span,
    resource::{Answer, Ask, BudgetLease, Lease, NodeInstance, Release, Resource, Spent},
    types::{Amount, HolderKind, Millis, Now, Sum},
};

/// In seconds: the wall clocks of peers differ by less than this. A new period gives its first lease this much later.
pub(super) const CLOCK_ALLOWANCE: i64 = 2;

/// The end of leases that count until a period ends. Periods end by their own rule, so this is never reached.
pub(crate) const NEVER: Millis = Millis(1 << 52);

/// A client is gone if it has been silent for this many lease lengths.
const SILENT_LEASES: u64 = 3;
/// Maximum number of records visited per tick in the search for silent clients.
const VISITS_PER_TICK: usize = 4096;
/// The slices of child nodes may be this much larger than those of clients, because many clients depend on them.
const NODE_FACTOR: f64 = 4.0;
/// The smallest slice, if so much is left and wanted.
const UNIT: Amount = Amount::ONE;
/// With `pace`: what was not spent at once stays available for this many refresh intervals.
const PACED_INTERVALS: f64 = 2.0;
/// With `pace`: the time constant of averages, in refresh intervals.
const AVERAGED_INTERVALS: f64 = 8.0;

#[derive(Debug, Default)]
pub(super) struct Budget {
    /// The current period; absent until the first request, and below a parent until the first supply.
    period: Option<Span>,
    /// Its start and the horizon of its leases, on the clock of this master in milliseconds. It may have started before
    /// that clock did.
    start: i128,
    horizon: Millis,
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
    /// When silent clients are looked for next, and the slot to start from.
    next_search: (Millis, usize),
}

/// How much of a budget that is spread over its period may be out.
#[derive(Debug, Clone, Copy)]
struct Pace {
    at: Millis,
    /// The amount that holders may have together.
    total: f64,
    /// Per second: it would spend what is left evenly until the period ends.
    rate: f64,
    /// What was allowed and not used, in refresh intervals. An average, so that it does not matter who asks first.
    unused: f64,
}

/// The part of the pace that a holder has not used. Negative after a call that needed more.
#[derive(Debug, Clone, Copy)]
struct Credit {
    at: Millis,
    amount: f64,
}

/// A threshold of a budget was reached.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct BudgetEvent {
    pub period: Span,
    /// The threshold in percent.
    pub percent: u8,
    pub spent: Amount,
    pub amount: Amount,
}

/// The state of a budget for reports.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct BudgetReport {
    pub period: Span,
    /// Spent as far as it was reported, by live holders and by those that are gone. The latter counts slices that were
    /// lost.
    pub spent: Amount,
    /// The part of `spent` that belongs to no live holder.
    pub gone: Amount,
    /// Slices of live holders that are not spent yet, as far as is known.
    pub reserved: Amount,
    /// Neither spent nor reserved.
    pub left: Amount,
    /// With `pace`: what may be spent per second.
    pub pace: Option<f64>,
    /// Absent if the amount is spent once.
    pub forecast: Option<BudgetForecast>,
}

/// What happens if spending goes on at the mean rate of this period.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct BudgetForecast {
    /// What would be spent at the end of the period; it may be more than the amount.
    pub spent: f64,
    /// When nothing will be left, in Unix seconds, if that is before the end.
    pub runs_out: Option<i64>,
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

    /// Begins the period of this moment, if another one was in force.
    pub fn enter_period(&mut self, now: Now) {
        let Some(budget) = self.budget.as_deref().filter(|_| !self.has_parent()) else { return };
        if !budget.is_current(now.unix) {
            self.begin_period(self.settings.budget.periods.at(now.unix), now);
        }
    }

    /// Begins the period of a supply, before the supply is applied.
    pub fn enter_supplied_period(&mut self, period: Option<Span>, now: Now) {
        let Some(budget) = &self.budget else { return };
        if let Some(span) = period.filter(|span| budget.period != Some(*span)) {
            self.begin_period(span, now);
        }
    }

    /// Begins a period without records, or goes on with the current one.
    pub(super) fn begin_period(&mut self, span: Span, now: Now) {
        let Some(budget) = &mut self.budget else { return };
        let before = budget.period.replace(span);
        let start = i128::from(now.at.0) - i128::from(now.unix.saturating_sub(span.start)) * 1000;
        let length = i128::from(span.seconds()) * 1000;
        let horizon = (start + length + length / 4).clamp(0, i128::from(NEVER.0));
        budget.horizon = u64::try_from(horizon).map_or(NEVER, Millis);
        (budget.start, budget.is_outdated, budget.pace) = (start, false, None);
        match before {
            Some(before) if before.start == span.start => {}
            Some(_) => {
                budget.reported = Default::default();
                self.drop_records();
            }
            None => {
                let until = self.book.inherited_until();
                let is_earlier = until.is_some_and(|until| i128::from(until.0) < start + length / 2);
                if is_earlier && !span.is_unending() && self.book.keeps_promises() {
                    self.drop_records();
                } else {
                    self.book.inherit_until(NEVER);
                }
            }
        }
    }

    /// Returns claims from before the first supply of a parent to the inherited leases, and drops their records. They
    /// were made under the ids of clients, before this node knew that the resource is a budget.
    fn forget_claims(&mut self) {
        let ledger = self.book.ledger();
        let records = ledger.iter_from(0).filter(|(slot, _)| !ledger.is_inherited(*slot));
        let claims = records.map(|(slot, holder)| (slot, holder.leases.claimed())).collect::<Vec<_>>();
        for (slot, claimed) in claims {
            self.drop_record(slot);
            self.give_back(claimed);
        }
        self.last_round.newcomers.clear();
    }

    /// Drops all records and the inherited leases: what they stand for is over.
    fn drop_records(&mut self) {
        let ledger = self.book.ledger();
        let slots = ledger.iter_from(0).map(|(slot, _)| slot).filter(|slot| !ledger.is_inherited(*slot));
        for slot in slots.collect::<Vec<_>>() {
            self.drop_record(slot);
        }
        if let Some((slot, wants)) = self.book.drop_inherited() {
            self.allocation.remove(slot, &wants);
        }
        self.last_round.newcomers.clear();
        self.settings_version += 1;
    }

    pub(super) fn drop_record(&mut self, slot: u32) {
        let holder = self.book.remove_holder(slot);
        self.forget(slot, &holder.claims, holder.watch);
        if let Some(budget) = &mut self.budget {
            budget.needs.remove(&slot);
            budget.credits.remove(&slot);
        }
    }

    /// Counts an amount as spent by holders that are gone.
    fn consume(&mut self, amount: Amount) {
        let change = self.book.consume(amount, NEVER);
        self.apply_change(change);
    }

    /// Whether no lease may be given now, because another period begins.
    pub(super) fn is_between_periods(&self, now: Now) -> bool {
        let Some(span) = self.budget.as_ref().and_then(|budget| budget.period) else { return false };
        let is_new = now.unix < span.start.saturating_add(CLOCK_ALLOWANCE);
        !span.is_unending() && !self.has_parent() && (is_new || now.unix >= span.end - 1)
    }

    /// The remaining time of the period, rounded down.
    pub(super) fn left_of_period(&self, now: Now) -> Option<Millis> {
        let span = self.budget.as_ref()?.period?;
        // Seconds of the wall time are rounded down, so less than a second of this one may be left.
        let seconds = u64::try_from(span.end.saturating_sub(now.unix).saturating_sub(1)).unwrap_or_default();
        (!planted::is(Fault::SlicesOutlastPeriods)).then(|| Millis(seconds.saturating_mul(1000)))
    }

    /// What a lease of a budget says besides its capacity.
    pub(super) fn budget_lease(&self, starts_over: bool) -> Option<BudgetLease> {
        let period = self.budget.as_ref()?.period?;
        Some(BudgetLease { period, starts_over })
    }

    /// The horizon of leases, which lie in the current period.
    pub(super) fn budget_horizon(&self) -> Option<Millis> {
        self.budget.as_ref().map(|budget| budget.horizon)
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
        if starts_over { Err(self.start_over(now)) } else { Ok(()) }
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
    }

    /// Makes the allocation divide what the pace allows in a refresh interval, and more if less was used before.
    pub(super) fn step_pace(&mut self, now: Now) {
        let Some(budget) = self.budget.as_mut().filter(|_| self.settings.is_paced()) else { return };
        let Some(period) = budget.period else { return };
        let interval = self.settings.refresh.0 as f64 / 1000.0;
        let held = self.book.ledger().sums().held.get();
        let left = (self.settings.capacity.get() - held).max(0.0);
        let rate = left / period.end.saturating_sub(now.unix).max(1) as f64;
        let of_interval = rate * interval;
        let most = held + of_interval * PACED_INTERVALS;
        let grown = |pace: Pace| pace.total + rate * now.at.since(pace.at).0 as f64 / 1000.0;
        let total = budget.pace.map_or(most, |pace| grown(pace).min(most));
        let elapsed = budget.pace.map_or(0.0, |pace| now.at.since(pace.at).0 as f64 / 1000.0);
        let weight = 1.0 - (-elapsed / interval / AVERAGED_INTERVALS).exp();
        let recent = ((total - held) / of_interval.max(f64::MIN_POSITIVE)).clamp(0.0, PACED_INTERVALS);
        let before = budget.pace.map_or(0.0, |pace| pace.unused);
        let unused = before + (recent - before) * weight;
        budget.pace = Some(Pace { at: now.at, total, rate, unused });
        self.allocation.set_capacity(Amount::clamped(of_interval * (1.0 + unused)));
    }

    /// With `pace`: adds the fair share of the time since the last request to the credit of a holder. So nobody gains by
    /// asking more often, or before others.
    pub(super) fn add_credit(&mut self, slot: u32, now: Millis, known: &mut KnownTerms) {
        if self.budget.is_none() || !self.settings.is_paced() {
            return;
        }
        let share = self.divided(slot, self.book.ledger().holder(slot), known).get();
        let interval = self.settings.refresh.0 as f64;
        let Some(budget) = &mut self.budget else { return };
        let credit = budget.credits.entry(slot).or_insert(Credit { at: now, amount: share });
        let grown = credit.amount + share * now.since(credit.at).0 as f64 / interval;
        *credit = Credit { at: now, amount: grown.min(share * PACED_INTERVALS) };
    }

    /// Takes what a new allowance adds from the credit of its holder.
    pub(super) fn use_credit(&mut self, slot: u32, allowance: Amount) {
        let before = self.allowance(slot);
        let credit = self.budget.as_mut().and_then(|budget| budget.credits.get_mut(&slot));
        if let Some(credit) = credit {
            credit.amount -= allowance.get() - before.get();
        }
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
            return self.paced_due(slot, pace, left.get());
        }
        let share = match holder.kind {
            HolderKind::Client => self.settings.budget.slice_share,
            HolderKind::Node => (self.settings.budget.slice_share * NODE_FACTOR).min(1.0),
        };
        let need = budget.needs.get(&slot).copied().unwrap_or(UNIT);
        let most = Amount::clamped(left.get() * share).max(need.max(UNIT)).min(left.floor());
        let slice = most.min(wants.ceil());
        // Whole units, so that no fractions are stranded, unless a caller waits for more.
        let whole = slice.floor();
        let slice = if whole >= need { whole } else { slice };
        let mut due = Sum::from(spent);
        due += slice;
        due.floor()
    }

    /// With `pace`: a holder keeps the part of its slice that it wants, and may use its credit. A call that needs more
    /// than that gets it as soon as there is any credit, and the holder is in debt. `left`: what nobody has spent, and no
    /// other holder has.
    fn paced_due(&self, slot: u32, pace: Pace, left: f64) -> Amount {
        let Some(budget) = &self.budget else { return Amount::ZERO };
        let holder = self.book.ledger().holder(slot);
        let spent = holder.leases.reported();
        let unspent = self.allowance(slot).saturating_sub(spent).get();
        let wants = self.allocation.ruled_wants(&holder.claims).get();
        let need = budget.needs.get(&slot).copied().unwrap_or(UNIT).max(UNIT).get();
        let lacks = (wants - unspent).max(0.0);
        // Credits follow the pace, so only calls that need more can exceed it by much.
        let overdraft = pace.rate * self.settings.refresh.0 as f64 / 1000.0;
        let is_allowed = pace.total + overdraft > self.book.ledger().sums().held.get();
        let credit = budget.credits.get(&slot).map_or(0.0, |credit| credit.amount);
        let more = if is_allowed && credit > 0.0 { credit.max(need - unspent).min(lacks) } else { 0.0 };
        let slice = (unspent.min(wants) + more).min(left);
        let slice = if slice.floor() >= need { slice.floor() } else { slice };
        let mut due = Sum::from(spent);
        due += Amount::clamped(slice);
        due.floor()
    }

    /// A client returns its allowance: what it has spent is consumed, the rest is free.
    pub(super) fn release_spender(&mut self, release: &Release, now: Millis) {
        let (Some(budget), Some(spent)) = (&self.budget, &release.spent) else { return };
        if budget.period.is_none_or(|span| span.start != spent.period) {
            return;
        }
        let id = spender_id(release.kind, &release.id, spent.incarnation, release.instance);
        let Some(slot) = self.book.ledger().find(release.kind, &id) else { return };
        // A release is the last message of an incarnation.
        let (held, mut consumed) = (self.book.ledger().holder(slot).leases.held(now), spent.amount);
        if planted::is(Fault::ReturnCountsTwice) {
            consumed = consumed.saturating_sub(held.saturating_sub(consumed));
        }
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
            let held = self.book.ledger().holder(slot).leases.held(now);
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

    /// Adds an event for each threshold that was reached since the last call. If the amount has changed, thresholds can be
    /// reached again. A new master does not know which were reported, so it reports all that were reached.
    pub(super) fn check_thresholds(&mut self, now: Millis) {
        let Some(budget) = &self.budget else { return };
        let (thresholds, amount) = (&self.settings.budget.thresholds, self.settings.capacity);
        let (known, of_amount) = budget.reported;
        let of = |part: f64| if amount > Amount::ZERO { part / amount.get() } else { 0.0 };
        // What is held is an upper bound of what was spent, and known without a visit to all holders.
        if self.has_parent() || amount == of_amount && thresholds.reached(of(self.sums().held.get())).len() <= known {
            return;
        }
        let Some(report) = self.budget_report(now) else { return };
        let (spent, period) = (report.spent, report.period);
        let reached = thresholds.reached(of(spent.get()));
        let known = if amount == of_amount { known } else { known.min(reached.len()) };
        let events: Vec<_> =
            reached.iter().skip(known).map(|&percent| BudgetEvent { period, percent, spent, amount }).collect();
        let reported = (known.max(reached.len()), amount);
        if let Some(budget) = &mut self.budget {
            budget.events.extend(events);
            budget.reported = reported;
        }
    }

    /// Takes the events since the last call.
    pub(crate) fn take_budget_events(&mut self) -> Vec<BudgetEvent> {
        self.budget.as_mut().map_or_else(Vec::new, |budget| std::mem::take(&mut budget.events))
    }

    /// The record of the incarnation of a holder that asked last, among the first `most` records.
    pub(super) fn newest_spender(&self, kind: HolderKind, id: &str, most: usize) -> Option<u32> {
        self.budget.as_ref()?;
        let records = self.book.ledger().iter_from(0).take(most);
        let of_holder = records.filter(|(_, holder)| holder.kind == kind && holder_of_record(&holder.id) == id);
        of_holder.max_by_key(|(_, holder)| holder.asked.map(|asked| asked.at)).map(|(slot, _)| slot)
    }

    /// The state of a budget; `None` if it is none, or before its first request.
    pub fn budget_report(&self, now: Millis) -> Option<BudgetReport> {
        let period = self.budget.as_ref()?.period?;
        let held = self.sums().held;
        let gone = self.book.unclaimed();
        let live: Sum = self
            .book
            .ledger()
            .iter_from(0)
            .filter(|(slot, _)| !self.book.ledger().is_inherited(*slot))
            .map(|(_, holder)| holder.leases.outstanding(now))
            .collect();
        let mut spent = live;
        spent += gone;
        let reserved = (held - spent).max(Sum::ZERO).ceil();
        let left = (Sum::from(self.settings.capacity) - held).floor();
        let pace = self.budget.as_ref()?.pace.filter(|_| self.settings.is_paced()).map(|pace| pace.rate);
        let forecast = self.forecast(spent.get(), now);
        Some(BudgetReport { period, spent: spent.ceil(), gone, reserved, left, pace, forecast })
    }

    fn forecast(&self, spent: f64, now: Millis) -> Option<BudgetForecast> {
        let budget = self.budget.as_ref()?;
        let period = budget.period.filter(|period| !period.is_unending())?;
        let elapsed = (i128::from(now.0) - budget.start) as f64 / 1000.0;
        let rate = spent / elapsed.max(1.0);
        let until_spent = self.settings.capacity.get() / rate;
        let runs_out = (until_spent < period.seconds() as f64).then(|| period.start.saturating_add(until_spent as i64));
        Some(BudgetForecast { spent: rate * period.seconds() as f64, runs_out })
    }
}

/// The id of the record of a holder. An incarnation of a child node is its instance.
fn spender_id(kind: HolderKind, id: &Arc<str>, incarnation: u64, instance: Option<NodeInstance>) -> Arc<str> {
    match (kind, instance) {
        (HolderKind::Client, _) if planted::is(Fault::SharesIncarnations) => record_id(id, 0),
        (HolderKind::Client, _) => record_id(id, incarnation),
        (HolderKind::Node, Some(instance)) => record_id(id, instance.node.get()),
        (HolderKind::Node, None) => Arc::clone(id),
    }
}
