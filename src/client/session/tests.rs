//! The rules of a session one by one. `lossy_network` runs many sessions against a resource of the core over a network
//! that loses and reorders messages. `steps` calls everything in any order.

mod late;
mod lossy_network;
mod outages;
mod pause;
mod redirects;
mod releases;
mod steps;

use std::sync::Arc;

use leaseway_core::Millis;

use crate::session::*;

const MODE: Mode = Mode::Safe;

fn settings(endpoints: &[&str]) -> Settings {
    Settings {
        endpoints: endpoints.iter().map(|endpoint| (*endpoint).into()).collect(),
        pace: Pace::default(),
        resources_per_request: 1000,
        seed: 7,
    }
}

fn session() -> Session<Wants> {
    Session::new(settings(&["a:1"]))
}

fn wants(amount: f64) -> Wants {
    Wants { amount, ..Wants::default() }
}

fn id(name: &str) -> Arc<str> {
    name.into()
}

fn given(name: &str, capacity: f64, token: u64) -> Given {
    Given {
        id: id(name),
        length: Millis(60_000),
        refresh: Millis(5_000),
        token: Some(token),
        wire: Wire { expiry_time: 60, refresh_interval: 5, capacity },
        safe: Some(1.5),
    }
}

fn asks(outgoing: &Outgoing<Wants>) -> &[Ask<Wants>] {
    match &outgoing.body {
        Body::Ask(asks) => asks,
        Body::Release(releases) => panic!("gives back {releases:?} instead of asking"),
    }
}

fn released(outgoing: &Outgoing<Wants>) -> Vec<(&str, Option<u64>)> {
    match &outgoing.body {
        Body::Release(releases) => releases.iter().map(|release| (&*release.id, release.token)).collect(),
        Body::Ask(asks) => panic!("asks for {asks:?} instead of giving back"),
    }
}

fn capacity(session: &Session<Wants>, at: u64, name: &str) -> f64 {
    session.usable(Millis(at), name).expect("it is wanted").capacity.get()
}

/// A session that got a lease of 40 of `r` at 10 ms, for a request sent at time 0.
fn leased() -> Session<Wants> {
    let mut session = session();
    session.want(Millis(0), &id("r"), wants(100.0), MODE);
    let first = session.poll(Millis(0)).expect("it asks");
    assert!(session.answered(Millis(10), first.number, vec![given("r", 40.0, 1)]));
    session
}

#[test]
fn a_resource_that_was_put_off_during_its_request_is_not_due_before() {
    let mut session = leased();
    let second = session.poll(Millis(6_000)).expect("it is time");
    session.postpone("r", Millis(30_000));
    assert!(session.answered(Millis(6_010), second.number, vec![given("r", 40.0, 2)]));
    assert!(!session.is_due(Millis(29_999)));
    assert!(session.is_due(Millis(30_000)));
}

#[test]
fn a_new_resource_is_asked_for_at_once_and_again_when_its_interval_is_over() {
    let mut session = leased();
    assert_eq!(session.poll(Millis(10)), None);
    let wake = session.wake(Millis(10)).expect("a refresh");
    assert!((4_500..=5_010).contains(&wake.0), "{wake:?}");
    assert_eq!(session.poll(Millis(wake.0 - 1)), None);
    let refresh = session.poll(wake).expect("it refreshes");
    let has = asks(&refresh)[0].has.expect("it says what it has");
    assert_eq!((has.token, has.wire.capacity), (Some(1), 40.0));
}

#[test]
fn a_lease_counts_from_when_its_request_was_sent() {
    let mut session = session();
    session.want(Millis(0), &id("r"), wants(100.0), MODE);
    let first = session.poll(Millis(100)).expect("it asks");
    session.answered(Millis(2_000), first.number, vec![given("r", 40.0, 1)]);
    assert_eq!(capacity(&session, 60_099, "r"), 40.0);
    assert_eq!(capacity(&session, 60_100, "r"), 1.5, "the safe capacity");
}

#[test]
fn all_resources_go_into_one_request_when_the_first_is_due() {
    let mut session = session();
    for name in ["a", "b", "c"] {
        session.want(Millis(0), &id(name), wants(1.0), MODE);
    }
    let first = session.poll(Millis(0)).expect("it asks");
    assert_eq!(asks(&first).len(), 3);
    let slow = |name| Given { refresh: Millis(50_000), ..given(name, 1.0, 1) };
    session.answered(Millis(1), first.number, vec![slow("a"), given("b", 1.0, 2), slow("c")]);
    let wake = session.wake(Millis(1)).expect("a refresh");
    assert!(wake.0 <= 5_001, "at the shortest interval");
    assert_eq!(asks(&session.poll(wake).expect("it refreshes")).len(), 3);
}

