//! Events of nodes: elections, requests, and the effects of engines.

use std::sync::Arc;

use leaseway_core::engine::{Effects, Moment, PackedEngine, Predecessor, ResourceEngine, Setup};
use leaseway_core::{
    lease::promises::Inherited,
    policy::settings::{AlgorithmKind, Settings},
    pool::Assigned,
    resource::{
        Answer, Notes, PackedContext, Request, ResourceOptions,
        invariant::{self, Violation},
        supply::Source,
    },
    types::{Amount, ClusterClock, Epoch, HolderKind, Millis, Now, PrincipalShare, Sum},
};

use crate::{
    network::message::{Message, Participant, Reply, ReplyBody, RequestMessage, Sender},
    node::{Buffers, EngineChecks, Master, NodeEnvironment, Proposed, ROOT, Ticket},
    scenario::Handover,
    simulation::{Event, Simulation},
};

/// The interval between ticks of engines.
const TICK_INTERVAL: Millis = Millis(1_000);
/// Maximum number of notes about all pools of a node.
const MAX_NOTES: usize = 200_000;
/// The idle time after which resources retire: never.
const NEVER: Millis = Millis(u64::MAX);

impl Simulation<'_> {
    /// Elects a random peer, unless it is master already.
    pub(crate) fn elect(&mut self, index: usize) -> Result<(), Violation> {
        let (now, node) = (self.now, &mut self.nodes[index]);
        let peer = self.rng.u8(0..node.endpoints.len() as u8);
        if node.master.as_ref().is_some_and(|master| master.peer == peer) {
            return Ok(());
        }
        node.depose(&mut self.rng)?;
        node.incarnation += 1;
        let cluster_clock = ClusterClock::new(node.reached, now);
        node.failed_over = now;
        let incarnation = node.incarnation;
        // A child node makes no decision before its parent has sent the settings.
        let settings = if index == ROOT { &self.settings } else { &self.plan.settings }.clone();
        let learning_until = settings.learning_until(now);
        // As in a server, a child node does not know before that it is a budget.
        let is_placeholder = index != ROOT && self.plan.is_budget();
        let settings = if is_placeholder { Settings::new(AlgorithmKind::FairShare, Amount::ZERO) } else { settings };
        let (inherited, learning_until, predecessor) = match self.plan.handover(index) {
            Handover::Promises => (Some(node.promises.inherited(cluster_clock, now, now)), now, None),
            Handover::Learning => (None, learning_until, Some(Predecessor::NewMaster(now))),
        };
        let notes = node.pool.as_ref().map(|memory| memory.notes(now));
        let uplink = self.uplink(index);
        let options = ResourceOptions {
            settings: settings.into(),
            source: if uplink.is_some() { Source::Parent } else { Source::Own },
            // Higher than all epochs of its predecessors.
            epoch: Epoch((1 << 40) + u64::from(incarnation) * Inherited::EPOCHS_APART),
            since: now,
            learning_until,
            inherited,
            max_holders: usize::MAX,
            seed: self.rng.u64(..),
        };
        let setup = Setup { options, keeps_notes: self.pools.is_some(), predecessor, idle_after: NEVER };
        let environment = NodeEnvironment { listens: self.listens(), assignments: self.assignments(index), notes };
        let mut effects = Effects::default();
        let engine = ResourceEngine::new(setup, environment.moment(self.clock()), &mut effects);
        #[cfg(feature = "planted")]
        let engine = {
            let mut engine = engine;
            engine.plant_twin(|ticket| *ticket);
            engine
        };
        let (own_end, woken_at, checks) = (None, None, EngineChecks::new(&engine));
        let follows = None;
        let clock = cluster_clock;
        let master = Master { peer, clock, engine, uplink, own_end, follows, woken_at, environment, checks };
        self.nodes[index].master = Some(master);
        #[cfg(feature = "planted")]
        self.plant_remembered_lease(index)?;
        self.queue.put(now.plus(TICK_INTERVAL), Event::Tick { node: index, incarnation });
        self.apply_effects(index, &mut effects)?;
        self.follow_override(index)?;
        self.step_uplink(index);
        Ok(())
    }

    /// Whether each client listens for hints. `None` if the scenario has no hints.
    fn listens(&self) -> Option<Vec<bool>> {
        let clients = self.plan.tree.clients.iter();
        self.plan.scenario.push.then(|| clients.map(|place| place.kind.is_ours()).collect())
    }

    /// The assignments at a node. They survive a change of master.
    fn assignments(&self, index: usize) -> Vec<(HolderKind, Arc<str>, Assigned)> {
        if self.pools.is_none() {
            return Vec::new();
        }
        let clients = self.plan.tree.clients.iter().enumerate().filter(|(_, place)| place.node == index);
        let assigned = clients.filter_map(|(client, place)| {
            let number = self.clients.get(client).map_or(0, |client| client.names);
            let name: Arc<str> = Participant::Client(client).name(number).into();
            Some((HolderKind::Client, name, Assigned::Capacity(place.assigned?)))
        });
        assigned.collect()
    }

    /// Moves the assignment of a client to its replacement.
    pub(crate) fn move_assignment(&mut self, client: usize) -> Result<(), Violation> {
        let place = &self.plan.tree.clients[client];
        let Some(assigned) = place.assigned.filter(|_| self.pools.is_some()) else { return Ok(()) };
        let number = self.clients[client].names;
        let name = |number| -> Arc<str> { Participant::Client(client).name(number).into() };
        let (former, newcomer) = (name(number - 1), name(number));
        self.input(place.node, |engine, moment, buffers| {
            let assign = |resource: &mut leaseway_core::resource::Resource, now| {
                // Removing an assignment cannot fail.
                let _ = resource.assign(now, HolderKind::Client, &former, None);
                resource.remember_assignments([(HolderKind::Client, newcomer, Assigned::Capacity(assigned))]);
            };
            engine.operate(moment, assign, &mut buffers.effects);
        })
    }

    /// Planted fault: a new master starts with the supply of a former one.
    #[cfg(feature = "planted")]
    fn plant_remembered_lease(&mut self, index: usize) -> Result<(), Violation> {
        let node = &mut self.nodes[index];
        let Some((_, supply)) = node.remembered.pop() else { return Ok(()) };
        node.lent_until(supply.until);
        self.input(index, |engine, moment, buffers| {
            engine.operate(moment, |resource, now| resource.supply(now, supply), &mut buffers.effects);
        })
    }

    pub(crate) fn lose_master(&mut self, index: usize) -> Result<bool, Violation> {
        let node = &mut self.nodes[index];
        if node.master.is_none() {
            return Ok(false);
        }
        node.depose(&mut self.rng)?;
        Ok(true)
    }

    pub(crate) fn request(&mut self, message: RequestMessage) -> Result<(), Violation> {
        if !self.is_allowed(&message)? {
            return Ok(());
        }
        let RequestMessage { from, node, peer, request, .. } = message;
        match &mut self.nodes[node].master {
            Some(master) if master.peer == peer => {
                let news = match &request {
                    Request::Ask(ask) | Request::Renew(ask) if ask.kind == HolderKind::Node => {
                        Sum::from(ask.outstanding.unwrap_or_default())
                    }
                    _ => Sum::ZERO,
                };
                let ticket = master.checks.arrived(from, news);
                self.input(node, |engine, moment, buffers| {
                    buffers.batch.push(request, ticket);
                    engine.run_round(moment, &mut buffers.batch, &mut buffers.effects);
                })
            }
            other => {
                let what = ReplyBody::Redirect(other.as_ref().map(|master| master.peer));
                self.reply(node, from, what);
                Ok(())
            }
        }
    }

    pub(crate) fn reply(&mut self, node: usize, to: Sender, what: ReplyBody) {
        let reply = Reply { to: to.participant, incarnation: to.incarnation, number: to.number, from: node, what };
        self.send(Message::Reply(Box::new(reply)));
    }

    pub(crate) fn tick(&mut self, index: usize, incarnation: u32) -> Result<(), Violation> {
        if self.nodes[index].master_of(incarnation).is_none() {
            return Ok(());
        }
        self.queue.put(self.now.plus(TICK_INTERVAL), Event::Tick { node: index, incarnation });
        self.nodes[index].advance(self.now);
        self.follow_override(index)?;
        self.input(index, |engine, moment, buffers| engine.tick(moment, true, &mut buffers.effects))
    }

    pub(crate) fn wake_resource(&mut self, index: usize, incarnation: u32) -> Result<(), Violation> {
        let now = self.now;
        let Some(master) = self.nodes[index].master_of(incarnation).filter(|master| master.woken_at == Some(now))
        else {
            return Ok(());
        };
        master.woken_at = None;
        self.input(index, |engine, moment, buffers| engine.wake(moment, &mut buffers.effects))
    }

    /// Commits the next log entry, and sends the answers that waited for it.
    pub(crate) fn committed(&mut self, index: usize, incarnation: u32) -> Result<(), Violation> {
        let node = &mut self.nodes[index];
        if node.master_of(incarnation).is_none() {
            return Ok(());
        }
        let Some(proposed) = node.log.pop_front() else { return Ok(()) };
        node.store(&proposed)?;
        let Proposed { changes, at, own_end, .. } = proposed;
        let mut effects = std::mem::take(&mut self.buffers.effects);
        if let Some(master) = &mut node.master {
            master.engine.committed(changes.number, &mut effects);
        }
        self.apply_effects_decided_at(index, &mut effects, at, own_end)?;
        self.buffers.effects = effects;
        Ok(())
    }

    /// Calls the engine of a master, and applies the effects.
    pub(crate) fn input(
        &mut self,
        index: usize,
        input: impl FnOnce(&mut ResourceEngine<Ticket>, Moment<'_>, &mut Buffers),
    ) -> Result<(), Violation> {
        let clock = self.clock();
        let mut buffers = std::mem::take(&mut self.buffers);
        let keeps_notes = self.pools.is_some();
        if let Some(master) = &mut self.nodes[index].master {
            repack(master, clock, keeps_notes);
            input(&mut master.engine, master.environment.moment(clock), &mut buffers);
        }
        let carried_out = self.apply_effects(index, &mut buffers.effects);
        self.buffers = buffers;
        carried_out
    }

    fn apply_effects(&mut self, index: usize, effects: &mut Effects<Ticket>) -> Result<(), Violation> {
        let own_end = self.nodes[index].master.as_ref().and_then(|master| master.own_end);
        self.apply_effects_decided_at(index, effects, self.now, own_end)
    }

    /// As `apply_effects`, for answers that were decided at another time.
    fn apply_effects_decided_at(
        &mut self,
        index: usize,
        effects: &mut Effects<Ticket>,
        decided: Millis,
        own_end: Option<Millis>,
    ) -> Result<(), Violation> {
        let (now, node) = (self.now, &mut self.nodes[index]);
        let Some(master) = &mut node.master else { return Ok(()) };
        let held = master.checks.held(&master.engine, now, !effects.replies.is_empty());
        if self.checks_invariants {
            held?;
        }
        if let Some(changes) = effects.changes.take() {
            let reached = master.clock.reached(now);
            node.log.push_back(Proposed { changes, reached, at: now, own_end: master.own_end });
            #[cfg(feature = "planted")]
            if let Some(uplink) = &master.uplink {
                node.remembered = uplink.engine.carried_over(now);
            }
            let stored = Event::Committed { node: index, incarnation: node.incarnation };
            self.queue.put(now.plus(self.plan.scenario.commit.0), stored);
        }
        if let Some((number, notes)) = effects.notes.take() {
            if let Notes::Pool(notes) = notes {
                node.pool.get_or_insert_default().apply(&notes, now, MAX_NOTES);
            }
            master.engine.notes_stored(number);
        }
        if let Some(at) = effects.wake_at.take()
            && master.woken_at.is_none_or(|known| at < known)
        {
            master.woken_at = Some(at);
            self.queue.put(at, Event::WakeResource { node: index, incarnation: node.incarnation });
        }
        if !effects.hints.is_empty() {
            let paced = master.checks.hinted(now);
            if self.checks_invariants {
                paced?;
            }
        }
        if let Some(pools) = &mut self.pools {
            effects.pool_events.iter().for_each(|event| pools.record_event(now, event));
            if index == ROOT
                && let Some(report) = master.engine.resource().pool()
            {
                pools.record_report(now, node.incarnation, &report);
                // After the total has fallen, connected clients leave gradually. Even then they never exceed the
                // maximum.
                self.accounting.allow(report.connected.max(report.total.into()).min(report.max.into()));
            }
        }
        effects.pool_events.clear();
        effects.budget_events.clear();
        for (ticket, reply) in effects.replies.drain(..) {
            let answer = reply.expect("the only master may decide");
            if self.checks_invariants {
                self.check_answer(index, &ticket, &answer, decided, own_end)?;
            }
            match ticket.from.stream {
                None => self.reply(index, ticket.from, reply_body(answer)),
                Some(_) => self.answer_stream(index, ticket.from, &answer),
            }
        }
        for hint in effects.hints.drain(..) {
            if let Some((to, name)) = Participant::named(hint.kind, &hint.id) {
                self.send(Message::Hint { to, name, from: index });
            }
        }
        if std::mem::take(&mut effects.asks_parent) && self.plan.scenario.push {
            self.ask_parent(index);
        }
        debug_assert!(effects.is_empty(), "all effects are carried out");
        Ok(())
    }

    /// Checks that an answer is within bounds, and the only one to its request. Whether its promise is committed is
    /// checked when the answer arrives.
    fn check_answer(
        &mut self,
        index: usize,
        ticket: &Ticket,
        answer: &Answer,
        decided: Millis,
        own_end: Option<Millis>,
    ) -> Result<(), Violation> {
        if let Some(master) = &mut self.nodes[index].master {
            master.checks.answered(ticket)?;
        }
        let Some(lease) = answer.lease() else { return Ok(()) };
        invariant::lease_within_bounds(lease, None, decided, own_end)?;
        Ok(())
    }
}

