//! The state of links and disks. It is recomputed from all active faults, so that the end of one fault leaves the
//! effects of others in place.

use std::{
    ops::Range,
    sync::{Arc, Mutex},
    time::Duration,
};

use leaseway_process::link::Link;

use crate::{
    chaos::{
        cluster::Cluster,
        faults::packets::{self, LinkState, Stalled},
        schedule::{Fault, ScheduledFault},
    },
    common::error::Error,
};

/// A fault that has begun and has not ended.
#[derive(Clone, Debug)]
pub(crate) struct ActiveFault {
    pub(crate) fault: ScheduledFault,
    /// The affected peers, numbered across nodes. In a handover: the master and its successor.
    pub(crate) victims: Vec<usize>,
    /// In a handover: the time at which the master was seen to have stopped, and the time at which its links degraded.
    pub(crate) term_ended_ms: Option<u64>,
    pub(crate) degraded_ms: Option<u64>,
    /// The heartbeat interval of the peers.
    pub(crate) heartbeat: Duration,
    /// Whether messages between peers can be read, because they do not use TLS.
    pub(crate) is_in_the_clear: bool,
    /// The output of operators' commands.
    pub(crate) said: Arc<Mutex<String>>,
}

impl ActiveFault {
    pub(crate) fn of(
        fault: ScheduledFault,
        victims: Vec<usize>,
        heartbeat: Duration,
        is_in_the_clear: bool,
    ) -> ActiveFault {
        let said = Arc::default();
        ActiveFault { fault, victims, term_ended_ms: None, degraded_ms: None, heartbeat, is_in_the_clear, said }
    }
}

