//! What is seen of the peers from outside, by whom and since when: which answers count after a fault.

use std::{
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Instant,
};

/// How often each peer was started.
#[derive(Clone)]
pub(super) struct Lives(Arc<Vec<AtomicU64>>);

impl Lives {
    pub(super) fn of(peers: usize) -> Lives {
        Lives(Arc::new((0..peers).map(|_| AtomicU64::new(0)).collect()))
    }

    pub(super) fn begin(&self, peer: usize) {
        self.0[peer].fetch_add(1, Ordering::Relaxed);
    }

    pub(super) fn life(&self, peer: usize) -> u64 {
        self.0[peer].load(Ordering::Relaxed)
    }
}

/// An answer that says "I am the master", or could only come from one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Sighting {
    pub(super) peer: usize,
    pub(super) life: u64,
    /// When the question was sent.
    pub(super) asked: Instant,
    /// When the answer was there.
    pub(super) at: Instant,
}

/// Which answers count.
#[derive(Clone, Copy, Debug)]
pub(super) struct Wanted {
    /// Asked no sooner.
    pub(super) since: Instant,
    /// Not from this peer while it is in this life: from the master that was hit.
    pub(super) not: Option<(usize, u64)>,
}

impl Wanted {
    pub(super) fn is(&self, seen: &Sighting) -> bool {
        seen.asked >= self.since && self.not != Some((seen.peer, seen.life))
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn the_former_master_counts_in_its_next_life_and_nothing_counts_that_was_asked_before() {
        let since = Instant::now();
        let early = since - Duration::from_millis(1);
        let seen = |peer, life, asked| Sighting { peer, life, asked, at: asked };
        let wanted = Wanted { since, not: Some((0, 1)) };
        assert!(!wanted.is(&seen(0, 1, since)) && wanted.is(&seen(0, 2, since)) && wanted.is(&seen(1, 1, since)));
        assert!(!wanted.is(&seen(1, 1, early)));
        assert!(Wanted { since, not: None }.is(&seen(0, 1, since)));
    }

    #[test]
    fn lives_are_counted_by_peer() {
        let lives = Lives::of(2);
        lives.begin(1);
        assert_eq!((lives.life(0), lives.life(1)), (0, 1));
    }
}
