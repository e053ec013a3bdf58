//! The rules of a session one by one. `lossy_network` runs many sessions against a resource of the core over a network
//! that loses and reorders messages. `steps` calls everything in any order.

mod lossy_network;
mod outages;
mod steps;
mod streams;

use std::sync::Arc;

use leaseway_core::{policy::period::Span, resource::BudgetLease, types::Millis};

use crate::session::*;

const MODE: Mode = Mode::Safe;
/// The expiry of the lease of [`leased`].
const END: u64 = 60_000;

fn settings(endpoints: &[&str]) -> Settings {
    Settings {
        endpoints: endpoints.iter().map(|endpoint| (*endpoint).into()).collect(),
        pace: Pace::default(),
        resources_per_request: 1000,
        seed: 7,
    }
}

fn wants(amount: f64) -> Wants {
    Wants { amount, ..Wants::default() }
}

fn id(name: &str) -> Arc<str> {
    name.into()
}

/// A lease of a minute, with a refresh interval of five seconds and a safe capacity of 1.5.
fn given(name: &str, capacity: f64, token: u64) -> GrantedLease {
    GrantedLease {
        id: id(name),
        length: Millis(60_000),
        refresh: Millis(5_000),
        token: Some(token),
        wire: Wire { expiry_time: 60, refresh_interval: 5, capacity },
        safe: Some(1.5),
        budget: None,
    }
}

/// A session with one endpoint that wants 100 of `r`.
fn session() -> Session<Wants> {
    let mut session = Session::new(settings(&["a:1"]));
    session.want(Millis(0), &id("r"), wants(100.0), MODE);
    session
}

fn poll(session: &mut Session<Wants>, at: u64) -> Outgoing<Wants> {
    session.poll(Millis(at)).expect("a request is due")
}

/// A session that has sent its first request, and the number of that request.
fn asking() -> (Session<Wants>, u64) {
    let mut session = session();
    let number = poll(&mut session, 0).number;
    (session, number)
}

/// A session that received a lease of 40 at 10 ms, for a request sent at time 0.
fn leased() -> Session<Wants> {
    let (mut session, number) = asking();
    assert!(session.answered(Millis(10), number, vec![given("r", 40.0, 1)]));
    session
}

/// A session with the lease of [`leased`] that has sent another request at this time, and the number of that request.
fn refreshing(at: u64) -> (Session<Wants>, u64) {
    let mut session = leased();
    session.hint(Millis(at), "r");
    let outgoing = poll(&mut session, at);
    assert_eq!(named(&outgoing), (Some(1), None));
    (session, outgoing.number)
}

fn asks(outgoing: &Outgoing<Wants>) -> &[Ask<Wants>] {
    match &outgoing.body {
        Body::Ask(asks) => asks,
        other => panic!("sends {other:?}"),
    }
}

/// The tokens of the live lease and of the expired lease that a request names.
fn named(outgoing: &Outgoing<Wants>) -> (Option<u64>, Option<u64>) {
    let Ask { has, had, .. } = asks(outgoing)[0];
    (has.and_then(|lease| lease.token), had.and_then(|lease| lease.token))
}

fn released(outgoing: &Outgoing<Wants>) -> Vec<(&str, Option<u64>)> {
    match &outgoing.body {
        Body::Release(releases) => releases.iter().map(|release| (&*release.id, release.token)).collect(),
        other => panic!("sends {other:?}"),
    }
}

fn capacity(session: &Session<Wants>, at: u64, name: &str) -> f64 {
    session.usable(Millis(at), name).expect("it is wanted").capacity.get()
}

fn token(session: &Session<Wants>, at: u64) -> Option<u64> {
    session.lease(Millis(at), "r").and_then(|lease| lease.token)
}

// -- When requests are sent.

