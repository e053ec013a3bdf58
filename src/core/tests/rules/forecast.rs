//! Forecasts match the behaviour of the resource under the other settings.

use super::*;
use crate::{
    lease::promises::Inherited,
    policy::{
        client_rules::ClientRule,
        groups::{GroupPattern, GroupRule, GroupSettings},
    },
    resource::report::forecast::{Forecast, ForecastReport, copy_holders},
    types::{Glob, Sum},
};

impl Server {
    fn forecast(&self, change: impl FnOnce(&mut Settings)) -> ForecastReport {
        let mut settings = self.resource.settings().clone();
        change(&mut settings);
        let mut forecast = Forecast::begin(&self.resource, self.now, settings).expect("it has no parent");
        let mut from = Some(0);
        while let Some(page_start) = from {
            // Pages of two, as large resources have many.
            let (page, next) = copy_holders(&self.resource, self.now, page_start, 2);
            page.into_iter().for_each(|copy| forecast.add(copy));
            from = next;
        }
        forecast.finish(usize::MAX)
    }

    /// Every holder repeats its request until leases settle.
    fn come_round(&mut self, wants: &[(&str, f64)]) {
        for _ in 0..3 {
            self.pass(16_000);
            for (id, wants) in wants {
                self.asks(id, *wants);
            }
        }
    }
}

const WANTS: [(&str, f64); 5] = [("a", 10.0), ("b", 40.0), ("c", 70.0), ("d", 5.0), ("e", 200.0)];

fn settled() -> Server {
    let mut server = Server::new(fair(200.0));
    for (id, wants) in WANTS {
        server.asks(id, wants);
    }
    server.come_round(&WANTS);
    server
}

#[track_caller]
fn comes_true(change: impl Fn(&mut Settings)) {
    let mut server = settled();
    let before: Vec<f64> = WANTS.map(|(id, _)| server.report(id).due.get()).to_vec();
    let forecast = server.forecast(&change);
    server.change(change);
    server.come_round(&WANTS);
    for ((id, _), before) in WANTS.iter().zip(before) {
        let has = server.report(id).granted.get();
        let change = forecast.changes.iter().find(|change| *change.id == **id);
        let (was, is) = change.map_or((before, before), |change| (change.before.get(), change.after.get()));
        assert_eq!((was, is), (before, has), "{id}");
    }
    let all: Sum = WANTS.iter().map(|(id, _)| server.report(id).granted).collect();
    assert_eq!(forecast.due.1, Some(all));
}

#[test]
fn forecast_of_a_division_is_correct() {
    comes_true(|settings| settings.capacity = Amount::clamped(100.0));
    comes_true(|settings| settings.capacity = Amount::clamped(1_000.0));
    comes_true(|settings| settings.kind = AlgorithmKind::ProportionalShare);
    comes_true(|settings| (settings.kind, settings.capacity) = (AlgorithmKind::Static, Amount::clamped(30.0)));
    comes_true(|settings| settings.kind = AlgorithmKind::NoAlgorithm);
    comes_true(|settings| settings.shadow = true);
    comes_true(|settings| (settings.whole_units, settings.capacity) = (true, Amount::clamped(57.0)));
    comes_true(|settings| settings.lease = Millis::from_secs(10));
}

#[test]
fn forecast_sums_gains_and_losses() {
    let server = settled();
    let forecast = server.forecast(|settings| settings.capacity = Amount::clamped(100.0));
    assert_eq!((forecast.holders, forecast.subclients, forecast.wants.get()), (5, 5, 325.0));
    assert_eq!((forecast.capacity.0.get(), forecast.capacity.1.get()), (200.0, 100.0));
    assert_eq!((forecast.due.0.get(), forecast.due.1.map(Sum::get)), (200.0, Some(100.0)));
    assert_eq!((forecast.gains.holders, forecast.losses.holders, forecast.losses.amount.get().round()), (0, 3, 100.0));
    assert_eq!((forecast.over_capacity.get(), forecast.over_due.get().round()), (100.0, 100.0));
    assert!((60_000..64_000).contains(&forecast.until.0), "the newest lease is the last to end: {:?}", forecast.until);
    assert_eq!(&*forecast.changes[0].id, "e", "the largest change comes first");
    let unchanged = server.forecast(|_| {});
    assert_eq!((unchanged.changes.len(), unchanged.over_due, unchanged.until), (0, Sum::ZERO, Millis(0)));
}

