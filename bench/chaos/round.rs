//! One blow, and all that is measured after it.

use std::{
    net::SocketAddr,
    time::{Duration, Instant},
};

use leaseway_client::{Book, Entry};
use serde::Serialize;
use tokio::{runtime::Runtime, task::JoinHandle};

use super::{
    args::Args,
    count::{Count, Counted},
    crowd::{Crowd, Leases, PLENTY, SCARCE},
    hand::Wish,
    newcomer::{self, Newcomer},
    node_set::NodeSet,
    observer::Observer,
    pages::Pages,
    plan::{Blow, Fault},
    sight::Wanted,
};
use crate::{error::Error, signal::Interrupt};

/// How often it is looked whether something has happened; the moments themselves are noted where they happen.
const GLANCE: Duration = Duration::from_millis(5);

/// How long is looked closely before a fault, and after everything seems well again: the end of a fault may hurt, too.
const BEFORE: Duration = Duration::from_millis(200);
const AFTER: Duration = Duration::from_secs(1);

/// What a client waits for an answer before it gives a server up. Nobody who asks at a better time waits longer.
const DEADLINE: Duration = Duration::from_secs(3);

/// Everything that a run works with.
pub(super) struct Field<'a> {
    pub(super) args: &'a Args,
    pub(super) interrupt: &'a Interrupt,
    pub(super) count: &'a Count,
    pub(super) random: fastrand::Rng,
    pub(super) started: Instant,
    /// Of those whose leases were asked for by hand.
    pub(super) entries: Vec<Entry>,
    pub(super) observer: Observer,
    pub(super) crowd: Crowd,
    pub(super) pages: Pages,
    pub(super) set: NodeSet,
    /// Last: clients, links and probes run on it.
    pub(super) runtime: Runtime,
}

/// What was measured after a blow. Times are in milliseconds from the blow; what never happened is missing.
#[derive(Clone, Debug, Default, Serialize)]
pub(super) struct Measured {
    pub(super) round: u32,
    pub(super) label: String,
    /// When, since the start, in seconds.
    pub(super) at_s: f64,
    pub(super) victims: Vec<String>,
    pub(super) hits_master: bool,
    /// Until somebody (else) says that it is master.
    pub(super) master_ms: Option<f64>,
    /// Until somebody (else) refreshes a known client's lease.
    pub(super) grant_ms: Option<f64>,
    /// Until somebody unknown is answered, what part of its wish that gave it, and until it had anything.
    pub(super) newcomer_ms: Option<f64>,
    pub(super) newcomer_part: Option<f64>,
    pub(super) newcomer_served_ms: Option<f64>,
    /// Until all clients have leases from that master.
    pub(super) all_ms: Option<f64>,
    /// The longest time in which the known client was granted nothing, up to when all was well again.
    pub(super) gap_ms: f64,
    /// Whether that was longer than a client waits.
    pub(super) lost: bool,
    /// The most clients that had no lease at the same time.
    pub(super) without_lease: usize,
    pub(super) clients: Counted,
}

