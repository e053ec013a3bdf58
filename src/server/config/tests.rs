//! Valid and invalid configurations, and robustness against any input.

mod accepted;
mod access;
mod algorithm;
mod hostile;
mod refused;
mod yaml;

use leaseway_core::policy::template::{Repository, Template};

use super::parse;

/// The repository of a valid file without warnings.
fn accepted(text: &str) -> Repository {
    let loaded = parse("config.yaml", text).unwrap_or_else(|error| panic!("{error}\n{text}"));
    assert_eq!(loaded.warnings, [], "{text}");
    loaded.repository
}

/// The mistakes of an invalid file, as `LINE:COLUMN: message`.
fn refused(text: &str) -> Vec<String> {
    let error = parse("f", text).expect_err(text).to_string();
    error.lines().map(|line| line.strip_prefix("f:").unwrap_or(line).to_owned()).collect()
}

fn found<'a>(repository: &'a Repository, id: &str) -> &'a Template {
    repository.find(id).expect("a template")
}
