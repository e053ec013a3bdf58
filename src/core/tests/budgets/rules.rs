//! One test per rule of budgets.

use std::sync::Arc;

use super::{Spender, settings};
use crate::{
    lease::{holder::ShownLease, promises::Inherited},
    policy::{
        overrides::{Load, Override, OverrideTarget, OverrideValue, ResourceOverrides},
        period::{PeriodLength, Span},
        settings::{AlgorithmKind, Settings, SettingsError},
    },
    resource::{
        Answer, Ask, Lease, NodeInstance, Notes, Request, Resource, ResourceOptions, RoundScratch,
        budget::{
            holder_of_record,
            usage::{UsageRow, UsageUpdate},
        },
        supply::{Source, Supply},
    },
    tests::{
        harness::{EPOCH, ask, now_at, one, options},
        peers::{Peers, next_epoch},
    },
    types::{Amount, HolderKind, Millis, Now, Sum, Token},
};

struct Desk {
    resource: Resource,
    now: Millis,
}

impl Desk {
    fn new(amount: f64, period: PeriodLength) -> Desk {
        Desk { resource: Resource::new(options(settings(amount, period))), now: Millis(10_000) }
    }

    fn at(&self) -> Now {
        now_at(self.now)
    }

    fn serve(&mut self, spender: &mut Spender) -> Lease {
        let request = Request::Ask(spender.ask());
        let lease = match one(&mut self.resource, now_at(self.now), request) {
            Answer::Granted(lease) => lease,
            other => panic!("no lease: {other:?}"),
        };
        spender.take(&lease, self.now, 99);
        lease
    }

    fn held(&self) -> f64 {
        self.resource.sums().held.get()
    }
}

fn spender(id: &str, incarnation: u64, wants: f64) -> Spender {
    Spender { wants, ..Spender::new(id, incarnation) }
}

/// The table of the module's documentation.
#[test]
fn an_allowance_grows_by_slices_and_a_smaller_one_returns_the_rest() {
    let mut desk = Desk::new(100.0, PeriodLength::Unending);
    let mut options_of = desk.resource.settings().clone();
    options_of.budget.slice_share = 1.0;
    desk.resource.configure(options_of);
    let mut a = spender("a", 1, 20.0);
    desk.serve(&mut a);
    assert_eq!((a.allowance, desk.held()), (20.0, 20.0));
    a.spend(15.0, desk.now);
    desk.serve(&mut a);
    assert_eq!((a.allowance, desk.held()), (35.0, 35.0));
    (a.wants, _) = (0.0, a.spend(3.0, desk.now));
    desk.serve(&mut a);
    assert_eq!((a.allowance, desk.held()), (18.0, 35.0), "not confirmed yet");
    desk.serve(&mut a);
    assert_eq!((a.allowance, desk.held()), (18.0, 18.0));
    let report = desk.resource.budget_report(desk.now).expect("a budget");
    assert_eq!((report.spent.get(), report.reserved.get(), report.left.get()), (18.0, 0.0, 82.0));
}

#[test]
fn what_was_spent_beyond_a_smaller_allowance_counts() {
    let mut desk = Desk::new(100.0, PeriodLength::Unending);
    let mut options_of = desk.resource.settings().clone();
    options_of.budget.slice_share = 1.0;
    desk.resource.configure(options_of);
    let mut a = spender("a", 1, 50.0);
    desk.serve(&mut a);
    a.wants = 0.0;
    let request = Request::Ask(a.ask());
    // It spends while the answer is under way.
    assert_eq!(a.spend(30.0, desk.now), 30.0);
    let Answer::Granted(lease) = one(&mut desk.resource, now_at(desk.now), request) else { panic!("no lease") };
    a.take(&lease, desk.now, 99);
    assert_eq!((a.allowance, a.spend(1.0, desk.now)), (0.0, 0.0));
    desk.serve(&mut a);
    assert_eq!((desk.held(), a.allowance), (30.0, 30.0));
}

