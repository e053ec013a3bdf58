//! Valid files and their meaning.

use leaseway_core::{
    policy::{
        parameters::NamedParameter,
        settings::{AlgorithmKind, Priority, Reuse, SafeCapacity, Settings},
    },
    types::{Amount, Millis},
};

use super::{super::development, accepted, found};
use crate::config::parse;

fn amount(value: f64) -> Amount {
    Amount::new(value).expect("a valid amount")
}

#[test]
fn the_format_of_doorman() {
    let repository = accepted(
        r#"
resources:                          # order matters; first match wins among globs
- identifier_glob: "fair*"
  capacity: 120                     # double
  safe_capacity: 7.5                # optional; absent = dynamic
  description: "free text"          # not shown or used
  algorithm:
    kind: FAIR_SHARE
    lease_length: 60
    refresh_interval: 5
    learning_mode_duration: 0
- identifier_glob: "*"
  capacity: 50
  algorithm: {kind: FAIR_SHARE, lease_length: 20, refresh_interval: 2}
"#,
    );
    let fair = found(&repository, "fair-one");
    assert_eq!(fair.identifier_glob, "fair*");
    assert_eq!(fair.description.as_deref(), Some("free text"));
    assert_eq!(
        *fair.settings,
        Settings {
            lease: Millis::from_secs(60),
            refresh: Millis::from_secs(5),
            learning: Some(Millis(0)),
            safe_capacity: SafeCapacity::Fixed(amount(7.5)),
            ..Settings::new(AlgorithmKind::FairShare, amount(120.0))
        }
    );
    let other = found(&repository, "a/b/c");
    assert_eq!(
        *other.settings,
        Settings {
            lease: Millis::from_secs(20),
            refresh: Millis::from_secs(2),
            ..Settings::new(AlgorithmKind::FairShare, amount(50.0))
        }
    );
    assert_eq!(other.settings.learning, None, "absent: one lease length");
}

/// Indented lists, kinds by number, a document start, Windows line ends, aliases: all accepted by Doorman's parser.
#[test]
fn variants_of_the_format_of_doorman() {
    let text = r"---
# Proportional share with every key.
resources:
  - identifier_glob: proportional
    capacity: 1_000.0
    safe_capacity: -1
    description: >
      Folded
      text
    algorithm: &slow
      kind: 2
      lease_length: 300
      refresh_interval: 16
      learning_mode_duration: -1
  - {identifier_glob: 'db/[a-m]*', capacity: 1e3, algorithm: *slow}
  - {identifier_glob: 'db/?', capacity: .5, algorithm: {kind: STATIC, lease_length: 60, refresh_interval: 60}}
  - identifier_glob: 12
    algorithm: {kind: 0, lease_length: 60, refresh_interval: 16}
  - identifier_glob: '*'
    capacity: 0
    algorithm:
        kind: 'FAIR_SHARE'
        lease_length: 60
        refresh_interval: 16
...
";
    for text in [text.to_owned(), text.replace('\n', "\r\n"), format!("\u{feff}{text}")] {
        let repository = accepted(&text);
        let get = |id: &str| Settings::clone(&found(&repository, id).settings);
        let slow = Settings {
            lease: Millis::from_secs(300),
            refresh: Millis::from_secs(16),
            learning: Some(Millis(0)),
            ..Settings::new(AlgorithmKind::ProportionalShare, amount(1000.0))
        };
        assert_eq!(get("proportional"), Settings { safe_capacity: SafeCapacity::Unlimited, ..slow.clone() });
        assert_eq!(get("db/abc"), slow, "through the alias");
        assert_eq!((get("db/z").kind, get("db/z").capacity), (AlgorithmKind::Static, amount(0.5)));
        assert_eq!((get("12").kind, get("12").capacity), (AlgorithmKind::NoAlgorithm, Amount::ZERO));
        assert_eq!((get("x").kind, get("x").capacity), (AlgorithmKind::FairShare, Amount::ZERO));
    }
}

