//! Where the capacity of a resource comes from: the template or the supply of a parent, an operator's override, and
//! load reports of the protected resource. Also the report to a parent, and the terms that a child node gets with its
//! lease.
//!
//! A node with a parent divides the capacity of the parent's lease by the parent's [`Terms`]. Terms contain only what a
//! node cannot compute from its lease, such as the equal share of the whole tree or the maximum of one client. So a
//! client of a leaf gets what a single server with all clients would give it.
//!
//! The report has all claims in slices of similar wants, and what the holders below may still be using (`outstanding`).
//! The parent counts the larger of that and the node's lease as held. The session decides when to report.

use std::sync::Arc;

use crate::{
    allocation::{
        Allocation, KnownTerms,
        division::Terms,
        groups::{GroupDemand, GroupSupply},
    },
    lease::ledger::Holder,
    planted::{self, Fault},
    policy::{
        overrides::{Load, Override},
        period::Span,
        settings::{AlgorithmKind, Settings},
    },
    pool::{MOVES_PER_REQUEST, Pool, UsageBelow},
    resource::{Answer, Lease, Resource, Supplied, round::PendingGrant, watch_list::waits},
    types::{Amount, Claims, HolderKind, Millis, Sum, wanted},
};

/// The supply of the parent, and the last report to it.
#[derive(Debug, Clone, PartialEq)]
pub struct SupplyReport {
    /// The version of the supply in force; zero while the first is awaited.
    pub version: u64,
    /// The remaining time of the parent's lease.
    pub remaining: Millis,
    /// The outstanding amount in the last report.
    pub outstanding: Option<Amount>,
    /// The terms of the parent, for each priority.
    pub terms: Vec<(i16, Terms)>,
}

/// Where a resource's capacity comes from.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Source {
    /// The capacity of its settings.
    #[default]
    Own,
    /// The capacity of the parent's lease. Nothing is decided before the first [`Supply`].
    Parent,
}

/// The content of a parent's lease.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Supply {
    pub capacity: Amount,
    pub until: Millis,
    /// The terms of the parent's division, by priority; empty if the parent does not send terms.
    pub terms: Vec<(i16, Terms)>,
    /// The node's part of each group; empty if the parent does not divide between groups.
    pub groups: Vec<GroupSupply>,
    /// The supplies of this node are numbered from one.
    pub version: u64,
    /// BUDGET: the period of the capacity.
    pub period: Option<Span>,
}

/// A node's report to its parent about one resource.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct DemandSummary {
    /// The wants of all holders as slices of similar wants, followed by their minimums.
    pub claims: Claims,
    /// The same by group, if clients are grouped.
    pub groups: Vec<GroupDemand>,
    /// Capacity that holders may still believe in.
    pub outstanding: Amount,
    /// PRIORITY_POOL: the use of this node's capacity.
    pub usage: Option<UsageBelow>,
    /// Whether the node is in learning mode, in which it does not know all holders.
    pub learning: bool,
    /// The version of the current supply; zero before the first. A request with this report must not confirm a newer
    /// supply, because `outstanding` is correct only under this one.
    pub version: u64,
    /// BUDGET: the start of the period that `outstanding` was spent in.
    pub period: Option<i64>,
}

/// Relative changes of wants or leases below this are reported with the next refresh.
const REPORT_THRESHOLD: f64 = 0.005;

#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub(crate) struct LastReport {
    pub(crate) wants: Sum,
    pub(crate) held: Sum,
}

impl LastReport {
    /// Whether `now` should be reported before the next refresh (rule 10): if the wants have changed, or if the last
    /// report had more held than the parent has `lent` and holders have given up some of that since, because the parent
    /// waits for it.
    pub(crate) fn is_outdated(&self, now: &LastReport, lent: Amount) -> bool {
        let (told, wants) = (self.wants.get(), now.wants.get());
        let wants_moved = (wants - told).abs() > told.max(wants) * REPORT_THRESHOLD;
        let (told, held) = (self.held.get(), now.held.get().max(lent.get()));
        wants_moved || told - held > told * REPORT_THRESHOLD
    }
}

#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) enum SupplyState {
    Own,
    Parent {
        /// The end of the parent's lease and the version of the supply; absent before the first.
        supply: Option<(Millis, u64)>,
        /// The last report to the parent.
        last_report: Option<LastReport>,
    },
}

impl From<Source> for SupplyState {
    fn from(source: Source) -> SupplyState {
        match source {
            Source::Own => SupplyState::Own,
            Source::Parent => SupplyState::Parent { supply: None, last_report: None },
        }
    }
}

