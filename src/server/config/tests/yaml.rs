//! A part of a file as a document: `leaseway up` passes configurations to its peers this way.

use super::accepted;
use crate::config::{DEVELOPMENT, yaml};

/// The `resources` of a text as a document.
fn extract(text: &str) -> String {
    let document = yaml::read("f", text.as_bytes(), "the file", "empty", |root, found| {
        let entries = root.entries("a map", found);
        let (_, resources) = entries.into_iter().find(|(key, _)| *key == "resources").expect("resources");
        resources.document("resources")
    });
    document.unwrap_or_else(|error| panic!("{error}")).content
}

#[test]
fn extracted_documents_have_the_same_meaning() {
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
        let written = extract(text);
        let original = text
            .split("resources:")
            .nth(1)
            .map(|rest| rest.replace(", <<: *times", ", lease_length: 30, refresh_interval: 5"));
        let original = format!("resources:{}", original.expect("resources"));
        assert_eq!(accepted(&written), accepted(&original), "{written}");
        assert_eq!(extract(&written), written, "extracting is idempotent");
    }
}

#[test]
fn null_and_significant_quotes_are_preserved() {
    assert_eq!(
        extract("resources: {a: , b: ~, c: null, d: \"1\", e: 1, f: '', g: x y, '': 1, 'null': 2, h: '~'}"),
        "resources:\n  a: ~\n  b: ~\n  c: null\n  d: \"1\"\n  e: 1\n  f: \"\"\n  g: \"x y\"\n  \"\": 1\n  \"null\": 2\n  h: \"~\"\n"
    );
}
