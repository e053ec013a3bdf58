//! A resource, holders that follow the protocol, and an unreliable network.

mod actor;
mod event;

use std::{collections::BTreeMap, sync::Arc};

use crate::{
    lease::holder::ShownLease,
    policy::settings::{AlgorithmKind, Priority, Settings},
    resource::{
        Answer, Ask, Lease, PackedContext, PackedResource, Release, Renewal, Renewed, Request, Resource,
        ResourceOptions, RoundScratch,
        invariant::{self, Violation},
        supply::{DemandSummary, Source, Supply},
    },
    tests::peers::{Peers, next_epoch},
    types::{Amount, Claim, Claims, Epoch, HolderKind, Millis, Now, PrincipalShare, Sum},
};
use crate::{lease::proposer::Proposal, resource::report::holder_reports};

use actor::end_at_holder;
pub(crate) use actor::{Actor, Echo};
pub(crate) use event::Event;

/// Wall-clock time when monotonic time is zero.
pub(crate) const EPOCH: i64 = 1_700_000_000;

pub(crate) fn now_at(at: Millis) -> Now {
    Now { at, unix: EPOCH + (at.0 / 1000) as i64 }
}

pub(crate) fn options(settings: Settings) -> ResourceOptions {
    let (since, learning_until) = (Millis(0), Millis(0));
    ResourceOptions {
        settings: settings.into(),
        source: Source::Own,
        epoch: Epoch(1 << 40),
        since,
        learning_until,
        inherited: None,
        max_holders: usize::MAX,
        seed: 7,
    }
}

/// A request with one claim and no history.
pub(crate) fn ask(id: &str, wants: f64, has: Option<ShownLease>) -> Ask {
    Ask {
        claims: Claims::from_slice(&[Claim::of_client(Amount::clamped(wants), 0)]),
        has,
        ..Ask::of_nothing(id.into())
    }
}

pub(crate) fn has(lease: &Lease) -> ShownLease {
    ShownLease { token: Some(lease.token), capacity: lease.capacity, expiry_time: lease.expiry_time }
}

/// Runs a round of one request.
pub(crate) fn one(resource: &mut Resource, now: Now, request: Request) -> Answer {
    let mut answers = Vec::new();
    resource.round(now, &mut vec![request], &mut answers, &mut RoundScratch::default());
    assert_eq!(answers.len(), 1);
    answers.remove(0)
}

struct RequestUnderWay {
    from: usize,
    instance: u32,
    number: u64,
    sent_at: Millis,
    /// The end of the lease that the request named.
    named_until: Option<Millis>,
    ask: Ask,
}

struct AnswerUnderWay {
    to: usize,
    instance: u32,
    number: u64,
    sent_at: Millis,
    named_until: Option<Millis>,
    lease: Lease,
}

impl AnswerUnderWay {
    /// Whether the holder accepts the answer: only the answer to its latest request counts, and only while the lease
    /// lives that the request named.
    fn counts(&self, actor: &Actor, now: Millis) -> bool {
        (actor.lives, actor.sent) == (self.instance, self.number) && self.named_until.is_none_or(|end| now < end)
    }
}

pub(crate) struct Harness {
    pub(crate) resource: Resource,
    pub(crate) actors: Vec<Actor>,
    pub(crate) now: Millis,
    pub(crate) log: Vec<Answer>,
    requests: Vec<RequestUnderWay>,
    answers: Vec<AnswerUnderWay>,
    /// Answers that wait until the change with this number is stored.
    held_back: Vec<(u64, AnswerUnderWay)>,
    pub(crate) peers: Option<Peers>,
    /// Whether the capacity has been cut. Until then, believed ≤ capacity; after a cut, only the held amount bounds
    /// what is believed.
    cut: bool,
    /// Whether to check I2. With `prompt` reuse, clients may use an old lease until the answer arrives, so I2 does not
    /// hold.
    audited: bool,
    /// How often the resource was packed and unpacked; absent: it is never packed.
    packed: Option<usize>,
    /// How many requests were answered by moving the end of a lease; absent: none are.
    renewed: Option<usize>,
    /// The end of the node's supply, if there is a parent.
    supply_until: Option<Millis>,
    supplies: u64,
}

