//! With `shadow` everybody gets what they want; what they would have got can be seen.

use super::*;

fn shadow(capacity: f64) -> Settings {
    let mut settings = fair(capacity);
    settings.shadow = true;
    settings
}

#[test]
fn everybody_gets_what_they_want_and_what_they_would_have_got_is_shown() {
    let mut desk = Desk::new(shadow(100.0));
    assert_eq!(desk.round(&[("a", 90.0), ("b", 30.0)]), [90.0, 30.0]);
    assert_eq!((desk.report("a").due.get(), desk.report("b").due.get()), (70.0, 30.0));
    assert_eq!((desk.report("a").granted.get(), desk.held()), (90.0, 120.0));
}

#[test]
fn it_is_never_learnt() {
    let desk = Desk::born(Birth { learning_until: Millis(30_000), ..birth(shadow(100.0)) });
    assert!(!desk.resource.is_learning(desk.now), "nothing that others have been given is missing to anybody");
}

#[test]
fn when_the_shadow_is_lifted_what_is_out_comes_back() {
    let mut desk = Desk::new(shadow(100.0));
    desk.round(&[("a", 90.0), ("b", 30.0)]);
    desk.change(|settings| settings.shadow = false);
    for _ in 0..3 {
        desk.pass(16_000);
        desk.asks("a", 90.0);
        desk.asks("b", 30.0);
    }
    assert_eq!((desk.leases["a"].capacity.get(), desk.held()), (70.0, 100.0));
}

#[test]
fn below_a_parent_it_ends_where_the_lease_does() {
    let mut desk = Desk::below(shadow(0.0));
    desk.supply(100.0, Millis(60_000));
    assert_eq!((desk.asks("a", 90.0), desk.asks("b", 30.0), desk.held()), (90.0, 10.0, 100.0));
}
