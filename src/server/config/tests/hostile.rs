//! Hostile and random input.

use proptest::prelude::*;

use super::{accepted, refused};
use crate::config::{ConfigError, DEVELOPMENT, MAX_BYTES, parse, parse_bytes};

#[test]
fn nesting_does_not_overflow_the_stack() {
    let deep = 100_000;
    let mut chain = String::from("a0: &a0 [x]\n");
    for level in 1..60 {
        let before = level - 1;
        chain.push_str(&format!("a{level}: &a{level} [*a{before}]\n"));
    }
    for (text, message) in [
        ("[".repeat(deep), "1:256: not YAML: nested too deeply: a configuration has only a few levels"),
        ("{a: ".repeat(deep), "1:1021: not YAML: nested too deeply: a configuration has only a few levels"),
        ("- ".repeat(deep), "1:65: more than 32 levels deep: a configuration has only a few"),
        ("? ".repeat(deep), "1:65: more than 32 levels deep: a configuration has only a few"),
        (chain, "33:6: more than 32 levels deep: a configuration has only a few"),
    ] {
        assert_eq!(refused(&text), [message]);
    }
}

/// Copied aliases would become 387 million values.
#[test]
fn aliases_are_shared_not_copied() {
    let mut text = String::from("a: &a [x, x, x, x, x, x, x, x, x]\n");
    for (name, of) in ["b", "c", "d", "e", "f", "g", "h", "i"].iter().zip("abcdefgh".chars()) {
        let references = vec![format!("*{of}"); 9].join(", ");
        text.push_str(&format!("{name}: &{name} [{references}]\n"));
    }
    text.push_str("resources: *i\n");
    let mistakes = refused(&text);
    assert_eq!(mistakes[0], "1:1: unknown key `a`; known: resources, access");
    assert_eq!(
        mistakes[8],
        "8:4: a template is a list, expected a map with the keys identifier_glob, capacity, safe_capacity, description, algorithm, clients, groups",
        "reported once despite nine aliases"
    );
    assert_eq!(mistakes.len(), 10);
}

#[test]
fn an_alias_cannot_contain_itself() {
    assert_eq!(refused("resources: &a [*a]"), ["1:16: this alias refers to a value that contains it"]);
}

#[test]
fn sizes_are_limited() {
    let keys: String = (0..101).map(|key| format!("k{key}: 1\n")).collect();
    for (text, message) in [
        (" ".repeat(MAX_BYTES + 1), "1:1: larger than 4194304 bytes, the maximum"),
        ("- \n".repeat(500_001), "500001:3: more than 500000 values in one configuration"),
        (keys, "101:1: more than 100 keys in one map"),
        (format!("{}: 1", "k".repeat(201)), "1:1: a key longer than 200 bytes"),
        (
            format!("resources: [{}]", "1,".repeat(10_001)),
            "1:1: `resources` has 10001 elements, at most 10000 are allowed",
        ),
    ] {
        assert_eq!(refused(&text), [message]);
    }
    let description = |length| {
        let text = "d".repeat(length);
        format!("resources: [{{identifier_glob: a, capacity: 1, algorithm: {{kind: STATIC}}, description: {text}}}]")
    };
    accepted(&description(4096));
    let mistakes = refused(&description(4097));
    assert!(mistakes[0].ends_with("…`: it is longer than 4096 bytes"), "{mistakes:?}");
}

#[test]
fn merged_keys_count() {
    let keys: Vec<String> = (0..100).map(|key| format!("k{key}: 1")).collect();
    let text = format!("a: &a {{{}}}\nb: [{}]", keys.join(", "), "{<<: *a},".repeat(5000));
    let mistakes = refused(&text);
    assert_eq!(mistakes.len(), 1);
    assert!(mistakes[0].ends_with(": more than 500000 values in one configuration"), "{mistakes:?}");
    let text = "a: &a {x: 1}\nb: &b {<<: *a}\nresources: [{<<: [*b, *b]}]";
    let unknown = "1:8: unknown key `x`; known: identifier_glob, capacity, safe_capacity, description, algorithm, clients, groups";
    assert!(refused(text).iter().any(|mistake| mistake == unknown));
}

