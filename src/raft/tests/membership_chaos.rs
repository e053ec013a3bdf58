//! Changes of the membership while links are cut, flap or work one way, and masters die. Afterwards all peers agree on
//! the outcome, the change can be completed or undone, and no command is lost.

use std::{collections::BTreeSet, time::Duration};

use tokio::{task::JoinHandle, time::sleep};

use crate::{
    log::Membership,
    membership::members::ChangeError,
    tests::{
        chaos::{Harness, seeds},
        harness::{
            callers::judge,
            cluster::{Cluster, is_settled, membership, until, until_equal},
            faults::DiskState,
            requests::identity,
        },
    },
    transport::Method,
};

fn names_of(membership: &Membership) -> BTreeSet<String> {
    membership.nodes().map(|(_, member)| member.name.clone()).collect()
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum PeerChange {
    Add,
    Remove,
    /// Transfers mastership to the peer that is removed at the same time.
    RemoveNextMaster,
    Replace,
}

struct MembershipChaos {
    harness: Harness,
    members: BTreeSet<String>,
}

impl MembershipChaos {
    fn one_of(&mut self, names: &BTreeSet<String>) -> String {
        self.harness.random.choice(names).expect("there is at least one").clone()
    }

    /// One change, with a fault before, during or after it.
    async fn round(&mut self) {
        let others: BTreeSet<String> =
            self.harness.cluster.names.iter().filter(|name| !self.members.contains(*name)).cloned().collect();
        let change = match self.harness.random.u8(..4) {
            0 | 1 if !others.is_empty() => PeerChange::Add,
            2 if self.members.len() > 2 => PeerChange::Remove,
            3 if self.members.len() > 2 => PeerChange::RemoveNextMaster,
            // Both of two voters are needed.
            _ if self.members.len() == 2 => PeerChange::Add,
            _ => PeerChange::Replace,
        };
        let (master, _) = self.harness.cluster.master().await;
        let stay: BTreeSet<String> = self.members.iter().filter(|name| **name != master).cloned().collect();
        let name = if change == PeerChange::Add { self.one_of(&others) } else { self.one_of(&stay) };
        if matches!(change, PeerChange::Add | PeerChange::Replace) {
            if self.harness.cluster.running().any(|(running, _)| *running == name) {
                self.harness.kill_peer(&name);
            }
            self.harness.cluster.wipe(&name);
            self.harness.start_peer(&name).await;
        }
        self.harness.history += &format!("\n{change:?} {name}, {master} is master of {:?}:", self.members);
        // A slow disk spreads the steps of the change, so that faults hit each of them.
        let takes = Duration::from_millis(self.harness.random.choice([0, 0, 20, 60]).unwrap_or_default());
        self.harness
            .cluster
            .names
            .iter()
            .for_each(|name| self.harness.cluster.set_log_disk(name, DiskState::Slow(takes)));
        let asked = self.ask(change, &name, &master);
        let pause = self.harness.random.u64(..120);
        sleep(Duration::from_millis(pause)).await;
        let killed = self.inject(&name).await;
        let pause = self.harness.random.u64(100..1500);
        sleep(Duration::from_millis(pause)).await;
        self.harness.held.drain(..).for_each(|held| held.release());
        sleep(Duration::from_millis(pause % 100)).await;
        self.harness.cluster.restore_links();
        self.harness.cluster.names.iter().for_each(|name| self.harness.cluster.set_log_disk(name, DiskState::Sound));
        if let Some(killed) = killed {
            self.harness.start_peer(&killed).await;
        }
        let outcome = asked.await.expect("the change does not panic");
        let error = outcome.as_ref().err().map(ToString::to_string).unwrap_or_default();
        assert!(!error.contains("has to forward"), "an error of openraft reaches the operator: {error}");
        self.harness.history += &format!(" {outcome:?}");
        self.settle(change, &name, outcome).await;
    }

    /// Requests the change from the master, as an operator does. A replaced peer joins without a request.
    fn ask(&self, change: PeerChange, name: &str, master: &str) -> JoinHandle<Result<(), ChangeError>> {
        let (peer, name, address) =
            (self.harness.cluster.peer(master).clone(), name.to_owned(), self.harness.cluster.address(master, name));
        tokio::spawn(async move {
            match change {
                PeerChange::Add => peer.add(&name, &address).await,
                PeerChange::Remove => peer.remove(&name).await,
                PeerChange::RemoveNextMaster => {
                    let (removed, _) = tokio::join!(peer.remove(&name), peer.transfer(Some(&name)));
                    removed
                }
                PeerChange::Replace => Ok(()),
            }
        })
    }

    /// Injects a fault. Returns the peer that was killed, if any.
    async fn inject(&mut self, concerned: &str) -> Option<String> {
        let members = self.members.clone();
        let master =
            self.harness.cluster.masters().first().map_or_else(|| concerned.to_owned(), |(master, _)| master.clone());
        let victim = self.one_of(&members);
        let fault = self.harness.random.u8(..12);
        self.harness.history += &format!(" {fault}{victim}");
        match fault {
            0 => self.harness.cluster.isolate(&master, true),
            1 => self.harness.cluster.isolate(concerned, true),
            // The master reaches only the peer that is added or removed.
            2 => self.harness.cluster.names.iter().filter(|name| *name != concerned).for_each(|name| {
                self.harness.cluster.cut(&master, name, true);
                self.harness.cluster.cut(concerned, name, true);
            }),
            // No peer reaches another.
            3 => self.harness.cluster.names.iter().for_each(|name| self.harness.cluster.isolate(name, true)),
            4 => members.iter().for_each(|name| self.harness.cluster.cut_off(&master, name, true)),
            5 => members.iter().for_each(|name| self.harness.cluster.cut_off(name, &master, true)),
            6 => self.harness.cluster.flap(&victim).await,
            7 => {
                self.harness.kill_peer(&master);
                return Some(master);
            }
            // A request to stand is held if there is one, and the master is cut off; or any message is held.
            8 | 9 => {
                self.harness.held.push(self.harness.cluster.hold_next(&master, concerned, Some(Method::Stand)));
                sleep(Duration::from_millis(300)).await;
                members
                    .iter()
                    .filter(|name| **name != concerned)
                    .for_each(|name| self.harness.cluster.cut(&master, name, true));
            }
            10 => self.harness.held.extend(
                [(&master, concerned), (&victim, &master)]
                    .map(|(from, to)| self.harness.cluster.hold_next(from, to, None)),
            ),
            _ => {
                self.harness.kill_peer(&victim);
                return Some(victim);
            }
        }
        None
    }

    /// With all links restored, completes or undoes the change and checks that there is one outcome.
    async fn settle(&mut self, change: PeerChange, name: &str, outcome: Result<(), ChangeError>) {
        let undo = self.harness.random.bool();
        let stays = change == PeerChange::Replace || (change == PeerChange::Add && (outcome.is_ok() || !undo));
        for _ in 0..200 {
            let (master, _) = self.harness.cluster.master().await;
            let peer = self.harness.cluster.peer(&master).clone();
            let membership = membership(&self.harness.cluster, &master);
            let is_voter = membership.voter_ids().any(|voter| {
                membership.get_node(&voter).is_some_and(|member| member.name == name)
                    && identity(&self.harness.cluster, name).peer == voter
            });
            let is_in = names_of(&membership).contains(name);
            if outcome.is_ok() && change == PeerChange::Add {
                assert!(is_voter, "{}: acknowledged, but not a voter", self.harness.history);
            }
            if outcome.is_ok() && matches!(change, PeerChange::Remove | PeerChange::RemoveNextMaster) {
                assert!(!is_in, "{}: acknowledged, but still a member", self.harness.history);
            }
            let repeated = match (change, stays) {
                (PeerChange::Replace, _) => Ok(()),
                (_, true) if !is_voter => peer.add(name, &self.harness.cluster.address(&master, name)).await,
                (_, false) if is_in && master == name => peer.transfer(None).await.map(drop),
                (_, false) if is_in => peer.remove(name).await,
                _ => Ok(()),
            };
            if repeated.is_ok() && is_settled(&self.harness.cluster, &master) && is_in == stays {
                break;
            }
            sleep(Duration::from_millis(100)).await;
        }
        if stays {
            self.members.insert(name.to_owned());
        } else {
            self.members.remove(name);
        }
        let all_know = || {
            self.members.iter().all(|name| {
                let raft = membership(&self.harness.cluster, name);
                names_of(&raft) == self.members && is_settled(&self.harness.cluster, name)
            })
        };
        until(&format!("all peers agree on the outcome:{}", self.harness.history), all_know).await;
    }
}

async fn chaos(rounds: usize, seed: u64) {
    let mut cluster = Cluster::three().await;
    cluster.master().await;
    cluster.add_name("d").await;
    cluster.add_name("e").await;
    // After a restart each peer has its own links to all others.
    ["a", "b", "c"].iter().for_each(|name| cluster.kill(name));
    for name in ["a", "b", "c"] {
        cluster.start(name).await;
    }
    let harness = Harness::start(cluster, seed, 50 << 10).await;
    let mut chaos = MembershipChaos { harness, members: ["a", "b", "c"].map(String::from).into() };
    for _ in 0..rounds {
        chaos.round().await;
    }
    let MembershipChaos { harness: Harness { cluster, callers, watcher, history, .. }, members } = chaos;
    let (writes, reads) = judge(&callers.stop(&cluster).await).unwrap_or_else(|why| panic!("{history}: {why}"));
    assert!(writes > 10 && reads > 10, "nothing happened: {writes} writes, {reads} reads");
    until_equal(&cluster, &members, &history).await;
    eprintln!("{history}\n{writes} writes and {reads} reads were answered");
    let (leases, _) = watcher.stop();
    assert!(leases > 0, "there was no master");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn peers_come_and_go_while_links_are_cut_and_all_peers_agree_on_each_outcome() {
    // Make more changes per seed if many seeds are requested.
    let rounds = if seeds() == 1 { 4 } else { 8 };
    for seed in 1..=seeds() {
        chaos(rounds, seed).await;
    }
}