#[test]
fn forecast_end_is_correct_without_requests() {
    let mut server = settled();
    let cut = |settings: &mut Settings| settings.capacity = Amount::clamped(100.0);
    let forecast = server.forecast(cut);
    server.change(cut);
    server.pass(forecast.until.0);
    server.resource.tick(server.now);
    assert_eq!(server.asks("new", 30.0), 30.0);
}

#[test]
fn forecast_includes_inherited_leases() {
    let wants = Claims::from_slice(&[slice(4, 100.0, 0)]);
    let total = Amount::clamped(80.0);
    let inherited = Inherited { total, wants, until: Millis(50_000), ..Inherited::default() };
    let mut server = Server::with_options(ResourceOptions { inherited: Some(inherited), ..options(fair(100.0)) });
    server.asks("new", 100.0);
    let forecast = server.forecast(|settings| settings.capacity = Amount::clamped(50.0));
    assert_eq!((forecast.holders, forecast.over_capacity.get()), (1, 50.0), "{forecast:?}");
    // 20 was free, of which it would be due 10.
    assert_eq!((forecast.over_due.get(), forecast.unclaimed.get()), (10.0, 80.0), "{forecast:?}");
    let sentences = forecast.sentences();
    assert!(sentences.iter().any(|said| said.starts_with("earlier masters leased 80 to holders")), "{sentences:?}");
    assert!(forecast.until >= Millis(50_000), "{forecast:?}");
    assert_eq!(forecast.changes[0].after.get(), 10.0, "four former holders are expected");
}

#[test]
fn pools_and_child_nodes_have_no_forecast() {
    let server = settled();
    let forecast = server.forecast(|settings| settings.kind = AlgorithmKind::PriorityPool);
    assert_eq!((forecast.due.1, forecast.changes.len()), (None, 0));
    let below = Server::below(fair(1.0));
    assert!(Forecast::begin(&below.resource, Millis(0), fair(2.0)).is_none());
}

#[test]
fn forecast_applies_max_priority() {
    let mut settings = fair(100.0);
    settings.priority = Priority::Strict;
    let mut server = Server::new(settings);
    let first = Ask { claims: Claims::from_slice(&[slice(1, 100.0, 5)]), ..server.request("first", 0.0) };
    server.deliver(first);
    server.asks("last", 100.0);
    let forecast = server.forecast(|settings| settings.max_priority = Some(0));
    let dues: Vec<_> = forecast.changes.iter().map(|change| (&*change.id, change.after.get())).collect();
    assert_eq!(dues.len(), 2);
    assert!(dues.iter().all(|(_, due)| *due == 50.0), "{dues:?}");
}

#[test]
fn forecast_applies_client_rules() {
    let rules = |text: &str| {
        let mut rules = crate::policy::client_rules::ClientRules::default();
        assert!(rules.push(crate::policy::client_rules::ClientRule::read(text).expect(text)));
        rules
    };
    comes_true(|settings| settings.clients = rules("3 0 - e"));
    comes_true(|settings| settings.clients = rules("1 0 30 e"));
    comes_true(|settings| settings.clients = rules("1 100 - e"));
}

#[test]
fn groups_are_forecast() {
    let limits = |path: &str, min: f64, max: f64| {
        let mut limits = ClientRule::new(path, Glob::new(path).expect("a valid pattern"));
        (limits.min, limits.max) = (Amount::clamped(min), Some(Amount::clamped(max)));
        limits
    };
    let mut groups = GroupSettings::new(GroupPattern::new("{team}").expect("a valid pattern"));
    assert!(groups.push(GroupRule { limits: limits("c", 70.0, 100.0), lends: true }));
    assert!(groups.push(GroupRule { limits: limits("absent", 30.0, 30.0), lends: false }));
    assert!(groups.push(GroupRule { limits: limits("b", 0.0, 16.0), lends: true }));
    comes_true(|settings| settings.groups = Some(groups.clone().into()));
}
