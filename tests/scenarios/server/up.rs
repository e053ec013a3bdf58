//! `leaseway up` starts and stops peers.

use std::{net::TcpListener, path::Path};

use rustix::process::Signal;

use crate::harness::{
    config::ConfigFile,
    process::{Process, leaseway},
    server::{ANYWHERE, addresses_of_its_own},
    slots::ServerSlot,
    wait::eventually,
};

/// A file with three peers on free ports. Their data directories are next to the file.
struct Three {
    file: ConfigFile,
    peer_addresses: [String; 3],
    _slot: ServerSlot,
}

impl Three {
    fn new() -> Three {
        let peer_addresses = [(); 3].map(|()| addresses_of_its_own()[0].clone());
        let peers = ["a", "b", "c"].iter().zip(&peer_addresses).map(|(name, address)| {
            format!(
                "      {name}: {{grpc: '{ANYWHERE}', http: '{ANYWHERE}', admin: '{ANYWHERE}', peer: '{address}'}}\n"
            )
        });
        let peers: String = peers.collect();
        let text = format!("nodes:\n  root:\n    options: {{threads: 1, timing: several-sites}}\n    peers:\n{peers}");
        Three { file: ConfigFile::new(&text), peer_addresses, _slot: ServerSlot::take() }
    }

    /// Waits until all peers serve and one is master.
    fn up(&self) -> Process {
        self.up_with(&[])
    }

    fn up_with(&self, flags: &[&str]) -> Process {
        let up = Process::start(&[&["up", self.file.path()], flags].concat(), &[]);
        eventually("a peer is master", || {
            let ended = up.ended();
            assert!(ended.is_none(), "`up` ended: {}\n{}", up.stdout(), up.stderr());
            up.stdout().lines().any(|line| line.ends_with(" is the master")).then_some(())
        });
        up
    }

    fn commands(&self) -> String {
        leaseway(&["up", self.file.path(), "--print"]).stdout
    }
}

/// The rows of the table that `up` prints: name, gRPC, HTTP, admin.
fn rows(up: &Process) -> Vec<Vec<String>> {
    let stdout = up.stdout();
    let table = stdout.lines().skip_while(|line| !line.starts_with("PEER")).skip(1).take_while(|line| !line.is_empty());
    table.map(|line| line.split_whitespace().map(str::to_owned).collect()).collect()
}

#[test]
fn up_starts_three_peers_and_stops_them_together() {
    let three = Three::new();
    assert_eq!(three.commands().matches("--bootstrap").count(), 3, "the first start bootstraps");
    let up = three.up();
    let data = Path::new(three.file.path()).parent().unwrap().join("leaseway-data");
    assert!(up.stdout().contains(&format!("data directory: {}\n", data.display())), "{}", up.stdout());
    let rows = rows(&up);
    assert_eq!(rows.iter().map(|row| row[0].as_str()).collect::<Vec<_>>(), ["a", "b", "c"]);
    for row in &rows {
        // The other peers may learn of the master a moment later.
        eventually(&format!("a grant through {}", row[0]), || {
            let output = leaseway(&["get", &row[0], "mysql", "20", "--server", &row[1]]);
            output.stdout.contains("may use 20 of `mysql`").then_some(())
        });
        let output = leaseway(&["peers", "list", "--json", "--admin", &row[3]]);
        let list: serde_json::Value = serde_json::from_str(&output.stdout).unwrap_or_else(|_| panic!("{output:?}"));
        assert_eq!(list["peers"].as_array().unwrap().len(), 3, "{list}");
    }
    assert_eq!(three.commands().matches("--bootstrap").count(), 0, "later starts do not bootstrap");
    let (output, admin) = (up.stdout(), &rows[0][3]);
    let master = output.lines().find_map(|line| line.strip_suffix(" is the master")).expect("`up` names the master");
    let next = ["a", "b"].into_iter().find(|peer| *peer != master).expect("one of two");
    let transferred = leaseway(&["transfer", next, "--admin", admin]);
    assert_eq!(transferred.code, Some(0), "{transferred:?}");
    eventually("the new master is named", || up.stdout().contains(&format!("{next} is the master now")).then_some(()));
    assert_eq!(up.stderr(), "", "no warnings");
    let is_relayed = |line: &str| ["a | ", "b | ", "c | "].iter().any(|prefix| line.starts_with(prefix));
    assert!(!up.stdout().lines().any(is_relayed), "the table has the addresses: {}", up.stdout());
    up.signal(Signal::TERM);
    let output = up.finish();
    assert_eq!(output.code, Some(0), "{output:?}");
    for address in &three.peer_addresses {
        TcpListener::bind(address).unwrap_or_else(|error| panic!("{address} is still served: {error}"));
    }
    let up = three.up();
    up.signal(Signal::KILL);
    for address in &three.peer_addresses {
        eventually("the peers do not outlive `up`", || TcpListener::bind(address).ok());
    }
}

#[test]
fn servers_do_not_outlive_leaseway_up() {
    let flags = ["serve", "--listen", ANYWHERE, "--http", ANYWHERE];
    let mut tied = Process::start_reading(&flags, &[("LEASEWAY_UP_TETHER", "stdin")]);
    eventually("the server serves", || tied.stdout().contains("serving gRPC").then_some(()));
    assert!(tied.ended().is_none(), "the server runs while the pipe is open");
    tied.close_input();
    assert_eq!(tied.finish().code, Some(0), "the server shuts down cleanly");
}