/// The wants of all holders in few slices. A pool summarizes the wants of its members.
pub(super) fn summarized_claims(allocation: &Allocation, pool: Option<&Pool>, wants: Sum) -> Claims {
    pool.map_or_else(|| allocation.summarize(wants), Pool::summarize)
}

impl Resource {
    /// Applies a supply of the parent, which replaces the previous one. In learning mode, all of the supply may be in
    /// use below.
    pub fn supply(&mut self, now: Millis, supply: Supply) {
        let (is_first, before) = (self.awaits_supply(), self.settings.capacity);
        if let SupplyState::Parent { supply: current, .. } = &mut self.supply_state {
            *current = Some((supply.until, supply.version));
            // Dues may change even if the capacity does not.
            let has_new_terms = self.allocation.set_parent_terms(supply.terms);
            let has_new_groups = self.allocation.set_group_supplies(supply.groups);
            self.settings_version += u64::from(has_new_terms || has_new_groups);
            self.capacity_inputs.template = supply.capacity;
        }
        if self.is_learning(now) {
            self.set_capacity(supply.capacity);
            self.raise_unclaimed(if is_first { Amount::ZERO } else { before });
        }
        self.update_capacity();
    }

    /// Whether the first supply of a parent is missing. All requests are deferred then.
    pub fn awaits_supply(&self) -> bool {
        matches!(self.supply_state, SupplyState::Parent { supply: None, .. })
    }

    pub(super) fn supply_report(&self, now: Millis) -> Option<SupplyReport> {
        let SupplyState::Parent { supply, last_report } = self.supply_state else { return None };
        Some(SupplyReport {
            version: supply.map_or(0, |(_, version)| version),
            remaining: supply.map_or(Millis(0), |(until, _)| until.since(now)),
            outstanding: last_report.map(|report| report.held.ceil()),
            terms: self.allocation.division().parent_terms().to_vec(),
        })
    }

    /// Sets the end of learning mode, once the parent has sent the lease length and so the length of earlier leases.
    /// Call it before the first supply, because granted leases are not withdrawn.
    pub fn learn_until(&mut self, until: Millis) {
        self.book.learn_until(until);
    }

    /// Builds the report to the parent, and records it as sent.
    pub fn summarize(&mut self, now: Millis) -> DemandSummary {
        let learning = self.is_learning(now);
        let sums = self.sums();
        let mut version = 0;
        if let SupplyState::Parent { supply, last_report } = &mut self.supply_state {
            version = supply.map_or(0, |(_, version)| version);
            *last_report = Some(LastReport { wants: sums.wants, held: sums.held });
        }
        let outstanding = if planted::is(Fault::HidesOutstanding) { Amount::ZERO } else { sums.held.ceil() };
        let mut claims = summarized_claims(&self.allocation, self.pool.as_deref(), sums.wants);
        claims.extend(self.allocation.summarize_minimums());
        let ledger = self.book.ledger();
        let groups = match self.has_parent() {
            true => self.allocation.group_demands(|label| ledger.held_by_label(label)),
            false => Vec::new(),
        };
        let usage = self.pool.as_ref().map(|pool| pool.usage_below(sums.held));
        let period = self.budget.as_ref().and_then(|budget| budget.period()).map(|span| span.start);
        DemandSummary { claims, groups, outstanding, usage, learning, version, period }
    }

    /// Whether the parent should get a report before the next refresh.
    pub(crate) fn asks_early(&self) -> bool {
        let SupplyState::Parent { last_report, .. } = &self.supply_state else { return false };
        let sums = self.sums();
        let now = LastReport { wants: sums.wants, held: sums.held };
        // Without holders there is nothing to report, and the parent would lend nothing.
        last_report.map_or(self.book.ledger().len() > 0, |report| {
            report.is_outdated(&now, self.settings.capacity) || self.allocation.groups_have_moved()
        })
    }

    /// Whether the capacity applies to each client. This is so for STATIC below a parent that speaks only the original
    /// protocol: it sends no terms, and Doorman's child servers take its lease as the maximum of *each* client. A
    /// parent that sends terms lends a sum for all clients.
    pub(super) fn is_supplied_per_client(&self) -> bool {
        let is_supplied = matches!(self.supply_state, SupplyState::Parent { supply: Some(_), .. });
        self.settings.kind == AlgorithmKind::Static
            && is_supplied
            && self.allocation.division().parent_terms().is_empty()
    }

