//! Mistakes in an algorithm: the message and position of each class.

use super::{accepted, found, refused::mistakes};

/// The mistakes of an algorithm, which starts at line 4, column 14.
fn algorithm_mistakes(algorithm: &str) -> Vec<String> {
    mistakes(&format!("- identifier_glob: a\n  capacity: 1\n  algorithm: {algorithm}"))
}

#[test]
fn kinds() {
    let known = "known: NO_ALGORITHM, STATIC, PROPORTIONAL_SHARE, FAIR_SHARE, PRIORITY_POOL, BUDGET";
    for (kind, expected) in [
        ("FAIRSHARE", format!("unknown kind `FAIRSHARE` (did you mean `FAIR_SHARE`?); {known}")),
        ("fair_share", format!("unknown kind `fair_share` (did you mean `FAIR_SHARE`?); {known}")),
        ("ROUND_ROBIN", format!("unknown kind `ROUND_ROBIN`; {known}")),
        ("-1", format!("unknown kind `-1`; {known}")),
        (
            "[]",
            "`kind` is a list, expected one of NO_ALGORITHM, STATIC, PROPORTIONAL_SHARE, FAIR_SHARE, PRIORITY_POOL, BUDGET"
                .into(),
        ),
    ] {
        assert_eq!(algorithm_mistakes(&format!("{{kind: {kind}}}")), [format!("4:21: {expected}")], "{kind}");
    }
}

#[test]
fn durations() {
    let range = "expected whole seconds from 1 to 2678400 (31 days)";
    for (value, expected) in [
        ("0", format!("is `0`, {range}")),
        ("5.5", format!("is `5.5`, {range}")),
        ("60s", format!("is `60s`, {range}")),
        ("2678401", format!("is `2678401`, {range}")),
        ("'60'", format!("is `\"60\"`, {range}; remove the quotes")),
        ("[60]", format!("is a list, {range}")),
    ] {
        for key in ["lease_length", "refresh_interval"] {
            let column = 14 + "{kind: STATIC, : ".len() + key.len();
            let algorithm = format!("{{kind: STATIC, {key}: {value}}}");
            assert_eq!(algorithm_mistakes(&algorithm), [format!("4:{column}: `{key}` {expected}")], "{algorithm}");
        }
    }
    assert_eq!(
        algorithm_mistakes("{kind: STATIC, learning_mode_duration: 1.5}"),
        [
            "4:53: `learning_mode_duration` is `1.5`, expected whole seconds up to 2678400 (31 days); 0 or less: no learning mode"
        ]
    );
    assert_eq!(
        algorithm_mistakes("{kind: STATIC, lease_length: 10, refresh_interval: 11}"),
        [
            "4:65: `refresh_interval` is `11`: longer than the `lease_length` of 10; leases would end before clients ask again"
        ]
    );
    assert_eq!(
        algorithm_mistakes("{kind: STATIC, refresh_interval: 61}"),
        [
            "4:47: `refresh_interval` is `61`: longer than the `lease_length` of 60 (the default); leases would end before clients ask again"
        ]
    );
    assert_eq!(
        algorithm_mistakes("{kind: STATIC, lease_length: x, refresh_interval: 61}"),
        [format!("4:43: `lease_length` is `x`, {range}")],
        "invalid durations are not compared"
    );
}

