//! Documents: links, the book, and words.

use std::fs;

use crate::files::{complain, files, read, root, short};

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
                broken.push(format!("{}: {link}", short(path)));
            }
        }
    }
    complain("links that lead nowhere", &broken);
}

#[test]
fn every_page_is_in_the_book() {
    let listed = links(&read("docs/SUMMARY.md"));
    let docs = root().join("docs");
    let forgotten = files(&["md"]).into_iter().filter_map(|(path, _)| {
        let page = path.strip_prefix(&docs).ok()?.to_str()?.to_owned();
        (page != "SUMMARY.md" && !listed.contains(&page)).then_some(page)
    });
    complain("pages that docs/SUMMARY.md does not list", &forgotten.collect::<Vec<_>>());
}

/// What stands in backticks outside of fenced blocks.
fn quoted(text: &str) -> Vec<String> {
    let mut is_block = false;
    let prose = text.lines().filter(|line| {
        let is_fence = line.starts_with("```");
        is_block ^= is_fence;
        !is_block && !is_fence
    });
    let prose = prose.collect::<Vec<_>>().join("\n");
    prose.split('`').skip(1).step_by(2).map(|text| text.replace('\n', " ")).collect()
}

/// Paths and names of code in CONTRIBUTING.md are there: as a path, or as its end; as a word of the code.
#[test]
fn paths_and_names_in_contributing_exist() {
    let code = files(&["rs", "proto", "toml", "md", "yaml"]);
    let paths: Vec<String> = code.iter().map(|(path, _)| format!("/{}", short(path))).collect();
    let is_word = |char: char| char.is_alphanumeric() || char == '_';
    let words: std::collections::HashSet<&str> = code
        .iter()
        .filter(|(path, _)| path.extension().is_none_or(|extension| extension != "md"))
        .flat_map(|(_, text)| text.split(|char| !is_word(char)))
        .collect();
    let exists = |name: &str| {
        let name = name.trim_end_matches('/');
        let folder = format!("/{name}/");
        paths.iter().any(|path| path.ends_with(&format!("/{name}")) || path.contains(&folder))
            || root().join(name).exists()
    };
    let mut missing = Vec::new();
    for name in quoted(&read("CONTRIBUTING.md")).iter().filter(|name| !name.contains(' ')) {
        let is_path = name.contains('/') && !name.starts_with('/') || name.ends_with(".rs");
        let is_name = name.chars().all(|char| is_word(char) || char == ':') && !name.ends_with('_');
        if is_path && !exists(name) || is_name && !name.split("::").all(|word| words.contains(word)) {
            missing.push(name.clone());
        }
    }
    complain("named in CONTRIBUTING.md, and not there", &missing);
}