#[test]
fn a_postponed_resource_is_not_asked_for_earlier() {
    let mut session = leased();
    let second = poll(&mut session, 6_000);
    session.postpone("r", Millis(30_000));
    assert!(session.answered(Millis(6_010), second.number, vec![given("r", 40.0, 2)]));
    assert!(!session.is_due(Millis(29_999)) && session.is_due(Millis(30_000)));
}

#[test]
fn a_new_resource_is_asked_for_at_once_and_refreshed_after_its_interval() {
    let mut session = leased();
    assert_eq!(session.poll(Millis(10)), None);
    let wake = session.wake(Millis(10)).expect("a refresh");
    assert!((4_500..=5_010).contains(&wake.0), "{wake:?}");
    assert_eq!(session.poll(Millis(wake.0 - 1)), None);
    let refresh = poll(&mut session, wake.0);
    assert_eq!((named(&refresh), refresh.deadline), ((Some(1), None), wake.plus(Millis(3_000))));
    assert_eq!(session.wake(wake), Some(refresh.deadline));
}

#[test]
fn one_request_asks_for_all_resources_when_the_first_is_due() {
    let mut session = Session::new(settings(&["a:1"]));
    for name in ["a", "b", "c"] {
        session.want(Millis(0), &id(name), wants(1.0), MODE);
    }
    let first = poll(&mut session, 0);
    assert_eq!(asks(&first).len(), 3);
    let slow = |name| GrantedLease { refresh: Millis(50_000), ..given(name, 1.0, 1) };
    session.answered(Millis(1), first.number, vec![slow("a"), given("b", 1.0, 2), slow("c")]);
    let wake = session.wake(Millis(1)).expect("a refresh");
    assert!(wake.0 <= 5_001, "the shortest interval counts");
    assert_eq!(asks(&poll(&mut session, wake.0)).len(), 3);
}

#[test]
fn the_resources_that_waited_longest_go_into_the_request_first() {
    let mut session = Session::new(Settings { resources_per_request: 1, ..settings(&["a:1"]) });
    for (at, name) in [(0, "z"), (1, "m"), (2, "a")] {
        session.want(Millis(at), &id(name), wants(1.0), MODE);
    }
    let mut order = Vec::new();
    for _ in 0..3 {
        let outgoing = poll(&mut session, 3);
        order.push(asks(&outgoing)[0].id.to_string());
        session.answered(Millis(3), outgoing.number, vec![given(&asks(&outgoing)[0].id, 1.0, 1)]);
    }
    assert_eq!(order, ["z", "m", "a"]);
}

#[test]
fn a_resource_left_out_of_an_answer_keeps_its_lease_and_interval() {
    let mut session = leased();
    let again = session.wake(Millis(10)).expect("a refresh");
    let refresh = poll(&mut session, again.0);
    session.answered(again, refresh.number, vec![]);
    assert_eq!(capacity(&session, again.0, "r"), 40.0);
    let next = session.wake(again).expect("another refresh");
    assert!((4_000..=5_000).contains(&next.since(again).0), "{next:?}");
}

#[test]
fn a_refused_resource_is_asked_for_again_after_the_minimum_interval() {
    for (refresh_min, again) in [(1_000, 1_010), (0, 110)] {
        let (mut session, number) = asking();
        session.pace.refresh_min = Millis(refresh_min);
        session.answered(Millis(10), number, vec![]);
        assert_eq!(session.wake(Millis(10)), Some(Millis(again)));
    }
}

#[test]
fn a_change_of_demand_by_more_than_a_tenth_is_sent_at_once() {
    let mut session = leased();
    session.want(Millis(1_000), &id("r"), wants(109.0), MODE);
    assert_eq!(session.poll(Millis(1_000)), None);
    session.want(Millis(1_000), &id("r"), wants(111.0), MODE);
    assert_eq!(asks(&poll(&mut session, 1_000))[0].demand.amount, 111.0);
}