impl Harness {
    pub(crate) fn new(options: ResourceOptions, actors: Vec<Actor>) -> Harness {
        let audited = options.settings.reuse == crate::policy::settings::Reuse::Confirmed;
        let peers = options.inherited.as_ref().map(|_| Peers::new());
        // The supply of a parent expires, and a pool may be overbooked.
        let cut = options.source == Source::Parent || options.settings.kind == AlgorithmKind::PriorityPool;
        Harness {
            resource: Resource::new(options),
            actors,
            now: Millis(1000),
            log: Vec::new(),
            requests: Vec::new(),
            answers: Vec::new(),
            held_back: Vec::new(),
            peers,
            cut,
            audited,
            packed: None,
            renewed: None,
            supply_until: None,
            supplies: 0,
        }
    }

    /// Packs the resource after every step, if it can be packed.
    pub(crate) fn packing(self) -> Harness {
        Harness { packed: Some(0), ..self }
    }

    /// Answers requests that echo a lease and change nothing without a round, if that is possible.
    pub(crate) fn renewing(self) -> Harness {
        Harness { renewed: Some(0), ..self }
    }

    /// How many requests were answered without a round.
    pub(crate) fn renewed(&self) -> usize {
        self.renewed.unwrap_or_default()
    }

    /// How often the resource was packed.
    pub(crate) fn packed(&self) -> usize {
        self.packed.unwrap_or_default()
    }

    fn repack(&mut self) {
        if self.packed.is_some() && self.resource.can_pack(self.now) {
            self.packed = self.packed.map(|times| times + 1);
            self.while_packed(|_| ());
        }
    }

    fn while_packed<R>(&mut self, work: impl FnOnce(&mut PackedResource) -> R) -> R {
        let spare = Resource::new(options(Settings::new(AlgorithmKind::FairShare, Amount::ZERO)));
        let mut packed = std::mem::replace(&mut self.resource, spare).pack();
        let done = work(&mut packed);
        let context = PackedContext { seed: 7, max_holders: usize::MAX, place_share: PrincipalShare::default() };
        self.resource = Resource::unpack(packed, context);
        done
    }

    /// Answers a request without a round, if it changes nothing and that is possible.
    fn renew(&mut self, ask: &Ask) -> Option<Answer> {
        self.renewed?;
        let (now, at) = (self.masters_now(), self.at());
        let ledger = self.resource.book.ledger();
        let holder = ledger.find(ask.kind, &ask.id).map(|slot| ledger.holder(slot))?;
        let (token, capacity) = (ask.has?.token?, holder.leases.current(at));
        let says_more =
            ask.outstanding.is_some_and(|outstanding| outstanding > Amount::ZERO) || ask.pool_fields.is_some();
        let counted = self.resource.counted(ask.kind, false, ask.claims.clone());
        let same = counted.iter().map(|claim| (claim.wants, claim.priority, claim.subclients));
        let known = holder.claims.iter().map(|claim| (claim.wants, claim.priority, claim.subclients));
        if says_more || ask.kind == HolderKind::Node || !same.eq(known) || !self.resource.can_pack(at) {
            return None;
        }
        let length = self.resource.settings().lease;
        let renewal = Renewal { client: &ask.id, token, length };
        let Renewed { expiry_time } = self.while_packed(|packed| packed.renew(&renewal, now))?;
        self.renewed = self.renewed.map(|times| times + 1);
        let refresh = self.resource.settings().refresh;
        let lease = Lease {
            token,
            capacity,
            length,
            refresh,
            expiry_time,
            safe_capacity: 0.0,
            priority: 0,
            is_unlimited: false,
            pool: None,
            budget: None,
        };
        Some(Answer::Granted(lease))
    }

