//! Capacity that a holder gives up is granted to others after the holder has confirmed. How clients of 2016 confirm
//! depends on whether their library keeps unknown fields.

use std::time::{SystemTime, UNIX_EPOCH};

use crate::harness::{
    doorman::Asks,
    legacy_client::{LegacyClient, UnknownFields},
    server::Server,
    wait::eventually,
};

/// The holder has the whole capacity and must shrink. The newcomer gets nothing before the holder has confirmed.
fn makes_room(resource: &str, holder: &mut dyn Asks, newcomer: &mut dyn Asks) {
    assert_eq!(holder.ask(resource, 100.0), 100.0);
    assert_eq!(newcomer.ask(resource, 100.0), 0.0, "nothing is free");
    assert_eq!(holder.ask(resource, 100.0), 50.0, "the holder gets a smaller lease");
    assert_eq!(newcomer.ask(resource, 100.0), 0.0, "the answer to the holder may be lost");
    assert_eq!(newcomer.ask(resource, 100.0), 0.0, "asking again changes nothing");
    assert_eq!(holder.ask(resource, 100.0), 50.0, "the request echoes the smaller lease");
    assert_eq!(newcomer.ask(resource, 100.0), 50.0, "the holder has confirmed the smaller lease");
}

#[test]
fn a_client_that_keeps_unknown_fields_confirms_by_token() {
    let server = Server::shared();
    makes_room("reuse kept", &mut server.legacy_client("holder", UnknownFields::Kept), &mut server.client("newcomer"));
}

#[test]
fn a_client_that_drops_unknown_fields_confirms_by_exact_expiry_and_capacity() {
    let server = Server::shared();
    let mut holder = Unhurried { client: server.legacy_client("holder", UnknownFields::Dropped), asked: 0 };
    makes_room("reuse dropped", &mut holder, &mut server.legacy_client("newcomer", UnknownFields::Dropped));
}

/// Asks at most once in each second of the clock, as clients do. Without tokens, leases of the same second cannot be
/// told apart.
struct Unhurried {
    client: LegacyClient,
    asked: u64,
}

impl Asks for Unhurried {
    fn ask(&mut self, resource: &str, wants: f64) -> f64 {
        self.asked = eventually("the next second begins", || {
            let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_secs();
            (now > self.asked).then_some(now)
        });
        self.client.ask(resource, wants)
    }
}