#[test]
fn a_hint_or_new_demand_during_a_request_is_followed_after_its_answer() {
    let (mut session, number) = refreshing(1_000);
    session.hint(Millis(1_005), "r");
    session.hint(Millis(1_005), "unknown");
    assert_eq!(session.poll(Millis(1_005)), None);
    session.answered(Millis(1_010), number, vec![given("r", 40.0, 2)]);
    assert_eq!(session.wake(Millis(1_010)), Some(Millis(1_100)), "100 ms after the last request");
    let hinted = poll(&mut session, 1_100);
    session.want(Millis(1_110), &id("r"), wants(90_000.0), MODE);
    session.answered(Millis(1_300), hinted.number, vec![given("r", 10.0, 1)]);
    assert_eq!(asks(&poll(&mut session, 1_300))[0].demand.amount, 90_000.0);
}

#[test]
fn a_shrunk_lease_is_confirmed_after_100_ms_if_it_has_a_token() {
    for token in [Some(2), None] {
        let (mut session, number) = refreshing(1_000);
        session.answered(Millis(1_010), number, vec![GrantedLease { token, ..given("r", 20.0, 2) }]);
        if token.is_none() {
            assert!(session.wake(Millis(1_010)).expect("a refresh").0 > 5_000);
            continue;
        }
        assert_eq!(session.wake(Millis(1_010)), Some(Millis(1_110)));
        let confirm = poll(&mut session, 1_110);
        assert_eq!(named(&confirm), (Some(2), None));
        session.answered(Millis(1_120), confirm.number, vec![]);
        assert!(session.wake(Millis(1_120)).expect("a refresh").0 > 5_000, "confirmed once");
    }
}

#[test]
fn after_ask_until_nothing_is_asked_for_and_no_answer_counts() {
    let mut session = leased();
    session.ask_until(Millis(4_000));
    session.hint(Millis(3_999), "r");
    let asked = poll(&mut session, 3_999);
    assert!(!session.answered(Millis(4_001), asked.number, vec![given("r", 50.0, 2)]), "too late");
    assert_eq!(token(&session, 4_001), Some(1), "the lease stays live");
    assert_eq!((session.poll(Millis(30_000)), session.is_due(Millis(30_000))), (None, false));
    assert_eq!(session.wake(Millis(30_000)), Some(Millis(END)), "only the expiry is left to wait for");
    session.ask_until(Millis(34_000));
    let again = poll(&mut session, 30_000);
    assert_eq!(named(&again), (Some(1), None));
    assert!(session.answered(Millis(30_010), again.number, vec![given("r", 60.0, 3)]));
    // Releases are still sent, and retried.
    session.ask_until(Millis(0));
    session.release("r");
    let release = poll(&mut session, 30_020);
    assert_eq!(released(&release), [("r", Some(3))]);
    session.failed(Millis(30_030), release.number);
    assert_eq!(released(&poll(&mut session, 40_000)), [("r", Some(3))]);
}

// -- Where requests go, and what follows a failure.

#[test]
fn failures_are_followed_by_growing_pauses_and_the_next_endpoint() {
    let mut session = Session::new(settings(&["a:1", "b:1"]));
    session.want(Millis(0), &id("r"), wants(1.0), MODE);
    let (mut now, mut pauses, mut targets) = (Millis(0), Vec::new(), Vec::new());
    for _ in 0..14 {
        let outgoing = poll(&mut session, now.0);
        targets.push(outgoing.target.to_string());
        assert!(session.failed(now, outgoing.number));
        assert_eq!(session.poll(now), None);
        let wake = session.wake(now).expect("another attempt");
        pauses.push(wake.since(now).0);
        now = wake;
    }
    assert!(targets.windows(2).all(|pair| pair[0] != pair[1]), "{targets:?}");
    assert!((50..=100).contains(&pauses[0]) && (1_250..=2_500).contains(&pauses[13]), "{pauses:?}");
    let outgoing = poll(&mut session, now.0);
    session.answered(now, outgoing.number, vec![given("r", 1.0, 1)]);
    session.hint(now.plus(Millis(1_000)), "r");
    let outgoing = poll(&mut session, now.0 + 1_000);
    session.failed(now.plus(Millis(1_000)), outgoing.number);
    let wake = session.wake(now.plus(Millis(1_000))).expect("another attempt");
    assert!(wake.since(now).0 <= 1_100, "an answer makes the next pause short");
}

