//! Renewal by a stream.

use std::slice;

use super::*;

/// A session that renews `names` by a stream, each with a lease of 10 and the token index + 1, given at 10 ms.
fn streaming(names: &[&str]) -> Session<Wants> {
    let mut session = Session::new(settings(&["a:1", "b:1"]));
    let server = Arc::clone(session.target());
    session.offer_stream(&server, Some(1));
    for name in names {
        session.want(Millis(0), &id(name), wants(10.0), MODE);
    }
    let (number, request) = message(&mut session, 0);
    assert_eq!((request.sequence, request.renewed.len()), (1, 0));
    let granted = request.stated.iter().map(|(index, ask)| (*index, given(&ask.id, 10.0, u64::from(*index) + 1)));
    let reply = StreamReply { granted: granted.collect(), ..StreamReply::default() };
    assert!(session.stream_answered(Millis(10), number, reply));
    session
}

fn message(session: &mut Session<Wants>, at: u64) -> (u64, StreamRequest<Wants>) {
    let Outgoing { number, body, .. } = poll(session, at);
    let Body::Stream(request) = body else { panic!("{body:?}") };
    (number, request)
}

fn stated(request: &StreamRequest<Wants>) -> Vec<(u32, &str, Option<u64>)> {
    let token = |ask: &Ask<Wants>| ask.has.and_then(|lease| lease.token);
    request.stated.iter().map(|(index, ask)| (*index, &*ask.id, token(ask))).collect()
}

fn end(session: &Session<Wants>, at: u64, name: &str) -> u64 {
    session.lease(Millis(at), name).expect("it is live").end.0
}

#[test]
fn what_stays_is_renewed_by_its_index_from_when_the_message_was_sent() {
    let mut session = streaming(&["r", "s", "t"]);
    let (number, request) = message(&mut session, 5_000);
    assert_eq!((request.sequence, request.stated.len(), &request.renewed[..]), (2, 0, slice::from_ref(&(0..3))));
    assert!(session.stream_answered(Millis(5_040), number, StreamReply { unix: 105, ..StreamReply::default() }));
    let lease = session.lease(Millis(5_040), "s").expect("it is live");
    assert_eq!((lease.end, lease.token, lease.wire.expiry_time), (Millis(65_000), Some(2), 165));
    assert!(session.wake(Millis(5_040)).is_some_and(|wake| (9_500..=10_040).contains(&wake.0)));
}

#[test]
fn a_changed_demand_is_stated_and_the_others_are_renewed() {
    let mut session = streaming(&["r", "s", "t"]);
    session.want(Millis(4_000), &id("s"), wants(10.5), MODE);
    let (number, request) = message(&mut session, 5_000);
    assert_eq!((stated(&request), &request.renewed[..]), (vec![(1, "s", Some(2))], &[0..1, 2..3][..]));
    let granted = vec![(1, given("s", 10.5, 9))];
    assert!(session.stream_answered(Millis(5_040), number, StreamReply { granted, ..StreamReply::default() }));
    assert_eq!((capacity(&session, 5_040, "s"), end(&session, 5_040, "r")), (10.5, 65_000));
    let (_, request) = message(&mut session, 10_000);
    assert_eq!((request.stated.len(), &request.renewed[..]), (0, slice::from_ref(&(0..3))), "it is renewable again");
}

#[test]
fn an_urgent_change_does_not_renew_the_others() {
    let mut session = streaming(&["r", "s"]);
    session.want(Millis(1_000), &id("s"), wants(100.0), MODE);
    let (_, request) = message(&mut session, 1_000);
    assert_eq!((stated(&request), request.renewed.len()), (vec![(1, "s", Some(2))], 0));
}

#[test]
fn what_was_left_out_keeps_its_lease_and_is_stated_again() {
    let mut session = streaming(&["r", "s"]);
    let (number, _) = message(&mut session, 5_000);
    session.stream_answered(Millis(5_040), number, StreamReply { left_out: vec![1], ..StreamReply::default() });
    assert_eq!((end(&session, 5_040, "r"), end(&session, 5_040, "s")), (65_000, 60_000));
    let (_, request) = message(&mut session, 10_000);
    assert_eq!((stated(&request), &request.renewed[..]), (vec![(1, "s", Some(2))], slice::from_ref(&(0..1))));
}

