//! A TCP proxy between two processes that injects network faults.
//!
//! Delayed data stays in order, as in TCP. There are two more faults, each in one direction or both:
//! - *Stalled*: existing connections deliver nothing until they [resume](Link::resume); new connections work. This
//!   happens when a forwarding host forgets a connection, or when TCP backs off after losses. A message may arrive long
//!   after the two sides switched to newer connections, and after its sender closed the old one.
//! - *Cut*: nothing is delivered until the link is [healed](Link::heal); then all data arrives late. This happens when
//!   a cable is pulled: TCP retransmits the lost data, and old messages arrive at a bad time.
//!
//! A cut link still accepts connections, as the kernel does for a stopped process. They stay silent.

use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::ops::Range;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::net::{TcpListener, TcpStream};
use tokio::runtime::Handle;
use tokio::sync::{mpsc, watch};
use tokio::task::JoinHandle;
use tokio::time::{Instant, sleep_until};

struct Direction {
    delay_ms: AtomicU64,
    faults: watch::Sender<Faults>,
}

/// The faults of a direction.
#[derive(Default)]
struct Faults {
    is_cut: bool,
    /// The numbers of the stalled connections.
    stalled: Range<usize>,
}

impl Direction {
    fn new() -> Direction {
        Direction { delay_ms: AtomicU64::new(0), faults: watch::Sender::default() }
    }

    /// Waits until the connection may deliver. Returns whether it was stalled.
    async fn wait(&self, number: usize) -> bool {
        let was_stalled = self.faults.borrow().stalled.contains(&number);
        // This cannot fail, because the sender is in `self`.
        let free = |faults: &Faults| !faults.is_cut && !faults.stalled.contains(&number);
        let _ = self.faults.subscribe().wait_for(free).await;
        was_stalled
    }

    fn set_delay(&self, delay: Duration) {
        let millis = u64::try_from(delay.as_millis()).unwrap_or(u64::MAX);
        self.delay_ms.store(millis, Ordering::Relaxed);
    }

    fn set_cut(&self, is_cut: bool) {
        self.faults.send_modify(|faults| faults.is_cut = is_cut);
    }

