//! BUDGET: random histories with an oracle in plain code, and what can be spent under skew.
//!
//! The oracle is the books of the clients: each adds what it spends to the period of its lease. It asks no server.

use std::{collections::BTreeMap, sync::Arc};

use crate::{
    lease::{holder::ShownLease, proposer::Proposal},
    policy::{
        period::PeriodLength,
        settings::{AlgorithmKind, Settings},
    },
    resource::{Answer, Ask, Lease, Release, Request, Resource, ResourceOptions, RoundScratch, Spent},
    tests::{
        harness::{EPOCH, ask, options},
        peers::{Peers, next_epoch},
    },
    types::{Amount, Epoch, HolderKind, Millis, Now, Sum},
};

mod pace;
mod rules;
mod utilization;

/// A small generator, so that a seed repeats a history.
pub(super) struct Rng(u64);

impl Rng {
    pub(super) fn new(seed: u64) -> Rng {
        Rng(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1)
    }

    pub(super) fn below(&mut self, most: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0.wrapping_mul(0x2545_f491_4f6c_dd1d) >> 33) % most.max(1)
    }

    fn one_in(&mut self, of: u64) -> bool {
        self.below(of) == 0
    }
}

/// A client that keeps its own books.
#[derive(Debug, Clone)]
pub(super) struct Spender {
    pub(super) id: Arc<str>,
    pub(super) incarnation: u64,
    /// The start of the period of its allowance.
    pub(super) period: i64,
    pub(super) allowance: f64,
    pub(super) spent: f64,
    /// The end of its lease.
    pub(super) until: Millis,
    pub(super) has: Option<ShownLease>,
    pub(super) wants: f64,
    pub(super) need: f64,
    /// What it has spent in advance, with the incarnation and the period.
    reserved: Option<(f64, u64, i64)>,
    /// The number of its latest request, and the end of the lease that the request named.
    sent: (u64, Option<Millis>),
}

impl Spender {
    pub(super) fn new(id: &str, incarnation: u64) -> Spender {
        Spender {
            id: id.into(),
            incarnation,
            period: 0,
            allowance: 0.0,
            spent: 0.0,
            until: Millis(0),
            has: None,
            wants: 0.0,
            need: 1.0,
            reserved: None,
            sent: (0, None),
        }
    }

    pub(super) fn report(&self) -> Spent {
        Spent {
            amount: Amount::clamped(self.spent),
            period: self.period,
            incarnation: self.incarnation,
            need: Amount::clamped(self.need),
        }
    }

    pub(super) fn ask(&self) -> Ask {
        let used = Amount::clamped(self.allowance.max(self.spent));
        let has = self.has.map(|has| ShownLease { capacity: used, ..has });
        Ask { spent: Some(Box::new(self.report())), ..ask(&self.id, self.wants, has) }
    }

    pub(super) fn release(&self) -> Release {
        let token = self.has.and_then(|has| has.token);
        let spent = Some(Box::new(self.report()));
        Release { kind: HolderKind::Client, id: Arc::clone(&self.id), token, instance: None, spent }
    }

    /// Applies the lease of an answer to a request that was sent at `sent`. `fresh`: the next incarnation, if it must
    /// start over.
    pub(super) fn take(&mut self, lease: &Lease, sent: Millis, fresh: u64) {
        let budget = lease.budget.expect("a lease of a budget");
        if budget.starts_over || budget.period.start != self.period {
            self.spent = 0.0;
            self.period = budget.period.start;
        }
        if budget.starts_over {
            self.incarnation = fresh;
            (self.allowance, self.has, self.until) = (0.0, None, Millis(0));
            return;
        }
        self.allowance = lease.capacity.get();
        self.until = sent.plus(lease.length);
        self.has =
            Some(ShownLease { token: Some(lease.token), capacity: lease.capacity, expiry_time: lease.expiry_time });
    }

    /// Spends up to `amount` at once. Returns what it has spent.
    pub(super) fn spend(&mut self, amount: f64, now: Millis) -> f64 {
        let left = if now < self.until { (self.allowance - self.spent).max(0.0) } else { 0.0 };
        let spent = amount.min(left.floor());
        self.spent += spent;
        spent
    }