#[test]
fn redirects_are_followed_at_once_but_at_most_five_in_a_row() {
    let mut session = session();
    let mut targets = Vec::new();
    while let Some(outgoing) = session.poll(Millis(0)) {
        let master = if &*outgoing.target == "b:1" { "a:1" } else { "b:1" };
        targets.push(outgoing.target.to_string());
        assert!(session.redirected(Millis(0), outgoing.number, Some(master)));
    }
    assert_eq!(targets, ["a:1", "b:1", "a:1", "b:1", "a:1", "b:1"]);
    assert_eq!(session.failures(), 1);
    assert!(session.wake(Millis(0)).expect("another attempt") >= Millis(50));
    // A master that moves now and then is followed each time.
    let mut session = leased();
    for n in 1..20 {
        session.hint(Millis(n * 1_000), "r");
        let number = poll(&mut session, n * 1_000).number;
        session.redirected(Millis(n * 1_000), number, Some(if n % 2 == 0 { "b:1" } else { "c:1" }));
        let number = poll(&mut session, n * 1_000).number;
        session.answered(Millis(n * 1_000), number, vec![given("r", 40.0, n)]);
    }
    assert_eq!(session.failures(), 0);
}

#[test]
fn a_server_that_names_itself_or_no_master_is_a_failure() {
    for master in [Some("a:1"), None] {
        let (mut session, number) = asking();
        session.redirected(Millis(0), number, master);
        assert_eq!((session.poll(Millis(0)), session.failures()), (None, 1), "{master:?}");
    }
}

#[test]
fn servers_without_a_master_are_asked_again_within_a_second() {
    let (mut session, mut now) = (session(), Millis(0));
    for _ in 0..20 {
        let outgoing = poll(&mut session, now.0);
        session.redirected(now, outgoing.number, None);
        let wake = session.wake(now).expect("another attempt");
        assert!(wake.since(now) <= Millis(1_000), "{wake:?} after {now:?}");
        now = wake;
    }
    let outgoing = poll(&mut session, now.0);
    session.failed(now, outgoing.number);
    assert!(session.wake(now).expect("another attempt").since(now) > Millis(1_000), "a failed server waits longer");
}

#[test]
fn sessions_begin_with_different_endpoints() {
    let first = |seed| Session::<Wants>::new(Settings { seed, ..settings(&["a:1", "b:1"]) }).target().to_string();
    let begin_with_a = (0..100).filter(|seed| first(*seed) == "a:1").count();
    assert!((20..=80).contains(&begin_with_a), "{begin_with_a} of 100");
}

// -- What may be used.

#[test]
fn a_lease_starts_when_its_request_was_sent() {
    let mut session = session();
    let first = poll(&mut session, 100);
    session.answered(Millis(2_000), first.number, vec![given("r", 40.0, 1)]);
    assert_eq!(capacity(&session, 60_099, "r"), 40.0);
    assert_eq!(capacity(&session, 60_100, "r"), 1.5, "the safe capacity");
}

