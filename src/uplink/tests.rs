use leaseway_client::session::{Body, GrantedLease, Wire};
use leaseway_core::{allocation::groups::GroupDemand, policy::settings::AlgorithmKind, pool::UsageBelow};

use super::*;

fn uplink() -> UplinkEngine {
    uplink_with(10, Millis(0))
}

fn uplink_with(resources_per_request: usize, ahead: Millis) -> UplinkEngine {
    let settings = UplinkEngine::settings(vec!["parent:1".into()], 1);
    let pace = Pace { ahead, ..settings.pace };
    UplinkEngine::new(Settings { pace, resources_per_request, ..settings })
}

fn granted(id: &str, capacity: f64, token: u64) -> Granted {
    let wire = Wire { expiry_time: 1_000, refresh_interval: 8, capacity };
    let (length, refresh) = (Millis(60_000), Millis(8_000));
    let given = GrantedLease { id: id.into(), length, refresh, token: Some(token), wire, safe: None, budget: None };
    let settings = leaseway_core::policy::settings::Settings::new(AlgorithmKind::FairShare, Amount::ZERO);
    Granted { given, terms: Vec::new(), groups: Vec::new(), settings }
}

fn summary(version: u64) -> DemandSummary {
    DemandSummary { version, ..DemandSummary::default() }
}

fn asks_for(uplink: &mut UplinkEngine, now: u64, id: &str) {
    uplink.run(Millis(now), [UplinkInput::Notice(Notice::AskSoon(id.into()))]);
}

fn hint(uplink: &mut UplinkEngine, now: u64, id: &str) {
    uplink.run(Millis(now), [UplinkInput::Hinted(Some(vec![id.to_owned()]))]);
}

fn answer(uplink: &mut UplinkEngine, now: u64, number: u64, granted: Vec<Granted>) -> Vec<NewSupply> {
    uplink.run(Millis(now), [UplinkInput::RequestEnded { number, reply: ParentReply::Granted(granted) }]).supplies
}

fn due(uplink: &mut UplinkEngine, now: u64) -> Vec<Arc<str>> {
    uplink.run(Millis(now), []).summarize.unwrap_or_default()
}

fn sent(uplink: &mut UplinkEngine, now: u64, summaries: Vec<(Arc<str>, DemandSummary)>) -> Outgoing<Aggregate> {
    uplink.run(Millis(now), [UplinkInput::Summaries(summaries)]).send.expect("something is due")
}

/// A resource in a request, and the token of the lease that the request confirms.
type Asked = (Arc<str>, Option<u64>);

fn asks(outgoing: Outgoing<Aggregate>) -> Vec<Asked> {
    let Body::Ask(asks) = outgoing.body else { panic!("expected asks") };
    asks.into_iter().map(|ask| (ask.id, ask.has.and_then(|lease| lease.token))).collect()
}

/// Sends the due request. Returns its number and its resources.
fn asked(uplink: &mut UplinkEngine, now: u64, version: u64) -> (u64, Vec<Asked>) {
    let summaries = due(uplink, now).into_iter().map(|id| (id, summary(version))).collect();
    let outgoing = sent(uplink, now, summaries);
    (outgoing.number, asks(outgoing))
}

#[test]
fn a_request_confirms_the_lease_that_the_resource_was_supplied_from() {
    let mut uplink = uplink();
    asks_for(&mut uplink, 0, "r");
    let (number, asks) = asked(&mut uplink, 0, 0);
    assert_eq!(asks, [("r".into(), None)]);
    let supplies = answer(&mut uplink, 5, number, vec![granted("r", 50.0, 7)]);
    let [NewSupply { id, supply, .. }] = &supplies[..] else { panic!("one resource") };
    assert_eq!((&**id, supply.capacity.get(), supply.until, supply.version), ("r", 50.0, Millis(60_000), 1));
    let (_, asks) = asked(&mut uplink, 8_000, 1);
    assert_eq!(asks, [("r".into(), Some(7))]);
}