impl Field<'_> {
    /// Everything up and everybody served.
    pub(super) fn gather<'a>(
        args: &'a Args,
        interrupt: &'a Interrupt,
        count: &'a Count,
        book: &Book,
        mut say: impl FnMut(String),
    ) -> Result<Field<'a>, Error> {
        let runtime = Runtime::new().map_err(Error::io("start a runtime"))?;
        let mut set = NodeSet::prepare(args, runtime.handle())?;
        set.bootstrap(args)?;
        let peers = set.grpc();
        let known = Wish { client: "probe".into(), resource: SCARCE.into(), wants: args.wants.mean() };
        let observer = Observer::start(&peers, set.lives(), &known, args.lease())?;
        let patience = Instant::now() + args.patience + args.lease();
        while observer.master().is_none() {
            set.check()?;
            if Instant::now() >= patience {
                return Err(Error::Usage("there is no master; see --keep for what the servers say".into()));
            }
            say("waiting for a master".into());
            interrupt.sleep_until(Instant::now() + GLANCE, || {})?;
        }
        let crowd = Crowd::gather(args, &peers, book, runtime.handle())?;
        while crowd.leased() < crowd.leases() || !crowd.is_served() {
            set.check()?;
            if Instant::now() >= patience {
                let (leased, leases, why) = (crowd.leased(), crowd.leases(), crowd.complaint());
                return Err(Error::Usage(format!("only {leased} of {leases} leases were given; a client says: {why}")));
            }
            say(format!("{} of {} leases are given", crowd.leased(), crowd.leases()));
            interrupt.sleep_until(Instant::now() + GLANCE * 10, || {})?;
        }
        let pages = Pages::open(set.http());
        let mut field = Field {
            args,
            interrupt,
            count,
            random: fastrand::Rng::with_seed(args.seed),
            started: Instant::now(),
            entries: Vec::new(),
            observer,
            crowd,
            pages,
            set,
            runtime,
        };
        say("settling".into());
        field.settle()?;
        field.started = Instant::now();
        Ok(field)
    }

    /// Leaves everybody alone for a while.
    pub(super) fn settle(&mut self) -> Result<(), Error> {
        self.observer.look_closely(false);
        let outcome = self.interrupt.sleep_until(Instant::now() + self.args.settle, || {});
        self.pages.look(true);
        outcome.and(self.set.check())
    }

    /// Waits for a master to hit.
    fn master(&mut self) -> Result<Option<usize>, Error> {
        let patience = Instant::now() + self.args.patience;
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
    pub(super) fn strike(&mut self, round: u32, blow: &Blow) -> Result<Measured, Error> {
        self.observer.look_closely(true);
        self.interrupt.sleep_until(Instant::now() + BEFORE, || {})?;
        let Some(master) = self.master()? else {
            let label = blow.kind.name();
            return Ok(Measured { round, label, at_s: self.started.elapsed().as_secs_f64(), ..Measured::default() });
        };
        let victims = blow.victims(master, self.args.peers.get(), &mut self.random);
        let hits_master = victims.contains(&master);
        let mut measured = Measured {
            round,
            label: blow.label(hits_master),
            at_s: self.started.elapsed().as_secs_f64(),
            victims: self.set.names(&victims),
            hits_master,
            ..Measured::default()
        };
        let counted = self.count.now();
        self.observer.forget();
        let former = hits_master.then(|| (master, self.set.lives().life(master)));
        let mut aftermath = Aftermath::new(self, blow, victims, former);
        let outcome = aftermath.watch(self, &mut measured);
        // Nobody is to stay cut off or stopped, even if this ends early.
        let outcome = outcome.and(aftermath.end(self));
        outcome?;
        self.interrupt.sleep_until(Instant::now() + AFTER, || {})?;
        let gap = self.observer.gap();
        (measured.gap_ms, measured.lost) = (ms(gap), gap > DEADLINE);
        measured.clients = self.count.now().since(counted);
        self.pages.look(false);
        self.set.check()?;
        Ok(measured)
    }
}

/// What is still to happen after a blow.
struct Aftermath {
    kind: Fault,
    victims: Vec<usize>,
    struck: Instant,
    lasts: Duration,
    ended: Option<Instant>,
    /// Which answers count; `None` until the set can answer again.
    wanted: Option<Wanted>,
    before: Leases,
    /// Clients without a new lease.
    left: Vec<usize>,
    newcomer: Option<JoinHandle<Newcomer>>,
    visited: bool,
}

impl Aftermath {
    fn new(field: &mut Field<'_>, blow: &Blow, victims: Vec<usize>, former: Option<(usize, u64)>) -> Aftermath {
        let lasting = blow.leaves_a_quorum(field.args.peers.get());
        let alone = blow.kind == Fault::Pause && field.args.peers.get() == 1;
        let before = field.crowd.ends();
        let struck = Instant::now();
        field.set.inflict(blow.kind, &victims);
        let former = former.filter(|_| blow.kind != Fault::CutAll && !alone);
        // A lone server that comes back is a new life of the same peer.
        let counts_now = lasting || former.is_some();
        Aftermath {
            kind: blow.kind,
            victims,
            struck,
            lasts: blow.lasts(field.args.down),
            ended: None,
            wanted: counts_now.then_some(Wanted { since: struck, not: former }),
            before,
            left: (0..field.crowd.size()).collect(),
            newcomer: None,
            visited: false,
        }
    }

