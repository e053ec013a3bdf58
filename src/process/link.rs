//! A link between two processes that can be made bad: a small TCP proxy, for each link one.
//!
//! What is delayed stays in order, as in TCP. A link can be bad in two ways:
//! - *Stalled*, in one direction or both: the connections that exist deliver nothing until they
//!   [resume](Link::resume), if they ever do; new connections are good. This happens when a host that forwards packets
//!   forgets a connection, or when TCP backs off after losses: by the time a message arrives, the two sides may have
//!   talked over newer connections for long, and its sender may have closed the old one.
//! - *Cut*, in one direction or both: nothing arrives until it is [healed](Link::heal), then all of it does, late. So
//!   it is when a cable is pulled: TCP sends again what was lost, and old messages turn up at a bad time.
//!
//! A cut end still accepts connections (the kernel does that for a stopped process, too); they stay silent.

use std::{
    io,
    net::{Ipv4Addr, SocketAddr},
    ops::Range,
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicU64, AtomicUsize, Ordering},
    },
    time::Duration,
};

use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::{
        TcpListener, TcpStream,
        tcp::{OwnedReadHalf, OwnedWriteHalf},
    },
    runtime::Handle,
    sync::{mpsc, watch},
    task::JoinHandle,
    time::{Instant, sleep_until},
};

struct Direction {
    delay_ms: AtomicU64,
    obstacle: watch::Sender<Obstacle>,
}

/// What holds back everything.
#[derive(Default)]
struct Obstacle {
    is_cut: bool,
    /// The numbers of the connections that are stalled.
    stalled: Range<usize>,
}

impl Direction {
    fn good() -> Direction {
        Direction { delay_ms: AtomicU64::new(0), obstacle: watch::Sender::default() }
    }

    /// Waits until this connection delivers. Whether it was stalled.
    async fn delivers(&self, number: usize) -> bool {
        let was_stalled = self.obstacle.borrow().stalled.contains(&number);
        // An error is impossible: the sender is in `self`.
        let free = |obstacle: &Obstacle| !obstacle.is_cut && !obstacle.stalled.contains(&number);
        let _ = self.obstacle.subscribe().wait_for(free).await;
        was_stalled
    }

    fn set_delay(&self, delay: Duration) {
        let millis = u64::try_from(delay.as_millis()).unwrap_or(u64::MAX);
        self.delay_ms.store(millis, Ordering::Relaxed);
    }

    fn set_cut(&self, is_cut: bool) {
        self.obstacle.send_modify(|obstacle| obstacle.is_cut = is_cut);
    }

    fn set_stalled(&self, stalled: Range<usize>) {
        self.obstacle.send_modify(|obstacle| obstacle.stalled = stalled);
    }
}

struct Shared {
    target: SocketAddr,
    there: Direction,
    back: Direction,
    connections: AtomicUsize,
    stall_at: Mutex<Option<&'static [u8]>>,
}

impl Shared {
    /// Before a connection carries this towards the target.
    fn look_at(&self, piece: &[u8]) {
        let mut stall_at = self.stall_at.lock().unwrap_or_else(PoisonError::into_inner);
        if stall_at.is_some_and(|bytes| piece.windows(bytes.len()).any(|window| window == bytes)) {
            self.there.set_stalled(0..self.connections.load(Ordering::Relaxed));
            *stall_at = None;
        }
    }
}

/// A link to one address. New connections end with it; those that there are go on until a side closes.
pub struct Link {
    address: SocketAddr,
    shared: Arc<Shared>,
    accepting: JoinHandle<()>,
}

