//! A generator thread: its connections, and a number of lanes on each. A lane sends a request, waits for the answer,
//! and sends the next: at once (closed loop), or when the schedule says so (open loop).
//!
//! All state stays on the thread (`LocalSet`, `Rc`), so that lanes share it without locks.

use std::{
    cell::{Cell, RefCell},
    net::SocketAddr,
    rc::Rc,
    sync::{
        Arc, OnceLock,
        atomic::{AtomicU8, Ordering},
    },
    time::{Duration, Instant},
};

use leaseway_proto::doorman::{
    GetCapacityRequest, GetCapacityResponse, Mastership, ReleaseCapacityRequest, ReleaseCapacityResponse,
};
use tokio::{
    sync::watch,
    task::{AbortHandle, LocalSet, spawn_local, yield_now},
    time::sleep,
};

use crate::load::{
    connection::{Connection, Failure, Path},
    live::Beat,
    master::address_of,
    schedule::Schedule,
    socket::Dialer,
    tally::Tally,
    workload::{Asker, Settled, Workload},
};

/// The pause between two attempts to connect.
const RECONNECT_PAUSE: Duration = Duration::from_millis(100);

/// The phase of a run. Answers count from `Measuring` until `Over`, which are set by the thread that reads the server's
/// CPU time.
#[derive(Default)]
pub(crate) struct Shared {
    phase: AtomicU8,
    /// When `Measuring` and `Over` were set.
    measuring: OnceLock<Instant>,
    over: OnceLock<Instant>,
}

#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Phase {
    WarmUp,
    Measuring,
    Over,
}

impl Shared {
    pub(crate) fn enter(&self, phase: Phase) {
        match phase {
            Phase::WarmUp => {}
            Phase::Measuring => drop(self.measuring.get_or_init(Instant::now)),
            Phase::Over => drop(self.over.get_or_init(Instant::now)),
        }
        self.phase.store(phase as u8, Ordering::Relaxed);
    }

    fn phase(&self) -> Phase {
        match self.phase.load(Ordering::Relaxed) {
            0 => Phase::WarmUp,
            1 => Phase::Measuring,
            _ => Phase::Over,
        }
    }
}

pub(crate) struct ThreadPlan {
    pub(crate) servers: Servers,
    pub(crate) connections: u32,
    pub(crate) in_flight: u32,
    pub(crate) workload: Workload,
    /// None: a closed loop.
    pub(crate) schedule: Option<Arc<Schedule>>,
    pub(crate) shared: Arc<Shared>,
    pub(crate) beat: Arc<Beat>,
}

#[derive(Clone)]
pub(crate) struct Servers {
    /// Never empty. The first is asked first, the others if one is unreachable.
    pub(crate) named: Vec<SocketAddr>,
    /// Whether to follow redirects. Not if the process of the first target is measured.
    pub(crate) follow: bool,
    pub(crate) dialer: Dialer,
}

struct Worker {
    servers: Servers,
    /// The server in use.
    target: Cell<SocketAddr>,
    schedule: Option<Arc<Schedule>>,
    shared: Arc<Shared>,
    beat: Arc<Beat>,
    workload: RefCell<Workload>,
    tally: RefCell<Tally>,
}

/// The result of a thread.
pub(crate) struct Done {
    pub(crate) tally: Tally,
    pub(crate) workload: Workload,
}

/// Runs until `over` changes or its sender is dropped. Requests in flight are abandoned then.
pub(crate) async fn work(plan: ThreadPlan, mut over: watch::Receiver<()>) -> Done {
    let worker = Rc::new(Worker {
        target: Cell::new(plan.servers.named[0]),
        servers: plan.servers,
        schedule: plan.schedule,
        shared: plan.shared,
        beat: plan.beat,
        workload: RefCell::new(plan.workload),
        tally: RefCell::new(Tally::new()),
    });
    let tasks = LocalSet::new();
    for _ in 0..plan.connections {
        tasks.spawn_local(Rc::clone(&worker).keep_connected(plan.in_flight));
    }
    tasks.run_until(over.changed()).await.ok();
    drop(tasks);
    let worker = Rc::into_inner(worker).expect("all tasks are gone");
    Done { tally: worker.tally.into_inner(), workload: worker.workload.into_inner() }
}

/// A request in flight. If it is unanswered at the end of the measurement, only its waiting time counts.
struct UnderWay<'w> {
    worker: &'w Worker,
    since: Instant,
}

impl Drop for UnderWay<'_> {
    fn drop(&mut self) {
        // Requests go on until their tasks end. Those that began after the measurement do not count.
        let waited = self.worker.shared.over.get().and_then(|over| over.checked_duration_since(self.since));
        if let Some(waited) = waited {
            self.worker.tally.borrow_mut().unanswered(waited);
        }
    }
}

/// A connection, as its lanes see it.
#[derive(Clone)]
struct Wire {
    connection: Connection,
    /// The task that drives the connection. It ends when the connection breaks.
    driver: AbortHandle,
    target: SocketAddr,
    ask: Path,
    release: Path,
}