#[test]
fn what_does_not_fit_into_a_request_goes_into_the_next() {
    let mut session = Session::new(Settings { resources_per_request: 2, ..settings(&["a:1"]) });
    for name in ["a", "b", "c"] {
        session.want(Millis(0), &id(name), wants(1.0), MODE);
    }
    let first = session.poll(Millis(0)).expect("it asks");
    let answers = asks(&first).iter().map(|ask| given(&ask.id, 1.0, 1)).collect();
    session.answered(Millis(1), first.number, answers);
    let second = session.poll(Millis(1)).expect("something is left over");
    let mut names: Vec<_> = asks(&first).iter().chain(asks(&second)).map(|ask| ask.id.to_string()).collect();
    names.dedup();
    assert!(names.contains(&"c".to_owned()) && asks(&second).len() <= 2, "{names:?}");
}

#[test]
fn one_request_is_under_way_at_a_time() {
    let mut session = session();
    session.want(Millis(0), &id("r"), wants(1.0), MODE);
    assert!(session.poll(Millis(0)).is_some());
    session.want(Millis(1), &id("s"), wants(1.0), MODE);
    assert_eq!(session.poll(Millis(1)), None);
}

#[test]
fn an_answer_to_a_request_that_was_given_up_is_not_believed() {
    let mut session = session();
    session.want(Millis(0), &id("r"), wants(1.0), MODE);
    let first = session.poll(Millis(0)).expect("it asks");
    assert_eq!(session.poll(Millis(3_000)), None, "given up: a pause");
    assert!(!session.answered(Millis(3_001), first.number, vec![given("r", 40.0, 1)]));
    assert_eq!(session.lease(Millis(3_001), "r"), None);
    assert!(!session.failed(Millis(3_001), first.number) && session.failures() == 1, "and not a second failure");
}

#[test]
fn an_answer_to_an_older_request_is_not_taken_for_one_to_the_newest() {
    let mut session = session();
    session.want(Millis(0), &id("r"), wants(1.0), MODE);
    let first = session.poll(Millis(0)).expect("it asks");
    assert_eq!(session.poll(Millis(3_000)), None, "given up: a pause");
    let second = session.poll(Millis(3_100)).expect("it asks again");
    assert!(!session.answered(Millis(3_101), first.number, vec![given("r", 40.0, 1)]));
    assert!(!session.redirected(Millis(3_101), first.number, Some("elsewhere:1")));
    assert!(!session.failed(Millis(3_101), first.number));
    assert_eq!((session.lease(Millis(3_101), "r"), session.in_flight()), (None, Some(second.number)));
    assert_eq!((session.failures(), &**session.target()), (1, "a:1"));
}

#[test]
fn what_was_not_asked_for_is_not_taken() {
    let mut session = session();
    session.want(Millis(0), &id("r"), wants(1.0), MODE);
    let first = session.poll(Millis(0)).expect("it asks");
    session.want(Millis(1), &id("s"), wants(1.0), MODE);
    session.answered(Millis(2), first.number, vec![given("s", 40.0, 1), given("x", 40.0, 1)]);
    assert_eq!((session.lease(Millis(2), "s"), session.lease(Millis(2), "x")), (None, None));
}

#[test]
fn a_resource_left_out_of_an_answer_keeps_its_lease_and_its_pace() {
    let mut session = leased();
    let again = session.wake(Millis(10)).expect("a refresh");
    let refresh = session.poll(again).expect("it refreshes");
    session.answered(again, refresh.number, vec![]);
    assert_eq!(capacity(&session, again.0, "r"), 40.0);
    let next = session.wake(again).expect("another refresh");
    assert!((4_000..=5_000).contains(&next.since(again).0), "{next:?}");
}

#[test]
fn a_resource_that_was_refused_is_asked_for_again_in_a_while() {
    let mut session = session();
    session.want(Millis(0), &id("r"), wants(1.0), MODE);
    let first = session.poll(Millis(0)).expect("it asks");
    session.answered(Millis(10), first.number, vec![]);
    assert_eq!(session.wake(Millis(10)), Some(Millis(1_010)));
}

#[test]
fn what_was_refused_is_never_asked_for_at_once() {
    let pace = Pace { refresh_min: Millis(0), ..Pace::default() };
    let mut session = Session::new(Settings { pace, ..settings(&["a:1"]) });
    session.want(Millis(0), &id("r"), wants(1.0), MODE);
    let first = session.poll(Millis(0)).expect("it asks");
    session.answered(Millis(10), first.number, vec![]);
    assert_eq!(session.wake(Millis(10)), Some(Millis(110)));
}