#[test]
fn what_is_taken_back_is_free_once_a_newer_lease_is_confirmed() {
    let mut desk = Desk::new(1000.0, PeriodLength::Unending);
    let mut a = spender("a", 1, 50.0);
    desk.serve(&mut a);
    a.spend(40.0, desk.now);
    let delayed = Request::Ask(a.ask());
    desk.serve(&mut a);
    a.wants = 0.0;
    desk.serve(&mut a);
    // It used 10 of the 40.
    a.spent = 10.0;
    desk.serve(&mut a);
    assert_eq!((a.allowance, desk.held()), (10.0, 40.0), "not confirmed yet");
    assert_eq!(one(&mut desk.resource, now_at(desk.now), delayed), Answer::Stale);
    desk.serve(&mut a);
    assert_eq!((a.allowance, desk.held()), (10.0, 10.0));
    // The order of two reports with the same lease is unknown: the larger one counts.
    let mut earlier = a.clone();
    desk.serve(&mut a);
    earlier.spent = 8.0;
    desk.serve(&mut earlier);
    assert_eq!((earlier.allowance, desk.held()), (10.0, 10.0));
}

#[test]
fn a_slice_is_at_most_a_share_of_what_is_left_but_covers_a_waiting_call() {
    let mut desk = Desk::new(1000.0, PeriodLength::Day);
    let mut a = spender("a", 1, 900.0);
    assert_eq!(desk.serve(&mut a).capacity.get(), 50.0);
    let mut b = Spender { need: 400.5, ..spender("b", 2, 900.0) };
    assert_eq!(desk.serve(&mut b).capacity.get(), 400.5);
}

#[test]
fn each_threshold_is_reported_once_in_a_period_and_again_if_the_amount_changes() {
    let mut desk = Desk::new(1000.0, PeriodLength::Seconds(100));
    let reported = |desk: &mut Desk| {
        desk.resource.tick(desk.now);
        let events = desk.resource.take_budget_events();
        events.iter().map(|event| (event.percent, event.spent.get(), event.amount.get())).collect::<Vec<_>>()
    };
    let mut a = Spender { need: 900.0, ..spender("a", 1, 900.0) };
    desk.serve(&mut a);
    assert_eq!(reported(&mut desk), [], "reserved is not spent");
    a.spend(850.0, desk.now);
    desk.serve(&mut a);
    assert_eq!(reported(&mut desk), [(50, 850.0, 1000.0), (80, 850.0, 1000.0)]);
    desk.serve(&mut a);
    assert_eq!(reported(&mut desk), []);
    let mut lowered = desk.resource.settings().clone();
    lowered.capacity = Amount::clamped(1700.0);
    desk.resource.configure(lowered.clone());
    assert_eq!(reported(&mut desk), []);
    lowered.capacity = Amount::clamped(900.0);
    desk.resource.configure(lowered);
    assert_eq!(reported(&mut desk), [(80, 850.0, 900.0)]);
    a.spend(50.0, desk.now);
    desk.serve(&mut a);
    assert_eq!(reported(&mut desk), [(100, 900.0, 900.0)]);
    desk.now = Millis(110_000);
    let mut b = spender("b", 2, 10.0);
    desk.serve(&mut b);
    assert_eq!(reported(&mut desk), [], "another period");
}

#[test]
fn the_forecast_goes_on_at_the_mean_rate_of_the_period() {
    let mut desk = Desk::new(1000.0, PeriodLength::Seconds(100));
    let mut a = Spender { need: 900.0, ..spender("a", 1, 900.0) };
    desk.serve(&mut a);
    let period = desk.resource.budget_report(desk.now).expect("a budget").period;
    let elapsed = desk.at().unix - period.start;
    // Half of the amount in this part of the period.
    a.spend(500.0, desk.now);
    desk.serve(&mut a);
    let forecast = desk.resource.budget_report(desk.now).expect("a budget").forecast.expect("an end");
    let part = elapsed as f64 / 100.0;
    assert!((forecast.spent - 500.0 / part).abs() < 1.0, "{forecast:?} after {elapsed} s");
    let runs_out = (part < 0.5).then_some(period.start + 2 * elapsed);
    assert_eq!(forecast.runs_out, runs_out, "after {elapsed} s");
}

