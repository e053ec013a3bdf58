//! Why a holder has what it has: what its due comes from, what keeps it from having that, and when that changes at the
//! latest. Computed from the same division, ledger and estate as the next answer would be.

mod words;

use super::{HolderReport, Overridden, Resource};
use crate::{
    allocation::division::Terms,
    lease::ledger::BUCKET_MS,
    policy::{client_rules::ClientRule, settings::AlgorithmKind},
    pool::PoolState,
    types::{
        amount::{Amount, Sum},
        claim::HolderKind,
        time::Millis,
    },
};

/// Holders looked at for one explanation: so many take some ten milliseconds.
const LOOKED_AT: usize = 100_000;
/// Of those that have to give something up, the ones that are named.
const NAMED: usize = 5;

/// Why one holder has what it has.
#[derive(Debug, Clone, PartialEq)]
pub struct Explanation {
    pub holder: HolderReport,
    /// When this was so.
    pub at: Millis,
    pub capacity: Amount,
    /// What of it nothing that is held keeps; below zero while more is held than there is.
    pub free: Sum,
    /// What its due comes from.
    pub rule: DueRule,
    /// What `clients` says of it.
    pub client: Option<ClientRule>,
    /// What keeps it from having just its due.
    pub blocks: Vec<Block>,
    /// When it is to ask again, as it was told; none if it has not asked this master.
    pub asks: Option<Millis>,
    /// When all that blocks it is over at the latest; none where nothing does, or where that depends on others' wants.
    pub latest: Option<Millis>,
    /// What an operator has set in place of the template's capacity.
    pub overridden: Option<Overridden>,
}

/// What a due comes from.
#[derive(Debug, Clone, PartialEq)]
pub enum DueRule {
    /// All that it wants.
    Wants,
    /// NO_ALGORITHM, or `shadow`: what is asked for is given; how much else would have been, if that is known.
    Unlimited,
    /// At most so much for each of its clients, the same for all.
    Level(f64),
    /// An equal share for each of its clients, and this part of what is wanted beyond it.
    Share {
        equal: f64,
        /// From 0 to 1.
        top_up: f64,
    },
    /// At most so much for each client, however many there are.
    Each(Amount),
    /// What its rule says at most.
    Max(Amount),
    /// What its rule says at least, which is more than its share.
    Min(Amount),
    /// Minimums alone, for there is not even enough for all of them: so much for each client at most.
    Minimums(f64),
    /// Bands of higher priority want so much, and leave nothing.
    Band {
        /// The band of the holder.
        band: i16,
        /// What is wanted above it.
        above: Sum,
    },
    /// Only whole units are given; which holders have those that are left over changes then.
    Units(Millis),
    /// Its standing in the pool.
    Pool(PoolState),
    /// The lease of the node from its parent has ended.
    LoanEnded,
    /// The parent has lent nothing of it to the node.
    NothingLent,
}

/// Something that keeps a holder from having just its due.
#[derive(Debug, Clone, PartialEq)]
pub enum Block {
    /// Nothing does but that it has not asked since: its next request is answered with its due.
    Asks,
    /// The node has no lease of its own yet.
    AwaitsSupply,
    /// So much of what earlier masters promised has not been named yet, and ends then.
    Unclaimed(Amount, Millis),
    /// This master knows nothing of earlier leases, and listens until then.
    Learning(Millis),
    /// It carries no token, and has shown no lease of this master: until then at the latest it gets no more than it says
    /// it has.
    Unshown(Millis),
    /// It may have a lease of an earlier master, and does not say so: until then its requests are left unanswered, so
    /// that it keeps that.
    LeftOut(Millis),
    /// Others hold more than they are due: older leases that they have not confirmed away, and leases that their next
    /// request will cut.
    Others(Others),
    /// More is held than there is: leases from before the capacity was cut.
    Over(Sum),
    /// Its own older lease counts until it confirms the newer one, or until then.
    Unconfirmed(Amount, Millis),
}