    fn watch(&mut self, field: &mut Field<'_>, measured: &mut Measured) -> Result<(), Error> {
        let patience = self.struck + self.lasts + field.args.patience;
        let leases = field.crowd.leases();
        while Instant::now() < patience {
            field.set.check()?;
            let since = self.struck.elapsed();
            if self.ended.is_none() && since >= self.lasts && field.set.can_end(self.kind, &self.victims, since) {
                self.end(field)?;
            }
            self.look(field, measured)?;
            measured.without_lease = measured.without_lease.max(leases - field.crowd.leased());
            if measured.all_ms.is_some() && self.visited && self.is_whole(field) {
                return Ok(());
            }
            field.interrupt.sleep_until(Instant::now() + GLANCE, || {})?;
        }
        Ok(())
    }

    /// Undoes what was done. Does nothing the second time.
    fn end(&mut self, field: &mut Field<'_>) -> Result<(), Error> {
        if self.ended.is_some() {
            return Ok(());
        }
        field.set.end(self.kind, &self.victims)?;
        let now = Instant::now();
        self.ended = Some(now);
        if self.wanted.is_none() {
            self.wanted = Some(Wanted { since: now, not: None });
            self.before = field.crowd.ends();
        }
        Ok(())
    }

    /// Whether everybody takes part again.
    fn is_whole(&self, field: &Field<'_>) -> bool {
        self.ended.is_some_and(|ended| self.victims.iter().all(|&victim| field.observer.knows_master(victim, ended)))
    }

    fn look(&mut self, field: &mut Field<'_>, measured: &mut Measured) -> Result<(), Error> {
        let Some(wanted) = self.wanted else { return Ok(()) };
        let after = |at: Instant| ms(at.saturating_duration_since(wanted.since));
        measured.master_ms = measured.master_ms.or_else(|| field.observer.claim(&wanted).map(|seen| after(seen.at)));
        let Some(grant) = field.observer.grant(&wanted) else { return Ok(()) };
        measured.grant_ms.get_or_insert(after(grant.at));
        if self.newcomer.is_none() && !self.visited {
            self.newcomer = Some(send_newcomer(field, measured.round, grant.peer));
        }
        self.receive(field, measured, after)?;
        let master: SocketAddr = field.set.grpc()[field.observer.granting().unwrap_or(grant.peer)];
        field.crowd.renewed(&mut self.left, &self.before, master);
        if self.left.is_empty() {
            measured.all_ms.get_or_insert(after(Instant::now()));
        }
        Ok(())
    }

    fn receive(
        &mut self,
        field: &mut Field<'_>,
        measured: &mut Measured,
        after: impl Fn(Instant) -> f64,
    ) -> Result<(), Error> {
        if !self.newcomer.as_ref().is_some_and(JoinHandle::is_finished) {
            return Ok(());
        }
        let Some(newcomer) = self.newcomer.take() else { return Ok(()) };
        let newcomer = field.runtime.block_on(newcomer);
        let newcomer = newcomer.map_err(|error| Error::Usage(format!("the newcomer failed: {error}")))?;
        self.visited = true;
        measured.newcomer_ms = newcomer.answered.map(|(at, _)| after(at));
        measured.newcomer_part = newcomer.answered.map(|(_, capacity)| capacity / field.args.wants.mean());
        measured.newcomer_served_ms = newcomer.served.map(after);
        field.entries.extend(newcomer.book);
        Ok(())
    }
}

fn send_newcomer(field: &Field<'_>, round: u32, first: usize) -> JoinHandle<Newcomer> {
    let number = field.started.elapsed().as_millis();
    let client = format!("newcomer:{round}:{number}").into();
    let wish = Wish { client, resource: PLENTY.into(), wants: field.args.wants.mean() };
    let patience = Instant::now() + field.args.patience;
    field.runtime.spawn(newcomer::visit(field.set.grpc(), first, wish, field.args.lease(), patience))
}

fn ms(span: Duration) -> f64 {
    span.as_secs_f64() * 1000.0
}
