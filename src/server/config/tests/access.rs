//! `access:`: the meaning of rules, mistakes and warnings.

use leaseway_core::policy::access::{AccessRequest, Action, Identity, Policy};

use super::refused;
use crate::config::parse;

/// A rule that allows `configure`, to avoid a warning.
const OPS: &str = "- {name: ops, who: ops, may: [configure, read]}\n";

fn policy(rules: &str) -> Policy {
    let loaded = parse("f", &format!("access:\n{OPS}{rules}")).unwrap_or_else(|error| panic!("{error}\n{rules}"));
    assert_eq!(loaded.warnings, [], "{rules}");
    Policy::clone(&loaded.access.expect("there are rules"))
}

fn warnings(rules: &str) -> Vec<String> {
    let loaded = parse("f", &format!("access:\n{OPS}{rules}")).unwrap_or_else(|error| panic!("{error}\n{rules}"));
    loaded.warnings.iter().map(|warning| warning.to_string().trim_start_matches("f:").to_owned()).collect()
}

/// The mistakes of rules, which start on line 3.
fn mistakes(rules: &str) -> Vec<String> {
    refused(&format!("access:\n{OPS}{rules}"))
}

fn allows(policy: &Policy, identity: &str, request: &AccessRequest<'_>) -> bool {
    policy.of(&Identity::parse(identity).expect("a name")).decide(request).allowed
}

fn asks<'a>(resource: &'a str, client: &'a str) -> AccessRequest<'a> {
    AccessRequest { holder: Some(client), priority: Some(0), ..AccessRequest::on(Action::Ask, resource) }
}

#[test]
fn a_rule_with_every_key() {
    let policy = policy(
        r#"
- name: web                       # named in denials
  who: ["spiffe://acme/web/*"]
  may: ask
  resources: ["db/*"]
  clients: ["{identity}", "{identity}/*"]
  max_priority: 5
- {name: region, who: region-1, may: [lend, read], nodes: "region-*"}
"#,
    );
    assert_eq!(policy.rules().iter().map(|rule| rule.name.as_str()).collect::<Vec<_>>(), ["ops", "web", "region"]);
    let web = "spiffe://acme/web/1";
    assert!(allows(&policy, web, &asks("db/x", web)));
    assert!(!allows(&policy, web, &AccessRequest { priority: Some(6), ..asks("db/x", web) }));
    assert!(!allows(&policy, web, &asks("cache", web)) && !allows(&policy, web, &asks("db/x", "bob")));
    let lend = AccessRequest { holder: Some("region-2"), ..AccessRequest::on(Action::Lend, "db") };
    assert!(allows(&policy, "region-1", &lend) && !allows(&policy, web, &lend));
}

#[test]
fn defaults_of_a_rule() {
    let policy = policy("- {who: \"*\", may: [ask, lend]}\n");
    assert_eq!(policy.rules()[1].name, "rule 2");
    assert!(allows(&policy, "a", &AccessRequest { priority: Some(i16::MAX), ..asks("any/where", "a/1") }));
    let lend = |node| AccessRequest { holder: Some(node), ..AccessRequest::on(Action::Lend, "any") };
    assert!(allows(&policy, "a", &lend("a")) && !allows(&policy, "a", &lend("a/1")));
    assert!(!allows(&policy, "anonymous", &asks("any", "anonymous")));
}

#[test]
fn access_may_stand_alone_or_beside_templates() {
    let alone = parse("f", &format!("access:\n{OPS}")).expect("valid");
    assert!(!alone.has_templates() && alone.check_templates("f", true).is_ok());
    let error = alone.check_templates("f", false).expect_err("a root has templates").to_string();
    assert!(error.starts_with("f:1:1: no `resources`; for example: "), "{error}");
    let both =
        format!("access:\n{OPS}resources: [{{identifier_glob: '*', capacity: 1, algorithm: {{kind: STATIC}}}}]\n");
    let both = parse("f", &both).expect("valid");
    assert!(both.access.is_some() && both.check_templates("f", false).is_ok());
    let error = both.check_templates("f", true).expect_err("the parent has the templates").to_string();
    assert!(error.starts_with("f:3:1: a node with a parent takes its templates from the parent"), "{error}");
}

