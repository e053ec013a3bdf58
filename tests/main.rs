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
    pub(crate) mod bearer;
    pub(crate) mod binary;
    pub(crate) mod collector;
    pub(crate) mod config;
    pub(crate) mod crowd;
    pub(crate) mod doorman;
    pub(crate) mod envoy;
    pub(crate) mod foreign;
    pub(crate) mod gateway;
    pub(crate) mod go_child;
    pub(crate) mod go_parent;
    pub(crate) mod http;
    pub(crate) mod http2;
    pub(crate) mod legacy_client;
    pub(crate) mod peers;
    pub(crate) mod process;
    pub(crate) mod prometheus;
    pub(crate) mod push;
    pub(crate) mod quotas;
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
    mod access_attacks;
    mod access_reload;
    mod backup;
    mod bytes;
    mod chaos;
    mod check;
    mod client_leases;
    mod client_limits;
    mod client_rules;
    mod client_servers;
    mod client_weight;
    mod cluster_cli;
    mod debug_bundle;
    mod doorman_faults;
    mod doorman_flows;
    mod explain_true;
    mod failover;
    mod ffi;
    mod flags;
    mod gateway_access;
    mod gateway_envoy;
    mod gateway_http;
    mod gateway_http_access;
    mod gateway_http_conformance;
    mod gateway_http_hostile;
    mod gateway_http_shares;
    mod gateway_in_server;
    mod gateway_rlqs;
    mod gateway_rls;
    mod go_clients;
    mod handover;
    mod introspection;
    mod json;
    mod learning;
    mod lifecycle;
    mod lost_logs;
    mod membership;
    mod metrics;
    mod namesakes;
    mod newcomer;
    mod overrides;
    mod page;
    mod page_peers;
    mod pages;
    mod peers;
    mod plan;
    mod pool_memory;
    mod pools;
    mod push;
    mod refusals;
    mod reload;
    mod reuse;
    mod shell;
    mod strangers;
    mod suspension;
    mod take_over;
    mod take_over_doorman;
    mod terminal;
    mod tls;
    mod tls_client;
    mod tls_operators;
    mod tls_strangers;
    mod top;
    mod traces;
    mod transfer;
    mod tree;
    mod tree_failover;
    mod tree_mixed;
    mod tree_up;
    mod up;
}

/// A file that is not listed here is not compiled.
#[test]
fn no_file_is_forgotten() {
    let list = include_str!("main.rs");
    for folder in ["harness", "scenarios"] {
        let path = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join(folder);
        let entries = std::fs::read_dir(path).unwrap().map(Result::unwrap);
        // Files in subfolders are listed by the file with the folder's name.
        for entry in entries.filter(|entry| entry.path().is_file()) {
            let name = entry.file_name().into_string().unwrap();
            let module = name.strip_suffix(".rs").unwrap_or_else(|| panic!("{folder}/{name} is no module"));
            assert!(list.contains(&format!("mod {module};")), "main.rs does not list {folder}/{name}");
        }
    }
}
