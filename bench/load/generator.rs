//! The threads that generate load. Each has its own connections, with several lanes on each connection. A lane sends a
//! request, waits for the answer, and sends the next one, either immediately (closed loop) or when the schedule says so
//! (open loop). The state of a thread stays on that thread (`LocalSet`, `Rc`), so that lanes share it without locks.

use std::{
    cell::{Cell, RefCell},
    net::SocketAddr,
    rc::Rc,
    sync::{
        Arc, OnceLock,
        atomic::{
            AtomicU8, AtomicU64,
            Ordering::{self, Relaxed},
        },
        mpsc::{self, Sender},
    },
    thread::{self, JoinHandle},
    time::{Duration, Instant},
};

use leaseway_process::usage;
use leaseway_proto::doorman::{
    GetCapacityRequest, GetCapacityResponse, Mastership, ReleaseCapacityRequest, ReleaseCapacityResponse,
};
use tokio::{
    runtime::{Runtime, RuntimeMetrics},
    sync::{Semaphore, watch},
    task::{AbortHandle, LocalSet, spawn_local, yield_now},
    time::sleep,
};

use crate::{
    common::{current_thread, error::Error},
    load::{
        connection::{Connection, Dialer, Failure, Path, address_of},
        measurement::Tally,
        options::Options,
        workload::{Asker, Settled, Workload},
    },
};

#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Purpose {
    /// Give every client a lease as soon as possible, in a closed loop without churn.
    Fill,
    Measure,
}

/// The running threads. If it is dropped, they stop soon afterwards.
pub(crate) struct Generator {
    pub(crate) threads: Vec<Thread>,
    pub(crate) shared: Arc<Shared>,
    over: watch::Sender<()>,
}

pub(crate) struct Thread {
    handle: JoinHandle<Done>,
    pub(crate) metrics: RuntimeMetrics,
    counters: Arc<ThreadCounters>,
    pub(crate) schedule: Option<Arc<Schedule>>,
    /// The id of the thread, on systems that have one.
    pub(crate) id: Option<u32>,
}

impl Generator {
    /// Starts the threads. Returns once all of them run and begin to connect.
    pub(crate) fn start(options: &Options<'_>, workloads: Vec<Workload>, purpose: Purpose) -> Result<Generator, Error> {
        let parts = options.threads();
        let (over, _) = watch::channel(());
        let mut generator = Generator { threads: Vec::new(), shared: Arc::default(), over };
        let start = Instant::now();
        let rate = options.common.rate.filter(|_| purpose == Purpose::Measure);
        for (part, mut workload) in (0..parts).zip(workloads) {
            workload.may_leave(purpose == Purpose::Measure);
            let schedule = rate.map(|rate| Arc::new(Schedule::part(start, rate, part, parts)));
            let plan = ThreadPlan {
                servers: Servers {
                    named: options.targets.clone(),
                    follow: options.server_pid.is_none(),
                    dialer: options.dialer.clone(),
                },
                connections: (options.connections - part).div_ceil(parts),
                in_flight: options.in_flight,
                workload,
                schedule,
                shared: Arc::clone(&generator.shared),
                counters: Arc::default(),
            };
            generator.add(part, plan)?;
        }
        Ok(generator)
    }

    fn add(&mut self, part: u32, plan: ThreadPlan) -> Result<(), Error> {
        let runtime = current_thread().map_err(Error::io("start a runtime"))?;
        let metrics = runtime.metrics();
        let (counters, schedule) = (Arc::clone(&plan.counters), plan.schedule.clone());
        let over = self.over.subscribe();
        let (ready, readied) = mpsc::channel();
        let body = move || drive(&runtime, plan, &ready, over);
        let handle =
            thread::Builder::new().name(format!("load-{part}")).spawn(body).map_err(Error::io("start a thread"))?;
        let id = readied.recv().expect("the thread sends its id before anything can fail");
        if let Some(schedule) = &schedule {
            Arc::clone(schedule).keep(self.over.subscribe())?;
        }
        self.threads.push(Thread { handle, metrics, counters, schedule, id });
        Ok(())
    }

