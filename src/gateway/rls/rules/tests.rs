//! The examples in the documentation of envoyproxy/ratelimit, and the behaviour of its service beyond them.

use super::*;
use crate::rls::file::parse;

fn domain(text: &str) -> Domain {
    parse("rules.yaml", text.as_bytes()).expect("rules").domain
}

/// Each row of `table` has a descriptor, `key=value,key=value`, and its limit: `requests/unit`, `unlimited` or nothing.
fn assert_limits(text: &str, table: &[(&str, &str)]) {
    let domain = domain(text);
    for (descriptor, says) in table {
        let entries = descriptor.split(',').map(|entry| entry.split_once('=').expect("key=value"));
        let said = match domain.rule(entries).map(|matched| matched.rule.limit) {
            None => String::new(),
            Some(Limit::Unlimited) => "unlimited".to_owned(),
            Some(Limit::PerUnit { requests, unit }) => format!("{requests}/{}", unit.name()),
        };
        assert_eq!(said, *says, "{descriptor} under\n{text}");
    }
}

#[test]
fn values_have_rules_of_their_own() {
    let text = "
domain: mongo_cps
descriptors:
- {key: database, value: users, rate_limit: {unit: second, requests_per_unit: 500}}
- {key: database, value: default, rate_limit: {unit: second, requests_per_unit: 400}}
";
    let table =
        [("database=users", "500/second"), ("database=default", "400/second"), ("database=other", ""), ("x=users", "")];
    assert_limits(text, &table);
}

#[test]
fn rules_are_nested_and_a_key_alone_is_for_all_values() {
    let text = "
domain: messaging
descriptors:
- key: message_type
  value: marketing
  descriptors: [{key: to_number, rate_limit: {unit: day, requests_per_unit: 5}}]
- {key: to_number, rate_limit: {unit: day, requests_per_unit: 100}}
";
    let table = [
        ("message_type=marketing,to_number=2061111111", "5/day"),
        ("to_number=2061111111", "100/day"),
        ("message_type=marketing", ""),
        ("message_type=other,to_number=2061111111", ""),
        ("to_number=2061111111,message_type=marketing", ""),
    ];
    assert_limits(text, &table);
}

#[test]
fn the_most_specific_rule_of_a_level_counts() {
    let text = "
domain: edge_proxy_per_ip
descriptors:
- {key: remote_address, rate_limit: {unit: second, requests_per_unit: 10}}
- {key: remote_address, value: 50.0.0.5, rate_limit: {unit: second, requests_per_unit: 0}}
- {key: remote_address, value: 50.0.0.6}
- {key: remote_address, value: 10.0.*, rate_limit: {unit: minute, requests_per_unit: 2}}
- {key: remote_address, value: 10.*, rate_limit: {unit: minute, requests_per_unit: 1}}
";
    let table = [
        ("remote_address=50.0.0.1", "10/second"),
        ("remote_address=50.0.0.5", "0/second"),
        ("remote_address=50.0.0.6", ""),
        ("remote_address=10.0.0.1", "2/minute"),
        ("remote_address=10.1.0.1", "1/minute"),
        ("remote_address=", "10/second"),
    ];
    assert_limits(text, &table);
}

