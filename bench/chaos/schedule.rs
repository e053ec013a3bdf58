//! Schedules: the faults of a run and their times, drawn from a seed before the run. The same seed, shape, length and
//! lease length give the same schedule.

use std::{collections::HashMap, fmt, ops::Range, time::Duration};

use clap::ValueEnum;
use serde::{Deserialize, Serialize};

use crate::{chaos::layout::ClusterShape, common::word};

/// The kinds of faults.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, ValueEnum, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Fault {
    /// SIGKILL. The peer is restarted with its data.
    Kill,
    /// SIGSTOP, then SIGCONT.
    Pause,
    /// No data passes between a peer and the others.
    CutOff,
    /// A peer receives nothing from the others, but its messages arrive.
    Deaf,
    /// The others receive nothing from a peer, but their messages arrive.
    Mute,
    /// The others are split into two halves that reach each other through one peer only.
    Bridge,
    /// A peer is cut off and reconnected several times a second.
    Flapping,
    /// Messages between peers are delayed by up to a third of a second.
    Delay,
    /// Existing connections between peers stall; new ones work. Affects all links of a node, or one. In half of the
    /// cases the old connections deliver their data when the fault ends, otherwise at the next stall or never.
    Stall,
    /// An operator transfers mastership. Usually messages from the master to its successor are late or lost, and
    /// afterwards the master is cut off from other peers.
    HandOver,
    /// Requests of library clients and child nodes to a peer, and its answers, are delayed by up to a second.
    SlowClients,
    /// Library clients and child nodes receive no answers of a peer. Their requests arrive.
    LostAnswers,
    /// Library clients and child nodes reach no peer of the root.
    LostParent,
    /// Every write to the disk of a peer fails. The peer is restarted when there is space again.
    FullDisk,
    /// Each flush of all disks of a node takes 200 ms longer.
    SlowDisks,
    /// A peer is killed, and a bit of its log is flipped. It must recover, or refuse to start; then its data is
    /// deleted.
    FlippedBit,
    /// A peer is killed and the end of its log is torn off.
    TornLog,
    /// A peer is killed and its data is deleted.
    Wipe,
    /// An operator removes a peer, deletes its data, and adds it again. A master first hands over, as in `hand-over`.
    Replace,
    /// A peer is killed and restarted with a wall clock that is hours off.
    ClockJump,
    /// A peer is killed and restarted with a clock that runs fast or slow, by up to one part in a thousand.
    ClockRate,
    /// An operator changes the capacity.
    Capacity,
    /// Many new clients arrive at the same time, for a new resource. Half of them crash.
    Herd,
    /// Clients crash and restart under their ids. Envoys lose their streams and connections, or stop reading.
    Crash,
    /// An operator assigns capacity of the pool to some clients, and removes the assignments of others.
    Assign,
    /// The gateway is killed and restarted.
    Gateway,
    /// Servers and clients get new certificates.
    Certificates,
    /// A second CA becomes trusted, and then servers and clients get certificates of that CA.
    Authority,
    /// Up to 30 % of packets are lost, between peers and between clients and peers. Needs --namespace.
    Loss,
    /// Packets are reordered, between peers and between clients and peers. Needs --namespace.
    Reordering,
}

/// The target of a fault, which determines the faults that it may overlap with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Reach {
    /// The process of one peer. No other fault of the process may overlap.
    Process,
    /// The data of one peer. All other peers of its node must be running and up to date.
    Data,
    /// Links and disks, of one peer or of all.
    Around,
    /// Clients and operators.
    Outside,
}

impl Fault {
    pub(crate) fn name(self) -> String {
        word(&self)
    }

    pub(crate) fn reach(self) -> Reach {
        match self {
            Fault::Kill | Fault::Pause | Fault::FullDisk | Fault::ClockJump | Fault::ClockRate => Reach::Process,
            Fault::FlippedBit | Fault::TornLog | Fault::Wipe | Fault::Replace => Reach::Data,
            Fault::Capacity
            | Fault::Herd
            | Fault::Crash
            | Fault::Assign
            | Fault::Gateway
            | Fault::Certificates
            | Fault::Authority => Reach::Outside,
            _ => Reach::Around,
        }
    }