    pub(crate) fn live(&self) -> Live {
        Live::new(self.threads.iter().map(|thread| Arc::clone(&thread.counters)).collect())
    }

    /// Stops all threads and returns their clients.
    pub(crate) fn stop(self) -> (Tally, Vec<Workload>) {
        drop(self.over);
        let (mut total, mut workloads) = (Tally::new(), Vec::new());
        for thread in self.threads {
            let done = thread.handle.join().expect("generator threads do not panic");
            total.add(done.tally);
            workloads.push(done.workload);
        }
        (total, workloads)
    }
}

fn drive(runtime: &Runtime, plan: ThreadPlan, ready: &Sender<Option<u32>>, over: watch::Receiver<()>) -> Done {
    // Fails if the run was interrupted.
    let _ = ready.send(usage::thread_id());
    runtime.block_on(work(plan, over))
}

/// The interval at which the displayed figures are updated, and the minimum time that they are averages of.
const SPAN: Duration = Duration::from_millis(500);

/// The counters of one thread. Only that thread writes them.
#[derive(Default)]
pub(crate) struct ThreadCounters {
    answered: AtomicU64,
    failed: AtomicU64,
    /// Clients with a lease.
    leased: AtomicU64,
}

impl ThreadCounters {
    pub(crate) fn answered(&self, leased: u32) {
        add_one(&self.answered);
        self.leased.store(leased.into(), Relaxed);
    }

    pub(crate) fn failed(&self) {
        add_one(&self.failed);
    }
}

/// Adds one. Cheaper than `fetch_add`, which supports several writers.
fn add_one(counter: &AtomicU64) {
    counter.store(counter.load(Relaxed) + 1, Relaxed);
}

/// Sums the counters of all threads.
pub(crate) struct Live {
    threads: Vec<Arc<ThreadCounters>>,
    since: Instant,
    before: (u64, u64),
    text: String,
}

impl Live {
    pub(crate) fn new(threads: Vec<Arc<ThreadCounters>>) -> Live {
        Live { threads, since: Instant::now(), before: (0, 0), text: "connecting".into() }
    }

    fn sum(&self, of: fn(&ThreadCounters) -> &AtomicU64) -> u64 {
        self.threads.iter().map(|counters| of(counters).load(Relaxed)).sum()
    }

    /// Requests per second, and failed requests.
    pub(crate) fn text(&mut self) -> &str {
        let span = self.since.elapsed();
        if span >= SPAN {
            let now = (self.sum(|counters| &counters.answered), self.sum(|counters| &counters.failed));
            let (answered, failed) = (now.0 - self.before.0, now.1 - self.before.1);
            self.text = format!("{:.0} requests/s", (answered + failed) as f64 / span.as_secs_f64());
            if failed > 0 {
                self.text.push_str(&format!(", {failed} failed"));
            }
            (self.since, self.before) = (Instant::now(), now);
        }
        &self.text
    }

    /// Clients with a lease.
    pub(crate) fn leased(&self) -> u64 {
        self.sum(|counters| &counters.leased)
    }
}

/// The maximum time until the schedule thread notices the end of a run.
const POLL_INTERVAL: Duration = Duration::from_millis(20);

/// The schedule of one generator thread: a request every `interval` from `start` on, whether or not earlier ones were
/// answered.
///
/// A slow answer delays no other request, and the latency of a request counts from the time at which it was due. A
/// closed loop sends fewer requests to a slow server, and so leaves out the requests that would have waited
/// (coordinated omission).
pub(crate) struct Schedule {
    start: Instant,
    interval: f64,
    /// One permit for each request that is due and has not begun.
    due: Semaphore,
    /// Written by the generator thread only.
    begun: AtomicU64,
}

