//! `pace`: an amount is spread over its period and divided fairly.

use super::{Spender, settings};
use crate::{
    policy::{
        client_rules::ClientRule,
        groups::{GroupError, GroupPattern, GroupRule, GroupSettings},
        period::PeriodLength,
        settings::{Settings, SettingsError},
    },
    resource::{Answer, Request, Resource, RoundScratch},
    tests::harness::{EPOCH, options},
    types::{Amount, Glob, Millis, Now},
};

const LENGTH: u64 = 1000;

fn paced(amount: f64) -> Settings {
    let mut settings = settings(amount, PeriodLength::Seconds(LENGTH as u32));
    settings.budget.pace = true;
    settings
}

/// One client: its id, what it wants to spend per second, and how often it asks, in seconds.
struct Demand(&'static str, f64, u64);

/// Spends over one period. Returns what each client had spent after each second.
fn spend(settings: Settings, clients: &[Demand]) -> Vec<Vec<f64>> {
    let mut resource = Resource::new(options(settings));
    let mut spenders: Vec<_> =
        clients.iter().enumerate().map(|(n, client)| Spender::new(client.0, n as u64 + 1)).collect();
    let (mut due, mut history) = (vec![0.0; clients.len()], Vec::new());
    let begin = LENGTH - EPOCH as u64 % LENGTH;
    for second in begin..begin + LENGTH {
        let now = Now { at: Millis(second * 1000), unix: EPOCH + second as i64 };
        for (n, Demand(_, rate, interval)) in clients.iter().enumerate() {
            let spender = &mut spenders[n];
            // Callers wait, but not without limit.
            due[n] = f64::min(due[n] + rate, rate * 10.0 + 1.0);
            due[n] -= spender.spend(f64::floor(due[n]), now.at);
            if (second + n as u64).is_multiple_of(*interval) {
                spender.wants = (rate * 4.0 + due[n]).ceil();
                let (mut answers, request) = (Vec::new(), Request::Ask(spender.ask()));
                resource.round(now, &mut vec![request], &mut answers, &mut RoundScratch::default());
                if let Some(Answer::Granted(lease)) = answers.pop() {
                    spender.take(&lease, now.at, 99);
                }
            }
        }
        history.push(spenders.iter().map(|spender| spender.spent).collect());
    }
    history
}

fn sum(spent: &[f64]) -> f64 {
    spent.iter().sum()
}

#[test]
fn an_amount_lasts_until_its_period_ends_and_is_spent_then() {
    let clients = ["a", "b", "c", "d"].map(|id| Demand(id, 1000.0, 2));
    let history = spend(paced(100_000.0), &clients);
    for (tenths, spent) in history.iter().step_by(100).enumerate() {
        let even = tenths as f64 * 10_000.0;
        assert!((sum(spent) - even).abs() < 1_000.0, "{} of {even} in {tenths} tenths", sum(spent));
    }
    let last = history.last().expect("a history");
    assert!(sum(last) >= 99_500.0 && sum(last) <= 100_000.0, "{last:?}");
    for spent in last {
        assert!((spent - 25_000.0).abs() < 1_000.0, "{last:?}");
    }
}

#[test]
fn a_client_that_wants_little_gets_it_and_one_that_asks_often_gets_no_more() {
    // 100 per second: the first wants 10 of them, and the others all.
    let clients = [Demand("little", 10.0, 2), Demand("often", 1000.0, 1), Demand("seldom", 1000.0, 2)];
    let history = spend(paced(100_000.0), &clients);
    let [little, often, seldom] = history[LENGTH as usize - 1][..] else { panic!("three clients") };
    assert!(little > 9_500.0, "{little}");
    assert!((often - seldom).abs() < 0.1 * seldom, "{often} and {seldom}");
}

#[test]
fn calls_larger_than_the_pace_allows_at_once_are_served_in_turn() {
    let clients = ["a", "b"].map(|id| Demand(id, 50.0, 2));
    let mut settings = paced(10_000.0);
    settings.budget.slice_share = 0.01;
    let mut resource = Resource::new(options(settings));
    let begin = LENGTH - EPOCH as u64 % LENGTH;
    let mut spent = [0.0, 0.0];
    let mut spenders = clients.map(|client| Spender { need: 500.0, wants: 500.0, ..Spender::new(client.0, 1) });
    for second in begin..begin + LENGTH {
        let now = Now { at: Millis(second * 1000), unix: EPOCH + second as i64 };
        for (n, spender) in spenders.iter_mut().enumerate() {
            let (mut answers, request) = (Vec::new(), Request::Ask(spender.ask()));
            resource.round(now, &mut vec![request], &mut answers, &mut RoundScratch::default());
            if let Some(Answer::Granted(lease)) = answers.pop() {
                spender.take(&lease, now.at, 99);
            }
            if spender.allowance - spender.spent >= 500.0 {
                spent[n] += spender.spend(500.0, now.at);
            }
        }
        let even = (second - begin) as f64 * 10.0;
        assert!(sum(&spent) <= even + 1_100.0, "{spent:?} after {even}");
    }
    assert!(sum(&spent) >= 9_500.0 && spent.iter().all(|spent| *spent >= 3_500.0), "{spent:?}");
}

fn grouped(rules: &[(&str, u32)]) -> Settings {
    let mut groups = GroupSettings::new(GroupPattern::new("{team}/*").expect("a pattern"));
    for (path, weight) in rules {
        let mut limits = ClientRule::new(path, Glob::new(path).expect("a path"));
        limits.weight = *weight;
        assert!(groups.push(GroupRule { limits, lends: true }));
    }
    Settings { groups: Some(groups.into()), ..paced(100_000.0) }
}

#[test]
fn groups_share_by_weight() {
    let settings = grouped(&[("big", 3)]);
    assert_eq!(settings.check(), Ok(()));
    let clients = ["big/1", "small/1", "small/2", "small/3"].map(|id| Demand(id, 1000.0, 2));
    let history = spend(settings, &clients);
    let last = &history[LENGTH as usize - 1];
    assert!(sum(last) >= 99_500.0, "{last:?}");
    assert!((last[0] - 75_000.0).abs() < 3_000.0, "{last:?}");
    for spent in &last[1..] {
        assert!((spent - 8_333.0).abs() < 800.0, "{last:?}");
    }
}

#[test]
fn pace_needs_a_period_and_groups_need_pace() {
    let unending = Settings { budget: paced(1.0).budget, ..settings(1.0, PeriodLength::Day) };
    let mut unending = unending;
    unending.budget.periods.length = PeriodLength::Unending;
    assert_eq!(unending.check(), Err(SettingsError::PaceWithoutEnd));
    let mut unpaced = grouped(&[]);
    unpaced.budget.pace = false;
    assert!(matches!(unpaced.check(), Err(SettingsError::Groups(GroupError::NotShared("BUDGET without `pace`")))));
    let mut limited = grouped(&[]);
    let groups = limited.groups.as_mut().map(std::sync::Arc::make_mut).expect("groups");
    let mut limits = ClientRule::new("big", Glob::new("big").expect("a path"));
    limits.max = Some(Amount::ONE);
    assert!(groups.push(GroupRule { limits, lends: true }));
    assert!(matches!(limited.check(), Err(SettingsError::Groups(GroupError::OfShares(_)))));
}
