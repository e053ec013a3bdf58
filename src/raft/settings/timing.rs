//! Timeouts of elections and leases, and the reason why they are safe.

use std::time::Duration;

use leaseway_core::types::Millis;

/// How quickly mastership moves, and how much network delay it tolerates.
///
/// `accepted_timings_are_safe` asserts two properties of every accepted timing, for clocks whose rates are off by up
/// to one part in a thousand:
///
/// 1. One master: a master lease ends at most [`reliable`](Timing::reliable) after the request that a quorum confirmed
///    it by, and that quorum votes for no other peer within [`lease`](Timing::lease) of its answer.
/// 2. No capacity is leased twice, even if the first property failed: a quorum confirms no lease after it has voted for
///    the next master. So a former lease ends within [`overlap`](Timing::overlap) of the beginning of the next one. The
///    next master assumes that former masters gave client leases until then, and counts them in the total it inherits.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Timing {
    heartbeat: u64,
    election_min: u64,
    election_max: u64,
}

/// Why a timing cannot work.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum TimingError {
    /// Each heartbeat costs a message to every peer.
    #[error("a heartbeat must be at least 10 ms, not {0} ms")]
    Heartbeat(u64),
    /// One lost heartbeat must not end a mastership.
    #[error("the shortest election timeout must be at least two heartbeats ({} ms), not {min} ms", heartbeat * 2)]
    TooSoon {
        heartbeat: u64,
        /// The shortest election timeout.
        min: u64,
    },
    /// Candidates that start at the same moment split the votes.
    #[error(
        "the longest election timeout ({max} ms) must be at least a quarter above the shortest ({min} ms), and at \
         most 60 s"
    )]
    Range { min: u64, max: u64 },
}

impl Timing {
    /// For peers within a few milliseconds of each other. After a master dies there is no master for about 0.3 s. A
    /// master that is not scheduled for up to 0.2 s, as happens on loaded machines, remains master.
    pub const ONE_SITE: Timing = Timing { heartbeat: 50, election_min: 150, election_max: 250 };
    /// For peers with a round trip of up to 0.2 s.
    pub const SEVERAL_SITES: Timing = Timing { heartbeat: 250, election_min: 750, election_max: 1250 };

    /// In milliseconds: the heartbeat interval, and the time that a peer leases its vote to a candidate
    /// (`election_min`) and to a master (`election_max`), counted from the last message.
    pub fn new(heartbeat: u64, election_min: u64, election_max: u64) -> Result<Timing, TimingError> {
        if heartbeat < 10 {
            Err(TimingError::Heartbeat(heartbeat))
        } else if election_min < heartbeat.saturating_mul(2) {
            Err(TimingError::TooSoon { heartbeat, min: election_min })
        } else if election_max < election_min.saturating_add(election_min / 4) || election_max > 60_000 {
            Err(TimingError::Range { min: election_min, max: election_max })
        } else {
            Ok(Timing { heartbeat, election_min, election_max })
        }
    }

    pub(crate) fn heartbeat(self) -> Duration {
        Duration::from_millis(self.heartbeat)
    }

    /// The time limit of an election, for which a peer leases its vote to a candidate.
    pub(crate) fn election_min(self) -> Duration {
        Duration::from_millis(self.election_min)
    }

    /// The time for which a follower leases its vote to its master.
    pub(crate) fn lease(self) -> Millis {
        Millis(self.election_max)
    }

    /// The part of [`lease`](Timing::lease) that a master relies on. Either clock may be off by one part in a thousand,
    /// and each is read in whole milliseconds, which hides up to one.
    pub(crate) fn reliable(self) -> Millis {
        Millis(self.election_max - self.election_max.div_ceil(500) - 2)
    }

    /// The longest time that a former master lease may hold after the next one has begun, on the new master's clock.
    pub(crate) fn overlap(self) -> Millis {
        self.lease()
    }

    /// The time after which a vote lease has ended on any clock.
    pub(crate) fn certainly_over(self) -> Duration {
        Duration::from_millis(self.election_max + self.election_max.div_ceil(499) + 3)
    }
}

#[cfg(test)]
mod tests {
    use leaseway_core::{
        lease::promises::{Changes, Promises},
        types::{Amount, ClusterClock, ClusterTime, Epoch},
    };

    use super::*;

    /// A timing for every accepted election timeout; its other values do not matter here.
    fn accepted() -> impl Iterator<Item = Timing> {
        let shortest = |max| Timing::new(10, 20, max).ok();
        let all: Vec<Timing> = (0..=60_001).filter_map(shortest).collect();
        assert_eq!((all[0].election_max, all[all.len() - 1].election_max), (25, 60_000));
        let known = [Timing::ONE_SITE, Timing::SEVERAL_SITES, Timing::new(1000, 3000, 5000).expect("accepted")];
        all.into_iter().chain(known)
    }

    /// The microsecond by which a clock that is slow by a thousandth has passed `reading` milliseconds.
    fn at_the_latest(reading: u64) -> u64 {
        (reading + 1) * 1_000_000 / 999 + 1
    }

    /// The first microsecond at which a clock that is fast by a thousandth shows `reading` milliseconds.
    fn at_the_earliest(reading: u64) -> u64 {
        (reading - 1) * 1_000_000 / 1001
    }

    #[test]
    fn accepted_timings_are_safe() {
        const LEASE: u64 = 60_000;
        let changes = Changes {
            epoch: Epoch(1),
            number: 1,
            total: Amount::clamped(1.0),
            horizon: Some(ClusterTime(10 * LEASE)),
            lease: Some(Millis(LEASE)),
            high_water_mark: None,
            wants: None,
            parts: Vec::new(),
            period: None,
        };
        let mut promises = Promises::default();
        promises.apply(&changes, ClusterTime(0)).expect("in order");
        for timing in accepted() {
            // All times count from the last confirmation of the former lease: then at the earliest a voter leases its
            // vote, and the next lease begins.
            let ends = at_the_latest(timing.reliable().0);
            assert!(ends <= at_the_earliest(timing.lease().0), "{timing:?}: two masters");
            assert!(ends <= at_the_earliest(timing.overlap().0), "{timing:?}: two sums");
            let certainly_over = timing.certainly_over().as_millis() as u64;
            assert!(at_the_latest(timing.lease().0) <= at_the_earliest(certainly_over), "{timing:?}: a restart");
            // The last client lease of the former master, at a holder that rounds up and has a slow clock.
            let believed = ends.div_ceil(1000) + LEASE + LEASE / 1000 + 1000;
            let until =
                promises.believed_until(ClusterClock::default(), Millis(0), timing.overlap()).expect("it is counted");
            assert!(Millis(believed) <= until, "{timing:?}: {believed} {until:?}");
        }
    }
}