    /// Applies the event and checks the invariants.
    pub(crate) fn step(&mut self, event: &Event) -> Result<(), Violation> {
        self.repack();
        let mut before = self.resource.sums().held;
        match *event {
            Event::Send(n) => self.send(n),
            Event::Arrive { most, pick } => self.arrive(most, pick, false, &mut before)?,
            Event::ArriveTwice(pick) => self.arrive(1, pick, true, &mut before)?,
            Event::Answer(pick) => self.answer(pick),
            Event::LoseRequest(pick) => {
                if !self.requests.is_empty() {
                    self.requests.swap_remove(pick % self.requests.len());
                }
            }
            Event::LoseAnswer(pick) => {
                if !self.answers.is_empty() {
                    self.answers.swap_remove(pick % self.answers.len());
                }
            }
            Event::Pass(ms) => self.now = self.now.plus(Millis(ms)),
            Event::Want(n, wants) => {
                let actor = self.nth(n);
                for claim in &mut actor.claims {
                    claim.wants = Amount::clamped(wants * f64::from(claim.subclients));
                }
            }
            Event::Use(n, usage) => self.nth(n).usage = usage,
            Event::Assign(n, assigned) => {
                let (at, actor) = (self.at(), self.nth(n));
                let (kind, id) = (actor.kind, Arc::clone(&actor.id));
                let _ = self.resource.assign(at, kind, &id, assigned);
            }
            Event::Drain(n) => self.drain(n),
            Event::Release(n) => self.release(n)?,
            Event::Die(n) => self.die(n),
            Event::Capacity(capacity) => {
                let mut settings = self.resource.settings().clone();
                let capacity = Amount::clamped(capacity);
                self.cut |= capacity < settings.capacity;
                settings.capacity = capacity;
                self.resource.configure(settings);
                return self.audit();
            }
            Event::Supply { capacity, length } => {
                self.supply(capacity, length);
                return self.audit();
            }
            Event::Store { entries, heard } => self.store(entries, heard)?,
            Event::CatchUp { peer, entries } => {
                self.peers.as_mut().map_or(Ok(()), |peers| peers.catch_up(peer % 3, entries))?;
            }
            Event::Restart(peer) => {
                if let Some(peers) = &mut self.peers {
                    peers.restart(peer % 3);
                }
            }
            Event::Fail { survive, gap, next } => {
                self.fail(survive, gap, next)?;
                return self.audit();
            }
            Event::Tick => {
                let at = self.at();
                self.resource.tick(at);
                self.propose()?;
                if let Some(peers) = &mut self.peers {
                    peers.advance(self.now);
                }
            }
        }
        invariant::held_within_capacity(&self.resource, before)?;
        self.audit_summary()?;
        self.audit()
    }

    fn drain(&mut self, n: usize) {
        let actor = self.nth(n);
        let newest = actor.below.pop();
        actor.below.clear();
        actor.below.extend(newest);
    }

    /// Replaces the client by a new one without a lease.
    fn die(&mut self, n: usize) {
        let actor = self.nth(n);
        actor.lives += 1;
        actor.id = format!("{}-{}", actor.id, actor.lives).into();
        (actor.lease, actor.below) = (None, Vec::new());
    }

    /// Gives the node a lease of its parent.
    fn supply(&mut self, capacity: f64, length: u64) {
        self.supplies += 1;
        let (until, version) = (self.at().plus(Millis(length)), self.supplies);
        let supply = Supply { capacity: Amount::clamped(capacity), until, version, ..Supply::default() };
        let at = self.at();
        self.resource.supply(at, supply);
        self.supply_until = self.resource.supply_until();
    }

    /// Checks that the report to a parent covers everything that is held.
    fn audit_summary(&mut self) -> Result<(), Violation> {
        if self.resource.source() == Source::Own {
            return Ok(());
        }
        let at = self.at();
        let DemandSummary { claims, outstanding, version, .. } = self.resource.summarize(at);
        let sums = self.resource.sums();
        let subclients: u64 = claims.iter().map(|claim| u64::from(claim.subclients)).sum();
        // A pool reports only clients that want anything.
        let all_told = match self.resource.settings().priority {
            _ if self.resource.pool().is_some() => true,
            Priority::Weighted => subclients >= sums.subclients,
            Priority::Ignore | Priority::Strict => subclients == sums.subclients,
        };
        let complete = Sum::from(outstanding) >= sums.held && all_told;
        let fits = (version == 0) == self.resource.awaits_supply();
        if complete && fits && !self.resource.asks_early() {
            return Ok(());
        }
        super::peers::violated(format!("told {claims:?}, {outstanding:?} of version {version}, of {sums:?}"))
    }

    fn nth(&mut self, n: usize) -> &mut Actor {
        let count = self.actors.len();
        &mut self.actors[n % count]
    }

    fn send(&mut self, n: usize) {
        let n = n % self.actors.len();
        let actor = &mut self.actors[n];
        let (ask, named_until) = (actor.request(self.now), actor.names_until(self.now));
        let (instance, number) = (actor.lives, actor.sent);
        self.requests.push(RequestUnderWay { from: n, instance, number, sent_at: self.now, named_until, ask });
    }