/// Holders that have more than they are due.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Others {
    /// How much more, together.
    pub beyond: Sum,
    /// How many they are.
    pub count: usize,
    /// Those that have the most of it: who, how much beyond its due, and until when at the latest.
    pub most: Vec<(String, Amount, Millis)>,
    /// When all of it is over, unless they confirm it away before.
    pub until: Millis,
    /// There are holders that were not looked at.
    pub incomplete: bool,
}

impl DueRule {
    /// Its name, for programs.
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
            DueRule::LoanEnded => "loan_ended",
            DueRule::NothingLent => "nothing_lent",
        }
    }
}

impl Block {
    /// Its name, for programs.
    pub fn name(&self) -> &'static str {
        match self {
            Block::Asks => "asks",
            Block::AwaitsSupply => "awaits_supply",
            Block::Unclaimed(..) => "estate",
            Block::Learning(_) => "learning",
            Block::Unshown(_) => "unshown",
            Block::LeftOut(_) => "left_out",
            Block::Others(_) => "others",
            Block::Over(_) => "over",
            Block::Unconfirmed(..) => "unconfirmed",
        }
    }
}

impl Resource {
    /// Why a holder has what it has; nothing if it is not known here.
    pub fn explain(&self, now: Millis, kind: HolderKind, id: &str) -> Option<Explanation> {
        let slot = self.ledger.find(kind, id)?;
        let mut terms = Vec::new();
        let mut holder = self.holder_report(slot, now, &mut terms);
        holder.due = self.due_now(slot, now, &mut terms);
        let capacity = self.total();
        let free = Sum::from(capacity) - self.ledger.sums().held;
        let asked = self.ledger.holder(slot).asked;
        let rule = self.rule(slot, &holder, now, &mut terms);
        let blocks = self.blocks(slot, &holder, free, now, &mut terms);
        let latest = latest(&blocks);
        let asks = asked.map(|asked| asked.at.plus(Millis(u64::from(asked.interval.get()))));
        let overridden = self.overridden();
        let client = self.client_rule(slot).cloned();
        Some(Explanation { holder, at: now, capacity, free, rule, client, blocks, asks, latest, overridden })
    }

    fn rule(&self, slot: u32, holder: &HolderReport, now: Millis, terms: &mut Vec<(i16, Terms)>) -> DueRule {
        if self.supply_has_ended(now) {
            return DueRule::LoanEnded;
        }
        if let Some(state) = self.pool.as_ref().and_then(|pool| pool.state(slot)) {
            return DueRule::Pool(state);
        }
        if self.has_parent() && self.total() == Amount::ZERO && holder.due < holder.wants {
            return DueRule::NothingLent;
        }
        let rule = self.client_rule(slot);
        if let Some(max) = rule.and_then(|rule| rule.max).filter(|max| *max < holder.wants && *max == holder.due) {
            return DueRule::Max(max);
        }
        if self.settings.shadow || self.settings.kind == AlgorithmKind::NoAlgorithm {
            return DueRule::Unlimited;
        }
        if holder.due >= holder.wants {
            return DueRule::Wants;
        }
        let share = self.terms_of(holder.priority, terms);
        if let Terms::Minimums(level) = share {
            return DueRule::Minimums(level);
        }
        let min = rule.map_or(Amount::ZERO, |rule| rule.min.min(holder.wants));
        if min > Amount::ZERO && self.division.share_of(&share, &self.ledger.holder(slot).claims) < min {
            return DueRule::Min(min);
        }
        let band = self.division.band(holder.priority);
        let above = self.division.wanted_above(band);
        if holder.due == Amount::ZERO && above > Sum::ZERO && above >= Sum::from(self.settings.capacity) {
            return DueRule::Band { band, above };
        }
        if let (true, Some(rotation)) = (self.settings.whole_units, &self.rotation) {
            return DueRule::Units(rotation.ends());
        }
        match share {
            Terms::Wants => DueRule::Wants,
            Terms::Minimums(level) => DueRule::Minimums(level),
            Terms::Each(most) => DueRule::Each(most),
            Terms::Level(level) => DueRule::Level(level),
            Terms::Share { equal, top_up } => DueRule::Share { equal, top_up },
        }
    }

