//! The event loop: clients, nodes, and the messages between them on one virtual clock.
//!
//! Every state change is an [`Event`] with a time. The loop takes the earliest event, advances the clock, passes the
//! event to the real state machine, applies the resulting effects (which schedule further events), and then checks all
//! invariants ([`audit`]). A run depends only on the scenario and the seed: events with equal times keep the order in
//! which they were scheduled, and all random numbers come from one generator.
//!
//! Each request has its own round, unless several wait for a supply. The combiner of real servers is not simulated.

mod audit;
mod clients;
mod faults;
mod forgery;
mod nodes;
mod overrides;
mod steady_state;
mod streams;
#[cfg(test)]
mod tests;
mod uplinks;

use std::{
    cmp::Reverse,
    collections::{BinaryHeap, VecDeque},
    sync::Arc,
};

use leaseway_core::{
    policy::settings::{Reuse, Settings},
    resource::invariant::Violation,
    types::{Amount, Millis, Now, Sum},
};
use slab::Slab;

use crate::{
    accounting::{
        Accounting,
        budget::BudgetAccounting,
        figures::{Figures, Point, PoolPoint, RunFailure, RunOptions},
        oracle::{self, Deviation},
        pool::Pools,
    },
    client::Client,
    network::{
        Network,
        message::{Message, Participant},
    },
    node::{Buffers, Node},
    scenario::{
        ClientKind,
        fault::Fault,
        plan::{Plan, TreeClient},
    },
    simulation::{forgery::Access, steady_state::SteadyState},
    units::Span,
};

const RESOURCE: &str = "resource0";
/// The Unix time at which virtual time begins.
const SAMPLE_INTERVAL: Millis = Millis(1_000);
/// The interval between comparisons with the oracle.
const COMPARE_INTERVAL: Millis = Millis(30_000);
/// Longer runs record a point every five seconds instead of every second.
const LONG_RUN: Span = Span::millis(600_000);
/// Maximum number of events in a trace.
const MAX_TRACE: usize = 40;
/// A newcomer is served when it has this fraction of its due.
const SERVED_FRACTION: f64 = 0.9;
/// Maximum deviation from its due, in percent, at which a client counts as settled.
const MAX_DEVIATION_PERCENT: f64 = 1.0;

/// A scheduled event. Events of masters name the incarnation that they belong to, and are ignored by later ones.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Event {
    /// Deliver the message in this slot.
    Deliver(usize),
    WakeClient(usize),
    WakeUplink {
        node: usize,
        incarnation: u32,
    },
    WakeResource {
        node: usize,
        incarnation: u32,
    },
    Tick {
        node: usize,
        incarnation: u32,
    },
    /// The first uncommitted log entry of a node is committed.
    Committed {
        node: usize,
        incarnation: u32,
    },
    Walk(usize),
    Burst {
        client: usize,
        generation: u32,
    },
    /// Inject a fault of the scenario's `events`.
    TimedFault(usize),
    /// Inject a fault of the scenario's `random_faults`.
    RandomFault(usize),
    Elect(usize),
    Return(usize),
    OverrideEnds {
        node: usize,
        number: u32,
    },
    Quiet,
    Sample,
}

/// The scheduled events, by time. Events with equal times keep the order in which they were scheduled, which makes runs
/// reproducible to the bit.
#[derive(Default)]
struct Queue {
    heap: BinaryHeap<Reverse<(Millis, u64, Event)>>,
    scheduled: u64,
}

impl Queue {
    fn put(&mut self, at: Millis, event: Event) {
        self.scheduled += 1;
        self.heap.push(Reverse((at, self.scheduled, event)));
    }

    /// Takes the next event, if it is not after `until`.
    fn take(&mut self, until: Millis) -> Option<(Millis, Event)> {
        let Reverse((at, ..)) = self.heap.peek()?;
        if *at > until {
            return None;
        }
        self.heap.pop().map(|Reverse((at, _, event))| (at, event))
    }
}

