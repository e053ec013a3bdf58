//! Groups: shares, minimums, maximums and lending between groups of clients.

use super::*;
use crate::{
    allocation::groups::GroupBound,
    policy::{
        client_rules::ClientRule,
        groups::{GroupChange, GroupPattern, GroupRule, GroupSettings, OTHER_GROUP},
        overrides::{Load, OverrideValue, ResourceOverrides},
    },
    resource::report::{MAX_REPORTED_GROUPS, explain::explain, resource_report},
    tests::rules::overrides::set,
    types::Glob,
};

fn rule(pattern: &str) -> GroupRule {
    GroupRule { limits: ClientRule::new(pattern, Glob::new(pattern).expect("a valid pattern")), lends: true }
}

fn at_least(pattern: &str, min: f64, lends: bool) -> GroupRule {
    let mut rule = rule(pattern);
    rule.limits.min = Amount::clamped(min);
    GroupRule { lends, ..rule }
}

fn at_most(pattern: &str, max: f64) -> GroupRule {
    let mut rule = rule(pattern);
    rule.limits.max = Some(Amount::clamped(max));
    rule
}

fn grouped(from: &str, rules: impl IntoIterator<Item = GroupRule>, capacity: f64) -> Settings {
    let mut groups = GroupSettings::new(GroupPattern::new(from).expect("a valid pattern"));
    rules.into_iter().for_each(|rule| assert!(groups.push(rule)));
    Settings { groups: Some(groups.into()), ..fair(capacity) }
}

impl Server {
    fn due(&self, id: &str) -> f64 {
        self.report(id).due.get()
    }

    /// Each client asks often enough to have its due.
    fn settle_down(&mut self, wants: &[(&str, f64)]) {
        for _ in 0..4 {
            for (id, wants) in wants {
                self.asks(id, *wants);
            }
            self.pass(8_000);
        }
    }

    fn said(&self, id: &str) -> String {
        let explanation = explain(&self.resource, self.now, HolderKind::Client, id).expect("a known holder");
        explanation.sentences().join("\n")
    }

    fn group(&self, path: &str) -> (f64, f64, f64) {
        let report = resource_report(&self.resource, self.now);
        let group = report.groups.iter().find(|group| &*group.path == path).expect("a known group");
        (group.share.get(), group.wants.get(), group.held.get())
    }
}

#[test]
fn groups_share_equally_whatever_the_number_of_their_clients() {
    for kind in [AlgorithmKind::FairShare, AlgorithmKind::ProportionalShare] {
        let mut server = Server::new(Settings { kind, ..grouped("{team}/*", [], 90.0) });
        server.settle_down(&[("a/1", 60.0), ("a/2", 60.0), ("a/3", 60.0), ("b/1", 180.0)]);
        assert_eq!(["a/1", "a/2", "a/3", "b/1"].map(|id| server.due(id)), [15.0, 15.0, 15.0, 45.0], "{kind:?}");
        assert_eq!(server.leases["b/1"].capacity.get(), 45.0);
    }
}

/// A group that splits its demand among a hundred clients gets what it had with one.
#[test]
fn no_group_gains_by_splitting() {
    let due_of = |clients: usize| {
        let mut server = Server::new(grouped("{team}/*", [], 100.0));
        server.asks("a/1", 80.0);
        let ids: Vec<String> = (0..clients).map(|n| format!("b/{n}")).collect();
        ids.iter().for_each(|id| {
            server.asks(id, 90.0 / clients as f64);
        });
        ids.iter().map(|id| server.due(id)).sum::<f64>()
    };
    assert_eq!(due_of(1), 50.0);
    assert!((due_of(100) - 50.0).abs() < 1e-9);
}

