//! What strangers can do to other clients' leases: without a policy what README and guide say, under a policy nothing.

use std::time::Duration;

use leaseway_proto::{
    doorman::{Lease, ResourceRequest},
    push::Hint,
};

use crate::harness::{
    bearer::{BearerClient, TokenFiles},
    config::ConfigFile,
    doorman::{capacity, entry, node_request, request, unix_now},
    http,
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

/// Mallory may ask for everything that alice may, but as itself; a stranger may do nothing.
const ACCESS: &str = "
access:
- {name: clients, who: [alice, bob, mallory], may: ask, max_priority: 5}
";

struct World {
    server: Server,
    tokens: TokenFiles,
}

impl World {
    fn new(has_policy: bool) -> World {
        let tokens = TokenFiles::of(&["alice", "bob", "mallory", "stranger"]);
        let config = ConfigFile::new(&format!("{RESOURCES}{}", if has_policy { ACCESS } else { "" }));
        let server = Server::with_flags(&["--config", config.path(), "--tokens", &tokens.server()]);
        World { server, tokens }
    }

    fn caller(&self, identity: &str) -> BearerClient {
        BearerClient::new(self.server.channel(), Some(&self.tokens.token(identity)))
    }

    /// What a client that asks under its own name, honestly, is given.
    fn asks(&self, name: &str, resource: &str, wants: f64) -> f64 {
        capacity(self.caller(name).ask(name, resource, wants, None).unwrap())
    }
}

/// Does harm if it can, as this caller; returns whether it did.
type Attack = fn(&World, &BearerClient) -> bool;

/// A release without tokens frees all that alice has, and bob gets what alice goes on using.
fn releases(world: &World, attacker: &BearerClient) -> bool {
    assert_eq!(world.asks("alice", "released", 100.0), 100.0);
    let _ = attacker.release("alice", "released", false);
    world.asks("bob", "released", 100.0) > 0.0
}

/// Asks for nothing in alice's name, and confirms it: bob gets what alice goes on using.
fn lowers(world: &World, attacker: &BearerClient) -> bool {
    assert_eq!(world.asks("alice", "lowered", 100.0), 100.0);
    let mut lease = None;
    for _ in 0..3 {
        lease = attacker.ask("alice", "lowered", 0.0, lease).ok().flatten();
    }
    world.asks("bob", "lowered", 100.0) > 0.0
}

/// Takes the place of alice's stream of hints, so that alice does not hear of what concerns it.
fn takes_hints(world: &World, attacker: &BearerClient) -> bool {
    let mut own = world.caller("alice").watch("alice").unwrap();
    let next = |stream: &mut tonic::Streaming<Hint>| block_on(stream.message());
    assert_eq!(next(&mut own).unwrap(), Some(Hint::default()));
    let taken = attacker.watch("alice");
    let ended = block_on(async { tokio::time::timeout(Duration::from_millis(500), own.message()).await });
    assert_eq!(taken.is_ok(), matches!(ended, Ok(Err(_))), "the stream ends if, and only if, its place was taken");
    taken.is_ok()
}

/// Sees which resources there are, who holds what, and where the peers are.
fn learns(world: &World, attacker: &BearerClient) -> bool {
    world.asks("alice", "secret project", 1.0);
    let rows = attacker.status("secret project").map(|status| status.resources);
    rows.is_ok_and(|rows| rows.iter().any(|row| row.holder.iter().any(|holder| holder.id == "alice")))
}

/// With the highest priority there is, others get nothing.
fn outranks(world: &World, attacker: &BearerClient) -> bool {
    for name in ["mallory", "stranger"] {
        let entry = ResourceRequest { priority: Some(32_767), ..entry("banded", 1e6) };
        let _ = attacker.get(request(name, vec![entry]));
    }
    world.asks("bob", "banded", 100.0) < 100.0
}

/// As a child node with a billion clients, nearly everything is its own.
fn poses_as_a_crowd(world: &World, attacker: &BearerClient) -> bool {
    for name in ["mallory", "stranger"] {
        let _ = attacker.get_server(node_request(name, "crowded", &[(1_000_000_000, 1e9)]));
    }
    world.asks("bob", "crowded", 100.0) < 100.0
}

/// While the server learns it believes what holders say that they have.
fn invents_a_lease(world: &World, attacker: &BearerClient) -> bool {
    let _ = world;
    let (expiry_time, refresh_interval) = (Some(unix_now() + 3000), Some(600));
    let has = Lease { expiry_time, refresh_interval, capacity: Some(90.0), ..Default::default() };
    // In alice's name: what that client itself says later comes too late.
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

fn attacks(has_policy: bool, identity: &str) -> Vec<&'static str> {
    let mut harmful = Vec::new();
    for (name, attack) in ATTACKS {
        let world = World::new(has_policy);
        if attack(&world, &world.caller(identity)) {
            harmful.push(name);
        }
        assert_eq!(http::get(world.server.http(), "/healthz").status, 200, "{name}");
    }
    harmful
}

#[test]
fn without_a_policy_a_stranger_does_to_others_what_the_guide_says() {
    let all: Vec<&str> = ATTACKS.iter().map(|(name, _)| *name).collect();
    assert_eq!(attacks(false, "stranger"), all);
}

#[test]
fn under_a_policy_a_stranger_does_nothing_to_others() {
    assert_eq!(attacks(true, "stranger"), [""; 0]);
}

#[test]
fn under_a_policy_a_client_does_nothing_to_others_either() {
    assert_eq!(attacks(true, "mallory"), [""; 0]);
}
