//! Explains the capacity of a holder: the reason for its due, what keeps it from having its due, and when that ends at
//! the latest. Uses the same allocation and lease book as the next answer.

mod sentences;

use crate::{
    allocation::{
        KnownTerms,
        division::Terms,
        groups::{GroupBound, GroupLimit},
    },
    lease::ledger::{BUCKET_MS, Holder},
    policy::{client_rules::ClientRule, settings::AlgorithmKind},
    pool::PoolState,
    resource::{
        HolderReport, Overridden, OverriddenGroup, Resource, budget::report::BudgetReport, report::holder_report,
    },
    types::{Amount, HolderKind, Millis, Sum},
};

/// The maximum number of holders visited for one explanation, about ten milliseconds of work.
const MAX_VISITED: usize = 100_000;
const MAX_NAMED: usize = 5;

#[derive(Debug, Clone, PartialEq)]
pub struct Explanation {
    pub holder: HolderReport,
    /// The time of the explanation.
    pub at: Millis,
    pub capacity: Amount,
    /// The part of it that nobody holds; negative while more is held than the capacity.
    pub free: Sum,
    /// The reason for its due.
    pub rule: DueRule,
    /// Why its group is due less than its clients want, if that limits it.
    pub group: Option<GroupLimit>,
    /// The client rule that applies to it.
    pub client: Option<ClientRule>,
    /// The reasons why it does not have its due.
    pub blocks: Vec<Block>,
    /// When it should ask again; none if it has not asked this master.
    pub asks: Option<Millis>,
    /// The latest end of all blocks. `None` without blocks, or if it depends on the wants of others.
    pub latest: Option<Millis>,
    /// An operator's override of the template's capacity.
    pub overridden: Option<Overridden>,
    /// Overrides of the groups that it is in; of a child node, those that have clients there.
    pub overridden_groups: Vec<OverriddenGroup>,
}

#[derive(Debug, Clone, PartialEq)]
pub enum DueRule {
    /// It is due all that it wants.
    Wants,
    /// NO_ALGORITHM, or `shadow`: it gets what it asks for.
    Unlimited,
    /// At most this level for each of its clients.
    Level(f64),
    /// An equal share for each of its clients, and this fraction of the wants beyond it.
    Share {
        equal: f64,
        /// From 0 to 1.
        top_up: f64,
    },
    /// At most this amount for each client, regardless of their number.
    Each(Amount),
    /// The maximum of its client rule.
    Max(Amount),
    /// The minimum of its client rule, which is more than its share.
    Min(Amount),
    /// The capacity is less than the sum of all minimums, so only minimums are due: at most this level for each client.
    Minimums(f64),
    /// Bands of higher priority want the whole capacity.
    Band {
        /// The band of the holder.
        band: i16,
        /// Wants of the bands above.
        above: Sum,
    },
    /// Only whole units are given. The left-over units pass on at this time.
    Units(Millis),
    /// Its standing in the pool.
    Pool(PoolState),
    /// What it has spent of the budget, and a slice of what is left.
    Budget(BudgetReport),
    /// A child node: its parts of this many groups of clients.
    Groups(usize),
    /// The lease of the node from its parent has ended.
    LoanEnded,
    /// The parent has lent nothing to the node.
    NothingLent,
}

/// Something that keeps a holder from having its due.
#[derive(Debug, Clone, PartialEq)]
pub enum Block {
    /// It has not asked since its due changed. Its next request is answered with its due.
    Asks,
    /// The node has no lease from its parent yet.
    AwaitsSupply,
    /// This amount of inherited leases is unclaimed until this time.
    Unclaimed(Amount, Millis),
    /// This master is in learning mode until this time.
    Learning(Millis),
    /// It echoes no tokens and has shown no lease of this master. Until it does, or at the latest until this time, it
    /// gets no more than it shows (rule E10).
    Unshown(Millis),
    /// It may have a lease of an earlier master that its requests do not show. Until this time its requests are left
    /// out of answers, so that it keeps that lease (rule E11).
    LeftOut(Millis),
    /// Others hold more than they are due: older leases, until they confirm smaller ones, and leases that their next
    /// request will shrink.
    Others(Others),
    /// More is held than the capacity, by this amount: leases from before a cut.
    Over(Sum),
    /// Its own older lease counts until it confirms the newer one, or until this time.
    Unconfirmed(Amount, Millis),
}

/// Holders that have more than they are due.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Others {
    /// The sum of the amounts that they have beyond their dues.
    pub beyond: Sum,
    /// The number of these holders.
    pub count: usize,
    /// The holders with the largest amounts.
    pub largest: Vec<Beyond>,
    /// When all of it has ended, even if no holder confirms a smaller lease.
    pub until: Millis,
    /// Not all holders were visited.
    pub incomplete: bool,
}

/// What a holder has beyond its due.
#[derive(Debug, Clone, PartialEq)]
pub struct Beyond {
    pub id: String,
    pub beyond: Amount,
    /// When that ends at the latest.
    pub until: Millis,
    /// When the holder should ask again, if it has asked this master. It may be gone if that is past.
    pub asks: Option<Millis>,
}