#[test]
fn parameters() {
    let known = "known: priority, reserve, max_priority, doorman_priority, reuse, shadow, whole_units, rotation_period, \
                 headroom, decay_factor, min_request_interval, capacity_floor, capacity_ceiling";
    let reuse = "expected `confirmed` (leases in use never exceed the capacity) or `prompt` (as Doorman)";
    for (parameters, expected) in [
        (
            "[{name: priorty, value: strict}, {name: foo, value: bar}]",
            vec![
                format!("4:49: unknown parameter `priorty` (did you mean `priority`?); {known}"),
                format!("4:81: unknown parameter `foo`; {known}"),
            ],
        ),
        (
            "[{name: reuse, value: soon}, {name: max_priority, value: 1}, {name: max_priority, value: 2}]",
            vec![
                format!("4:63: parameter `reuse` is `soon`, {reuse}"),
                "4:109: duplicate parameter `max_priority`: it is already given".into(),
            ],
        ),
        (
            "[5, {value: 3}, {name: reuse}, {name: max_priority, vale: 3}, {name: [], value: 3}, {name: reuse, value: []}]",
            vec![
                "4:42: a parameter is `5`, expected a map with the keys name, value".into(),
                "4:45: a parameter needs a `name`".into(),
                format!("4:64: parameter `reuse` is ``, {reuse}"),
                "4:79: parameter `max_priority` is ``, expected a whole number from -32768 to 32767, the highest priority a client may claim"
                    .into(),
                "4:93: unknown key `vale` (did you mean `value`?); known: name, value".into(),
                "4:110: `name` is a list, expected the name of a parameter".into(),
                "4:132: duplicate parameter `reuse`: it is already given".into(),
            ],
        ),
        (
            "{reuse: , max_priority: [3], priority: strict, priority: ignore, foo: bar}",
            vec![
                format!("4:42: parameter `reuse` is ``, {reuse}"),
                "4:65: `max_priority` is a list, expected text or a number".into(),
                "4:88: duplicate key `priority`: it is already given on line 4".into(),
                format!("4:106: unknown parameter `foo`; {known}"),
            ],
        ),
        (
            "{priority: high, reserve: 1.5}",
            vec![
                "4:52: parameter `priority` is `high`, expected `ignore` (as Doorman), `strict` (higher priorities \
                 first) or `weighted` (a client of priority 3 counts as three)".into(),
                "4:67: parameter `reserve` is `1.5`, expected a fraction from 0 (nothing) to 1 of the capacity, \
                 shared by all priorities under `priority: strict`".into(),
            ],
        ),
        (
            "{min_capacity: 2}",
            vec!["4:56: parameter `min_capacity` is for PRIORITY_POOL only; the algorithm here is STATIC".into()],
        ),
        (
            "strict",
            vec!["4:41: `parameters` is `strict`, expected a list of `{name: …, value: …}`, or a map of names to values".into()],
        ),
    ] {
        let algorithm = format!("{{kind: STATIC, parameters: {parameters}}}");
        assert_eq!(algorithm_mistakes(&algorithm), expected, "{parameters}");
    }
}

#[test]
fn a_reserve_without_strict_bands() {
    let template = |parameters: &str| {
        format!("- identifier_glob: a\n  capacity: 10\n  algorithm: {{kind: FAIR_SHARE, parameters: {{{parameters}}}}}")
    };
    for (priority, name) in [("", "ignore"), (", priority: ignore", "ignore"), (", priority: weighted", "weighted")] {
        let expected = format!(
            "2:20: parameter `reserve` is 0.2, but `priority` is `{name}`: a reserve needs strict priorities; \
             set `priority` to `strict`, or remove `reserve`"
        );
        assert_eq!(mistakes(&template(&format!("reserve: 0.2{priority}"))), [expected]);
    }
    let fine = template("reserve: 0.2, priority: strict");
    assert_eq!(found(&accepted(&format!("resources:\n{fine}")), "a").settings.reserve, 0.2);
}