impl Schedule {
    /// The share of thread `part` of `parts` in `rate` requests per second. Threads take turns.
    pub(crate) fn part(start: Instant, rate: f64, part: u32, parts: u32) -> Schedule {
        let interval = f64::from(parts) / rate;
        let start = start + Duration::from_secs_f64(f64::from(part) / rate);
        Schedule { start, interval, due: Semaphore::new(0), begun: AtomicU64::new(0) }
    }

    /// Waits until a request is due that no other lane has begun. Returns the time at which it was due.
    pub(crate) async fn next(&self) -> Instant {
        self.due.acquire().await.expect("the semaphore is never closed").forget();
        let begun = self.begun.load(Ordering::Relaxed);
        self.begun.store(begun + 1, Ordering::Relaxed);
        self.moment(begun)
    }

    /// Gives back the request that was begun last, because it could not be sent. Must be called before another one
    /// begins.
    pub(crate) fn give_back(&self) {
        self.begun.store(self.begun() - 1, Ordering::Relaxed);
        self.due.add_permits(1);
    }

    fn moment(&self, nth: u64) -> Instant {
        self.start + Duration::from_secs_f64(nth as f64 * self.interval)
    }

    /// The number of requests that were due by `now`.
    pub(crate) fn due_by(&self, now: Instant) -> u64 {
        match now.checked_duration_since(self.start) {
            Some(since) => (since.as_secs_f64() / self.interval) as u64 + 1,
            None => 0,
        }
    }

    pub(crate) fn begun(&self) -> u64 {
        self.begun.load(Ordering::Relaxed)
    }

    /// The time for which the next request has been due.
    pub(crate) fn overdue(&self, now: Instant) -> Duration {
        now.saturating_duration_since(self.moment(self.begun()))
    }

    /// Starts a thread that releases requests when they are due. It sleeps more precisely than tokio's timers, whose
    /// resolution of a millisecond would dominate the latency. It ends soon after the sender of `over` is dropped.
    pub(crate) fn keep(self: Arc<Self>, over: watch::Receiver<()>) -> Result<(), Error> {
        let keep = move || {
            let mut released = 0;
            while over.has_changed().is_ok() {
                let due = self.due_by(Instant::now());
                self.due.add_permits(usize::try_from(due - released).unwrap_or(Semaphore::MAX_PERMITS));
                released = due;
                let wait = self.moment(due).saturating_duration_since(Instant::now());
                thread::sleep(wait.min(POLL_INTERVAL));
            }
        };
        thread::Builder::new().name("schedule".into()).spawn(keep).map_err(Error::io("start a thread"))?;
        Ok(())
    }
}

/// The pause between two attempts to connect.
const RECONNECT_PAUSE: Duration = Duration::from_millis(100);

/// The phase of a run. Answers count from `Measuring` until `Over`. The thread that reads the server's CPU time sets
/// both.
#[derive(Default)]
pub(crate) struct Shared {
    phase: AtomicU8,
    /// The times at which `Measuring` and `Over` were set.
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
    /// `None` for a closed loop.
    pub(crate) schedule: Option<Arc<Schedule>>,
    pub(crate) shared: Arc<Shared>,
    pub(crate) counters: Arc<ThreadCounters>,
}

#[derive(Clone)]
pub(crate) struct Servers {
    /// The servers of --target, at least one. The first is used first, the others if a server is unreachable.
    pub(crate) named: Vec<SocketAddr>,
    /// Whether to follow redirects. False if the process of the first target is measured.
    pub(crate) follow: bool,
    pub(crate) dialer: Dialer,
}

struct Worker {
    servers: Servers,
    /// The server in use.
    target: Cell<SocketAddr>,
    schedule: Option<Arc<Schedule>>,
    shared: Arc<Shared>,
    counters: Arc<ThreadCounters>,
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
        counters: plan.counters,
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

/// A request in flight. If the measurement ends before its answer, only its waiting time counts.
struct PendingRequest<'w> {
    worker: &'w Worker,
    since: Instant,
}