#[test]
fn the_mode_decides_after_the_expiry_and_after_a_failure() {
    for (mode, expired, failed) in
        [(Mode::Safe, 1.5, 0.0), (Mode::Pessimistic, 0.0, 0.0), (Mode::Optimistic, 100.0, 100.0)]
    {
        let mut session = leased();
        session.want(Millis(20), &id("r"), wants(100.0), mode);
        assert_eq!(capacity(&session, END - 1, "r"), 40.0);
        assert_eq!(capacity(&session, END, "r"), expired, "{mode:?}");

        let (mut session, number) = asking();
        session.want(Millis(0), &id("r"), wants(100.0), mode);
        assert_eq!(session.usable(Millis(1), "r").expect("it is wanted").basis, Basis::Unknown);
        session.failed(Millis(2), number);
        let usable = session.usable(Millis(2), "r").expect("it is wanted");
        assert_eq!((usable.capacity.get(), usable.basis), (failed, Basis::Fallback), "{mode:?}");
    }
}

#[test]
fn negative_grants_open_nothing_and_negative_safe_capacities_are_unlimited() {
    let (mut session, number) = asking();
    session.answered(Millis(1), number, vec![GrantedLease { safe: Some(-1.0), ..given("r", -40.0, 1) }]);
    assert_eq!(capacity(&session, 1, "r"), 0.0);
    assert_eq!(capacity(&session, END, "r"), f64::INFINITY);
}

#[test]
fn the_safe_capacity_last_received_is_kept() {
    let (mut session, number) = refreshing(1_000);
    session.answered(Millis(1_000), number, vec![GrantedLease { safe: None, ..given("r", 40.0, 2) }]);
    assert_eq!(capacity(&session, 61_000, "r"), 1.5);
}

#[test]
fn changes_are_reported_once_and_an_expiry_wakes() {
    let mut session = leased();
    let changes = |session: &mut Session<Wants>, at| {
        let mut reported = Vec::new();
        session.changes(Millis(at), |_, usable| reported.push(usable.capacity.get()));
        reported
    };
    assert_eq!(changes(&mut session, 10), [40.0]);
    assert!(changes(&mut session, 11).is_empty());
    let refresh = poll(&mut session, END - 1_000);
    assert_eq!(session.wake(Millis(END - 1_000)), Some(Millis(END)), "before the deadline of the request");
    assert_eq!(changes(&mut session, END), [1.5]);
    session.failed(Millis(END + 1), refresh.number);
    assert!(changes(&mut session, END + 1).is_empty());
}

// -- Which answers count.

#[test]
fn only_the_answer_to_the_latest_request_counts() {
    let (mut session, first) = asking();
    session.want(Millis(1), &id("s"), wants(1.0), MODE);
    assert_eq!(session.poll(Millis(3_000)), None, "abandoned: a pause");
    assert!(!session.answered(Millis(3_001), first, vec![given("r", 40.0, 1)]));
    let second = poll(&mut session, 3_100);
    assert!(!session.answered(Millis(3_101), first, vec![given("r", 40.0, 1)]));
    assert!(!session.redirected(Millis(3_101), first, Some("elsewhere:1")));
    assert!(!session.failed(Millis(3_101), first));
    assert_eq!((token(&session, 3_101), session.in_flight()), (None, Some(second.number)));
    assert_eq!((session.failures(), &**session.target()), (1, "a:1"));
}

#[test]
fn leases_that_the_request_did_not_ask_for_are_ignored() {
    let (mut session, number) = asking();
    session.want(Millis(1), &id("s"), wants(1.0), MODE);
    session.answered(Millis(2), number, vec![given("s", 40.0, 1), given("x", 40.0, 1)]);
    assert_eq!((session.lease(Millis(2), "s"), session.lease(Millis(2), "x")), (None, None));
}

#[test]
fn an_answer_counts_only_before_the_expiry_of_the_lease_that_its_request_named() {
    for (at, counts, forgotten) in
        [(END - 1, true, false), (END, false, false), (END + 1_000, false, false), (END, false, true)]
    {
        let (mut session, asked) = refreshing(END - 500);
        if forgotten {
            session.forget("r");
        }
        assert!(session.answered(Millis(at), asked, vec![given("r", 50.0, 2)]), "it is the latest request");
        assert_eq!(token(&session, at).is_some(), counts, "at {at}");
    }
}

