//! The attacker: a thread with an address of its own, whose pace is bounded, and which counts what it sends.

use std::{
    cell::Cell,
    io,
    net::{Ipv4Addr, SocketAddr},
    pin::Pin,
    process::{self, Command},
    rc::Rc,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering::Relaxed},
        mpsc,
    },
    task::{Context, Poll},
    thread::{self, JoinHandle},
    time::{Duration, Instant},
};

use leaseway_process::usage;
use serde::Serialize;
use tokio::{
    io::{AsyncRead, AsyncWrite, ReadBuf},
    net::{TcpSocket, TcpStream},
    sync::watch,
    task::LocalSet,
    time::{sleep, sleep_until, timeout},
};

use crate::{
    common::{current_thread, error::Error},
    load::socket::{Dialer, Socket},
};

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
pub(crate) struct AttackPlan {
    pub(crate) grpc: SocketAddr,
    pub(crate) http: SocketAddr,
    pub(crate) dialer: Dialer,
    /// The same, to read pages.
    pub(crate) reader: Dialer,
    /// Acts a second, at most.
    pub(crate) rate: f64,
    /// Connections at a time, of attacks that consist of connections.
    pub(crate) connections: u32,
}

/// The attacker, as its own thread sees it.
pub(crate) struct Attacker {
    pub(crate) plan: AttackPlan,
    sent: Arc<Sent>,
    /// When the next act is due.
    next: Cell<Instant>,
}

impl Attacker {
    /// Waits until so many acts may be done.
    pub(crate) async fn acts(&self, number: u32) {
        self.sent.acts.fetch_add(number.into(), Relaxed);
        let now = Instant::now();
        let due = self.next.get().max(now.checked_sub(SLACK).unwrap_or(now));
        self.next.set(due + Duration::from_secs_f64(f64::from(number) / self.plan.rate));
        if due > now {
            sleep_until(due.into()).await;
        }
    }

    /// A call was answered with an error.
    pub(crate) fn was_refused(&self) {
        self.sent.refused.fetch_add(1, Relaxed);
    }

    /// The server has refused a connection, or ended it.
    pub(crate) fn was_ended(&self) {
        self.sent.ended.fetch_add(1, Relaxed);
    }

    /// A connection as clients have it, with TLS if the server has it.
    pub(crate) async fn connect(&self) -> Option<CountedWire> {
        self.wire(self.plan.grpc, &self.plan.dialer).await
    }

    /// One that says nothing by itself.
    pub(crate) async fn connect_barely(&self) -> Option<CountedWire> {
        self.wire(self.plan.grpc, &Dialer::default()).await
    }

    /// One to the pages.
    pub(crate) async fn connect_to_pages(&self) -> Option<CountedWire> {
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
pub(crate) struct AttackThread {
    over: Option<watch::Sender<()>>,
    handle: Option<JoinHandle<()>>,
    sent: Arc<Sent>,
    /// The system's number for it, where it has one.
    thread: Option<u32>,
}

impl AttackThread {
    pub(crate) fn start<F: Future<Output = ()> + 'static>(
        plan: AttackPlan,
        apart: Option<OwnCore>,
        attack: impl FnOnce(Rc<Attacker>) -> F + Send + 'static,
    ) -> Result<AttackThread, Error> {
        let runtime = current_thread().map_err(Error::io("start a runtime"))?;
        let (over, mut is_over) = watch::channel(());
        let sent = Arc::<Sent>::default();
        let (ready, readied) = mpsc::channel();
        let counted = Arc::clone(&sent);
        let body = move || {
            let _ = ready.send(usage::thread_id());
            let attacker = Attacker { plan, sent: counted, next: Cell::new(Instant::now()) };
            let tasks = LocalSet::new();
            tasks.spawn_local(attack(Rc::new(attacker)));
            let _ = runtime.block_on(tasks.run_until(is_over.changed()));
        };
        let handle = thread::Builder::new().name("attacker".into()).spawn(body).map_err(Error::io("start a thread"))?;
        let thread = readied.recv().expect("the thread reports before it does anything that could fail");
        let attacker = AttackThread { over: Some(over), handle: Some(handle), sent, thread };
        if let (Some(apart), Some(thread)) = (apart, thread) {
            apart.set(thread)?;
        }
        Ok(attacker)
    }

    /// CPU time so far, where the system tells.
    pub(crate) fn cpu(&self) -> Option<Duration> {
        self.thread.and_then(usage::own_thread_cpu_time)
    }

    pub(crate) fn sent(&self) -> SentCount {
        self.sent.count()
    }
}

impl Drop for AttackThread {
    fn drop(&mut self) {
        drop(self.over.take());
        if let Some(handle) = self.handle.take() {
            let _ = handle.join();
        }
    }
}

/// Bytes are counted before TLS makes more of them.
pub(crate) struct CountedWire {
    socket: Socket,
    sent: Arc<Sent>,
}

impl CountedWire {
    pub(crate) fn new(socket: Socket, sent: Arc<Sent>) -> CountedWire {
        sent.connections.fetch_add(1, Relaxed);
        CountedWire { socket, sent }
    }
}

impl AsyncRead for CountedWire {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.socket).poll_read(cx, buf)
    }
}