struct Simulation<'p> {
    plan: &'p Plan,
    now: Millis,
    queue: Queue,
    in_flight: Slab<Message>,
    nodes: Vec<Node>,
    clients: Vec<Client>,
    network: Network,
    rng: fastrand::Rng,
    accounting: Accounting,
    pools: Option<Pools>,
    resource: Arc<str>,
    buffers: Buffers,
    /// The current settings at the root.
    settings: Settings,
    /// The current capacity at the root, including overrides.
    capacity: Amount,
    /// The access policy, if the scenario has forged requests.
    access: Option<Access>,
    is_cut: bool,
    messages: u64,
    /// Leases that were renewed without a round.
    renewals: u64,
    /// Whether violations end the run.
    checks_invariants: bool,
    quiet: bool,
    events: u64,
    settling: Option<Settling>,
    /// The check at the end of runs with limiters.
    budget: Option<BudgetAccounting>,
    steady_state: Option<SteadyState>,
    /// Waiting times of clients that arrived after a failover.
    waits: Vec<Millis>,
    compared: (f64, u32),
    curve: Option<Vec<Point>>,
    trace: Option<VecDeque<String>>,
}

/// Tracks whether all clients have their due, after faults have ended.
struct Settling {
    dues: Vec<Amount>,
    since: Option<Millis>,
}

/// Runs a plan once, without measuring wall-clock time.
pub(crate) fn run(plan: &Plan, seed: u64, options: RunOptions) -> Result<Figures, RunFailure> {
    let mut simulation = Simulation::new(plan, seed, options);
    match simulation.start().and_then(|()| simulation.run()).and_then(|()| simulation.check_outcome()) {
        Ok(()) => Ok(simulation.figures(seed)),
        Err(violation) => {
            let mut trace: Vec<String> = simulation.trace.take().unwrap_or_default().into();
            if options.trace {
                trace.extend(simulation.node_states());
            }
            Err(RunFailure { seed, at: simulation.now, violation, trace })
        }
    }
}