    pub(super) fn has_parent(&self) -> bool {
        self.source() == Source::Parent
    }

    pub(crate) fn source(&self) -> Source {
        match self.supply_state {
            SupplyState::Own => Source::Own,
            SupplyState::Parent { .. } => Source::Parent,
        }
    }

    pub(crate) fn supply_until(&self) -> Option<Millis> {
        match self.supply_state {
            SupplyState::Parent { supply, .. } => supply.map(|(until, _)| until),
            SupplyState::Own => None,
        }
    }

    /// Forgets the last report, which is no longer comparable.
    pub(super) fn forget_last_report(&mut self) {
        if let SupplyState::Parent { last_report, .. } = &mut self.supply_state {
            *last_report = None;
        }
    }

    pub(super) fn expire_supply(&mut self, now: Millis) {
        if self.supply_has_ended(now) {
            self.capacity_inputs.template = Amount::ZERO;
            self.update_capacity();
        }
    }

    pub(super) fn supply_has_ended(&self, now: Millis) -> bool {
        self.supply_until().is_some_and(|until| until <= now)
    }

    /// Answers "not yet" (rule 5). Nothing can be decided before the first supply, and no holder loses its lease.
    pub(super) fn defer_all(&mut self, pending: &mut Vec<PendingGrant>, now: Millis, answers: &mut [Answer]) {
        for pending in pending.drain(..) {
            self.book.remember(pending.slot, now, self.settings.lease);
            answers[pending.answer] = Answer::NotYet;
        }
    }

    /// Whether the parent may lend more for this holder once it knows the current wants. The holder must be new or a
    /// child node and get less than it wants, and at the last supply the parent must have had enough for all. Overrides
    /// that lower the supply and learning mode are excluded, because more supply would not help.
    pub(super) fn parent_may_add(&self, pending: &PendingGrant, due: Amount, grant: Amount, now: Millis) -> bool {
        if !self.has_parent() || self.is_learning(now) || self.supply_has_ended(now) {
            return false;
        }
        let divides = |(_, terms): &(i16, Terms)| !matches!(terms, Terms::Wants | Terms::Each(_));
        let holder = self.book.ledger().holder(pending.slot);
        let may_add = self.allocation.parent_may_add(pending.slot, &holder.claims);
        if !may_add.unwrap_or_else(|| !self.allocation.division().parent_terms().iter().any(divides))
            || self.settings.capacity < self.capacity_inputs.template
        {
            return false;
        }
        let wants = match &self.pool {
            // After the first request of a client, the parent knows that it waits for a place.
            Some(_) if grant > Amount::ZERO || holder.leases.is_live(now) => return false,
            Some(_) => holder.wants().floor(),
            None if self.settings.shares() => self.allocation.ruled_wants(&holder.claims).floor(),
            None => due,
        };
        let has_nothing = pending.entitled.keep == Amount::ZERO;
        (has_nothing || holder.kind == HolderKind::Node) && waits(wants.min(pending.entitled.maximum), grant)
    }

    /// The terms that a child node gets with its lease.
    pub(super) fn supplied(&self, slot: u32, lease: Lease, known: &mut KnownTerms) -> Supplied {
        let mut terms: Vec<(i16, Terms)> = Vec::new();
        let claims = &self.book.ledger().holder(slot).claims;
        let groups = self.allocation.group_supplies(slot, claims);
        for claim in wanted(claims).filter(|_| groups.is_empty()) {
            if terms.last().is_none_or(|(priority, _)| *priority != claim.priority) {
                terms.push((claim.priority, self.allocation.terms_of(slot, claim.priority, known)));
            }
        }
        Supplied { lease, terms, groups, settings: Arc::clone(&self.settings) }
    }

    /// A child node's share of the unclaimed capacity.
    pub(super) fn headroom(&self, holder: &Holder) -> Amount {
        if self.settings.headroom <= 0.0 || holder.kind != HolderKind::Node || !self.is_bounded() {
            return Amount::ZERO;
        }
        let wants = self.sums().wants;
        let unclaimed = Sum::from(self.settings.capacity) - wants;
        if unclaimed <= Sum::ZERO || wants == Sum::ZERO {
            return Amount::ZERO;
        }
        Amount::clamped(unclaimed.get() * self.settings.headroom * holder.wants().get() / wants.get())
    }
}

/// A report by the protected resource of the load that it can serve now.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct LoadReport {
    /// An amount, or a fraction of the template's capacity.
    pub load: Load,
    /// When the report expires; absent: with the next report. After that, the template applies again.
    pub until: Option<Millis>,
}

