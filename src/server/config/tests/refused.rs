//! Invalid files: the message and position of each class of mistakes.

use std::path::Path;

use super::refused;
use crate::config::load;

/// The mistakes of templates that are followed by a valid `*`.
pub(super) fn mistakes(templates: &str) -> Vec<String> {
    refused(&format!(
        "resources:\n{templates}\n- {{identifier_glob: \"*\", capacity: 1, algorithm: {{kind: FAIR_SHARE}}}}\n"
    ))
}

#[test]
fn files_without_templates() {
    let example = r#"resources: [{identifier_glob: "*", capacity: 100, algorithm: {kind: FAIR_SHARE}}]"#;
    super::accepted(example);
    for (text, before) in [
        ("", "1:1: the configuration is empty; for example: "),
        ("# only a comment\n", "1:1: the configuration is empty; for example: "),
        ("---\n", "1:1: the configuration is empty; for example: "),
        ("{}", "1:1: no `resources`; for example: "),
        ("resources:\n", "1:1: `resources` has no value, expected a list of templates; for example: "),
        ("resources: []", "1:12: `resources` has no templates; for example: "),
        ("resources: {}", "1:12: `resources` is a map, expected a list of templates; for example: "),
    ] {
        assert_eq!(refused(text), [format!("{before}{example}")], "{text}");
    }
}

#[test]
fn syntax_errors() {
    let alias = "a value that begins with `*` is a YAML alias: put patterns in quotes, like \"*\"";
    for (text, message) in [
        ("resources:\n- identifier_glob: *\n", format!("2:20: not YAML: {alias}")),
        ("resources:\n- identifier_glob: *foo\n", format!("2:20: not YAML: {alias}")),
        ("resources:\n\t- a\n", "2:2: not YAML: indent with spaces, not with tabs".into()),
        (
            "resources:\r\n- description: a: b\r\n",
            "2:17: not YAML: `: ` is not allowed here: check the indentation, and put text that contains `: ` in quotes"
                .into(),
        ),
        (
            "resources:\n- description: @home\n",
            "2:16: not YAML: text that begins with this character needs quotes".into(),
        ),
        ("resources: [1", "1:14: not YAML: expected `,` or `]`: is a `[` not closed?".into()),
        ("\u{feff}resources: 'a", "1:12: not YAML: a quotation mark is not closed".into()),
        (
            "resources: []\n---\nresources: []\n",
            "2:1: a second YAML document begins here: a configuration is one document, remove the `---`".into(),
        ),
        ("resources: !!str a", "1:12: YAML tags (`!…`) are not supported: remove the tag".into()),
    ] {
        assert_eq!(refused(text), [message], "{text}");
    }
}

#[test]
fn keys() {
    let known = "known: identifier_glob, capacity, safe_capacity, description, algorithm, clients, groups";
    for (templates, expected) in [
        (
            "- identifier_glob: a\n  capacity: 1\n  algoritm: 3\n  colour: red\n  identifierGlob: b",
            vec![
                format!("4:3: unknown key `algoritm` (did you mean `algorithm`?); {known}"),
                format!("5:3: unknown key `colour`; {known}"),
                format!("6:3: unknown key `identifierGlob` (did you mean `identifier_glob`?); {known}"),
            ],
        ),
        (
            "- identifier_glob: a\n  capacity: 1\n  capacity: 2\n  'capacity': 3",
            vec![
                "4:3: duplicate key `capacity`: it is already given on line 3".into(),
                "5:3: duplicate key `capacity`: it is already given on line 3".into(),
            ],
        ),
        (
            "- {identifier_glob: a, capacity: 1, [x]: 1, ~: 2}",
            vec!["2:37: a key must be text".into(), "2:45: a key must be text".into()],
        ),
        (
            "- {identifier_glob: a, capacity: 1, algorithm: &fair {kind: FAIR_SHARE}}\n- {identifier_glob: b, capacity: 1, algorithm: {<<: FAIR_SHARE, kind: STATIC}}",
            vec!["3:49: `<<` merges maps, expected an alias of a map, or a list of aliases".into()],
        ),
        (
            "- {identifier_glob: a, capacity: 1, algorithm: {kind: STATIC, lease: 60}}",
            vec![
                "2:63: unknown key `lease` (did you mean `lease_length`?); known: kind, lease_length, refresh_interval, \
                 learning_mode_duration, parameters"
                    .into(),
            ],
        ),
    ] {
        assert_eq!(mistakes(templates), expected, "{templates}");
    }
    assert_eq!(
        refused("resource: []")[0],
        "1:1: unknown key `resource` (did you mean `resources`?); known: resources, access"
    );
}

