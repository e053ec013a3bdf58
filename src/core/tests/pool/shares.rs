//! A principal with many ids keeps no more than its share of the places while clients of others wait.

use super::*;
use crate::types::{ChargedTo, Principal, PrincipalShare};

const PLACES: usize = 20;

impl PoolServer {
    fn asks_of(&mut self, principal: u32, id: &str) -> f64 {
        let charged_to = ChargedTo { principal: Principal(principal), is_full: false };
        self.send(Ask { charged_to, ..self.request(id, 1.0) })
    }

    /// The clients of each principal ask until nothing changes. Returns the number of places of each principal.
    fn places_of(&mut self, groups: &[(u32, usize)]) -> Vec<usize> {
        let id = |principal: u32, n: usize| format!("p{principal}-{n}");
        for _ in 0..4 {
            for (principal, clients) in groups {
                for n in 0..*clients {
                    self.asks_of(*principal, &id(*principal, n));
                }
            }
        }
        let has_place = |principal, n| self.due(&id(principal, n)) > 0.0;
        let placed = |(principal, clients): &(u32, usize)| (0..*clients).filter(|n| has_place(*principal, *n)).count();
        groups.iter().map(placed).collect()
    }
}

#[test]
fn principal_share_yields_places_to_others() {
    let mut server = PoolServer::new(PLACES as f64, &[]);
    assert_eq!(server.places_of(&[(1, 30)]), [20], "no place is kept empty");
    assert_eq!(server.places_of(&[(1, 30), (2, 1)]), [19, 1], "a newcomer does not wait");
    assert_eq!(server.places_of(&[(1, 30), (2, 10)]), [15, 5], "the others wait for smaller balances");
    let three = server.places_of(&[(1, 30), (2, 10), (3, 3)]);
    assert_eq!((three[0], three.iter().sum::<usize>()), (15, PLACES), "regardless of the number of ids");
    (0..10).for_each(|n| server.release(&format!("p2-{n}")));
    (0..3).for_each(|n| server.release(&format!("p3-{n}")));
    assert_eq!(server.places_of(&[(1, 30)]), [20], "it regains the places after the others leave");
}

#[test]
fn clients_of_one_principal_take_turns() {
    let mut server = PoolServer::new(PLACES as f64, &[("connected_bias_s", "10")]);
    server.places_of(&[(1, 22), (2, 5)]);
    let before: Vec<bool> = (0..22).map(|n| server.due(&format!("p1-{n}")) > 0.0).collect();
    for _ in 0..10 {
        server.pass(10);
        assert_eq!(server.places_of(&[(1, 22), (2, 5)]), [15, 5]);
    }
    let after: Vec<bool> = (0..22).map(|n| server.due(&format!("p1-{n}")) > 0.0).collect();
    assert!(before != after && after.iter().filter(|has| **has).count() == 15);
}

#[test]
fn disabled_principal_share_leaves_balances() {
    let mut server = PoolServer::new(PLACES as f64, &[]);
    server.resource.set_place_share(PrincipalShare::ALL);
    assert_eq!(server.places_of(&[(1, 30), (2, 5)]), [20, 0]);
}

#[test]
fn uncharged_clients_have_no_share() {
    let mut server = PoolServer::new(PLACES as f64, &[]);
    assert_eq!(server.places_of(&[(0, 30), (2, 5)]), [20, 0]);
}