/// Why a load report is refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum LoadError {
    #[error(
        "load reports cannot change this capacity; to allow them, set the parameter `capacity_floor` or `capacity_ceiling` in the template"
    )]
    NotAllowed,
    #[error("the capacity of this resource is lent by a parent; report its load at the root")]
    HasParent,
    #[error("the factor must be finite and not negative")]
    BadFactor,
}

#[derive(Debug, Clone, PartialEq)]
pub(super) struct CapacityInputs {
    /// The template's capacity; below a parent, the capacity of its lease.
    pub(super) template: Amount,
    /// BUDGET: what is added to it in this period, because it was left over in the one before.
    pub(super) carried: Amount,
    pub(super) overridden: Option<Arc<Override>>,
    report: Option<LoadReport>,
}

impl CapacityInputs {
    pub(super) fn new(template: Amount) -> CapacityInputs {
        CapacityInputs { template, carried: Amount::ZERO, overridden: None, report: None }
    }

    /// The capacity without overrides and load reports.
    pub(super) fn usual(&self) -> Amount {
        if self.carried == Amount::ZERO { self.template } else { self.template.saturating_add(self.carried) }
    }

    /// The usual capacity, or the override in its place.
    pub(super) fn base(&self) -> Amount {
        self.overridden.as_ref().map_or(self.usual(), |overridden| overridden.instead_of(self.usual()))
    }

    /// The capacity after the override and the load report.
    pub(super) fn capacity(&self, settings: &Settings) -> Amount {
        let base = self.base();
        let Some(report) = self.report else { return base };
        let reported = match report.load {
            Load::Capacity(capacity) => capacity,
            Load::Factor(factor) => Amount::clamped(base.get() * factor),
        };
        let (floor, ceiling) = self.bounds(settings);
        reported.max(floor).min(ceiling)
    }

    fn bounds(&self, settings: &Settings) -> (Amount, Amount) {
        let base = self.base();
        // A report cannot raise what an override has lowered.
        let maximum = if base < self.usual() { base } else { Amount::MAX };
        let (floor, ceiling) = settings.load_bounds;
        (floor.unwrap_or(base).min(maximum), ceiling.unwrap_or(base).min(maximum))
    }
}

impl Resource {
    /// Applies a load report. Returns the resulting capacity, which is within the configured bounds. The report is lost
    /// with this master.
    pub fn report_load(&mut self, now: Millis, report: LoadReport) -> Result<Amount, LoadError> {
        if self.has_parent() {
            return Err(LoadError::HasParent);
        }
        if self.settings.load_bounds == (None, None) {
            return Err(LoadError::NotAllowed);
        }
        if matches!(report.load, Load::Factor(factor) if !factor.is_finite() || factor < 0.0) {
            return Err(LoadError::BadFactor);
        }
        self.step_pool(now, MOVES_PER_REQUEST);
        self.capacity_inputs.report = Some(report);
        self.update_capacity();
        self.balance_pool(now, 1);
        Ok(self.settings.capacity)
    }

    /// The capacity according to the current load report, and its expiry.
    pub fn reported_load(&self) -> Option<(Amount, Option<Millis>)> {
        // A report of exactly the template's capacity withdraws an earlier one.
        let report = self.capacity_inputs.report.filter(|report| report.load != Load::Factor(1.0))?;
        Some((self.settings.capacity, report.until))
    }

    /// The bounds of load reports.
    pub fn load_bounds(&self) -> (Amount, Amount) {
        self.capacity_inputs.bounds(&self.settings)
    }

    pub(super) fn update_capacity(&mut self) {
        let capacity = self.available();
        if capacity != self.settings.capacity {
            self.set_capacity(capacity);
        }
    }

    pub(super) fn expire_report(&mut self, now: Millis) {
        if self.load_reported_until().is_some_and(|until| until <= now) {
            self.capacity_inputs.report = None;
            self.update_capacity();
        }
    }

    pub(super) fn load_reported_until(&self) -> Option<Millis> {
        self.capacity_inputs.report.and_then(|report| report.until)
    }

    /// The capacity to divide. An override never raises the supply of a parent.
    pub(super) fn available(&self) -> Amount {
        match self.has_parent() {
            true if planted::is(Fault::OverrideRaisesLent) => self.capacity_inputs.base(),
            true => self.capacity_inputs.base().min(self.capacity_inputs.template),
            false => self.capacity_inputs.capacity(&self.settings),
        }
    }
}
