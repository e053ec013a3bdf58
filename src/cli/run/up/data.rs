//! The directories that `leaseway up` creates: `DATA/NODE`, with a directory for each peer.
//!
//! The node's directory has a marker file. Directories without it are neither used nor deleted. From before the first
//! start of the peers until a master is seen, it also has a [bootstrap file](bootstrap_marker). While that exists, all peers
//! get `--bootstrap` (or `--take-over`), also those that start later (`--only`) or again (after a port was in use).
//! Afterwards no peer gets the flag, so that a peer whose directory was wiped joins the others instead of bootstrapping
//! a new cluster.

use std::path::{Path, PathBuf};
use std::{fs, io};

use super::bootstrap_marker;
use super::plan::{NodePlan, Plan};
use leaseway_server::Backup;

use crate::error::CliError;

const MARKER: &str = "made-by-leaseway-up";
const MARKER_TEXT: &str = "`leaseway up` made this directory, and `leaseway up --fresh` may delete it.\n";

/// Creates everything that must exist before peers start; with `fresh`, deletes old data first. Changes nothing if `up`
/// has not created one of the directories.
pub(super) fn prepare(plan: &Plan, fresh: bool) -> Result<(), CliError> {
    for node in &plan.nodes {
        check_ours(&node.directory)?;
    }
    plan.nodes.iter().try_for_each(|node| prepare_node(node, fresh))
}

fn prepare_node(node: &NodePlan, fresh: bool) -> Result<(), CliError> {
    if fresh {
        for peer in &node.peers {
            let failed = |error| CliError::Removal { path: peer.data.clone(), error };
            remove(&peer.data).map_err(failed)?;
        }
    }
    at(&node.directory, fs::create_dir_all(&node.directory))?;
    write(&node.directory.join(MARKER), MARKER_TEXT)?;
    if let Some(flag) = &node.first {
        at(&node.directory, bootstrap_marker::begin(&node.directory, flag))?;
    }
    match &node.inline {
        Some((path, text)) => write(path, text),
        None => Ok(()),
    }
}

/// Fails for a directory that `up` has not created, unless it is empty or has only peers placed by `leaseway restore`.
fn check_ours(directory: &Path) -> Result<(), CliError> {
    let there = directory.exists() && !directory.join(MARKER).exists();
    let is_restored = |path: PathBuf| Backup::pending(&path).is_ok_and(|backup| backup.is_some());
    let fits =
        || fs::read_dir(directory).is_ok_and(|mut all| all.all(|entry| entry.is_ok_and(|one| is_restored(one.path()))));
    if there && !fits() {
        return Err(CliError::NotOurs { directory: directory.to_owned() });
    }
    Ok(())
}

fn remove(directory: &Path) -> io::Result<()> {
    match fs::remove_dir_all(directory) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        other => other,
    }
}

fn write(path: &Path, text: &str) -> Result<(), CliError> {
    at(path, fs::write(path, text))
}

fn at<T>(path: &Path, result: io::Result<T>) -> Result<T, CliError> {
    result.map_err(|error| CliError::Data { path: PathBuf::from(path), error })
}

#[cfg(test)]
mod tests {
    use super::super::{file, plan};
    use super::*;

