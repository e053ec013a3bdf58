//! What CONTRIBUTING.md says about files, held against the files.
#![allow(clippy::unwrap_used, reason = "all of it is test")]

use std::{
    fs,
    path::{Path, PathBuf},
};

const COLUMNS: usize = 120;
const LINES: usize = 500;

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..")
}

/// All files of these endings, with their text; not what is built or generated.
fn files(endings: &[&str]) -> Vec<(PathBuf, String)> {
    let (mut folders, mut found) = (vec![root()], Vec::new());
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            let name = path.file_name().unwrap().to_str().unwrap();
            if path.is_dir() {
                if !name.starts_with('.') && !["target", "generated", "book"].contains(&name) {
                    folders.push(path);
                }
            } else if path.extension().is_some_and(|ending| endings.contains(&ending.to_str().unwrap())) {
                let text = fs::read_to_string(&path).unwrap();
                found.push((path, text));
            }
        }
    }
    assert!(!found.is_empty());
    found
}

fn complain(what: &str, complaints: &[String]) {
    assert!(complaints.is_empty(), "{what}:\n{}", complaints.join("\n"));
}

/// rustfmt looks after code, not after comments. Tables are as wide as they are.
#[test]
fn comments_fit_into_the_columns() {
    let mut long = Vec::new();
    for (path, text) in files(&["rs", "proto", "sh"]) {
        for (number, line) in text.lines().enumerate() {
            let trimmed = line.trim_start();
            let comment = trimmed.trim_start_matches(['/', '!']).trim_start();
            if trimmed.starts_with("//") && !comment.starts_with('|') && line.chars().count() > COLUMNS {
                long.push(format!("{}:{}", path.display(), number + 1));
            }
        }
    }
    complain("comments beyond 120 columns", &long);
}

/// Tables, code, and lines that cannot be broken are as wide as they are.
#[test]
fn documents_fit_into_the_columns() {
    let mut long = Vec::new();
    for (path, text) in files(&["md"]) {
        let mut code = false;
        for (number, line) in text.lines().enumerate() {
            code ^= line.starts_with("```");
            let can_be_broken = line.trim().contains(' ') && !line.starts_with('|') && !line.starts_with("    ");
            if !code && can_be_broken && !line.trim_start().starts_with("- [") && line.chars().count() > COLUMNS {
                long.push(format!("{}:{}", path.display(), number + 1));
            }
        }
    }
    complain("lines of documents beyond 120 columns", &long);
}

#[test]
fn files_are_short_enough_to_hold_one_thing() {
    let long = files(&["rs"]).into_iter().filter(|(_, text)| text.lines().count() > LINES);
    let long: Vec<String> =
        long.map(|(path, text)| format!("{}: {} lines", path.display(), text.lines().count())).collect();
    complain("files of more than 500 lines", &long);
}

/// What a link of Markdown points at, without those that leave the repository.
fn links(text: &str) -> Vec<String> {
    let mut found = Vec::new();
    let mut code = false;
    for line in text.lines() {
        code ^= line.starts_with("```");
        for part in line.split("](").skip(1).take(if code { 0 } else { usize::MAX }) {
            let target = part.split(')').next().unwrap();
            if !target.contains("://") {
                found.push(target.to_owned());
            }
        }
    }
    found
}

/// The anchor that readers of Markdown make of a heading.
fn anchor(heading: &str) -> String {
    let kept = heading
        .trim()
        .to_lowercase()
        .chars()
        .filter(|char| char.is_alphanumeric() || " -_".contains(*char))
        .collect::<String>();
    kept.replace(' ', "-")
}

#[test]
fn links_in_documents_lead_somewhere() {
    let documents = files(&["md"]);
    let mut broken = Vec::new();
    for (path, text) in &documents {
        for link in links(text) {
            let (file, part) = link.split_once('#').unwrap_or((&link, ""));
            let target = if file.is_empty() { path.clone() } else { path.parent().unwrap().join(file) };
            let heading = |text: String| {
                text.lines().any(|line| line.starts_with('#') && anchor(line.trim_start_matches('#')) == part)
            };
            let leads = target.exists() && (part.is_empty() || fs::read_to_string(&target).is_ok_and(heading));
            if !leads {
                broken.push(format!("{}: {link}", path.display()));
            }
        }
    }
    complain("links that lead nowhere", &broken);
}

#[test]
fn every_page_is_in_the_book() {
    let summary = fs::read_to_string(root().join("docs/SUMMARY.md")).unwrap();
    let listed = links(&summary);
    let docs = root().join("docs");
    let forgotten = files(&["md"]).into_iter().filter_map(|(path, _)| {
        let page = path.strip_prefix(&docs).ok()?.to_str()?.to_owned();
        (page != "SUMMARY.md" && !listed.contains(&page)).then_some(page)
    });
    complain("pages that docs/SUMMARY.md does not list", &forgotten.collect::<Vec<_>>());
}
