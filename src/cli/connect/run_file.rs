//! The run file of `leaseway up`: where its peers serve, for commands without an address flag or variable.
//!
//! `up` writes the addresses of its peers into a file, and holds a lock on it while it runs. A file without a lock is
//! stale: its `up` was killed, and its peers with it. Commands ignore stale files, and errors mention them.

use std::fs::{File, TryLockError};
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::{env, fs, io};

use serde::{Deserialize, Serialize};

use crate::error::{AddressSource, Port};

/// Overrides the directory of run files.
const DIRECTORY: &str = "LEASEWAY_RUN_DIR";

/// The content of a run file.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Running {
    /// The process ID of `leaseway up`.
    pub(crate) process: u32,
    pub(crate) nodes: Vec<RunningNode>,
}

/// A node, with all peers whose addresses are known, including those that another `up` runs.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct RunningNode {
    pub(crate) name: String,
    /// The node has no parent.
    pub(crate) is_root: bool,
    /// `HOST:PORT` for clients.
    pub(crate) servers: Vec<String>,
    /// `HOST:PORT` for operators.
    pub(crate) admins: Vec<String>,
}

impl RunningNode {
    pub(crate) fn addresses(&self, port: Port) -> &[String] {
        match port {
            Port::Clients => &self.servers,
            Port::Operators => &self.admins,
        }
    }
}

/// The addresses to ask, and their source.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Found {
    pub(crate) addresses: Vec<String>,
    pub(crate) origin: AddressSource,
}

impl Found {
    /// The process ID of the `up` whose peers are asked, unless one of them serves at the default address.
    pub(crate) fn other_up(&self, port: Port) -> Option<u32> {
        let is_default = self.addresses.iter().any(|address| address == port.default_address());
        match &self.origin {
            AddressSource::Up { process, .. } if !is_default => Some(*process),
            _ => None,
        }
    }
}

/// The peers of the node at the default address; else those of the only running `up`; else the default.
pub(crate) fn find(port: Port) -> Found {
    choose(port, directory().map_or_else(Vec::new, |directory| read_all(&directory)))
}

fn choose(port: Port, mut files: Vec<RunFile>) -> Found {
    let default = port.default_address();
    let at_default = |node: &RunningNode| node.addresses(port).iter().any(|address| address == default);
    let ended = files.iter().find(|file| !file.is_live && file.running.nodes.iter().any(at_default));
    let ended = ended.map(|file| file.running.process);
    files.retain(|file| file.is_live);
    let with_default = files.iter().position(|file| file.running.nodes.iter().any(at_default));
    let chosen = with_default.or((files.len() == 1).then_some(0)).map(|index| &files[index]);
    let node = |file: &RunFile| {
        let nodes = &file.running.nodes;
        nodes.iter().find(|node| at_default(node)).or_else(|| nodes.iter().find(|node| node.is_root)).cloned()
    };
    let found = chosen.and_then(|file| Some((file, node(file)?))).filter(|(_, node)| !node.addresses(port).is_empty());
    match found {
        Some((file, node)) => Found {
            addresses: node.addresses(port).to_vec(),
            origin: AddressSource::Up { process: file.running.process, file: file.path.clone() },
        },
        None => Found { addresses: vec![default.to_owned()], origin: AddressSource::Default { port, ended } },
    }
}

struct RunFile {
    path: PathBuf,
    running: Running,
    is_live: bool,
}

/// All readable run files of a directory.
fn read_all(directory: &Path) -> Vec<RunFile> {
    let entries = fs::read_dir(directory).into_iter().flatten().flatten();
    let files = entries.map(|entry| entry.path()).filter(|path| path.extension().is_some_and(|of| of == "json"));
    files.filter_map(|path| read(&path)).collect()
}

fn read(path: &Path) -> Option<RunFile> {
    let file = File::open(path).ok()?;
    let is_live = matches!(file.try_lock_shared(), Err(TryLockError::WouldBlock));
    let running = serde_json::from_reader(&file).ok()?;
    Some(RunFile { path: path.to_owned(), running, is_live })
}

/// The run file of this process, removed when this is dropped.
pub(crate) struct RunFileGuard {
    path: PathBuf,
    _locked: File,
}

/// Writes the run file. Does nothing if no directory for it is known.
pub(crate) fn write(running: &Running) -> io::Result<Option<RunFileGuard>> {
    directory().map(|directory| write_into(&directory, running)).transpose()
}

fn write_into(directory: &Path, running: &Running) -> io::Result<RunFileGuard> {
    fs::create_dir_all(directory)?;
    for stale in read_all(directory).iter().filter(|file| !file.is_live) {
        fs::remove_file(&stale.path)?;
    }
    let path = directory.join(format!("up-{}.json", running.process));
    // Readers must find the file locked and complete.
    let hidden = path.with_extension("new");
    let mut file = File::create(&hidden)?;
    file.lock()?;
    file.write_all(serde_json::to_string(running)?.as_bytes())?;
    fs::rename(&hidden, &path)?;
    Ok(RunFileGuard { path, _locked: file })
}

