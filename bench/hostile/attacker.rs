//! The attacker: a thread with an address of its own and a bounded rate, which counts what it sends.

use std::{
    cell::Cell,
    future::pending,
    io,
    net::{Ipv4Addr, SocketAddr},
    pin::Pin,
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

use bytes::Bytes;
use h2::{
    SendStream,
    client::{ResponseFuture, SendRequest},
};
use http::{HeaderMap, Request, StatusCode};
use leaseway_process::usage;
use serde::Serialize;
use tokio::{
    io::{AsyncRead, AsyncWrite, ReadBuf},
    net::{TcpSocket, TcpStream},
    sync::watch,
    task::{AbortHandle, LocalSet, spawn_local},
    time::{sleep, sleep_until, timeout},
};

use crate::{
    common::{current_thread, error::Error},
    load::connection::{Dialer, Socket},
};

/// The address of the attacker. It differs from those of others, because the server has limits per address.
const ADDRESS: Ipv4Addr = Ipv4Addr::new(127, 0, 0, 2);

/// The pause after a refused connection.
const PAUSE: Duration = Duration::from_millis(10);

/// If the attacker falls behind its rate, it makes up for at most this time.
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
    /// The maximum number of acts per second. See [`SentCount::acts`].
    pub(crate) rate: f64,
    /// The number of parallel connections in attacks that are about connections.
    pub(crate) connections: u32,
}

/// The attacker, as attacks see it.
pub(crate) struct Attacker {
    pub(crate) plan: AttackPlan,
    sent: Arc<Sent>,
    /// The time at which the next act is due.
    next: Cell<Instant>,
}

impl Attacker {
    /// Waits until the rate allows `number` acts.
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

    /// Opens a connection without the TLS of the plan.
    pub(crate) async fn connect_plain(&self) -> Option<CountedWire> {
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

/// Connects. The connection is reset when it is closed, so that its port is free immediately and the attacker does not
/// run out of ports.
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
    /// The id of the thread, on systems that have one.
    thread: Option<u32>,
}

impl AttackThread {
    pub(crate) fn start<F: Future<Output = ()> + 'static>(
        plan: AttackPlan,
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
        let thread = readied.recv().expect("the thread sends its id before anything can fail");
        Ok(AttackThread { over: Some(over), handle: Some(handle), sent, thread })
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

/// The counters of [`Sent`] over a period.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub(crate) struct SentCount {
    pub(crate) connections: u64,
    pub(crate) bytes: u64,
    /// The number of frames, calls and connections. A long message counts once for each 16 KiB, a long call once for
    /// each 20 entries.
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

/// A flow-control window that never blocks answers.
pub(crate) const WIDE: u32 = 1 << 30;

/// The maximum number of pending streams of a connection.
const CALLS: u32 = 1000;

/// A client on one connection, which is closed when this is dropped.
pub(crate) struct Caller {
    attacker: Rc<Attacker>,
    requests: SendRequest<Bytes>,
    driver: AbortHandle,
}

/// A call in progress.
pub(crate) type Begun = (ResponseFuture, SendStream<Bytes>);

impl Caller {
    /// Opens a connection. The server may send `window` bytes of each answer.
    pub(crate) async fn open(attacker: &Rc<Attacker>, window: u32) -> Option<Caller> {
        let wire = attacker.connect().await?;
        let mut builder = h2::client::Builder::new();
        builder
            .initial_window_size(window)
            .initial_connection_window_size(WIDE)
            .initial_max_send_streams(CALLS as usize);
        let Ok((requests, driver)) = builder.handshake(wire).await else {
            attacker.was_ended();
            return None;
        };
        let driver = spawn_local(driver).abort_handle();
        Some(Caller { attacker: Rc::clone(attacker), requests, driver })
    }

    /// A gRPC request with additional headers.
    pub(crate) fn post(&self, path: &str, headers: &[(&str, &str)]) -> Request<()> {
        let usual = [("content-type", "application/grpc"), ("te", "trailers")];
        self.request("POST", path, &[&usual, headers].concat())
    }

    pub(crate) fn request(&self, method: &str, path: &str, headers: &[(&str, &str)]) -> Request<()> {
        let plan = &self.attacker.plan;
        let uri = format!("{}://{}{path}", plan.dialer.scheme(), plan.grpc);
        let request = Request::builder().method(method).uri(uri);
        let request = headers.iter().fold(request, |request, (name, value)| request.header(*name, *value));
        request.body(()).expect("requests of attacks are made of constants")
    }

    pub(crate) fn has_ended(&self) -> bool {
        self.driver.is_finished()
    }

    pub(crate) async fn begin(&mut self, request: Request<()>) -> Result<Begun, h2::Error> {
        self.attacker.acts(1).await;
        let mut ready = self.requests.clone().ready().await?;
        ready.send_request(request, false)
    }

