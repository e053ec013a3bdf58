//! A node: the engines of its master, and what its peers together have stored.

use std::{
    collections::{HashSet, VecDeque},
    sync::Arc,
};

use leaseway_core::{
    Assigned, Changes, ClusterClock, ClusterTime, HolderKind, Load, Millis, Now, Override, PoolMemory, PoolNotes,
    Promises, Sum, invariant, invariant::Violation,
};
use leaseway_engine::{Batch, Effects, Environment, LOOKS_APART, Moment, ResourceEngine, uplink::UplinkEngine};

use crate::{
    network::message::{Participant, Sender},
    scenario::tree::TreeNode,
};

/// The node of all scenarios that has no parent.
pub(crate) const ROOT: usize = 0;

/// One node of the tree.
pub(crate) struct Node {
    /// As its parent knows it, whichever peer is master.
    pub(crate) server_id: Arc<str>,
    /// Its peers, as those that ask them name them.
    pub(crate) endpoints: Vec<Arc<str>>,
    pub(crate) master: Option<Master>,
    /// How many masters there have been.
    pub(crate) incarnation: u32,
    /// When the newest came.
    pub(crate) failed_over: Millis,
    /// Promises that are not stored yet.
    pub(crate) log: VecDeque<Proposed>,
    /// Those that are.
    pub(crate) promises: Promises,
    /// How far the clock of the cluster has got, by what is stored.
    pub(crate) reached: ClusterTime,
    /// What its peers remember of its pool.
    pub(crate) pool: Option<PoolMemory>,
    /// What an operator has set, as its peers remember it.
    pub(crate) set: Option<Arc<Override>>,
    /// How often something was set.
    pub(crate) sets: u32,
    /// No more is believed by its holders than this, since something was set.
    pub(crate) most: Option<Sum>,
    pub(crate) uplink_cut_until: Millis,
    pub(crate) isolated_until: Millis,
    /// What a fault makes of the lease of a former master.
    #[cfg(feature = "planted")]
    pub(crate) remembered: Vec<(Arc<str>, leaseway_core::Supply)>,
}

/// An entry of the log.
pub(crate) struct Proposed {
    pub(crate) changes: Changes,
    pub(crate) reached: ClusterTime,
    pub(crate) at: Millis,
    /// When the master's own lease ends: the latest end since then, for answers are decided between then and now.
    pub(crate) own_end: Option<Millis>,
}

/// What only the master has.
pub(crate) struct Master {
    pub(crate) peer: u8,
    /// The clock of the cluster in its reign.
    pub(crate) clock: ClusterClock,
    pub(crate) engine: ResourceEngine<Ticket>,
    /// Where there is a parent.
    pub(crate) uplink: Option<Uplink>,
    /// When the lease that its capacity was cut from ends.
    pub(crate) own_end: Option<Millis>,
    /// What it has taken up of what operators have set.
    pub(crate) follows: Option<Arc<Override>>,
    /// When it wants to be woken.
    pub(crate) woken_at: Option<Millis>,
    pub(crate) environment: NodeEnvironment,
    pub(crate) checks: EngineChecks,
}

/// What a master of a child node has besides.
pub(crate) struct Uplink {
    pub(crate) engine: UplinkEngine,
    /// When it wants to be woken.
    pub(crate) woken_at: Option<Millis>,
}

/// Kept from input to input.
#[derive(Default)]
pub(crate) struct Buffers {
    pub(crate) batch: Batch<Ticket>,
    pub(crate) effects: Effects<Ticket>,
}

/// A request as it arrived: the network may have repeated it.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Ticket {
    pub(crate) from: Sender,
    pub(crate) arrival: u64,
}

/// What an engine may ask for.
pub(crate) struct NodeEnvironment {
    /// Which clients listen for hints, by their indexes; child nodes do. Absent: there are none.
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
            // A child node that is only a lease here.
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

/// What must hold of the effects of an engine.
#[derive(Default)]
pub(crate) struct EngineChecks {
    arrivals: u64,
    unanswered: HashSet<u64>,
    hinted: Option<Millis>,
    /// Held when it was last looked at, and what child nodes have reported since: those below them may use more than
    /// was known here, and no decision could have prevented that.
    held: Sum,
    news: Sum,
}

impl EngineChecks {
    /// From now on: what the engine inherits is held already.
    pub(crate) fn new(engine: &ResourceEngine<Ticket>) -> EngineChecks {
        EngineChecks { held: engine.resource().sums().held, ..EngineChecks::default() }
    }

