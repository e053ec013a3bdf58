//! `leaseway up cluster/tree.yaml` starts each node after its parent.

use rustix::process::Signal;

use crate::harness::{
    config::ConfigFile,
    process::{Process, leaseway},
    server::free_addresses,
    slots::ServerSlot,
    wait::eventually,
};

/// `cluster/tree.yaml` with free ports.
fn file() -> ConfigFile {
    let tree = include_str!("../../../cluster/tree.yaml");
    let mut parts = tree.split("127.0.0.1:");
    let mut text = parts.next().unwrap().to_owned();
    let parts: Vec<_> = parts.collect();
    for (part, address) in parts.iter().zip(free_addresses(parts.len())) {
        text += &format!("{address}{}", part.trim_start_matches(|c: char| c.is_ascii_digit()));
    }
    ConfigFile::new(&text)
}

/// The gRPC address of a peer in the table that `up` prints.
fn grpc(stdout: &str, peer: &str) -> String {
    let mut table = stdout.lines().skip_while(|line| !line.starts_with("PEER "));
    let row = table.find_map(|line| line.strip_prefix(&format!("{peer} ")));
    let row = row.unwrap_or_else(|| panic!("{peer} is not in {stdout}"));
    row.split_whitespace().next().unwrap().to_owned()
}

#[test]
fn the_example_tree_starts_and_its_leaves_share_the_roots_capacity() {
    let (file, _slot) = (file(), ServerSlot::take());
    let up = Process::start(&["up", file.path()], &[]);
    eventually("all seven nodes have a master", || {
        let ended = up.ended();
        assert!(ended.is_none(), "`up` ended: {}\n{}", up.stdout(), up.stderr());
        // The hints end like this, too.
        let has_master = |line: &&str| line.ends_with(" is the master") && !line.contains('#');
        (up.stdout().lines().filter(has_master).count() == 7).then_some(())
    });
    let output = up.stdout();
    let master = |node: &str| {
        let named = |line: &str| line.starts_with(&format!("{node}/")) && line.ends_with(" is the master");
        output.lines().position(named).unwrap_or_else(|| panic!("{node} has no master: {output}"))
    };
    for (parent, child) in [("root", "east"), ("root", "west"), ("east", "east-1"), ("west", "west-2")] {
        assert!(master(parent) < master(child), "{child} waits for {parent}: {output}");
    }

    let ask = |client: &str, leaf: &str, wants: &str| {
        let got = leaseway(&["get", client, "mysql", wants, "--server", &grpc(&output, leaf)]);
        assert_eq!(got.code, Some(0), "{got:?}");
        got.stdout
    };
    assert!(ask("alice", "east-1/a", "40").contains("may use 40 of `mysql`"));
    assert!(
        ask("bob", "west-2/a", "80").contains("may use 60 of `mysql`"),
        "the rest of the capacity, in another region"
    );

    let places = [
        ("root/a", None, ["east", "west"].as_slice()),
        ("east/a", Some("root/a"), &["east-1"]),
        ("west-2/a", Some("west/a"), &["bob"]),
    ];
    for (peer, parent, holders) in places {
        let status = leaseway(&["status", "mysql", "--json", "--server", &grpc(&output, peer)]);
        let status: serde_json::Value = serde_json::from_str(&status.stdout).unwrap_or_else(|_| panic!("{status:?}"));
        let source = status["config"]["source"].as_str().unwrap();
        match parent {
            None => assert!(!source.contains("parent"), "{peer}: {status}"),
            Some(parent) => assert!(source.contains("parent") && source.contains(&grpc(&output, parent)), "{status}"),
        }
        let holder = status["resources"][0]["holder"].as_array().unwrap();
        let mut found: Vec<_> = holder.iter().map(|holder| holder["id"].as_str().unwrap()).collect();
        found.sort_unstable();
        assert_eq!(found, holders, "at {peer}: {status}");
    }

    up.signal(Signal::TERM);
    let output = up.finish();
    assert_eq!(output.code, Some(0), "{output:?}");
}