    const SET: &str =
        "nodes: {root: {resources: [{identifier_glob: '*', capacity: 1, algorithm: {kind: STATIC}}], peers: {
        a: {grpc: '127.0.0.1:1', http: '127.0.0.1:2', admin: '127.0.0.1:3', peer: '127.0.0.1:4'},
        b: {grpc: '127.0.0.1:5', http: '127.0.0.1:6', admin: '127.0.0.1:7', peer: '127.0.0.1:8'}}}}";

    /// Prepares the data as `up` does, without processes. Returns each peer's label, and whether it is bootstrapped.
    fn up(data: &Path, only: Option<&str>, fresh: bool) -> Result<Vec<(String, bool)>, String> {
        let set = file::parse("f", SET.as_bytes(), data).expect("a good file");
        let only = only.map(|only| only.split(',').map(str::to_owned).collect::<Vec<_>>());
        let start = plan::Start { only: only.as_deref(), fresh, ..Default::default() };
        let plan = plan::plan(&set, data, data, &start).map_err(|error| error.to_string())?;
        prepare(&plan, fresh).map_err(|error| error.to_string())?;
        let peers = plan.peers().map(|peer| {
            fs::create_dir_all(&peer.data).expect("the peer makes it");
            fs::write(peer.data.join("log"), "promises").expect("written");
            (peer.label.clone(), peer.arguments.contains(&"--bootstrap".to_owned()))
        });
        Ok(peers.collect())
    }

    fn peers(expected: &[(&str, bool)]) -> Result<Vec<(String, bool)>, String> {
        Ok(expected.iter().map(|(name, bootstrap)| ((*name).to_owned(), *bootstrap)).collect())
    }

    #[test]
    fn peers_are_bootstrapped_until_the_node_has_had_a_master() {
        let temporary = tempfile::tempdir().expect("a directory");
        let (data, root) = (temporary.path(), temporary.path().join("root"));
        assert_eq!(up(data, Some("a"), false), peers(&[("a", true)]));
        assert_eq!(up(data, Some("b"), false), peers(&[("b", true)]), "the first peer waits for it");
        assert_eq!(up(data, None, false), peers(&[("a", true), ("b", true)]), "the first start failed");
        bootstrap_marker::end(&root);
        assert_eq!(up(data, None, false), peers(&[("a", false), ("b", false)]));
        fs::remove_dir_all(root.join("b")).expect("wiped");
        assert_eq!(up(data, None, false), peers(&[("a", false), ("b", false)]), "it must learn from the other");
        fs::remove_dir_all(root.join("a")).expect("wiped");
        fs::remove_dir_all(root.join("b")).expect("wiped");
        assert_eq!(up(data, None, false), peers(&[("a", true), ("b", true)]), "no peer remembers anything");
        assert!(fs::read_to_string(root.join("config.yaml")).expect("written").contains("capacity: 1"));
    }

    #[test]
    fn a_take_over_is_remembered_until_there_is_a_master() {
        let temporary = tempfile::tempdir().expect("a directory");
        let data = temporary.path();
        let commands = |take_over: Option<&str>| {
            let set = file::parse("f", SET.as_bytes(), data).expect("a good file");
            let take_over = take_over.map(|seconds| seconds.parse().expect("a length"));
            let plan = plan::plan(&set, data, data, &plan::Start { take_over, ..Default::default() }).expect("a plan");
            prepare(&plan, false).expect("prepared");
            plan.peers().for_each(|peer| fs::create_dir_all(&peer.data).expect("the peer makes it"));
            plan.peers().next().and_then(|peer| peer.arguments.last().cloned()).expect("it has arguments")
        };
        assert_eq!(commands(Some("90")), "--take-over=90");
        assert_eq!(commands(None), "--take-over=90", "the flag is not repeated");
        assert_eq!(commands(Some("longest")), "--take-over=longest");
        bootstrap_marker::end(&data.join("root"));
        assert!(!commands(None).starts_with("--take-over"), "there was a master");
    }

    #[test]
    fn fresh_deletes_the_data_of_started_peers_only() {
        let temporary = tempfile::tempdir().expect("a directory");
        let (data, root) = (temporary.path(), temporary.path().join("root"));
        up(data, None, false).expect("the first start");
        bootstrap_marker::end(&root);
        fs::write(data.join("mine"), "kept").expect("written");
        fs::write(root.join("b").join("more"), "gone").expect("written");
        assert_eq!(up(data, Some("b"), true), peers(&[("b", false)]), "the other remembers");
        assert!(!root.join("b").join("more").exists() && root.join("a").join("log").exists());
        assert_eq!(up(data, None, true), peers(&[("a", true), ("b", true)]), "all data is deleted");
        assert!(data.join("mine").exists());
    }

    #[test]
    fn directories_without_the_marker_are_neither_used_nor_deleted() {
        let temporary = tempfile::tempdir().expect("a directory");
        let root = temporary.path().join("root");
        fs::create_dir_all(root.join("a")).expect("made");
        fs::write(root.join("a").join("log"), "precious").expect("written");
        for fresh in [false, true] {
            let error = up(temporary.path(), None, fresh).expect_err("not ours");
            assert!(error.contains(&root.display().to_string()) && error.contains("--data"), "{error}");
        }
        assert_eq!(fs::read_to_string(root.join("a").join("log")).expect("still there"), "precious");
        assert!(!root.join(MARKER).exists());
    }
}