impl Link {
    /// A good link to `target`, where a server may listen later. It is served on `runtime`, which has to be driven by
    /// threads of its own.
    pub fn to(target: SocketAddr, runtime: &Handle) -> io::Result<Link> {
        let shared = Arc::new(Shared {
            target,
            there: Direction::good(),
            back: Direction::good(),
            connections: AtomicUsize::new(0),
            stall_at: Mutex::new(None),
        });
        let listener = std::net::TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?;
        listener.set_nonblocking(true)?;
        let address = listener.local_addr()?;
        let _inside = runtime.enter();
        let listener = TcpListener::from_std(listener)?;
        let accepting = runtime.spawn(accept(listener, Arc::clone(&shared)));
        Ok(Link { address, shared, accepting })
    }

    /// Where to connect to instead, as `HOST:PORT`.
    pub fn address(&self) -> String {
        self.address.to_string()
    }

    /// The port that its packets have on the near side.
    pub fn port(&self) -> u16 {
        self.address.port()
    }

    /// Everything takes so long from now on, in each direction.
    pub fn delay(&self, delay: Duration) {
        self.shared.there.set_delay(delay);
        self.shared.back.set_delay(delay);
    }

    /// As [`delay`](Self::delay), towards the target only.
    pub fn delay_towards(&self, delay: Duration) {
        self.shared.there.set_delay(delay);
    }

    /// The connections that exist deliver nothing until they [resume](Self::resume); new ones are good.
    pub fn stall(&self) {
        self.stall_towards();
        self.shared.back.set_stalled(0..self.connections());
    }

    /// As [`stall`](Self::stall), but what the target sends still arrives.
    pub fn stall_towards(&self) {
        self.shared.there.set_stalled(0..self.connections());
    }

    /// Towards the target all connections stall as soon as one is to carry these bytes, which is the first message that
    /// is late; `None`: that is called off.
    pub fn stall_at(&self, bytes: Option<&'static [u8]>) {
        *self.shared.stall_at.lock().unwrap_or_else(PoisonError::into_inner) = bytes;
    }

    /// Whether no connection has been to carry them yet.
    pub fn is_to_stall(&self) -> bool {
        self.shared.stall_at.lock().unwrap_or_else(PoisonError::into_inner).is_some()
    }

    /// Towards the target the connections that are stalled resume, and those that were made since then stall in their
    /// place.
    pub fn stall_newer_towards(&self) {
        let newer = |obstacle: &mut Obstacle| obstacle.stalled = obstacle.stalled.end..self.connections();
        self.shared.there.obstacle.send_modify(newer);
    }

    /// What stalled connections hold back arrives from now on, also if its sender has closed the connection meanwhile.
    /// Each connection delivers in order and at twice the pace at which it was sent.
    pub fn resume(&self) {
        self.shared.there.set_stalled(0..0);
        self.shared.back.set_stalled(0..0);
    }

    /// Nothing arrives any more, in either direction, until it is healed.
    pub fn cut(&self) {
        self.cut_towards();
        self.cut_back();
    }

    /// Nothing arrives at the target any more; what it sends does.
    pub fn cut_towards(&self) {
        self.shared.there.set_cut(true);
    }

    /// Nothing arrives from the target any more; what is sent to it does.
    pub fn cut_back(&self) {
        self.shared.back.set_cut(true);
    }

    /// What was held back by a cut arrives now, in order, and the link is good again.
    pub fn heal(&self) {
        self.shared.there.set_cut(false);
        self.shared.back.set_cut(false);
    }

    /// How many there have been.
    pub fn connections(&self) -> usize {
        self.shared.connections.load(Ordering::Relaxed)
    }
}

impl Drop for Link {
    fn drop(&mut self) {
        self.accepting.abort();
    }
}

async fn accept(listener: TcpListener, shared: Arc<Shared>) {
    while let Ok((near, _)) = listener.accept().await {
        let number = shared.connections.fetch_add(1, Ordering::Relaxed);
        tokio::spawn(join(near, Arc::clone(&shared), number));
    }
}