#[test]
fn pools() {
    let template = |parameters: &str| {
        format!(
            "- identifier_glob: a\n  capacity: 10\n  algorithm: {{kind: PRIORITY_POOL, parameters: {{{parameters}}}}}"
        )
    };
    for (parameters, expected) in [
        (
            "min_capacity: 11",
            "2:20: parameter `min_capacity` is 11, more than the capacity of 10, so no client would fit; lower `min_capacity`",
        ),
        (
            "max_capacity: 9",
            "2:20: parameter `max_capacity` is 9, less than the capacity of 10; raise or remove `max_capacity`",
        ),
        (
            "whole_units: true",
            "2:20: parameter `whole_units` is not allowed with PRIORITY_POOL, whose unit is `min_capacity`; remove `whole_units`",
        ),
        ("min_capacity: 0", "4:63: parameter `min_capacity` is `0`, expected an amount of more than 0, at most 1e15"),
    ] {
        assert_eq!(mistakes(&template(parameters)), [expected], "{parameters}");
    }
    let fine = template("min_capacity: 2, max_capacity: 20, drop_mode: exp");
    assert_eq!(found(&accepted(&format!("resources:\n{fine}")), "a").settings.pool.min_capacity.get(), 2.0);
}

/// Lease length, refresh interval and learning duration, in seconds.
fn lengths(algorithm: &str) -> (u64, u64, Option<u64>) {
    let text = format!("resources:\n- {{identifier_glob: a, capacity: 10, algorithm: {algorithm}}}");
    let settings = found(&accepted(&text), "a").settings.clone();
    (settings.lease.0 / 1000, settings.refresh.0 / 1000, settings.learning.map(|learning| learning.0 / 1000))
}

#[test]
fn whole_seconds_may_be_written_as_floats() {
    let written = "{kind: STATIC, lease_length: 60.0, refresh_interval: 5., learning_mode_duration: 1e1}";
    assert_eq!(lengths(written), (60, 5, Some(10)));
    assert_eq!(lengths("{kind: STATIC, learning_mode_duration: -1.0}"), (60, 5, Some(0)));
}

#[test]
fn null_counts_as_missing() {
    let written = "{kind: STATIC, lease_length: null, refresh_interval: ~, learning_mode_duration: , parameters: null}";
    assert_eq!(lengths(written), (60, 5, None));
}

#[test]
fn durations_may_be_parameters_as_in_the_design_document() {
    let with = |rest: &str| format!("{{kind: STATIC, {rest}}}");
    for parameters in [
        "{lease_duration_secs: 30, refresh_interval: 4}",
        "[{name: lease_duration_secs, value: 30.0}, {name: refresh_interval, value: 4}]",
    ] {
        assert_eq!(lengths(&with(&format!("parameters: {parameters}"))), (30, 4, None));
    }
    assert_eq!(
        lengths(&with("lease_length: 30, parameters: {lease_duration_secs: 30}")),
        (30, 5, None),
        "the same value twice"
    );
    assert_eq!(lengths(&with("parameters: {lease_duration_secs: 5}")), (5, 5, None));
    for (rest, expected) in [
        (
            "lease_length: 60, parameters: {lease_duration_secs: 30}",
            "parameter `lease_duration_secs` is 30, but the key `lease_length` is 60; give one of the two",
        ),
        (
            "refresh_interval: 5, parameters: {refresh_interval: 4}",
            "parameter `refresh_interval` is 4, but the key `refresh_interval` is 5; give one of the two",
        ),
        (
            "parameters: {lease_duration_secs: soon}",
            "parameter `lease_duration_secs` is `soon`, expected whole seconds from 1 to 2678400 (31 days)",
        ),
        (
            "parameters: {refresh_interval: }",
            "parameter `refresh_interval` is ``, expected whole seconds from 1 to 2678400 (31 days)",
        ),
        (
            "parameters: {lease_duration_secs: 10, refresh_interval: 11}",
            "`refresh_interval` is `11`: longer than the `lease_length` of 10 (the parameter); leases would end before clients ask again",
        ),
    ] {
        let mistakes = algorithm_mistakes(&with(rest));
        let [(_, mistake)] = mistakes.iter().filter_map(|mistake| mistake.split_once(": ")).collect::<Vec<_>>()[..]
        else {
            panic!("one mistake is expected: {mistakes:?}");
        };
        assert_eq!(mistake, expected, "{rest}");
    }
}