#[test]
fn types() {
    let template = "expected a map with the keys identifier_glob, capacity, safe_capacity, description, algorithm, clients, groups";
    let glob = "expected a resource id or a pattern (in quotes if it begins with `*`, `[` or `{`)";
    for (templates, expected) in [
        (
            "- 5\n-\n- []",
            vec![
                format!("2:3: a template is `5`, {template}"),
                format!("3:2: a template has no value, {template}"),
                format!("4:3: a template is a list, {template}"),
            ],
        ),
        (
            "- {capacity: 5}\n- {identifier_glob: }\n- {identifier_glob: ''}\n- {identifier_glob: [ab], capacity: {}}",
            vec![
                "2:3: a template needs an `identifier_glob`: a resource id or a pattern".into(),
                format!("3:4: `identifier_glob` has no value, {glob}"),
                format!("4:21: `identifier_glob` is `\"\"`, {glob}"),
                format!("5:21: `identifier_glob` is a list, {glob}"),
                "5:37: `capacity` is a map, expected a number like 100 or 7.5, or a rate like 60000/min".into(),
            ],
        ),
        (
            "- identifier_glob: a\n  capacity:\n  safe_capacity: ~\n  description: null\n  algorithm:",
            vec!["3:3: `capacity` has no value, expected a number like 100 or 7.5, or a rate like 60000/min".into()],
        ),
        (
            "- {identifier_glob: a, capacity: 1, description: [x], algorithm: FAIR_SHARE}",
            vec![
                "2:50: `description` is a list, expected text".into(),
                "2:66: `algorithm` is `FAIR_SHARE`, expected a map with the keys kind, lease_length, refresh_interval, \
                 learning_mode_duration, parameters"
                    .into(),
            ],
        ),
    ] {
        assert_eq!(mistakes(templates), expected, "{templates}");
    }
    assert_eq!(refused("- a"), ["1:1: the configuration is a list, expected a map with the keys resources, access"]);
}

#[test]
fn capacities() {
    let number = "expected a number like 100 or 7.5, or a rate like 60000/min";
    for (value, expected) in [
        ("-5", "is `-5`: must not be negative".to_owned()),
        (".NaN", "is `.NaN`: must be a finite number".into()),
        ("1e999", "is `1e999`: must be a finite number".into()),
        ("1e16", "is `1e16`: must be at most 1e15".into()),
        ("\"120\"", format!("is `\"120\"`, {number}; remove the quotes")),
        ("'lots'", format!("is `\"lots\"`, {number}")),
        ("lots", format!("is `lots`, {number}")),
        ("100qps", format!("is `100qps`, {number}")),
        ("100/month", format!("is `100/month`, {number}")),
        ("-5/min", "is `-5/min`: must not be negative".into()),
        ("010", format!("is `010`, {number}; remove the leading zero, which makes it octal to some YAML parsers")),
    ] {
        let templates = format!("- identifier_glob: a\n  capacity: {value}");
        assert_eq!(mistakes(&templates), [format!("3:13: `capacity` {expected}")], "{value}");
    }
    for (value, expected) in [
        ("-2", "is `-2`: must not be negative; only -1 may be given, for no limit"),
        ("'-1'", "is `\"-1\"`, expected a number, -1 for no limit; remove the quotes"),
        ("unlimited", "is `unlimited`, expected a number, -1 for no limit"),
    ] {
        let templates = format!("- identifier_glob: a\n  capacity: 1\n  safe_capacity: {value}");
        assert_eq!(mistakes(&templates), [format!("4:18: `safe_capacity` {expected}")], "{value}");
    }
}