impl Worker {
    /// Keeps one connection busy. Opens another when it breaks, or when the master changes.
    async fn keep_connected(self: Rc<Self>, in_flight: u32) {
        loop {
            let (target, dialer) = (self.target.get(), &self.servers.dialer);
            match Connection::open(dialer, target).await {
                Ok((connection, driver)) => {
                    let driver = spawn_local(driver).abort_handle();
                    let (ask, release) =
                        (Path::new(dialer, target, "GetCapacity"), Path::new(dialer, target, "ReleaseCapacity"));
                    let wire = Wire { connection, driver: driver.clone(), target, ask, release };
                    let lanes: Vec<_> =
                        (0..in_flight).map(|_| spawn_local(Rc::clone(&self).lane(wire.clone()))).collect();
                    for lane in lanes {
                        lane.await.expect("lanes do not panic, and are aborted only together with this task");
                    }
                    driver.abort();
                }
                Err(_) => {
                    self.count_failure("cannot connect".into());
                    self.leave(target);
                }
            }
            sleep(RECONNECT_PAUSE).await;
        }
    }

    /// Sends one request at a time, while the connection lasts and leads to the master.
    async fn lane(self: Rc<Self>, wire: Wire) {
        let mut request = GetCapacityRequest::default();
        loop {
            let due = match &self.schedule {
                None => Instant::now(),
                Some(schedule) => match self.on_time(schedule, &wire).await {
                    Some(due) => due,
                    None => return,
                },
            };
            let turn = self.workload.borrow_mut().write(&mut request);
            let under_way = UnderWay { worker: &self, since: due };
            let answer = wire.connection.call::<GetCapacityResponse>(&wire.ask, &request).await;
            drop(under_way);
            match answer {
                Ok(GetCapacityResponse { mastership: Some(mastership), .. }) => {
                    self.count_failure("not the master".into());
                    if self.turn_away(&wire, &mastership).await {
                        return;
                    }
                }
                Ok(answer) => {
                    let latency = due.elapsed();
                    let settled = self.settle(turn.asker, &answer);
                    self.count(|tally| {
                        tally.answered(latency, settled);
                        tally.counts.newcomers += u64::from(turn.newcomer);
                    });
                }
                Err(failure) => {
                    self.count_failure(failure.kind());
                    match failure {
                        Failure::Connection(_) => return,
                        // An answer may be available without waiting, and other lanes must get their turn.
                        Failure::Stream(_) | Failure::Status(..) | Failure::Garbage(_) => yield_now().await,
                    }
                }
            }
            // After the answer, so that no measured request waits for it.
            if let Some(release) = turn.release {
                self.release(&wire, &release).await;
            }
        }
    }

    /// Waits until a request is due. None: the connection broke, and another lane has to send the request.
    async fn on_time(&self, schedule: &Schedule, wire: &Wire) -> Option<Instant> {
        let due = schedule.next().await;
        if wire.driver.is_finished() {
            schedule.give_back();
            return None;
        }
        if self.shared.phase() == Phase::Measuring {
            self.tally.borrow_mut().late(due.elapsed());
        }
        Some(due)
    }

    fn settle(&self, asker: Asker, answer: &GetCapacityResponse) -> Settled {
        let mut workload = self.workload.borrow_mut();
        let settled = workload.settle(asker, answer);
        self.beat.answered(workload.leased());
        settled
    }

    async fn release(&self, wire: &Wire, release: &ReleaseCapacityRequest) {
        match wire.connection.call::<ReleaseCapacityResponse>(&wire.release, release).await {
            Ok(answer) if answer.mastership.is_none() => self.count(|tally| tally.counts.releases += 1),
            Ok(_) => self.count_failure("release: not the master".into()),
            Err(failure) => self.count_failure(format!("release: {}", failure.kind())),
        }
    }

    /// Chooses a server after an answer by one that is not the master. Returns whether to leave this connection.
    async fn turn_away(&self, wire: &Wire, mastership: &Mastership) -> bool {
        if !self.servers.follow {
            yield_now().await;
            return false;
        }
        match address_of(mastership).await {
            Some(master) if master != wire.target => self.target.set(master),
            // The server does not know the master, or names itself.
            _ => self.leave(wire.target),
        }
        true
    }

    /// Chooses another of the named servers, unless another lane already has.
    fn leave(&self, target: SocketAddr) {
        if self.target.get() == target {
            let named = &self.servers.named;
            let next = named.iter().position(|server| *server == target).map_or(0, |place| place + 1);
            self.target.set(named[next % named.len()]);
        }
    }

    fn count_failure(&self, kind: String) {
        self.beat.failed();
        self.count(|tally| tally.failed(kind));
    }

    fn count(&self, count: impl FnOnce(&mut Tally)) {
        if self.shared.phase() == Phase::Measuring
            && let Some(since) = self.shared.measuring.get()
        {
            let mut tally = self.tally.borrow_mut();
            tally.elapsed = since.elapsed();
            count(&mut tally);
        }
    }
}