impl Drop for RunFileGuard {
    fn drop(&mut self) {
        // If this fails the file is stale, and readers ignore it.
        let _ = fs::remove_file(&self.path);
    }
}

/// Per user: no other user may redirect this user's commands.
fn directory() -> Option<PathBuf> {
    let set = |name| env::var_os(name).filter(|value| !value.is_empty()).map(PathBuf::from);
    set(DIRECTORY)
        .or_else(|| Some(set("XDG_RUNTIME_DIR")?.join("leaseway")))
        .or_else(|| Some(set("HOME")?.join(".local/state/leaseway")))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn running(process: u32, nodes: &[(&str, bool, &[u16])]) -> Running {
        let node = |(name, is_root, ports): &(&str, bool, &[u16])| RunningNode {
            name: (*name).to_owned(),
            is_root: *is_root,
            servers: ports.iter().map(|port| format!("127.0.0.1:{port}")).collect(),
            admins: ports.iter().map(|port| format!("127.0.0.1:{}", port + 60)).collect(),
        };
        Running { process, nodes: nodes.iter().map(node).collect() }
    }

    fn found(directory: &Path, port: Port) -> (String, AddressSource) {
        let Found { addresses, origin } = choose(port, read_all(directory));
        (addresses.join(","), origin)
    }

    const THREE: &[u16] = &[5100, 5101, 5102];

    #[test]
    fn commands_ask_all_peers_of_a_running_up_and_the_default_address_after_its_end() {
        let directory = tempfile::tempdir().expect("a directory");
        let at = directory.path();
        let default = |ended| ("127.0.0.1:5100".to_owned(), AddressSource::Default { port: Port::Clients, ended });
        assert_eq!(found(&at.join("none"), Port::Clients), default(None));
        let written = write_into(&at.join("made"), &running(7, &[("root", true, THREE)])).expect("written");
        let origin = AddressSource::Up { process: 7, file: written.path.clone() };
        let servers = "127.0.0.1:5100,127.0.0.1:5101,127.0.0.1:5102".to_owned();
        assert_eq!(found(&at.join("made"), Port::Clients), (servers, origin.clone()));
        let admins = "127.0.0.1:5160,127.0.0.1:5161,127.0.0.1:5162".to_owned();
        assert_eq!(found(&at.join("made"), Port::Operators), (admins, origin));
        drop(written);
        assert_eq!(found(&at.join("made"), Port::Clients), default(None));
    }

    #[test]
    fn a_stale_file_is_ignored_and_mentioned_in_the_error() {
        let directory = tempfile::tempdir().expect("a directory");
        let text = serde_json::to_string(&running(7, &[("root", true, THREE)])).expect("JSON");
        let stale = directory.path().join("up-7.json");
        fs::write(&stale, text).expect("written");
        let (addresses, origin) = found(directory.path(), Port::Clients);
        assert_eq!(addresses, "127.0.0.1:5100");
        assert!(origin.to_string().contains("(process 7) served there and was killed"), "{origin}");
        let _written = write_into(directory.path(), &running(8, &[("root", true, &[9])])).expect("written");
        assert!(!stale.exists(), "the next one cleans up");
    }

    #[test]
    fn in_a_tree_the_node_at_the_default_address_is_asked_or_else_the_root() {
        let directory = tempfile::tempdir().expect("a directory");
        for (leaf, root, expected) in
            [(&[5100][..], &[9][..], "127.0.0.1:5100"), (&[7][..], &[9, 10][..], "127.0.0.1:9,127.0.0.1:10")]
        {
            let nodes = [("leaf", false, leaf), ("root", true, root)];
            let _written = write_into(directory.path(), &running(7, &nodes)).expect("written");
            assert_eq!(found(directory.path(), Port::Clients).0, expected);
        }
    }

    #[test]
    fn of_several_runs_only_one_at_the_default_address_is_asked() {
        let directory = tempfile::tempdir().expect("a directory");
        let write = |process, ports| write_into(directory.path(), &running(process, &[("root", true, ports)]));
        let _others = [write(7, &[1, 2]), write(8, &[3])].map(|written| written.expect("written"));
        assert_eq!(found(directory.path(), Port::Clients).0, "127.0.0.1:5100");
        let _third = write(9, THREE).expect("written");
        assert!(found(directory.path(), Port::Clients).0.ends_with(":5102"));
    }

    #[test]
    fn no_error_advises_to_start_another_server() {
        let file = PathBuf::from("up-7.json");
        for origin in [
            AddressSource::Given(Port::Clients),
            AddressSource::Variable(Port::Operators),
            AddressSource::Up { process: 7, file },
            AddressSource::Default { port: Port::Clients, ended: Some(7) },
            AddressSource::Default { port: Port::Operators, ended: None },
        ] {
            assert!(!origin.to_string().contains("serve`"), "{origin}");
        }
    }
}