#[test]
fn patterns() {
    for (pattern, expected) in [
        ("'a['", "is `\"a[\"`: `[` is never closed by `]`"),
        (
            "a[]",
            "is `a[]`: invalid character class: expected characters or ranges, like `[a-z]`; write `\\-` or `\\]` to match `-` or `]`",
        ),
        ("a\\", "is `a\\`: `\\` at the end escapes no character; write `\\\\` for a backslash"),
    ] {
        let templates = format!("- identifier_glob: {pattern}\n  capacity: 1");
        assert_eq!(mistakes(&templates), [format!("2:20: `identifier_glob` {expected}")], "{pattern}");
    }
}

#[test]
fn rules_between_templates() {
    let last = "`*` must be the last template: it matches every resource, so patterns after it would never match";
    let needs = "`*` needs an `algorithm`: the other templates inherit it";
    let fair = "algorithm: {kind: FAIR_SHARE}";
    for (text, expected) in [
        (
            format!("resources:\n- {{identifier_glob: '*', capacity: 1, {fair}}}\n- {{identifier_glob: a*, capacity: 1}}\n"),
            vec![format!("2:21: {last}")],
        ),
        (
            format!("resources:\n- {{identifier_glob: '*', capacity: 1, {fair}}}\n- {{identifier_glob: '*', capacity: 1, {fair}}}\n"),
            vec!["3:21: duplicate `identifier_glob` `*`: line 2 has the same, so this one would never match".into()],
        ),
        (
            format!("resources:\n- {{identifier_glob: a, capacity: 1, {fair}}}\n- {{identifier_glob: a, capacity: 1, {fair}}}\n"),
            vec!["3:21: duplicate `identifier_glob` `a`: line 2 has the same, so this one would never match".into()],
        ),
        (
            "resources:\n- {identifier_glob: a, capacity: 1}\n- {identifier_glob: '*', capacity: 1}\n".into(),
            vec![
                "2:21: no `algorithm`, and the template `*` has none to inherit".into(),
                format!("3:21: {needs}"),
            ],
        ),
        (
            "resources: [{identifier_glob: a, capacity: 1}]".into(),
            vec!["1:31: no `algorithm`, and there is no template `*` to inherit it from".into()],
        ),
        (
            format!("resources:\n- {{identifier_glob: a}}\n- {{identifier_glob: '*', {fair}}}\n"),
            vec![
                "2:21: a template with FAIR_SHARE needs a `capacity`, a number like 100 or 7.5, or a rate like 60000/min".into(),
                "3:21: a template with FAIR_SHARE needs a `capacity`, a number like 100 or 7.5, or a rate like 60000/min".into(),
            ],
        ),
        (
            "resources:\n- {identifier_glob: a}\n- {identifier_glob: '*', algorithm: {kind: FAIR}}\n".into(),
            vec!["3:44: unknown kind `FAIR` (did you mean `FAIR_SHARE`?); known: NO_ALGORITHM, STATIC, PROPORTIONAL_SHARE, FAIR_SHARE, PRIORITY_POOL, BUDGET".into()],
        ),
    ] {
        assert_eq!(refused(&text), expected, "{text}");
    }
}

#[test]
fn files_that_cannot_be_read() {
    let error = load(Path::new("/no/such/leaseway.yaml")).expect_err("no such file");
    assert_eq!(
        error.to_string(),
        "cannot read the configuration file /no/such/leaseway.yaml: No such file or directory (os error 2); \
         use a file that this user may read"
    );
    let directory = tempfile::tempdir().expect("a directory");
    let error = load(directory.path()).expect_err("a directory").to_string();
    assert!(error.contains("Is a directory"), "{error}");

    let path = directory.path().join("bad.yaml");
    std::fs::write(&path, "resources:\n- 5\n- 6\n").expect("written");
    let error = load(&path).expect_err("two mistakes").to_string();
    let locations: Vec<&str> = error.lines().filter_map(|line| line.strip_prefix(path.to_str()?)).collect();
    assert!(locations[0].starts_with(":2:3: ") && locations[1].starts_with(":3:3: "), "{error}");

    std::fs::write(&path, vec![b' '; crate::config::MAX_BYTES + 1]).expect("written");
    let error = load(&path).expect_err("too large").to_string();
    assert!(error.ends_with("bad.yaml:1:1: larger than 4194304 bytes, the maximum"), "{error}");
}