#[test]
fn unwanted_minimum_is_lent_or_kept() {
    for (lends, batch) in [(true, 90.0), (false, 50.0)] {
        let mut server = Server::new(grouped("{group}/*", [at_least("prod", 50.0, lends)], 100.0));
        assert_eq!(server.group_count(), usize::from(!lends), "a kept minimum needs no client");
        server.settle_down(&[("batch/1", 200.0)]);
        assert_eq!(server.due("batch/1"), if lends { 100.0 } else { 50.0 });
        server.settle_down(&[("prod/1", 10.0), ("batch/1", 200.0)]);
        assert_eq!(server.due("batch/1"), batch);
        let wants: Vec<(String, f64)> = (0..9).map(|n| (format!("batch/{n}"), 200.0)).collect();
        let mut wants: Vec<(&str, f64)> = wants.iter().map(|(id, wants)| (id.as_str(), *wants)).collect();
        wants.push(("prod/1", 70.0));
        server.settle_down(&wants);
        assert_eq!(server.due("prod/1"), 50.0, "a guaranteed half, whatever the number of clients of the others");
        assert_eq!(server.group("batch"), (50.0, 1800.0, 50.0));
    }
}

impl Server {
    fn group_count(&self) -> usize {
        resource_report(&self.resource, self.now).group_count
    }
}

#[test]
fn levels_are_divided_one_after_the_other() {
    let mut heavy = rule("acme");
    heavy.limits.weight = 3;
    let rules = [heavy, at_most("acme/web", 20.0), at_least("beta/*", 5.0, true)];
    let mut server = Server::new(grouped("{org}/{team}/*", rules, 100.0));
    let wants =
        [("acme/web/1", 50.0), ("acme/web/2", 50.0), ("acme/db/1", 100.0), ("beta/x/1", 100.0), ("beta/y/1", 5.0)];
    server.settle_down(&wants);
    assert_eq!(wants.map(|(id, _)| server.due(id)), [10.0, 10.0, 55.0, 20.0, 5.0]);
    assert_eq!(server.group("acme"), (75.0, 120.0, 75.0), "the maximum of acme/web limits the wants of acme");
    assert_eq!(server.group("acme/web"), (20.0, 100.0, 20.0));
    let said = server.said("acme/web/1");
    assert!(said.contains("its group acme/web is due 20 of the 100 that its clients want"), "{said}");
    assert!(
        said.contains("The limiting level is the group acme/web, which is due 20 of 100: its maximum is 20"),
        "{said}"
    );
    let said = server.said("beta/x/1");
    assert!(said.contains("its group beta/x is due 20 of the 100"), "{said}");
    assert!(
        said.contains("limiting level is the group beta, which is due 25 of 105: no group of weight 1 is due more"),
        "{said}"
    );
    assert!(said.contains("a larger weight or minimum of the group beta"), "{said}");
    assert!(!server.said("beta/y/1").contains("group"), "it is due all that it wants");
}

#[test]
fn explanation_names_what_binds() {
    let mut server = Server::new(grouped("{team}/*", [at_least("prod", 60.0, true)], 100.0));
    server.settle_down(&[("prod/1", 70.0), ("batch/1", 70.0), ("web/1", 70.0)]);
    let bound = |server: &Server, id: &str| {
        let explanation = explain(&server.resource, server.now, HolderKind::Client, id).expect("a known holder");
        explanation.group.map(|limit| limit.because)
    };
    assert_eq!(bound(&server, "prod/1"), Some(GroupBound::Minimum(Amount::clamped(60.0))));
    assert_eq!(bound(&server, "web/1"), Some(GroupBound::Share(Terms::Level(20.0))));
    server.change(|settings| settings.capacity = Amount::clamped(50.0));
    assert!(server.said("web/1").contains("the minimums of all groups exceed"), "{}", server.said("web/1"));
    assert_eq!(["prod/1", "web/1"].map(|id| server.due(id)), [50.0, 0.0]);
}

#[test]
fn clients_that_match_no_group_share_one() {
    let mut server = Server::new(grouped("{org}/{team}/*", [at_most(OTHER_GROUP, 30.0)], 100.0));
    server.settle_down(&[("single", 80.0), ("acme/web", 80.0), ("(other)/x/y", 80.0), ("acme/web/1", 80.0)]);
    assert_eq!(["single", "acme/web", "(other)/x/y"].map(|id| server.due(id)), [10.0; 3]);
    assert_eq!(server.due("acme/web/1"), 70.0);
    assert_eq!(server.group(OTHER_GROUP), (30.0, 240.0, 30.0));
    server.node_asks("leaf", &[slice(5, 300.0, 0)]);
    assert_eq!(server.due("leaf"), 5.0 * 30.0 / 8.0, "the clients of a child node are members, too");
}