    /// The minimum number of peers of a node for this fault.
    fn least_peers(self) -> usize {
        match self {
            Fault::CutOff
            | Fault::Deaf
            | Fault::Mute
            | Fault::Bridge
            | Fault::Flapping
            | Fault::Delay
            | Fault::Stall
            | Fault::HandOver
            | Fault::FlippedBit
            | Fault::TornLog
            | Fault::Wipe
            | Fault::Replace => 3,
            _ => 1,
        }
    }

    /// Whether the fault affects only the root.
    fn is_of_root(self) -> bool {
        self.is_of_certificates()
            || matches!(self, Fault::LostParent | Fault::Capacity | Fault::Assign | Fault::Gateway)
    }

    fn is_of_certificates(self) -> bool {
        matches!(self, Fault::Certificates | Fault::Authority)
    }

    /// Whether the fault needs a network namespace.
    pub(crate) fn is_of_packets(self) -> bool {
        matches!(self, Fault::Loss | Fault::Reordering)
    }

    fn can_hit(self, node: usize, peers: usize) -> bool {
        peers >= self.least_peers() && (node == 0 || !self.is_of_root())
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Aim {
    /// The index of the node in the layout.
    pub(crate) node: usize,
    /// The index of the peer in the node. `None` for the master at that time.
    pub(crate) peer: Option<usize>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct ScheduledFault {
    /// Its index in the complete schedule.
    pub(crate) number: usize,
    pub(crate) at_ms: u64,
    pub(crate) lasts_ms: u64,
    pub(crate) kind: Fault,
    pub(crate) aim: Aim,
    /// Random bits that determine the details of the fault.
    pub(crate) dice: u32,
}

impl ScheduledFault {
    pub(crate) fn ends_ms(&self) -> u64 {
        self.at_ms + self.lasts_ms
    }

    /// Whether stalled connections resume at the end.
    pub(crate) fn resumes(&self) -> bool {
        self.dice.is_multiple_of(2)
    }

    /// Whether the connections over this link stall.
    pub(crate) fn stalls(&self, node: &Range<usize>, victim: usize, from: usize, to: usize) -> bool {
        let is_of_all = (self.dice >> 1).is_multiple_of(2);
        node.contains(&victim) && (is_of_all || (from, to) == (victim, self.next_master(node, victim)))
    }

    /// A random number from 0 (inclusive) to 1 (exclusive).
    pub(crate) fn part(&self) -> f64 {
        f64::from(self.dice) / (f64::from(u32::MAX) + 1.0)
    }
}

impl fmt::Display for ScheduledFault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let ScheduledFault { number, at_ms, lasts_ms, kind, aim, .. } = self;
        let whom = aim.peer.map_or_else(|| "master".to_owned(), |peer| format!("peer {peer}"));
        let (at, lasts) = (*at_ms as f64 / 1000.0, *lasts_ms as f64 / 1000.0);
        write!(f, "#{number} at {at:.1} s for {lasts:.1} s: {}, {whom} of node {}", kind.name(), aim.node)
    }
}

/// The time between the beginnings of two successive faults, and the duration of a fault, in milliseconds.
const APART: Range<u64> = 250..2500;
const LASTING: Range<u64> = 300..3000;

/// The fraction of faults that last longer than a lease; their durations, in leases, are below. Only such faults reveal
/// some defects.
const LONG: f64 = 0.25;
/// The duration of a handover, in vote leases. A server closes a connection after 30 s of silence, so no message may be
/// held back longer than that, even with the longest timing.
const LASTING_VOTE_LEASES: Range<f64> = 6.0..7.2;
const LASTING_LEASES: Range<f64> = 0.6..2.4;

/// The minimum time between two faults of the same kind at a node, in leases, so that clients have leases before the
/// next one.
const REST_LEASES: Range<f64> = 0.3..1.0;

/// The fraction of faults that hit the master.
const AT_MASTER: f64 = 0.5;

/// The fraction of the run, at its end, without faults.
const CALM: f64 = 0.1;

/// The parameters of a schedule.
#[derive(Clone, Copy)]
pub(crate) struct Plan<'a> {
    pub(crate) shape: ClusterShape,
    pub(crate) length: Duration,
    pub(crate) lease: Duration,
    /// The time for which a peer leases its vote to a master.
    pub(crate) vote_lease: Duration,
    /// The kinds of faults to draw from. Empty for all kinds.
    pub(crate) only: &'a [Fault],
    pub(crate) in_namespace: bool,
}