    fn arrive(&mut self, most: usize, pick: usize, again: bool, before: &mut Sum) -> Result<(), Violation> {
        let mut batch = Vec::new();
        for _ in 0..most.min(self.requests.len()) {
            let at = pick % self.requests.len();
            let request = self.requests.swap_remove(at);
            if again {
                let copy = RequestUnderWay { ask: request.ask.clone(), ..request };
                self.requests.push(copy);
            }
            batch.push(request);
        }
        for request in &batch {
            let again = batch.iter().filter(|other| other.ask.id == request.ask.id).count() > 1;
            self.count_news(&request.ask, again, before);
        }
        let mut answers = Vec::new();
        let mut asks = batch.iter().map(|request| Request::Ask(request.ask.clone())).collect();
        let (now, at) = (self.masters_now(), self.at());
        if let [only] = &batch[..] {
            answers.extend(self.renew(&only.ask));
        }
        if answers.is_empty() {
            self.resource.round(now, &mut asks, &mut answers, &mut RoundScratch::default());
        }
        self.log.extend(answers.iter().cloned());
        let awaits = self.propose()?;
        // A holder with several requests in one round is settled several times with different dues, so it is skipped.
        let mut ids: Vec<_> = batch.iter().map(|request| Arc::clone(&request.ask.id)).collect();
        ids.sort();
        ids.dedup();
        let told = ids.len() == batch.len() && !self.resource.is_learning(at) && self.resource.pool().is_none();
        let dues: BTreeMap<_, _> =
            holder_reports(&self.resource, at, 0, usize::MAX).0.into_iter().map(|h| (h.id, h.due)).collect();
        for (request, answer) in batch.into_iter().zip(answers) {
            if let Some(lease) = answer.lease().copied() {
                let due = told.then(|| dues[&request.ask.id]);
                invariant::lease_within_bounds(&lease, due, at, self.supply_until)?;
                let RequestUnderWay { from: to, instance, number, sent_at, named_until, .. } = request;
                let answer = AnswerUnderWay { to, instance, number, sent_at, named_until, lease };
                match awaits {
                    Some(awaited) => self.held_back.push((awaited, answer)),
                    None => self.leave(answer)?,
                }
            }
        }
        Ok(())
    }

    /// A request may report more usage than was known, which no decision could have prevented. With several requests of
    /// a holder in one round, in any order, the known usage is undetermined, so they are skipped.
    fn count_news(&self, ask: &Ask, again: bool, before: &mut Sum) {
        let holders = holder_reports(&self.resource, self.at(), 0, usize::MAX).0;
        let known = holders.iter().find(|holder| !again && holder.id == ask.id);
        let known = known.map_or(Amount::ZERO, |holder| holder.held);
        if let Some(news) = ask.outstanding.filter(|news| *news > known) {
            *before = (*before).max(self.resource.settings().capacity.into());
            *before += Sum::from(news) - Sum::from(known);
        }
    }

    fn answer(&mut self, pick: usize) {
        if self.answers.is_empty() {
            return;
        }
        let answer = self.answers.swap_remove(pick % self.answers.len());
        let actor = &mut self.actors[answer.to];
        if answer.counts(actor, self.now) {
            actor.answered = answer.number;
            actor.receive(answer.lease, answer.sent_at, self.now);
        }
    }

    fn release(&mut self, n: usize) -> Result<(), Violation> {
        let now = self.masters_now();
        let actor = self.nth(n);
        let Some((lease, _)) = actor.lease.take() else { return Ok(()) };
        // A client that releases its lease has stopped using it, and no longer waits for answers.
        actor.sent += 1;
        actor.below.clear();
        let token = (actor.echo == Echo::Token).then_some(lease.token);
        let release = Release { kind: actor.kind, id: Arc::clone(&actor.id), token, instance: None, spent: None };
        let answer = one(&mut self.resource, now, Request::Release(release));
        self.log.push(answer);
        self.propose().map(|_| ())
    }

    /// The time on the master's clock.
    pub(crate) fn at(&self) -> Millis {
        self.peers.as_ref().map_or(self.now, |peers| peers.clock(peers.master, self.now))
    }

    fn masters_now(&self) -> Now {
        Now { at: self.at(), ..now_at(self.now) }
    }

    /// Appends changes to the log. Returns the number that the answers wait for.
    fn propose(&mut self) -> Result<Option<u64>, Violation> {
        let at = self.at();
        let Some(peers) = &mut self.peers else { return Ok(None) };
        let Proposal { changes, awaits } = self.resource.take_changes(at);
        if let Some(changes) = changes {
            peers.append(changes, &self.resource, self.now)?;
        }
        Ok(awaits)
    }