#[test]
fn number_of_groups_is_bounded() {
    let mut server = Server::new(grouped("{org}/{team}/*", [], 1_000.0));
    // Each is a group in a group.
    let half = GroupSettings::MAX_GROUPS / 2;
    (0..half).for_each(|n| {
        server.asks(&format!("o{n}/t/1"), 1.0);
    });
    assert_eq!(server.group_count(), GroupSettings::MAX_GROUPS);
    let report = resource_report(&server.resource, server.now);
    assert_eq!(report.groups.len(), MAX_REPORTED_GROUPS);
    server.asks("late/t/1", 300.0);
    server.asks("later/t/1", 300.0);
    server.asks("o7/t/2", 1.0);
    assert_eq!(server.group(OTHER_GROUP).1, 600.0, "the groups are used up");
    assert_eq!(server.group_count(), GroupSettings::MAX_GROUPS + 1);
    let released = Release { kind: HolderKind::Client, id: "o1/t/1".into(), token: None, instance: None, spent: None };
    assert_eq!(one(&mut server.resource, now_at(server.now), Request::Release(released)), Answer::Released);
    assert_eq!(server.group_count(), GroupSettings::MAX_GROUPS - 1, "groups without clients are removed");
    server.asks("new/t/1", 1.0);
    assert_eq!(server.group_count(), GroupSettings::MAX_GROUPS + 1);
}

#[test]
fn priorities_order_the_clients_of_a_group_only() {
    let settings = Settings { priority: Priority::Strict, ..grouped("{team}/*", [], 100.0) };
    let mut server = Server::new(settings);
    let mut ask_at = |id: &str, priority| {
        server.deliver(Ask { claims: Claims::from_slice(&[slice(1, 80.0, priority)]), ..ask(id, 0.0, None) });
    };
    for (id, priority) in [("a/high", 5), ("a/low", 0), ("b/low", 0)] {
        ask_at(id, priority);
    }
    assert_eq!(["a/high", "a/low", "b/low"].map(|id| server.due(id)), [50.0, 0.0, 50.0]);
    let said = server.said("a/low");
    assert!(said.contains("its group a is due 50 of the 160") && said.contains("want 80, which uses up"), "{said}");
}

#[test]
fn changed_groups_apply_to_known_clients() {
    let mut server = Server::new(fair(100.0));
    server.settle_down(&[("a/1", 80.0), ("a/2", 80.0), ("b/1", 80.0)]);
    assert_eq!(server.due("b/1"), 100.0 / 3.0);
    server.change(|settings| settings.groups = grouped("{team}/*", [], 0.0).groups);
    assert_eq!(server.due("b/1"), 50.0);
    assert_eq!(server.group("b"), (50.0, 80.0, server.report("b/1").held.get()), "known leases count to the group");
    server.change(|settings| settings.groups = grouped("{team}/*", [at_most("b", 20.0)], 0.0).groups);
    assert_eq!(["a/1", "b/1"].map(|id| server.due(id)), [40.0, 20.0]);
    server.change(|settings| settings.capacity = Amount::clamped(30.0));
    assert_eq!(["a/1", "b/1"].map(|id| server.due(id)), [7.5, 15.0]);
    server.change(|settings| settings.groups = None);
    assert_eq!(server.due("b/1"), 10.0);
    assert_eq!(server.group_count(), 0);
}

#[test]
fn whole_units_never_exceed_the_maximum_of_a_group() {
    let settings = grouped("{team}/*", [at_most("a", 3.0)], 5.0);
    let mut server = Server::new(Settings { whole_units: true, min_request_interval: Millis(0), ..settings });
    let ids: Vec<String> = (0..4).flat_map(|n| [format!("a/{n}"), format!("b/{n}")]).collect();
    for _ in 0..40 {
        for id in &ids {
            server.asks(id, 4.0);
        }
        let due = |team: &str| ids.iter().filter(|id| id.starts_with(team)).map(|id| server.due(id)).sum::<f64>();
        if server.now > Millis(20_000) {
            assert_eq!(due("a") + due("b"), 5.0);
            assert!((2.0..=3.0).contains(&due("a")), "{}", due("a"));
        }
        server.pass(16_000);
    }
}

