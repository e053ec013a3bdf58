//! Result files. Which command wrote one shows by what is in it; what is missing or of the wrong kind is named.

use std::path::Path;

use serde::de::DeserializeOwned;
use serde_json::Value;

use crate::{
    chaos::ChaosFile, compare::CompareReport, error::Error, fleet::FleetReport, load::LoadReport, machine::Machine,
    simulate::SimulateReport,
};

/// A file, and what is in it.
pub(super) struct Source {
    /// The file's name without its ending.
    pub(super) name: String,
    pub(super) content: Content,
}

pub(super) enum Content {
    Load(Box<LoadReport>),
    Compare(Box<CompareReport>),
    Simulate(SimulateReport),
    Chaos(ChaosFile),
    Fleet(FleetReport),
}

impl Content {
    /// Where it was measured, if it says so.
    pub(super) fn machine(&self) -> Option<&Machine> {
        match self {
            Content::Load(report) => Some(&report.machine),
            Content::Compare(report) => Some(&report.machine),
            Content::Simulate(_) | Content::Chaos(_) | Content::Fleet(_) => None,
        }
    }

    pub(super) fn commands(&self) -> Vec<String> {
        let arguments = match self {
            Content::Simulate(report) => return report.cases.iter().map(|case| case.command.clone()).collect(),
            Content::Load(report) => &report.arguments,
            Content::Compare(report) => &report.arguments,
            Content::Chaos(file) => &file.report.arguments,
            Content::Fleet(report) => &report.arguments,
        };
        let words = std::iter::once("leaseway-bench").chain(arguments.iter().map(String::as_str));
        vec![shlex::try_join(words).unwrap_or_else(|_| arguments.join(" "))]
    }
}

pub(super) fn read(file: &Path) -> Result<Source, Error> {
    let complain = |reason: String| Error::Result { file: file.display().to_string(), reason };
    let text = std::fs::read_to_string(file).map_err(Error::io(format!("read {}", file.display())))?;
    let value: Value = serde_json::from_str(&text).map_err(|error| complain(format!("this is no JSON: {error}")))?;
    let name = file.file_stem().unwrap_or(file.as_os_str()).to_string_lossy().into_owned();
    let content = content(&value).map_err(complain)?;
    Ok(Source { name, content })
}

fn content(value: &Value) -> Result<Content, String> {
    let has = |field: &str| value.get(field).is_some();
    if has("measurement") {
        typed("load", value).map(Content::Load)
    } else if has("a") && has("b") && has("cases") {
        typed("compare", value).map(Content::Compare)
    } else if value.pointer("/cases/0/scenario").is_some() {
        typed("simulate", value).map(Content::Simulate)
    } else if value.pointer("/report/rounds").is_some() {
        typed("chaos", value).map(Content::Chaos)
    } else if has("rise_s") {
        typed("fleet", value).map(Content::Fleet)
    } else {
        Err("this is nothing that load, compare, simulate, chaos or fleet write with --json: it has neither \
             `measurement`, nor `a`, `b` and `cases`, nor `cases` with a `scenario`, nor `report.rounds`, nor `rise_s`"
            .into())
    }
}

fn typed<T: DeserializeOwned>(command: &str, value: &Value) -> Result<T, String> {
    serde_path_to_error::deserialize(value).map_err(|error| {
        let (path, what) = (error.path().to_string(), error.inner());
        let place = if path == "." { String::new() } else { format!(" in `{path}`") };
        format!("it looks like the result of `{command}`, but{place}: {what}; was it written by another version?")
    })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn refused(value: &Value) -> String {
        content(value).err().expect("it is wrong")
    }

    #[test]
    fn what_is_wrong_is_named() {
        assert!(refused(&json!({"x": 1})).contains("neither `measurement`"));
        assert!(refused(&json!([])).contains("neither `measurement`"));
        let fleet = json!({"arguments": [], "clients": 5, "hints": true, "start_s": 1.0, "memory_kib": 3, "idle_s": 1.0,
            "idle_cpu_s": 1.0, "rise_s": [1, "x"], "fall_s": []});
        assert!(refused(&fleet).contains("result of `fleet`, but in `rise_s[1]`"), "{}", refused(&fleet));
        let compare = json!({"a": "x", "b": "y", "cases": [{"resources": 1}], "arguments": [], "machine": {}});
        assert!(refused(&compare).contains("in `cases[0]`: missing field `load`"), "{}", refused(&compare));
    }

    #[test]
    fn a_file_that_cannot_be_read_is_named() {
        let error = read(Path::new("/nowhere/at-all.json")).err().expect("there is none").to_string();
        assert!(error.contains("/nowhere/at-all.json"), "{error}");
        let file = tempfile::Builder::new().prefix("cut").suffix(".json").tempfile().unwrap();
        std::fs::write(file.path(), "{\"measurement\":").unwrap();
        let error = read(file.path()).err().expect("it is cut").to_string();
        assert!(error.contains(".json: this is no JSON") && error.contains("line 1"), "{error}");
    }
}