#[test]
fn capacities_have_multiples_and_units_of_time() {
    let text = "resources:
- {identifier_glob: a, capacity: 60000/min, safe_capacity: 120/h, algorithm: {kind: FAIR_SHARE}, clients: [{glob: b, max: 6k/min}]}
- {identifier_glob: '*', capacity: 86.4M/day, algorithm: {kind: FAIR_SHARE}}";
    let repository = accepted(text);
    let settings = &found(&repository, "a").settings;
    assert_eq!(
        (settings.capacity, settings.safe_capacity),
        (amount(1000.0), SafeCapacity::Fixed(amount(120.0 / 3600.0)))
    );
    let rule = settings.clients.get(settings.clients.number_of("b")).expect("it matches");
    assert_eq!(rule.max, Some(amount(100.0)));
    assert_eq!(found(&repository, "x").settings.capacity, amount(1000.0));
}

#[test]
fn merge_keys() {
    let repository = accepted(
        r"
resources:
- &first
  identifier_glob: first
  capacity: 1
  algorithm: &fair {kind: FAIR_SHARE, lease_length: 30, refresh_interval: 3}
- <<: *first
  identifier_glob: second
- identifier_glob: third
  capacity: 3
  algorithm: {kind: STATIC, <<: [{lease_length: 40}, *fair]}
",
    );
    let get = |id: &str| {
        let settings = &found(&repository, id).settings;
        (settings.kind, settings.capacity.get(), settings.lease.0, settings.refresh.0)
    };
    assert_eq!(get("first"), (AlgorithmKind::FairShare, 1.0, 30_000, 3_000));
    assert_eq!(get("second"), (AlgorithmKind::FairShare, 1.0, 30_000, 3_000));
    assert_eq!(
        get("third"),
        (AlgorithmKind::Static, 3.0, 40_000, 3_000),
        "own keys take precedence, then the first merged map"
    );
}

#[test]
fn default_durations() {
    for (algorithm, lease, refresh) in [
        ("{kind: STATIC}", 60, 5),
        ("{kind: STATIC, lease_length: 300}", 300, 5),
        ("{kind: STATIC, lease_length: 3}", 3, 3),
        ("{kind: STATIC, refresh_interval: 60}", 60, 60),
        ("{kind: STATIC, lease_length: 2678400, refresh_interval: 2678400}", 2_678_400, 2_678_400),
    ] {
        let text = format!("resources: [{{identifier_glob: a, capacity: 1, algorithm: {algorithm}}}]");
        let settings = found(&accepted(&text), "a").settings.clone();
        let expected = (Millis::from_secs(lease), Millis::from_secs(refresh));
        assert_eq!((settings.lease, settings.refresh), expected, "{algorithm}");
    }
}

#[test]
fn the_algorithm_of_the_star_is_inherited_as_a_whole() {
    let repository = accepted(
        "resources:\n- {identifier_glob: a, capacity: 7, safe_capacity: 3}\n- identifier_glob: '*'\n  capacity: 9\n  algorithm: \
         {kind: PROPORTIONAL_SHARE, lease_length: 40, refresh_interval: 4, learning_mode_duration: 5, parameters: {reuse: prompt}}",
    );
    let (a, star) = (found(&repository, "a"), found(&repository, "b"));
    assert_eq!(star.settings.safe_capacity, SafeCapacity::Dynamic);
    assert_eq!(
        *a.settings,
        Settings {
            capacity: amount(7.0),
            safe_capacity: SafeCapacity::Fixed(amount(3.0)),
            ..Settings::clone(&star.settings)
        }
    );
    assert_eq!((a.settings.lease, a.settings.learning), (Millis::from_secs(40), Some(Millis::from_secs(5))));
    assert_eq!(a.settings.reuse, Reuse::Prompt);
    assert_eq!(a.parameters, star.parameters);
}