impl AsyncWrite for CountedWire {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.socket).poll_write(cx, buf);
        if let Poll::Ready(Ok(bytes)) = written {
            self.sent.bytes.fetch_add(bytes as u64, Relaxed);
        }
        written
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.socket).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.socket).poll_shutdown(cx)
    }
}

/// What the attacker has done so far.
#[derive(Default)]
pub(crate) struct Sent {
    pub(crate) connections: AtomicU64,
    pub(crate) bytes: AtomicU64,
    pub(crate) acts: AtomicU64,
    pub(crate) refused: AtomicU64,
    pub(crate) ended: AtomicU64,
}

/// The same, in some time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub(crate) struct SentCount {
    /// Connections that were made.
    pub(crate) connections: u64,
    pub(crate) bytes: u64,
    /// Frames, calls and connections; of long messages each 16 KiB, of long calls every 20 entries.
    pub(crate) acts: u64,
    /// Calls that were answered with an error.
    pub(crate) refused: u64,
    /// Connections that the server refused or ended.
    pub(crate) ended: u64,
}

impl SentCount {
    pub(crate) fn since(self, before: SentCount) -> SentCount {
        SentCount {
            connections: self.connections - before.connections,
            bytes: self.bytes - before.bytes,
            acts: self.acts - before.acts,
            refused: self.refused - before.refused,
            ended: self.ended - before.ended,
        }
    }
}

impl Sent {
    pub(crate) fn count(&self) -> SentCount {
        let Sent { connections, bytes, acts, refused, ended } = self;
        let [connections, bytes, acts, refused, ended] =
            [connections, bytes, acts, refused, ended].map(|count| count.load(Relaxed));
        SentCount { connections, bytes, acts, refused, ended }
    }
}

/// The core that is the attacker's.
#[derive(Clone, Copy)]
pub(crate) struct OwnCore {
    core: usize,
}

impl OwnCore {
    /// Keeps this process, and what it starts from here on, off the last core.
    pub(crate) fn arrange() -> Result<OwnCore, Error> {
        match thread::available_parallelism().map_or(1, usize::from) {
            0 | 1 => Err(Error::Usage("--apart: there is one core, which attacker and server have to share".into())),
            cores => {
                let core = cores - 1;
                taskset(&["-a"], &format!("0-{}", core - 1), process::id())?;
                Ok(OwnCore { core })
            }
        }
    }

    /// Puts a thread on it.
    pub(crate) fn set(self, thread: u32) -> Result<(), Error> {
        taskset(&[], &self.core.to_string(), thread)
    }
}

fn taskset(flags: &[&str], cores: &str, id: u32) -> Result<(), Error> {
    let done = Command::new("taskset").args(flags).args(["-cp", cores, &id.to_string()]).output();
    let done = done.map_err(Error::io("run `taskset`, which --apart needs"))?;
    if done.status.success() {
        return Ok(());
    }
    Err(Error::Usage(format!("--apart: taskset: {}", String::from_utf8_lossy(&done.stderr).trim())))
}
