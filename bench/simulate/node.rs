//! Nodes: whichever peer is master has the real resource; the peers together have a log of what it promised, and a book
//! of what they have stored of that.

use std::{collections::VecDeque, sync::Arc};

use leaseway_core::{
    Answer, Assigned, Birth, Changes, Epoch, Hint, HolderKind, Inherited, Millis, PoolMemory, Promises, Request,
    Resource, Source, Sum, Workspace, invariant, invariant::Violation,
};

use super::{
    mail::{Letter, Mail, Party, Reply, Said, Sender},
    scenario::Handover,
    tree::Place,
    uplink::Up,
    world::{Event, World},
};

/// A master forgets what has ended so often.
const TICK: Millis = Millis(1_000);
/// Entries and bytes of what a pool says to be remembered with a tick, as in the server; and how much all pools
/// together may have.
const NOTES: (usize, usize) = (64, 16 << 10);
const ALL_NOTES: usize = 200_000;
/// Looks for whom to hint are so far apart, as in the server.
const LOOK: Millis = Millis(50);
/// Watched holders in one look, as in the server.
const LOOK_AT: usize = 2048;

/// The node of all scenarios that has no parent.
const ROOT: usize = 0;

/// One node of the tree.
pub(super) struct Node {
    /// As its parent knows it, whichever peer is master.
    pub(super) server_id: Arc<str>,
    /// Its peers, as whoever asks them names them.
    pub(super) endpoints: Vec<Arc<str>>,
    pub(super) master: Option<Master>,
    /// How many masters there have been.
    pub(super) life: u32,
    /// Promises that are not stored yet.
    log: VecDeque<Changes>,
    /// Those that are.
    book: Promises,
    /// What its peers remember of its pool.
    pool: Option<PoolMemory>,
    pub(super) uplink_cut_until: Millis,
    pub(super) isolated_until: Millis,
    /// What a fault makes of the lease of a former master.
    #[cfg(feature = "planted")]
    remembered: Vec<(Arc<str>, leaseway_core::Supply)>,
}

/// What only the master has.
pub(super) struct Master {
    peer: u8,
    pub(super) resource: Resource,
    /// Where there is a parent.
    pub(super) up: Option<Up>,
    /// When the lease that its capacity was cut from ends.
    pub(super) own_end: Option<Millis>,
    /// Answers that wait until so many promises are stored.
    outbox: Vec<(u64, Reply)>,
    looked: Option<Millis>,
    /// When it will look next, if that is known.
    look_at: Option<Millis>,
}

/// Room that is kept from round to round.
#[derive(Default)]
pub(super) struct Desk {
    requests: Vec<Request>,
    answers: Vec<Answer>,
    workspace: Workspace,
    hints: Vec<Hint>,
}

impl Node {
    pub(super) fn new(index: usize, place: &Place) -> Node {
        Node {
            server_id: Party::Node(index).name(0).into(),
            endpoints: (0..place.peers).map(|peer| format!("{index}:{peer}").into()).collect(),
            master: None,
            life: 0,
            log: VecDeque::new(),
            book: Promises::default(),
            pool: None,
            uplink_cut_until: Millis(0),
            isolated_until: Millis(0),
            #[cfg(feature = "planted")]
            remembered: Vec::new(),
        }
    }

    /// The master is gone, and with it everything that only it knew. Of what was not stored, any part may survive.
    pub(super) fn depose(&mut self, now: Millis, rng: &mut fastrand::Rng) -> Result<(), Violation> {
        self.master = None;
        let survive = rng.usize(0..=self.log.len());
        let mut log = std::mem::take(&mut self.log);
        log.truncate(survive);
        log.iter().try_for_each(|changes| self.store(changes, now))?;
        self.book.forget_ended(now);
        Ok(())
    }

    fn store(&mut self, changes: &Changes, now: Millis) -> Result<(), Violation> {
        let refused = |refused: leaseway_core::Refused| Violation { invariant: "I7", detail: refused.to_string() };
        self.book.apply(changes, now).map_err(refused)
    }
}