impl DueRule {
    /// Whether its due depends on what others want.
    fn is_shared(&self) -> bool {
        matches!(
            self,
            DueRule::Level(_)
                | DueRule::Share { .. }
                | DueRule::Min(_)
                | DueRule::Minimums(_)
                | DueRule::Band { .. }
                | DueRule::Units(_)
        )
    }

    pub fn name(&self) -> &'static str {
        match self {
            DueRule::Wants => "wants",
            DueRule::Unlimited => "unlimited",
            DueRule::Level(_) => "level",
            DueRule::Share { .. } => "share",
            DueRule::Each(_) => "each",
            DueRule::Max(_) => "max",
            DueRule::Min(_) => "min",
            DueRule::Minimums(_) => "minimums",
            DueRule::Band { .. } => "band",
            DueRule::Units(_) => "units",
            DueRule::Pool(_) => "pool",
            DueRule::Budget(_) => "budget",
            DueRule::Groups(_) => "groups",
            DueRule::LoanEnded => "loan_ended",
            DueRule::NothingLent => "nothing_lent",
        }
    }
}

impl Block {
    pub fn name(&self) -> &'static str {
        match self {
            Block::Asks => "asks",
            Block::AwaitsSupply => "awaits_supply",
            Block::Unclaimed(..) => "unclaimed",
            Block::Learning(_) => "learning",
            Block::Unshown(_) => "unshown",
            Block::LeftOut(_) => "left_out",
            Block::Others(_) => "others",
            Block::Over(_) => "over",
            Block::Unconfirmed(..) => "unconfirmed",
        }
    }
}

/// Explains the capacity of a holder; `None` if the holder is unknown.
pub fn explain(resource: &Resource, now: Millis, kind: HolderKind, id: &str) -> Option<Explanation> {
    let slot = resource.book.ledger().find(kind, id).or_else(|| resource.newest_spender(kind, id, MAX_VISITED))?;
    let mut terms = Vec::new();
    let mut holder = holder_report(resource, slot, now, &mut terms);
    holder.due = resource.due_now(slot, now, &mut terms);
    let capacity = resource.total();
    let free = Sum::from(capacity) - resource.book.ledger().sums().held;
    let rule = rule(resource, slot, &holder, now, &mut terms);
    let blocks = match rule {
        DueRule::Budget(_) => Vec::new(),
        _ => blocks(resource, slot, &holder, free, now, &mut terms),
    };
    let latest = latest(&blocks);
    let asks = asks(resource.book.ledger().holder(slot));
    let overridden = resource.overridden();
    let mut overridden_groups = resource.overridden_groups();
    overridden_groups.retain(|overridden| resource.allocation.is_in_group(slot, &overridden.group));
    let client = client_rule(resource, slot).cloned();
    let group = if rule.is_shared() { resource.allocation.group_limit(slot) } else { None };
    Some(Explanation {
        holder,
        at: now,
        capacity,
        free,
        rule,
        group,
        client,
        blocks,
        asks,
        latest,
        overridden,
        overridden_groups,
    })
}

/// When the holder should ask again; `None` if it has not asked this master.
fn asks(holder: &Holder) -> Option<Millis> {
    holder.asked.map(|asked| asked.at.plus(Millis(u64::from(asked.interval.get()))))
}

fn rule(resource: &Resource, slot: u32, holder: &HolderReport, now: Millis, terms: &mut KnownTerms) -> DueRule {
    if resource.supply_has_ended(now) {
        return DueRule::LoanEnded;
    }
    if let Some(state) = resource.pool.as_ref().and_then(|pool| pool.state(slot)) {
        return DueRule::Pool(state);
    }
    if let Some(report) = resource.budget_report(now) {
        return DueRule::Budget(report);
    }
    if resource.has_parent() && resource.total() == Amount::ZERO && holder.due < holder.wants {
        return DueRule::NothingLent;
    }
    let rule = client_rule(resource, slot);
    if let Some(max) = rule.and_then(|rule| rule.max).filter(|max| *max < holder.wants && *max == holder.due) {
        return DueRule::Max(max);
    }
    if resource.settings.shadow || resource.settings.kind == AlgorithmKind::NoAlgorithm {
        return DueRule::Unlimited;
    }
    if holder.due >= holder.wants {
        return DueRule::Wants;
    }
    match resource.allocation.reported_groups(slot) {
        0 => {}
        groups => return DueRule::Groups(groups),
    }
    let share = resource.allocation.terms_of(slot, holder.priority, terms);
    if let Terms::Minimums(level) = share {
        return DueRule::Minimums(level);
    }
    let min = rule.map_or(Amount::ZERO, |rule| rule.min.min(holder.wants));
    if min > Amount::ZERO
        && resource.allocation.division_of(slot).share_of(&share, &resource.book.ledger().holder(slot).claims) < min
    {
        return DueRule::Min(min);
    }
    let band = resource.allocation.division_of(slot).band(holder.priority);
    let above = resource.allocation.division_of(slot).wanted_above(band);
    let shared = Sum::from(resource.allocation.capacity_of(slot));
    if holder.due == Amount::ZERO && above > Sum::ZERO && above >= shared {
        return DueRule::Band { band, above };
    }
    if let Some(ends) = resource.allocation.rotation_ends() {
        return DueRule::Units(ends);
    }
    match share {
        Terms::Wants => DueRule::Wants,
        Terms::Minimums(level) => DueRule::Minimums(level),
        Terms::Each(most) => DueRule::Each(most),
        Terms::Level(level) => DueRule::Level(level),
        Terms::Share { equal, top_up } => DueRule::Share { equal, top_up },
    }
}