#[test]
fn invalid_utf8_is_refused_with_its_position() {
    let error = parse_bytes("f", b"resources:\n- \xc3\xa4\xff").expect_err("not UTF-8");
    assert_eq!(error.to_string(), "f:2:4: not UTF-8: save the file in UTF-8");
    let utf16 = parse_bytes("f", b"\xff\xfer\0e\0").expect_err("not UTF-8");
    assert_eq!(utf16.to_string(), "f:1:1: not UTF-8: save the file in UTF-8");
}

/// Messages quote the file, which may contain terminal escapes and line breaks.
#[test]
fn messages_are_one_line_without_control_characters() {
    let mistakes = refused("\"a\\nb\\e[31m\": 1\nresources: []");
    assert_eq!(mistakes[0], "1:1: unknown key `a\\nb\\u{1b}[31m`; known: resources, access");
    assert_eq!(mistakes.len(), 2);
}

#[test]
fn fifty_mistakes_are_shown_and_the_rest_counted() {
    for (mistakes, last) in [(51, "... and 1 more mistakes"), (5000, "... and 4950 more mistakes")] {
        let text = format!("resources: [{}]", "1,".repeat(mistakes));
        let shown = refused(&text);
        assert_eq!((shown.len(), shown[50].as_str()), (51, last));
    }
    assert_eq!(refused(&format!("resources: [{}]", "1,".repeat(50))).len(), 50);
}

/// Checks that every position is a character of the file, or the end of a line.
fn check_positions(text: &str, error: &ConfigError) -> Result<(), TestCaseError> {
    prop_assert!(!error.diagnostics.is_empty());
    let text = text.strip_prefix('\u{feff}').unwrap_or(text).replace("\r\n", "\n").replace('\r', "\n");
    let lines: Vec<usize> = text.split('\n').map(|line| line.chars().count()).collect();
    for diagnostic in &error.diagnostics {
        let at = diagnostic.at;
        prop_assert!(at.line >= 1 && at.line <= lines.len(), "{diagnostic}");
        prop_assert!(at.column >= 1 && at.column <= lines[at.line - 1] + 1, "{diagnostic}");
    }
    prop_assert!(error.diagnostics.is_sorted_by_key(|diagnostic| diagnostic.at));
    Ok(())
}

/// Random texts from tokens of configurations, which get further than random characters.
fn pieces() -> impl Strategy<Value = String> {
    const KEYS: [&str; 7] =
        ["resources:", "identifier_glob: ", "capacity: ", "algorithm:", "lease_length: ", "parameters:", "FAIR_SHARE"];
    const OTHERS: [&str; 38] = [
        "- ", "kind: ", "\n", "\n  ", "\n    ", "\"*\"", "*", "a", "5", "-1", ".nan", "{", "}", "[", "]", ", ", ": ",
        "&x ", "*x ", "\t", "\r\n", "#", "'", "\"", "|\n", ">", "---\n", "...\n", "? ", "!t ", "<<: ", "\\", "ä",
        "\u{feff}", "\u{85}", "\u{2028}", "\0", "%",
    ];
    let piece = prop::sample::select([&KEYS[..], &OTHERS].concat());
    prop::collection::vec(piece, 0..40).prop_map(|pieces| pieces.concat())
}

/// A valid file with one part replaced.
fn mutations() -> impl Strategy<Value = String> {
    let length = DEVELOPMENT.chars().count();
    (0..length, 0..8usize, "\\PC{0,3}|[\\-*&{}\\[\\]:,'\"#|>?!%@ \n\r\t]{0,4}").prop_map(|(from, cut, new)| {
        let chars: Vec<char> = DEVELOPMENT.chars().collect();
        let rest = chars.iter().skip(from + cut);
        chars[..from].iter().copied().chain(new.chars()).chain(rest.copied()).collect()
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2000))]

    #[test]
    fn any_text_is_accepted_or_refused_with_valid_positions(text in prop_oneof![pieces(), mutations(), "(?s).{0,40}"]) {
        if let Err(error) = parse("f", &text) {
            check_positions(&text, &error)?;
        }
    }

    #[test]
    fn any_bytes_are_accepted_or_refused(bytes in prop::collection::vec(any::<u8>(), 0..60)) {
        if let Err(error) = parse_bytes("f", &bytes) {
            check_positions(&String::from_utf8_lossy(&bytes), &error)?;
        }
    }
}
