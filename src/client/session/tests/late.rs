//! Which answers still count: only those to the latest request, before the expiry of the lease that it named.

use super::*;

/// The expiry of the lease of `leased()`.
const END: u64 = 60_000;

/// A session that asks for `r` at this time, and names the lease that expires at [`END`].
fn asking(at: u64) -> (Session<Wants>, u64) {
    let mut session = leased();
    session.hint(Millis(at), "r");
    let outgoing = session.poll(Millis(at)).expect("it asks");
    assert_eq!(asks(&outgoing)[0].has.expect("a lease").end, Millis(END));
    (session, outgoing.number)
}

#[test]
fn an_answer_counts_only_before_the_end_of_the_lease_that_its_request_named() {
    for (at, counts) in [(END - 1, true), (END, false), (END + 1_000, false)] {
        let (mut session, asked) = asking(END - 500);
        assert!(session.answered(Millis(at), asked, vec![given("r", 50.0, 2)]), "it is waited for");
        assert_eq!(session.lease(Millis(at), "r").is_some(), counts, "at {at}");
        assert_eq!(capacity(&session, END, "r"), if counts { 50.0 } else { 1.5 }, "at {at}");
    }
}

#[test]
fn what_did_not_count_is_asked_for_again_at_once_naming_what_has_ended_as_that() {
    for (sent, answered, again) in [(END - 2_000, END, END), (END - 20, END, END + 80)] {
        let (mut session, asked) = asking(sent);
        session.answered(Millis(answered), asked, vec![given("r", 50.0, 2)]);
        assert_eq!(session.wake(Millis(answered)), Some(Millis(again)), "100 ms after the last request");
        let outgoing = session.poll(Millis(again)).expect("it asks again");
        let Ask { has, had, .. } = &asks(&outgoing)[0];
        assert_eq!((has, had.and_then(|lease| lease.token)), (&None, Some(1)));
        // It named no live lease, so its answer counts at any time before the deadline.
        let late = again + 2_999;
        assert!(session.answered(Millis(late), outgoing.number, vec![given("r", 60.0, 3)]));
        assert_eq!(capacity(&session, late, "r"), 60.0);
    }
}

#[test]
fn what_has_ended_is_named_until_there_is_another_lease_or_it_is_forgotten() {
    let named = |outgoing: &Outgoing<Wants>| {
        let Ask { has, had, .. } = asks(outgoing)[0];
        (has.and_then(|lease| lease.token), had.and_then(|lease| lease.token))
    };
    let mut session = leased();
    let first = session.poll(Millis(END)).expect("it is due");
    assert_eq!(named(&first), (None, Some(1)));
    session.answered(Millis(END + 1), first.number, vec![given("r", 50.0, 2)]);
    let refresh = session.poll(Millis(END + 50_000)).expect("it is due again");
    assert_eq!(named(&refresh), (Some(2), None));
    session.forget("r");
    session.failed(Millis(END + 50_001), refresh.number);
    let last = session.poll(Millis(END + 500_000)).expect("it tries again");
    assert_eq!(named(&last), (None, None));
}

#[test]
fn the_rest_of_an_answer_counts() {
    let mut session = leased();
    session.want(Millis(1_000), &id("s"), wants(1.0), MODE);
    let both = session.poll(Millis(1_000)).expect("it asks for both");
    session.answered(Millis(1_001), both.number, vec![given("s", 1.0, 2)]);
    let refresh = session.poll(Millis(END - 500)).expect("it refreshes both, late");
    session.answered(Millis(END), refresh.number, vec![given("r", 50.0, 3), given("s", 2.0, 4)]);
    assert_eq!((capacity(&session, END, "r"), capacity(&session, END, "s")), (1.5, 2.0));
    let again = session.poll(Millis(END)).expect("it asks again");
    let named: Vec<_> = asks(&again).iter().map(|ask| (&*ask.id, ask.has.and_then(|lease| lease.token))).collect();
    assert_eq!(named, [("r", None), ("s", Some(4))]);
}

