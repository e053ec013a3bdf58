//! One fault, and all that is measured after it.

use std::{
    net::SocketAddr,
    time::{Duration, Instant},
};

use leaseway_client::{LeaseChange, LeaseTrace};
use serde::{Deserialize, Serialize};
use tokio::{runtime::Runtime, task::JoinHandle};

use super::{
    args::{ChaosArgs, PATIENCE, mean_wants},
    count::{Counted, Counters},
    crowd::{ClientCrowd, Leases, PLENTY, SCARCE},
    fault::ChaosFault,
    node_set::NodeSet,
    observer::{Awaited, Observer},
    originals::{Originals, OriginalsArgs},
    raw_client::{CapacityRequest, Newcomer},
};
use crate::{error::Error, signal::Interrupt};

/// How often it is looked whether something has happened; the moments themselves are noted where they happen.
const GLANCE: Duration = Duration::from_millis(5);

/// How long is looked closely before a fault, and after everything seems well again: the end of a fault may hurt, too.
const BEFORE: Duration = Duration::from_millis(200);
const AFTER: Duration = Duration::from_secs(1);

/// What a client waits for an answer before it gives a server up. A client that asks at a better time does not wait
/// longer.
const DEADLINE: Duration = Duration::from_secs(3);

/// Everything that a run works with.
pub(super) struct ChaosRun<'a> {
    pub(super) args: &'a ChaosArgs,
    pub(super) interrupt: &'a Interrupt,
    pub(super) counters: &'a Counters,
    pub(super) random: fastrand::Rng,
    pub(super) started: Instant,
    /// Of clients without a library.
    pub(super) entries: Vec<LeaseChange>,
    pub(super) observer: Observer,
    pub(super) crowd: ClientCrowd,
    pub(super) originals: Originals,
    pub(super) set: NodeSet,
    /// Last: clients, links and probes run on it.
    pub(super) runtime: Runtime,
}

/// What was measured after a fault. Times are in milliseconds from its beginning; what never happened is missing.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub(crate) struct Round {
    pub(crate) round: u32,
    pub(crate) label: String,
    /// When, since the start, in seconds.
    pub(crate) at_s: f64,
    pub(crate) victims: Vec<String>,
    pub(crate) hits_master: bool,
    /// Until a peer (another one) says that it is master.
    pub(crate) master_ms: Option<f64>,
    /// Until a peer (another one) refreshes a known client's lease.
    pub(crate) grant_ms: Option<f64>,
    /// Until a client that is unknown is answered, what part of its wants that gave it, and until it had anything.
    pub(crate) newcomer_ms: Option<f64>,
    pub(crate) newcomer_part: Option<f64>,
    pub(crate) newcomer_served_ms: Option<f64>,
    /// Until all clients have leases from that master.
    pub(crate) all_ms: Option<f64>,
    /// The longest time in which the known client was granted nothing, up to when all was well again.
    pub(crate) gap_ms: f64,
    /// Whether that was longer than a client waits.
    pub(crate) lost: bool,
    /// The most clients that had no lease at the same time.
    pub(crate) without_lease: usize,
    pub(crate) clients: Counted,
}