impl LinkState {
    fn disturb(&mut self, fault: &ScheduledFault) {
        match fault.kind {
            Fault::Loss => self.lost_per_mille = self.lost_per_mille.max(10 + (290.0 * fault.part()) as u16),
            Fault::Reordering => self.late_per_mille = self.late_per_mille.max(50 + (450.0 * fault.part()) as u16),
            _ => {}
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum DiskState {
    Good,
    Slow(Duration),
    Full,
}

/// The state in effect. Only changes of it are applied.
pub(crate) struct NetworkState {
    links: Vec<Vec<LinkState>>,
    fronts: Vec<LinkState>,
    disks: Vec<DiskState>,
    /// Whether packets are dropped in a network namespace. Otherwise cut links hold data back.
    in_namespace: bool,
}

/// The time between two changes of a flapping link, in milliseconds.
const FLAP_MS: u64 = 250;

impl NetworkState {
    pub(crate) fn good(cluster: &Cluster, in_namespace: bool) -> NetworkState {
        let links = cluster.links.iter().map(|links| vec![LinkState::default(); links.len()]).collect();
        let peers = cluster.peers.len();
        NetworkState {
            links,
            fronts: vec![LinkState::default(); peers],
            disks: vec![DiskState::Good; peers],
            in_namespace,
        }
    }

    /// Applies the state at `now_ms` after the start.
    pub(crate) fn becomes(&mut self, all: &[ActiveFault], cluster: &Cluster, now_ms: u64) -> Result<(), Error> {
        let mut links = Vec::new();
        for (from, (row, before)) in cluster.links.iter().zip(&mut self.links).enumerate() {
            let node = &cluster.nodes[cluster.peers[from].node];
            for ((to, link), before) in node.clone().zip(row).zip(before) {
                links.push((link, before, between(all, node, from, to, now_ms)));
            }
        }
        for (place, (peer, before)) in cluster.peers.iter().zip(&mut self.fronts).enumerate() {
            links.push((&peer.front, before, front(all, place, peer.node)));
        }
        links.iter().for_each(|(link, before, now)| set_connections(link, **before, *now));
        if self.in_namespace {
            set_packets(links)?;
        } else {
            links.into_iter().for_each(|(link, before, now)| set_cuts(link, before, now));
        }
        for (place, peer) in cluster.peers.iter().enumerate() {
            let disk = disk(all, place, peer.node);
            if self.disks[place] != disk {
                self.disks[place] = disk;
                match disk {
                    DiskState::Good => peer.mend_disk(),
                    DiskState::Slow(by) => peer.spoil_disk(Some(by))?,
                    DiskState::Full => peer.spoil_disk(None)?,
                }
            }
        }
        Ok(())
    }
}

/// Applies delays and stalls. Links do this even in a namespace.
fn set_connections(link: &Link, before: LinkState, now: LinkState) {
    if (before.delay, before.delay_there) != (now.delay, now.delay_there) {
        link.delay(now.delay);
        link.delay_towards(now.delay.max(now.delay_there));
    }
    match now.stalled {
        same if same == before.stalled => {}
        Stalled::Nothing => link.resume(),
        Stalled::Older => link.stall_towards(),
        Stalled::Newer => link.stall_newer_towards(),
    }
}

/// Like [`set_cuts`], but drops packets.
fn set_packets(links: Vec<(&Link, &mut LinkState, LinkState)>) -> Result<(), Error> {
    if links.iter().all(|(_, before, now)| *before == now) {
        return Ok(());
    }
    let ports: Vec<_> = links.iter().map(|(link, _, now)| (link.port(), *now)).collect();
    links.into_iter().for_each(|(_, before, now)| *before = now);
    packets::put(&ports)
}

fn set_cuts(link: &Link, before: &mut LinkState, now: LinkState) {
    if *before == now {
        return;
    }
    if before.cut_there && !now.cut_there || before.cut_back && !now.cut_back {
        link.heal();
    }
    if now.cut_there {
        link.cut_towards();
    }
    if now.cut_back {
        link.cut_back();
    }
    *before = now;
}

/// The state of the link over which `from` reaches `to`. The link from a peer to itself is the one over which others
/// reach it as a new peer.
fn between(all: &[ActiveFault], node: &Range<usize>, from: usize, to: usize, now_ms: u64) -> LinkState {
    let mut state = LinkState::default();
    for one @ ActiveFault { fault, victims, .. } in all {
        let victim = |peer: usize| victims.contains(&peer);
        let apart = victim(from) != victim(to) || from == to && victim(to);
        let (mut there, mut back) = (false, false);
        match fault.kind {
            Fault::CutOff => (there, back) = (apart, apart),
            Fault::Flapping => {
                let is_cut = (now_ms.saturating_sub(fault.at_ms) / FLAP_MS).is_multiple_of(2);
                (there, back) = (apart && is_cut, apart && is_cut);
            }
            Fault::Deaf if apart => (there, back) = (victim(to), victim(from)),
            Fault::Mute if apart => (there, back) = (victim(from), victim(to)),
            Fault::Bridge if victims.first().is_some_and(|bridge| node.contains(bridge)) => {
                let bridge = victims[0];
                let side = |peer: usize| (peer + node.len() - bridge) % node.len() > node.len() / 2;
                let is_cut = from != to && from != bridge && to != bridge && side(from) != side(to);
                (there, back) = (is_cut, is_cut);
            }
            kind if kind.hands_over() => {
                let now = one.hand_over(node, from, to, now_ms);
                (there, back) = (now.cut_there, now.cut_back);
                state.delay_there = state.delay_there.max(now.delay_there);
                state.stalled = state.stalled.max(now.stalled);
            }
            Fault::Stall if fault.resumes() && fault.stalls(node, victims[0], from, to) => {
                state.stalled = state.stalled.max(Stalled::Older);
            }
            Fault::Delay if victims.first().is_some_and(|one| node.contains(one)) => {
                state.delay = state.delay.max(Duration::from_millis(10).mul_f64(1.0 + 32.0 * fault.part()));
            }
            _ if victims.first().is_some_and(|one| node.contains(one)) => state.disturb(fault),
            _ => {}
        }
        state.cut_there |= there;
        state.cut_back |= back;
    }
    state
}

/// The state of the link over which clients and child nodes reach a peer.
fn front(all: &[ActiveFault], place: usize, node: usize) -> LinkState {
    let mut state = LinkState::default();
    for ActiveFault { fault, victims, .. } in all {
        match fault.kind {
            Fault::SlowClients if victims.contains(&place) => {
                state.delay = state.delay.max(Duration::from_millis(50).mul_f64(1.0 + 19.0 * fault.part()));
            }
            Fault::LostAnswers if victims.contains(&place) => state.cut_back = true,
            Fault::LostParent if fault.aim.node == node => (state.cut_there, state.cut_back) = (true, true),
            _ if fault.aim.node == node => state.disturb(fault),
            _ => {}
        }
    }
    state
}

fn disk(all: &[ActiveFault], place: usize, node: usize) -> DiskState {
    let of = |kind: Fault| move |one: &&ActiveFault| one.fault.kind == kind;
    if all.iter().filter(of(Fault::FullDisk)).any(|one| one.victims.contains(&place)) {
        return DiskState::Full;
    }
    let mut slow = all.iter().filter(of(Fault::SlowDisks)).filter(|one| one.fault.aim.node == node);
    slow.next().map_or(DiskState::Good, |_| DiskState::Slow(Duration::from_millis(200)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::chaos::schedule::Aim;

    fn active(kind: Fault, victim: usize) -> ActiveFault {
        let aim = Aim { node: 0, peer: Some(victim) };
        let fault = ScheduledFault { number: 0, at_ms: 1000, lasts_ms: 1000, kind, aim, dice: 0 };
        ActiveFault::of(fault, vec![victim], Duration::from_millis(50), false)
    }

    /// Each row is a sender, each column a receiver: `x` nothing arrives, `>` only what the row sends, `<` only what it
    /// receives.
    fn picture(all: &[ActiveFault], now_ms: u64) -> Vec<String> {
        let letter = |from, to| match between(all, &(0..5), from, to, now_ms) {
            LinkState { cut_there: true, cut_back: true, .. } => 'x',
            LinkState { cut_there: true, .. } => '<',
            LinkState { cut_back: true, .. } => '>',
            _ => '.',
        };
        (0..5).map(|from| (0..5).map(|to| letter(from, to)).collect()).collect()
    }

    #[test]
    fn each_partition_cuts_the_links_of_its_kind() {
        let alone = ["..x..", "..x..", "xxxxx", "..x..", "..x.."];
        assert_eq!(picture(&[active(Fault::CutOff, 2)], 1500), alone);
        // A deaf peer does not receive answers either.
        assert_eq!(picture(&[active(Fault::Deaf, 0)], 1500)[..2], ["x>>>>", "<...."]);
        assert_eq!(picture(&[active(Fault::Mute, 0)], 1500)[..2], ["x<<<<", ">...."]);
        let bridge = [".....", "...xx", "...xx", ".xx..", ".xx.."];
        assert_eq!(picture(&[active(Fault::Bridge, 0)], 1500), bridge);
        let flapping = active(Fault::Flapping, 2);
        assert_eq!(picture(std::slice::from_ref(&flapping), 1249), alone);
        assert_eq!(picture(&[flapping], 1250), ["....."; 5]);
    }

    #[test]
    fn the_end_of_one_fault_leaves_others_in_effect() {
        let [one, other] = [active(Fault::CutOff, 1), active(Fault::Mute, 1)];
        let both = between(&[one, other.clone()], &(0..3), 1, 0, 1500);
        assert!(both.cut_there && both.cut_back);
        let left = between(&[other], &(0..3), 1, 0, 1500);
        assert!(left.cut_there && !left.cut_back);
    }

    #[test]
    fn faults_of_clients_links_and_disks_are_separate() {
        let all = [active(Fault::LostAnswers, 1), active(Fault::FullDisk, 1), active(Fault::SlowDisks, 1)];
        assert_eq!(front(&all, 1, 0), LinkState { cut_back: true, ..LinkState::default() });
        assert_eq!(front(&all, 2, 0), LinkState::default());
        assert_eq!((disk(&all, 1, 0), disk(&all, 4, 1)), (DiskState::Full, DiskState::Good));
        assert_eq!(disk(&all, 2, 0), DiskState::Slow(Duration::from_millis(200)));
        assert!(front(&[active(Fault::LostParent, 1)], 2, 0).cut_there);
    }

    #[test]
    fn packet_faults_hit_a_node_and_its_clients() {
        let all = [active(Fault::Loss, 1), active(Fault::Reordering, 1)];
        let bad = LinkState { lost_per_mille: 10, late_per_mille: 50, ..LinkState::default() };
        assert_eq!((between(&all, &(0..3), 0, 2, 1500), front(&all, 2, 0)), (bad, bad));
        assert_eq!(
            (between(&all, &(3..4), 3, 3, 1500), front(&all, 3, 1)),
            (LinkState::default(), LinkState::default())
        );
    }
}