    fn store(&mut self, entries: usize, heard: bool) -> Result<(), Violation> {
        let Some(peers) = &mut self.peers else { return Ok(()) };
        let Some(number) = peers.store(entries).filter(|_| heard) else { return Ok(()) };
        self.resource.acknowledge(number);
        let (leave, stay) =
            std::mem::take(&mut self.held_back).into_iter().partition(|(awaited, _)| *awaited <= number);
        self.held_back = stay;
        leave.into_iter().try_for_each(|(_, answer)| self.leave(answer))
    }

    fn leave(&mut self, answer: AnswerUnderWay) -> Result<(), Violation> {
        let actor = &self.actors[answer.to];
        let end = end_at_holder(&answer.lease, answer.sent_at);
        // The answer has no effect if its client no longer waits for it, or if its lease has expired in transit.
        let counts = answer.counts(actor, self.now) && self.now < end && answer.lease.capacity > Amount::ZERO;
        if let (Some(peers), true) = (&self.peers, counts) {
            peers.covers_until(end)?;
        }
        self.answers.push(answer);
        Ok(())
    }

    fn fail(&mut self, survive: usize, gap: u64, next: usize) -> Result<(), Violation> {
        self.now = self.now.plus(Millis(gap));
        let Some(peers) = &mut self.peers else { return Ok(()) };
        self.held_back.clear();
        let inherited = peers.elect(next, survive, self.now)?;
        let since = self.at();
        let options = ResourceOptions {
            epoch: next_epoch(inherited.newest),
            since,
            inherited: Some(inherited),
            source: self.resource.source(),
            ..options(self.resource.settings().clone())
        };
        self.resource = Resource::new(options);
        self.supply_until = None;
        Ok(())
    }

    /// Replaces the master by one without knowledge of earlier leases. The audit ends.
    pub(crate) fn replace(&mut self, options: ResourceOptions) {
        self.resource = Resource::new(options);
        self.audited = false;
    }

    /// Checks that the ledger and the capacity cover the leases that holders may believe in.
    fn audit(&self) -> Result<(), Violation> {
        if !self.audited || !self.resource.is_bounded() {
            return Ok(());
        }
        let believed = || self.actors.iter().map(|actor| actor.believes(self.now));
        if !self.cut {
            invariant::believed_within_capacity(believed(), self.resource.settings().capacity.into())?;
        }
        if let Some(peers) = &self.peers {
            peers.covers(believed().collect(), self.now)?;
        }
        self.audit_each()?;
        invariant::believed_within_capacity(believed(), self.resource.sums().held)
    }

    /// Whether the newest answer has arrived.
    pub(crate) fn is_answered(&self, n: usize) -> bool {
        self.actors[n].answered == self.actors[n].sent
    }

    /// Checks that each holder's leases are held or unclaimed. A delayed request from before a release may have claimed
    /// a lease for a holder that believes in nothing, so a shortfall of one may be covered by another.
    fn audit_each(&self) -> Result<(), Violation> {
        let holders = holder_reports(&self.resource, self.at(), 0, usize::MAX).0;
        let mut elsewhere = Sum::from(self.resource.promises().map_or(Amount::ZERO, |promises| promises.unclaimed));
        let mut unheld = Vec::with_capacity(self.actors.len());
        for actor in &self.actors {
            let holder = holders.iter().find(|holder| holder.kind == actor.kind && holder.id == actor.id);
            let (held, believes) = (holder.map_or(Amount::ZERO, |holder| holder.held), actor.believes(self.now));
            unheld.push(believes.saturating_sub(held));
            if believes == Amount::ZERO {
                elsewhere += held;
            }
        }
        invariant::believed_within_capacity(unheld, elsewhere)
    }

    pub(crate) fn drop_in_flight(&mut self) {
        self.requests.clear();
        self.answers.clear();
        self.held_back.clear();
    }

    /// All holders refresh once, one after the other, without losses.
    pub(crate) fn refresh_all(&mut self) -> Result<(), Violation> {
        self.drop_in_flight();
        self.step(&Event::Pass(self.resource.settings().refresh.0))?;
        for n in 0..self.actors.len() {
            self.step(&Event::Send(n))?;
            self.step(&Event::Arrive { most: 1, pick: 0 })?;
            self.step(&Event::Store { entries: usize::MAX, heard: true })?;
            self.step(&Event::Answer(0))?;
            self.step(&Event::Drain(n))?;
        }
        Ok(())
    }
}
