//! Variables, metrics and links in `cluster/` must exist.

use std::{collections::BTreeSet, path::PathBuf};

use crate::files::{complain, files_below, read, root, short};

const EXTENSIONS: [&str; 6] = ["yaml", "json", "tpl", "env", "service", "txt"];

fn deployment() -> Vec<(PathBuf, String)> {
    files_below(&root().join("cluster"), &EXTENSIONS)
}

/// Words with this prefix.
fn words(text: &str, prefix: &str, is_of_word: impl Fn(char) -> bool) -> BTreeSet<String> {
    let words = text.split(|char| !is_of_word(char)).filter(|word| word.starts_with(prefix));
    words.map(str::to_owned).collect()
}

/// Words in `cluster/` that are missing in the page and not `known`.
fn unknown(page: &str, words: impl Fn(&str) -> BTreeSet<String>, known: impl Fn(&str) -> bool) -> Vec<String> {
    let documented = words(&read(page));
    let named = deployment().into_iter().flat_map(|(path, text)| {
        let words = words(&text).into_iter();
        words.map(move |word| (word, short(&path))).collect::<Vec<_>>()
    });
    let named: Vec<(String, String)> = named.collect();
    assert!(named.len() > 10, "too few words were found: {named:?}");
    let unknown = named.into_iter().filter(|(word, _)| !documented.contains(word) && !known(word));
    unknown.map(|(word, path)| format!("{path}: {word} is not in {page}")).collect()
}

#[test]
fn deployment_files_use_variables_of_flags() {
    let variables =
        |text: &str| words(text, "LEASEWAY_", |char| char.is_ascii_uppercase() || "_0123456789".contains(char));
    // Variables of client commands and of the compose file.
    let others = ["LEASEWAY_TLS_SERVER_NAME", "LEASEWAY_PEER_SECRET"];
    let pages = ["docs/reference/flags.md", "docs/reference/limits.md"].map(read).concat();
    let is_of_flag = |name: &str| {
        let flag = name.trim_start_matches("LEASEWAY_").to_lowercase().replace('_', "-");
        others.contains(&name) || pages.contains(&format!("`--{flag}`"))
    };
    let unknown = unknown("docs/reference/flags.md", variables, is_of_flag);
    complain("variables without a flag", &unknown);
}

#[test]
fn deployment_files_use_documented_metrics() {
    let is_of_name = |char: char| char.is_ascii_lowercase() || char.is_ascii_digit() || "_:".contains(char);
    let metrics = |text: &str| -> BTreeSet<String> {
        ["leaseway_", "doorman_", "process_"].iter().flat_map(|prefix| words(text, prefix, is_of_name)).collect()
    };
    let page = read("docs/reference/metrics.md");
    let is_part_of_histogram = |name: &str| name.strip_suffix("_bucket").is_some_and(|name| page.contains(name));
    let unknown = unknown("docs/reference/metrics.md", metrics, is_part_of_histogram);
    complain("undocumented metrics", &unknown);
}

#[test]
fn alert_runbook_links_lead_to_sections_that_exist() {
    let alerts = read("cluster/prometheus/alerts.yaml");
    let links: Vec<&str> = alerts.lines().filter_map(|line| line.trim().strip_prefix("runbook_url: ")).collect();
    assert!(links.len() > 10, "{links:?}");
    let anchor = |heading: &str| heading.to_lowercase().replace(' ', "-").replace(['`', ',', ':'], "");
    let is_there = |link: &str| {
        let (page, section) = link.split_once("/main/").and_then(|(_, path)| path.split_once('#'))?;
        read(page).lines().filter_map(|line| line.strip_prefix("## ")).any(|line| anchor(line) == section).then_some(())
    };
    let dead: Vec<String> = links.into_iter().filter(|link| is_there(link).is_none()).map(str::to_owned).collect();
    complain("broken links of alerts", &dead);
}