#[test]
fn a_grant_that_the_message_did_not_ask_for_is_ignored_and_the_lease_that_is_held_is_stated() {
    let mut session = streaming(&["r", "s", "t"]);
    session.want(Millis(1_000), &id("s"), wants(100.0), MODE);
    let (number, request) = message(&mut session, 1_000);
    assert_eq!((stated(&request), request.renewed.len()), (vec![(1, "s", Some(2))], 0));
    let granted = vec![(0, given("r", 90.0, 8)), (1, given("s", 20.0, 9)), (7, given("x", 1.0, 7))];
    session.stream_answered(Millis(1_010), number, StreamReply { granted, ..StreamReply::default() });
    assert_eq!((capacity(&session, 1_010, "r"), end(&session, 1_010, "r")), (10.0, 60_000));
    assert_eq!(capacity(&session, 1_010, "s"), 20.0);
    let (_, request) = message(&mut session, 5_100);
    assert_eq!((stated(&request), &request.renewed[..]), (vec![(0, "r", Some(1))], slice::from_ref(&(1..3))));
}

#[test]
fn a_lease_that_is_granted_to_a_renewal_is_released_if_its_resource_was_closed_meanwhile() {
    let mut session = streaming(&["r", "s"]);
    let (number, request) = message(&mut session, 5_000);
    assert_eq!(&request.renewed[..], slice::from_ref(&(0..2)));
    session.release("s");
    let granted = vec![(1, given("s", 20.0, 9))];
    session.stream_answered(Millis(5_010), number, StreamReply { granted, ..StreamReply::default() });
    assert_eq!(released(&poll(&mut session, 5_010)), [("s", Some(9))]);
}

#[test]
fn a_renewal_that_is_answered_after_the_end_of_the_lease_does_not_count() {
    let mut session = streaming(&["r"]);
    let (number, _) = message(&mut session, 58_000);
    assert!(session.stream_answered(Millis(60_500), number, StreamReply::default()));
    assert_eq!(session.lease(Millis(60_500), "r"), None);
    let (_, request) = message(&mut session, 60_500);
    let [(0, ask)] = &request.stated[..] else { panic!("{request:?}") };
    assert_eq!((ask.has, ask.had.and_then(|lease| lease.token), request.renewed.len()), (None, Some(1), 0));
}

#[test]
fn after_a_restart_everything_is_stated_on_another_stream() {
    let mut session = streaming(&["r", "s"]);
    let (number, before) = message(&mut session, 5_000);
    assert!(session.stream_answered(Millis(5_010), number, StreamReply { restart: true, ..StreamReply::default() }));
    let (_, request) = message(&mut session, 5_010);
    assert!(request.stream > before.stream && request.sequence == 1 && request.renewed.is_empty());
    assert_eq!(stated(&request), [(0, "r", Some(1)), (1, "s", Some(2))]);
    assert_eq!(end(&session, 5_010, "r"), 60_000, "the lease is used meanwhile");
}

#[test]
fn a_lost_answer_ends_the_stream_and_an_answer_that_comes_later_does_not_count() {
    let mut session = streaming(&["r"]);
    let (number, before) = message(&mut session, 5_000);
    session.offer_stream(&id("b:1"), Some(1));
    session.offer_stream(&id("a:1"), Some(1));
    session.expire_request(Millis(8_000));
    assert!(!session.stream_answered(Millis(8_001), number, StreamReply::default()));
    assert_eq!(end(&session, 8_001, "r"), 60_000);
    let wake = session.wake(Millis(8_001)).expect("another attempt");
    let (_, request) = message(&mut session, wake.0);
    assert!(request.stream > before.stream && request.sequence == 1);
}

#[test]
fn a_refused_stream_is_replaced_by_get_capacity_at_once_and_for_ten_minutes() {
    let mut session = Session::new(settings(&["a:1"]));
    session.offer_stream(&id("a:1"), Some(1));
    session.want(Millis(0), &id("r"), wants(10.0), MODE);
    let (number, _) = message(&mut session, 0);
    assert!(session.stream_refused(Millis(5), number));
    let mut at = 5;
    while at < 600_000 {
        let outgoing = poll(&mut session, at);
        assert_eq!((asks(&outgoing).len(), session.failures()), (1, 0), "at {at}");
        session.answered(Millis(at), outgoing.number, vec![given("r", 10.0, at)]);
        at = session.wake(Millis(at)).expect("a refresh").0;
    }
    let (_, request) = message(&mut session, at.max(600_005));
    assert_eq!((request.sequence, stated(&request)[0].1), (1, "r"));
}

