//! Capacity that a holder gives up goes to another once the holder has confirmed it. How old clients confirm depends on
//! what their library does with unknown fields.

use std::time::{SystemTime, UNIX_EPOCH};

use crate::harness::{
    config::{ConfigFile, Template},
    doorman::Asks,
    legacy_client::{LegacyClient, Unknown},
    server::Server,
    wait::eventually,
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
fn a_client_that_keeps_unknown_fields_confirms_without_knowing() {
    let server = server();
    makes_room(&mut server.legacy_client("holder", Unknown::Kept), &mut server.client("newcomer"));
}

#[test]
fn a_client_that_drops_unknown_fields_confirms_by_exact_expiry_and_capacity() {
    let server = server();
    let mut holder = Unhurried { client: server.legacy_client("holder", Unknown::Dropped), asked: 0 };
    makes_room(&mut holder, &mut server.legacy_client("newcomer", Unknown::Dropped));
}

/// Asks at most once in each second of the clock, as clients do. Leases of the same second may look alike, and without
/// its token none of them is recognised.
struct Unhurried {
    client: LegacyClient,
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
