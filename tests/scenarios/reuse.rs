//! Capacity that a holder gives up is given to another when the holder has shown that it knows, or can no longer
//! believe otherwise. What counts as showing depends on what the holder's library does with fields it does not know.

use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use leaseway_proto::doorman::ReleaseCapacityRequest;

use crate::harness::{
    config::{ConfigFile, Template},
    doorman::{Asks, Client},
    original::{Original, Unknown},
    server::Server,
    wait::{block_on, eventually},
};

fn server() -> Server {
    Server::with_config(&ConfigFile::of(&[Template::fair("*", 100.0)]))
}

/// The holder has everything, and must make room for one more. Regardless of the answer to the holder, the newcomer
/// waits for its word.
fn makes_room(holder: &mut dyn Asks, newcomer: &mut dyn Asks) {
    assert_eq!(holder.ask("mysql", 100.0), 100.0);
    assert_eq!(newcomer.ask("mysql", 100.0), 0.0, "nothing is free");
    assert_eq!(holder.ask("mysql", 100.0), 50.0, "it is told to shrink");
    assert_eq!(newcomer.ask("mysql", 100.0), 0.0, "the holder may not have heard it");
    assert_eq!(newcomer.ask("mysql", 100.0), 0.0, "and asking again does not help");
    assert_eq!(holder.ask("mysql", 100.0), 50.0, "it echoes the smaller lease");
    assert_eq!(newcomer.ask("mysql", 100.0), 50.0, "now it is certain");
}

#[test]
fn a_client_that_knows_tokens_confirms_by_echoing_them() {
    let server = server();
    makes_room(&mut server.client("holder"), &mut server.client("newcomer"));
}

#[test]
fn a_client_that_keeps_unknown_fields_confirms_without_knowing() {
    let server = server();
    makes_room(&mut server.original("holder", Unknown::Kept), &mut server.client("newcomer"));
}

#[test]
fn a_client_that_drops_unknown_fields_confirms_by_exact_expiry_and_capacity() {
    let server = server();
    let mut holder = Unhurried { client: server.original("holder", Unknown::Dropped), asked: 0 };
    makes_room(&mut holder, &mut server.original("newcomer", Unknown::Dropped));
}

/// Asks at most once in each second of the clock, as clients do. Leases of the same second may look alike, and without
/// its token none of them is recognised.
struct Unhurried {
    client: Original,
    asked: u64,
}

impl Asks for Unhurried {
    fn ask(&mut self, resource: &str, wants: f64) -> f64 {
        self.asked = eventually("the second is over", || {
            let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_secs();
            (now > self.asked).then_some(now)
        });
        self.client.ask(resource, wants)
    }
}

/// Never says what it has.
struct Naive(Client);

impl Asks for Naive {
    fn ask(&mut self, resource: &str, wants: f64) -> f64 {
        self.0.forget();
        self.0.ask(resource, wants)
    }
}

#[test]
fn a_client_that_never_says_what_it_has_blocks_until_its_lease_has_ended() {
    const LEASE: u64 = 3;
    let server =
        Server::with_config(&ConfigFile::of(&[Template { lease: LEASE, refresh: 1, ..Template::fair("*", 100.0) }]));
    let (mut naive, mut newcomer) = (Naive(server.client("naive")), server.client("newcomer"));
    let sent = Instant::now();
    assert_eq!(naive.ask("mysql", 100.0), 100.0);
    newcomer.ask("mysql", 100.0);
    eventually("its lease ends", || {
        // It is told to shrink, but never says that it has heard.
        naive.ask("mysql", 100.0);
        (newcomer.ask("mysql", 100.0) > 0.0).then_some(())
    });
    assert!(
        sent.elapsed() >= Duration::from_secs(LEASE),
        "the first lease is still believed after {:?}",
        sent.elapsed()
    );
}

#[test]
fn with_prompt_reuse_capacity_is_given_on_at_once() {
    let text = "resources:
- identifier_glob: \"*\"
  capacity: 100
  algorithm: {kind: FAIR_SHARE, learning_mode_duration: 0, parameters: {reuse: prompt, min_request_interval: 0}}
";
    let server = Server::with_config(&ConfigFile::new(text));
    let (mut holder, mut newcomer) = (server.client("holder"), server.client("newcomer"));
    assert_eq!(holder.ask("mysql", 100.0), 100.0);
    assert_eq!(newcomer.ask("mysql", 100.0), 0.0);
    assert_eq!(holder.ask("mysql", 100.0), 50.0);
    assert_eq!(newcomer.ask("mysql", 100.0), 50.0);
}

#[test]
fn a_late_release_of_an_old_lease_frees_nothing_newer() {
    let server = server();
    let doorman = server.doorman();
    let (mut holder, mut newcomer) = (server.client("holder"), server.client("newcomer"));
    holder.ask("mysql", 100.0);
    let old = holder.lease("mysql").token.unwrap();
    holder.ask("mysql", 100.0);
    let release = |token| ReleaseCapacityRequest {
        client_id: Some("holder".into()),
        resource_id: vec!["mysql".into()],
        token: vec![token],
        ..ReleaseCapacityRequest::default()
    };
    block_on(doorman.inner().release_capacity(release(old))).unwrap();
    assert_eq!(newcomer.ask("mysql", 100.0), 0.0);
    let newest = holder.lease("mysql").token.unwrap();
    block_on(doorman.inner().release_capacity(release(newest))).unwrap();
    assert_eq!(newcomer.ask("mysql", 100.0), 100.0);
}