#[test]
fn a_lease_that_is_forgotten_meanwhile_was_named_all_the_same() {
    let (mut session, asked) = asking(END - 500);
    session.forget("r");
    session.answered(Millis(END), asked, vec![given("r", 50.0, 2)]);
    assert_eq!(session.lease(Millis(END), "r"), None);
}

#[test]
fn what_did_not_count_is_not_given_back() {
    let (mut session, asked) = asking(END - 500);
    session.release("r");
    assert!(!session.is_due(Millis(END)));
    session.answered(Millis(END), asked, vec![given("r", 50.0, 2)]);
    assert!(session.poll(Millis(END)).is_none() && session.is_idle());
    assert_eq!(session.wake(Millis(END)), None, "nor is it due");
}

#[test]
fn answers_that_always_come_after_the_end_make_no_storm_and_each_second_one_counts() {
    let (mut session, mut now, mut sent, mut counted) = (session(), Millis(0), 0, 0);
    session.want(now, &id("r"), wants(1.0), MODE);
    while now < Millis(100_000) {
        if let Some(outgoing) = session.poll(now) {
            sent += 1;
            // It refreshes when a third of three seconds is left, which is less than an answer takes.
            now = now.plus(Millis(1_200));
            session.answered(now, outgoing.number, vec![Given { length: Millis(3_000), ..given("r", 1.0, sent) }]);
            counted += usize::from(session.lease(now, "r").is_some());
        }
        now = session.wake(now).expect("it goes on");
    }
    // A refresh, and the request that follows at once because the answer was too late.
    assert!((40..=60).contains(&sent) && counted >= sent as usize / 2, "{counted} of {sent} in 100 s");
}

#[test]
fn after_a_release_was_sent_no_answer_to_an_earlier_request_counts() {
    let (mut session, asked) = asking(1_000);
    session.release("r");
    // It is abandoned, and not overtaken.
    assert_eq!(session.poll(Millis(4_000)), None, "a pause");
    let wake = session.wake(Millis(4_000)).expect("the end of the pause");
    let release = session.poll(wake).expect("it gives back");
    assert_eq!(released(&release), [("r", Some(1))]);
    let late = |session: &mut Session<Wants>, at| session.answered(at, asked, vec![given("r", 50.0, 2)]);
    assert!(!late(&mut session, wake));
    assert_eq!(session.in_flight(), Some(release.number), "it is not the answer to the release");

    // Wanted again while the release is in flight, after it was answered, and while it is asked for.
    session.want(wake, &id("r"), wants(100.0), MODE);
    assert!(!late(&mut session, wake));
    session.answered(wake, release.number, vec![]);
    assert!(!late(&mut session, wake));
    let soon = session.wake(wake).expect("it asks");
    let anew = session.poll(soon).expect("it asks");
    assert_eq!(asks(&anew)[0].has, None);
    assert!(!late(&mut session, soon));
    assert_eq!((session.lease(soon, "r"), session.in_flight()), (None, Some(anew.number)));
    assert!(session.answered(soon, anew.number, vec![given("r", 60.0, 3)]));
    assert_eq!(capacity(&session, soon.0, "r"), 60.0);
}

#[test]
fn after_a_release_that_failed_no_answer_to_an_earlier_request_counts_either() {
    let (mut session, asked) = asking(1_000);
    session.release("r");
    session.expire_request(Millis(4_000));
    let wake = session.wake(Millis(4_000)).expect("the end of the pause");
    let release = session.poll(wake).expect("it gives back");
    session.failed(wake, release.number);
    session.want(wake, &id("r"), wants(100.0), MODE);
    assert!(!session.answered(wake, asked, vec![given("r", 50.0, 2)]));
    assert_eq!(session.lease(wake, "r"), None);
}