impl Drop for PendingRequest<'_> {
    fn drop(&mut self) {
        // Ignore requests that began after the measurement: lanes continue until their tasks end.
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
            let pending = PendingRequest { worker: &self, since: due };
            let answer = wire.connection.call::<GetCapacityResponse>(&wire.ask, &request).await;
            drop(pending);
            match answer {
                Ok(GetCapacityResponse { mastership: Some(mastership), .. }) => {
                    self.count_failure("not the master".into());
                    if self.redirect(&wire, &mastership).await {
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
                        // Yield, because the next answer may be ready already, and other lanes must run as well.
                        Failure::Stream(_) | Failure::Status(..) | Failure::Garbage(_) => yield_now().await,
                    }
                }
            }
            // Release only after the answer, so that no measured request waits for it.
            if let Some(release) = turn.release {
                self.release(&wire, &release).await;
            }
        }
    }

    /// Waits until a request is due. `None` if the connection broke; then another lane has to send the request.
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
        self.counters.answered(workload.leased());
        settled
    }

    async fn release(&self, wire: &Wire, release: &ReleaseCapacityRequest) {
        match wire.connection.call::<ReleaseCapacityResponse>(&wire.release, release).await {
            Ok(answer) if answer.mastership.is_none() => self.count(|tally| tally.counts.releases += 1),
            Ok(_) => self.count_failure("release: not the master".into()),
            Err(failure) => self.count_failure(format!("release: {}", failure.kind())),
        }
    }

    /// Chooses another server, after an answer from one that is not the master. Returns whether to leave this
    /// connection.
    async fn redirect(&self, wire: &Wire, mastership: &Mastership) -> bool {
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

    /// Switches to the next server of --target, unless another lane has already switched.
    fn leave(&self, target: SocketAddr) {
        if self.target.get() == target {
            let named = &self.servers.named;
            let next = named.iter().position(|server| *server == target).map_or(0, |place| place + 1);
            self.target.set(named[next % named.len()]);
        }
    }

    fn count_failure(&self, kind: String) {
        self.counters.failed();
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn threads_share_a_schedule_and_take_turns() {
        let start = Instant::now();
        let parts: Vec<_> = (0..4).map(|part| Schedule::part(start, 1000.0, part, 4)).collect();
        let mut moments: Vec<_> = parts.iter().flat_map(|part| (0..25).map(|nth| part.moment(nth))).collect();
        moments.sort_unstable();
        for (nth, moment) in moments.into_iter().enumerate() {
            let off = (moment - start).as_secs_f64() - nth as f64 / 1000.0;
            assert!(off.abs() < 1e-6, "request {nth} is off by {off} s");
        }
        let due: u64 = parts.iter().map(|part| part.due_by(start + Duration::from_micros(99_500))).sum();
        assert_eq!(due, 100);
        assert_eq!(parts[1].due_by(start), 0, "its first is not due at once");
    }

    #[tokio::test]
    async fn a_late_request_counts_from_when_it_was_due() {
        let start = Instant::now();
        let schedule = Schedule::part(start, 10.0, 0, 1);
        schedule.due.add_permits(3);
        for nth in 0..3u32 {
            assert_eq!(schedule.next().await, start + Duration::from_millis(100) * nth);
        }
        assert_eq!(schedule.begun(), 3);
        assert_eq!(schedule.overdue(start + Duration::from_millis(300)), Duration::ZERO);
        assert_eq!(schedule.overdue(start + Duration::from_millis(350)), Duration::from_millis(50));
        schedule.give_back();
        assert_eq!((schedule.begun(), schedule.next().await), (2, start + Duration::from_millis(200)));
        let more = tokio::time::timeout(Duration::from_millis(10), schedule.next());
        assert!(more.await.is_err(), "the fourth is not due");
    }
}
