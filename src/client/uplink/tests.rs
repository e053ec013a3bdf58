use super::*;
use crate::session::{Body, Pace, Wire};

fn uplink() -> Uplink {
    taking(10, Millis(0))
}

fn taking(resources_per_request: usize, ahead: Millis) -> Uplink {
    let (endpoints, pace) = (vec!["parent:1".into()], Pace { ahead, ..Pace::default() });
    Uplink::new(Settings { endpoints, pace, resources_per_request, seed: 1 })
}

fn granted(id: &str, capacity: f64, token: u64) -> Granted {
    let wire = Wire { expiry_time: 1_000, refresh_interval: 8, capacity };
    let (length, refresh) = (Millis(60_000), Millis(8_000));
    Granted { given: Given { id: id.into(), length, refresh, token: Some(token), wire, safe: None }, terms: Vec::new() }
}

fn says(edition: u64) -> Condensed {
    Condensed { edition, ..Condensed::default() }
}

/// What was asked for, and the token of the lease that it confirms.
type Asked = (Arc<str>, Option<u64>);

/// Sends what is due; returns the number of the request and what was asked.
fn asked(uplink: &mut Uplink, now: u64, edition: u64) -> (u64, Vec<Asked>) {
    let now = Millis(now);
    let condensed: Vec<_> = uplink.due(now).into_iter().map(|id| (id, says(edition))).collect();
    let outgoing = uplink.poll(now, condensed).expect("something is due");
    let Body::Ask(asks) = outgoing.body else { panic!("expected asks") };
    (outgoing.number, asks.into_iter().map(|ask| (ask.id, ask.has.and_then(|lease| lease.token))).collect())
}

#[test]
fn what_it_tells_fits_the_lease_it_confirms() {
    let mut uplink = uplink();
    uplink.want(Millis(0), &"r".into());
    let (number, asks) = asked(&mut uplink, 0, 0);
    assert_eq!(asks, [("r".into(), None)]);
    let supplies = uplink.answered(Millis(5), number, vec![granted("r", 50.0, 7)]).expect("it counts");
    let [(id, supply)] = &supplies[..] else { panic!("one resource") };
    assert_eq!((&**id, supply.capacity.get(), supply.until, supply.edition), ("r", 50.0, Millis(60_000), 1));
    let (_, asks) = asked(&mut uplink, 8_000, 1);
    assert_eq!(asks, [("r".into(), Some(7))]);
}

#[test]
fn a_resource_that_has_forgotten_its_supply_is_asked_for_without_a_lease() {
    let mut uplink = uplink();
    uplink.want(Millis(0), &"r".into());
    let (number, _) = asked(&mut uplink, 0, 0);
    uplink.answered(Millis(5), number, vec![granted("r", 50.0, 7)]);
    uplink.want(Millis(300), &"r".into());
    let (_, asks) = asked(&mut uplink, 300, 0);
    assert_eq!(asks, [("r".into(), None)], "a new life must not confirm what it does not know");
}

#[test]
fn who_cannot_say_anything_is_asked_about_later_and_nothing_stale_is_sent() {
    let mut uplink = uplink();
    uplink.want(Millis(0), &"quick".into());
    uplink.want(Millis(0), &"slow".into());
    assert_eq!(uplink.due(Millis(0)).len(), 2);
    let outgoing = uplink.poll(Millis(0), [("quick".into(), says(0))]).expect("one is ready");
    let Body::Ask(asks) = outgoing.body else { panic!("expected asks") };
    assert_eq!(asks.len(), 1);
    uplink.answered(Millis(5), outgoing.number, vec![granted("quick", 50.0, 7)]);
    assert!(uplink.due(Millis(99)).is_empty());
    assert_eq!(uplink.due(Millis(100)), ["slow".into()]);
}

#[test]
fn who_cannot_say_anything_is_not_asked_about_in_company_either() {
    let mut uplink = taking(10, Millis(u64::MAX));
    uplink.want(Millis(0), &"quick".into());
    uplink.want(Millis(0), &"slow".into());
    let outgoing = uplink.poll(Millis(0), [("quick".into(), says(0))]).expect("one is ready");
    let Body::Ask(asks) = outgoing.body else { panic!("expected asks") };
    assert_eq!(asks.len(), 1);
    uplink.hint(Millis(1), "slow");
    uplink.answered(Millis(5), outgoing.number, vec![granted("quick", 50.0, 7)]);
    assert!(uplink.due(Millis(99)).is_empty());
    assert_eq!(uplink.wake(Millis(5)), Some(Millis(100)), "a hint does not make it spin");
    assert_eq!(uplink.due(Millis(100)), ["quick".into(), "slow".into()]);
}

