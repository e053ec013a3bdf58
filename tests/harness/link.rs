//! A link between two processes that can be made bad: a small TCP proxy of a test's own, for each link one.
//!
//! What is delayed stays in order, as in TCP. What is cut says nothing: the connection stays open and what is sent
//! vanishes, in both directions or in one, until it is healed or the connection is closed.

use std::{
    net::SocketAddr,
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
    sync::mpsc,
    time::{Instant, sleep_until},
};

use super::wait::{block_on, runtime};

/// One direction.
#[derive(Default)]
struct Direction {
    /// Connections with a number below lose what they carry.
    silent_below: AtomicUsize,
    delay_ms: AtomicU64,
}

struct Shared {
    target: SocketAddr,
    there: Direction,
    back: Direction,
    connections: AtomicUsize,
}

pub(crate) struct Link {
    address: SocketAddr,
    shared: Arc<Shared>,
}

impl Link {
    /// A good link to `target`.
    pub(crate) fn to(target: SocketAddr) -> Link {
        let shared = Arc::new(Shared {
            target,
            there: Direction::default(),
            back: Direction::default(),
            connections: AtomicUsize::new(0),
        });
        let listener = block_on(TcpListener::bind("127.0.0.1:0")).unwrap();
        let address = listener.local_addr().unwrap();
        runtime().spawn(accept(listener, Arc::clone(&shared)));
        Link { address, shared }
    }

    /// Where to connect to instead.
    pub(crate) fn address(&self) -> String {
        self.address.to_string()
    }

    /// Everything takes so long from now on, in each direction.
    pub(crate) fn delay(&self, delay: Duration) {
        let millis = delay.as_millis().try_into().unwrap();
        self.shared.there.delay_ms.store(millis, Ordering::Relaxed);
        self.shared.back.delay_ms.store(millis, Ordering::Relaxed);
    }

    /// The connections that there are go silent for ever; new ones are good.
    pub(crate) fn silence(&self) {
        self.silence_towards();
        self.shared.back.silent_below.store(self.connections(), Ordering::Relaxed);
    }

    /// As [`silence`](Self::silence), but what the target sends still arrives.
    pub(crate) fn silence_towards(&self) {
        self.shared.there.silent_below.store(self.connections(), Ordering::Relaxed);
    }

    /// How many there have been.
    pub(crate) fn connections(&self) -> usize {
        self.shared.connections.load(Ordering::Relaxed)
    }
}

async fn accept(listener: TcpListener, shared: Arc<Shared>) {
    while let Ok((near, _)) = listener.accept().await {
        let number = shared.connections.fetch_add(1, Ordering::Relaxed);
        // Nobody is there: the connection closes, as it would without a proxy.
        let Ok(far) = TcpStream::connect(shared.target).await else { continue };
        let _ = (near.set_nodelay(true), far.set_nodelay(true));
        let (near_read, near_write) = near.into_split();
        let (far_read, far_write) = far.into_split();
        tokio::spawn(carry(near_read, far_write, Arc::clone(&shared), number, |shared| &shared.there));
        tokio::spawn(carry(far_read, near_write, Arc::clone(&shared), number, |shared| &shared.back));
    }
}

type Which = fn(&Shared) -> &Direction;

async fn carry(from: OwnedReadHalf, to: OwnedWriteHalf, shared: Arc<Shared>, number: usize, which: Which) {
    let (send, receive) = mpsc::channel(64);
    tokio::spawn(deliver(receive, to));
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

async fn deliver(mut receive: mpsc::Receiver<(Instant, Vec<u8>)>, mut to: OwnedWriteHalf) {
    while let Some((due, piece)) = receive.recv().await {
        sleep_until(due).await;
        if to.write_all(&piece).await.is_err() {
            return;
        }
    }
    // The other side has closed: so does this one.
    let _ = to.shutdown().await;
}