#[test]
fn a_dropped_answer_is_followed_by_a_request_that_names_the_expired_lease() {
    for (sent, answered, again) in [(END - 2_000, END, END), (END - 20, END, END + 80)] {
        let (mut session, asked) = refreshing(sent);
        session.answered(Millis(answered), asked, vec![given("r", 50.0, 2)]);
        assert_eq!(session.wake(Millis(answered)), Some(Millis(again)), "100 ms after the last request");
        let outgoing = poll(&mut session, again);
        assert_eq!(named(&outgoing), (None, Some(1)));
        // It named no live lease, so its answer counts at any time before the deadline.
        let late = again + 2_999;
        assert!(session.answered(Millis(late), outgoing.number, vec![given("r", 60.0, 3)]));
        assert_eq!(capacity(&session, late, "r"), 60.0);
    }
}

#[test]
fn an_expired_lease_is_named_until_there_is_a_new_one_or_it_is_forgotten() {
    let mut session = leased();
    let first = poll(&mut session, END);
    assert_eq!(named(&first), (None, Some(1)));
    session.answered(Millis(END + 1), first.number, vec![given("r", 50.0, 2)]);
    let refresh = poll(&mut session, END + 50_000);
    assert_eq!(named(&refresh), (Some(2), None));
    session.forget("r");
    session.failed(Millis(END + 50_001), refresh.number);
    assert_eq!(named(&poll(&mut session, END + 500_000)), (None, None));
}

#[test]
fn other_leases_of_a_late_answer_count() {
    let mut session = leased();
    session.want(Millis(1_000), &id("s"), wants(1.0), MODE);
    let both = poll(&mut session, 1_000);
    session.answered(Millis(1_001), both.number, vec![given("s", 1.0, 2)]);
    let refresh = poll(&mut session, END - 500);
    session.answered(Millis(END), refresh.number, vec![given("r", 50.0, 3), given("s", 2.0, 4)]);
    assert_eq!((capacity(&session, END, "r"), capacity(&session, END, "s")), (1.5, 2.0));
}

#[test]
fn answers_that_always_come_too_late_cause_no_request_storm() {
    let (mut session, mut now, mut sent, mut counted) = (session(), Millis(0), 0, 0);
    while now < Millis(100_000) {
        if let Some(outgoing) = session.poll(now) {
            sent += 1;
            // It refreshes when a third of three seconds is left, which is less than an answer takes.
            now = now.plus(Millis(1_200));
            session.answered(
                now,
                outgoing.number,
                vec![GrantedLease { length: Millis(3_000), ..given("r", 1.0, sent) }],
            );
            counted += u64::from(session.lease(now, "r").is_some());
        }
        now = session.wake(now).expect("a request or an expiry");
    }
    // Every second answer counts: that to the request that follows a dropped answer at once.
    assert!((40..=60).contains(&sent) && counted >= sent / 2, "{counted} of {sent} in 100 s");
}

#[test]
fn after_a_release_no_answer_to_an_earlier_request_counts() {
    let (mut session, asked) = refreshing(1_000);
    session.release("r");
    assert_eq!(session.poll(Millis(4_000)), None, "abandoned, not overtaken: a pause");
    let wake = session.wake(Millis(4_000)).expect("the end of the pause");
    let release = poll(&mut session, wake.0);
    assert_eq!(released(&release), [("r", Some(1))]);
    let late = |session: &mut Session<Wants>, at| session.answered(at, asked, vec![given("r", 50.0, 2)]);
    assert!(!late(&mut session, wake));
    assert_eq!(session.in_flight(), Some(release.number), "it is not the answer to the release");

    // Wanted again while the release is in flight, after it was answered, and during the next request.
    session.want(wake, &id("r"), wants(100.0), MODE);
    assert!(!late(&mut session, wake));
    session.answered(wake, release.number, vec![]);
    assert!(!late(&mut session, wake));
    let soon = session.wake(wake).expect("a request");
    let anew = poll(&mut session, soon.0);
    assert_eq!(named(&anew), (None, None));
    assert!(!late(&mut session, soon));
    assert_eq!((token(&session, soon.0), session.in_flight()), (None, Some(anew.number)));
    assert!(session.answered(soon, anew.number, vec![given("r", 60.0, 3)]));
    assert_eq!(capacity(&session, soon.0, "r"), 60.0);
}