#[test]
fn demand_that_changed_by_more_than_a_tenth_is_sent_at_once_and_less_with_the_next_refresh() {
    let mut session = leased();
    session.want(Millis(1_000), &id("r"), wants(109.0), MODE);
    assert_eq!(session.poll(Millis(1_000)), None);
    session.want(Millis(1_000), &id("r"), wants(111.0), MODE);
    assert_eq!(asks(&session.poll(Millis(1_000)).expect("it asks"))[0].demand.amount, 111.0);
}

#[test]
fn demand_that_changes_all_the_time_is_sent_ten_times_a_second_at_the_most() {
    let mut session = leased();
    let mut sent = 0;
    for ms in 1_000..3_000 {
        session.want(Millis(ms), &id("r"), wants(if ms % 2 == 0 { 1.0 } else { 1_000.0 }), MODE);
        if let Some(outgoing) = session.poll(Millis(ms)) {
            sent += 1;
            session.answered(Millis(ms), outgoing.number, vec![given("r", 40.0, ms)]);
        }
    }
    assert!((15..=20).contains(&sent), "{sent}");
}

#[test]
fn demand_that_changes_while_a_request_is_under_way_is_sent_right_after() {
    let mut session = session();
    session.want(Millis(0), &id("r"), wants(10.0), MODE);
    let first = session.poll(Millis(0)).expect("it asks");
    session.want(Millis(50), &id("r"), wants(90.0), MODE);
    session.answered(Millis(200), first.number, vec![given("r", 10.0, 1)]);
    assert_eq!(asks(&session.poll(Millis(200)).expect("it asks"))[0].demand.amount, 90.0);
}

#[test]
fn a_hint_is_followed_at_once_and_one_during_a_request_after_its_answer() {
    let mut session = leased();
    session.hint(Millis(1_000), "r");
    let hinted = session.poll(Millis(1_000)).expect("it asks");
    session.hint(Millis(1_005), "r");
    assert_eq!(session.poll(Millis(1_005)), None);
    session.answered(Millis(1_010), hinted.number, vec![given("r", 40.0, 2)]);
    assert_eq!(session.wake(Millis(1_010)), Some(Millis(1_100)), "100 ms after the last request");
    assert!(session.poll(Millis(1_100)).is_some());
    session.hint(Millis(1_101), "never heard of");
}

#[test]
fn a_holder_that_was_cut_asks_again_soon_to_confirm() {
    let mut session = leased();
    session.hint(Millis(1_000), "r");
    let hinted = session.poll(Millis(1_000)).expect("it asks");
    session.answered(Millis(1_010), hinted.number, vec![given("r", 20.0, 2)]);
    assert_eq!(session.wake(Millis(1_010)), Some(Millis(1_110)));
    let confirm = session.poll(Millis(1_110)).expect("it confirms");
    assert_eq!(asks(&confirm)[0].has.expect("a lease").token, Some(2));
    session.answered(Millis(1_120), confirm.number, vec![]);
    assert!(session.wake(Millis(1_120)).expect("a refresh").0 > 5_000, "once is enough");
}

#[test]
fn a_server_without_tokens_cannot_be_confirmed_early() {
    let mut session = leased();
    session.hint(Millis(1_000), "r");
    let hinted = session.poll(Millis(1_000)).expect("it asks");
    session.answered(Millis(1_010), hinted.number, vec![Given { token: None, ..given("r", 20.0, 2) }]);
    assert!(session.wake(Millis(1_010)).expect("a refresh").0 > 5_000);
}

#[test]
fn failures_are_followed_by_pauses_that_grow_and_by_the_next_endpoint() {
    let mut session = Session::new(settings(&["a:1", "b:1"]));
    session.want(Millis(0), &id("r"), wants(1.0), MODE);
    let (mut now, mut pauses, mut targets) = (Millis(0), Vec::new(), Vec::new());
    for _ in 0..14 {
        let outgoing = session.poll(now).expect("it asks");
        targets.push(outgoing.target.to_string());
        assert!(session.failed(now, outgoing.number));
        assert_eq!(session.poll(now), None);
        let wake = session.wake(now).expect("another attempt");
        pauses.push(wake.since(now).0);
        now = wake;
    }
    assert!(targets.windows(2).all(|pair| pair[0] != pair[1]), "{targets:?}");
    assert!((50..=100).contains(&pauses[0]) && (1_250..=2_500).contains(&pauses[13]), "{pauses:?}");
    let outgoing = session.poll(now).expect("it asks");
    session.answered(now, outgoing.number, vec![given("r", 1.0, 1)]);
    session.hint(now.plus(Millis(1_000)), "r");
    let outgoing = session.poll(now.plus(Millis(1_000))).expect("no pause is left");
    session.failed(now.plus(Millis(1_000)), outgoing.number);
    assert!(session.wake(now.plus(Millis(1_000))).expect("an attempt").since(now).0 <= 1_100, "small again");
}

