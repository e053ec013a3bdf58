//! Asserts that no two master leases hold at the same time.

use std::{
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, Ordering},
    },
    thread::JoinHandle,
    time::Duration,
};

use tokio::sync::watch;

use crate::{
    election::master_lease::{MasterLease, Mastership},
    handle::RaftHandle,
    state::machine::Clock,
    tests::harness::cluster::Cluster,
};

/// A thread that checks all leases every half millisecond.
pub(crate) struct LeaseWatcher {
    watched: Arc<Watched>,
    thread: JoinHandle<(usize, usize)>,
}

#[derive(Default)]
struct Watched {
    peers: Mutex<Vec<watch::Receiver<Mastership>>>,
    stop: AtomicBool,
}

impl LeaseWatcher {
    /// Watches the running peers of a cluster.
    pub(crate) fn start(cluster: &Cluster) -> LeaseWatcher {
        let (watched, clock) = (Arc::<Watched>::default(), cluster.clock());
        let watcher = LeaseWatcher {
            watched: Arc::clone(&watched),
            thread: std::thread::spawn(move || watched.check_until_stopped(&clock)),
        };
        cluster.running().for_each(|(_, peer)| watcher.watch(peer));
        watcher
    }

    pub(crate) fn watch(&self, peer: &RaftHandle) {
        self.watched.peers.lock().unwrap().push(peer.mastership());
    }

    /// The number of leases, and the number of checks at which one held. Panics if two ever held at the same time.
    pub(crate) fn stop(self) -> (usize, usize) {
        self.watched.stop.store(true, Ordering::SeqCst);
        self.thread.join().expect("no two leases ever held at once")
    }
}

impl Watched {
    fn check_until_stopped(&self, clock: &Clock) -> (usize, usize) {
        let mut leases: Vec<MasterLease> = Vec::new();
        let mut held = 0;
        while !self.stop.load(Ordering::SeqCst) {
            for peer in self.peers.lock().unwrap().iter() {
                if let Mastership::Master(lease) = &*peer.borrow()
                    && !leases.iter().any(|known| known.term() == lease.term())
                {
                    leases.push(lease.clone());
                }
            }
            let now = clock();
            // Ignore leases that began after `now` was read.
            let holding: Vec<_> = leases.iter().filter(|lease| lease.since() <= now && lease.holds(now)).collect();
            assert!(holding.len() <= 1, "at {now:?} all of these hold: {holding:?}");
            held += holding.len();
            std::thread::sleep(Duration::from_micros(500));
        }
        (leases.len(), held)
    }
}