async fn join(near: TcpStream, shared: Arc<Shared>, number: usize) {
    shared.there.delivers(number).await;
    // No server is there: the connection closes, as it would without a proxy.
    let Ok(far) = TcpStream::connect(shared.target).await else { return };
    let _ = (near.set_nodelay(true), far.set_nodelay(true));
    let (near_read, near_write) = near.into_split();
    let (far_read, far_write) = far.into_split();
    tokio::spawn(carry(near_read, far_write, Arc::clone(&shared), number, |shared| &shared.there));
    tokio::spawn(carry(far_read, near_write, shared, number, |shared| &shared.back));
}

type Which = fn(&Shared) -> &Direction;

async fn carry(from: OwnedReadHalf, to: OwnedWriteHalf, shared: Arc<Shared>, number: usize, which: Which) {
    let (send, receive) = mpsc::channel(64);
    tokio::spawn(deliver(receive, to, Arc::clone(&shared), number, which));
    take(from, send, &shared, which).await;
}

/// Reads along and notes when each piece is to arrive.
async fn take(mut from: OwnedReadHalf, send: mpsc::Sender<(Instant, Vec<u8>)>, shared: &Shared, which: Which) {
    let direction = which(shared);
    let mut buffer = vec![0; 16 << 10];
    while let Ok(length @ 1..) = from.read(&mut buffer).await {
        if std::ptr::eq(direction, &shared.there) {
            shared.look_at(&buffer[..length]);
        }
        let due = Instant::now() + Duration::from_millis(direction.delay_ms.load(Ordering::Relaxed));
        if send.send((due, buffer[..length].to_vec())).await.is_err() {
            return;
        }
    }
}