/// A new master knows the wants that the old one stored, but not their groups. They count in one group until the
/// holders ask.
#[test]
fn inherited_wants_count_in_one_group() {
    let mut settings = grouped("{team}/*", [], 100.0);
    settings.priority = Priority::Strict;
    let mut server = Server::new(settings.clone());
    server.asks("a/1", 60.0);
    server.asks("b/1", 70.0);
    let wants = server.resource.summarize(server.now).claims;
    assert_eq!(wants[..], [slice(2, 130.0, 0)]);
    let inherited = crate::lease::promises::Inherited {
        total: Amount::clamped(100.0),
        wants,
        newest: Some(server.resource.epoch()),
        until: Millis(60_000),
        ..Default::default()
    };
    let epoch = crate::types::Epoch(server.resource.epoch().0 + (1 << 30));
    let mut next = Server::with_options(ResourceOptions { inherited: Some(inherited), epoch, ..options(settings) });
    assert_eq!(next.group(OTHER_GROUP), (100.0, 130.0, 0.0));
    next.leases = std::mem::take(&mut server.leases);
    next.asks("a/1", 60.0);
    assert_eq!(next.group(OTHER_GROUP).1, 70.0);
    next.asks("b/1", 70.0);
    assert_eq!((next.due("a/1"), next.due("b/1"), next.group_count()), (50.0, 50.0, 2));
}

fn maximum(amount: f64) -> GroupChange {
    GroupChange { maximum: Some(Amount::clamped(amount)), ..GroupChange::default() }
}

impl Server {
    /// Sets these overrides in place of earlier ones.
    fn overrides_groups(&mut self, changes: &[(&str, GroupChange)]) {
        let one = |(group, change): &(&str, GroupChange)| set(Some(group), OverrideValue::Group(*change));
        let groups = changes.iter().map(one).collect();
        self.resource.set_overrides(self.now, ResourceOverrides { capacity: None, groups });
    }

    fn dues<const N: usize>(&self, ids: [&str; N]) -> [f64; N] {
        ids.map(|id| self.due(id))
    }
}

#[test]
fn override_changes_a_part_of_the_rule_of_a_group() {
    let mut heavy = at_most("b", 60.0);
    heavy.limits.weight = 3;
    let mut server = Server::new(grouped("{team}/*", [heavy, at_least("a*", 10.0, true)], 100.0));
    let ids = ["a/1", "b/1", "c/1"];
    server.settle_down(&ids.map(|id| (id, 100.0)));
    assert_eq!(server.dues(ids), [20.0, 60.0, 20.0]);
    server.overrides_groups(&[("b", maximum(25.0)), ("c", maximum(5.0))]);
    assert_eq!(server.dues(ids), [70.0, 25.0, 5.0]);
    let said = server.said("b/1");
    assert!(said.contains("The limiting level is the group b, which is due 25 of 100: its maximum is 25."), "{said}");
    assert!(
        said.contains("The group b has a maximum of 25 in place of 60: ada has overridden its rule for `*`"),
        "{said}"
    );
    assert!(!said.contains("group c"), "{said}");
    // The other parts stay: `b` has its weight, `a` its minimum.
    let minimum = GroupChange { minimum: Some(Amount::clamped(50.0)), ..GroupChange::default() };
    server.overrides_groups(&[("c", minimum)]);
    assert_eq!(server.dues(ids), [12.5, 37.5, 50.0]);
    server.overrides_groups(&[("c", GroupChange { weight: Some(6), ..GroupChange::default() })]);
    assert_eq!(server.dues(ids), [10.0, 30.0, 60.0]);
    server.overrides_groups(&[]);
    assert_eq!(server.dues(ids), [20.0, 60.0, 20.0]);
    assert_eq!(resource_report(&server.resource, server.now).overridden_groups, []);
}