#[test]
fn a_silent_client_is_consumed_and_told_to_start_over() {
    let mut desk = Desk::new(1000.0, PeriodLength::Day);
    let mut a = spender("a", 1, 900.0);
    desk.serve(&mut a);
    a.spend(10.0, desk.now);
    for _ in 0..5 {
        desk.now = desk.now.plus(Millis(10_000));
        desk.resource.tick(desk.now);
    }
    assert_eq!((desk.resource.holders(), desk.held()), (0, 50.0), "its slice is spent");
    let lease = desk.serve(&mut a);
    assert!(lease.budget.expect("a budget").starts_over && lease.capacity == Amount::ZERO);
    assert_eq!((a.incarnation, a.spent), (99, 0.0));
    desk.serve(&mut a);
    assert!(a.allowance > 0.0 && desk.held() == 50.0 + a.allowance);
}

#[test]
fn a_release_consumes_what_was_spent_once() {
    let mut desk = Desk::new(1000.0, PeriodLength::Day);
    let mut a = spender("a", 1, 900.0);
    desk.serve(&mut a);
    a.spend(10.0, desk.now);
    for _ in 0..2 {
        one(&mut desk.resource, now_at(desk.now), Request::Release(a.release()));
        assert_eq!(desk.held(), 10.0, "a repeat changes nothing");
    }
    assert_eq!(desk.resource.budget_report(desk.now).expect("a budget").gone.get(), 10.0);
}

#[test]
fn incarnations_of_one_client_have_records_of_their_own() {
    let mut desk = Desk::new(1000.0, PeriodLength::Day);
    let (mut first, mut second) = (spender("a", 1, 900.0), spender("a", 2, 900.0));
    desk.serve(&mut first);
    desk.serve(&mut second);
    assert_eq!(desk.held(), first.allowance + second.allowance);
}

#[test]
fn a_new_period_begins_with_the_whole_amount_after_a_pause() {
    let mut desk = Desk::new(1000.0, PeriodLength::Seconds(100));
    let mut a = spender("a", 1, 900.0);
    desk.now = Millis(95_000);
    assert_eq!(desk.serve(&mut a).length, Millis(4_000), "a lease ends with its period");
    a.spend(50.0, desk.now);
    for (at, lease) in [(99_500, false), (100_500, false), (101_900, false), (102_000, true)] {
        desk.now = Millis(at);
        let answer = one(&mut desk.resource, now_at(desk.now), Request::Ask(a.ask()));
        assert_eq!(answer.lease().is_some(), lease, "at {at} ms: {answer:?}");
        if let Answer::Granted(lease) = answer {
            a.take(&lease, desk.now, 99);
        }
    }
    assert_eq!((a.spent, a.allowance, desk.held()), (0.0, 50.0, 50.0));
}

#[test]
fn requests_without_a_report_get_nothing() {
    let mut desk = Desk::new(1000.0, PeriodLength::Day);
    let answer = one(&mut desk.resource, now_at(desk.now), Request::Ask(ask("doorman", 10.0, None)));
    assert_eq!(answer, Answer::NeedsReport);
    assert_eq!((desk.resource.holders(), desk.held()), (0, 0.0));
}

#[test]
fn a_budget_that_becomes_another_kind_forgets_its_allowances() {
    let mut desk = Desk::new(1000.0, PeriodLength::Day);
    desk.serve(&mut spender("a", 1, 900.0));
    desk.resource.configure(Settings::new(AlgorithmKind::FairShare, Amount::clamped(10.0)));
    assert_eq!(desk.resource.sums().held, Sum::ZERO);
    let mut answers = Vec::new();
    let mut requests = vec![Request::Ask(ask("b", 10.0, None))];
    let now = desk.at();
    desk.resource.round(now, &mut requests, &mut answers, &mut RoundScratch::default());
    assert_eq!(answers[0].lease().map(|lease| lease.capacity.get()), Some(10.0));
}

/// A new master of a child node, before the first supply of its parent. It does not know yet that it is a budget.
fn child(inherited: Option<Inherited>) -> Desk {
    let settings = Settings::new(AlgorithmKind::FairShare, Amount::ZERO);
    let resource = Resource::new(ResourceOptions { source: Source::Parent, inherited, ..options(settings) });
    Desk { resource, now: Millis(10_000) }
}

