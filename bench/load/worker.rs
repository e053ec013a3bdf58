//! A generator thread: its connections, on each of them as many lanes as requests may be in flight, and in each lane a
//! closed loop: ask, wait for the answer, ask again as the next client.
//!
//! Everything of a thread stays on it (`LocalSet`, `Rc`), so lanes share the workload and the tally without locks.

use std::{
    cell::RefCell,
    net::SocketAddr,
    rc::Rc,
    sync::{
        Arc,
        atomic::{AtomicU8, AtomicU64, Ordering},
    },
    time::{Duration, Instant},
};

use leaseway_proto::doorman::{GetCapacityRequest, GetCapacityResponse};
use tokio::{
    sync::watch,
    task::{LocalSet, spawn_local, yield_now},
    time::sleep,
};

use super::{
    connection::{Connection, Failure, Path},
    tally::Tally,
    workload::Workload,
};

/// A server that went away is not asked for new connections more often than this.
const RECONNECT_PAUSE: Duration = Duration::from_millis(100);

/// What the main thread and the workers tell each other while a run goes on.
#[derive(Default)]
pub(crate) struct Shared {
    phase: AtomicU8,
    /// Requests that have ended since the start, for a live display. Not part of the result.
    pub(crate) live: AtomicU64,
}

/// Answers are counted from `Measuring` until `Over` is set, by the thread that reads the server's CPU time just then.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Phase {
    WarmUp,
    Measuring,
    Over,
}

impl Shared {
    pub(crate) fn enter(&self, phase: Phase) {
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

/// What one thread is to do.
pub(crate) struct Plan {
    pub(crate) target: SocketAddr,
    pub(crate) connections: u32,
    pub(crate) in_flight: u32,
    pub(crate) workload: Workload,
    pub(crate) shared: Arc<Shared>,
}

struct Worker {
    target: SocketAddr,
    path: Path,
    shared: Arc<Shared>,
    workload: RefCell<Workload>,
    tally: RefCell<Tally>,
}

/// Runs until `over` changes or its sender is dropped; requests in flight then are abandoned.
pub(crate) async fn work(plan: Plan, mut over: watch::Receiver<()>) -> Tally {
    let worker = Rc::new(Worker {
        target: plan.target,
        path: Path::new(plan.target, "GetCapacity"),
        shared: plan.shared,
        workload: RefCell::new(plan.workload),
        tally: RefCell::new(Tally::new()),
    });
    let tasks = LocalSet::new();
    for _ in 0..plan.connections {
        tasks.spawn_local(Rc::clone(&worker).keep_connected(plan.in_flight));
    }
    tasks.run_until(over.changed()).await.ok();
    drop(tasks);
    worker.tally.replace(Tally::new())
}

impl Worker {
    /// Keeps one connection busy, and opens another when it breaks.
    async fn keep_connected(self: Rc<Self>, in_flight: u32) {
        loop {
            match Connection::open(self.target).await {
                Ok((connection, driver)) => {
                    let driver = spawn_local(driver);
                    let lanes: Vec<_> =
                        (0..in_flight).map(|_| spawn_local(Rc::clone(&self).lane(connection.clone()))).collect();
                    for lane in lanes {
                        lane.await.expect("lanes do not panic, and are aborted only together with this task");
                    }
                    driver.abort();
                }
                Err(_) => self.count_failure("cannot connect".into()),
            }
            sleep(RECONNECT_PAUSE).await;
        }
    }

    /// One request at a time, for as long as the connection lasts.
    async fn lane(self: Rc<Self>, connection: Connection) {
        let mut request = GetCapacityRequest::default();
        loop {
            let asker = self.workload.borrow_mut().write(&mut request);
            let sent = Instant::now();
            match connection.call::<GetCapacityResponse>(&self.path, &request).await {
                Ok(answer) if answer.mastership.is_some() => self.count_failure("not the master".into()),
                Ok(answer) => {
                    let latency = sent.elapsed();
                    let settled = self.workload.borrow_mut().settle(asker, &answer);
                    self.count(|tally| tally.answered(latency, settled));
                }
                Err(failure) => {
                    self.count_failure(failure.kind());
                    match failure {
                        Failure::Connection(_) => return,
                        // May come without any waiting; others must get their turn.
                        Failure::Stream(_) | Failure::Status(..) | Failure::Garbage(_) => yield_now().await,
                    }
                }
            }
        }
    }

    fn count_failure(&self, kind: String) {
        self.count(|tally| tally.failed(kind));
    }

    fn count(&self, count: impl FnOnce(&mut Tally)) {
        self.shared.live.fetch_add(1, Ordering::Relaxed);
        if self.shared.phase() == Phase::Measuring {
            count(&mut self.tally.borrow_mut());
        }
    }
}
