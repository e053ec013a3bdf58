//! An override acts like a template with another capacity.

use std::sync::Arc;

use super::*;
use crate::{
    lease::promises::Inherited,
    policy::overrides::{Load, Override, OverrideTarget, OverrideValue, ResourceOverrides},
    resource::LoadReport,
};

pub(crate) fn set(group: Option<&str>, value: OverrideValue) -> Arc<Override> {
    let target = OverrideTarget { pattern: "*".into(), group: group.map(Into::into) };
    Arc::new(Override { target, value, ends: Millis(600_000), by: "ada".into(), why: "a test".into() })
}

fn capacity(load: Load, above: bool) -> Option<Arc<Override>> {
    Some(set(None, OverrideValue::Capacity { load, above }))
}

fn half() -> Option<Arc<Override>> {
    capacity(Load::Factor(0.5), false)
}

fn amount(amount: f64) -> Load {
    Load::Capacity(Amount::clamped(amount))
}

impl Server {
    fn overrides(&mut self, capacity: Option<Arc<Override>>) -> f64 {
        self.resource.set_overrides(self.now, ResourceOverrides { capacity, ..ResourceOverrides::default() });
        self.capacity()
    }

    fn capacity(&self) -> f64 {
        self.resource.settings().capacity.get()
    }
}

#[test]
fn override_takes_effect_as_leases_shrink() {
    let mut server = Server::new(fair(100.0));
    server.round(&[("a", 1000.0), ("b", 1000.0)]);
    assert_eq!(server.overrides(half()), 50.0);
    assert_eq!(server.held(), 100.0, "granted leases stay");
    server.pass(16_000);
    assert_eq!(server.asks("a", 1000.0), 25.0);
    assert_eq!(server.asks("c", 1000.0), 0.0, "`b` may still believe in its 50");
    for _ in 0..3 {
        server.pass(16_000);
        server.round(&[("a", 1000.0), ("b", 1000.0), ("c", 1000.0)]);
    }
    assert_eq!(server.held(), 50.0);
    assert_eq!(server.overrides(None), 100.0);
    for _ in 0..3 {
        server.pass(16_000);
        server.round(&[("a", 1000.0), ("b", 1000.0), ("c", 1000.0)]);
    }
    assert!((server.held() - 100.0).abs() < 1e-9, "{}", server.held());
    assert_eq!(server.resource.overridden(), None);
}

#[test]
fn factor_follows_the_template() {
    let mut server = Server::new(fair(100.0));
    server.overrides(half());
    server.change(|settings| settings.capacity = Amount::clamped(40.0));
    assert_eq!(server.capacity(), 20.0);
    let overridden = server.resource.overridden().expect("it is in force");
    assert_eq!((overridden.capacity.get(), overridden.template.get()), (20.0, 40.0));
    assert_eq!(server.overrides(None), 40.0, "the current template applies");
}

#[test]
fn override_raises_only_with_above() {
    let mut server = Server::new(fair(100.0));
    assert_eq!(server.overrides(capacity(amount(150.0), false)), 100.0);
    assert_eq!(server.overrides(capacity(amount(150.0), true)), 150.0);
    server.change(|settings| settings.capacity = Amount::clamped(200.0));
    assert_eq!(server.capacity(), 150.0, "the override applies even if the template has risen");
}

#[test]
fn load_report_does_not_exceed_an_override() {
    let mut settings = fair(100.0);
    settings.load_bounds = (Some(Amount::clamped(80.0)), Some(Amount::clamped(300.0)));
    let mut server = Server::new(settings);
    let report = |server: &mut Server, load| {
        let reported = server.resource.report_load(server.now, LoadReport { load, until: None });
        reported.expect("the template allows it").get()
    };
    assert_eq!(report(&mut server, amount(250.0)), 250.0);
    assert_eq!(server.overrides(half()), 50.0);
    assert_eq!(report(&mut server, amount(90.0)), 50.0, "the template's floor does not raise it either");
    assert_eq!(server.overrides(None), 90.0, "the report applies again");
}

#[test]
fn override_below_a_parent_only_lowers() {
    let mut server = Server::below(fair(0.0));
    assert_eq!(server.overrides(half()), 0.0, "nothing is lent yet");
    server.supply(100.0, Millis(600_000));
    assert_eq!((server.capacity(), server.asks("a", 1000.0)), (50.0, 50.0));
    server.supply(60.0, Millis(600_000));
    assert_eq!(server.capacity(), 30.0);
    assert_eq!(server.overrides(capacity(amount(1000.0), true)), 60.0);
    assert_eq!(server.overrides(capacity(amount(20.0), true)), 20.0);
    server.supply(60.0, Millis(1_000));
    server.pass(2_000);
    server.resource.tick(server.now);
    assert_eq!(server.capacity(), 0.0, "the loan has ended");
}

/// A node in learning mode counts its whole supply as lent, because its earlier masters may have had no override.
#[test]
fn learning_node_counts_the_whole_supply_as_lent() {
    let learning_until = Millis(61_000);
    let mut server =
        Server::with_options(ResourceOptions { source: Source::Parent, learning_until, ..options(fair(0.0)) });
    server.overrides(half());
    server.supply(100.0, Millis(600_000));
    assert_eq!((server.held(), server.capacity()), (100.0, 50.0));
    assert_eq!(server.asks("a", 1000.0), 0.0);
}

#[test]
fn learning_master_counts_a_raised_capacity_as_lent() {
    let inherited = Inherited::default();
    let mut server = Server::with_options(ResourceOptions {
        learning_until: Millis(61_000),
        inherited: Some(inherited),
        ..options(fair(100.0))
    });
    assert_eq!(server.overrides(capacity(amount(150.0), true)), 150.0);
    assert_eq!(server.held(), 150.0);
}