fn supply(desk: &mut Desk, amount: f64) {
    let start = desk.at().unix - 10;
    let period = Some(Span { start, end: start + 100 });
    let until = desk.now.plus(Millis(30_000));
    let supply = Supply { capacity: Amount::clamped(amount), until, version: 1, period, ..Supply::default() };
    desk.resource.configure(settings(amount, PeriodLength::Seconds(100)));
    let now = desk.at();
    desk.resource.enter_supplied_period(supply.period, now);
    desk.resource.supply(desk.now, supply);
}

/// Found by simulation: two incarnations of a client shared a record, which counted one amount twice.
#[test]
fn claims_from_before_the_first_supply_go_back() {
    let inherited = Inherited { total: Amount::clamped(60.0), until: Millis(120_000), ..Inherited::default() };
    let mut desk = child(Some(inherited));
    let start = desk.at().unix - 10;
    let expiry_time = desk.at().unix + 5;
    let claim = |desk: &mut Desk, token: u64, incarnation: u64, amount: f64| {
        let has = ShownLease { token: Token::new(token), capacity: Amount::clamped(amount), expiry_time };
        let mut spender = Spender { period: start, has: Some(has), ..spender("a", incarnation, 9.0) };
        (spender.allowance, spender.spent) = (amount, amount);
        let answer = one(&mut desk.resource, now_at(desk.now), Request::Ask(spender.ask()));
        (answer, desk.held())
    };
    assert_eq!(claim(&mut desk, 3, 1, 50.0), (Answer::NotYet, 60.0));
    assert_eq!(claim(&mut desk, 4, 2, 10.0), (Answer::NotYet, 60.0));
    supply(&mut desk, 100.0);
    let gone = desk.resource.budget_report(desk.now).expect("a budget").gone.get();
    assert_eq!((desk.held(), gone), (60.0, 60.0), "no incarnation has a record yet");
    let (answer, _) = claim(&mut desk, 3, 1, 50.0);
    assert!(!answer.lease().expect("a lease").budget.expect("a budget").starts_over);
    claim(&mut desk, 4, 2, 10.0);
    let report = desk.resource.budget_report(desk.now).expect("a budget");
    assert_eq!((report.gone, report.spent.get()), (Amount::ZERO, 60.0));
}

#[test]
fn a_child_node_without_promises_refuses_budgets() {
    let mut desk = child(None);
    supply(&mut desk, 100.0);
    let answer = one(&mut desk.resource, now_at(desk.now), Request::Ask(spender("a", 1, 9.0).ask()));
    assert_eq!((answer, desk.held()), (Answer::NeedsStorage, 0.0));
}

fn node_ask(desk: &Desk, instance: Option<NodeInstance>, has: Option<ShownLease>, outstanding: f64) -> Ask {
    let period = desk.resource.budget_report(desk.now).map_or(0, |report| report.period.start);
    let spender = Spender { spent: outstanding, period, ..spender("node", 0, 9.0) };
    let outstanding = Some(Amount::clamped(outstanding));
    Ask { kind: HolderKind::Node, instance, has, outstanding, ..spender.ask() }
}

#[test]
fn a_node_without_an_instance_gets_no_budget() {
    let mut desk = Desk::new(1000.0, PeriodLength::Day);
    let request = node_ask(&desk, None, None, 0.0);
    assert_eq!(one(&mut desk.resource, now_at(desk.now), Request::Ask(request)), Answer::NeedsReport);
}