/// Whether a run with this seed uses TLS. Every other seed does.
pub(crate) fn is_over_tls(seed: u64) -> bool {
    seed.is_multiple_of(2)
}

/// Draws the schedule of a seed. Faults may overlap.
pub(crate) fn draw(plan: Plan<'_>, seed: u64) -> Vec<ScheduledFault> {
    let mut random = fastrand::Rng::with_seed(seed);
    let end = (plan.length.as_secs_f64() * 1000.0 * (1.0 - CALM)) as u64;
    let times = |random: &mut fastrand::Rng, length: Duration, range: Range<f64>| {
        let number = range.start + random.f64() * (range.end - range.start);
        (length.as_secs_f64() * 1000.0 * number) as u64
    };
    let all = possible(plan, is_over_tls(seed));
    let mut rests: HashMap<(Fault, usize), u64> = HashMap::new();
    let mut faults = Vec::new();
    let mut at_ms = random.u64(APART);
    while at_ms < end && !all.is_empty() {
        let rested =
            |(kind, node, _): &&(Fault, usize, usize)| rests.get(&(*kind, *node)).is_none_or(|until| *until <= at_ms);
        let now: Vec<_> = all.iter().filter(rested).copied().collect();
        if !now.is_empty() {
            let (kind, node, peers) = now[random.usize(..now.len())];
            let peer = random.usize(..peers);
            let at_master = random.f64() < AT_MASTER || kind == Fault::HandOver;
            let aim = Aim { node, peer: (!at_master).then_some(peer) };
            let is_long = random.f64() < LONG;
            let lasts_ms = match kind {
                _ if kind.hands_over() => times(&mut random, plan.vote_lease, LASTING_VOTE_LEASES),
                _ if is_long => times(&mut random, plan.lease, LASTING_LEASES),
                _ => random.u64(LASTING),
            };
            let lasts_ms = lasts_ms.min(end - at_ms);
            faults.push(ScheduledFault { number: faults.len(), at_ms, lasts_ms, kind, aim, dice: random.u32(..) });
            rests.insert((kind, node), at_ms + lasts_ms + times(&mut random, plan.lease, REST_LEASES));
        }
        at_ms += random.u64(APART);
    }
    faults
}

/// The possible kinds of faults with the nodes that they can affect. Each kind appears equally often.
fn possible(Plan { shape, only, in_namespace, .. }: Plan<'_>, over_tls: bool) -> Vec<(Fault, usize, usize)> {
    let nodes = shape.nodes();
    let kinds = Fault::value_variants().iter().copied().filter(|kind| only.is_empty() || only.contains(kind));
    let kinds = kinds.filter(|kind| over_tls || !kind.is_of_certificates());
    let kinds = kinds.filter(|kind| in_namespace || !kind.is_of_packets());
    kinds
        .flat_map(|kind| {
            let can = nodes.iter().enumerate().filter(|(node, layout)| kind.can_hit(*node, layout.peers));
            let can: Vec<_> = can.map(|(node, layout)| (kind, node, layout.peers)).collect();
            // Repeat a kind with few possible nodes, so that all kinds are equally likely.
            can.iter().cycle().take(if can.is_empty() { 0 } else { nodes.len() }).copied().collect::<Vec<_>>()
        })
        .collect()
}

/// Shrinks a failing list: removes halves, then quarters, and so on down to single items, as long as the rest still
/// fails. Calls `fails` at most `tries` times. Failures of real processes depend on timing, so an item may seem
/// necessary although it is not: the result is small, but not always minimal.
pub(crate) fn shrink<T: Clone>(whole: &[T], tries: usize, mut fails: impl FnMut(&[T]) -> bool) -> Vec<T> {
    let mut left = whole.to_vec();
    let mut tries = tries;
    let mut part = left.len().div_ceil(2);
    while part > 0 && left.len() > 1 && tries > 0 {
        let mut at = 0;
        while at < left.len() && tries > 0 && left.len() > 1 {
            let end = (at + part).min(left.len());
            if end - at == left.len() {
                break;
            }
            let without: Vec<T> = left[..at].iter().chain(&left[end..]).cloned().collect();
            tries -= 1;
            if fails(&without) {
                left = without;
            } else {
                at = end;
            }
        }
        part = if part == 1 { 0 } else { part.div_ceil(2) };
    }
    left
}