// -- Releases.

#[test]
fn a_release_waits_for_the_request_in_flight_and_names_the_newest_lease() {
    let (mut session, number) = refreshing(1_000);
    session.want(Millis(1_000), &id("s"), wants(1.0), MODE);
    session.release("r");
    assert_eq!(session.poll(Millis(1_001)), None);
    session.answered(Millis(1_002), number, vec![given("r", 50.0, 2)]);
    let release = poll(&mut session, 1_002);
    assert_eq!(released(&release), [("r", Some(2))]);
    session.answered(Millis(1_003), release.number, vec![]);
    assert_eq!(&*asks(&poll(&mut session, 1_003))[0].id, "s", "other resources follow");
}

/// An unnamed release that arrives late could free a newer lease.
#[test]
fn without_a_live_lease_nothing_is_released() {
    let mut unasked = session();
    unasked.release("r");
    assert!(unasked.is_idle() && unasked.poll(Millis(0)).is_none());

    let (mut unanswered, number) = asking();
    unanswered.release("r");
    unanswered.failed(Millis(1), number);
    let wake = unanswered.wake(Millis(1)).expect("the end of the pause");
    assert!(unanswered.poll(wake).is_none() && unanswered.is_idle());

    let (mut late, asked) = refreshing(END - 500);
    late.release("r");
    assert!(!late.is_due(Millis(END)));
    late.answered(Millis(END), asked, vec![given("r", 50.0, 2)]);
    assert!(late.poll(Millis(END)).is_none() && late.is_idle());
    assert_eq!(late.wake(Millis(END)), None);
}

#[test]
fn a_resource_wanted_again_before_its_release_keeps_its_lease_and_is_reported_again() {
    let mut session = leased();
    session.changes(Millis(10), |_, _| ());
    session.release("r");
    session.want(Millis(1_000), &id("r"), wants(100.0), MODE);
    let mut reported = Vec::new();
    session.changes(Millis(1_000), |_, usable| reported.push((usable.capacity.get(), usable.basis)));
    assert_eq!(reported, [(40.0, Basis::Lease)], "its handle is new");
    assert_eq!(named(&poll(&mut session, 1_000)), (Some(1), None));
}

#[test]
fn a_budget_wanted_by_another_incarnation_starts_without_a_lease() {
    let of = |incarnation| Wants { spent: Some(BudgetUse { incarnation, ..BudgetUse::default() }), ..wants(10.0) };
    let allowance = || {
        let budget = BudgetLease { period: Span { start: 1000, end: 2000 }, starts_over: false };
        vec![GrantedLease { budget: Some(budget), ..given("r", 10.0, 1) }]
    };
    for is_released in [false, true] {
        let mut session = Session::new(settings(&["a:1"]));
        session.want(Millis(0), &id("r"), of(1), MODE);
        let asked = poll(&mut session, 0);
        assert!(session.answered(Millis(10), asked.number, allowance()));
        session.want(Millis(20), &id("r"), of(1), MODE);
        assert_eq!(token(&session, 20), Some(1));
        if is_released {
            session.release("r");
        }
        session.want(Millis(20), &id("r"), of(2), MODE);
        assert_eq!(token(&session, 20), None, "released: {is_released}");
        assert_eq!(named(&poll(&mut session, 200)), (None, None));
    }
}

