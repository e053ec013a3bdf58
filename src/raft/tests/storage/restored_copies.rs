//! The data directory of a peer is restored from an older copy, and the others notice.

use std::{
    collections::BTreeMap,
    fs,
    path::{Path, PathBuf},
};

use crate::{
    log::{
        directory::Directory,
        high_water_mark::{StoredMark, slot},
    },
    tests::harness::{
        cluster::{Cluster, set_text, until, until_equal},
        requests::identity,
    },
};

/// A cluster with a copy of the victim's data directory.
struct CopiedDirectory {
    cluster: Cluster,
    victim: String,
    others: Vec<String>,
    copy: tempfile::TempDir,
}

fn copy(from: &Path, to: &Path) {
    fs::create_dir_all(to).expect("it can be made");
    for entry in fs::read_dir(from).expect("it can be read").map(|entry| entry.expect("it can be read")) {
        let to = to.join(entry.file_name());
        if entry.path().is_dir() {
            copy(&entry.path(), &to);
        } else {
            fs::copy(entry.path(), to).expect("it can be copied");
        }
    }
}

/// The content of all files of a directory.
fn bytes(of: &Path) -> BTreeMap<PathBuf, Vec<u8>> {
    let entries = fs::read_dir(of).expect("it can be read").map(|entry| entry.expect("it can be read").path());
    let (folders, files): (Vec<PathBuf>, Vec<PathBuf>) = entries.partition(|path| path.is_dir());
    let below = folders.iter().flat_map(|folder| bytes(folder));
    let name = |path: &Path| path.file_name().map(PathBuf::from).unwrap_or_default();
    let here = files.iter().map(|file| (name(file), fs::read(file).expect("it can be read")));
    below.chain(here).collect()
}

impl CopiedDirectory {
    /// Copies the directory of the master or of a follower.
    async fn new(is_master: bool) -> CopiedDirectory {
        let cluster = Cluster::three().await;
        cluster.propose(set_text("before")).await;
        until_equal(&cluster, &cluster.names, "at first").await;
        let (master, _) = cluster.master().await;
        let victim = cluster.names.iter().find(|name| (**name == master) == is_master).expect("there is one").clone();
        let others = cluster.names.iter().filter(|name| **name != victim).cloned().collect();
        let kept = tempfile::tempdir().expect("a temporary directory");
        let copied = CopiedDirectory { cluster, victim, others, copy: kept };
        // If two copies are the same, nothing was written in between.
        until("nothing is written", || {
            let again = tempfile::tempdir().expect("a temporary directory");
            copy(&copied.data(), copied.copy.path());
            copy(&copied.data(), again.path());
            bytes(copied.copy.path()) == bytes(again.path())
        })
        .await;
        copied
    }

    fn data(&self) -> PathBuf {
        self.cluster.data(&self.victim)
    }

    /// Commits changes that the copy lacks.
    async fn commit_more(&self) {
        for text in ["one", "two", "three"] {
            self.cluster.propose(set_text(text)).await;
        }
        until_equal(&self.cluster, &self.cluster.names, "after the copy").await;
    }

    /// The victim has to be down.
    async fn restore_copy(&self) {
        self.cluster.wipe(&self.victim);
        copy(self.copy.path(), &self.data());
        // The directory alone looks intact.
        drop(Directory::open(&self.data()).expect("it is free"));
    }

    /// Waits until another peer has recorded, in both slots of its high-water mark, that the victim has all entries.
    async fn is_stored(&self) {
        let victim = identity(&self.cluster, &self.victim).peer;
        let covers_all = |mark: StoredMark| mark.known.get(&victim).is_some_and(|known| Some(known.log) == mark.last);
        let has_stored = |name: &String| {
            let bytes = fs::read(self.cluster.data(name).join("high-water-mark")).expect("it can be read");
            [0, 512].iter().all(|at| slot(&bytes, *at).is_some_and(covers_all))
        };
        until("it is stored", || self.others.iter().any(has_stored)).await;
    }

    /// The reports of the other peers about the restored peer.
    fn noticed(&self) -> Vec<String> {
        let running = self.cluster.running().filter(|(name, _)| **name != self.victim);
        running.flat_map(|(_, peer)| peer.losses()).collect()
    }