#[test]
fn parameters_as_a_list_or_as_a_map() {
    for parameters in [
        "[{name: priority, value: strict}, {name: max_priority, value: 3}, {value: '2.5', name: min_request_interval}]",
        "{priority: 'strict', max_priority: 3, min_request_interval: 2.5}",
    ] {
        let text = format!(
            "resources: [{{identifier_glob: a, capacity: 1, algorithm: {{kind: FAIR_SHARE, parameters: {parameters}}}}}]"
        );
        let repository = accepted(&text);
        let template = found(&repository, "a");
        let settings = &template.settings;
        assert_eq!(
            (settings.priority, settings.max_priority, settings.min_request_interval),
            (Priority::Strict, Some(3), Millis(2500)),
            "{parameters}"
        );
        let parameter = |name: &str, value: &str| NamedParameter { name: name.into(), value: Some(value.into()) };
        assert_eq!(
            template.parameters,
            [parameter("priority", "strict"), parameter("max_priority", "3"), parameter("min_request_interval", "2.5")],
            "parameters are sent to child nodes as written"
        );
    }
}

#[test]
fn a_missing_kind_means_no_algorithm_with_a_warning() {
    let loaded = parse("f", "resources:\n- identifier_glob: a\n  algorithm:\n    lease_length: 20\n").expect("allowed");
    assert_eq!(found(&loaded.repository, "a").settings.kind, AlgorithmKind::NoAlgorithm);
    let warnings: Vec<String> = loaded.warnings.iter().map(ToString::to_string).collect();
    assert_eq!(
        warnings,
        [
            "f:3:3: no `kind`: NO_ALGORITHM applies, as in Doorman; the capacity is not divided, and every client gets its wants"
        ]
    );
}

#[test]
fn the_development_server_shares_everything_fairly() {
    let repository = development().repository;
    assert_eq!(repository.templates().len(), 1);
    for id in ["", "requests", "region/db/queries"] {
        assert_eq!(
            *found(&repository, id).settings,
            Settings {
                lease: Millis::from_secs(60),
                refresh: Millis::from_secs(5),
                learning: Some(Millis(0)),
                ..Settings::new(AlgorithmKind::FairShare, amount(100.0))
            },
            "{id}"
        );
    }
}

#[test]
fn null_counts_as_missing() {
    let template = |rest: &str| {
        let text = format!(
            "resources:\n- {{identifier_glob: a, capacity: 5{rest}}}\n- {{identifier_glob: '*', capacity: 1, algorithm: {{kind: STATIC}}}}"
        );
        accepted(&text)
    };
    let absent = template("");
    for null in ["null", "~", ""] {
        assert_eq!(template(&format!(", safe_capacity: {null}, description: {null}, algorithm: {null}")), absent);
    }
    assert_eq!(found(&absent, "a").settings.safe_capacity, SafeCapacity::Dynamic);
}

#[test]
fn rules_for_clients() {
    let repository = accepted(
        r#"
resources:
- identifier_glob: "*"
  capacity: 100
  algorithm: {kind: FAIR_SHARE}
  clients:
  - {glob: "web-*", weight: 3, min: 10}
  - {glob: batch, max: 0}
  - glob: "*"
"#,
    );
    let clients = &found(&repository, "r").settings.clients;
    let words = clients.iter().map(leaseway_core::policy::client_rules::ClientRule::in_words).collect::<Vec<_>>();
    assert_eq!(words, ["web-*: weight 3, at least 10", "batch: at most 0", "*: as any client"]);
    let told = found(&repository, "r").settings.parameters();
    assert_eq!(told[0], NamedParameter { name: "client".into(), value: Some("3 10 - web-*".into()) });
}

#[test]
fn groups_of_clients() {
    let repository = accepted(
        r#"
resources:
- identifier_glob: "api"
  capacity: 6000/min
  algorithm: {kind: FAIR_SHARE}
  groups:
    from: "{org}/{team}/*"
    rules:
    - {group: prod, weight: 3, minimum: 3000/min, maximum: 80, lend: false}
    - {group: "*/batch", maximum: 20}
    - group: "*"
- identifier_glob: "*"
  capacity: 100
  algorithm: {kind: FAIR_SHARE}
"#,
    );
    let groups = found(&repository, "api").settings.groups.clone().expect("there are groups");
    let words = "from {org}/{team}/*; prod: weight 3, at least 50, at most 80, kept from others; */batch: at most 20; \
                 *: as any group";
    assert_eq!(groups.in_words(), words);
    assert_eq!(found(&repository, "other").settings.groups, None);
}
