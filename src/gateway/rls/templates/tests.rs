//! The template that a resource finds has the limit of the rule that its descriptor falls under.

use leaseway_server::config;

use super::*;
use crate::rls::file::parse;

#[test]
fn each_resource_finds_the_limit_of_its_rule() {
    let text = "
domain: 'a/b'
descriptors:
- {key: user, rate_limit: {unit: second, requests_per_unit: 10}}
- {key: user, value: root, rate_limit: {unlimited: true}}
- {key: user, value: '*x?', rate_limit: {unit: minute, requests_per_unit: 60}}
- {key: path, value: /api/*/act, rate_limit: {unit: hour, requests_per_unit: 10800}}
- {key: path, value: /api/*, rate_limit: {unit: hour, requests_per_unit: 7200}}
- {key: path, value: /api/v2*, rate_limit: {unit: hour, requests_per_unit: 3600}}
- key: path
  value: /v2*
  share_threshold: true
  rate_limit: {unit: second, requests_per_unit: 4}
  descriptors: [{key: user, rate_limit: {unit: day, requests_per_unit: 864}}]
";
    let mut rules = Rules::default();
    assert!(rules.add(parse("rules.yaml", text.as_bytes()).expect("rules").domain).is_ok());
    let configuration = resources(&rules);
    let loaded = config::parse("made.yaml", &configuration).expect(&configuration);
    assert_eq!(loaded.warnings, [], "{configuration}");
    let domain = rules.domain("a/b").expect("it was read");
    for (entries, capacity) in [
        (&[("user", "ann")][..], 10.0),
        (&[("user", "*x?")], 1.0),
        (&[("user", "yxz")], 10.0),
        (&[("path", "/api/v1")], 2.0),
        (&[("path", "/api/v2")], 2.0),
        (&[("path", "/api/9/act")], 3.0),
        (&[("path", "/v2/x")], 4.0),
        (&[("path", "/v2/x"), ("user", "ann")], 0.01),
    ] {
        let entries = entries.iter().copied();
        let id = resource_id::of("a/b", domain.shared(entries).collect::<Vec<_>>());
        let found = loaded.repository.find(&id).map(|template| template.settings.capacity.get());
        assert!(found.is_some_and(|found| (found - capacity).abs() < 1e-9), "{id}: {found:?} in\n{configuration}");
    }
}