#[test]
fn redirects_are_followed_at_once_but_rings_are_not() {
    let mut session = session();
    session.want(Millis(0), &id("r"), wants(1.0), MODE);
    let mut targets = Vec::new();
    for _ in 0..100 {
        let Some(outgoing) = session.poll(Millis(0)) else { break };
        let to = if &*outgoing.target == "b:1" { "a:1" } else { "b:1" };
        targets.push(outgoing.target.to_string());
        assert!(session.redirected(Millis(0), outgoing.number, Some(to)));
    }
    assert_eq!(targets, ["a:1", "b:1", "a:1", "b:1", "a:1", "b:1"]);
    assert_eq!(session.failures(), 1);
    assert!(session.wake(Millis(0)).expect("another attempt") >= Millis(50));
}

#[test]
fn a_server_that_names_itself_or_none_is_a_failure() {
    for master in [Some("a:1"), None] {
        let mut session = session();
        session.want(Millis(0), &id("r"), wants(1.0), MODE);
        let outgoing = session.poll(Millis(0)).expect("it asks");
        session.redirected(Millis(0), outgoing.number, master);
        assert_eq!((session.poll(Millis(0)), session.failures()), (None, 1), "{master:?}");
    }
}

#[test]
fn the_mode_says_what_to_use_when_a_lease_has_ended() {
    for (mode, ended) in [(Mode::Safe, 1.5), (Mode::Pessimistic, 0.0), (Mode::Optimistic, 100.0)] {
        let mut session = leased();
        session.want(Millis(20), &id("r"), wants(100.0), mode);
        assert_eq!(capacity(&session, 59_999, "r"), 40.0);
        assert_eq!(capacity(&session, 60_000, "r"), ended, "{mode:?}");
    }
}

#[test]
fn a_negative_safe_capacity_is_no_limit() {
    let mut session = session();
    session.want(Millis(0), &id("r"), wants(1.0), MODE);
    let first = session.poll(Millis(0)).expect("it asks");
    session.answered(Millis(1), first.number, vec![Given { safe: Some(-1.0), ..given("r", 40.0, 1) }]);
    assert!(session.usable(Millis(60_000), "r").expect("wanted").capacity.is_unlimited());
}

#[test]
fn before_the_first_answer_there_is_nothing_and_after_a_failure_the_mode_decides() {
    for (mode, failed) in [(Mode::Safe, 0.0), (Mode::Pessimistic, 0.0), (Mode::Optimistic, 8.0)] {
        let mut session = session();
        session.want(Millis(0), &id("r"), wants(8.0), mode);
        let outgoing = session.poll(Millis(0)).expect("it asks");
        assert_eq!(session.usable(Millis(1), "r").expect("wanted").basis, Basis::Unknown);
        session.failed(Millis(2), outgoing.number);
        let usable = session.usable(Millis(2), "r").expect("wanted");
        assert_eq!((usable.capacity.get(), usable.basis), (failed, Basis::Fallback), "{mode:?}");
    }
}

#[test]
fn a_negative_or_absurd_grant_opens_nothing() {
    let mut session = session();
    session.want(Millis(0), &id("r"), wants(1.0), MODE);
    let first = session.poll(Millis(0)).expect("it asks");
    session.answered(Millis(1), first.number, vec![given("r", -40.0, 1)]);
    assert_eq!(capacity(&session, 1, "r"), 0.0);
}

#[test]
fn changes_are_told_once_and_the_end_of_a_lease_wakes() {
    let mut session = leased();
    let changes = |session: &mut Session<Wants>, at| {
        let mut reported = Vec::new();
        session.changes(Millis(at), |id, usable| reported.push((id.to_string(), usable.capacity.get())));
        reported
    };
    assert_eq!(changes(&mut session, 10), [("r".to_owned(), 40.0)]);
    assert_eq!(changes(&mut session, 11), []);
    let refresh = session.poll(Millis(59_000)).expect("it refreshes, late");
    assert_eq!(session.wake(Millis(59_000)), Some(Millis(60_000)), "before the answer must be there");
    assert_eq!(changes(&mut session, 60_000), [("r".to_owned(), 1.5)]);
    session.failed(Millis(60_001), refresh.number);
    assert_eq!(changes(&mut session, 60_001), []);
}