    /// Takes back the part of its reservation that it does not need, if it may.
    fn settle(&mut self, used: impl FnOnce(f64) -> f64) -> f64 {
        let Some((amount, incarnation, period)) = self.reserved.take() else { return 0.0 };
        let unused = if (incarnation, period) == (self.incarnation, self.period) { amount - used(amount) } else { 0.0 };
        self.spent -= unused;
        unused
    }

    /// What it may have spent until it asks again, in its period.
    fn believes(&self, now: Millis) -> f64 {
        if now < self.until { self.allowance.max(self.spent) } else { self.spent }
    }
}

pub(super) fn settings(amount: f64, period: PeriodLength) -> Settings {
    let mut settings = Settings::new(AlgorithmKind::Budget, Amount::clamped(amount));
    settings.budget.periods.length = period;
    (settings.lease, settings.refresh) = (Millis(10_000), Millis(2_000));
    assert_eq!(settings.check(), Ok(()));
    settings
}

struct RequestUnderWay {
    from: usize,
    number: u64,
    sent_at: Millis,
    request: Request,
}

#[derive(Clone)]
struct AnswerUnderWay {
    to: usize,
    number: u64,
    sent_at: Millis,
    lease: Lease,
}

/// A resource with its peers, clients and an unreliable network.
struct World {
    rng: Rng,
    now: Millis,
    settings: Settings,
    resource: Resource,
    peers: Peers,
    /// How much the wall clock of the master is ahead, in seconds.
    ahead: i64,
    spenders: Vec<Spender>,
    /// Those that have died: what they believe in still counts.
    dead: Vec<Spender>,
    requests: Vec<RequestUnderWay>,
    answers: Vec<AnswerUnderWay>,
    held_back: Vec<(u64, AnswerUnderWay)>,
    /// What was spent in each period, by its start.
    books: BTreeMap<i64, f64>,
    incarnations: u64,
    /// How rarely masters fail, relative to the other events.
    calm: u64,
}

impl World {
    fn new(seed: u64, spenders: usize) -> World {
        // A budget that is spent once is exhausted early in a history.
        let period = if seed % 5 == 4 { PeriodLength::Unending } else { PeriodLength::Seconds(100) };
        let mut settings = settings(300.0, period);
        settings.budget.slice_share = [0.05, 0.3, 1.0][seed as usize % 3];
        settings.budget.pace = seed % 4 == 1 && period != PeriodLength::Unending;
        settings.budget.carry_over = Amount::clamped([0.0, 0.0, 80.0][seed as usize / 4 % 3]);
        let peers = Peers::new();
        let mut world = World {
            rng: Rng::new(seed),
            now: Millis(1000),
            resource: Resource::new(options(settings.clone())),
            settings,
            peers,
            ahead: 0,
            spenders: Vec::new(),
            dead: Vec::new(),
            requests: Vec::new(),
            answers: Vec::new(),
            held_back: Vec::new(),
            books: BTreeMap::new(),
            incarnations: 0,
            calm: if seed.is_multiple_of(2) { 1 } else { 8 },
        };
        for n in 0..spenders {
            let spender = Spender::new(&format!("s{n}"), world.incarnation());
            world.spenders.push(spender);
        }
        world.fail();
        world
    }

    fn incarnation(&mut self) -> u64 {
        self.incarnations += 1;
        self.incarnations
    }

    /// The time on the clocks of the master.
    fn at_master(&self) -> Now {
        let unix = EPOCH + (self.now.0 / 1000) as i64 + self.ahead;
        Now { at: self.peers.clock(self.peers.master, self.now), unix }
    }