#[cfg(test)]
mod tests {
    use super::*;

    fn plan(shape: ClusterShape, only: &[Fault]) -> Plan<'_> {
        let (length, lease, vote_lease) =
            (Duration::from_secs(600), Duration::from_secs(5), Duration::from_millis(250));
        Plan { shape, length, lease, vote_lease, only, in_namespace: true }
    }

    #[test]
    fn the_same_seed_gives_the_same_schedule_and_another_seed_another() {
        for shape in ClusterShape::value_variants() {
            let draw = |seed| draw(plan(*shape, &[]), seed);
            assert_eq!(draw(7), draw(7));
            assert_ne!(draw(7), draw(8));
        }
    }

    #[test]
    fn every_possible_fault_is_drawn_within_the_schedule() {
        for shape in ClusterShape::value_variants() {
            let faults: Vec<_> = (0..20).flat_map(|seed| draw(plan(*shape, &[]), seed)).collect();
            for kind in Fault::value_variants() {
                assert!(faults.iter().any(|fault| fault.kind == *kind), "{shape:?} never has {kind:?}");
            }
            for fault in &faults {
                let peers = shape.nodes()[fault.aim.node].peers;
                assert!(fault.kind.can_hit(fault.aim.node, peers), "{fault}");
                assert!(fault.aim.peer.is_none_or(|peer| peer < peers), "{fault}");
                assert!(fault.ends_ms() <= 540_000, "the last tenth is calm: {fault}");
            }
            let masters = faults.iter().filter(|fault| fault.aim.peer.is_none()).count();
            assert!(masters * 3 > faults.len() && masters < faults.len());
        }
    }

    #[test]
    fn kinds_can_be_chosen() {
        let faults = draw(plan(ClusterShape::Three, &[Fault::Wipe, Fault::Herd]), 1);
        assert!(faults.iter().all(|fault| matches!(fault.kind, Fault::Wipe | Fault::Herd)));
        let wipes = faults.iter().filter(|fault| fault.kind == Fault::Wipe).count();
        assert!(wipes * 3 > faults.len() && wipes * 3 < faults.len() * 2, "as likely as the other: {wipes}");
    }

    #[test]
    fn some_faults_outlast_leases_and_faults_of_a_kind_are_apart() {
        let plan = plan(ClusterShape::Tree, &[Fault::LostParent]);
        let faults: Vec<_> = (0..5).flat_map(|seed| draw(plan, seed)).collect();
        let long = faults.iter().filter(|fault| fault.lasts_ms > 5000).count();
        assert!(long * 20 > faults.len(), "{long} of {}", faults.len());
        let later = faults.windows(2).filter(|two| two[1].number > 0);
        later.for_each(|two| assert!(two[1].at_ms >= two[0].ends_ms() + 1500, "{} then {}", two[0], two[1]));
    }

    #[test]
    fn shrinking_finds_the_necessary_faults() {
        let whole: Vec<u32> = (0..40).collect();
        let needed = [3, 17, 31];
        let mut asked = 0;
        let small = shrink(&whole, 1000, |some| {
            asked += 1;
            needed.iter().all(|one| some.contains(one))
        });
        assert_eq!(small, needed);
        assert!(asked < 100, "{asked} runs");
    }

    #[test]
    fn shrinking_is_bounded_and_never_returns_an_empty_schedule() {
        let whole: Vec<u32> = (0..40).collect();
        let mut asked = 0;
        let small = shrink(&whole, 5, |_| {
            asked += 1;
            true
        });
        assert!(asked == 5 && small.len() < 10, "{small:?} after {asked}");
        assert_eq!(shrink(&whole, 1000, |_| false), whole);
        assert_eq!(shrink(&[1], 1000, |_| true), [1]);
    }
}
