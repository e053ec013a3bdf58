//! What is done to the peers, and to which: decided before anything happens, and repeatable from a seed.

use clap::ValueEnum;

use crate::{error::Error, flags::word};

/// What a run does, round after round.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum ChaosFault {
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
    /// No peer reaches another. Times count from when that ends.
    CutAll,
    /// A follower is killed, loses its data and starts again.
    Wipe,
    /// As many are killed as a quorum can do without, the master among them.
    Minority,
    /// One of these by chance.
    Mixed,
}

impl ChaosFault {
    pub(crate) fn name(self) -> String {
        word(&self)
    }

    /// How many peers it takes to go on without the victims.
    fn least_peers(self) -> usize {
        match self {
            ChaosFault::Kill | ChaosFault::Term | ChaosFault::Pause | ChaosFault::Mixed => 1,
            ChaosFault::CutMaster
            | ChaosFault::CutOne
            | ChaosFault::CutAll
            | ChaosFault::Wipe
            | ChaosFault::Minority => 3,
        }
    }

    pub(crate) fn check(self, peers: usize) -> Result<(), Error> {
        let least = self.least_peers();
        if peers >= least {
            return Ok(());
        }
        Err(Error::Usage(format!("--fault {} needs at least {least} peers, and --peers is {peers}", self.name())))
    }

    /// What the next round does.
    pub(crate) fn pick(self, peers: usize, random: &mut fastrand::Rng) -> ChaosFault {
        if self != ChaosFault::Mixed {
            return self;
        }
        let possible = |fault: &&ChaosFault| **fault != ChaosFault::Mixed && fault.least_peers() <= peers;
        let possible: Vec<_> = ChaosFault::value_variants().iter().filter(possible).collect();
        *possible[random.usize(..possible.len())]
    }

    /// Which peers it hits, now that the master is known.
    pub(crate) fn victims(self, master: usize, peers: usize, random: &mut fastrand::Rng) -> Vec<usize> {
        let mut followers: Vec<_> = (0..peers).filter(|peer| *peer != master).collect();
        random.shuffle(&mut followers);
        match self {
            ChaosFault::Kill | ChaosFault::Term | ChaosFault::Pause | ChaosFault::CutMaster => vec![master],
            ChaosFault::CutOne | ChaosFault::Wipe => followers.into_iter().take(1).collect(),
            ChaosFault::CutAll => (0..peers).collect(),
            ChaosFault::Minority => {
                [master].into_iter().chain(followers.into_iter().take((peers - 1) / 2 - 1)).collect()
            }
            ChaosFault::Mixed => unreachable!("chance has been decided by then"),
        }
    }

    /// Whether the node can have a master again before this is over.
    pub(crate) fn leaves_a_quorum(self, peers: usize) -> bool {
        self != ChaosFault::CutAll && peers > 1
    }

    pub(crate) fn ends_processes(self) -> bool {
        matches!(self, ChaosFault::Kill | ChaosFault::Minority | ChaosFault::Wipe | ChaosFault::Term)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rng() -> fastrand::Rng {
        fastrand::Rng::with_seed(7)
    }

    #[test]
    fn each_fault_hits_those_it_is_for() {
        let victims = |fault: ChaosFault, peers, master| fault.victims(master, peers, &mut rng());
        for master in 0..3 {
            for fault in
                [ChaosFault::Kill, ChaosFault::Term, ChaosFault::Pause, ChaosFault::CutMaster, ChaosFault::Minority]
            {
                assert_eq!(victims(fault, 3, master), [master], "{fault:?}");
            }
            for fault in [ChaosFault::CutOne, ChaosFault::Wipe] {
                let hit = victims(fault, 3, master);
                assert!(hit.len() == 1 && hit[0] != master && hit[0] < 3, "{fault:?} hits {hit:?}");
            }
            assert_eq!(victims(ChaosFault::CutAll, 3, master), [0, 1, 2]);
        }
        for (peers, size) in [(3, 1), (4, 1), (5, 2), (7, 3), (9, 4)] {
            let mut hit = victims(ChaosFault::Minority, peers, 2);
            assert_eq!(hit[0], 2);
            hit.sort_unstable();
            hit.dedup();
            assert_eq!(hit.len(), size, "of {peers}");
        }
    }

    #[test]
    fn chance_is_repeatable_and_leaves_nothing_out_that_is_possible() {
        let run = |peers| {
            let mut random = rng();
            (0..300).map(|_| ChaosFault::Mixed.pick(peers, &mut random)).collect::<Vec<_>>()
        };
        assert_eq!(run(3), run(3));
        let all = ChaosFault::value_variants().iter().filter(|fault| **fault != ChaosFault::Mixed);
        assert!(all.clone().all(|fault| run(3).contains(fault)));
        assert!(run(1).iter().all(|fault| matches!(fault, ChaosFault::Kill | ChaosFault::Term | ChaosFault::Pause)));
    }

    #[test]
    fn faults_that_need_others_are_refused_without() {
        for fault in ChaosFault::value_variants() {
            assert!(fault.check(3).is_ok());
            let alone = matches!(fault, ChaosFault::Kill | ChaosFault::Term | ChaosFault::Pause | ChaosFault::Mixed);
            assert_eq!(fault.check(1).is_ok(), alone, "{fault:?}");
        }
        let said = ChaosFault::CutMaster.check(2).unwrap_err().to_string();
        assert_eq!(said, "--fault cut-master needs at least 3 peers, and --peers is 2");
    }
}