#[test]
fn a_new_incarnation_of_a_resource_confirms_no_lease() {
    let mut uplink = uplink();
    asks_for(&mut uplink, 0, "r");
    let (number, _) = asked(&mut uplink, 0, 0);
    answer(&mut uplink, 5, number, vec![granted("r", 50.0, 7)]);
    asks_for(&mut uplink, 300, "r");
    let (_, asks) = asked(&mut uplink, 300, 0);
    assert_eq!(asks, [("r".into(), None)], "it does not know the lease");
}

#[test]
fn a_resource_that_does_not_answer_is_left_for_a_later_request() {
    let mut uplink = uplink();
    asks_for(&mut uplink, 0, "quick");
    asks_for(&mut uplink, 0, "slow");
    assert_eq!(due(&mut uplink, 0).len(), 2);
    let outgoing = sent(&mut uplink, 0, vec![("quick".into(), summary(0))]);
    let number = outgoing.number;
    assert_eq!(asks(outgoing).len(), 1);
    answer(&mut uplink, 5, number, vec![granted("quick", 50.0, 7)]);
    assert!(due(&mut uplink, 99).is_empty());
    assert_eq!(due(&mut uplink, 100), ["slow".into()]);
}

#[test]
fn resources_with_many_groups_are_divided_among_requests() {
    let mut uplink = uplink();
    let many = |id: &str| {
        let claims = [leaseway_core::types::Claim::of_client(Amount::clamped(1.0), 0)];
        let group =
            |n: usize| GroupDemand { path: n.to_string().into(), claims: claims[..].into(), held: Amount::ZERO };
        (Arc::<str>::from(id), DemandSummary { groups: (0..3_000).map(group).collect(), ..summary(0) })
    };
    asks_for(&mut uplink, 0, "a");
    asks_for(&mut uplink, 0, "b");
    let outgoing = sent(&mut uplink, 0, vec![many("a"), many("b")]);
    let number = outgoing.number;
    assert_eq!(asks(outgoing), [("a".into(), None)]);
    answer(&mut uplink, 5, number, vec![granted("a", 50.0, 7)]);
    assert_eq!(due(&mut uplink, 100), ["b".into()]);
    assert_eq!(asks(sent(&mut uplink, 100, vec![many("b")])), [("b".into(), None)]);
}

#[test]
fn a_postponed_resource_does_not_join_an_earlier_request() {
    let mut uplink = uplink_with(10, Millis(u64::MAX));
    asks_for(&mut uplink, 0, "quick");
    asks_for(&mut uplink, 0, "slow");
    let outgoing = sent(&mut uplink, 0, vec![("quick".into(), summary(0))]);
    let number = outgoing.number;
    assert_eq!(asks(outgoing).len(), 1);
    hint(&mut uplink, 1, "slow");
    answer(&mut uplink, 5, number, vec![granted("quick", 50.0, 7)]);
    assert!(due(&mut uplink, 99).is_empty());
    assert_eq!(uplink.run(Millis(5), []).wake, Some(Millis(100)), "a hint does not make it spin");
    assert_eq!(due(&mut uplink, 100), ["quick".into(), "slow".into()]);
}

#[test]
fn no_resource_without_a_summary_takes_the_place_of_a_postponed_one() {
    let mut uplink = uplink_with(2, Millis(0));
    for id in ["a", "b", "c"] {
        asks_for(&mut uplink, 0, id);
    }
    assert_eq!(due(&mut uplink, 0), ["a".into(), "b".into()]);
    let outgoing = sent(&mut uplink, 0, vec![("a".into(), summary(0))]);
    assert_eq!(asks(outgoing), [("a".into(), None)], "c was not summarized");
}

/// The summary is under the supply before the newest one, so its outstanding capacity does not match the newest lease.
#[test]
fn a_summary_under_an_older_supply_confirms_no_lease() {
    let mut uplink = uplink();
    asks_for(&mut uplink, 0, "r");
    for (now, version) in [(0, 0), (8_000, 1)] {
        let (number, _) = asked(&mut uplink, now, version);
        answer(&mut uplink, now + 5, number, vec![granted("r", 50.0, 7 + version)]);
    }
    assert_eq!(asked(&mut uplink, 16_000, 1).1, [("r".into(), None)], "version 2 is the newest");
}

