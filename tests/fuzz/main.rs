//! Fuzz tests of every decoder of network and file input. No decoder may panic, and accepted input must have the
//! properties that the `fuzzing` modules of the crates check.
//!
//! `cargo test -p leaseway-tests --test fuzz` tries 20,000 inputs per decoder, or `BOLERO_RANDOM_ITERATIONS`.
//! `cargo bolero test --sanitizer NONE -p leaseway-tests NAME` runs libFuzzer. Inputs in `__fuzz__` are always tried.

mod seeds;

use leaseway_client::endpoint;
use leaseway_core::{
    policy::access::Identity,
    types::{Glob, escaped, escaped_lines},
};

/// Defines a test that calls a function with mutated seeds.
macro_rules! targets {
    ($($name:ident: $seeds:expr => $target:expr;)*) => {$(
        #[test]
        fn $name() {
            let seeds: Vec<Vec<u8>> = $seeds;
            bolero::check!().with_iterations(ITERATIONS).for_each(|script: &[u8]| $target(&seeds::mutated(&seeds, script)));
        }
    )*};
}

/// Random inputs per decoder.
const ITERATIONS: usize = 20_000;

targets! {
    capacity: seeds::capacity() => leaseway_server::fuzzing::capacity;
    node_capacity: seeds::node_capacity() => leaseway_server::fuzzing::node_capacity;
    release: seeds::release() => leaseway_server::fuzzing::release;
    watch: seeds::watch() => leaseway_server::fuzzing::watch;
    entries: seeds::unframed(seeds::node_capacity()) => leaseway_server::fuzzing::entries;
    pools: seeds::pools() => leaseway_server::fuzzing::pools;
    deadline: seeds::texts(&["10S", "99999999H", "1n", "100m"]) => leaseway_server::fuzzing::deadline;
    configuration: seeds::configuration() => leaseway_server::fuzzing::configuration;
    tokens: seeds::tokens() => leaseway_server::fuzzing::tokens;
    jwt: seeds::jwt() => leaseway_server::fuzzing::jwt;
    segment: leaseway_raft::fuzzing::seeds() => leaseway_raft::fuzzing::segment;
    records: leaseway_raft::fuzzing::seeds() => leaseway_raft::fuzzing::records;
    snapshot: leaseway_raft::fuzzing::seeds() => leaseway_raft::fuzzing::snapshot;
    peer_messages: leaseway_raft::fuzzing::seeds() => leaseway_raft::fuzzing::messages;
    rate_limit_rules: seeds::rules() => leaseway_gateway::fuzzing::rules;
    rate_limit_configs: seeds::discovery() => leaseway_gateway::fuzzing::discovery;
    quota_reports: seeds::reports() => leaseway_gateway::fuzzing::reports;
    http_fields: seeds::fields() => leaseway_gateway::fuzzing::fields;
    lease_token: seeds::texts(&["1f.4059000000000000.65f0.5", "0.0.0.0"]) => leaseway_gateway::fuzzing::lease_token;
    address: seeds::texts(&["127.0.0.1:5100", "[::1]:1", "http://a.example:80", "a"]) => check_address;
    glob: seeds::texts(&["mysql*\nmysql-1", "[a-c]?*\nab", "\\*\n*"]) => check_glob;
    identity: seeds::texts(&["spiffe://a/b", "alice", "dns:a.example"]) => check_identity;
    shown: seeds::texts(&["\u{1b}[2J", "a\nb", "\u{202e}"]) => check_shown;
}

/// Formatting a parsed address and parsing it again returns the same address.
fn check_address(bytes: &[u8]) {
    let Ok(text) = str::from_utf8(bytes) else { return };
    if let Ok(read) = endpoint::parse(text) {
        assert_eq!(endpoint::parse(&read).as_ref(), Ok(&read), "{text:?}");
    }
}

/// A pattern without wildcards matches only itself.
fn check_glob(bytes: &[u8]) {
    let Ok(text) = str::from_utf8(bytes) else { return };
    let (pattern, name) = text.split_once('\n').unwrap_or((text, text));
    if let Ok(glob) = Glob::new(pattern) {
        let matches = glob.matches(name);
        if !pattern.contains(['*', '?', '[', '\\', '{', '!']) {
            assert_eq!(matches, pattern == name, "{text:?}");
        }
    }
}

/// An identity survives formatting and parsing.
fn check_identity(bytes: &[u8]) {
    let Ok(text) = str::from_utf8(bytes) else { return };
    if let Ok(identity) = Identity::parse(text) {
        let written = identity.to_string();
        assert_eq!(Identity::parse(&written).map(|again| again.to_string()), Ok(written));
    }
}

/// Escaped text contains no control characters.
fn check_shown(bytes: &[u8]) {
    let text = String::from_utf8_lossy(bytes);
    assert!(!escaped(&text).contains(|letter: char| letter.is_control()), "{text:?}");
    assert!(!escaped_lines(&text).contains(|letter: char| letter.is_control() && letter != '\n'), "{text:?}");
}
