use super::*;
use crate::scenario::plan::Plan;

const LEAST: &str = "\
about: the least
length: 60s
resource:
  capacity: 100
  algorithm: FAIR_SHARE
  lease: 20s
  refresh: 5s
nodes:
  - {name: root, clients: [{count: 1, wants: {constant: 10}}]}
";

fn refused(text: &str) -> String {
    Scenario::parse("mine.yaml", text).expect_err("something is wrong with it")
}

#[test]
fn built_in_scenarios_are_valid() {
    for (name, text) in BUILT_IN {
        let scenario = Scenario::parse(name, text).unwrap_or_else(|error| panic!("{error}"));
        assert!(!scenario.about.is_empty());
    }
}

#[test]
fn a_node_may_override_the_handover_of_the_scenario() {
    let text =
        format!("{LEAST}  - {{name: leaf, parent: root, times: 2, handover: learning, sends_instance: false}}\n");
    for (everywhere, root) in [("promises", Handover::Promises), ("learning", Handover::Learning)] {
        let text = format!("handover: {everywhere}\n{text}");
        let plan = Plan::new(Scenario::parse("two", &text).expect("it is valid")).expect("it is valid");
        let of_nodes = [0, 1, 2].map(|node| (plan.handover(node), plan.spec(node).sends_instance));
        let leaf = (Handover::Learning, false);
        assert_eq!(of_nodes, [(root, true), leaf, leaf]);
    }
}

#[test]
fn errors_have_file_line_and_the_expected_value() {
    for (right, wrong, expected) in [
        ("length: 60s", "length: 60", "mine.yaml:2:9: "),
        ("length: 60s", "length: 60", "like 300s"),
        ("FAIR_SHARE", "FAIR_SHAER", "mine.yaml:5:14: "),
        ("FAIR_SHARE", "FAIR_SHAER", "did you mean FAIR_SHARE"),
        ("capacity: 100", "capacity: lots", "mine.yaml:4:13: "),
        ("  lease: 20s", "  laese: 20s", "mine.yaml:6:3: "),
        ("  lease: 20s", "  laese: 20s", "expected one of capacity, algorithm, parameters, lease"),
        ("constant: 10", "constnat: 10", "expected one of constant, walk, drawn, pareto, lognormal"),
        ("about: the least\n", "", "missing field `about`"),
    ] {
        let error = refused(&LEAST.replace(right, wrong));
        assert!(error.contains(expected), "{wrong}: {error}\nexpected {expected}");
    }
}

#[test]
fn invalid_scenarios_are_refused() {
    for (right, wrong, expected) in [
        ("length: 60s", "length: 0s", "`length` is 0s"),
        ("refresh: 5s", "refresh: 1500ms", "`refresh` is 1500ms, expected whole seconds"),
        ("capacity: 100", "capacity: -1", "must not be negative"),
        ("  lease: 20s", "  lease: 20s\n  parameters: {resue: prompt}", "did you mean `reuse`"),
        ("  - {name: root", "  - {name: root, times: 2", "root"),
        ("constant: 10", "constant: -1", "`constant` must not be negative"),
        ("nodes:", "events: [{at: 1s, do: {election: {node: rot}}}]\nnodes:", "no node `rot`"),
        ("nodes:", "random_faults: [{from: 1s, every: 1s, one_of: []}]\nnodes:", "`one_of`"),
        ("{constant: 10}", "{constant: 10}, assigned: -1", "`assigned` must not be negative"),
        ("{constant: 10}", "{constant: 10}, speaks: limiter, window: 0s", "`window` is 0s"),
        ("{constant: 10}", "{constant: 10}, uses: {part: 50%, burst: 0s}", "`burst` is 0s"),
        (
            "FAIR_SHARE",
            "PRIORITY_POOL\n  parameters: {max_capacity: 10}",
            "`max_capacity` is 10, less than the capacity of 100",
        ),
        (
            "nodes:",
            "random_faults: [{from: 1s, every: 0s..1s, one_of: [{weight: 1, do: {election: {}}}]}]\nnodes:",
            "`every`",
        ),
    ] {
        let error = refused(&LEAST.replace(right, wrong));
        assert!(error.contains(expected) && error.contains("mine.yaml"), "{wrong}: {error}\nexpected {expected}");
    }
    let two = format!("{LEAST}  - {{name: leaf}}\n");
    assert!(refused(&two).contains("`leaf` has no `parent`"));
    let below_none = format!("{LEAST}  - {{name: leaf, parent: rot}}\n");
    assert!(refused(&below_none).contains("the parent of `leaf` is `rot`, expected a node earlier in the file: root"));
}

#[test]
fn random_wants_have_the_right_median() {
    let mut rng = fastrand::Rng::with_seed(1);
    let mut median = |wants: Wants| {
        let mut drawn: Vec<f64> = (0..4001).map(|_| wants.first(&mut rng)).collect();
        drawn.sort_by(f64::total_cmp);
        drawn[2000]
    };
    let pareto = median(Wants::Pareto { alpha: 1.1, least: 2.0 });
    assert!((pareto / (2.0 * 2f64.powf(1.0 / 1.1)) - 1.0).abs() < 0.06, "{pareto}");
    let lognormal = median(Wants::Lognormal { median: 3.0, sigma: 1.0 });
    assert!((lognormal / 3.0 - 1.0).abs() < 0.06, "{lognormal}");
}

#[test]
fn an_override_has_one_capacity_and_a_known_node() {
    let with = |set: &str| format!("{LEAST}events:\n  - {{at: 1s, do: {{override: {{{set}, ends: 5s}}}}}}\n");
    for (set, expected) in [
        ("capacity: 1, factor: 0.5", "either a `capacity` or a `factor`"),
        ("above: true", "either a `capacity` or a `factor`"),
        ("factor: -1", "`override` "),
        ("node: nowhere, factor: 0.5", "there is no node `nowhere`"),
    ] {
        let error = refused(&with(set));
        assert!(error.contains(expected), "{set}: {error}\nexpected {expected}");
    }
    let set = Scenario::parse("mine.yaml", &with("node: root, factor: 0.5")).expect("it is valid");
    assert_eq!(set.faults().count(), 1);
}