#[test]
fn a_lease_that_arrives_after_its_end_supplies_nothing() {
    let mut uplink = uplink();
    asks_for(&mut uplink, 0, "r");
    let (number, _) = asked(&mut uplink, 0, 0);
    let mut short = granted("r", 50.0, 7);
    short.given.length = Millis(2_000);
    assert_eq!(answer(&mut uplink, 2_000, number, vec![short]), vec![]);
}

#[test]
fn a_request_has_only_due_resources() {
    let mut uplink = uplink();
    asks_for(&mut uplink, 0, "one");
    let (number, _) = asked(&mut uplink, 0, 0);
    answer(&mut uplink, 5, number, vec![granted("one", 50.0, 7)]);
    asks_for(&mut uplink, 500, "other");
    let (_, asks) = asked(&mut uplink, 500, 0);
    assert_eq!(asks, [("other".into(), None)]);
}

#[test]
fn a_late_answer_supplies_nothing() {
    let mut uplink = uplink();
    asks_for(&mut uplink, 0, "r");
    let (number, _) = asked(&mut uplink, 0, 0);
    assert!(due(&mut uplink, 4_000).is_empty(), "the request has timed out, and the back-off runs");
    assert_eq!(answer(&mut uplink, 4_001, number, vec![granted("r", 50.0, 7)]), vec![]);
}

#[test]
fn usage_is_reported_until_an_answer_acknowledges_it() {
    let mut uplink = uplink();
    asks_for(&mut uplink, 0, "r");
    let reported = |uplink: &mut UplinkEngine, now, version, spent| {
        let usage = Some(UsageBelow { spent, ..UsageBelow::default() });
        let due = due(uplink, now).into_iter();
        let summary = due.map(|id| (id, DemandSummary { version, usage, ..DemandSummary::default() })).collect();
        let outgoing = sent(uplink, now, summary);
        let Body::Ask(asks) = outgoing.body else { panic!("expected asks") };
        (outgoing.number, asks[0].demand.usage.expect("a pool reports usage").request_cost.get())
    };
    let (number, spent) = reported(&mut uplink, 0, 0, 3.0);
    assert_eq!(spent, 3.0);
    answer(&mut uplink, 5, number, vec![granted("r", 50.0, 7)]);
    let (number, spent) = reported(&mut uplink, 8_000, 1, 10.0);
    assert_eq!(spent, 7.0, "3 were acknowledged");
    uplink.run(Millis(8_005), [UplinkInput::RequestEnded { number, reply: ParentReply::Failed }]);
    let (number, spent) = reported(&mut uplink, 20_000, 1, 12.0);
    assert_eq!(spent, 9.0, "the 7 were not acknowledged");
    answer(&mut uplink, 20_005, number, vec![granted("r", 50.0, 8)]);
    hint(&mut uplink, 21_000, "r");
    let (_, spent) = reported(&mut uplink, 21_000, 0, 2.0);
    assert_eq!(spent, 2.0, "a new incarnation of the resource counts from zero");
}

#[test]
fn the_lease_of_a_retired_resource_is_released_by_its_token() {
    let mut uplink = uplink();
    asks_for(&mut uplink, 0, "r");
    let (number, _) = asked(&mut uplink, 0, 0);
    answer(&mut uplink, 5, number, vec![granted("r", 50.0, 7)]);
    let effects = uplink.run(Millis(10), [UplinkInput::Notice(Notice::Retired("r".into()))]);
    assert_eq!(effects.summarize, Some(vec![]), "a release needs no summary");
    let Body::Release(releases) = sent(&mut uplink, 10, vec![]).body else { panic!("expected a release") };
    assert_eq!((&*releases[0].id, releases[0].token), ("r", Some(7)));
}

#[test]
fn a_supply_has_the_settings_of_the_parent_with_a_shorter_refresh_interval() {
    let mut uplink = uplink();
    asks_for(&mut uplink, 0, "r");
    let (number, _) = asked(&mut uplink, 0, 0);
    let supplies = answer(&mut uplink, 5, number, vec![granted("r", 50.0, 7)]);
    let parents = leaseway_core::policy::settings::Settings::new(AlgorithmKind::FairShare, Amount::ZERO);
    assert_eq!(supplies[0].settings, parents.of_child());
    assert!(supplies[0].settings.refresh < parents.refresh);
}
