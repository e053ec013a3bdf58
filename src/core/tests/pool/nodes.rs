//! Pools in a tree.

use super::*;

fn slice(subclients: u32, wants: f64, priority: i16) -> Claim {
    Claim { wants: Amount::clamped(wants), subclients, priority }
}

fn node(pond: &mut Pond, id: &str, slices: &[Claim]) -> f64 {
    let claims = Claims::from_slice(slices);
    let ask = Ask { kind: HolderKind::Node, claims, outstanding: Some(Amount::ZERO), ..pond.request(id, 0.0) };
    pond.send(ask)
}

#[test]
fn bands_above_zero_are_vouched_for_below_and_band_zero_counts_heads() {
    let mut pond = Pond::new(100.0, &[("min_capacity", "2")]);
    assert_eq!(node(&mut pond, "n", &[slice(3, 30.0, 2), slice(5, 5000.0, 0)]), 40.0);
    assert_eq!(node(&mut pond, "m", &[slice(100, 1.0, 0)]), 60.0, "what is left of 200");
    assert_eq!(pond.pool().priority_connected.get(), 40.0);
}

#[test]
fn an_assignment_of_the_node_bounds_what_is_vouched_for_below() {
    let mut pond = Pond::new(100.0, &[]);
    let assigned = Some(Assigned::Capacity(Amount::clamped(10.0)));
    pond.resource.assign(pond.now, HolderKind::Node, &"n".into(), assigned).expect("fits");
    assert_eq!(node(&mut pond, "n", &[slice(3, 30.0, 2), slice(1, 30.0, 1), slice(5, 5.0, 0)]), 15.0);
}

#[test]
fn places_are_shared_out_by_number_where_they_do_not_suffice() {
    let mut pond = Pond::new(10.0, &[]);
    node(&mut pond, "n", &[slice(30, 30.0, 0)]);
    node(&mut pond, "m", &[slice(10, 10.0, 0)]);
    for _ in 0..4 {
        pond.pass(5);
        node(&mut pond, "n", &[slice(30, 30.0, 0)]);
        node(&mut pond, "m", &[slice(10, 10.0, 0)]);
    }
    assert_eq!((pond.leases["n"].capacity.get(), pond.leases["m"].capacity.get()), (7.5, 2.5));
    pond.asks("client", 1.0);
    assert_eq!((pond.due("n"), pond.due("m"), pond.due("client")), (7.5, 2.5, 0.0), "41 want 10 places");
}

#[test]
fn a_child_overbooks_nothing_and_tells_who_is_vouched_for() {
    let parameters = [("max_capacity", "40"), ("min_capacity", "2")];
    let mut pond = Pond::born(Birth { source: Source::Parent, ..birth(settings(10.0, &parameters)) });
    let until = Millis::from_secs(600);
    let supply = Supply { capacity: Amount::clamped(20.0), until, edition: 1, ..Supply::default() };
    pond.resource.supply(supply);
    pond.assign("p", 6.0).expect("fits");
    pond.reports("p", 9.0, 0.0, 0.0);
    for n in 0..9 {
        pond.reports(&format!("c{n}"), 50.0, 0.0, 0.0);
    }
    // One that claims priority and is not vouched for.
    let claims = Claims::from_slice(&[slice(1, 50.0, 9)]);
    let ask = Ask { claims, ..ask("claims", 50.0, None) };
    pond.send(ask);
    let report = pond.pool();
    assert_eq!((report.total.get(), report.max.get()), (20.0, 20.0));
    let told: Vec<_> = pond.resource.condense(pond.now).claims.to_vec();
    assert_eq!(told, [slice(10, 20.0, 0), slice(1, 6.0, 1)]);
    pond.pass(5);
    pond.tick();
    assert_eq!(pond.pool().total.get(), 20.0, "though nothing is used");
}
