//! `leaseway up`: what it starts and stops, and what it refuses.

use std::{net::TcpListener, path::Path};

use rustix::process::Signal;

use crate::harness::{
    config::ConfigFile,
    process::{Process, leaseway},
    server::{ANYWHERE, addresses_of_its_own},
    slots::ServerSlot,
    wait::eventually,
};

/// Three peers wherever there is room, with what they remember beside their file.
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

    /// Until all serve and one of them is master.
    fn up(&self) -> Process {
        self.up_with(&[])
    }

    fn up_with(&self, flags: &[&str]) -> Process {
        let up = Process::start(&[&["up", self.file.path()], flags].concat(), &[]);
        eventually("there is a master", || {
            let ended = up.ended();
            assert!(ended.is_none(), "it ended: {}\n{}", up.stdout(), up.stderr());
            up.stdout().lines().any(|line| line.ends_with(" is master")).then_some(())
        });
        up
    }

    fn commands(&self) -> String {
        leaseway(&["up", self.file.path(), "--print"]).stdout
    }
}

/// The table that it prints, without its heading: name, gRPC, HTTP, admin.
fn rows(up: &Process) -> Vec<Vec<String>> {
    let stdout = up.stdout();
    let table = stdout.lines().skip_while(|line| !line.starts_with("PEER")).skip(1).take_while(|line| !line.is_empty());
    table.map(|line| line.split_whitespace().map(str::to_owned).collect()).collect()
}

#[test]
fn three_peers_answer_as_one_and_stop_together() {
    let three = Three::new();
    assert_eq!(three.commands().matches("--bootstrap").count(), 3, "nothing was ever promised");
    let up = three.up();
    let data = Path::new(three.file.path()).parent().unwrap().join("leaseway-data");
    assert!(up.stdout().contains(&format!("data directory: {}\n", data.display())), "{}", up.stdout());
    let rows = rows(&up);
    assert_eq!(rows.iter().map(|row| row[0].as_str()).collect::<Vec<_>>(), ["a", "b", "c"]);
    for row in &rows {
        // One peer has seen a master; the others, and its quorum, may need a moment more.
        eventually(&format!("a grant through {}", row[0]), || {
            let said = leaseway(&["get", &row[0], "mysql", "20", "--server", &row[1]]);
            said.stdout.contains("may use 20 of `mysql`").then_some(())
        });
        let said = leaseway(&["peers", "list", "--json", "--admin", &row[3]]);
        let list: serde_json::Value = serde_json::from_str(&said.stdout).unwrap_or_else(|_| panic!("{said:?}"));
        assert_eq!(list["peers"].as_array().unwrap().len(), 3, "{list}");
    }
    assert_eq!(three.commands().matches("--bootstrap").count(), 0, "there was a master");
    up.signal(Signal::TERM);
    let said = up.finish();
    assert_eq!(said.code, Some(0), "{said:?}");
    for address in &three.peer_addresses {
        TcpListener::bind(address).unwrap_or_else(|error| panic!("{address} is still served: {error}"));
    }
    let up = three.up();
    up.signal(Signal::KILL);
    for address in &three.peer_addresses {
        eventually("the peers do not outlive it", || TcpListener::bind(address).ok());
    }
}

#[test]
fn with_tls_it_makes_certificates_and_says_what_a_client_needs() {
    let three = Three::new();
    let up = three.up_with(&["--tls"]);
    let line = eventually("it says what a client needs", || {
        let stdout = up.stdout();
        let line = stdout.lines().find_map(|line| line.trim().strip_prefix("export "))?;
        stdout.contains("Ctrl-C stops").then(|| line.to_owned())
    });
    let variables: Vec<_> = line.split_whitespace().map(|word| word.split_once('=').unwrap()).collect();
    assert_eq!(
        variables.iter().map(|(name, _)| *name).collect::<Vec<_>>(),
        ["LEASEWAY_TLS_CA", "LEASEWAY_TLS_CERT", "LEASEWAY_TLS_KEY"]
    );
    let row = &rows(&up)[0];
    assert!(row[2].starts_with("https://"), "{row:?}");
    let asked = |arguments: &[&str]| Process::start(arguments, &variables).finish();
    eventually("a grant over TLS", || {
        let said = asked(&["get", "alice", "mysql", "20", "--server", &row[1]]);
        said.stdout.contains("may use 20 of `mysql`").then_some(())
    });
    let list = asked(&["peers", "list", "--admin", &row[3]]);
    assert!(list.code == Some(0) && list.stdout.contains("follower"), "{list:?}");
    let without = leaseway(&["get", "bob", "mysql", "20", "--server", &row[1]]);
    assert!(without.code == Some(69) && without.stderr.contains("--tls-ca"), "{without:?}");
    up.signal(Signal::TERM);
    assert_eq!(up.finish().code, Some(0));
}

