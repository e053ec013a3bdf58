//! Records are charged to principals. A principal that has its share gets no new record.

use super::*;
use crate::types::{ChargedTo, Principal};

fn charged_to(ask: Ask, principal: u32, is_full: bool) -> Ask {
    Ask { charged_to: ChargedTo { principal: Principal(principal), is_full }, ..ask }
}

/// The slots of each principal, as a caller computes them from slot deltas.
struct SlotsByPrincipal(BTreeMap<u32, isize>);

impl SlotsByPrincipal {
    fn after(&mut self, server: &mut Server) -> Vec<(u32, isize)> {
        for delta in server.resource.drain_slot_deltas() {
            *self.0.entry(delta.principal.0).or_default() += delta.slots;
        }
        self.0.iter().filter(|(_, slots)| **slots != 0).map(|(principal, slots)| (*principal, *slots)).collect()
    }
}

#[test]
fn record_is_charged_to_its_first_principal() {
    let mut server = Server::new(fair(100.0));
    let mut slots = SlotsByPrincipal(BTreeMap::new());
    server.deliver(charged_to(ask("a", 1.0, None), 1, false));
    server.deliver(charged_to(ask("b", 1.0, None), 1, false));
    server.deliver(charged_to(ask("c", 1.0, None), 2, false));
    server.deliver(ask("of none", 1.0, None));
    assert_eq!(slots.after(&mut server), [(1, 2), (2, 1)]);
    // Another principal asks under the same name. The record stays charged to the first one.
    server.pass(16_000);
    server.deliver(charged_to(server.request("a", 1.0), 2, false));
    assert_eq!(slots.after(&mut server), [(1, 2), (2, 1)]);
    server.release(HolderKind::Client, "a", None);
    assert_eq!(slots.after(&mut server), [(1, 1), (2, 1)]);
    server.pass(120_000);
    server.resource.tick(server.now);
    assert_eq!(slots.after(&mut server), []);
    // A new record in a reused slot is not charged to the former principal.
    server.deliver(ask("of none either", 1.0, None));
    assert_eq!(slots.after(&mut server), []);
}

#[test]
fn bands_of_a_child_node_are_charged() {
    let mut server = Server::new(fair(100.0));
    let mut slots = SlotsByPrincipal(BTreeMap::new());
    let bands = |n: i16| (0..n).map(|band| Claim::of_client(Amount::clamped(1.0), band.into())).collect::<Vec<_>>();
    let node = |server: &Server, n| charged_to(server.node_request("node", &bands(n)), 7, false);
    server.deliver(node(&server, 5));
    assert_eq!(slots.after(&mut server), [(7, 5)]);
    server.pass(16_000);
    server.deliver(node(&server, 2));
    assert_eq!(slots.after(&mut server), [(7, 2)]);
    server.release(HolderKind::Node, "node", None);
    assert_eq!(slots.after(&mut server), []);
}

#[test]
fn full_principal_gets_no_new_record() {
    let mut server = Server::new(fair(100.0));
    server.deliver(charged_to(ask("known", 10.0, None), 1, false));
    assert_eq!(server.send(charged_to(ask("new", 10.0, None), 1, true)), Answer::ShareFull);
    server.pass(16_000);
    assert_eq!(server.deliver(charged_to(server.request("known", 20.0), 1, true)), 20.0);
    assert_eq!(server.deliver(charged_to(ask("of another", 10.0, None), 2, false)), 10.0);
    assert_eq!((server.counters().share_full, server.counters().full, server.resource.holders()), (1, 0, 2));
}
