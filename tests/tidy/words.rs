//! Words: things are not spoken of as persons, names that were given up do not come back, and the glossary stays short.

use crate::files::{complain, files, read, short};

/// Of threads, requests, clients, peers.
const PERSONS: [&str; 7] = ["anybody", "everybody", "nobody", "somebody", "whatever", "whoever", "whomever"];

/// Names of types and metrics that others have taken the place of.
const GIVEN_UP: [&str; 14] = [
    "BehindOthers",
    "Desk",
    "Laid",
    "Lapsed",
    "Living",
    "NobodyAnswers",
    "Reigning",
    "Scribe",
    "Surroundings",
    "Upward",
    "Vouched",
    "follow.rs",
    "first.rs",
    "leaseway_quorum_term",
];

fn words(line: &str) -> impl Iterator<Item = &str> {
    line.split(|char: char| !char.is_alphanumeric() && char != '_')
}

fn speaks_of_persons(line: &str) -> bool {
    words(line).any(|word| PERSONS.contains(&&*word.to_lowercase()))
}

/// Output in fenced blocks is as the program prints it.
#[test]
fn documents_speak_of_things() {
    let mut found = Vec::new();
    for (path, text) in files(&["md"]) {
        let mut is_output = false;
        for (number, line) in text.lines().enumerate() {
            is_output ^= line.trim_start().starts_with("```");
            // Names of tests, in backticks, are as they are.
            let prose: String = line.split('`').step_by(2).collect();
            if !is_output && speaks_of_persons(&prose) {
                found.push(format!("{}:{}: {}", short(&path), number + 1, line.trim()));
            }
        }
    }
    complain("documents speak of persons", &found);
}

#[test]
fn comments_speak_of_things() {
    let mut found = Vec::new();
    for (path, text) in files(&["rs", "proto"]) {
        for (number, line) in text.lines().enumerate() {
            if line.trim_start().starts_with("//") && speaks_of_persons(line) && !short(&path).starts_with("tests/tidy")
            {
                found.push(format!("{}:{}: {}", short(&path), number + 1, line.trim()));
            }
        }
    }
    complain(&format!("{} comments speak of persons", found.len()), &found);
}

/// The changelog says what was renamed.
#[test]
fn names_that_were_given_up_do_not_come_back() {
    let mut found = Vec::new();
    for (path, text) in files(&["rs", "proto", "md", "yaml"]) {
        let tells_of_them = short(&path).starts_with("tests/tidy") || short(&path) == "CHANGELOG.md";
        for (number, line) in text.lines().enumerate() {
            let is_named = |name: &&str| match name.strip_suffix(".rs") {
                Some(_) => line.contains(&format!("`{name}`")) || line.contains(&format!("/{name}")),
                None => words(line).any(|word| word == *name),
            };
            if let Some(name) = GIVEN_UP.iter().find(|name| !tells_of_them && is_named(name)) {
                found.push(format!("{}:{}: {name}", short(&path), number + 1));
            }
        }
    }
    complain("names that were given up", &found);
}

#[test]
fn the_glossary_has_at_most_25_entries() {
    let page = read("docs/internals/vocabulary.md");
    let entries = page.lines().filter(|line| line.starts_with("| ")).count() - 1;
    assert!((10..=25).contains(&entries), "{entries} entries");
}