impl<'p> Simulation<'p> {
    fn new(plan: &'p Plan, seed: u64, options: RunOptions) -> Simulation<'p> {
        let scenario = &plan.scenario;
        let nodes = plan.tree.nodes.iter().enumerate().map(|(index, place)| Node::new(index, place)).collect();
        let bounded =
            plan.settings.shares() && plan.settings.reuse == Reuse::Confirmed && !options.continue_after_violation;
        let capacity = Amount::clamped(scenario.resource.capacity);
        let accounting = Accounting::new(capacity, plan.digits(), bounded, scenario.measure_from.0);
        let pools = plan.is_pool().then(|| Pools::new(capacity, scenario.measure_from.0));
        Simulation {
            plan,
            now: Millis(0),
            queue: Queue::default(),
            in_flight: Slab::with_capacity(256),
            nodes,
            clients: Vec::with_capacity(plan.tree.clients.len()),
            network: scenario.network.clone(),
            rng: fastrand::Rng::with_seed(seed),
            accounting,
            pools,
            resource: RESOURCE.into(),
            buffers: Buffers::default(),
            settings: plan.settings.clone(),
            capacity,
            access: scenario.faults().any(|fault| matches!(fault, Fault::Forge { .. })).then(|| Access::new(plan)),
            is_cut: false,
            messages: 0,
            renewals: 0,
            checks_invariants: !options.continue_after_violation,
            quiet: false,
            events: 0,
            settling: None,
            budget: plan.is_budget().then(|| BudgetAccounting::new(&plan.settings.budget)),
            steady_state: None,
            waits: Vec::new(),
            compared: (0.0, 0),
            curve: options.curve.then(Vec::new),
            trace: options.trace.then(VecDeque::new),
        }
    }

    fn start(&mut self) -> Result<(), Violation> {
        let Plan { scenario, tree, .. } = self.plan;
        for node in 0..tree.nodes.len() {
            self.elect(node)?;
        }
        for client in 0..tree.clients.len() {
            self.arrive(client);
        }
        for (number, timed) in scenario.events.iter().enumerate() {
            self.queue.put(timed.at.0, Event::TimedFault(number));
        }
        for (number, random_faults) in scenario.random_faults.iter().enumerate() {
            self.queue.put(random_faults.from.0, Event::RandomFault(number));
        }
        if let Some(Span(quiet)) = scenario.quiet_from() {
            self.queue.put(quiet, Event::Quiet);
        }
        self.queue.put(SAMPLE_INTERVAL, Event::Sample);
        Ok(())
    }

    fn run(&mut self) -> Result<(), Violation> {
        let end = self.plan.scenario.length.0;
        while let Some((at, event)) = self.queue.take(end) {
            self.now = at;
            self.events += 1;
            if self.trace.is_some() {
                self.note(event);
            }
            self.handle(event)?;
            if self.checks_invariants {
                self.audit()?;
            }
        }
        self.now = end;
        self.end_waits();
        self.accounting.advance(end);
        if let Some(pools) = &mut self.pools {
            pools.advance(end);
        }
        Ok(())
    }

    fn handle(&mut self, event: Event) -> Result<(), Violation> {
        match event {
            Event::Deliver(slot) => {
                let message = self.in_flight.remove(slot);
                self.deliver(message)
            }
            Event::WakeClient(client) => self.wake_client(client),
            Event::WakeUplink { node, incarnation } => {
                self.wake_uplink(node, incarnation);
                Ok(())
            }
            Event::WakeResource { node, incarnation } => self.wake_resource(node, incarnation),
            Event::Tick { node, incarnation } => self.tick(node, incarnation),
            Event::Committed { node, incarnation } => self.committed(node, incarnation),
            Event::Walk(client) => self.walk(client),
            Event::Burst { client, generation } => {
                self.burst(client, generation);
                Ok(())
            }
            Event::TimedFault(number) => {
                let plan = self.plan;
                self.inject(&plan.scenario.events[number].what)
            }
            Event::RandomFault(number) => self.random_fault(number),
            Event::Elect(node) => self.elect(node),
            Event::Return(client) => self.rejoin(client),
            Event::OverrideEnds { node, number } => {
                self.end_override(node, number);
                Ok(())
            }
            Event::Quiet => self.end_faults(),
            Event::Sample => {
                self.sample();
                Ok(())
            }
        }
    }

    fn send(&mut self, message: Message) {
        self.messages += 1;
        if !self.is_reachable(&message) {
            return;
        }
        let (first, second) = self.network.delays(&mut self.rng);
        if let Some(delay) = second {
            let slot = self.in_flight.insert(message.clone());
            self.queue.put(self.now.plus(delay), Event::Deliver(slot));
        }
        if let Some(delay) = first {
            let slot = self.in_flight.insert(message);
            self.queue.put(self.now.plus(delay), Event::Deliver(slot));
        }
    }

    fn deliver(&mut self, message: Message) -> Result<(), Violation> {
        if !self.is_reachable(&message) {
            return Ok(());
        }
        match message {
            Message::Request(request) => self.request(*request),
            Message::Stream(message) => self.stream_message(*message),
            Message::Reply(reply) => match reply.to {
                Participant::Client(client) => self.answer_client(client, &reply),
                Participant::Node(node) => self.answer_node(node, *reply),
            },
            Message::Hint { to, name, .. } => match to {
                Participant::Client(client) => self.hint_client(client, name),
                Participant::Node(node) => {
                    self.hint_node(node);
                    Ok(())
                }
            },
        }
    }

    /// Whether no link of the message is cut.
    fn is_reachable(&self, message: &Message) -> bool {
        let (participant, node) = message.ends();
        let own = match participant {
            Participant::Client(client) => self.clients[client].cut_until,
            Participant::Node(node) => self.nodes[node].uplink_cut_until.max(self.nodes[node].isolated_until),
        };
        own.max(self.nodes[node].isolated_until) <= self.now
    }

    fn sample(&mut self) {
        self.accounting.sample(self.now);
        let scenario = &self.plan.scenario;
        let every = if scenario.length > LONG_RUN { 5 } else { 1 };
        let (wants, had) = self.accounting.sums();
        if let Some(curve) = self.curve.as_mut().filter(|_| (self.now.0 / SAMPLE_INTERVAL.0).is_multiple_of(every)) {
            let stands = |(used, total, kicked_out)| PoolPoint { used, total, kicked_out };
            let pool = self.pools.as_ref().map(|pools| stands(pools.now()));
            curve.push(Point { at: self.now, wants, had, pool });
        }
        if self.pools.is_none() && self.now >= scenario.measure_from.0 && self.now.0.is_multiple_of(COMPARE_INTERVAL.0)
        {
            self.compared.0 += self.deviation().mean;
            self.compared.1 += 1;
        }
        if let Some(mut settling) = self.settling.take() {
            if self.plan.has_envoys() {
                // Reports of Envoys continue, and the gateways derive the wants of Envoys from them.
                settling.dues = self.dues();
            }
            let settled = oracle::deviation(&settling.dues, self.has(&settling.dues)).worst <= MAX_DEVIATION_PERCENT;
            settling.since = if settled { settling.since.or(Some(self.now)) } else { None };
            self.settling = Some(settling);
        }
        self.sample_steady_state();
        self.note_served_newcomers();
        self.queue.put(self.now.plus(SAMPLE_INTERVAL), Event::Sample);
    }

    /// Records the waiting times of newcomers that have been served.
    fn note_served_newcomers(&mut self) {
        if self.pools.is_some() || self.clients.iter().all(|client| client.waits_since.is_none()) {
            return;
        }
        let dues = self.dues();
        for (client, due) in self.clients.iter_mut().zip(dues) {
            if client.believes.get() >= due.get() * SERVED_FRACTION
                && let Some(since) = client.waits_since.take()
            {
                self.waits.push(self.now.since(since));
            }
        }
    }

    /// Records the waiting times, so far, of newcomers that were not served by the end.
    fn end_waits(&mut self) {
        let waiting = self.clients.iter_mut().filter_map(|client| client.waits_since.take());
        self.waits.extend(waiting.map(|since| self.now.since(since)));
    }

    fn end_faults(&mut self) -> Result<(), Violation> {
        self.quiet = true;
        self.network.heal();
        for node in 0..self.nodes.len() {
            (self.nodes[node].uplink_cut_until, self.nodes[node].isolated_until) = (self.now, self.now);
            if self.nodes[node].master.is_none() {
                self.elect(node)?;
            }
        }
        for client in &mut self.clients {
            client.cut_until = self.now;
            client.machine.heal();
        }
        for client in 0..self.clients.len() {
            self.rejoin(client)?;
        }
        self.end_overrides()?;
        match &self.pools {
            Some(_) => {}
            None if self.plan.has_limiters() => self.begin_steady_state(),
            None => self.settling = Some(Settling { dues: self.dues(), since: None }),
        }
        Ok(())
    }

    fn dues(&self) -> Vec<Amount> {
        let clients = self.clients.iter().zip(&self.plan.tree.clients);
        let demand = |(client, place): (&Client, &TreeClient)| {
            // Doorman's child nodes are in no group.
            let name = if client.kind == ClientKind::DoormanNode {
                client.name.replace('/', "-")
            } else {
                client.name.to_string()
            };
            (name, client.asks_for(), place.priority)
        };
        let demands: Vec<_> = clients.map(demand).collect();
        oracle::dues(&Settings { capacity: self.capacity, ..self.settings.clone() }, &demands)
    }

    /// The capacity of each client. Assignments of Envoys are whole requests, so a difference of one is ignored.
    fn has<'d>(&'d self, dues: &'d [Amount]) -> impl Iterator<Item = Amount> + 'd {
        self.clients.iter().zip(dues).map(|(client, due)| {
            let is_close = client.kind == ClientKind::Envoy && (client.believes.get() - due.get()).abs() <= 1.0 + 1e-9;
            if is_close { *due } else { client.believes }
        })
    }

    fn deviation(&self) -> Deviation {
        if self.pools.is_some() {
            // Who is connected in a pool depends on history.
            return Deviation::default();
        }
        let dues = self.dues();
        oracle::deviation(&dues, self.has(&dues))
    }

    /// Checks that all clients have settled at their dues, if there was a quiet period.
    fn check_outcome(&self) -> Result<(), Violation> {
        self.check_steady_state()?;
        match &self.settling {
            Some(Settling { since: None, .. }) if self.checks_invariants => {
                let Deviation { mean, worst } = self.deviation();
                let detail = format!(
                    "after the quiet period clients deviate by {mean:.3} % from their dues on average, and by at most {worst:.3} %"
                );
                Err(Violation { invariant: "I5", detail })
            }
            _ => Ok(()),
        }
    }

    fn figures(mut self, seed: u64) -> Figures {
        let quiet_from = self.plan.scenario.quiet_from().map(|span| span.0);
        let settled = self.settling.as_ref().and_then(|settling| settling.since).zip(quiet_from);
        let settled_s = settled.map(|(since, from)| since.since(from).0 as f64 / 1000.0);
        self.waits.sort_unstable();
        let seconds = |wait: &Millis| wait.0 as f64 / 1000.0;
        let refresh_s = self.plan.scenario.resource.refresh.0.0 as f64 / 1000.0;
        Figures {
            seed,
            usage: self.accounting.figures(),
            apart_mean: self.compared.0 / f64::from(self.compared.1.max(1)),
            apart_at_end: self.deviation(),
            settled_s,
            settled_refreshes: settled_s.map(|seconds| seconds / refresh_s),
            newcomers_median_s: self.waits.get(self.waits.len() / 2).map(seconds),
            newcomers_worst_s: self.waits.last().map(seconds),
            pool: self.pools.as_ref().map(Pools::figures),
            messages_per_s: self.messages as f64 * 1000.0 / self.now.0.max(1) as f64,
            events: self.events,
            renewals: self.renewals,
            took_s: 0.0,
            digest: format!("{:016x}", self.accounting.digest()),
            curve: self.curve.take().unwrap_or_default(),
        }
    }

    /// One line per node: its capacity, the amount that it counts as held, and the usable capacity of its clients.
    fn node_states(&self) -> impl Iterator<Item = String> {
        let places = self.plan.tree.nodes.iter().zip(&self.nodes).enumerate();
        places.map(|(index, (place, node))| {
            let own = self.plan.tree.clients.iter().zip(&self.clients).filter(|(place, _)| place.node == index);
            let used: Sum = own.map(|(_, client)| client.believes).collect();
            let (name, incarnation) = (&place.name, node.incarnation);
            match &node.master {
                None => format!("{name}: no master; its clients may use {used:?}"),
                Some(master) => {
                    let (resource, end) = (master.engine.resource(), master.own_end.map(|end| end.0));
                    let (capacity, held) = (resource.settings().capacity, resource.sums().held);
                    let learning = if resource.is_learning(self.now) { ", learning" } else { "" };
                    format!(
                        "{name}: master {incarnation}{learning}, capacity {capacity:?} until {end:?}, held {held:?}; \
                         its clients may use {used:?}"
                    )
                }
            }
        })
    }

    fn note(&mut self, event: Event) {
        let what = match event {
            Event::Sample | Event::Tick { .. } | Event::Walk(_) | Event::Burst { .. } => return,
            Event::Deliver(slot) => format!("{:?}", self.in_flight[slot]),
            other => format!("{other:?}"),
        };
        let line = format!("{:>9.3} s  {what}", self.now.0 as f64 / 1000.0);
        if let Some(trace) = &mut self.trace {
            trace.push_back(line);
            if trace.len() > MAX_TRACE {
                trace.pop_front();
            }
        }
    }

    fn clock(&self) -> Now {
        Now { at: self.now, unix: self.unix(self.now) }
    }

    /// The wall time in Unix seconds.
    fn unix(&self, at: Millis) -> i64 {
        self.plan.scenario.begins.0 + (at.0 / 1000) as i64
    }
}
