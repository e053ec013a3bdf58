//! Nodes: the engines of the master, and the replicated state of the peers.

use std::{
    collections::{HashMap, HashSet, VecDeque},
    sync::Arc,
};

use leaseway_core::engine::{
    Batch, Effects, Environment, MIN_VISIT_INTERVAL, Moment, ResourceEngine,
    stream::{Stream, Turn},
};
use leaseway_core::{
    lease::promises::{Changes, Promises},
    policy::overrides::{Load, Override},
    pool::{Assigned, PoolMemory, PoolNotes},
    resource::invariant::{self, Violation},
    types::{ClusterClock, ClusterTime, HolderKind, Millis, Now, Sum},
};
use leaseway_uplink::UplinkEngine;

use crate::{
    network::message::{Participant, Sender},
    scenario::plan::TreeNode,
};

pub(crate) const ROOT: usize = 0;

pub(crate) struct Node {
    /// The name of the node at its parent. All its masters use it.
    pub(crate) server_id: Arc<str>,
    /// The endpoints of its peers.
    pub(crate) endpoints: Vec<Arc<str>>,
    pub(crate) master: Option<Master>,
    pub(crate) incarnation: u32,
    pub(crate) failed_over: Millis,
    /// Proposed changes that are not committed yet.
    pub(crate) log: VecDeque<Proposed>,
    pub(crate) promises: Promises,
    pub(crate) reached: ClusterTime,
    /// The stored notes of its pool.
    pub(crate) pool: Option<PoolMemory>,
    /// The stored override of an operator.
    pub(crate) set: Option<Arc<Override>>,
    pub(crate) sets: u32,
    /// Upper bound of the capacity of its holders' leases. Set while an override is in force.
    pub(crate) most: Option<Sum>,
    pub(crate) uplink_cut_until: Millis,
    pub(crate) isolated_until: Millis,
    /// The newest stream of each client, by index. They outlive a master, to show that the next one does not use them.
    pub(crate) streams: HashMap<usize, OpenStream>,
    /// Used by a planted fault: the supply of a former master.
    #[cfg(feature = "planted")]
    pub(crate) remembered: Vec<(Arc<str>, leaseway_core::resource::supply::Supply)>,
}

/// A stream of renewals of one client.
pub(crate) struct OpenStream {
    /// The incarnation of the client, and the number of its stream.
    pub(crate) number: (u32, u64),
    pub(crate) stream: Stream<()>,
    /// The message that is being answered.
    pub(crate) turn: Option<(u64, Turn)>,
}

pub(crate) struct Proposed {
    pub(crate) changes: Changes,
    pub(crate) reached: ClusterTime,
    pub(crate) at: Millis,
    /// The expiry of the master's own lease from the parent: the latest since the proposal, because the master decides
    /// answers until the commit.
    pub(crate) own_end: Option<Millis>,
}

/// The volatile state of a master.
pub(crate) struct Master {
    pub(crate) peer: u8,
    /// The cluster clock in its term.
    pub(crate) clock: ClusterClock,
    pub(crate) engine: ResourceEngine<Ticket>,
    /// Present if there is a parent.
    pub(crate) uplink: Option<Uplink>,
    /// The expiry of the parent's lease, which its capacity comes from.
    pub(crate) own_end: Option<Millis>,
    /// The override that it has applied.
    pub(crate) follows: Option<Arc<Override>>,
    pub(crate) woken_at: Option<Millis>,
    pub(crate) environment: NodeEnvironment,
    pub(crate) checks: EngineChecks,
}

pub(crate) struct Uplink {
    pub(crate) engine: UplinkEngine,
    pub(crate) woken_at: Option<Millis>,
}

#[derive(Default)]
pub(crate) struct Buffers {
    pub(crate) batch: Batch<Ticket>,
    pub(crate) effects: Effects<Ticket>,
}

/// Identifies one arrival of a request. A duplicate has another number.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Ticket {
    pub(crate) from: Sender,
    pub(crate) arrival: u64,
}

pub(crate) struct NodeEnvironment {
    /// Whether each client, by index, listens for hints. Child nodes always do. `None` if the scenario has no hints.
    pub(crate) listens: Option<Vec<bool>>,
    pub(crate) assignments: Vec<(HolderKind, Arc<str>, Assigned)>,
    pub(crate) notes: Option<PoolNotes>,
}

impl Environment for NodeEnvironment {
    fn is_watched(&self, kind: HolderKind, name: &str) -> bool {
        let Some(listens) = &self.listens else { return false };
        match Participant::named(kind, name) {
            Some((Participant::Client(index), _)) => listens[index],
            Some((Participant::Node(_), _)) => true,
            // A child node that is simulated as a client.
            None => false,
        }
    }

    fn assignments(&self) -> Vec<(HolderKind, Arc<str>, Assigned)> {
        self.assignments.clone()
    }

    fn notes(&self, _: Millis) -> Option<PoolNotes> {
        self.notes.clone()
    }

    fn reported_load(&self) -> Option<Load> {
        None
    }
}

impl NodeEnvironment {
    pub(crate) fn moment(&self, now: Now) -> Moment<'_> {
        Moment { now, may_decide: true, max_holders: usize::MAX, environment: self }
    }
}

#[derive(Default)]
pub(crate) struct EngineChecks {
    arrivals: u64,
    unanswered: HashSet<u64>,
    hinted: Option<Millis>,
    /// The amount held at the last check.
    held: Sum,
    /// Amounts that child nodes have reported since: their holders may use more than this node knew, and no decision of
    /// this node could have prevented that.
    news: Sum,
}