#[test]
fn mistakes_have_positions() {
    let actions = "known: ask, lend, read, configure, pools, peers, override, limits, declare";
    for (rules, expected) in [
        (
            "- {who: a, may: overide}",
            vec![format!("3:17: unknown action `overide` (did you mean `override`?); {actions}")],
        ),
        (
            "- {who: a, may: [read, peer]}",
            vec![format!("3:24: unknown action `peer` (did you mean `peers`?); {actions}")],
        ),
        (
            "- {who: a, may: ask, resource: b}",
            vec![
                "3:22: unknown key `resource` (did you mean `resources`?); known: name, who, may, resources, clients, \
                 nodes, max_priority"
                    .to_owned(),
            ],
        ),
        (
            "- {who: a, may: ask, clients: '{idenity}/*'}",
            vec![
                "3:31: `{idenity}/*`: unknown placeholder `{idenity}` (did you mean `{identity}`?); known: {identity} \
                 (write `\\{` for a brace itself)"
                    .to_owned(),
            ],
        ),
        ("- {who: a, may: ask, resources: 'a['}", vec!["3:33: `a[`: `[` is never closed by `]`".to_owned()]),
        ("- {who: a, may: ask, resources: ''}", vec!["3:33: an empty pattern matches no id".to_owned()]),
        ("- {who: '{identity}', may: ask}", vec!["3:9: `{identity}`: `{identity}` is not allowed in `who`".to_owned()]),
        (
            "- {who: a, may: ask, max_priority: high}",
            vec!["3:36: `max_priority` is `high`, expected a whole number from -32768 to 32767".to_owned()],
        ),
        (
            "- {name: ops, who: a, may: ask}",
            vec!["3:3: duplicate rule name `ops`, already used on line 2; rename one of the rules, because denials show only the name".to_owned()],
        ),
    ] {
        assert_eq!(mistakes(rules), expected, "{rules}");
    }
    for (rules, says) in [
        ("- {may: ask}", "3:3: a rule needs `who`"),
        ("- {who: a}", "3:3: a rule needs `may`"),
        ("- {who: [], may: ask}", "3:9: an empty list"),
        ("- ask", "3:3: a rule is `ask`, expected a map"),
        ("- {who: \"a\\x07\", may: ask}", "matches no identity"),
    ] {
        let mistakes = mistakes(rules);
        assert!(mistakes.iter().any(|mistake| mistake.contains(says)), "{rules}: {mistakes:?}");
    }
    assert!(refused("access: []")[0].starts_with("1:9: `access` has no rules, so nothing is allowed"));
}

#[test]
fn rules_and_keys_without_effect_are_warnings() {
    for (rules, expected) in [
        ("- {who: a, may: read, clients: b}", "3:23: `clients` has no effect: the rule lets no identity ask"),
        ("- {who: a, may: ask, nodes: b}", "3:22: `nodes` has no effect: the rule lets no identity lend"),
        (
            "- {who: a, may: read, max_priority: 1}",
            "3:23: `max_priority` has no effect: the rule lets no identity ask or lend",
        ),
        (
            "- {who: a, may: peers, resources: b}",
            "3:24: `resources` has no effect: the rule lets no identity do anything to a resource",
        ),
        ("- {who: [a, a], may: ask}", "3:13: `a` is in this list twice"),
        (
            "- {who: a, may: ask, resources: [b, '*']}",
            "3:33: `*` matches everything, so the other patterns of this list have no effect",
        ),
        (
            "- {who: a, may: ask}\n- {who: a, may: ask, resources: b, max_priority: 3}",
            "4:3: this rule has no effect: rule `rule 2` already allows the same",
        ),
    ] {
        assert_eq!(warnings(rules), [expected], "{rules}");
    }
    let anonymous = warnings("- {who: anonymous, may: ask}");
    assert!(anonymous[0].starts_with("3:9: anonymous callers have no identity for `{identity}`"), "{anonymous:?}");
    assert_eq!(warnings("- {who: anonymous, may: ask, clients: guest}"), [""; 0]);
    let loaded = parse("f", "access: [{who: a, may: read}]").expect("valid");
    let warning = loaded.warnings[0].to_string();
    assert!(warning.starts_with("f:1:1: no rule lets an identity `configure`"), "{warning}");
}