#[test]
fn a_pause_belongs_to_the_server_that_refused() {
    let mut session = Session::new(settings(&["a:1"]));
    for server in ["a:1", "b:1"] {
        session.offer_stream(&id(server), Some(1));
    }
    session.want(Millis(0), &id("r"), wants(10.0), MODE);
    let (number, _) = message(&mut session, 0);
    assert!(session.stream_refused(Millis(5), number));
    let asked = poll(&mut session, 5);
    assert!(session.redirected(Millis(10), asked.number, Some("b:1")));
    let (number, request) = message(&mut session, 10);
    assert_eq!((&**session.target(), request.sequence), ("b:1", 1), "a new master is asked for a stream at once");
    assert!(session.redirected(Millis(20), number, Some("a:1")));
    assert_eq!(asks(&poll(&mut session, 20)).len(), 1);
    session.offer_stream(&id("a:1"), Some(1));
    session.redirected(Millis(30), session.in_flight().expect("a request"), Some("a:1"));
    let wake = session.wake(Millis(30)).expect("another attempt").0;
    assert_eq!(asks(&poll(&mut session, wake)).len(), 1, "another offer does not end the pause");
}

#[test]
fn a_server_that_knows_no_master_has_not_refused_a_stream() {
    let mut session = Session::new(settings(&["a:1"]));
    session.offer_stream(&id("a:1"), Some(1));
    session.want(Millis(0), &id("r"), wants(10.0), MODE);
    let (number, before) = message(&mut session, 0);
    assert!(session.redirected(Millis(5), number, None));
    let wake = session.wake(Millis(5)).expect("another attempt");
    let (_, request) = message(&mut session, wake.0);
    assert!(request.stream > before.stream && request.sequence == 1);
}

#[test]
fn an_opening_that_is_not_answered_is_followed_by_get_capacity() {
    let mut session = Session::new(settings(&["a:1"]));
    session.offer_stream(&id("a:1"), Some(1));
    session.want(Millis(0), &id("r"), wants(10.0), MODE);
    message(&mut session, 0);
    session.expire_request(Millis(3_000));
    let wake = session.wake(Millis(3_000)).expect("another attempt");
    assert_eq!(asks(&poll(&mut session, wake.0)).len(), 1);
}

#[test]
fn few_resources_are_asked_for_by_get_capacity() {
    let mut session = session();
    session.offer_stream(&id("a:1"), Some(2));
    assert_eq!(asks(&poll(&mut session, 0)).len(), 1);
}

#[test]
fn a_released_resource_leaves_the_renewals_and_its_index_is_not_used_again() {
    let mut session = streaming(&["r", "s", "t"]);
    session.release("s");
    let released_by = poll(&mut session, 1_000);
    assert_eq!(released(&released_by), [("s", Some(2))]);
    session.answered(Millis(1_010), released_by.number, vec![]);
    session.want(Millis(1_100), &id("s"), wants(10.0), MODE);
    let (number, request) = message(&mut session, 1_200);
    assert_eq!((stated(&request), request.renewed.len()), (vec![(3, "s", None)], 0));
    session.stream_answered(Millis(1_210), number, StreamReply { left_out: vec![3], ..StreamReply::default() });
    let (_, request) = message(&mut session, 5_000);
    assert_eq!(&request.renewed[..], &[0..1, 2..3]);
}

#[test]
fn a_redirect_ends_the_stream() {
    let mut session = streaming(&["r"]);
    let (number, _) = message(&mut session, 5_000);
    assert!(session.redirected(Millis(5_010), number, Some("c:1")));
    let outgoing = poll(&mut session, 5_010);
    assert_eq!((&*outgoing.target, asks(&outgoing)[0].has.and_then(|lease| lease.token)), ("c:1", Some(1)));
}
