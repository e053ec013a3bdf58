//! The attacker: a thread with an address of its own and a bounded rate, which counts what it sends.

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

/// The address of the attacker. The server bounds what one address may use.
const ADDRESS: Ipv4Addr = Ipv4Addr::new(127, 0, 0, 2);

/// The pause after a refused connection.
const PAUSE: Duration = Duration::from_millis(10);

/// The attacker catches up for at most this long.
const SLACK: Duration = Duration::from_millis(10);

/// The timeout for connecting.
const PATIENCE: Duration = Duration::from_secs(2);

#[derive(Clone)]
pub(crate) struct AttackPlan {
    pub(crate) grpc: SocketAddr,
    pub(crate) http: SocketAddr,
    pub(crate) dialer: Dialer,
    /// For pages over HTTP/1.1.
    pub(crate) reader: Dialer,
    /// The maximum number of acts per second.
    pub(crate) rate: f64,
    /// Connections at a time, of attacks that consist of connections.
    pub(crate) connections: u32,
}

/// The attacker, as attacks see it.
pub(crate) struct Attacker {
    pub(crate) plan: AttackPlan,
    sent: Arc<Sent>,
    /// When the next act is due.
    next: Cell<Instant>,
}

impl Attacker {
    /// Waits until this many acts may be done.
    pub(crate) async fn acts(&self, number: u32) {
        self.sent.acts.fetch_add(number.into(), Relaxed);
        let now = Instant::now();
        let due = self.next.get().max(now.checked_sub(SLACK).unwrap_or(now));
        self.next.set(due + Duration::from_secs_f64(f64::from(number) / self.plan.rate));
        if due > now {
            sleep_until(due.into()).await;
        }
    }

    pub(crate) fn was_refused(&self) {
        self.sent.refused.fetch_add(1, Relaxed);
    }

    pub(crate) fn was_ended(&self) {
        self.sent.ended.fetch_add(1, Relaxed);
    }

    /// A connection as clients make it, with TLS if the server uses it.
    pub(crate) async fn connect(&self) -> Option<CountedWire> {
        self.wire(self.plan.grpc, &self.plan.dialer).await
    }

    /// A TCP connection.
    pub(crate) async fn connect_barely(&self) -> Option<CountedWire> {
        self.wire(self.plan.grpc, &Dialer::default()).await
    }

    /// A connection for pages.
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

/// The port is free as soon as the connection ends, so that the attacker does not run out of ports.
async fn tcp(to: SocketAddr) -> io::Result<TcpStream> {
    let socket = TcpSocket::new_v4()?;
    socket.bind((ADDRESS, 0).into())?;
    let stream = socket.connect(to).await?;
    stream.set_zero_linger()?;
    Ok(stream)
}

/// The thread of the attacker. Dropping it ends the thread and its connections.
pub(crate) struct AttackThread {
    over: Option<watch::Sender<()>>,
    handle: Option<JoinHandle<()>>,
    sent: Arc<Sent>,
    /// The id of the thread, where the system has one.
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

    /// CPU time so far, where the system reports it.
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

/// Counts bytes before TLS encrypts them.
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

/// Counters of the attacker.
#[derive(Default)]
pub(crate) struct Sent {
    pub(crate) connections: AtomicU64,
    pub(crate) bytes: AtomicU64,
    pub(crate) acts: AtomicU64,
    pub(crate) refused: AtomicU64,
    pub(crate) ended: AtomicU64,
}

/// The same, over a period.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub(crate) struct SentCount {
    pub(crate) connections: u64,
    pub(crate) bytes: u64,
    /// Frames, calls and connections; each 16 KiB of long messages, and each 20 entries of long calls.
    pub(crate) acts: u64,
    /// Calls that were answered with an error.
    pub(crate) refused: u64,
    /// Connections that the server refused or closed.
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

/// A core that only the attacker uses.
#[derive(Clone, Copy)]
pub(crate) struct OwnCore {
    core: usize,
}

impl OwnCore {
    /// Keeps this process, and processes that it starts later, off the last core.
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