    fn step(&mut self) {
        let spender = self.rng.below(self.spenders.len() as u64) as usize;
        match self.rng.below(100) {
            0..20 => self.send(spender),
            20..42 => self.arrive(),
            42..64 => self.answer(),
            64..80 => self.spend(spender),
            80..90 => {
                let pass = [1, 20, 200, 3_000][self.rng.below(4) as usize];
                self.now = self.now.plus(Millis(pass));
            }
            90..92 => self.store(usize::MAX),
            92..94 => {
                let now = self.at_master();
                self.resource.enter_period(now);
                self.resource.tick(now.at);
                self.propose(None);
            }
            94 if self.rng.one_in(2) => self.die(spender),
            95 => self.release(spender),
            96 if self.rng.one_in(self.calm) => self.fail(),
            97 => self.lose(),
            98 if self.rng.one_in(3) => self.spenders[spender].wants = 0.0,
            _ => {
                let wants = 1 + self.rng.below(300);
                self.spenders[spender].wants = wants as f64;
            }
        }
        self.audit();
    }

    fn send(&mut self, n: usize) {
        let number = self.spenders[n].sent.0;
        let is_waiting = self.requests.iter().any(|request| (request.from, request.number) == (n, number))
            || self.answers.iter().any(|answer| (answer.to, answer.number) == (n, number));
        // Usually a client waits for its answer.
        if is_waiting && !self.rng.one_in(8) {
            return;
        }
        let spender = &mut self.spenders[n];
        let named = spender.has.map(|_| spender.until).filter(|until| self.now < *until);
        spender.sent = (spender.sent.0 + 1, named);
        let (number, request) = (spender.sent.0, Request::Ask(spender.ask()));
        self.requests.push(RequestUnderWay { from: n, number, sent_at: self.now, request });
    }

    fn arrive(&mut self) {
        if self.requests.is_empty() {
            return;
        }
        let pick = self.rng.below(self.requests.len() as u64) as usize;
        let twice = self.rng.one_in(8);
        let copy = &self.requests[pick];
        let (from, number, sent_at, request) = (copy.from, copy.number, copy.sent_at, copy.request.clone());
        if !twice {
            self.requests.swap_remove(pick);
        }
        let mut answers = Vec::new();
        let now = self.at_master();
        self.resource.round(now, &mut vec![request], &mut answers, &mut RoundScratch::default());
        let answer = match answers.pop() {
            Some(Answer::Granted(lease)) => Some(AnswerUnderWay { to: from, number, sent_at, lease }),
            _ => None,
        };
        self.propose(answer);
    }

    /// Proposes changes. The answer waits for those that cover it.
    fn propose(&mut self, answer: Option<AnswerUnderWay>) {
        let Proposal { changes, awaits } = self.resource.take_changes(self.at_master().at);
        if let Some(changes) = changes {
            self.peers.append(changes, &self.resource, self.now).expect("a valid change");
        }
        match (answer, awaits) {
            (Some(answer), None) => self.answers.push(answer),
            (Some(answer), Some(number)) => self.held_back.push((number, answer)),
            _ => {}
        }
        if self.rng.one_in(4) {
            self.store(1);
        }
    }

    fn store(&mut self, entries: usize) {
        let Some(number) = self.peers.store(entries) else { return };
        self.resource.acknowledge(number);
        let (sent, waiting) =
            std::mem::take(&mut self.held_back).into_iter().partition(|(awaits, _)| *awaits <= number);
        self.held_back = waiting;
        self.answers.extend(<Vec<(u64, AnswerUnderWay)>>::into_iter(sent).map(|(_, answer)| answer));
    }

    fn answer(&mut self) {
        if self.answers.is_empty() {
            return;
        }
        let pick = self.rng.below(self.answers.len() as u64) as usize;
        let answer = self.answers.swap_remove(pick);
        let fresh = self.incarnation();
        let spender = &mut self.spenders[answer.to];
        let (number, named) = spender.sent;
        if number == answer.number && named.is_none_or(|until| self.now < until) {
            // A second copy of the answer does not count.
            spender.sent.0 += 1;
            spender.take(&answer.lease, answer.sent_at, fresh);
        }
    }

    fn spend(&mut self, n: usize) {
        let most = [1, 20, 1000][self.rng.below(3) as usize];
        let amount = 1 + self.rng.below(most);
        let spender = &mut self.spenders[n];
        let unused = spender.settle(|amount| self.rng.below(amount as u64 + 1) as f64);
        let spent = spender.spend(amount as f64, self.now);
        *self.books.entry(spender.period).or_default() += spent - unused;
        if self.rng.one_in(3) {
            spender.reserved = Some((spent, spender.incarnation, spender.period));
        }
        let wall = EPOCH + (self.now.0 / 1000) as i64;
        let late = wall - (spender.period + 100);
        let is_unending = self.settings.budget.periods.length == PeriodLength::Unending;
        assert!(spent == 0.0 || is_unending || late < 3, "spent {late} s after the end of the period");
    }