impl ChaosRun<'_> {
    /// All peers up and all clients served.
    pub(super) fn begin<'a>(
        args: &'a ChaosArgs,
        interrupt: &'a Interrupt,
        counters: &'a Counters,
        book: &LeaseTrace,
        mut say: impl FnMut(String),
    ) -> Result<ChaosRun<'a>, Error> {
        let runtime = Runtime::new().map_err(Error::io("start a runtime"))?;
        let mut set = NodeSet::prepare(args, runtime.handle())?;
        set.bootstrap(args)?;
        let peers = set.grpc();
        let known =
            CapacityRequest { client: "probe".into(), resource: SCARCE.into(), wants: mean_wants(), drops_late: false };
        let observer = Observer::start(set.transport(), &peers, set.incarnations(), &known, args.lease())?;
        let patience = Instant::now() + PATIENCE + args.lease();
        while observer.master().is_none() {
            set.check()?;
            if Instant::now() >= patience {
                return Err(Error::Usage("there is no master; see --keep for what the servers say".into()));
            }
            say("waiting for a master".into());
            interrupt.sleep_until(Instant::now() + GLANCE, || {})?;
        }
        let crowd = ClientCrowd::gather(args, set.transport(), &peers, book, runtime.handle())?;
        let refresh = Duration::from_secs(args.refresh.get().into());
        let of = OriginalsArgs { number: args.originals, seed: args.seed, refresh, lease: args.lease() };
        let originals = Originals::gather("original", of, set.transport(), &peers, runtime.handle());
        while crowd.leased() < crowd.leases() || !crowd.is_served() {
            set.check()?;
            if Instant::now() >= patience {
                let (leased, leases, why) = (crowd.leased(), crowd.leases(), crowd.complaint());
                return Err(Error::Usage(format!("only {leased} of {leases} leases were given; a client says: {why}")));
            }
            say(format!("{} of {} leases are given", crowd.leased(), crowd.leases()));
            interrupt.sleep_until(Instant::now() + GLANCE * 10, || {})?;
        }
        let mut run = ChaosRun {
            args,
            interrupt,
            counters,
            random: fastrand::Rng::with_seed(args.seed),
            started: Instant::now(),
            entries: Vec::new(),
            observer,
            crowd,
            originals,
            set,
            runtime,
        };
        say("settling".into());
        run.settle()?;
        run.started = Instant::now();
        Ok(run)
    }

    /// Leaves all alone for a while.
    pub(super) fn settle(&mut self) -> Result<(), Error> {
        self.observer.look_closely(false);
        let outcome = self.interrupt.sleep_until(Instant::now() + self.args.settle, || {});
        outcome.and(self.set.check())
    }

    /// Waits for a master to hit.
    fn master(&mut self) -> Result<Option<usize>, Error> {
        let patience = Instant::now() + PATIENCE;
        while Instant::now() < patience {
            if let Some(master) = self.observer.master() {
                return Ok(Some(master));
            }
            self.set.check()?;
            self.interrupt.sleep_until(Instant::now() + GLANCE, || {})?;
        }
        Ok(None)
    }

    /// Strikes and watches until all is well again, or patience ends.
    pub(super) fn strike(&mut self, round: u32, fault: ChaosFault) -> Result<Round, Error> {
        self.observer.look_closely(true);
        self.interrupt.sleep_until(Instant::now() + BEFORE, || {})?;
        let mut measured =
            Round { round, label: fault.name(), at_s: self.started.elapsed().as_secs_f64(), ..Round::default() };
        let Some(master) = self.master()? else { return Ok(measured) };
        let victims = fault.victims(master, self.args.peers.get(), &mut self.random);
        (measured.victims, measured.hits_master) = (self.set.names(&victims), victims.contains(&master));
        let counted = self.counters.now();
        self.observer.forget();
        let former = measured.hits_master.then(|| (master, self.set.incarnations().now(master)));
        let mut aftermath = Aftermath::new(self, fault, victims, former);
        let outcome = aftermath.watch(self, &mut measured);
        // No peer is to stay cut off or stopped, even if this ends early.
        let outcome = outcome.and(aftermath.end(self));
        outcome?;
        self.interrupt.sleep_until(Instant::now() + AFTER, || {})?;
        let gap = self.observer.gap();
        (measured.gap_ms, measured.lost) = (ms(gap), gap > DEADLINE);
        measured.clients = self.counters.now().since(counted);
        self.set.check()?;
        Ok(measured)
    }
}

/// What is still to happen after a fault.
struct Aftermath {
    fault: ChaosFault,
    victims: Vec<usize>,
    struck: Instant,
    ended: Option<Instant>,
    /// Which answers count; `None` until the set can answer again.
    awaited: Option<Awaited>,
    before: Leases,
    /// Clients without a new lease.
    left: Vec<usize>,
    newcomer: Option<JoinHandle<Newcomer>>,
    visited: bool,
}

impl Aftermath {
    fn new(run: &mut ChaosRun<'_>, fault: ChaosFault, victims: Vec<usize>, former: Option<(usize, u64)>) -> Aftermath {
        let lasting = fault.leaves_a_quorum(run.args.peers.get());
        let alone = fault == ChaosFault::Pause && run.args.peers.get() == 1;
        let before = run.crowd.ends();
        let struck = Instant::now();
        run.set.inflict(fault, &victims);
        let former = former.filter(|_| fault != ChaosFault::CutAll && !alone);
        // A lone server that comes back is a new incarnation of the same peer.
        let counts_now = lasting || former.is_some();
        Aftermath {
            fault,
            victims,
            struck,
            ended: None,
            awaited: counts_now.then_some(Awaited { since: struck, not: former }),
            before,
            left: (0..run.crowd.size()).collect(),
            newcomer: None,
            visited: false,
        }
    }