#[test]
fn rules_for_clients() {
    let mistakes = |rule: &str| {
        mistakes(&format!(
            "- {{identifier_glob: a, capacity: 100, algorithm: {{kind: FAIR_SHARE}}, clients: {rule}}}\n"
        ))
        .join("\n")
    };
    for (rule, says) in [
        ("{}", "expected a list of `{glob: …, weight: …, min: …, max: …}`"),
        ("[{weight: 2}]", "a rule for clients needs a `glob`"),
        ("[{glob: a, wieght: 2}]", "unknown key `wieght` (did you mean `weight`?)"),
        ("[{glob: a, weight: 1.5}]", "`weight` is `1.5`, expected a whole number from 1 to 1000"),
        ("[{glob: a, weight: 0}]", "`weight` is `0`, expected a whole number from 1 to 1000"),
        ("[{glob: a, min: -1}]", "`min` is `-1`: must not be negative"),
        ("[{glob: '[', max: 1}]", "`[` is never closed"),
        ("[{glob: a}, {glob: a}]", "duplicate `glob` `a`"),
        ("[{glob: a, min: 101}]", "a `min` of 101, more than the capacity of 100"),
        ("[{glob: a, min: 5, max: 4}]", "more than its `max` of 4"),
    ] {
        let found = mistakes(rule);
        assert!(found.contains(says), "{rule}: {found}");
    }
}

#[test]
fn groups() {
    let mistakes = |groups: &str, kind: &str| {
        let template = format!("- identifier_glob: a\n  capacity: 100\n  algorithm: {{kind: {kind}}}\n");
        mistakes(&format!("{template}  groups:\n    {groups}\n")).join("\n")
    };
    let rules = |rules: &str| format!("from: '{{org}}/{{team}}/*'\n    rules: {rules}");
    for (groups, says) in [
        ("{}", "6:5: `groups` needs `from`: the parts of a client id that name its groups"),
        ("[]", "6:5: `groups` is a list, expected a map with the keys from, rules"),
        ("from: '*'", "6:11: `from` is `\"*\"`: it has no level"),
        ("from: '{a}{b}'", "nothing separates two levels; write text"),
        ("from: 5", "`from` is `5`: it has no level"),
        (&rules("5"), "7:12: `rules` is `5`, expected a list of `{group: …"),
        (&rules("[{weight: 2}]"), "a rule for groups needs a `group`"),
        (&rules("[{group: a, wieght: 2}]"), "unknown key `wieght` (did you mean `weight`?)"),
        (&rules("[{group: a, weight: 0}]"), "`weight` is `0`, expected a whole number from 1 to 1000"),
        (&rules("[{group: a, minimum: -1}]"), "`minimum` is `-1`: must not be negative"),
        (&rules("[{group: a, lend: 1}]"), "`lend` is `1`, expected true or false"),
        (&rules("[{group: '['}]"), "`[` is never closed"),
        (&rules("[{group: a}, {group: a}]"), "duplicate `group` `a`: line 7 has the same"),
        (&rules("[{group: a, minimum: 101}]"), "5:3: `groups` gives `a` a `minimum` of 101, more than the capacity"),
        (&rules("[{group: a, minimum: 5, maximum: 4}]"), "more than its `maximum` of 4"),
        (&rules("[{group: a, lend: false}]"), "`groups` has `lend: false` for `a`, but no `minimum`"),
        (
            &rules("[{group: 'a*', minimum: 5, lend: false}]"),
            "`groups` has `lend: false` for the pattern `a*`, but a minimum can be reserved only for a single group",
        ),
        (&rules("[{group: a/b/c}]"), "it has 3 parts, but `from` has only 2"),
        (&rules("[{group: a, minimum: 60}, {group: b, minimum: 60}]"), "minimums of 120 in all"),
    ] {
        let found = mistakes(groups, "FAIR_SHARE");
        assert!(found.contains(says), "{groups}: {found}");
    }
    let found = mistakes("from: '{team}/*'", "STATIC");
    assert!(
        found.contains("5:3: `groups` needs FAIR_SHARE, PROPORTIONAL_SHARE, or BUDGET with `pace: true`, but the algorithm is STATIC; change the algorithm, or remove `groups`"),
        "{found}"
    );
}