#[test]
fn what_a_node_spent_counts_until_the_period_ends() {
    let mut desk = Desk::new(1000.0, PeriodLength::Day);
    let instance = NodeInstance::new(1, 1);
    let ask_as = |desk: &mut Desk, has, outstanding| {
        let request = node_ask(desk, instance, has, outstanding);
        let answer = one(&mut desk.resource, now_at(desk.now), Request::Ask(request));
        let lease = answer.lease().expect("a lease");
        ShownLease { token: Some(lease.token), capacity: lease.capacity, expiry_time: lease.expiry_time }
    };
    let first = ask_as(&mut desk, None, 0.0);
    assert_eq!((first.capacity.get(), desk.held()), (9.0, 9.0));
    desk.now = desk.now.plus(Millis(60_000));
    desk.resource.tick(desk.now);
    assert_eq!(desk.held(), 9.0, "its lease has ended, but may have been spent");
    let next = ask_as(&mut desk, Some(first), 7.0);
    assert_eq!((next.capacity.get(), desk.held()), (16.0, 16.0));
    ask_as(&mut desk, Some(first), 1.0);
    assert_eq!(desk.held(), 16.0, "a report under an older lease frees nothing");
}

/// A budget of 1000 per 100 s that carries over up to 300.
fn carrying() -> Settings {
    let mut settings = settings(1000.0, PeriodLength::Seconds(100));
    settings.budget.carry_over = Amount::clamped(300.0);
    settings
}

/// Makes `a` spend so much of a new period.
fn spend(desk: &mut Desk, amount: f64) {
    let mut a = Spender { need: amount, ..spender("a", desk.now.0, amount) };
    desk.serve(&mut a);
    a.spend(amount, desk.now);
    a.wants = 0.0;
    desk.serve(&mut a);
}

/// The amount of the period at a moment, and the part that was carried over.
fn amounts(desk: &mut Desk, now: Millis) -> (f64, f64) {
    desk.now = now;
    desk.resource.enter_period(desk.at());
    desk.resource.tick(now);
    let report = desk.resource.budget_report(now).expect("a budget");
    (desk.resource.settings().capacity.get(), report.carried.get())
}

#[test]
fn what_is_left_is_carried_over_up_to_the_maximum() {
    let mut desk = Desk { resource: Resource::new(options(carrying())), now: Millis(10_000) };
    spend(&mut desk, 400.0);
    assert_eq!(amounts(&mut desk, Millis(110_000)), (1300.0, 300.0), "600 were left");
    spend(&mut desk, 1250.0);
    assert_eq!(amounts(&mut desk, Millis(210_000)), (1050.0, 50.0));
    let mut lowered = carrying();
    lowered.budget.carry_over = Amount::clamped(20.0);
    desk.resource.configure(lowered);
    assert_eq!(amounts(&mut desk, Millis(220_000)), (1020.0, 20.0));
    desk.resource.configure(settings(1000.0, PeriodLength::Seconds(100)));
    assert_eq!(amounts(&mut desk, Millis(230_000)), (1000.0, 0.0));
    let mut unending = carrying();
    unending.budget.periods.length = PeriodLength::Unending;
    assert_eq!(unending.check(), Err(SettingsError::CarryOverWithoutEnd));
}

#[test]
fn an_adjusted_amount_carries_over_what_is_left_of_it() {
    let mut desk = Desk { resource: Resource::new(options(carrying())), now: Millis(10_000) };
    spend(&mut desk, 400.0);
    let adjust = |desk: &mut Desk, to: Option<f64>| {
        let load = to.map(|amount| Load::Capacity(Amount::clamped(amount)));
        let capacity = load.map(|load| {
            let target = OverrideTarget { pattern: "*".into(), group: None };
            let value = OverrideValue::Capacity { load, above: true };
            Arc::new(Override { target, value, ends: Millis(100_000), by: "ada".into(), why: "a test".into() })
        });
        desk.resource.set_overrides(desk.now, ResourceOverrides { capacity, ..ResourceOverrides::default() });
    };
    adjust(&mut desk, Some(450.0));
    assert_eq!(amounts(&mut desk, Millis(98_000)), (450.0, 0.0));
    // The override ends a moment before the period.
    desk.now = Millis(99_500);
    adjust(&mut desk, None);
    assert_eq!(amounts(&mut desk, Millis(99_600)).0, 1000.0);
    assert_eq!(amounts(&mut desk, Millis(110_000)), (1050.0, 50.0));
}