fn client_rule(resource: &Resource, slot: u32) -> Option<&ClientRule> {
    resource.allocation.division().rule(resource.book.ledger().holder(slot).claims.first()?)
}

fn blocks(
    resource: &Resource,
    slot: u32,
    holder: &HolderReport,
    free: Sum,
    now: Millis,
    terms: &mut KnownTerms,
) -> Vec<Block> {
    let mut blocks = Vec::new();
    if resource.awaits_supply() {
        return vec![Block::AwaitsSupply];
    }
    if holder.held > holder.granted {
        let until = resource.book.ledger().holder(slot).leases.last_above(holder.granted, now);
        blocks.push(Block::Unconfirmed(holder.held, until));
    }
    if holder.granted == holder.due {
        return blocks;
    }
    if let Some(block) = blocked_by_silence(resource, slot, holder) {
        blocks.push(block);
        return blocks;
    }
    let costless = holder.due.min(holder.granted.max(holder.held));
    let lacks = Sum::from(holder.due) - Sum::from(costless);
    if holder.granted > holder.due || lacks <= free.max(Sum::ZERO) || !resource.is_bounded() {
        blocks.push(Block::Asks);
        return blocks;
    }
    if free < Sum::ZERO {
        blocks.push(Block::Over(Sum::ZERO - free));
    }
    let (left, lacks) = (resource.book.unclaimed(), lacks - free.max(Sum::ZERO));
    if let Some(until) = resource.book.inherited_over_by(lacks.ceil().min(left)).filter(|_| left > Amount::ZERO) {
        let learns = resource.is_learning(now);
        blocks.push(if learns { Block::Learning(until) } else { Block::Unclaimed(left, until) });
    }
    let others = others(resource, slot, now, terms);
    if others.beyond > Sum::ZERO {
        blocks.push(Block::Others(others));
    }
    if blocks.is_empty() {
        blocks.push(Block::Asks);
    }
    blocks
}

/// A holder of earlier masters that does not show its lease cannot grow (rules E10 and E11).
fn blocked_by_silence(resource: &Resource, slot: u32, holder: &HolderReport) -> Option<Block> {
    let until = resource.book.inherited_until().filter(|_| resource.is_bounded())?;
    if !resource.book.ledger().holder(slot).leases.has_given() {
        return Some(Block::LeftOut(until));
    }
    (holder.granted < holder.due && resource.book.has_unproven_claim(slot)).then_some(Block::Unshown(until))
}

fn others(resource: &Resource, slot: u32, now: Millis, terms: &mut KnownTerms) -> Others {
    let mut others = Others { incomplete: resource.book.ledger().len() > MAX_VISITED, ..Others::default() };
    let records = resource.book.ledger().iter_from(0).take(MAX_VISITED);
    for (other, record) in records.filter(|(other, _)| *other != slot && !resource.book.ledger().is_inherited(*other)) {
        let due = resource.due_now(other, now, terms);
        let beyond = record.leases.held(now).saturating_sub(due);
        if beyond <= Amount::ZERO {
            continue;
        }
        others.beyond += beyond;
        others.count += 1;
        let until = record.leases.last_above(due, now);
        others.until = others.until.max(until);
        let least = others.largest.iter().map(|other| other.beyond).fold(Amount::MAX, Amount::min);
        if others.largest.len() < MAX_NAMED || beyond > least {
            others.largest.push(Beyond { id: record.id.to_string(), beyond, until, asks: asks(record) });
            others.largest.sort_by(|one, other| other.beyond.get().total_cmp(&one.beyond.get()));
            others.largest.truncate(MAX_NAMED);
        }
    }
    others
}

/// The latest end of the blocks that have one.
fn latest(blocks: &[Block]) -> Option<Millis> {
    let ends = blocks.iter().map(|block| match block {
        Block::Unclaimed(_, until)
        | Block::Learning(until)
        | Block::Unshown(until)
        | Block::LeftOut(until)
        | Block::Unconfirmed(_, until) => Some(*until),
        Block::Others(others) if !others.incomplete => Some(others.until),
        Block::Others(_) | Block::Over(_) | Block::Asks | Block::AwaitsSupply => None,
    });
    // The ledger notices an end with this delay.
    ends.flatten().max().map(|end| end.plus(Millis(BUCKET_MS)))
}
