//! A part of a file written out as a file of its own: `leaseway up` hands configurations on to its peers so.

use super::accepted;
use crate::config::{DEVELOPMENT, yaml};

/// The `resources` of a text, as a text of their own.
fn written_out(text: &str) -> String {
    let document = yaml::read("f", text.as_bytes(), "the file", "empty", |root, found| {
        let entries = root.entries("a map", found);
        let (_, resources) = entries.into_iter().find(|(key, _)| *key == "resources").expect("it is there");
        resources.document("resources")
    });
    document.unwrap_or_else(|error| panic!("{error}")).content
}

#[test]
fn what_is_written_out_means_the_same() {
    let odd = r#"
defaults: &times {lease_length: 30, refresh_interval: 5}
resources:
- identifier_glob: "*a:b #c"
  capacity: 1_000.5
  safe_capacity: -1
  description: "a \"quoted\" \\ tab\tand\u0007 – ü 'x'"
  algorithm: {kind: FAIR_SHARE, <<: *times, parameters: []}
- identifier_glob: '123'
  capacity: 1e3
  description: ~
  algorithm: {kind: 3, parameters: {priority: strict}, <<: *times}
- {identifier_glob: "null", capacity: 7, description: "", algorithm: {kind: STATIC, parameters: [{name: reuse, value: "prompt"}]}}
- identifier_glob: "- x"
  capacity: 0
  description: >
    folded
    text
  algorithm: {kind: STATIC, parameters: {}}
"#;
    let odd = odd.replace("  description: ~\n", "");
    for text in [DEVELOPMENT, &odd] {
        let written = written_out(text);
        let original = text
            .split("resources:")
            .nth(1)
            .map(|rest| rest.replace(", <<: *times", ", lease_length: 30, refresh_interval: 5"));
        let original = format!("resources:{}", original.expect("it has some"));
        assert_eq!(accepted(&written), accepted(&original), "{written}");
        assert_eq!(written_out(&written), written, "what was written out stays as it is");
    }
}

#[test]
fn nothing_stays_nothing_and_quotes_stay_where_they_count() {
    assert_eq!(
        written_out("resources: {a: , b: ~, c: null, d: \"1\", e: 1, f: '', g: x y, '': 1, 'null': 2, h: '~'}"),
        "resources:\n  a: ~\n  b: ~\n  c: null\n  d: \"1\"\n  e: 1\n  f: \"\"\n  g: \"x y\"\n  \"\": 1\n  \"null\": 2\n  h: \"~\"\n"
    );
}
