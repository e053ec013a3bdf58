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
    tests::cluster::Cluster,
};

/// Checks all leases so far, all at the same time.
#[derive(Clone, Default)]
pub(super) struct LeaseWatcher {
    peers: Arc<Mutex<Vec<watch::Receiver<Mastership>>>>,
    stop: Arc<AtomicBool>,
}

impl LeaseWatcher {
    pub(super) fn watch(&self, peer: &RaftHandle) {
        self.peers.lock().unwrap().push(peer.mastership());
    }

    pub(super) fn start(cluster: &Cluster) -> (LeaseWatcher, JoinHandle<(usize, usize)>) {
        let (watcher, clock) = (LeaseWatcher::default(), cluster.clock());
        let watching = watcher.clone();
        (watcher, std::thread::spawn(move || watching.run(&clock)))
    }

    /// The number of leases, and the number of checks at which one held.
    fn run(&self, clock: &Clock) -> (usize, usize) {
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
            // A lease that began after this time does not count.
            let at_once: Vec<_> = leases.iter().filter(|lease| lease.since() <= now && lease.holds(now)).collect();
            assert!(at_once.len() <= 1, "at {now:?} all of these hold: {at_once:?}");
            held += at_once.len();
            std::thread::sleep(Duration::from_micros(500));
        }
        (leases.len(), held)
    }

    /// The number of leases, and the number of checks at which one held. Panics if two held at once.
    pub(super) fn stop(&self, watching: JoinHandle<(usize, usize)>) -> (usize, usize) {
        self.stop.store(true, Ordering::SeqCst);
        watching.join().expect("no two leases ever held at once")
    }
}
