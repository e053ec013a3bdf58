//! docs/reference/metrics.md lists exactly the metrics of the code.

use std::collections::BTreeSet;

use crate::files::{assert_same, files_below, read, root};

const PREFIXES: [&str; 4] = ["leaseway_", "doorman_server_", "doorman_client_", "process_"];

fn is_name(text: &str) -> bool {
    let is_of_name = |char: char| char.is_ascii_lowercase() || char.is_ascii_digit() || char == '_';
    PREFIXES.iter().any(|prefix| text.len() > prefix.len() && text.starts_with(prefix))
        && text.chars().all(is_of_name)
        && !text.ends_with('_')
}

/// Quoted names with a prefix of metrics, apart from names of crates.
fn in_code() -> BTreeSet<String> {
    let src = root().join("src");
    let crates = std::fs::read_dir(&src).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap());
    let crates: Vec<String> = crates.map(|name| format!("leaseway_{name}")).collect();
    let code = files_below(&src, &["rs"]);
    let quoted = code.iter().flat_map(|(_, text)| text.split('"'));
    quoted.filter(|text| is_name(text) && !crates.iter().any(|name| name == text)).map(str::to_owned).collect()
}

/// Names in backticks, without labels such as in `doorman_client_request_errors{method,server}`.
fn in_document() -> BTreeSet<String> {
    let page = read("docs/reference/metrics.md");
    let quoted = page.split('`').map(|text| text.split('{').next().unwrap());
    quoted.filter(|text| is_name(text)).map(str::to_owned).collect()
}

#[test]
fn metrics_are_documented_and_documented_metrics_exist() {
    assert_same(("the code", &in_code()), ("docs/reference/metrics.md", &in_document()));
}