#[test]
fn servers_that_have_no_master_are_asked_again_within_a_second_however_often_they_said_so() {
    let mut session = session();
    session.want(Millis(0), &id("r"), wants(10.0), MODE);
    let mut now = Millis(0);
    for _ in 0..20 {
        let outgoing = session.poll(now).expect("it asks");
        session.redirected(now, outgoing.number, None);
        let wake = session.wake(now).expect("it asks again");
        assert!(wake.since(now) <= Millis(1_000), "{wake:?} after {now:?}");
        now = wake;
    }
    let outgoing = session.poll(now).expect("it asks");
    session.failed(now, outgoing.number);
    let wake = session.wake(now).expect("it asks again");
    assert!(wake.since(now) > Millis(1_000), "one that does not answer at all is left alone for longer");
}

#[test]
fn what_is_wanted_again_while_its_lease_is_being_renewed_is_asked_for_soon() {
    let mut session = leased();
    session.hint(Millis(1_000), "r");
    let hinted = session.poll(Millis(1_000)).expect("it asks");
    session.release("r");
    session.want(Millis(1_001), &id("r"), wants(100.0), MODE);
    session.answered(Millis(1_002), hinted.number, vec![given("r", 50.0, 2)]);
    assert_eq!(capacity(&session, 1_002, "r"), 50.0);
    assert_eq!(session.wake(Millis(1_002)), Some(Millis(1_100)), "for it may want something else");
}

#[test]
fn what_has_waited_longest_goes_into_the_request_first() {
    let mut session = Session::new(Settings { resources_per_request: 1, ..settings(&["a:1"]) });
    for (at, name) in [(0, "z"), (1, "m"), (2, "a")] {
        session.want(Millis(at), &id(name), wants(1.0), MODE);
    }
    let mut order = Vec::new();
    for _ in 0..3 {
        let outgoing = session.poll(Millis(3)).expect("it asks");
        order.push(asks(&outgoing)[0].id.to_string());
        session.answered(Millis(3), outgoing.number, vec![given(&asks(&outgoing)[0].id, 1.0, 1)]);
    }
    assert_eq!(order, ["z", "m", "a"]);
}

#[test]
fn a_hint_for_everything_is_followed_at_once() {
    let mut session = leased();
    session.hint_all(Millis(1_000));
    assert!(session.poll(Millis(1_000)).is_some());
}

#[test]
fn a_deadline_counts_from_when_the_request_is_sent_and_wakes() {
    let mut session = leased();
    session.hint(Millis(1_000), "r");
    let hinted = session.poll(Millis(1_000)).expect("it asks");
    assert_eq!((hinted.deadline, session.wake(Millis(1_000))), (Millis(4_000), Some(Millis(4_000))));
}

#[test]
fn after_a_pause_it_wakes_when_the_pause_is_over_and_not_before() {
    let mut session = leased();
    session.hint(Millis(1_000), "r");
    let hinted = session.poll(Millis(1_000)).expect("it asks");
    session.failed(Millis(1_001), hinted.number);
    let wake = session.wake(Millis(1_001)).expect("another attempt");
    assert!(wake >= Millis(1_051), "{wake:?}");
    assert!(session.poll(wake).is_some());
}

#[test]
fn many_sessions_do_not_all_begin_with_the_same_endpoint() {
    let first = |seed| Session::<Wants>::new(Settings { seed, ..settings(&["a:1", "b:1"]) }).target().to_string();
    let begin_with_a = (0..100).filter(|seed| first(*seed) == "a:1").count();
    assert!((20..=80).contains(&begin_with_a), "{begin_with_a} of 100");
}

#[test]
fn the_safe_capacity_last_received_is_kept_when_an_answer_has_none() {
    let mut session = leased();
    session.hint(Millis(1_000), "r");
    let hinted = session.poll(Millis(1_000)).expect("it asks");
    session.answered(Millis(1_000), hinted.number, vec![Given { safe: None, ..given("r", 40.0, 2) }]);
    assert_eq!(capacity(&session, 61_000, "r"), 1.5);
}

#[test]
fn the_same_seed_does_the_same() {
    let run = || {
        let mut session = leased();
        let mut log = Vec::new();
        let mut now = Millis(10);
        for n in 0..50u64 {
            now = session.wake(now).expect("something to do");
            if let Some(outgoing) = session.poll(now) {
                log.push((now, outgoing.number));
                if n % 3 == 0 {
                    session.failed(now, outgoing.number);
                } else {
                    session.answered(now, outgoing.number, vec![given("r", n as f64, n + 2)]);
                }
            }
        }
        log
    };
    assert_eq!(run(), run());
}
