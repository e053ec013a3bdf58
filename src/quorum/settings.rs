//! The settings that a peer starts with.

use std::{fmt, net::SocketAddr, path::PathBuf, sync::Arc, time::Duration};

use leaseway_core::Millis;
use leaseway_tls::ClientTls;

use crate::{
    backup::Backup,
    fact::Configuration,
    incoming::{Accept, in_the_clear},
};

/// Monotonic milliseconds. Mastership and horizons are counted on it.
pub type Clock = Arc<dyn Fn() -> Millis + Send + Sync>;

/// The settings that a peer starts with: [`Settings::new`] for a lone one, then change what is different.
#[derive(Clone)]
pub struct Settings {
    /// This peer's name, as in `peers`.
    pub name: String,
    /// The directory that belongs to this peer alone.
    pub data: PathBuf,
    /// Read for every decision about mastership and horizons.
    pub clock: Clock,
    /// The address to listen on for other peers. Without it this peer is a quorum of one and listens nowhere.
    pub listen: Option<SocketAddr>,
    /// Where clients reach this peer: the other peers redirect them there while this one is master.
    pub advertise: String,
    /// All peers, this one included: name, and host and port of the peer listener. Empty for a lone one.
    pub peers: Vec<(String, String)>,
    /// This is the first start of all: nothing was ever promised. Harmless on a directory that has been used.
    pub bootstrap: bool,
    /// With `bootstrap`: this node has promised nothing, but it takes the place of another server, whose promises may
    /// be in force for `listening`, also where the configuration says less.
    pub take_over: bool,
    /// What a quorum that has no configuration begins with.
    pub first_configuration: Option<Configuration>,
    /// How long a quorum listens that begins without being told that it is the first: so long, facts that it knows
    /// nothing of may be in force.
    pub listening: Millis,
    /// What a quorum begins with that takes the place of a lost one, with `bootstrap`, `take_over` and `listening`.
    pub restored: Option<Arc<Backup>>,
    /// Known to all peers. Without it, and without `tls`, they listen on loopback only.
    pub secret: Option<Secret>,
    /// Connections to the other peers are made with it, and only a caller whose certificate is for the host of a peer
    /// is one; without it, they are in the clear.
    pub tls: Option<ClientTls>,
    /// How connections of the other peers come in: where `tls` is set, over TLS with a certificate of each.
    pub accept: Accept,
    /// The same on all peers.
    pub timing: Timing,
}

impl Settings {
    pub fn new(name: impl Into<String>, data: impl Into<PathBuf>, clock: Clock) -> Settings {
        Settings {
            name: name.into(),
            data: data.into(),
            clock,
            listen: None,
            advertise: String::new(),
            peers: Vec::new(),
            bootstrap: false,
            take_over: false,
            first_configuration: None,
            listening: Millis(0),
            restored: None,
            secret: None,
            tls: None,
            accept: in_the_clear(),
            timing: Timing::ONE_SITE,
        }
    }

    /// No other peer can be master.
    pub(crate) fn is_lone(&self) -> bool {
        self.listen.is_none()
    }

    /// No other peer is named. If it listens, others may be added.
    pub(crate) fn names_no_other_peer(&self) -> bool {
        self.peers.iter().all(|(name, _)| *name == self.name)
    }

    pub(crate) fn address_of(&self, name: &str) -> Option<&str> {
        self.peers.iter().find(|(peer, _)| peer == name).map(|(_, address)| address.as_str())
    }
}

impl fmt::Debug for Settings {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Settings")
            .field("name", &self.name)
            .field("data", &self.data)
            .field("listen", &self.listen)
            .field("advertise", &self.advertise)
            .field("peers", &self.peers)
            .field("bootstrap", &self.bootstrap)
            .field("timing", &self.timing)
            .finish_non_exhaustive()
    }
}

/// Keeps foreign processes and other clusters out. Peers prove that they know it; it is never sent. What they say to
/// each other can be read on the way, unless they have TLS.
#[derive(Clone)]
pub struct Secret(Arc<[u8]>);

impl Secret {
    /// From the bytes that the operator has chosen.
    pub fn new(secret: impl AsRef<[u8]>) -> Secret {
        Secret(secret.as_ref().into())
    }

    pub(crate) fn bytes(&self) -> &[u8] {
        &self.0
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Secret(…)")
    }
}

/// How quickly mastership moves, and how much delay of the network it bears.
///
/// What every timing promises, and `timings_keep_their_promises` asserts, for clocks that are off by up to one part in
/// a thousand each:
///
/// 1. One master: a reign lasts for at most [`reliable`](Timing::reliable) from before a quorum was asked, and that
///    quorum votes for no other peer within [`lease`](Timing::lease) of its answer.
/// 2. One sum, even if the first rule were broken: a quorum confirms no reign after it has voted for the next master.
///    So a former reign, which ends by itself, is over within [`overlap`](Timing::overlap) of the beginning of the next
///    one. The next master counts the leases of former ones from then on, not from when it began. What those leases
///    were given from is in the total that it starts with.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Timing {
    heartbeat: u64,
    election_min: u64,
    election_max: u64,
}

