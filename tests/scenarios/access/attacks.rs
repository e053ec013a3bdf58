//! Attacks on other clients' leases: without a policy they succeed, as docs/explanation/threats.md says; under a policy
//! they fail.

use std::time::Duration;

use leaseway_proto::{
    doorman::{Lease, ResourceRequest},
    push::Hint,
};

use crate::harness::{
    bearer::TokenFiles,
    config::ConfigFile,
    doorman::{Doorman, capacity, entry, node_request, request, unix_now},
    server::Server,
    wait::block_on,
};

const RESOURCES: &str = "
resources:
- identifier_glob: banded
  capacity: 100
  algorithm: {kind: FAIR_SHARE, lease_length: 3600, refresh_interval: 600, learning_mode_duration: 0,
              parameters: {min_request_interval: 0, priority: strict}}
- identifier_glob: learning
  capacity: 100
  algorithm: {kind: FAIR_SHARE, lease_length: 3600, refresh_interval: 600, learning_mode_duration: 3600}
- identifier_glob: '*'
  capacity: 100
  algorithm: {kind: FAIR_SHARE, lease_length: 3600, refresh_interval: 600, learning_mode_duration: 0,
              parameters: {min_request_interval: 0}}
";

/// Mallory may ask for the same resources as alice, but not under her id. The stranger may do nothing.
const ACCESS: &str = "
access:
- {name: clients, who: [alice, bob, mallory], may: ask, max_priority: 5}
";

struct Attacked {
    server: Server,
    tokens: TokenFiles,
}

impl Attacked {
    fn new(has_policy: bool) -> Attacked {
        let tokens = TokenFiles::of(&["alice", "bob", "mallory", "stranger"]);
        let config = ConfigFile::new(&format!("{RESOURCES}{}", if has_policy { ACCESS } else { "" }));
        let server = Server::with_flags(&["--config", config.path(), "--tokens", &tokens.server()]);
        Attacked { server, tokens }
    }

    fn caller(&self, identity: &str) -> Doorman {
        Doorman::with_token(self.server.channel(), &self.tokens.token(identity))
    }

    /// The capacity granted to an honest client.
    fn asks(&self, name: &str, resource: &str, wants: f64) -> f64 {
        capacity(self.caller(name).ask(name, resource, wants, None).unwrap())
    }
}

/// Returns whether the attack succeeded. Each attack has its own resource.
type Attack = fn(&Attacked, &Doorman) -> bool;

/// Releases alice's capacity without a token: bob gets capacity that alice still uses.
fn releases(attacked: &Attacked, attacker: &Doorman) -> bool {
    assert_eq!(attacked.asks("alice", "released", 100.0), 100.0);
    let _ = attacker.try_release("alice", &["released"], false);
    attacked.asks("bob", "released", 100.0) > 0.0
}

/// Lowers alice's wants to zero under her id, and confirms the lease: bob gets capacity that alice still uses.
fn lowers(attacked: &Attacked, attacker: &Doorman) -> bool {
    assert_eq!(attacked.asks("alice", "lowered", 100.0), 100.0);
    let mut lease = None;
    for _ in 0..3 {
        lease = attacker.ask("alice", "lowered", 0.0, lease).ok().flatten();
    }
    attacked.asks("bob", "lowered", 100.0) > 0.0
}

/// Replaces alice's stream of hints.
fn takes_hints(attacked: &Attacked, attacker: &Doorman) -> bool {
    let mut own = attacked.caller("alice").watch("alice").unwrap();
    let next = |stream: &mut tonic::Streaming<Hint>| block_on(stream.message());
    assert_eq!(next(&mut own).unwrap(), Some(Hint::default()));
    let taken = attacker.watch("alice");
    let ended = block_on(async { tokio::time::timeout(Duration::from_millis(500), own.message()).await });
    assert_eq!(taken.is_ok(), matches!(ended, Ok(Err(_))), "the stream ends if and only if it was replaced");
    taken.is_ok()
}

/// Reads the holders of a resource.
fn learns(attacked: &Attacked, attacker: &Doorman) -> bool {
    attacked.asks("alice", "secret project", 1.0);
    let rows = attacker.status("secret project").map(|status| status.resources);
    rows.is_ok_and(|rows| rows.iter().any(|row| row.holder.iter().any(|holder| holder.id == "alice")))
}

/// Asks at the highest priority: others get nothing.
fn outranks(attacked: &Attacked, attacker: &Doorman) -> bool {
    for name in ["mallory", "stranger"] {
        let entry = ResourceRequest { priority: Some(32_767), ..entry("banded", 1e6) };
        let _ = attacker.get(request(name, vec![entry]));
    }
    attacked.asks("bob", "banded", 100.0) < 100.0
}

/// Asks as a child node with a billion clients: it gets nearly everything.
fn poses_as_a_crowd(attacked: &Attacked, attacker: &Doorman) -> bool {
    for name in ["mallory", "stranger"] {
        let _ = attacker.get_server(node_request(name, "crowded", &[(1_000_000_000, 1e9)]));
    }
    attacked.asks("bob", "crowded", 100.0) < 100.0
}

/// Claims a lease while the server is in learning mode.
fn invents_a_lease(_: &Attacked, attacker: &Doorman) -> bool {
    let (expiry_time, refresh_interval) = (Some(unix_now() + 3000), Some(600));
    let has = Lease { expiry_time, refresh_interval, capacity: Some(90.0), ..Default::default() };
    // Under alice's id.
    let got = attacker.ask("alice", "learning", 90.0, Some(has));
    got.is_ok_and(|lease| lease.is_some_and(|lease| lease.capacity() > 0.0))
}

const ATTACKS: [(&str, Attack); 7] = [
    ("release", releases),
    ("lower", lowers),
    ("take hints", takes_hints),
    ("learn", learns),
    ("outrank", outranks),
    ("pose as a crowd", poses_as_a_crowd),
    ("invent a lease", invents_a_lease),
];

fn harmful(attacked: &Attacked, identity: &str) -> Vec<&'static str> {
    let caller = attacked.caller(identity);
    let harmful = ATTACKS.iter().filter(|(_, attack)| attack(attacked, &caller));
    harmful.map(|(name, _)| *name).collect()
}

#[test]
fn attacks_succeed_without_a_policy() {
    let all: Vec<&str> = ATTACKS.iter().map(|(name, _)| *name).collect();
    assert_eq!(harmful(&Attacked::new(false), "stranger"), all);
}

#[test]
fn attacks_fail_under_a_policy() {
    for identity in ["stranger", "mallory"] {
        assert_eq!(harmful(&Attacked::new(true), identity), [""; 0], "{identity}");
    }
}