async fn deliver(
    mut receive: mpsc::Receiver<(Instant, Vec<u8>)>,
    mut to: OwnedWriteHalf,
    shared: Arc<Shared>,
    number: usize,
    which: Which,
) {
    let (mut has_stalled, mut before) = (false, None);
    while let Some((due, piece)) = receive.recv().await {
        sleep_until(due).await;
        has_stalled |= which(&shared).delivers(number).await;
        // It catches up at twice the pace: what was sent after a while still comes after a while.
        if let Some((due_before, delivered)) = before.filter(|_| has_stalled) {
            sleep_until(delivered + (due - due_before) / 2).await;
        }
        before = Some((due, Instant::now()));
        if to.write_all(&piece).await.is_err() {
            return;
        }
    }
    // The other side has closed: so does this one, which obstacles delay like everything else.
    which(&shared).delivers(number).await;
    let _ = to.shutdown().await;
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A target that sends back what it is sent, and a connection to it over a link.
    async fn echo() -> (Link, TcpStream) {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
        let link = Link::to(listener.local_addr().unwrap(), &Handle::current()).unwrap();
        tokio::spawn(async move {
            while let Ok((mut stream, _)) = listener.accept().await {
                tokio::spawn(async move {
                    let (mut read, mut write) = stream.split();
                    tokio::io::copy(&mut read, &mut write).await
                });
            }
        });
        let stream = TcpStream::connect(link.address()).await.unwrap();
        (link, stream)
    }

    /// What comes back within a while in which it would have come long ago.
    async fn heard(stream: &mut TcpStream, length: usize) -> Option<String> {
        let mut buffer = vec![0; length];
        let read = tokio::time::timeout(Duration::from_millis(100), stream.read_exact(&mut buffer)).await;
        read.ok().map(|_| String::from_utf8(buffer).unwrap())
    }

    async fn surely_heard(stream: &mut TcpStream, length: usize) -> String {
        let mut buffer = vec![0; length];
        let read = tokio::time::timeout(Duration::from_secs(30), stream.read_exact(&mut buffer)).await;
        read.expect("an echo").unwrap();
        String::from_utf8(buffer).unwrap()
    }

    #[tokio::test]
    async fn what_a_cut_holds_back_arrives_in_order_when_it_is_healed() {
        for cut in [Link::cut as fn(&Link), Link::cut_towards, Link::cut_back] {
            let (link, mut stream) = echo().await;
            stream.write_all(b"one").await.unwrap();
            assert_eq!(surely_heard(&mut stream, 3).await, "one");
            cut(&link);
            stream.write_all(b"two").await.unwrap();
            assert_eq!(heard(&mut stream, 1).await, None, "it went through");
            stream.write_all(b"three").await.unwrap();
            link.heal();
            assert_eq!(surely_heard(&mut stream, 8).await, "twothree");
        }
    }

    #[tokio::test]
    async fn connections_made_while_a_link_is_cut_come_alive_later() {
        let (link, _) = echo().await;
        link.cut();
        let mut stream = TcpStream::connect(link.address()).await.unwrap();
        stream.write_all(b"late").await.unwrap();
        assert_eq!(heard(&mut stream, 1).await, None);
        link.heal();
        assert_eq!(surely_heard(&mut stream, 4).await, "late");
    }

    #[tokio::test]
    async fn connections_stall_until_they_resume_and_new_ones_are_good() {
        for stall in [Link::stall as fn(&Link), Link::stall_towards] {
            let (link, mut stream) = echo().await;
            stream.write_all(b"one").await.unwrap();
            assert_eq!(surely_heard(&mut stream, 3).await, "one");
            stall(&link);
            link.heal();
            stream.write_all(b"two").await.unwrap();
            assert_eq!(heard(&mut stream, 1).await, None);
            let mut other = TcpStream::connect(link.address()).await.unwrap();
            other.write_all(b"new").await.unwrap();
            assert_eq!(surely_heard(&mut other, 3).await, "new");
            link.resume();
            assert_eq!(surely_heard(&mut stream, 3).await, "two");
        }
    }

    #[tokio::test]
    async fn connections_stall_at_a_message() {
        let (link, mut stream) = echo().await;
        link.stall_at(Some(b"two"));
        stream.write_all(b"one").await.unwrap();
        assert_eq!(surely_heard(&mut stream, 3).await, "one");
        assert!(link.is_to_stall());
        stream.write_all(b"and two").await.unwrap();
        assert_eq!(heard(&mut stream, 1).await, None);
        assert!(!link.is_to_stall());
        link.resume();
        assert_eq!(surely_heard(&mut stream, 7).await, "and two");
        stream.write_all(b"two").await.unwrap();
        assert_eq!(surely_heard(&mut stream, 3).await, "two", "it is the first one only");
    }

    #[tokio::test]
    async fn old_connections_resume_when_newer_ones_stall_in_their_place() {
        let (link, mut old) = echo().await;
        old.write_all(b"one").await.unwrap();
        assert_eq!(surely_heard(&mut old, 3).await, "one");
        link.stall_towards();
        old.write_all(b"two").await.unwrap();
        let mut newer = TcpStream::connect(link.address()).await.unwrap();
        newer.write_all(b"new").await.unwrap();
        assert_eq!(surely_heard(&mut newer, 3).await, "new");
        link.stall_newer_towards();
        newer.write_all(b"newer").await.unwrap();
        assert_eq!(surely_heard(&mut old, 3).await, "two");
        assert_eq!(heard(&mut newer, 1).await, None);
        link.resume();
        assert_eq!(surely_heard(&mut newer, 5).await, "newer");
    }

    #[tokio::test]
    async fn what_a_stalled_connection_holds_back_outlives_its_sender() {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
        let link = Link::to(listener.local_addr().unwrap(), &Handle::current()).unwrap();
        let mut stream = TcpStream::connect(link.address()).await.unwrap();
        let (mut far, _) = listener.accept().await.unwrap();
        link.stall_towards();
        stream.write_all(b"late").await.unwrap();
        drop(stream);
        assert_eq!(heard(&mut far, 1).await, None);
        link.resume();
        assert_eq!(surely_heard(&mut far, 4).await, "late");
        assert_eq!(far.read(&mut [0]).await.unwrap(), 0, "then it is closed");
    }
}