#[test]
fn nobody_is_asked_about_in_the_stead_of_who_could_not_say_anything() {
    let mut uplink = taking(2, Millis(0));
    for id in ["a", "b", "c"] {
        uplink.want(Millis(0), &id.into());
    }
    assert_eq!(uplink.due(Millis(0)), ["a".into(), "b".into()]);
    let outgoing = uplink.poll(Millis(0), [("a".into(), says(0))]).expect("one is ready");
    let Body::Ask(asks) = outgoing.body else { panic!("expected asks") };
    assert_eq!(asks.iter().map(|ask| &*ask.id).collect::<Vec<_>>(), ["a"], "what c says would be out of date");
}

/// It has not been told of its newest supply, and gives out of the one before: what it says is outstanding does not fit
/// what the newest lease would confirm.
#[test]
fn a_resource_that_lags_behind_confirms_nothing() {
    let mut uplink = uplink();
    uplink.want(Millis(0), &"r".into());
    for (now, edition) in [(0, 0), (8_000, 1)] {
        let (number, _) = asked(&mut uplink, now, edition);
        uplink.answered(Millis(now + 5), number, vec![granted("r", 50.0, 7 + edition)]).expect("it counts");
    }
    assert_eq!(asked(&mut uplink, 16_000, 1).1, [("r".into(), None)], "it should say 2");
}

#[test]
fn what_has_ended_by_the_time_it_arrives_is_not_lent() {
    let mut uplink = uplink();
    uplink.want(Millis(0), &"r".into());
    let (number, _) = asked(&mut uplink, 0, 0);
    let mut short = granted("r", 50.0, 7);
    short.given.length = Millis(2_000);
    assert_eq!(uplink.answered(Millis(2_000), number, vec![short]), Some(vec![]));
}

#[test]
fn only_what_is_due_is_asked_for() {
    let mut uplink = uplink();
    uplink.want(Millis(0), &"one".into());
    let (number, _) = asked(&mut uplink, 0, 0);
    uplink.answered(Millis(5), number, vec![granted("one", 50.0, 7)]);
    uplink.want(Millis(500), &"other".into());
    let (_, asks) = asked(&mut uplink, 500, 0);
    assert_eq!(asks, [("other".into(), None)]);
}

#[test]
fn a_late_answer_lends_nothing() {
    let mut uplink = uplink();
    uplink.want(Millis(0), &"r".into());
    let (number, _) = asked(&mut uplink, 0, 0);
    assert!(uplink.due(Millis(4_000)).is_empty(), "given up after its deadline, and a pause follows");
    assert_eq!(uplink.answered(Millis(4_001), number, vec![granted("r", 50.0, 7)]), None);
}

#[test]
fn what_was_used_below_is_told_once_and_told_again_if_the_answer_is_lost() {
    let mut uplink = uplink();
    uplink.want(Millis(0), &"r".into());
    let told = |uplink: &mut Uplink, now, edition, spent| {
        let usage = Some(leaseway_core::UsageBelow { spent, ..Default::default() });
        let due = uplink.due(Millis(now)).into_iter();
        let condensed: Vec<_> = due.map(|id| (id, Condensed { edition, usage, ..Condensed::default() })).collect();
        let outgoing = uplink.poll(Millis(now), condensed).expect("something is due");
        let Body::Ask(asks) = outgoing.body else { panic!("expected asks") };
        (outgoing.number, asks[0].demand.usage.expect("it was said").spent)
    };
    let (number, spent) = told(&mut uplink, 0, 0, 3.0);
    assert_eq!(spent, 3.0);
    uplink.answered(Millis(5), number, vec![granted("r", 50.0, 7)]);
    let (number, spent) = told(&mut uplink, 8_000, 1, 10.0);
    assert_eq!(spent, 7.0, "3 were told");
    uplink.failed(Millis(8_005), number);
    let (number, spent) = told(&mut uplink, 20_000, 1, 12.0);
    assert_eq!(spent, 9.0, "nobody knows whether the 7 were heard; the lease they go with says it");
    uplink.answered(Millis(20_005), number, vec![granted("r", 50.0, 8)]);
    uplink.hint(Millis(21_000), "r");
    let (_, spent) = told(&mut uplink, 21_000, 0, 2.0);
    assert_eq!(spent, 2.0, "a new life of the resource counts anew");
}