/// The peer that an endpoint names.
pub(super) fn peer_of(endpoint: &str) -> u8 {
    let peer = endpoint.split_once(':').and_then(|(_, peer)| peer.parse().ok());
    peer.expect("endpoints are named by node and peer")
}

impl World<'_> {
    /// Any of the peers becomes master, unless it is already.
    pub(super) fn elect(&mut self, index: usize) -> Result<(), Violation> {
        let (now, node) = (self.now, &mut self.nodes[index]);
        let peer = self.rng.u8(0..node.endpoints.len() as u8);
        if node.master.as_ref().is_some_and(|master| master.peer == peer) {
            return Ok(());
        }
        node.depose(now, &mut self.rng)?;
        node.life += 1;
        let life = node.life;
        // A child node decides nothing before its parent has said how the resource is run.
        let settings = if index == ROOT { &self.settings } else { &self.plan.settings }.clone();
        let learning_until = settings.learning_until(now);
        let (inherited, learning_until) = match self.plan.scenario.handover {
            Handover::Promises => (Some(node.book.inherited(now)), now),
            Handover::Learning => (None, learning_until),
        };
        let up = self.uplink(index);
        let birth = Birth {
            settings,
            source: if up.is_some() { Source::Parent } else { Source::Own },
            // Above all that those before it may have given.
            epoch: Epoch((1 << 40) + u64::from(life) * Inherited::EPOCHS_APART),
            since: now,
            learning_until,
            inherited,
            max_holders: usize::MAX,
            seed: self.rng.u64(..),
        };
        let mut resource = Resource::new(birth);
        if resource.pool().is_some() {
            resource.keep_notes();
            if let Some(memory) = &self.nodes[index].pool {
                resource.recall(now, memory.notes(now));
            }
        }
        self.nodes[index].master =
            Some(Master { peer, resource, up, own_end: None, outbox: Vec::new(), looked: None, look_at: None });
        #[cfg(feature = "planted")]
        self.remind(index);
        self.queue.put(now.plus(TICK), Event::Tick { node: index, life });
        self.vouch(index);
        self.look_into_pool(index);
        self.step_node(index);
        Ok(())
    }

    /// Assignments are facts that outlive masters.
    fn vouch(&mut self, index: usize) {
        let Some(master) = self.nodes[index].master.as_mut().filter(|_| self.pools.is_some()) else { return };
        let seats = self.plan.tree.clients.iter().enumerate().filter(|(_, seat)| seat.node == index);
        let assigned = seats.filter_map(|(seat, plan)| {
            let life = self.clients.get(seat).map_or(0, |client| client.life);
            let name: Arc<str> = Party::Client(seat).name(life).into();
            Some((HolderKind::Client, name, Assigned::Capacity(plan.assigned?)))
        });
        master.resource.remember_assignments(assigned);
    }

    /// Who comes in another's place is vouched for in its stead.
    pub(super) fn vouch_for(&mut self, seat: usize) {
        let (now, place) = (self.now, &self.plan.tree.clients[seat]);
        let Some(master) = self.nodes[place.node].master.as_mut().filter(|_| self.pools.is_some()) else { return };
        let Some(assigned) = place.assigned else { return };
        let life = self.clients[seat].life;
        let name = |life| -> Arc<str> { Party::Client(seat).name(life).into() };
        // Taking something away is never refused.
        let _ = master.resource.assign(now, HolderKind::Client, &name(life - 1), None);
        let newcomer = (HolderKind::Client, name(life), Assigned::Capacity(assigned));
        master.resource.remember_assignments([newcomer]);
    }

    /// What has happened in the pool of a node; and what the pool of the root has promised to all.
    fn look_into_pool(&mut self, index: usize) {
        let Some(pools) = &mut self.pools else { return };
        let (now, node) = (self.now, &mut self.nodes[index]);
        let Some(master) = &mut node.master else { return };
        for event in master.resource.take_pool_events() {
            pools.happened(now, &event);
        }
        if index == ROOT
            && let Some(report) = master.resource.pool()
        {
            pools.stands(now, node.life, &report);
            // What is out when the total falls comes back little by little, and there is never more than the most.
            self.books.allow(report.connected.max(report.total.into()).min(report.max.into()));
        }
    }

    /// Where that fault is planted, a new master begins with what a former one was lent when it last wrote anything
    /// down.
    #[cfg(feature = "planted")]
    fn remind(&mut self, index: usize) {
        let node = &mut self.nodes[index];
        if let (Some(master), Some((_, supply))) = (&mut node.master, node.remembered.pop()) {
            master.own_end = Some(supply.until);
            master.resource.supply(supply);
        }
    }

    pub(super) fn lose_master(&mut self, index: usize) -> Result<bool, Violation> {
        let (now, node) = (self.now, &mut self.nodes[index]);
        if node.master.is_none() {
            return Ok(false);
        }
        node.depose(now, &mut self.rng)?;
        Ok(true)
    }

    /// The master of this life, if it still is.
    pub(super) fn master(&mut self, node: usize, life: u32) -> Option<&mut Master> {
        let node = &mut self.nodes[node];
        node.master.as_mut().filter(|_| node.life == life)
    }

    pub(super) fn request(&mut self, letter: Letter) -> Result<(), Violation> {
        let Letter { from, node, peer, request } = letter;
        match &self.nodes[node].master {
            Some(master) if master.peer == peer => {
                if self.park(node, from, &request) {
                    Ok(())
                } else {
                    self.round(node, from, request)
                }
            }
            other => {
                let what = Said::Elsewhere(other.as_ref().map(|master| master.peer));
                self.reply(node, from, what);
                Ok(())
            }
        }
    }

    fn reply(&mut self, node: usize, to: Sender, what: Said) {
        self.send(Mail::Reply(Box::new(letter(node, to, what))));
    }

    /// A round for one request.
    pub(super) fn round(&mut self, index: usize, from: Sender, request: Request) -> Result<(), Violation> {
        let clock = self.clock();
        let Some(master) = &mut self.nodes[index].master else { return Ok(()) };
        let news = match &request {
            Request::Ask(ask) | Request::Renew(ask) => Sum::from(ask.outstanding.unwrap_or_default()),
            Request::Release(_) => Sum::ZERO,
        };
        let before = master.resource.sums().held;
        let Desk { requests, answers, workspace, .. } = &mut self.desk;
        answers.clear();
        requests.push(request);
        master.resource.round(clock, requests, answers, workspace);
        let answer = answers.pop().expect("each request has an answer");
        if self.checked {
            master.check(&answer, before, news, clock.at)?;
        }
        let what = match answer {
            Answer::Granted(lease) => Said::Granted(lease),
            Answer::Supplied(supplied) => Said::Supplied(supplied),
            Answer::NotYet | Answer::TooSoon | Answer::Stale | Answer::Full | Answer::Unknown | Answer::Released => {
                Said::Nothing
            }
        };
        self.write(index);
        self.look_into_pool(index);
        let Some(master) = &mut self.nodes[index].master else { return Ok(()) };
        let reply = letter(index, from, what);
        match master.resource.held_back().map(|(_, number)| number).max() {
            Some(number) => master.outbox.push((number, reply)),
            None => self.send(Mail::Reply(Box::new(reply))),
        }
        self.watch_newcomers(index);
        self.look(index);
        self.ask_early(index);
        Ok(())
    }

    pub(super) fn tick(&mut self, index: usize, life: u32) -> Result<(), Violation> {
        let now = self.now;
        let Some(master) = self.master(index, life) else { return Ok(()) };
        let before = master.resource.sums().held;
        master.resource.tick(now);
        let held = invariant::held_within_capacity(&master.resource, before);
        if self.checked {
            held?;
        }
        self.write(index);
        self.note_pool(index);
        self.look_into_pool(index);
        self.look(index);
        self.ask_early(index);
        self.queue.put(now.plus(TICK), Event::Tick { node: index, life });
        Ok(())
    }

    /// What has changed about promises goes into the log.
    fn write(&mut self, index: usize) {
        let (now, node) = (self.now, &mut self.nodes[index]);
        let Some(master) = &mut node.master else { return };
        if let Some(changes) = master.resource.take_changes(now).changes {
            node.log.push_back(changes);
            #[cfg(feature = "planted")]
            if let Some(up) = &master.up {
                node.remembered = up.remembered(now);
            }
            let remembered = Event::Remembered { node: index, life: node.life };
            self.queue.put(now.plus(self.plan.scenario.commit.0), remembered);
        }
    }

    /// What is to be remembered of a pool goes there too.
    fn note_pool(&mut self, index: usize) {
        let (now, node) = (self.now, &mut self.nodes[index]);
        let Some(master) = &mut node.master else { return };
        if let Some(notes) = master.resource.take_notes(now, NOTES.0, NOTES.1, false) {
            node.pool.get_or_insert_default().apply(&notes, now, ALL_NOTES);
        }
    }

    /// The peers have stored the next entry of the log: answers that waited for it leave.
    pub(super) fn remembered(&mut self, index: usize, life: u32) -> Result<(), Violation> {
        let (now, node) = (self.now, &mut self.nodes[index]);
        if node.life != life || node.master.is_none() {
            return Ok(());
        }
        let Some(changes) = node.log.pop_front() else { return Ok(()) };
        node.store(&changes, now)?;
        let Some(master) = &mut node.master else { return Ok(()) };
        master.resource.acknowledge(changes.number);
        let leaving = master.outbox.extract_if(.., |(number, _)| *number <= changes.number);
        let leaving: Vec<_> = leaving.map(|(_, reply)| reply).collect();
        leaving.into_iter().for_each(|reply| self.send(Mail::Reply(Box::new(reply))));
        Ok(())
    }

    fn watch_newcomers(&mut self, index: usize) {
        let Some(master) = self.nodes[index].master.as_mut().filter(|_| self.plan.scenario.push) else { return };
        let newcomers: Vec<(HolderKind, Arc<str>)> =
            master.resource.newcomers().map(|(kind, id)| (kind, Arc::clone(id))).collect();
        for (kind, id) in newcomers {
            master.resource.watch(kind, &id);
        }
    }

    /// Hints those who should ask now, but not sooner after the last look than a server does.
    pub(super) fn look(&mut self, index: usize) {
        let (now, node) = (self.now, &mut self.nodes[index]);
        let Some(master) = node.master.as_mut().filter(|_| self.plan.scenario.push) else { return };
        let rested = master.looked.is_none_or(|looked| now.since(looked) >= LOOK);
        let mut hints = std::mem::take(&mut self.desk.hints);
        if rested && master.resource.next_hints(now).is_some_and(|next| next <= now) {
            master.looked = Some(now);
            master.resource.hints(now, LOOK_AT, &mut hints);
        }
        let earliest = master.looked.map_or(now, |looked| looked.plus(LOOK));
        if let Some(at) = master.resource.next_hints(now).map(|next| next.max(earliest))
            && master.look_at.is_none_or(|known| at < known || known <= now)
        {
            master.look_at = Some(at);
            self.queue.put(at, Event::Look { node: index, life: node.life });
        }
        for hint in hints.drain(..) {
            if let Some((to, life)) = Party::named(hint.kind, &hint.id) {
                self.send(Mail::Hint { to, life, from: index });
            }
        }
        self.desk.hints = hints;
    }

    pub(super) fn look_again(&mut self, index: usize, life: u32) {
        let now = self.now;
        if let Some(master) = self.master(index, life)
            && master.look_at == Some(now)
        {
            master.look_at = None;
            self.look(index);
        }
    }
}

fn letter(node: usize, to: Sender, what: Said) -> Reply {
    Reply { to: to.party, life: to.life, number: to.number, from: node, what }
}

impl Master {
    /// What must hold after every round. `news`: what a child node said that those below it use, which may be more than
    /// was known here; no decision could have prevented that.
    fn check(&self, answer: &Answer, before: Sum, news: Sum, now: Millis) -> Result<(), Violation> {
        if let Some(lease) = answer.lease() {
            invariant::lease_within_bounds(lease, None, now, self.own_end)?;
        }
        match invariant::held_within_capacity(&self.resource, before) {
            Err(_) if news > Sum::ZERO && self.resource.sums().held - before <= news => Ok(()),
            outcome => outcome,
        }
    }
}