    fn die(&mut self, n: usize) {
        let incarnation = self.incarnation();
        let sent = self.spenders[n].sent.0 + 1;
        let fresh = Spender { sent: (sent, None), ..Spender::new(&self.spenders[n].id, incarnation) };
        self.dead.push(std::mem::replace(&mut self.spenders[n], fresh));
    }

    /// The client releases its slice and begins anew. What it has spent is final.
    fn release(&mut self, n: usize) {
        let request = Request::Release(self.spenders[n].release());
        self.requests.push(RequestUnderWay { from: n, number: 0, sent_at: self.now, request });
        self.spenders[n].until = Millis(0);
        self.die(n);
    }

    fn lose(&mut self) {
        let lost = self.rng.below(4) as usize;
        if lost < self.requests.len() {
            self.requests.swap_remove(lost);
        }
        if lost < self.answers.len() {
            self.answers.swap_remove(lost);
        }
    }

    /// Another peer becomes master, with another wall clock. Any part of the uncommitted log survives.
    fn fail(&mut self) {
        let survive = self.rng.below(3) as usize;
        let next = self.rng.below(3) as usize;
        let inherited = self.peers.elect(next, survive, self.now).expect("an election");
        self.ahead = self.rng.below(3) as i64 - 1;
        let epoch: Epoch = next_epoch(inherited.newest);
        let since = self.at_master().at;
        let inherited = Some(inherited);
        let of_settings = options(self.settings.clone());
        self.resource =
            Resource::new(ResourceOptions { epoch, since, learning_until: since, inherited, ..of_settings });
        self.resource.enter_period(self.at_master());
        self.held_back.clear();
    }

    fn audit(&self) {
        let mut believed: BTreeMap<i64, f64> = BTreeMap::new();
        for spender in self.spenders.iter().chain(&self.dead) {
            *believed.entry(spender.period).or_default() += spender.believes(self.now);
        }
        let most = self.allowed();
        for (period, amount) in self.books.iter().chain(&believed) {
            let most = most.get(period).copied().unwrap_or(self.settings.capacity.get());
            assert!(*amount <= most, "{amount} of {most} in the period from {period}, at {:?}", self.now);
        }
        let held = self.resource.sums().held;
        assert!(held <= Sum::from(self.resource.settings().capacity), "held {held:?}");
    }

    /// The amount of each period: that of the settings, and what the period before has left over.
    fn allowed(&self) -> BTreeMap<i64, f64> {
        let (amount, carry_over) = (self.settings.capacity.get(), self.settings.budget.carry_over.get());
        let (mut allowed, mut left) = (BTreeMap::new(), 0.0);
        let until = EPOCH + (self.now.0 / 1000) as i64 + 100;
        let first = self.books.keys().copied().find(|period| *period > 0);
        for period in (first.unwrap_or(until)..until).step_by(100) {
            let carried = f64::min(left, carry_over);
            allowed.insert(period, amount + carried);
            left = amount + carried - self.books.get(&period).copied().unwrap_or(0.0);
        }
        allowed
    }
}

fn run(seed: u64) -> World {
    let mut world = World::new(seed, 1 + seed as usize % 7);
    for _ in 0..4_000 {
        world.step();
    }
    world
}

#[test]
fn clients_books_never_exceed_the_amount() {
    let (mut spent, mut periods, mut exhausted) = (0.0, 0, 0);
    for world in (0..200).map(run) {
        spent += world.books.values().sum::<f64>();
        periods += world.books.values().filter(|spent| **spent > 0.0).count();
        exhausted += world.books.values().filter(|spent| **spent > 250.0).count();
    }
    // Otherwise the test would show nothing.
    assert!(periods > 300 && exhausted > 40, "{spent} in {periods} periods, {exhausted} of them nearly spent");
}