    /// Makes a call, and discards the answer.
    pub(crate) async fn ask(&mut self, request: Request<()>, message: Bytes) -> Result<(), h2::Error> {
        let (answer, mut body) = self.begin(request).await?;
        // It may have been refused already.
        let _ = body.send_data(message, true);
        self.attacker.read(answer).await
    }
}

impl Drop for Caller {
    fn drop(&mut self) {
        if self.has_ended() {
            self.attacker.was_ended();
        }
        self.driver.abort();
    }
}

impl Attacker {
    /// Reads an answer to its end. A reset stream counts as an answer.
    pub(crate) async fn read(&self, answer: ResponseFuture) -> Result<(), h2::Error> {
        let outcome = async {
            let (head, mut body) = answer.await?.into_parts();
            while let Some(data) = body.data().await {
                let length = data?.len();
                body.flow_control().release_capacity(length)?;
            }
            let trailers = body.trailers().await?.unwrap_or_default();
            Ok(is_refusal(&head.headers) || is_refusal(&trailers) || head.status != StatusCode::OK)
        };
        match outcome.await {
            Ok(is_refused) => {
                if is_refused {
                    self.was_refused();
                }
                Ok(())
            }
            Err(error) if h2::Error::is_reset(&error) => {
                self.was_refused();
                Ok(())
            }
            Err(error) => Err(error),
        }
    }

    /// Keeps a call open without reading its answer. Returns when the call is refused.
    pub(crate) async fn leave_unread(&self, (answer, body): Begun) {
        let Ok(response) = answer.await else { return };
        if !response.headers().contains_key(STATUS) {
            pending::<()>().await;
        }
        self.was_refused();
        drop((response, body));
    }
}

const STATUS: &str = "grpc-status";

fn is_refusal(headers: &HeaderMap) -> bool {
    headers.get(STATUS).is_some_and(|status| status != "0")
}

/// Repeats `work`, and reconnects when the connection breaks.
pub(crate) async fn repeat(
    attacker: Rc<Attacker>,
    window: u32,
    mut work: impl AsyncFnMut(&mut Caller) -> Result<(), h2::Error>,
) {
    loop {
        let Some(mut caller) = Caller::open(&attacker, window).await else { continue };
        while work(&mut caller).await.is_ok() {}
    }
}

// HTTP/2 frames, encoded by hand, because no client library sends them in this way.

/// The connection preface; a SETTINGS frame follows.
pub(crate) const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";

pub(crate) const DATA: u8 = 0;
pub(crate) const HEADERS: u8 = 1;
pub(crate) const PRIORITY: u8 = 2;
pub(crate) const RST_STREAM: u8 = 3;
pub(crate) const SETTINGS: u8 = 4;
pub(crate) const PING: u8 = 6;
pub(crate) const WINDOW_UPDATE: u8 = 8;
pub(crate) const CONTINUATION: u8 = 9;

pub(crate) const END_STREAM: u8 = 1;
pub(crate) const END_HEADERS: u8 = 4;

/// The id of SETTINGS_INITIAL_WINDOW_SIZE.
const INITIAL_WINDOW_SIZE: u16 = 4;
const HEADER_TABLE_SIZE: u16 = 1;

pub(crate) fn frame(kind: u8, flags: u8, stream: u32, payload: &[u8]) -> Vec<u8> {
    let mut frame = (payload.len() as u64).to_be_bytes()[5..].to_vec();
    frame.extend_from_slice(&[kind, flags]);
    frame.extend_from_slice(&stream.to_be_bytes());
    frame.extend_from_slice(payload);
    frame
}

/// The beginning of a connection. The server may send `window` bytes of each answer.
pub(crate) fn opening(window: u32) -> Vec<u8> {
    [PREFACE, &frame(SETTINGS, 0, 0, &setting(INITIAL_WINDOW_SIZE, window))].concat()
}

/// A SETTINGS frame that changes the window of streams and the size of the header table.
pub(crate) fn settings(window: u32, table: u32) -> Vec<u8> {
    frame(SETTINGS, 0, 0, &[setting(INITIAL_WINDOW_SIZE, window), setting(HEADER_TABLE_SIZE, table)].concat())
}

fn setting(name: u16, value: u32) -> Vec<u8> {
    [&name.to_be_bytes()[..], &value.to_be_bytes()].concat()
}

/// The id of the nth stream of a client, from 0 on.
pub(crate) fn stream(nth: u32) -> u32 {
    2 * nth + 1
}

/// The headers of a call, as literals.
pub(crate) fn call_headers(path: &str) -> Vec<u8> {
    let mut block = vec![0x83, 0x86];
    literal(&mut block, ":path", path);
    literal(&mut block, ":authority", "localhost");
    literal(&mut block, "content-type", "application/grpc");
    literal(&mut block, "te", "trailers");
    block
}

/// Appends a literal header that is not indexed.
pub(crate) fn literal(block: &mut Vec<u8>, name: &str, value: &str) {
    block.push(0);
    for text in [name, value] {
        let length = u8::try_from(text.len()).ok().filter(|length| *length < 0x7f);
        block.push(length.expect("the length of a header fits seven bits"));
        block.extend_from_slice(text.as_bytes());
    }
}