#[test]
fn a_star_matches_any_characters_anywhere() {
    let text = "
domain: routes
descriptors:
- {key: path, value: /api/*/action, rate_limit: {unit: second, requests_per_unit: 1}}
- {key: path, value: '*/v*/*.html', rate_limit: {unit: second, requests_per_unit: 2}}
- {key: path, value: a*a, rate_limit: {unit: second, requests_per_unit: 3}}
- {key: path, value: /api/*, rate_limit: {unit: second, requests_per_unit: 4}}
";
    let table = [
        ("path=/api/42/action", "1/second"),
        ("path=/api/a/b/action", "1/second"),
        ("path=/api//action", "1/second"),
        ("path=/api/action", "4/second"),
        ("path=/api/42/action/", "4/second"),
        ("path=x/v1/y.html", "2/second"),
        ("path=/v/.html", "2/second"),
        ("path=x/v1.html", ""),
        ("path=aa", "3/second"),
        ("path=a", ""),
    ];
    assert_limits(text, &table);
}

#[test]
fn values_that_share_a_resource_are_named_by_their_pattern() {
    let text = "
domain: routes
descriptors:
- {key: path, value: /api/*/action, share_threshold: true, rate_limit: {unit: second, requests_per_unit: 1}}
- {key: path, value: /files/*, share_threshold: true, rate_limit: {unit: second, requests_per_unit: 1}}
";
    let domain = domain(text);
    let shared = |value| domain.shared([("path", value)]).collect::<Vec<_>>();
    assert_eq!(shared("/api/1/action"), [("path", "/api/*/action")]);
    assert_eq!(shared("/files/a.pdf"), [("path", "/files/*")]);
}

#[test]
fn descriptors_need_as_many_entries_as_their_rule() {
    let flat = "
domain: example4
descriptors: [{key: key, value: value, rate_limit: {requests_per_unit: 300, unit: second}}]
";
    assert_limits(flat, &[("key=value,subkey=subvalue", ""), ("key=value", "300/second")]);
    let nested = "
domain: example4
descriptors:
- key: key
  value: value
  descriptors: [{key: subkey, rate_limit: {requests_per_unit: 300, unit: second}}]
";
    assert_limits(nested, &[("key=value,subkey=subvalue", "300/second"), ("key=value", "")]);
}

#[test]
fn a_rule_may_be_unlimited() {
    let text = "
domain: internal
descriptors:
- {key: ldap, rate_limit: {unlimited: true}}
- {key: azure, rate_limit: {unit: minute, requests_per_unit: 100}}
";
    assert_limits(text, &[("ldap=x", "unlimited"), ("azure=x", "100/minute"), ("other=x", "")]);
}

#[test]
fn a_rule_may_be_in_shadow_mode() {
    let domain = domain(
        "
domain: example6
descriptors:
- key: service
  descriptors:
  - {key: user, value: user-a, rate_limit: {requests_per_unit: 10, unit: second}, shadow_mode: true}
  - {key: user, value: user-b, rate_limit: {requests_per_unit: 20, unit: second}}
",
    );
    let shadow = |user| domain.rule([("service", "auth-service"), ("user", user)]).map(|matched| matched.rule.shadow);
    assert_eq!([shadow("user-a"), shadow("user-b"), shadow("user-c")], [Some(true), Some(false), None]);
}

#[test]
fn a_rule_replaces_the_rules_that_it_names() {
    let domain = domain(
        "
domain: example7
descriptors:
- key: key_1
  value: value_1
  descriptors:
  - {key: user, value: bkthomps, rate_limit: {name: specific_limit, requests_per_unit: 5, unit: second}}
- key: key_2
  value: value_2
  descriptors:
  - key: user
    value: bkthomps
    rate_limit: {replaces: [{name: specific_limit}], requests_per_unit: 10, unit: second}
",
    );
    let user = ("user", "bkthomps");
    let rules =
        [("key_1", "value_1"), ("key_2", "value_2")].map(|first| domain.rule([first, user]).expect("a rule").rule);
    let together = || rules.iter().map(|rule| Some(&***rule));
    assert!(Rule::replaced(together(), rules[0].name.as_deref()));
    assert!(!Rule::replaced(together(), rules[1].name.as_deref()), "it has no name");
    assert!(!Rule::replaced(together().take(1), rules[0].name.as_deref()), "alone it counts");
}

#[test]
fn a_star_matches_a_prefix_and_values_may_share_a_resource() {
    let text = "
domain: example9
descriptors:
- {key: key1, value: value*, rate_limit: {unit: minute, requests_per_unit: 20}}
- {key: key2, value: value*, share_threshold: true, rate_limit: {unit: minute, requests_per_unit: 20}}
";
    let table =
        [("key1=value1", "20/minute"), ("key1=value", "20/minute"), ("key1=valu", ""), ("key2=value7", "20/minute")];
    assert_limits(text, &table);
    let domain = domain(text);
    let shared = |key, value| domain.shared([(key, value)]).map(|(_, value)| value.to_owned()).collect::<Vec<_>>();
    assert_eq!(
        (shared("key1", "value1"), shared("key2", "value1")),
        (vec!["value1".to_owned()], vec!["value*".to_owned()])
    );
    assert!(!domain.rule([("key1", "value1")]).expect("a rule").shares);
    assert!(domain.rule([("key2", "value1")]).expect("a rule").shares);
}

#[test]
fn metrics_are_by_value_where_the_rules_say_so() {
    let text = "
domain: d
descriptors:
- key: route
  value_to_metric: true
  descriptors:
  - {key: method, value_to_metric: true, descriptors: [{key: id, rate_limit: {unit: minute, requests_per_unit: 60}}]}
  - key: action
    value: read*
    value_to_metric: true
    descriptors: [{key: id, rate_limit: {unit: minute, requests_per_unit: 60}}]
- key: path
  value: api/*
  share_threshold: true
  value_to_metric: true
  descriptors: [{key: id, detailed_metric: true, rate_limit: {unit: minute, requests_per_unit: 60}}]
- {key: user, detailed_metric: true, rate_limit: {unit: minute, requests_per_unit: 60}}
- {key: plain, value: p*, rate_limit: {unit: minute, requests_per_unit: 60}}
";
    let domain = domain(text);
    for (descriptor, path) in [
        ("route=api,method=GET,id=1", Some("d.route_api.method_GET.id")),
        ("route=api,action=readfile,id=1", Some("d.route_api.action_readfile.id")),
        ("path=api/v1,id=7", Some("d.path_api/*.id_7")),
        ("user=ann", Some("d.user_ann")),
        ("plain=pa", None),
    ] {
        let entries = || descriptor.split(',').map(|entry| entry.split_once('=').expect("key=value"));
        let matched = domain.rule(entries()).expect(descriptor);
        let own = matched.has_own_metric.then(|| domain.metric_path(entries(), matched.rule.detailed));
        assert_eq!(own.as_deref(), path, "{descriptor}");
    }
}