fn reply_body(answer: Answer) -> ReplyBody {
    match answer {
        Answer::Granted(lease) => ReplyBody::Granted(lease),
        Answer::Supplied(supplied) => ReplyBody::Supplied(supplied),
        Answer::NotYet
        | Answer::TooSoon
        | Answer::Stale
        | Answer::Full
        | Answer::ShareFull
        | Answer::Unknown
        | Answer::NameTaken
        | Answer::NeedsReport
        | Answer::NeedsStorage
        | Answer::Released => ReplyBody::Nothing,
    }
}

/// Packs and unpacks the engine, as the server does between rounds. Changes nothing that can be observed.
fn repack(master: &mut Master, clock: Now, keeps_notes: bool) {
    while_packed(master, clock, keeps_notes, |_| ());
}

/// Calls `work` with the packed engine. `None` if it cannot be packed.
pub(crate) fn while_packed<R>(
    master: &mut Master,
    clock: Now,
    keeps_notes: bool,
    work: impl FnOnce(&mut PackedEngine) -> R,
) -> Option<R> {
    if !master.engine.can_pack(clock.at) {
        return None;
    }
    let options = ResourceOptions {
        settings: Settings::unmatched().into(),
        source: Source::Own,
        epoch: Epoch(0),
        since: clock.at,
        learning_until: clock.at,
        inherited: None,
        max_holders: 0,
        seed: 0,
    };
    let setup = Setup { options, keeps_notes: false, predecessor: None, idle_after: NEVER };
    let spare = ResourceEngine::new(setup, master.environment.moment(clock), &mut Effects::default());
    let mut packed = std::mem::replace(&mut master.engine, spare).pack();
    let done = work(&mut packed);
    let context = PackedContext { seed: 7, max_holders: usize::MAX, place_share: PrincipalShare::default() };
    master.engine = ResourceEngine::unpack(packed, context, keeps_notes, NEVER);
    Some(done)
}
