//! Links, the book, and names in documents.

use std::{collections::HashSet, fs};

use crate::files::{complain, files, files_below, read, root, short};

/// The targets of links within the repository.
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

/// The anchor of a heading.
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
    complain("broken links", &broken);
}

#[test]
fn every_page_is_in_the_book() {
    let listed = links(&read("docs/SUMMARY.md"));
    let docs = root().join("docs");
    let forgotten = files(&["md"]).into_iter().filter_map(|(path, _)| {
        let page = path.strip_prefix(&docs).ok()?.to_str()?.to_owned();
        (page != "SUMMARY.md" && !listed.contains(&page)).then_some(page)
    });
    complain("pages missing in docs/SUMMARY.md", &forgotten.collect::<Vec<_>>());
}

/// The text in backticks outside of fenced blocks.
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

/// Paths and words of the code.
struct Code {
    paths: Vec<String>,
    words: HashSet<String>,
}

impl Code {
    fn read() -> Code {
        let files = files(&["rs", "proto", "toml", "yaml"]);
        let paths = files.iter().map(|(path, _)| format!("/{}", short(path))).collect();
        let words = files.iter().flat_map(|(_, text)| text.split(|char| !is_of_word(char)));
        Code { paths, words: words.map(str::to_owned).collect() }
    }

    /// A file or folder, by its whole path or the end of it.
    fn has_path(&self, name: &str) -> bool {
        let name = name.trim_end_matches('/');
        let (file, folder) = (format!("/{name}"), format!("/{name}/"));
        root().join(name).exists() || self.paths.iter().any(|path| path.ends_with(&file) || path.contains(&folder))
    }

    fn has_name(&self, name: &str) -> bool {
        name.split("::").all(|word| self.words.contains(word))
    }
}

fn is_of_word(char: char) -> bool {
    char.is_alphanumeric() || char == '_'
}

fn is_name(text: &str) -> bool {
    text.chars().all(|char| is_of_word(char) || char == ':') && !text.ends_with('_')
}

#[test]
fn paths_and_names_in_contributing_exist() {
    let code = Code::read();
    let mut missing = quoted(&read("CONTRIBUTING.md"));
    missing.retain(|name| {
        let is_path = name.contains('/') && !name.starts_with('/') || name.ends_with(".rs");
        !name.contains(' ') && (is_path && !code.has_path(name) || is_name(name) && !code.has_name(name))
    });
    complain("paths and names in CONTRIBUTING.md that do not exist", &missing);
}

/// Checks names of files, and names that look like tests: long names, and names with a module.
#[test]
fn files_and_tests_in_internals_exist() {
    let code = Code::read();
    let mut missing = Vec::new();
    for folder in ["docs/internals", "docs/decisions", "docs/reference", "src/raft"] {
        for (path, text) in files_below(&root().join(folder), &["md"]) {
            let names = quoted(&text).into_iter().filter(|name| !name.contains(' '));
            let is_missing = |name: &String| {
                let is_test = name.chars().all(|char| is_of_word(char) && !char.is_uppercase()) && name.len() > 24;
                name.ends_with(".rs") && !code.has_path(name)
                    || (is_test || name.contains("::") && is_name(name)) && !code.has_name(name)
            };
            missing.extend(names.filter(is_missing).map(|name| format!("{}: {name}", short(&path))));
        }
    }
    complain("files and tests in documents that do not exist", &missing);
}

/// A program with `require` is CommonJS, in which Node allows `await` in functions only.
#[test]
fn snippets_for_node_are_programs() {
    let mut wrong = Vec::new();
    for (path, text) in files_below(&root().join("docs"), &["md"]) {
        for snippet in text.split("\n```js\n").skip(1).filter_map(|rest| rest.split("\n```").next()) {
            let is_outside = |line: &&str| !line.starts_with(' ') && line.contains("await ");
            let lines = snippet.lines().filter(is_outside).filter(|_| snippet.contains("require("));
            wrong.extend(lines.map(|line| format!("{}: {line}", short(&path))));
        }
    }
    complain("`await` outside of a function beside `require`", &wrong);
}