#[test]
fn a_resource_wanted_again_during_its_renewal_keeps_the_lease_and_is_asked_for_soon() {
    let (mut session, number) = refreshing(1_000);
    session.release("r");
    session.want(Millis(1_001), &id("r"), wants(100.0), MODE);
    session.answered(Millis(1_002), number, vec![given("r", 50.0, 2)]);
    assert_eq!(capacity(&session, 1_002, "r"), 50.0);
    assert_eq!(session.wake(Millis(1_002)), Some(Millis(1_100)), "the demand may have changed");
}

/// The server may have processed the release.
#[test]
fn a_resource_wanted_again_after_a_release_was_sent_starts_without_a_lease() {
    for failed in [false, true] {
        let mut session = leased();
        session.release("r");
        let release = poll(&mut session, 1_000);
        if failed {
            session.failed(Millis(1_001), release.number);
        }
        session.want(Millis(1_600), &id("r"), wants(100.0), MODE);
        assert_eq!(capacity(&session, 1_600, "r"), 0.0);
        session.answered(Millis(1_610), release.number, vec![]);
        let wake = session.wake(Millis(1_610)).expect("a request");
        assert_eq!(named(&poll(&mut session, wake.0)), (None, None));
    }
}

#[test]
fn a_resource_wanted_again_during_a_redirected_release_is_asked_for_once() {
    let mut session = leased();
    session.want(Millis(100), &id("other"), wants(1.0), MODE);
    let first = poll(&mut session, 200);
    let other = GrantedLease { refresh: Millis(3_000), ..given("other", 1.0, 1) };
    assert!(session.answered(Millis(210), first.number, vec![other]));
    session.release("r");
    let release = poll(&mut session, 1_000);
    session.want(Millis(1_010), &id("r"), wants(100.0), MODE);
    assert!(session.redirected(Millis(1_500), release.number, Some("b:1")));
    let ask = poll(&mut session, 1_500);
    assert!(session.answered(Millis(1_510), ask.number, vec![given("r", 40.0, 2)]));
    assert!(!session.is_due(Millis(1_800)));
}

#[test]
fn failing_releases_do_not_prevent_refreshes() {
    let mut session = leased();
    session.want(Millis(20), &id("s"), wants(1.0), MODE);
    let number = poll(&mut session, 20).number;
    session.answered(Millis(20), number, vec![given("s", 1.0, 2)]);
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
        now = session.wake(now).expect("a refresh or a release");
        assert_eq!(capacity(&session, now.0, "s"), 1.0, "at {now:?}");
    }
    assert!(refreshes >= 6, "{refreshes} in 50 s, at 5 s and a pause");
    assert!((10..=100).contains(&releases), "retried with pauses: {releases}");
}

#[test]
fn releases_can_end_a_pause_and_are_bounded_per_request() {
    let mut session = Session::new(Settings { resources_per_request: 2, ..settings(&["a:1"]) });
    for name in ["a", "b", "c"] {
        session.want(Millis(0), &id(name), wants(1.0), MODE);
    }
    for _ in 0..2 {
        let outgoing = poll(&mut session, 0);
        let answers = asks(&outgoing).iter().map(|ask| given(&ask.id, 1.0, 1)).collect();
        session.answered(Millis(0), outgoing.number, answers);
    }
    session.hint(Millis(1_000), "a");
    let hinted = poll(&mut session, 1_000);
    session.failed(Millis(1_001), hinted.number);
    assert_eq!(session.poll(Millis(1_002)), None, "a pause");
    ["a", "b", "c"].iter().for_each(|name| session.release(name));
    assert_eq!(session.poll(Millis(1_002)), None, "still the pause");
    session.end_backoff();
    let first = poll(&mut session, 1_002);
    assert_eq!(released(&first).len(), 2);
    session.answered(Millis(1_002), first.number, vec![]);
    assert_eq!(released(&poll(&mut session, 1_002)), [("c", Some(1))]);
}