    fn set_stalled(&self, stalled: Range<usize>) {
        self.faults.send_modify(|faults| faults.stalled = stalled);
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
    /// Stalls all connections if the data towards the target contains the awaited bytes.
    fn inspect(&self, piece: &[u8]) {
        let mut stall_at = self.stall_at.lock().unwrap_or_else(PoisonError::into_inner);
        if stall_at.is_some_and(|bytes| piece.windows(bytes.len()).any(|window| window == bytes)) {
            self.there.set_stalled(0..self.connections.load(Ordering::Relaxed));
            *stall_at = None;
        }
    }
}

/// A proxy to one address. Dropping it refuses new connections; existing ones go on until a side closes.
pub struct Link {
    address: SocketAddr,
    shared: Arc<Shared>,
    accepting: JoinHandle<()>,
}

impl Link {
    /// A link without faults. The server at `target` may start later. `runtime` must have worker threads.
    pub fn to(target: SocketAddr, runtime: &Handle) -> io::Result<Link> {
        let shared = Arc::new(Shared {
            target,
            there: Direction::new(),
            back: Direction::new(),
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

    /// The address of the proxy, as `HOST:PORT`.
    pub fn address(&self) -> String {
        self.address.to_string()
    }

    /// The port of the proxy.
    pub fn port(&self) -> u16 {
        self.address.port()
    }

    /// Delays data by this much in each direction.
    pub fn delay(&self, delay: Duration) {
        self.shared.there.set_delay(delay);
        self.shared.back.set_delay(delay);
    }

    /// Like [`delay`](Self::delay), towards the target only.
    pub fn delay_towards(&self, delay: Duration) {
        self.shared.there.set_delay(delay);
    }

    /// Stalls the existing connections until they [resume](Self::resume).
    pub fn stall(&self) {
        self.stall_towards();
        self.shared.back.set_stalled(0..self.connections());
    }

    /// Like [`stall`](Self::stall), towards the target only.
    pub fn stall_towards(&self) {
        self.shared.there.set_stalled(0..self.connections());
    }

    /// Stalls all connections towards the target as soon as one of them carries these bytes, and holds the bytes back.
    /// `None` cancels the stall.
    pub fn stall_at(&self, bytes: Option<&'static [u8]>) {
        *self.shared.stall_at.lock().unwrap_or_else(PoisonError::into_inner) = bytes;
    }

    /// Whether the bytes of [`stall_at`](Self::stall_at) are still awaited.
    pub fn waits_for_stall(&self) -> bool {
        self.shared.stall_at.lock().unwrap_or_else(PoisonError::into_inner).is_some()
    }

    /// Towards the target, resumes the stalled connections and stalls those made since.
    pub fn stall_newer_towards(&self) {
        let newer = |faults: &mut Faults| faults.stalled = faults.stalled.end..self.connections();
        self.shared.there.faults.send_modify(newer);
    }

    /// Delivers the data of stalled connections, also of those whose sender has closed them. Each connection delivers
    /// in order, at twice the pace at which the data was sent.
    pub fn resume(&self) {
        self.shared.there.set_stalled(0..0);
        self.shared.back.set_stalled(0..0);
    }

    /// Cuts both directions until the link is healed.
    pub fn cut(&self) {
        self.cut_towards();
        self.cut_back();
    }

    /// Cuts the direction to the target.
    pub fn cut_towards(&self) {
        self.shared.there.set_cut(true);
    }

    /// Cuts the direction from the target.
    pub fn cut_back(&self) {
        self.shared.back.set_cut(true);
    }

    /// Ends a cut: delivers the data held back, in order.
    pub fn heal(&self) {
        self.shared.there.set_cut(false);
        self.shared.back.set_cut(false);
    }

    /// The number of connections so far.
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
        tokio::spawn(connect(near, Arc::clone(&shared), number));
    }
}

async fn connect(near: TcpStream, shared: Arc<Shared>, number: usize) {
    shared.there.wait(number).await;
    // Without a server the connection closes, as it would without a proxy.
    let Ok(far) = TcpStream::connect(shared.target).await else { return };
    let _ = (near.set_nodelay(true), far.set_nodelay(true));
    let (near_read, near_write) = near.into_split();
    let (far_read, far_write) = far.into_split();
    tokio::spawn(carry(near_read, far_write, Arc::clone(&shared), number, |shared| &shared.there));
    tokio::spawn(carry(far_read, near_write, shared, number, |shared| &shared.back));
}

/// Selects one of the two directions.
type Side = fn(&Shared) -> &Direction;

async fn carry(from: OwnedReadHalf, to: OwnedWriteHalf, shared: Arc<Shared>, number: usize, side: Side) {
    let (send, receive) = mpsc::channel(64);
    tokio::spawn(deliver(receive, to, Arc::clone(&shared), number, side));
    read(from, send, &shared, side).await;
}

/// Reads data, and sets the time at which each piece is due.
async fn read(mut from: OwnedReadHalf, send: mpsc::Sender<(Instant, Vec<u8>)>, shared: &Shared, side: Side) {
    let direction = side(shared);
    let mut buffer = vec![0; 16 << 10];
    while let Ok(length @ 1..) = from.read(&mut buffer).await {
        if std::ptr::eq(direction, &shared.there) {
            shared.inspect(&buffer[..length]);
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
    side: Side,
) {
    let (mut has_stalled, mut before) = (false, None);
    while let Some((due, piece)) = receive.recv().await {
        sleep_until(due).await;
        has_stalled |= side(&shared).wait(number).await;
        // Keep half of the original distance between pieces while catching up.
        if let Some((due_before, delivered)) = before.filter(|_| has_stalled) {
            sleep_until(delivered + (due - due_before) / 2).await;
        }
        before = Some((due, Instant::now()));
        if to.write_all(&piece).await.is_err() {
            return;
        }
    }
    // The other side has closed. Close this side, too; faults delay the close like data.
    side(&shared).wait(number).await;
    let _ = to.shutdown().await;
}

#[cfg(test)]
mod tests {
    use super::*;

    /// An echo server, and a connection to it over a link.
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

    /// The data that arrives within 100 ms, which is ample for a link without faults.
    async fn received_soon(stream: &mut TcpStream, length: usize) -> Option<String> {
        let mut buffer = vec![0; length];
        let read = tokio::time::timeout(Duration::from_millis(100), stream.read_exact(&mut buffer)).await;
        read.ok().map(|_| String::from_utf8(buffer).unwrap())
    }

    async fn received(stream: &mut TcpStream, length: usize) -> String {
        let mut buffer = vec![0; length];
        let read = tokio::time::timeout(Duration::from_secs(30), stream.read_exact(&mut buffer)).await;
        read.expect("an echo").unwrap();
        String::from_utf8(buffer).unwrap()
    }

    #[tokio::test]
    async fn a_healed_link_delivers_held_data_in_order() {
        for cut in [Link::cut as fn(&Link), Link::cut_towards, Link::cut_back] {
            let (link, mut stream) = echo().await;
            stream.write_all(b"one").await.unwrap();
            assert_eq!(received(&mut stream, 3).await, "one");
            cut(&link);
            stream.write_all(b"two").await.unwrap();
            assert_eq!(received_soon(&mut stream, 1).await, None, "the link is cut");
            stream.write_all(b"three").await.unwrap();
            link.heal();
            assert_eq!(received(&mut stream, 8).await, "twothree");
        }
    }

    #[tokio::test]
    async fn connections_made_during_a_cut_work_when_it_is_healed() {
        let (link, _) = echo().await;
        link.cut();
        let mut stream = TcpStream::connect(link.address()).await.unwrap();
        stream.write_all(b"late").await.unwrap();
        assert_eq!(received_soon(&mut stream, 1).await, None);
        link.heal();
        assert_eq!(received(&mut stream, 4).await, "late");
    }

    #[tokio::test]
    async fn stalled_connections_resume_and_new_ones_work() {
        for stall in [Link::stall as fn(&Link), Link::stall_towards] {
            let (link, mut stream) = echo().await;
            stream.write_all(b"one").await.unwrap();
            assert_eq!(received(&mut stream, 3).await, "one");
            stall(&link);
            link.heal();
            stream.write_all(b"two").await.unwrap();
            assert_eq!(received_soon(&mut stream, 1).await, None);
            let mut other = TcpStream::connect(link.address()).await.unwrap();
            other.write_all(b"new").await.unwrap();
            assert_eq!(received(&mut other, 3).await, "new");
            link.resume();
            assert_eq!(received(&mut stream, 3).await, "two");
        }
    }

    #[tokio::test]
    async fn connections_stall_at_given_bytes() {
        let (link, mut stream) = echo().await;
        link.stall_at(Some(b"two"));
        stream.write_all(b"one").await.unwrap();
        assert_eq!(received(&mut stream, 3).await, "one");
        assert!(link.waits_for_stall());
        stream.write_all(b"and two").await.unwrap();
        assert_eq!(received_soon(&mut stream, 1).await, None);
        assert!(!link.waits_for_stall());
        link.resume();
        assert_eq!(received(&mut stream, 7).await, "and two");
        stream.write_all(b"two").await.unwrap();
        assert_eq!(received(&mut stream, 3).await, "two", "only once");
    }

    #[tokio::test]
    async fn newer_connections_stall_in_place_of_older_ones() {
        let (link, mut old) = echo().await;
        old.write_all(b"one").await.unwrap();
        assert_eq!(received(&mut old, 3).await, "one");
        link.stall_towards();
        old.write_all(b"two").await.unwrap();
        let mut newer = TcpStream::connect(link.address()).await.unwrap();
        newer.write_all(b"new").await.unwrap();
        assert_eq!(received(&mut newer, 3).await, "new");
        link.stall_newer_towards();
        newer.write_all(b"newer").await.unwrap();
        assert_eq!(received(&mut old, 3).await, "two");
        assert_eq!(received_soon(&mut newer, 1).await, None);
        link.resume();
        assert_eq!(received(&mut newer, 5).await, "newer");
    }

    #[tokio::test]
    async fn data_of_a_stalled_connection_outlives_its_sender() {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
        let link = Link::to(listener.local_addr().unwrap(), &Handle::current()).unwrap();
        let mut stream = TcpStream::connect(link.address()).await.unwrap();
        let (mut far, _) = listener.accept().await.unwrap();
        link.stall_towards();
        stream.write_all(b"late").await.unwrap();
        drop(stream);
        assert_eq!(received_soon(&mut far, 1).await, None);
        link.resume();
        assert_eq!(received(&mut far, 4).await, "late");
        assert_eq!(far.read(&mut [0]).await.unwrap(), 0, "then it is closed");
    }
}
