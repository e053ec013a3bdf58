//! The attacker: a thread with an address of its own, whose pace is bounded, and which counts what it sends.

use std::{
    cell::Cell,
    io,
    net::{Ipv4Addr, SocketAddr},
    rc::Rc,
    sync::{Arc, atomic::Ordering::Relaxed, mpsc},
    thread::{self, JoinHandle},
    time::{Duration, Instant},
};

use leaseway_process::usage;
use tokio::{
    net::{TcpSocket, TcpStream},
    sync::watch,
    task::LocalSet,
    time::{sleep, sleep_until, timeout},
};

use super::{
    apart::Apart,
    sent::{Sent, SentCount},
    wire::CountedWire,
};
use crate::{error::Error, load::Dialer, runtime::current_thread};

/// Where it comes from. What is shared by addresses is shared between this one and that of all others.
const ADDRESS: Ipv4Addr = Ipv4Addr::new(127, 0, 0, 2);

/// A server that refuses connections is tried again so soon.
const PAUSE: Duration = Duration::from_millis(10);

/// What it did not do in time it makes up for no longer than this.
const SLACK: Duration = Duration::from_millis(10);

/// A connection that is not made within this time is given up.
const PATIENCE: Duration = Duration::from_secs(2);

/// How it attacks, and whom.
#[derive(Clone)]
pub(super) struct AttackPlan {
    pub(super) grpc: SocketAddr,
    pub(super) http: SocketAddr,
    pub(super) dialer: Dialer,
    /// The same, to read pages.
    pub(super) reader: Dialer,
    /// Acts a second, at most.
    pub(super) rate: f64,
    /// Connections at a time, of attacks that consist of connections.
    pub(super) connections: u32,
}

/// The attacker, as its own thread sees it.
pub(super) struct Stranger {
    pub(super) plan: AttackPlan,
    sent: Arc<Sent>,
    /// When the next act is due.
    next: Cell<Instant>,
}

impl Stranger {
    /// Waits until so many acts may be done.
    pub(super) async fn acts(&self, number: u32) {
        self.sent.acts.fetch_add(number.into(), Relaxed);
        let now = Instant::now();
        let due = self.next.get().max(now.checked_sub(SLACK).unwrap_or(now));
        self.next.set(due + Duration::from_secs_f64(f64::from(number) / self.plan.rate));
        if due > now {
            sleep_until(due.into()).await;
        }
    }

    /// A call was answered with an error.
    pub(super) fn was_refused(&self) {
        self.sent.refused.fetch_add(1, Relaxed);
    }

    /// The server has refused a connection, or ended it.
    pub(super) fn was_ended(&self) {
        self.sent.ended.fetch_add(1, Relaxed);
    }

    /// A connection as clients have it, with TLS if the server has it.
    pub(super) async fn connect(&self) -> Option<CountedWire> {
        self.wire(self.plan.grpc, &self.plan.dialer).await
    }

    /// One that says nothing by itself.
    pub(super) async fn connect_barely(&self) -> Option<CountedWire> {
        self.wire(self.plan.grpc, &Dialer::default()).await
    }

    /// One to the pages.
    pub(super) async fn connect_to_pages(&self) -> Option<CountedWire> {
        self.wire(self.plan.http, &self.plan.reader).await
    }

    async fn wire(&self, to: SocketAddr, dialer: &Dialer) -> Option<CountedWire> {
        self.acts(1).await;
        let made = timeout(PATIENCE, async { dialer.over(tcp(to).await.ok()?, to).await.ok() }).await;
        let Some(socket) = made.ok().flatten() else {
            self.was_ended();
            sleep(PAUSE).await;
            return None;
        };
        Some(CountedWire::new(socket, Arc::clone(&self.sent)))
    }
}

/// A connection whose port is free as soon as it ends: an attacker does not wait for its ports.
async fn tcp(to: SocketAddr) -> io::Result<TcpStream> {
    let socket = TcpSocket::new_v4()?;
    socket.bind((ADDRESS, 0).into())?;
    let stream = socket.connect(to).await?;
    stream.set_zero_linger()?;
    Ok(stream)
}

/// The thread of the attacker. It and its connections end when this is dropped.
pub(super) struct Attacker {
    over: Option<watch::Sender<()>>,
    handle: Option<JoinHandle<()>>,
    sent: Arc<Sent>,
    /// The system's number for it, where it has one.
    thread: Option<u32>,
}

impl Attacker {
    pub(super) fn start<F: Future<Output = ()> + 'static>(
        plan: AttackPlan,
        apart: Option<Apart>,
        attack: impl FnOnce(Rc<Stranger>) -> F + Send + 'static,
    ) -> Result<Attacker, Error> {
        let runtime = current_thread().map_err(Error::io("start a runtime"))?;
        let (over, mut is_over) = watch::channel(());
        let sent = Arc::<Sent>::default();
        let (ready, readied) = mpsc::channel();
        let counted = Arc::clone(&sent);
        let body = move || {
            let _ = ready.send(usage::thread_id());
            let stranger = Stranger { plan, sent: counted, next: Cell::new(Instant::now()) };
            let tasks = LocalSet::new();
            tasks.spawn_local(attack(Rc::new(stranger)));
            let _ = runtime.block_on(tasks.run_until(is_over.changed()));
        };
        let handle = thread::Builder::new().name("attacker".into()).spawn(body).map_err(Error::io("start a thread"))?;
        let thread = readied.recv().expect("the thread reports before it does anything that could fail");
        let attacker = Attacker { over: Some(over), handle: Some(handle), sent, thread };
        if let (Some(apart), Some(thread)) = (apart, thread) {
            apart.set(thread)?;
        }
        Ok(attacker)
    }

    /// CPU time so far, where the system tells.
    pub(super) fn cpu(&self) -> Option<Duration> {
        self.thread.and_then(usage::own_thread_cpu_time)
    }

    pub(super) fn sent(&self) -> SentCount {
        self.sent.count()
    }
}

impl Drop for Attacker {
    fn drop(&mut self) {
        drop(self.over.take());
        if let Some(handle) = self.handle.take() {
            let _ = handle.join();
        }
    }
}
