//! A link between two processes that can be made bad: a small TCP proxy, for each link one.
//!
//! What is delayed stays in order, as in TCP. A link can be bad in two ways:
//! - *Silent*: what its connections carry vanishes, for ever; new connections are good. So it is when a host that
//!   forwards packets forgets them.
//! - *Cut*, in one direction or both: nothing arrives until it is [healed](Link::heal), then all of it does, late. So
//!   it is when a cable is pulled: TCP sends again what was lost, and old messages turn up at a bad time.
//!
//! A cut end still accepts connections (the kernel does that for a stopped process, too); they stay silent.

use std::{
    io,
    net::{Ipv4Addr, SocketAddr},
    sync::{
        Arc,
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

/// One direction.
struct Direction {
    /// Connections with a number below lose what they carry.
    silent_below: AtomicUsize,
    delay_ms: AtomicU64,
    cut: watch::Sender<bool>,
}

impl Direction {
    fn good() -> Direction {
        Direction { silent_below: AtomicUsize::new(0), delay_ms: AtomicU64::new(0), cut: watch::Sender::new(false) }
    }

    async fn whole(&self) {
        // An error is impossible: the sender is in `self`.
        let _ = self.cut.subscribe().wait_for(|cut| !cut).await;
    }
}

struct Shared {
    target: SocketAddr,
    there: Direction,
    back: Direction,
    connections: AtomicUsize,
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
        let millis = u64::try_from(delay.as_millis()).unwrap_or(u64::MAX);
        self.shared.there.delay_ms.store(millis, Ordering::Relaxed);
        self.shared.back.delay_ms.store(millis, Ordering::Relaxed);
    }

    /// The connections that there are go silent for ever; new ones are good.
    pub fn silence(&self) {
        self.silence_towards();
        self.shared.back.silent_below.store(self.connections(), Ordering::Relaxed);
    }

    /// As [`silence`](Self::silence), but what the target sends still arrives.
    pub fn silence_towards(&self) {
        self.shared.there.silent_below.store(self.connections(), Ordering::Relaxed);
    }

    /// Nothing arrives any more, in either direction, until it is healed.
    pub fn cut(&self) {
        self.cut_towards();
        self.cut_back();
    }

    /// Nothing arrives at the target any more; what it sends does.
    pub fn cut_towards(&self) {
        self.shared.there.cut.send_replace(true);
    }

    /// Nothing arrives from the target any more; what is sent to it does.
    pub fn cut_back(&self) {
        self.shared.back.cut.send_replace(true);
    }

    /// What was held back by a cut arrives now, in order, and the link is good again.
    pub fn heal(&self) {
        self.shared.there.cut.send_replace(false);
        self.shared.back.cut.send_replace(false);
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
    shared.there.whole().await;
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
    tokio::spawn(deliver(receive, to, Arc::clone(&shared), which));
    take(from, send, &shared, number, which).await;
}

/// Reads along and notes when each piece is to arrive.
async fn take(
    mut from: OwnedReadHalf,
    send: mpsc::Sender<(Instant, Vec<u8>)>,
    shared: &Shared,
    number: usize,
    which: Which,
) {
    let mut buffer = vec![0; 16 << 10];
    while let Ok(length @ 1..) = from.read(&mut buffer).await {
        let direction = which(shared);
        if number < direction.silent_below.load(Ordering::Relaxed) {
            continue;
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
    which: Which,
) {
    while let Some((due, piece)) = receive.recv().await {
        sleep_until(due).await;
        which(&shared).whole().await;
        if to.write_all(&piece).await.is_err() {
            return;
        }
    }
    // The other side has closed: so does this one, which a cut delays like everything else.
    which(&shared).whole().await;
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
    async fn silence_is_for_ever_and_for_those_that_are_there() {
        let (link, mut stream) = echo().await;
        stream.write_all(b"one").await.unwrap();
        assert_eq!(surely_heard(&mut stream, 3).await, "one");
        link.silence();
        link.heal();
        stream.write_all(b"two").await.unwrap();
        assert_eq!(heard(&mut stream, 1).await, None);
        let mut other = TcpStream::connect(link.address()).await.unwrap();
        other.write_all(b"new").await.unwrap();
        assert_eq!(surely_heard(&mut other, 3).await, "new");
    }
}