    fn client_rule(&self, slot: u32) -> Option<&ClientRule> {
        self.division.rule(self.ledger.holder(slot).claims.first()?)
    }

    fn blocks(
        &self,
        slot: u32,
        holder: &HolderReport,
        free: Sum,
        now: Millis,
        terms: &mut Vec<(i16, Terms)>,
    ) -> Vec<Block> {
        let mut blocks = Vec::new();
        if self.awaits_supply() {
            return vec![Block::AwaitsSupply];
        }
        if holder.held > holder.granted {
            let until = self.ledger.holder(slot).leases.last_above(holder.granted, now);
            blocks.push(Block::Unconfirmed(holder.held, until));
        }
        if holder.granted == holder.due {
            return blocks;
        }
        if let Some(block) = self.blocked_by_silence(slot, holder) {
            blocks.push(block);
            return blocks;
        }
        let costless = holder.due.min(holder.granted.max(holder.held));
        let lacks = Sum::from(holder.due) - Sum::from(costless);
        if holder.granted > holder.due || lacks <= free.max(Sum::ZERO) || !self.is_bounded() {
            blocks.push(Block::Asks);
            return blocks;
        }
        if free < Sum::ZERO {
            blocks.push(Block::Over(Sum::ZERO - free));
        }
        let (left, lacks) = (self.unclaimed(), lacks - free.max(Sum::ZERO));
        if let Some(until) = self.inherited_over_by(lacks.ceil().min(left)).filter(|_| left > Amount::ZERO) {
            let learns = self.is_learning(now);
            blocks.push(if learns { Block::Learning(until) } else { Block::Unclaimed(left, until) });
        }
        let others = self.others(slot, now, terms);
        if others.beyond > Sum::ZERO {
            blocks.push(Block::Others(others));
        }
        if blocks.is_empty() {
            blocks.push(Block::Asks);
        }
        blocks
    }

    /// What a holder of earlier masters does not say of its lease keeps it from growing (rules E10 and E11).
    fn blocked_by_silence(&self, slot: u32, holder: &HolderReport) -> Option<Block> {
        let until = self.inherited_until().filter(|_| self.is_bounded())?;
        if !self.ledger.holder(slot).leases.has_given() {
            return Some(Block::LeftOut(until));
        }
        (holder.granted < holder.due && self.has_unproven_claim(slot)).then_some(Block::Unshown(until))
    }

    /// Who else has more than it is due.
    fn others(&self, slot: u32, now: Millis, terms: &mut Vec<(i16, Terms)>) -> Others {
        let mut others = Others { incomplete: self.ledger.len() > LOOKED_AT, ..Others::default() };
        let records = self.ledger.iter_from(0).take(LOOKED_AT);
        for (other, record) in records.filter(|(other, _)| *other != slot && !self.ledger.is_inherited(*other)) {
            let due = self.due_now(other, now, terms);
            let beyond = record.leases.held(now).saturating_sub(due);
            if beyond <= Amount::ZERO {
                continue;
            }
            others.beyond += beyond;
            others.count += 1;
            let until = record.leases.last_above(due, now);
            others.until = others.until.max(until);
            let least = others.most.iter().map(|(_, beyond, _)| *beyond).fold(Amount::MAX, Amount::min);
            if others.most.len() < NAMED || beyond > least {
                others.most.push((record.id.to_string(), beyond, until));
                others.most.sort_by(|(_, one, _), (_, other, _)| other.get().total_cmp(&one.get()));
                others.most.truncate(NAMED);
            }
        }
        others
    }
}

/// When the last of them is over, if each has an end.
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
    // Ends are looked at once in so long.
    ends.flatten().max().map(|end| end.plus(Millis(BUCKET_MS)))
}
