use leaseway_client::session::{Body, Given, Wire};
use leaseway_core::{policy::settings::AlgorithmKind, pool::UsageBelow};

use super::*;

fn uplink() -> UplinkEngine {
    taking(10, Millis(0))
}

fn taking(resources_per_request: usize, ahead: Millis) -> UplinkEngine {
    let settings = UplinkEngine::settings(vec!["parent:1".into()], 1);
    let pace = Pace { ahead, ..settings.pace };
    UplinkEngine::new(Settings { pace, resources_per_request, ..settings })
}

fn granted(id: &str, capacity: f64, token: u64) -> Granted {
    let wire = Wire { expiry_time: 1_000, refresh_interval: 8, capacity };
    let (length, refresh) = (Millis(60_000), Millis(8_000));
    let given = Given { id: id.into(), length, refresh, token: Some(token), wire, safe: None };
    let settings = leaseway_core::policy::settings::Settings::new(AlgorithmKind::FairShare, Amount::ZERO);
    Granted { given, terms: Vec::new(), settings }
}

fn says(version: u64) -> DemandSummary {
    DemandSummary { version, ..DemandSummary::default() }
}

fn asks_for(uplink: &mut UplinkEngine, now: u64, id: &str) {
    uplink.run(Millis(now), [UplinkInput::Notice(Notice::Asks(id.into()))]);
}

fn hint(uplink: &mut UplinkEngine, now: u64, id: &str) {
    uplink.run(Millis(now), [UplinkInput::Hinted(Some(vec![id.to_owned()]))]);
}

fn answer(uplink: &mut UplinkEngine, now: u64, number: u64, granted: Vec<Granted>) -> Vec<Lent> {
    uplink.run(Millis(now), [UplinkInput::Ended { number, reply: ParentReply::Granted(granted) }]).lent
}

fn due(uplink: &mut UplinkEngine, now: u64) -> Vec<Arc<str>> {
    uplink.run(Millis(now), []).summarize.unwrap_or_default()
}

fn sent(uplink: &mut UplinkEngine, now: u64, says: Vec<(Arc<str>, DemandSummary)>) -> Outgoing<Aggregate> {
    uplink.run(Millis(now), [UplinkInput::Summaries(says)]).send.expect("something is due")
}

/// What was asked for, and the token of the lease that it confirms.
type Asked = (Arc<str>, Option<u64>);

fn asks(outgoing: Outgoing<Aggregate>) -> Vec<Asked> {
    let Body::Ask(asks) = outgoing.body else { panic!("expected asks") };
    asks.into_iter().map(|ask| (ask.id, ask.has.and_then(|lease| lease.token))).collect()
}

/// Sends what is due; returns the number of the request and what was asked.
fn asked(uplink: &mut UplinkEngine, now: u64, version: u64) -> (u64, Vec<Asked>) {
    let summary = due(uplink, now).into_iter().map(|id| (id, says(version))).collect();
    let outgoing = sent(uplink, now, summary);
    (outgoing.number, asks(outgoing))
}

#[test]
fn what_it_tells_fits_the_lease_it_confirms() {
    let mut uplink = uplink();
    asks_for(&mut uplink, 0, "r");
    let (number, asks) = asked(&mut uplink, 0, 0);
    assert_eq!(asks, [("r".into(), None)]);
    let supplies = answer(&mut uplink, 5, number, vec![granted("r", 50.0, 7)]);
    let [Lent { id, supply, .. }] = &supplies[..] else { panic!("one resource") };
    assert_eq!((&**id, supply.capacity.get(), supply.until, supply.version), ("r", 50.0, Millis(60_000), 1));
    let (_, asks) = asked(&mut uplink, 8_000, 1);
    assert_eq!(asks, [("r".into(), Some(7))]);
}

#[test]
fn a_resource_that_has_forgotten_its_supply_is_asked_for_without_a_lease() {
    let mut uplink = uplink();
    asks_for(&mut uplink, 0, "r");
    let (number, _) = asked(&mut uplink, 0, 0);
    answer(&mut uplink, 5, number, vec![granted("r", 50.0, 7)]);
    asks_for(&mut uplink, 300, "r");
    let (_, asks) = asked(&mut uplink, 300, 0);
    assert_eq!(asks, [("r".into(), None)], "a new incarnation must not confirm what it does not know");
}

#[test]
fn a_silent_resource_is_asked_about_later_and_nothing_stale_is_sent() {
    let mut uplink = uplink();
    asks_for(&mut uplink, 0, "quick");
    asks_for(&mut uplink, 0, "slow");
    assert_eq!(due(&mut uplink, 0).len(), 2);
    let outgoing = sent(&mut uplink, 0, vec![("quick".into(), says(0))]);
    let number = outgoing.number;
    assert_eq!(asks(outgoing).len(), 1);
    answer(&mut uplink, 5, number, vec![granted("quick", 50.0, 7)]);
    assert!(due(&mut uplink, 99).is_empty());
    assert_eq!(due(&mut uplink, 100), ["slow".into()]);
}

#[test]
fn a_silent_resource_is_not_asked_about_together_with_others_either() {
    let mut uplink = taking(10, Millis(u64::MAX));
    asks_for(&mut uplink, 0, "quick");
    asks_for(&mut uplink, 0, "slow");
    let outgoing = sent(&mut uplink, 0, vec![("quick".into(), says(0))]);
    let number = outgoing.number;
    assert_eq!(asks(outgoing).len(), 1);
    hint(&mut uplink, 1, "slow");
    answer(&mut uplink, 5, number, vec![granted("quick", 50.0, 7)]);
    assert!(due(&mut uplink, 99).is_empty());
    assert_eq!(uplink.run(Millis(5), []).wake, Some(Millis(100)), "a hint does not make it spin");
    assert_eq!(due(&mut uplink, 100), ["quick".into(), "slow".into()]);
}

