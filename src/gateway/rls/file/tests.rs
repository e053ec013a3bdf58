use super::*;

fn wrong(text: &str) -> String {
    parse("f.yaml", text.as_bytes()).expect_err(text).to_string()
}

#[test]
fn errors_have_the_position_and_what_was_expected() {
    for (text, says) in [
        ("", "f.yaml:1:1: the file has no rules; a minimal one has `domain: shop`"),
        ("descriptors: []", "f.yaml:1:1: `domain` is missing"),
        ("domain: ''", "f.yaml:1:1: `domain` is missing"),
        ("domain: d\nextra: 1", "f.yaml:2:1: unknown key `extra`"),
        ("domain: d\ndescriptors: 1", "f.yaml:2:14: `descriptors` is `1`, expected a list of descriptors"),
        ("domain: d\ndescriptors: [{value: x}]", "f.yaml:2:15: a descriptor needs a `key`"),
        ("domain: d\ndescriptors: [{key: a}, {key: a}]", "f.yaml:2:25: duplicate descriptor `d.a` in this list"),
        ("domain: d\ndescriptors: [{key: a, rate_limit: {unit: day}}]", "a limit needs `requests_per_unit`"),
        ("domain: d\ndescriptors: [{key: a, rate_limit: {requests_per_unit: 1}}]", "a limit needs a `unit`"),
        (
            "domain: d\ndescriptors: [{key: a, rate_limit: {unit: secnd, requests_per_unit: 1}}]",
            "f.yaml:2:43: unknown unit `secnd` (did you mean `second`?)",
        ),
        (
            "domain: d\ndescriptors: [{key: a, rate_limit: {unit: day, requests_per_unit: -1}}]",
            "f.yaml:2:67: `requests_per_unit` is `-1`, expected a whole number from 0 to 4294967295",
        ),
        (
            "domain: d\ndescriptors: [{key: a, rate_limit: {unit: day, unlimited: true}}]",
            "f.yaml:2:37: `unit` contradicts `unlimited: true`",
        ),
        ("domain: d\ndescriptors: [{key: a, share_threshold: true}]", "2:24: `share_threshold` needs a `value` with a"),
        ("domain: d\ndescriptors: [{key: a, metadata: [x]}]", "2:34: `metadata` is a list, expected a map"),
        (
            "domain: d\ndescriptors: [{key: a, shadow_mode: perhaps, rate_limit: {unlimited: true}}]",
            "f.yaml:2:37: `shadow_mode` is `perhaps`, expected true or false",
        ),
        (
            "domain: d\ndescriptors: [{key: a, rate_limit: {unlimited: true, name: x, replaces: [{name: x}]}}]",
            "a rule cannot replace itself",
        ),
        (
            "domain: d\ndescriptors: [{key: a, rate_limit: {unlimited: true, replaces: [{}]}}]",
            "an element of `replaces` needs the `name` of a rule",
        ),
    ] {
        let error = wrong(text);
        assert!(error.contains(says), "{text}\n{error}\n{says}");
    }
    let both = wrong("domain: d\ndescriptors: [{value: x}, {key: a, rate_limit: {}}]");
    assert!(both.lines().count() >= 3, "all errors at once: {both}");
}

#[test]
fn ignored_keys_are_warnings() {
    let parse = |text: &str| parse("f.yaml", text.as_bytes()).expect(text);
    for (text, warns) in [
        ("domain: d\nkey: x", Some("2:1: `key` has no effect here")),
        ("domain: d\ndescriptors: [{key: a, shadow_mode: true}]", Some("has no effect without a `rate_limit`")),
        ("domain: d\ndescriptors: [{key: a, quota_mode: true}]", Some("`quota_mode` has no effect without")),
        (
            "domain: d\ndescriptors: [{key: a, rate_limit: {unlimited: true, requests_per_unit: 1}}]",
            Some("2:54: `requests_per_unit` has no effect with `unlimited: true`"),
        ),
        ("domain: d\ndescriptors: [{key: a, value_to_metric: true, metadata: {any: {name: [x, 1]}}}]", None),
        ("domain: d\ndescriptors: [{key: a, value: 1, rate_limit: {unit: SECOND, requests_per_unit: 1}}]", None),
        ("domain: d\ndescriptors:", None),
    ] {
        let warnings: Vec<String> = parse(text).warnings.iter().map(ToString::to_string).collect();
        assert_eq!(warnings.len(), usize::from(warns.is_some()), "{text}: {warnings:?}");
        assert!(warns.is_none_or(|warns| warnings[0].contains(warns)), "{text}: {warnings:?}");
    }
}

#[test]
fn a_directory_has_a_file_for_each_domain() {
    let directory = tempfile::tempdir().expect("a directory");
    let write = |name: &str, text: &str| std::fs::write(directory.path().join(name), text).expect("written");
    let paths = [directory.path().to_owned()];
    assert!(matches!(load(&paths, false), Err(RulesError::NoFile(_))));
    write("b.yaml", "domain: b");
    write("a.yml", "domain: a");
    write(".hidden.yaml", "nonsense");
    write("notes.txt", "nonsense");
    let loaded = load(&paths, false).expect("both are valid");
    assert!(loaded.rules.domain("a").is_some() && loaded.rules.domain("b").is_some());
    write("c.yaml", "domain: a");
    write("d.yaml", "nonsense: [");
    let error = load(&paths, false).expect_err("a duplicate domain and an invalid file").to_string();
    assert!(
        error.contains("--rls-merge-domains") && error.contains("c.yaml:1:9: ") && error.contains("/a.yml; define"),
        "{error}"
    );
    assert!(error.contains("d.yaml:"), "{error}");
    assert!(load(&["/no/such/file".into()], false).is_err_and(|error| error.to_string().contains("/no/such/file")));
}

#[test]
fn files_of_one_domain_are_merged_if_that_is_asked_for() {
    let directory = tempfile::tempdir().expect("a directory");
    let write = |name: &str, text: &str| std::fs::write(directory.path().join(name), text).expect("written");
    let paths = [directory.path().to_owned()];
    let limit = "rate_limit: {unit: day, requests_per_unit: 5}";
    write("a.yaml", &format!("domain: d\ndescriptors: [{{key: a, {limit}}}, {{key: v, value: 'x*', {limit}}}]"));
    write(
        "b.yaml",
        &format!("domain: d\ndescriptors: [{{key: a, value: b, {limit}}}, {{key: v, value: 'y*', {limit}}}]"),
    );
    let loaded = load(&paths, true).expect("no descriptor is in both");
    let domain = loaded.rules.domain("d").expect("merged");
    for (key, value) in [("a", "x"), ("a", "b"), ("v", "x1"), ("v", "y1")] {
        assert!(domain.rule([(key, value)]).is_some(), "{key}={value}");
    }
    write("c.yaml", "domain: d\ndescriptors: [{key: v, value: 'x*'}]");
    let error = load(&paths, true).expect_err("the same descriptor").to_string();
    assert!(error.contains("c.yaml:1:9: duplicate descriptor `v_x*`: it is also in the domain `d` in "), "{error}");
}
