//! Scenarios by name, or from files.

use std::path::Path;

use leaseway_sim::scenario::{BUILT_IN, Scenario, built_in};

use crate::common::error::Error;

/// The text of a built-in scenario, or of a file.
pub(crate) fn text(name: &str) -> Result<String, Error> {
    if let Some(text) = built_in(name) {
        return Ok(text.to_owned());
    }
    let path = Path::new(name);
    if !path.exists() {
        let known = BUILT_IN.map(|(name, _)| name).join(", ");
        return Err(Error::Usage(format!("there is no scenario `{name}`, and no such file; known: {known}")));
    }
    std::fs::read_to_string(path).map_err(Error::io(format!("read {name}")))
}

/// Reads and checks a scenario. Errors name file and line.
pub(crate) fn load(name: &str) -> Result<Scenario, Error> {
    Scenario::parse(name, &text(name)?).map_err(Error::Usage)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_scenario_that_is_not_there_names_those_that_are() {
        let error = load("sevn").expect_err("a typing error").to_string();
        assert!(error.contains("`sevn`") && error.contains("seven"), "{error}");
    }
}