impl EngineChecks {
    /// Starts with the amount that the engine counts as held, which includes inherited leases.
    pub(crate) fn new(engine: &ResourceEngine<Ticket>) -> EngineChecks {
        EngineChecks { held: engine.resource().sums().held, ..EngineChecks::default() }
    }

    pub(crate) fn arrived(&mut self, from: Sender, news: Sum) -> Ticket {
        self.arrivals += 1;
        self.unanswered.insert(self.arrivals);
        self.news += news;
        Ticket { from, arrival: self.arrivals }
    }

    /// Checks that a request is answered only once.
    pub(crate) fn answered(&mut self, ticket: &Ticket) -> Result<(), Violation> {
        if self.unanswered.remove(&ticket.arrival) {
            return Ok(());
        }
        let detail = format!("a request of {:?} was answered twice", ticket.from);
        Err(Violation { invariant: "one answer", detail })
    }

    /// Checks that hints are at least `MIN_VISIT_INTERVAL` apart.
    pub(crate) fn hinted(&mut self, now: Millis) -> Result<(), Violation> {
        match self.hinted.replace(now) {
            Some(before) if now.since(before) < MIN_VISIT_INTERVAL => {
                let detail = format!("hints at {before:?} and at {now:?}");
                Err(Violation { invariant: "paced hints", detail })
            }
            _ => Ok(()),
        }
    }

    /// Checks that the amount held is within the capacity, or has grown by no more than child nodes have reported.
    /// `has_answered`: the engine has processed the reports. Reports stay pending while the node has inherited leases,
    /// because outstanding capacity counts in addition to them, and while the node waits for its first supply.
    pub(crate) fn held(
        &mut self,
        engine: &ResourceEngine<Ticket>,
        now: Millis,
        has_answered: bool,
    ) -> Result<(), Violation> {
        let resource = engine.resource();
        let has_inherited =
            resource.is_learning(now) || resource.promises().is_some_and(|promises| now < promises.inherited_until);
        let held = engine.resource().sums().held;
        let before = std::mem::replace(&mut self.held, held);
        let news = self.news;
        if has_answered && !has_inherited && !resource.awaits_supply() {
            self.news = Sum::ZERO;
        }
        // While a node learns, its holders may use everything that the parent has lent to it, even beyond an override.
        let lent = resource.overridden().filter(|_| resource.is_learning(now)).map(|overridden| overridden.template);
        match invariant::held_within_capacity(engine.resource(), before) {
            Err(_) if news > Sum::ZERO && held - before <= news => Ok(()),
            Err(_) if lent.is_some_and(|lent| held <= lent.into()) => Ok(()),
            outcome => outcome,
        }
    }
}

impl Node {
    pub(crate) fn new(index: usize, place: &TreeNode) -> Node {
        Node {
            server_id: Participant::Node(index).name(0).into(),
            endpoints: (0..place.peers).map(|peer| format!("{index}:{peer}").into()).collect(),
            master: None,
            incarnation: 0,
            failed_over: Millis(0),
            log: VecDeque::new(),
            promises: Promises::default(),
            reached: ClusterTime(0),
            pool: None,
            set: None,
            sets: 0,
            most: None,
            uplink_cut_until: Millis(0),
            isolated_until: Millis(0),
            streams: HashMap::new(),
            #[cfg(feature = "planted")]
            remembered: Vec::new(),
        }
    }

    /// Records the expiry of a new lease from the parent.
    pub(crate) fn lent_until(&mut self, until: Millis) {
        let Some(master) = &mut self.master else { return };
        master.own_end = Some(until);
        for proposed in &mut self.log {
            proposed.own_end = proposed.own_end.max(master.own_end);
        }
    }

    /// Removes the master and its volatile state. Any prefix of the uncommitted log survives.
    pub(crate) fn depose(&mut self, rng: &mut fastrand::Rng) -> Result<(), Violation> {
        self.master = None;
        let survive = rng.usize(0..=self.log.len());
        let mut log = std::mem::take(&mut self.log);
        log.truncate(survive);
        log.iter().try_for_each(|proposed| self.store(proposed))
    }

    pub(crate) fn store(&mut self, proposed: &Proposed) -> Result<(), Violation> {
        let refused = |refused: leaseway_core::lease::promises::Refused| Violation {
            invariant: "I7",
            detail: refused.to_string(),
        };
        self.reached = self.reached.max(proposed.reached);
        self.promises.apply(&proposed.changes, self.reached).map_err(refused)
    }

    /// The master stores the cluster clock, if that is due.
    pub(crate) fn advance(&mut self, now: Millis) {
        let Some(master) = &self.master else { return };
        let advanced = master.clock.advance(now, self.reached, self.promises.until());
        self.reached = self.reached.max(advanced.unwrap_or_default());
    }

    /// The master, if it is still the one of `incarnation`.
    pub(crate) fn master_of(&mut self, incarnation: u32) -> Option<&mut Master> {
        self.master.as_mut().filter(|_| self.incarnation == incarnation)
    }
}

pub(crate) fn peer_of(endpoint: &str) -> u8 {
    let peer = endpoint.split_once(':').and_then(|(_, peer)| peer.parse().ok());
    peer.expect("endpoints are named by node and peer")
}