    async fn is_noticed(&self) {
        let victim = format!("{} has lost entries of the log that it had acknowledged", self.victim);
        until("it is noticed", || self.noticed().iter().any(|loss| loss.starts_with(&victim))).await;
    }
}

/// Restores the directory of the master or of a follower, and returns once the others have noticed it.
async fn restored(is_master: bool, others_run: bool) -> CopiedDirectory {
    let mut copied = CopiedDirectory::new(is_master).await;
    copied.commit_more().await;
    let victim = copied.victim.clone();
    let stopped = if others_run { Vec::new() } else { copied.others.clone() };
    if !others_run {
        copied.is_stored().await;
    }
    stopped.iter().chain([&victim]).for_each(|name| copied.cluster.kill(name));
    copied.restore_copy().await;
    copied.cluster.start(&victim).await;
    for name in &stopped {
        copied.cluster.start(name).await;
    }
    copied.is_noticed().await;
    copied
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_directory_restored_while_all_peers_were_down_is_noticed() {
    for is_master in [false, true] {
        let mut copied = restored(is_master, false).await;
        until_equal(&copied.cluster, &copied.cluster.names, "after the restart").await;
        // With an empty directory, as the message advises, the peer rejoins and the loss is no longer reported.
        let victim = copied.victim.clone();
        copied.cluster.kill(&victim);
        copied.cluster.wipe(&victim);
        copied.cluster.start(&victim).await;
        until("no loss is reported", || copied.noticed().is_empty()).await;
        until_equal(&copied.cluster, &copied.cluster.names, "after it has rejoined").await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_directory_restored_while_the_others_run_is_noticed() {
    for is_master in [false, true] {
        let copied = restored(is_master, true).await;
        copied.cluster.propose(set_text("after")).await;
        until_equal(&copied.cluster, &copied.cluster.names, "after the next command").await;
        assert!(
            copied.cluster.running().all(|(_, peer)| peer.failure().borrow().is_none() && peer.gets_heartbeats()),
            "the master and its followers are not disturbed"
        );
    }
}

/// A majority that lost the same entries commits others in their place.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_loss_of_a_majority_is_noticed_by_the_remaining_peer() {
    for runs in [false, true] {
        let mut copied = CopiedDirectory::new(false).await;
        let (knows, _) = copied.cluster.master().await;
        let behind = copied.others.iter().find(|name| **name != knows).expect("there are two").clone();
        copied.cluster.kill(&behind);
        for text in ["one", "two", "three"] {
            copied.cluster.propose(set_text(text)).await;
        }
        let pair = [knows.clone(), copied.victim.clone()];
        until_equal(&copied.cluster, &pair, "after the copy").await;
        copied.is_stored().await;
        let victim = copied.victim.clone();
        copied.cluster.kill(&victim);
        if runs {
            copied.cluster.isolate(&knows, true);
        } else {
            copied.cluster.kill(&knows);
        }
        copied.restore_copy().await;
        copied.cluster.start(&victim).await;
        copied.cluster.start(&behind).await;
        let forgetful = [behind.clone(), victim.clone()];
        until("one of the two is master", || copied.cluster.masters().iter().any(|(name, _)| forgetful.contains(name)))
            .await;
        for text in ["four", "five"] {
            copied.cluster.propose(set_text(text)).await;
        }
        if runs {
            copied.cluster.isolate(&knows, false);
        } else {
            copied.cluster.start(&knows).await;
        }
        copied.is_noticed().await;
        let conflict = "the other peers have lost a part of the log that was committed";
        until("the conflict is noticed", || copied.noticed().iter().any(|loss| loss.starts_with(conflict))).await;
        if runs {
            // It has applied the lost entries, and cannot take them back.
            let failure = || copied.cluster.peer(&knows).failure().borrow().clone();
            until("consensus has ended on it", || failure().is_some()).await;
            let failure = failure().expect("just seen").to_string();
            assert!(
                failure.starts_with(conflict) && failure.contains("empty the data directory of this peer"),
                "{failure}"
            );
        } else {
            until_equal(&copied.cluster, &copied.cluster.names, "it follows").await;
        }
    }
}
