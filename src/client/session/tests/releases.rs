//! Releases: when they are sent, under which token, and what happens if the resource is wanted again.

use super::*;

#[test]
fn a_release_names_the_newest_lease_and_a_refresh_goes_on_for_the_others() {
    let mut session = leased();
    session.want(Millis(20), &id("s"), wants(1.0), MODE);
    session.release("r");
    let outgoing = session.poll(Millis(20)).expect("it gives back");
    assert_eq!(released(&outgoing), [("r", Some(1))]);
    session.answered(Millis(21), outgoing.number, vec![]);
    let outgoing = session.poll(Millis(21)).expect("it asks");
    assert_eq!(asks(&outgoing).len(), 1);
}

#[test]
fn a_release_waits_for_the_request_under_way_and_names_what_that_gave() {
    let mut session = leased();
    session.hint(Millis(1_000), "r");
    let hinted = session.poll(Millis(1_000)).expect("it asks");
    session.release("r");
    assert_eq!(session.poll(Millis(1_001)), None);
    session.answered(Millis(1_002), hinted.number, vec![given("r", 50.0, 2)]);
    assert_eq!(released(&session.poll(Millis(1_002)).expect("it gives back")), [("r", Some(2))]);
}

#[test]
fn what_was_never_asked_for_is_not_given_back() {
    let mut session = session();
    session.want(Millis(0), &id("r"), wants(1.0), MODE);
    session.release("r");
    assert!(session.is_idle() && session.poll(Millis(0)).is_none());
}

#[test]
fn what_is_wanted_again_before_it_was_given_back_is_kept() {
    let mut session = leased();
    session.release("r");
    session.want(Millis(1_000), &id("r"), wants(100.0), MODE);
    assert_eq!(capacity(&session, 1_000, "r"), 40.0);
    assert_eq!(asks(&session.poll(Millis(1_000)).expect("it asks"))[0].has.expect("a lease").token, Some(1));
}

#[test]
fn what_is_wanted_again_before_it_was_given_back_is_told_again() {
    let mut session = leased();
    session.changes(Millis(10), |_, _| ());
    session.release("r");
    session.want(Millis(1_000), &id("r"), wants(100.0), MODE);
    let mut reported = Vec::new();
    session.changes(Millis(1_000), |_, usable| reported.push((usable.capacity.get(), usable.basis)));
    assert_eq!(reported, [(40.0, Basis::Lease)], "the new handle has not been told");
}

#[test]
fn releases_that_always_fail_do_not_keep_the_others_from_being_refreshed() {
    let mut session = leased();
    session.want(Millis(20), &id("s"), wants(1.0), MODE);
    let outgoing = session.poll(Millis(20)).expect("it asks");
    session.answered(Millis(20), outgoing.number, vec![given("s", 1.0, 2)]);
    session.release("r");
    let (mut now, mut refreshes, mut releases) = (Millis(20), 0, 0);
    while now < Millis(50_000) {
        if let Some(outgoing) = session.poll(now) {
            if matches!(outgoing.body, Body::Ask(_)) {
                refreshes += 1;
                session.answered(now, outgoing.number, vec![given("s", 1.0, 2 + refreshes)]);
            } else {
                releases += 1;
                session.failed(now, outgoing.number);
            }
        }
        now = session.wake(now).expect("there is always something");
        assert_eq!(capacity(&session, now.0, "s"), 1.0, "at {now:?}");
    }
    assert!(refreshes >= 6, "{refreshes} in 50 s, at 5 s and a pause");
    assert!((10..=100).contains(&releases), "tried again, with pauses: {releases}");
}

#[test]
fn releases_are_bounded_as_requests_are_and_what_did_not_fit_goes_next() {
    let mut session = Session::new(Settings { resources_per_request: 2, ..settings(&["a:1"]) });
    for name in ["a", "b", "c"] {
        session.want(Millis(0), &id(name), wants(1.0), MODE);
    }
    for _ in 0..2 {
        let outgoing = session.poll(Millis(0)).expect("it asks");
        let answers = asks(&outgoing).iter().map(|ask| given(&ask.id, 1.0, 1)).collect();
        session.answered(Millis(0), outgoing.number, answers);
    }
    session.release_all();
    let first = session.poll(Millis(1)).expect("it gives back");
    assert_eq!(released(&first).len(), 2);
    session.answered(Millis(1), first.number, vec![]);
    assert_eq!(released(&session.poll(Millis(1)).expect("one is left")), [("c", Some(1))]);
}

#[test]
fn giving_everything_back_does_not_wait_for_the_end_of_a_pause() {
    let mut session = leased();
    session.hint(Millis(1_000), "r");
    let hinted = session.poll(Millis(1_000)).expect("it asks");
    session.failed(Millis(1_001), hinted.number);
    assert_eq!(session.poll(Millis(1_002)), None, "a pause");
    session.release_all();
    assert_eq!(released(&session.poll(Millis(1_002)).expect("it gives back")), [("r", Some(1))]);
}

#[test]
fn a_lease_that_has_ended_is_neither_echoed_nor_given_back() {
    let mut session = leased();
    let late = session.poll(Millis(60_000)).expect("it asks");
    assert_eq!(asks(&late)[0].has, None);
    session.failed(Millis(60_000), late.number);
    session.release("r");
    assert!(session.poll(Millis(61_000)).is_none() && session.is_idle());
}

#[test]
fn what_is_wanted_again_while_it_is_being_given_back_starts_anew() {
    let mut session = leased();
    session.release("r");
    let outgoing = session.poll(Millis(1_000)).expect("it gives back");
    session.want(Millis(1_001), &id("r"), wants(100.0), MODE);
    assert_eq!(capacity(&session, 1_001, "r"), 0.0, "it has said that it uses nothing");
    session.answered(Millis(1_010), outgoing.number, vec![]);
    let wake = session.wake(Millis(1_010)).expect("it asks");
    assert_eq!(asks(&session.poll(wake).expect("it asks"))[0].has, None);
}

#[test]
fn what_is_wanted_again_after_a_release_that_failed_starts_anew_for_the_server_may_have_heard_it() {
    let mut session = leased();
    session.release("r");
    let outgoing = session.poll(Millis(1_000)).expect("it gives back");
    session.failed(Millis(1_500), outgoing.number);
    session.want(Millis(1_600), &id("r"), wants(100.0), MODE);
    assert_eq!(capacity(&session, 1_600, "r"), 0.0);
}

#[test]
fn a_release_that_fails_is_tried_again_while_the_lease_lives() {
    let mut session = leased();
    session.release("r");
    let mut now = Millis(1_000);
    let mut tries = 0;
    while let Some(outgoing) = session.poll(now) {
        tries += 1;
        assert!(tries < 1_000, "with pauses");
        assert_eq!(released(&outgoing), [("r", Some(1))]);
        session.failed(now, outgoing.number);
        now = session.wake(now).expect("another attempt");
    }
    assert!(tries > 5 && now >= Millis(60_000) && session.is_idle(), "{tries} until {now:?}");
}

#[test]
fn what_never_arrived_is_not_given_back_for_a_late_release_without_a_name_could_free_a_newer_lease() {
    let mut session = session();
    session.want(Millis(0), &id("r"), wants(1.0), MODE);
    let first = session.poll(Millis(0)).expect("it asks");
    session.release("r");
    session.failed(Millis(1), first.number);
    let wake = session.wake(Millis(1)).expect("the end of the pause");
    assert!(session.poll(wake).is_none() && session.is_idle());
}
