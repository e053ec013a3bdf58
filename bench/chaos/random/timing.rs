//! How soon peers replace a silent master: `--timing`, as `leaseway serve` takes it.

use std::{str::FromStr, time::Duration};

/// What runs take in turn, so that short and long vote leases are tried alike.
const IN_TURN: [&str; 3] = ["one-site", "several-sites", "1000,3000,5000"];

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct PeerTiming {
    /// As it is given to a server.
    pub(super) flag: String,
    pub(super) heartbeat: Duration,
    /// How long a peer leases its vote to a master.
    pub(super) vote_lease: Duration,
}

impl FromStr for PeerTiming {
    type Err = String;

    fn from_str(text: &str) -> Result<PeerTiming, String> {
        let [heartbeat, _, longest] = match text {
            "one-site" => [50, 150, 250],
            "several-sites" => [250, 750, 1250],
            _ => {
                let numbers: Result<Vec<u64>, _> = text.split(',').map(str::parse).collect();
                let expected = "expected one-site, several-sites, or HEARTBEAT,MIN,MAX in milliseconds";
                numbers.ok().and_then(|numbers| numbers.try_into().ok()).ok_or(expected)?
            }
        };
        let [heartbeat, vote_lease] = [heartbeat, longest].map(Duration::from_millis);
        Ok(PeerTiming { flag: text.to_owned(), heartbeat, vote_lease })
    }
}

impl PeerTiming {
    /// The timing of a seed. Those of two that follow each other may be the same: only one of them is over TLS.
    pub(super) fn in_turn(seed: u64) -> PeerTiming {
        let turn = (seed / 2 % IN_TURN.len() as u64) as usize;
        IN_TURN[turn].parse().expect("it is one of ours")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_timing_has_its_turn_with_and_without_tls() {
        let mut all: Vec<_> = (0..6).map(|seed| (PeerTiming::in_turn(seed).flag, seed % 2)).collect();
        all.sort();
        all.dedup();
        assert_eq!(all.len(), 6);
        let long = PeerTiming::in_turn(4);
        assert_eq!((long.heartbeat, long.vote_lease), (Duration::from_secs(1), Duration::from_secs(5)));
    }

    #[test]
    fn a_timing_that_no_server_takes_is_refused() {
        for text in ["", "two-sites", "1,2", "1,2,3,4", "1,2,x"] {
            assert!(text.parse::<PeerTiming>().unwrap_err().contains("HEARTBEAT,MIN,MAX"), "{text}");
        }
    }
}