#[test]
fn override_of_a_group_follows_the_template_and_its_capacity() {
    let mut server = Server::new(grouped("{org}/{team}/*", [], 100.0));
    let ids = ["a/x/1", "a/y/1", "b/x/1"];
    server.settle_down(&ids.map(|id| (id, 100.0)));
    server.overrides_groups(&[("a", maximum(30.0)), ("a/x", maximum(10.0)), ("new/x", maximum(1.0))]);
    assert_eq!(server.dues(ids), [10.0, 20.0, 70.0]);
    server.asks("new/x/1", 50.0);
    assert_eq!(server.due("new/x/1"), 1.0, "it applies to groups that begin later");
    server.release(HolderKind::Client, "new/x/1", None);
    server.change(|settings| settings.capacity = Amount::clamped(50.0));
    assert_eq!(server.dues(ids), [10.0, 15.0, 25.0]);
    server.change(|settings| settings.groups = grouped("{org}/{team}/*", [at_most("b", 20.0)], 0.0).groups);
    assert_eq!(server.dues(ids), [10.0, 20.0, 20.0], "the rules of a changed template are overridden, too");
    server.change(|settings| settings.groups = grouped("{org}/*", [], 0.0).groups);
    assert_eq!(server.dues(ids), [12.5, 12.5, 25.0], "other groups");
    server.change(|settings| settings.groups = None);
    assert_eq!(server.dues(ids), [50.0 / 3.0; 3]);
    server.overrides_groups(&[("a", maximum(30.0))]);
    assert_eq!(server.dues(ids), [50.0 / 3.0; 3], "there are no groups");
    server.change(|settings| settings.groups = grouped("{org}/*", [], 0.0).groups);
    server.overrides_groups(&[("a", maximum(30.0))]);
    assert_eq!(server.dues(ids), [12.5, 12.5, 25.0]);
    let half = set(None, OverrideValue::Capacity { load: Load::Factor(0.5), above: false });
    let groups = vec![set(Some("b"), OverrideValue::Group(maximum(5.0)))];
    server.resource.set_overrides(server.now, ResourceOverrides { capacity: Some(half), groups });
    assert_eq!(server.dues(ids), [10.0, 10.0, 5.0], "with half of the capacity");
}

/// An override that the template has made impossible since.
#[test]
fn impossible_override_of_a_group_is_cut_to_what_is_possible() {
    let mut server =
        Server::new(Settings { whole_units: true, ..grouped("{team}/*", [at_least("a", 4.0, true)], 10.0) });
    server.overrides_groups(&[("a", maximum(2.5)), ("b", maximum(0.0))]);
    server.settle_down(&[("a/1", 9.0), ("b/1", 9.0), ("c/1", 9.0)]);
    assert_eq!(server.dues(["a/1", "b/1", "c/1"]), [2.0, 0.0, 8.0]);
}

/// Many rules of a template and as many overrides.
#[test]
fn overrides_of_groups_fit_beside_all_rules_of_a_template() {
    let names: Vec<String> = (0..100).map(|n| format!("t{n}")).collect();
    let rules = names.iter().map(|name| at_most(name, 1.0));
    let mut server = Server::new(grouped("{team}/*", rules, 10_000.0));
    let more: Vec<String> = (100..200).map(|n| format!("t{n}")).collect();
    let changes: Vec<_> = more.iter().map(|name| (name.as_str(), maximum(2.0))).collect();
    server.overrides_groups(&changes);
    server.settle_down(&[("t0/1", 9.0), ("t199/1", 9.0), ("t200/1", 9.0)]);
    assert_eq!(server.dues(["t0/1", "t199/1", "t200/1"]), [1.0, 2.0, 9.0]);
    let sent = server.resource.settings().parameters();
    let mut read = Settings::new(AlgorithmKind::FairShare, Amount::ZERO);
    sent.iter().for_each(|parameter| read.apply(parameter).expect("a child node can read it"));
    assert_eq!(read.groups, server.resource.settings().groups);
}