    fn watch(&mut self, run: &mut ChaosRun<'_>, measured: &mut Round) -> Result<(), Error> {
        let patience = self.struck + run.args.down + PATIENCE;
        let leases = run.crowd.leases();
        while Instant::now() < patience {
            run.set.check()?;
            let since = self.struck.elapsed();
            if self.ended.is_none() && since >= run.args.down && run.set.can_end(self.fault, &self.victims, since) {
                self.end(run)?;
            }
            self.look(run, measured)?;
            measured.without_lease = measured.without_lease.max(leases - run.crowd.leased());
            if measured.all_ms.is_some() && self.visited && self.is_whole(run) {
                return Ok(());
            }
            run.interrupt.sleep_until(Instant::now() + GLANCE, || {})?;
        }
        Ok(())
    }

    /// Undoes what was done. Does nothing the second time.
    fn end(&mut self, run: &mut ChaosRun<'_>) -> Result<(), Error> {
        if self.ended.is_some() {
            return Ok(());
        }
        run.set.end(self.fault, &self.victims)?;
        let now = Instant::now();
        self.ended = Some(now);
        if self.awaited.is_none() {
            self.awaited = Some(Awaited { since: now, not: None });
            self.before = run.crowd.ends();
        }
        Ok(())
    }

    /// Whether all peers take part again.
    fn is_whole(&self, run: &ChaosRun<'_>) -> bool {
        self.ended.is_some_and(|ended| self.victims.iter().all(|&victim| run.observer.knows_master(victim, ended)))
    }

    fn look(&mut self, run: &mut ChaosRun<'_>, measured: &mut Round) -> Result<(), Error> {
        let Some(awaited) = self.awaited else { return Ok(()) };
        let after = |at: Instant| ms(at.saturating_duration_since(awaited.since));
        measured.master_ms = measured.master_ms.or_else(|| run.observer.claim(&awaited).map(|seen| after(seen.at)));
        let Some(grant) = run.observer.grant(&awaited) else { return Ok(()) };
        measured.grant_ms.get_or_insert(after(grant.at));
        if self.newcomer.is_none() && !self.visited {
            self.newcomer = Some(send_newcomer(run, measured.round, grant.peer));
        }
        self.receive(run, measured, after)?;
        let master: SocketAddr = run.set.grpc()[run.observer.granting().unwrap_or(grant.peer)];
        run.crowd.renewed(&mut self.left, &self.before, master);
        if self.left.is_empty() {
            measured.all_ms.get_or_insert(after(Instant::now()));
        }
        Ok(())
    }

    fn receive(
        &mut self,
        run: &mut ChaosRun<'_>,
        measured: &mut Round,
        after: impl Fn(Instant) -> f64,
    ) -> Result<(), Error> {
        if !self.newcomer.as_ref().is_some_and(JoinHandle::is_finished) {
            return Ok(());
        }
        let Some(newcomer) = self.newcomer.take() else { return Ok(()) };
        let newcomer = run.runtime.block_on(newcomer);
        let newcomer = newcomer.map_err(|error| Error::Usage(format!("the newcomer failed: {error}")))?;
        self.visited = true;
        measured.newcomer_ms = newcomer.answered.map(|(at, _)| after(at));
        measured.newcomer_part = newcomer.answered.map(|(_, capacity)| capacity / mean_wants());
        measured.newcomer_served_ms = newcomer.served.map(after);
        run.entries.extend(newcomer.book);
        Ok(())
    }
}

fn send_newcomer(run: &ChaosRun<'_>, round: u32, first: usize) -> JoinHandle<Newcomer> {
    let number = run.started.elapsed().as_millis();
    let client = format!("newcomer:{round}:{number}").into();
    let request = CapacityRequest { client, resource: PLENTY.into(), wants: mean_wants(), drops_late: false };
    let patience = Instant::now() + PATIENCE;
    let visit =
        Newcomer::visit(run.set.transport().clone(), run.set.grpc(), first, request, run.args.lease(), patience);
    run.runtime.spawn(visit)
}

fn ms(span: Duration) -> f64 {
    span.as_secs_f64() * 1000.0
}