#[test]
fn a_new_master_knows_what_was_carried_over() {
    let mut peers = Peers::new();
    let mut desk = Desk { resource: Resource::new(elected(&mut peers, Millis(10_000))), now: Millis(10_000) };
    spend(&mut desk, 800.0);
    store(&mut desk, &mut peers);
    // It was spent in the period before, and a total is somewhat larger than what is held.
    desk.resource = Resource::new(elected(&mut peers, Millis(140_000)));
    let (amount, carried) = amounts(&mut desk, Millis(140_000));
    assert!((199.0..=200.0).contains(&carried) && amount == 1000.0 + carried, "{carried} of 200 left");
    spend(&mut desk, 1100.0);
    store(&mut desk, &mut peers);
    desk.resource = Resource::new(elected(&mut peers, Millis(160_000)));
    assert_eq!(amounts(&mut desk, Millis(160_000)), (amount, carried), "stored with the first lease");
    assert!(desk.held() >= 1100.0, "all of this period is still counted");
}

fn store(desk: &mut Desk, peers: &mut Peers) {
    if let Some(changes) = desk.resource.take_changes(desk.now).changes {
        peers.append(changes, &desk.resource, desk.now).expect("a valid change");
    }
    desk.resource.acknowledge(peers.store(usize::MAX).expect("a number"));
}

fn elected(peers: &mut Peers, now: Millis) -> ResourceOptions {
    let inherited = peers.elect(0, 2, now).expect("an election");
    let (epoch, since) = (next_epoch(inherited.newest), now);
    ResourceOptions { epoch, since, learning_until: since, inherited: Some(inherited), ..options(carrying()) }
}

/// The rows of usage that are due by now: record, period, spent, lost, and whether it is late.
fn usage(desk: &mut Desk) -> Vec<(String, i64, f64, f64, bool)> {
    if !desk.resource.has_notes(desk.now, false) {
        return Vec::new();
    }
    let notes = desk.resource.take_notes(desk.now, 100, 10_000, false);
    let Some(Notes::Usage(rows)) = notes else { panic!("no usage: {notes:?}") };
    let row = |row: UsageRow| {
        let period = (row.period.start - EPOCH) / 100;
        (
            holder_of_record(&row.record).to_owned(),
            period,
            row.spent.get(),
            row.lost.get(),
            row.update != UsageUpdate::Replace,
        )
    };
    rows.into_iter().map(row).collect()
}

#[test]
fn usage_is_what_holders_report_and_what_they_lose() {
    let mut peers = Peers::new();
    let mut desk = Desk { resource: Resource::new(elected(&mut peers, Millis(10_000))), now: Millis(10_000) };
    let (mut a, mut b) = (spender("a", 1, 20.0), spender("b", 2, 20.0));
    for spent in [10.0, 5.0] {
        desk.serve(&mut a);
        desk.serve(&mut b);
        a.spend(spent, desk.now);
    }
    b.spend(1.0, desk.now);
    desk.serve(&mut a);
    desk.serve(&mut b);
    assert_eq!(usage(&mut desk), [], "a holder is not written after each request");
    desk.now = Millis(40_000);
    let row = |id: &str, period, spent, lost, is_late| (id.to_owned(), period, spent, lost, is_late);
    let all = [row("a", 0, 15.0, 0.0, false), row("b", 0, 1.0, 0.0, false)];
    assert_eq!(usage(&mut desk), all);
    desk.now = Millis(60_000);
    desk.serve(&mut a);
    desk.now = Millis(75_000);
    assert_eq!(usage(&mut desk), [], "nothing has changed");
    desk.resource.note_anew();
    assert_eq!(usage(&mut desk), all, "the rows were lost");
    desk.resource.usage_stored();
    // `b` was silent for three leases and has lost what it had in advance.
    desk.resource.tick(desk.now);
    let lost = b.allowance - 1.0;
    desk.now = Millis(105_000);
    desk.resource.enter_period(desk.at());
    assert_eq!(usage(&mut desk), [row("b", 0, 1.0, lost, false)]);
    // `a` has spent more, and reports it in the next period.
    a.spent += 2.0;
    desk.serve(&mut a);
    a.spend(3.0, desk.now);
    desk.resource.round(
        desk.at(),
        &mut vec![Request::Release(a.release())],
        &mut Vec::new(),
        &mut RoundScratch::default(),
    );
    desk.now = Millis(140_000);
    assert_eq!(usage(&mut desk), [row("a", 0, 17.0, 0.0, true), row("a", 1, 3.0, 0.0, false)]);
}

