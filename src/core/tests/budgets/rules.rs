//! One test per rule of budgets.

use super::{Spender, settings};
use crate::{
    policy::{
        period::PeriodLength,
        settings::{AlgorithmKind, Settings},
    },
    resource::{Answer, Lease, Request, Resource, RoundScratch},
    tests::harness::{ask, now_at, one, options},
    types::{Amount, Millis, Now, Sum},
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
fn a_slice_is_at_most_a_share_of_what_is_left_but_covers_a_waiting_call() {
    let mut desk = Desk::new(1000.0, PeriodLength::Day);
    let mut a = spender("a", 1, 900.0);
    assert_eq!(desk.serve(&mut a).capacity.get(), 50.0);
    let mut b = Spender { need: 400.0, ..spender("b", 2, 900.0) };
    assert_eq!(desk.serve(&mut b).capacity.get(), 400.0);
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
