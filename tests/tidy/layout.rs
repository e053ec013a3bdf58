//! Columns, lengths of files, and who may name actix.

use std::path::PathBuf;

use crate::files::{complain, files, root, short};

const COLUMNS: usize = 120;
const LINES: usize = 500;

/// rustfmt looks after code, not after comments. Tables are as wide as they are.
#[test]
fn comments_fit_into_the_columns() {
    let mut long = Vec::new();
    for (path, text) in files(&["rs", "proto", "sh"]) {
        for (number, line) in text.lines().enumerate() {
            let trimmed = line.trim_start();
            let comment = trimmed.trim_start_matches(['/', '!']).trim_start();
            if trimmed.starts_with("//") && !comment.starts_with('|') && line.chars().count() > COLUMNS {
                long.push(format!("{}:{}", short(&path), number + 1));
            }
        }
    }
    complain("comments beyond 120 columns", &long);
}

/// Tables, code, headings, and lines that cannot be broken are as wide as they are.
#[test]
fn documents_fit_into_the_columns() {
    let mut long = Vec::new();
    for (path, text) in files(&["md"]) {
        let mut code = false;
        for (number, line) in text.lines().enumerate() {
            code ^= line.starts_with("```");
            let can_be_broken = line.trim().contains(' ') && !line.starts_with(['|', '#']) && !line.starts_with("    ");
            if !code && can_be_broken && !line.trim_start().starts_with("- [") && line.chars().count() > COLUMNS {
                long.push(format!("{}:{}", short(&path), number + 1));
            }
        }
    }
    complain("lines of documents beyond 120 columns", &long);
}

#[test]
fn files_are_short_enough_to_hold_one_thing() {
    let long = files(&["rs"]).into_iter().filter(|(_, text)| text.lines().count() > LINES);
    let long: Vec<String> =
        long.map(|(path, text)| format!("{}: {} lines", short(&path), text.lines().count())).collect();
    complain("files of more than 500 lines", &long);
}

#[test]
fn the_readme_and_the_map_are_short_enough_to_be_read() {
    for (page, most) in [("README.md", 200), ("docs/internals/architecture.md", 300)] {
        let lines = crate::files::read(page).lines().count();
        assert!(lines <= most, "{page} has {lines} lines, more than {most}");
    }
}

/// Files outside of `src/server/actors` that name actix; the list only shrinks.
const ALLOWED: [&str; 5] = [
    "src/server/follow.rs",
    "src/server/grpc/front/tests.rs",
    "src/server/grpc/pools/tests.rs",
    "src/server/peers.rs",
    "src/server/run.rs",
];

#[test]
fn actix_is_named_among_the_actors_only() {
    let actors: [PathBuf; 2] = [root().join("src/server/actors"), root().join("src/server/actors.rs")];
    let mut found = Vec::new();
    for (path, text) in files(&["rs"]) {
        if actors.iter().any(|actors| path.starts_with(actors)) || ALLOWED.contains(&&*short(&path)) {
            continue;
        }
        for (number, line) in text.lines().enumerate() {
            let code = line.split("//").next().unwrap();
            if ["actix::", "actix_rt::", "use actix"].iter().any(|name| code.contains(name)) && !code.contains('"') {
                found.push(format!("{}:{}", short(&path), number + 1));
            }
        }
    }
    complain("actix outside of src/server/actors", &found);
}

#[test]
fn openraft_is_named_in_the_quorum_only() {
    let quorum = root().join("src/quorum");
    let named = files(&["rs"]).into_iter().filter(|(path, text)| {
        !path.starts_with(&quorum)
            && text.lines().any(|line| line.split("//").next().unwrap().contains(concat!("openraft", "::")))
    });
    complain("openraft outside of src/quorum", &named.map(|(path, _)| short(&path)).collect::<Vec<_>>());
}