#[test]
fn a_server_that_was_started_by_up_does_not_outlive_it() {
    let flags = ["serve", "--listen", ANYWHERE, "--http", ANYWHERE];
    let mut tied = Process::start_reading(&flags, &[("LEASEWAY_UP_TETHER", "stdin")]);
    eventually("it serves", || tied.stdout().contains("serving gRPC").then_some(()));
    assert!(tied.ended().is_none(), "the other end of the pipe is there");
    tied.close_input();
    assert_eq!(tied.finish().code, Some(0), "it has stopped as if asked to");
}

#[test]
fn a_policy_in_the_file_is_in_force_and_the_masters_are_found_under_it() {
    let _slot = ServerSlot::take();
    let [parent, root, leaf] = [(); 3].map(|()| addresses_of_its_own()[0].clone());
    let peer = |grpc: &str, peer: &str| {
        format!("{{a: {{grpc: '{grpc}', http: '{ANYWHERE}', admin: '{ANYWHERE}', peer: '{peer}'}}}}")
    };
    let file = ConfigFile::new(&format!(
        "nodes:\n  root:\n    resources: [{{identifier_glob: '*', capacity: 50, algorithm: {{kind: FAIR_SHARE}}}}]\n    \
         access: [{{who: ops, may: [read, configure]}}]\n    peers: {}\n  leaf:\n    parent: root\n    \
         access: [{{who: anonymous, may: ask, resources: x, clients: guest}}]\n    peers: {}\n",
        peer(&parent, &root),
        peer(ANYWHERE, &leaf)
    ));
    let up = Process::start(&["up", file.path()], &[]);
    eventually("both nodes have a master", || {
        let ended = up.ended();
        assert!(ended.is_none(), "it ended: {}\n{}", up.stdout(), up.stderr());
        let stdout = up.stdout();
        ["root/a is master", "leaf/a is master"].iter().all(|says| stdout.contains(says)).then_some(())
    });
    let at = |name: &str| rows(&up).iter().find(|row| row[0] == name).expect("it is in the table")[1].clone();
    for name in ["root/a", "leaf/a"] {
        let refused = leaseway(&["get", "guest", "y", "5", "--server", &at(name)]);
        let says = "`anonymous` may not ask for `y` as client `guest`";
        assert!(refused.code != Some(0) && refused.stderr.contains(says), "{name}: {refused:?}");
    }
}

/// The first peer is not started again, which is to commands as if it had been killed.
#[test]
fn commands_find_the_peers_of_a_running_up_also_when_the_first_of_them_is_down() {
    let _slot = ServerSlot::take();
    let [grpc, admin, peer] = [(); 3].map(|()| [(); 3].map(|()| addresses_of_its_own()[0].clone()));
    let peers = (0..3).map(|n| {
        let (name, grpc, admin, peer) = (["a", "b", "c"][n], &grpc[n], &admin[n], &peer[n]);
        format!("      {name}: {{grpc: '{grpc}', http: '{ANYWHERE}', admin: '{admin}', peer: '{peer}'}}\n")
    });
    let peers: String = peers.collect();
    let file = ConfigFile::new(&format!(
        "nodes:\n  root:\n    options: {{threads: 1, timing: several-sites}}\n    peers:\n{peers}"
    ));
    let directory = tempfile::tempdir().unwrap();
    let run_directory = [("LEASEWAY_RUN_DIR", directory.path().to_str().unwrap())];
    let asked = |command: &[&str]| Process::start(command, &run_directory).finish();
    let granted = |up: &Process| {
        eventually("a grant without a word on where to ask", || {
            let ended = up.ended();
            assert!(ended.is_none(), "it ended: {}\n{}", up.stdout(), up.stderr());
            let serves = up.stdout().contains("Ctrl-C stops");
            let said = serves.then(|| asked(&["get", "alice", "mysql", "40"]))?;
            said.stdout.contains("may use 40 of `mysql`").then_some(())
        });
    };
    let all = Process::start(&["up", file.path()], &run_directory);
    granted(&all);
    all.signal(Signal::TERM);
    assert_eq!(all.finish().code, Some(0));
    let up = Process::start(&["up", file.path(), "--only", "b,c"], &run_directory);
    granted(&up);
    for command in [&["status", "mysql"][..], &["peers", "list"], &["config", "show"], &["check"]] {
        let process = format!("asking the peers of `leaseway up`, process {}", up.id());
        eventually(&format!("{command:?} finds them"), || {
            let said = asked(command);
            assert!(said.stderr.contains(&process), "{command:?}: {said:?}");
            // A peer is missing, which `check` warns of.
            matches!(said.code, Some(0 | 3)).then_some(())
        });
    }
    let flag = asked(&["status", "--server", "127.0.0.1:1"]);
    assert!(flag.code == Some(69) && flag.stderr.contains("cannot reach a server at 127.0.0.1:1"), "{flag:?}");
    up.signal(Signal::TERM);
    up.finish();
    assert_eq!(directory.path().read_dir().unwrap().count(), 0, "the file of an orderly end is removed");
}