#[test]
fn no_other_resource_is_asked_about_in_the_stead_of_a_silent_one() {
    let mut uplink = taking(2, Millis(0));
    for id in ["a", "b", "c"] {
        asks_for(&mut uplink, 0, id);
    }
    assert_eq!(due(&mut uplink, 0), ["a".into(), "b".into()]);
    let outgoing = sent(&mut uplink, 0, vec![("a".into(), says(0))]);
    assert_eq!(asks(outgoing), [("a".into(), None)], "what c says would be out of date");
}

/// It has not been told of its newest supply, and gives out of the one before: what it says is outstanding does not fit
/// what the newest lease would confirm.
#[test]
fn a_resource_that_lags_behind_confirms_nothing() {
    let mut uplink = uplink();
    asks_for(&mut uplink, 0, "r");
    for (now, version) in [(0, 0), (8_000, 1)] {
        let (number, _) = asked(&mut uplink, now, version);
        answer(&mut uplink, now + 5, number, vec![granted("r", 50.0, 7 + version)]);
    }
    assert_eq!(asked(&mut uplink, 16_000, 1).1, [("r".into(), None)], "it should say 2");
}

#[test]
fn what_has_ended_by_the_time_it_arrives_is_not_lent() {
    let mut uplink = uplink();
    asks_for(&mut uplink, 0, "r");
    let (number, _) = asked(&mut uplink, 0, 0);
    let mut short = granted("r", 50.0, 7);
    short.given.length = Millis(2_000);
    assert_eq!(answer(&mut uplink, 2_000, number, vec![short]), vec![]);
}

#[test]
fn only_what_is_due_is_asked_for() {
    let mut uplink = uplink();
    asks_for(&mut uplink, 0, "one");
    let (number, _) = asked(&mut uplink, 0, 0);
    answer(&mut uplink, 5, number, vec![granted("one", 50.0, 7)]);
    asks_for(&mut uplink, 500, "other");
    let (_, asks) = asked(&mut uplink, 500, 0);
    assert_eq!(asks, [("other".into(), None)]);
}

#[test]
fn a_late_answer_lends_nothing() {
    let mut uplink = uplink();
    asks_for(&mut uplink, 0, "r");
    let (number, _) = asked(&mut uplink, 0, 0);
    assert!(due(&mut uplink, 4_000).is_empty(), "given up after its deadline, and a pause follows");
    assert_eq!(answer(&mut uplink, 4_001, number, vec![granted("r", 50.0, 7)]), vec![]);
}

#[test]
fn what_was_used_below_is_told_once_and_told_again_if_the_answer_is_lost() {
    let mut uplink = uplink();
    asks_for(&mut uplink, 0, "r");
    let told = |uplink: &mut UplinkEngine, now, version, spent| {
        let usage = Some(UsageBelow { spent, ..UsageBelow::default() });
        let due = due(uplink, now).into_iter();
        let summary = due.map(|id| (id, DemandSummary { version, usage, ..DemandSummary::default() })).collect();
        let outgoing = sent(uplink, now, summary);
        let Body::Ask(asks) = outgoing.body else { panic!("expected asks") };
        (outgoing.number, asks[0].demand.usage.expect("it was said").request_cost.get())
    };
    let (number, spent) = told(&mut uplink, 0, 0, 3.0);
    assert_eq!(spent, 3.0);
    answer(&mut uplink, 5, number, vec![granted("r", 50.0, 7)]);
    let (number, spent) = told(&mut uplink, 8_000, 1, 10.0);
    assert_eq!(spent, 7.0, "3 were told");
    uplink.run(Millis(8_005), [UplinkInput::Ended { number, reply: ParentReply::Failed }]);
    let (number, spent) = told(&mut uplink, 20_000, 1, 12.0);
    assert_eq!(spent, 9.0, "whether the 7 were heard is not known; the lease they go with says it");
    answer(&mut uplink, 20_005, number, vec![granted("r", 50.0, 8)]);
    hint(&mut uplink, 21_000, "r");
    let (_, spent) = told(&mut uplink, 21_000, 0, 2.0);
    assert_eq!(spent, 2.0, "a new incarnation of the resource counts anew");
}

#[test]
fn what_a_resource_gives_up_is_given_back_by_its_name() {
    let mut uplink = uplink();
    asks_for(&mut uplink, 0, "r");
    let (number, _) = asked(&mut uplink, 0, 0);
    answer(&mut uplink, 5, number, vec![granted("r", 50.0, 7)]);
    let effects = uplink.run(Millis(10), [UplinkInput::Notice(Notice::Retired("r".into()))]);
    assert_eq!(effects.summarize, Some(vec![]), "there is something to send, and nothing to summarize for it");
    let Body::Release(releases) = sent(&mut uplink, 10, vec![]).body else { panic!("expected a release") };
    assert_eq!((&*releases[0].id, releases[0].token), ("r", Some(7)));
}

#[test]
fn a_resource_is_run_as_at_the_parent_but_refreshed_more_often() {
    let mut uplink = uplink();
    asks_for(&mut uplink, 0, "r");
    let (number, _) = asked(&mut uplink, 0, 0);
    let lent = answer(&mut uplink, 5, number, vec![granted("r", 50.0, 7)]);
    let parents = leaseway_core::policy::settings::Settings::new(AlgorithmKind::FairShare, Amount::ZERO);
    assert_eq!(lent[0].settings, parents.clone().of_child());
    assert!(lent[0].settings.refresh < parents.refresh);
}
