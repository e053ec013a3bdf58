//! Result files. Which command wrote one shows by what is in it; what is missing or of the wrong kind is named.

use std::{collections::BTreeMap, path::Path};

use serde::{Deserialize, de::DeserializeOwned};
use serde_json::Value;

use crate::{
    compare,
    error::Error,
    load::{self, number_or_null},
};

/// A file, and what is in it.
pub(super) struct Source {
    /// The file's name without its ending.
    pub(super) name: String,
    pub(super) content: Content,
}

pub(super) enum Content {
    Load(Box<load::Report>),
    Compare(Box<compare::Report>),
    Simulate(Simulated),
    Chaos(Chaos),
    Fleet(Fleet),
}

/// What of a simulation is shown.
#[derive(Deserialize)]
pub(super) struct Simulated {
    pub(super) cases: Vec<SimulatedCase>,
}

#[derive(Deserialize)]
pub(super) struct SimulatedCase {
    pub(super) scenario: String,
    #[serde(default)]
    pub(super) set: BTreeMap<String, String>,
    pub(super) algorithm: Value,
    pub(super) reuse: String,
    pub(super) push: bool,
    pub(super) command: String,
    pub(super) spreads: SimulatedSpreads,
    pub(super) runs: Vec<Value>,
    pub(super) broken: Vec<Value>,
}

#[derive(Deserialize)]
pub(super) struct SimulatedSpreads {
    pub(super) of_wanted: Option<SimulatedSpread>,
    pub(super) over_seconds: Option<SimulatedSpread>,
    pub(super) apart_at_end_worst: Option<SimulatedSpread>,
    pub(super) settled_refreshes: Option<SimulatedSpread>,
    pub(super) messages_per_s: Option<SimulatedSpread>,
    pub(super) of_capacity: Option<SimulatedSpread>,
    // Of pools alone.
    pub(super) overloads_in_8_h: Option<SimulatedSpread>,
    pub(super) overused: Option<SimulatedSpread>,
    pub(super) used: Option<SimulatedSpread>,
    pub(super) total: Option<SimulatedSpread>,
    pub(super) kicked_out_in_8_h: Option<SimulatedSpread>,
}

#[derive(Clone, Copy, Deserialize)]
pub(super) struct SimulatedSpread {
    pub(super) median: f64,
    pub(super) least: f64,
    pub(super) most: f64,
}

/// What of mishaps is shown.
#[derive(Deserialize)]
pub(super) struct Chaos {
    pub(super) report: ChaosReport,
}

#[derive(Deserialize)]
pub(super) struct ChaosReport {
    pub(super) arguments: Vec<String>,
    pub(super) seconds: f64,
    pub(super) rounds: Vec<Round>,
    pub(super) audits: Vec<(String, Audited)>,
}

#[derive(Deserialize)]
pub(super) struct Round {
    pub(super) label: String,
    pub(super) master_ms: Option<f64>,
    pub(super) grant_ms: Option<f64>,
    pub(super) gap_ms: f64,
}

#[derive(Deserialize)]
pub(super) struct Audited {
    pub(super) over_us: u64,
}

/// What of a fleet is shown.
#[derive(Deserialize)]
pub(super) struct Fleet {
    #[serde(default)]
    pub(super) arguments: Vec<String>,
    pub(super) clients: u64,
    pub(super) hints: bool,
    pub(super) start_s: f64,
    pub(super) memory_kib: u64,
    #[serde(default = "nan", deserialize_with = "number_or_null")]
    pub(super) idle_s: f64,
    #[serde(default = "nan", deserialize_with = "number_or_null")]
    pub(super) idle_cpu_s: f64,
    pub(super) rise_s: Vec<Option<f64>>,
    pub(super) fall_s: Vec<Option<f64>>,
}

fn nan() -> f64 {
    f64::NAN
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
        let fleet =
            json!({"clients": 5, "hints": true, "start_s": 1.0, "memory_kib": 3, "rise_s": [1, "x"], "fall_s": []});
        assert!(refused(&fleet).contains("result of `fleet`, but in `rise_s[1]`"), "{}", refused(&fleet));
        let compare = json!({"a": "x", "b": "y", "cases": [{"resources": 1}], "arguments": [], "machine": {}});
        assert!(refused(&compare).contains("in `cases[0]`: missing field `load`"), "{}", refused(&compare));
    }

    #[test]
    fn a_file_that_cannot_be_read_is_named() {
        let error = read(Path::new("/nowhere/at-all.json")).err().expect("there is none").to_string();
        assert!(error.contains("/nowhere/at-all.json"), "{error}");
        let directory = tempfile::tempdir().unwrap();
        let file = directory.path().join("cut.json");
        std::fs::write(&file, "{\"measurement\":").unwrap();
        let error = read(&file).err().expect("it is cut").to_string();
        assert!(error.contains("cut.json: this is no JSON") && error.contains("line 1"), "{error}");
    }
}