    pub(crate) fn arrived(&mut self, from: Sender, news: Sum) -> Ticket {
        self.arrivals += 1;
        self.unanswered.insert(self.arrivals);
        self.news += news;
        Ticket { from, arrival: self.arrivals }
    }

    /// Every request has one answer.
    pub(crate) fn answered(&mut self, ticket: &Ticket) -> Result<(), Violation> {
        if self.unanswered.remove(&ticket.arrival) {
            return Ok(());
        }
        let detail = format!("a request of {:?} was answered twice", ticket.from);
        Err(Violation { invariant: "one answer", detail })
    }

    /// Looks for whom to hint are paced.
    pub(crate) fn hinted(&mut self, now: Millis) -> Result<(), Violation> {
        match self.hinted.replace(now) {
            Some(before) if now.since(before) < LOOKS_APART => {
                let detail = format!("hints at {before:?} and at {now:?}");
                Err(Violation { invariant: "paced hints", detail })
            }
            _ => Ok(()),
        }
    }

    /// What is held fits, or has not risen but by what was reported. `has_answered`: reports have been taken in. While
    /// there is an estate a report may come to count later, since what is outstanding counts beside what goes back
    /// there; and so may one that waits for the first supply.
    pub(crate) fn held(
        &mut self,
        engine: &ResourceEngine<Ticket>,
        now: Millis,
        has_answered: bool,
    ) -> Result<(), Violation> {
        let resource = engine.resource();
        let has_estate =
            resource.is_learning(now) || resource.promises().is_some_and(|promises| now < promises.inherited_until);
        let held = engine.resource().sums().held;
        let before = std::mem::replace(&mut self.held, held);
        let news = self.news;
        if has_answered && !has_estate && !resource.awaits_supply() {
            self.news = Sum::ZERO;
        }
        // All that is lent may be in use below a node that learns, also beyond what an operator lets it give.
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
            #[cfg(feature = "planted")]
            remembered: Vec::new(),
        }
    }

    /// A lease of the parent has come, until then.
    pub(crate) fn lent_until(&mut self, until: Millis) {
        let Some(master) = &mut self.master else { return };
        master.own_end = Some(until);
        for proposed in &mut self.log {
            proposed.own_end = proposed.own_end.max(master.own_end);
        }
    }

    /// The master is gone, and with it everything that only it knew. Of what was not stored, any part may survive.
    pub(crate) fn depose(&mut self, rng: &mut fastrand::Rng) -> Result<(), Violation> {
        self.master = None;
        let survive = rng.usize(0..=self.log.len());
        let mut log = std::mem::take(&mut self.log);
        log.truncate(survive);
        log.iter().try_for_each(|proposed| self.store(proposed))
    }

    pub(crate) fn store(&mut self, proposed: &Proposed) -> Result<(), Violation> {
        let refused = |refused: leaseway_core::Refused| Violation { invariant: "I7", detail: refused.to_string() };
        self.reached = self.reached.max(proposed.reached);
        self.promises.apply(&proposed.changes, self.reached).map_err(refused)
    }

    /// The master stores how far the clock of the cluster has got, if that is due.
    pub(crate) fn advance(&mut self, now: Millis) {
        let Some(master) = &self.master else { return };
        let advanced = master.clock.advance(now, self.reached, self.promises.until());
        self.reached = self.reached.max(advanced.unwrap_or_default());
    }

    /// The master of this incarnation, if it still is.
    pub(crate) fn master_of(&mut self, incarnation: u32) -> Option<&mut Master> {
        self.master.as_mut().filter(|_| self.incarnation == incarnation)
    }
}

/// The peer that an endpoint names.
pub(crate) fn peer_of(endpoint: &str) -> u8 {
    let peer = endpoint.split_once(':').and_then(|(_, peer)| peer.parse().ok());
    peer.expect("endpoints are named by node and peer")
}