/// Why a timing cannot work.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum TimingError {
    /// Heartbeats cost a message to every peer each.
    #[error("a heartbeat must be at least 10 ms, not {0}")]
    Heartbeat(u64),
    /// One lost heartbeat must not end a mastership.
    #[error("elections must not begin before two heartbeats ({} ms), not after {min}", heartbeat * 2)]
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
    /// For peers with a few milliseconds between them. When a master dies there is none for about a third of a second.
    /// A master that is not scheduled for up to two tenths of a second, as happens on loaded machines, remains master.
    pub const ONE_SITE: Timing = Timing { heartbeat: 50, election_min: 150, election_max: 250 };
    /// For peers with a round trip of up to a fifth of a second.
    pub const SEVERAL_SITES: Timing = Timing { heartbeat: 250, election_min: 750, election_max: 1250 };

    /// In milliseconds: the interval of heartbeats; how long a peer leases its vote to a candidate (`election_min`) and
    /// to a master (`election_max`), counted from its last message.
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

    /// How long an election may take, and a peer leases its vote to a candidate.
    pub(crate) fn election_min(self) -> Duration {
        Duration::from_millis(self.election_min)
    }

    /// How long a follower leases its vote to its master.
    pub(crate) fn lease(self) -> Millis {
        Millis(self.election_max)
    }

    /// How long a master may rely on that. Followers count on clocks of their own: either may be off by one part in a
    /// thousand. Both clocks are read in whole milliseconds, which may hide one each.
    pub(crate) fn reliable(self) -> Millis {
        Millis(self.election_max - self.election_max.div_ceil(500) - 2)
    }

    /// For how long after the beginning of a reign a former one may hold at most, on the new master's clock: it was
    /// confirmed before, for [`reliable`](Timing::reliable) at most.
    pub(crate) fn overlap(self) -> Millis {
        self.lease()
    }

    /// After so long every vote lease has ended, on any follower's clock.
    pub(crate) fn certainly_over(self) -> Duration {
        Duration::from_millis(self.election_max + self.election_max.div_ceil(499) + 3)
    }
}

#[cfg(test)]
mod tests {
    use leaseway_core::{Amount, Changes, ClusterClock, ClusterTime, Epoch, Promises};

    use super::*;

    /// Every election timeout that any accepted timing has: nothing else of a timing counts here.
    fn accepted() -> impl Iterator<Item = Timing> {
        let shortest = |max| Timing::new(10, 20, max).ok();
        let all: Vec<Timing> = (0..=60_001).filter_map(shortest).collect();
        assert_eq!((all[0].election_max, all[all.len() - 1].election_max), (25, 60_000));
        let known = [Timing::ONE_SITE, Timing::SEVERAL_SITES, Timing::new(1000, 3000, 5000).expect("accepted")];
        all.into_iter().chain(known)
    }

    /// When a clock that is slow by a thousandth has certainly shown more than this, and one that is fast by a
    /// thousandth shows this at the earliest, in thousandths of a millisecond; readings hide up to a millisecond.
    fn at_the_latest(reading: u64) -> u64 {
        (reading + 1) * 1_000_000 / 999 + 1
    }

    fn at_the_earliest(reading: u64) -> u64 {
        (reading - 1) * 1_000_000 / 1001
    }

    #[test]
    fn timings_keep_their_promises() {
        const LEASE: u64 = 60_000;
        let changes = Changes {
            epoch: Epoch(1),
            number: 1,
            total: Amount::clamped(1.0),
            horizon: Some(ClusterTime(10 * LEASE)),
            lease: Some(Millis(LEASE)),
            counted_from: None,
            wants: None,
            parts: Vec::new(),
        };
        let mut promises = Promises::default();
        promises.apply(&changes, ClusterTime(0)).expect("in order");
        for timing in accepted() {
            // Counted from when the last quorum that confirms the former reign was asked, the earliest at which any of
            // it can lease its vote and at which the next reign can begin.
            let ends = at_the_latest(timing.reliable().0);
            assert!(ends <= at_the_earliest(timing.lease().0), "{timing:?}: two masters");
            assert!(ends <= at_the_earliest(timing.overlap().0), "{timing:?}: two sums");
            let certainly_over = timing.certainly_over().as_millis() as u64;
            assert!(at_the_latest(timing.lease().0) <= at_the_earliest(certainly_over), "{timing:?}: a restart");
            // The last lease of the former reign, at a holder that rounds up and has a slow clock.
            let believed = ends.div_ceil(1000) + LEASE + LEASE / 1000 + 1000;
            let until =
                promises.believed_until(ClusterClock::default(), Millis(0), timing.overlap()).expect("it is counted");
            assert!(Millis(believed) <= until, "{timing:?}: {believed} {until:?}");
        }
    }
}
