//! What is done to the peers, and to whom: decided before anything happens, and repeatable from a seed.

use std::time::Duration;

use clap::ValueEnum;
use serde::Serialize;

use crate::error::Error;

/// What a run does, round after round.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum, Serialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Fault {
    /// SIGKILL of the master; it is started again with the same data.
    Kill,
    /// SIGTERM of the master; it is started again.
    Term,
    /// SIGSTOP of the master, and SIGCONT later.
    Pause,
    /// The master loses its peers, but not its clients.
    CutMaster,
    /// A follower loses its peers.
    CutOne,
    /// Nobody reaches any peer. Times count from when that ends.
    CutAll,
    /// A follower is killed, loses its data and starts again.
    Wipe,
    /// As many are killed as a quorum can do without, the master among them.
    Minority,
    /// Each peer in turn gets SIGTERM and is started again at once.
    Rolling,
    /// One of these, but not rolling, by chance.
    Mixed,
}

/// What can happen by chance.
const MIXED: [Fault; 8] = [
    Fault::Kill,
    Fault::Term,
    Fault::Pause,
    Fault::CutMaster,
    Fault::CutOne,
    Fault::CutAll,
    Fault::Wipe,
    Fault::Minority,
];

/// One blow. Rolling rounds have one for each peer, others have one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Blow {
    pub(crate) kind: Fault,
    victims: Victims,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Victims {
    Master,
    /// The master and so many others.
    MasterAnd(usize),
    Follower,
    Peer(usize),
    All,
}

impl Fault {
    pub(crate) fn name(self) -> String {
        self.to_possible_value().map_or_else(String::new, |value| value.get_name().to_owned())
    }

    /// How many peers it takes to go on without the victims.
    fn least_peers(self) -> usize {
        match self {
            Fault::Kill | Fault::Term | Fault::Pause | Fault::Rolling | Fault::Mixed => 1,
            Fault::CutMaster | Fault::CutOne | Fault::CutAll | Fault::Wipe | Fault::Minority => 3,
        }
    }

    pub(crate) fn check(self, peers: usize) -> Result<(), Error> {
        let least = self.least_peers();
        if peers >= least {
            return Ok(());
        }
        Err(Error::Usage(format!("--fault {} needs at least {least} peers, and --peers is {peers}", self.name())))
    }

    /// What a round does.
    pub(crate) fn blows(self, peers: usize, random: &mut fastrand::Rng) -> Vec<Blow> {
        let victims = match self {
            Fault::Kill | Fault::Term | Fault::Pause | Fault::CutMaster => Victims::Master,
            Fault::CutOne | Fault::Wipe => Victims::Follower,
            Fault::CutAll => Victims::All,
            Fault::Minority => Victims::MasterAnd((peers - 1) / 2 - 1),
            Fault::Rolling => {
                return (0..peers).map(|peer| Blow { kind: self, victims: Victims::Peer(peer) }).collect();
            }
            Fault::Mixed => {
                let possible: Vec<_> = MIXED.into_iter().filter(|fault| fault.least_peers() <= peers).collect();
                return possible[random.usize(..possible.len())].blows(peers, random);
            }
        };
        vec![Blow { kind: self, victims }]
    }
}

impl Blow {
    /// Whom it hits, now that the master is known.
    pub(crate) fn victims(&self, master: usize, peers: usize, random: &mut fastrand::Rng) -> Vec<usize> {
        let mut followers: Vec<_> = (0..peers).filter(|peer| *peer != master).collect();
        random.shuffle(&mut followers);
        match self.victims {
            Victims::Master => vec![master],
            Victims::MasterAnd(others) => [master].into_iter().chain(followers.into_iter().take(others)).collect(),
            Victims::Follower => followers.into_iter().take(1).collect(),
            Victims::Peer(peer) => vec![peer],
            Victims::All => (0..peers).collect(),
        }
    }

    /// Whether the set can have a master again before this is over.
    pub(crate) fn leaves_a_quorum(&self, peers: usize) -> bool {
        self.kind != Fault::CutAll && peers > 1
    }

    /// How long it lasts.
    pub(crate) fn lasts(&self, down: Duration) -> Duration {
        if self.kind == Fault::Rolling { Duration::ZERO } else { down }
    }

    /// Under which name it is measured.
    pub(crate) fn label(&self, hits_master: bool) -> String {
        match (self.kind, hits_master) {
            (Fault::Rolling, true) => "rolling: the master".into(),
            (Fault::Rolling, false) => "rolling: a follower".into(),
            (kind, _) => kind.name(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rng() -> fastrand::Rng {
        fastrand::Rng::with_seed(7)
    }

    fn victims(fault: Fault, peers: usize, master: usize) -> Vec<usize> {
        let blows = fault.blows(peers, &mut rng());
        assert_eq!(blows.len(), 1);
        blows[0].victims(master, peers, &mut rng())
    }

    #[test]
    fn each_fault_hits_whom_it_is_for() {
        for master in 0..3 {
            for fault in [Fault::Kill, Fault::Term, Fault::Pause, Fault::CutMaster, Fault::Minority] {
                assert_eq!(victims(fault, 3, master), [master], "{fault:?}");
            }
            for fault in [Fault::CutOne, Fault::Wipe] {
                let hit = victims(fault, 3, master);
                assert!(hit.len() == 1 && hit[0] != master && hit[0] < 3, "{fault:?} hits {hit:?}");
            }
            assert_eq!(victims(Fault::CutAll, 3, master), [0, 1, 2]);
        }
    }

    #[test]
    fn a_minority_is_the_master_and_as_many_as_a_quorum_can_spare() {
        for (peers, size) in [(3, 1), (4, 1), (5, 2), (7, 3), (9, 4)] {
            let mut hit = victims(Fault::Minority, peers, 2);
            assert_eq!(hit[0], 2);
            hit.sort_unstable();
            hit.dedup();
            assert_eq!(hit.len(), size, "of {peers}");
        }
    }

    #[test]
    fn rolling_hits_everybody_once_and_without_a_pause() {
        let blows = Fault::Rolling.blows(3, &mut rng());
        let hit: Vec<_> = blows.iter().flat_map(|blow| blow.victims(1, 3, &mut rng())).collect();
        assert_eq!(hit, [0, 1, 2]);
        assert_eq!(blows[0].lasts(Duration::from_secs(2)), Duration::ZERO);
        assert_eq!(
            (blows[0].label(true), blows[1].label(false)),
            ("rolling: the master".into(), "rolling: a follower".into())
        );
    }

    #[test]
    fn chance_is_repeatable_and_leaves_nothing_out_that_is_possible() {
        let run = |peers| {
            let mut random = rng();
            (0..300).map(|_| Fault::Mixed.blows(peers, &mut random)[0].kind).collect::<Vec<_>>()
        };
        assert_eq!(run(3), run(3));
        assert!(MIXED.iter().all(|fault| run(3).contains(fault)));
        assert!(run(1).iter().all(|fault| matches!(fault, Fault::Kill | Fault::Term | Fault::Pause)));
    }

    #[test]
    fn faults_that_need_others_are_refused_without() {
        for fault in MIXED.into_iter().chain([Fault::Rolling, Fault::Mixed]) {
            assert!(fault.check(3).is_ok());
            let alone = matches!(fault, Fault::Kill | Fault::Term | Fault::Pause | Fault::Rolling | Fault::Mixed);
            assert_eq!(fault.check(1).is_ok(), alone, "{fault:?}");
        }
        let said = Fault::CutMaster.check(2).unwrap_err().to_string();
        assert_eq!(said, "--fault cut-master needs at least 3 peers, and --peers is 2");
    }
}