/// A new master, and a client that claims its lease of 40 from the master before, of which it has spent 20.
fn claimed() -> (Desk, Spender) {
    let inherited = Inherited { total: Amount::clamped(100.0), until: Millis(120_000), ..Inherited::default() };
    let settings = settings(100.0, PeriodLength::Unending);
    let resource = Resource::new(ResourceOptions { inherited: Some(inherited), ..options(settings) });
    let mut desk = Desk { resource, now: Millis(10_000) };
    let expiry_time = desk.at().unix + 5;
    let has = ShownLease { token: Token::new(3), capacity: Amount::clamped(40.0), expiry_time };
    let mut client = Spender { period: i64::MIN, has: Some(has), ..spender("a", 1, 0.0) };
    desk.resource.enter_period(now_at(desk.now));
    client.period = desk.resource.budget_report(desk.now).expect("a budget").period.start;
    (client.allowance, client.spent) = (40.0, 20.0);
    (desk, client)
}

/// 0.26 + 3 · 0.8 + 6.2 is no binary fraction, and one that is a little less would never cover the last call.
#[test]
fn an_allowance_covers_a_waiting_call_of_any_fraction() {
    let mut desk = Desk::new(10.0, PeriodLength::Unending);
    let mut a = spender("a", 1, 6.2);
    a.need = 6.2;
    a.spent = 0.0;
    for spent in [0.26, 0.8, 0.8, 0.8] {
        desk.serve(&mut a);
        desk.serve(&mut a);
        a.spend(spent, desk.now);
    }
    desk.serve(&mut a);
    desk.serve(&mut a);
    let left = Sum::from(Amount::clamped(a.allowance)) - Sum::from(Amount::clamped(a.spent));
    assert!(left >= Sum::from(Amount::clamped(6.2)), "{left:?}");
}

/// The last reports of clients that leave after a change of master, whose rows the master before has not written.
#[test]
fn reports_without_a_record_make_rows_up_to_what_is_gone() {
    let (mut desk, first) = claimed();
    let leaving = |id: &str, spent| Request::Release(Spender { id: id.into(), spent, ..first.clone() }.release());
    let mut releases = vec![leaving("b", 60.0), leaving("c", 30.0), leaving("d", 20.0), leaving("e", 10.0)];
    desk.resource.round(desk.at(), &mut releases, &mut Vec::new(), &mut RoundScratch::default());
    desk.now = Millis(40_000);
    let Some(Notes::Usage(rows)) = desk.resource.take_notes(desk.now, 100, 10_000, false) else { panic!("no usage") };
    let updates = rows.iter().map(|row| (holder_of_record(&row.record), row.spent.get(), row.update));
    let (adds, raises) = (UsageUpdate::RaiseOrAdd, UsageUpdate::Raise);
    assert_eq!(
        updates.collect::<Vec<_>>(),
        [("b", 60.0, adds), ("c", 30.0, adds), ("d", 20.0, raises), ("e", 10.0, adds)]
    );
}

/// Found by simulation: a release, and a request before it, were repeated after a change of master. The client had
/// returned 20, which another one has spent since. The repeated request claims them, and the repeated release freed them.
#[test]
fn a_repeated_release_does_not_free_what_a_repeated_request_has_claimed() {
    let (mut desk, client) = claimed();
    one(&mut desk.resource, now_at(desk.now), Request::Ask(client.ask()));
    one(&mut desk.resource, now_at(desk.now), Request::Release(client.release()));
    assert_eq!(desk.held(), 100.0);
}

#[test]
fn a_release_of_a_lease_of_this_master_frees_the_rest_of_the_claim() {
    let (mut desk, mut client) = claimed();
    desk.serve(&mut client);
    one(&mut desk.resource, now_at(desk.now), Request::Release(client.release()));
    assert_eq!(desk.held(), 80.0);
}
