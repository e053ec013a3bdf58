//! End-to-end tests of the `leaseway` binary with real processes, sockets on loopback, files and signals.
//!
//! Only behaviour that crosses a process boundary is tested here: flags, exit codes, bytes on the wire, restarts. Other
//! tests belong to the crates. Tests share servers and clusters where they can.
//!
//! No test depends on speed. Tests wait for conditions, with deadlines that only a hang exceeds. Of promised times,
//! such as the end of a lease, tests assert only that they are not too early.
#![allow(clippy::unwrap_used, reason = "everything here is test code")]

mod harness {
    pub(crate) mod authority;
    pub(crate) mod backend;
    pub(crate) mod bearer;
    pub(crate) mod binary;
    pub(crate) mod collector;
    pub(crate) mod config;
    pub(crate) mod control_plane;
    pub(crate) mod doorman;
    pub(crate) mod envoy;
    pub(crate) mod envoy_gateway;
    pub(crate) mod foreign;
    pub(crate) mod gateway;
    pub(crate) mod go_child;
    pub(crate) mod go_control_plane;
    pub(crate) mod go_parent;
    pub(crate) mod http;
    pub(crate) mod http2;
    pub(crate) mod legacy_client;
    pub(crate) mod machine;
    pub(crate) mod peers;
    pub(crate) mod process;
    pub(crate) mod prometheus;
    pub(crate) mod push;
    pub(crate) mod quotas;
    pub(crate) mod ratelimit;
    pub(crate) mod raw;
    pub(crate) mod rls;
    pub(crate) mod server;
    pub(crate) mod slots;
    pub(crate) mod suspension;
    pub(crate) mod terminal;
    pub(crate) mod tls;
    pub(crate) mod tree;
    pub(crate) mod wait;
}

mod scenarios {
    mod access;
    mod chaos;
    mod clients;
    mod cluster;
    mod commands;
    mod doorman;
    mod gateways;
    mod hostile;
    mod operators;
    mod pages;
    mod server;
    mod tree;
}

/// Finds test files that no module declares. Cargo ignores them silently.
#[test]
fn every_file_is_compiled() {
    fn check(folder: &std::path::Path, parent: &std::path::Path) {
        let list = std::fs::read_to_string(parent).unwrap();
        for path in std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()) {
            let module = path.file_stem().unwrap().to_str().unwrap();
            assert!(
                list.contains(&format!("mod {module};")),
                "{} does not declare {}",
                parent.display(),
                path.display()
            );
            if path.is_dir() {
                check(&path, &path.with_extension("rs"));
            }
        }
    }
    let tests = std::path::Path::new(env!("CARGO_MANIFEST_DIR"));
    for folder in ["harness", "scenarios"] {
        check(&tests.join(folder), &tests.join("main.rs"));
    }
}
