//! Turns result files into a Markdown document: doubts first, then every figure, then the commands that reproduce them.
//!
//! The command that wrote a file is recognised by the fields in it. Errors name the field that is missing or malformed.

use std::path::{Path, PathBuf};

use serde::de::DeserializeOwned;
use serde_json::Value;

use crate::{
    common::{
        error::Error,
        output::{note, print, write},
    },
    compare::report::CompareReport,
    load::LoadReport,
    simulate::report::SimulateReport,
};

/// Write the results in JSON files as one Markdown document.
///
/// Takes any number of files that `load --json`, `compare --json` and `simulate --json` wrote, and prints their tables
/// with the commands that reproduce them.
#[derive(clap::Args)]
#[command(after_long_help = REPORT_EXAMPLES)]
pub(crate) struct ReportArgs {
    /// Result files.
    #[arg(value_name = "FILE", required = true)]
    files: Vec<PathBuf>,
    /// Write to this file instead of standard output.
    #[arg(long, value_name = "FILE")]
    output: Option<PathBuf>,
    /// The title of the document.
    #[arg(long, default_value = "Measured with leaseway-bench", value_name = "TEXT")]
    title: String,
}

const REPORT_EXAMPLES: &str = "\
Examples:
  leaseway-bench load --target 127.0.0.1:5100 --json > load.json
  leaseway-bench simulate five --seeds 10 --json five.json
  leaseway-bench report load.json five.json > results.md";

pub(crate) fn main(args: &ReportArgs) -> Result<(), Error> {
    let results = args.files.iter().map(|file| Results::read(file)).collect::<Result<Vec<_>, _>>()?;
    let sections = results.iter().map(Results::section);
    let document: Vec<_> = std::iter::once(format!("# {}", args.title)).chain(sections).collect();
    let document = document.join("\n\n");
    let Some(path) = &args.output else { return print(&document) };
    write(path, &(document + "\n"))?;
    note(&format!("wrote {}", path.display()));
    Ok(())
}

/// One file.
struct Results {
    /// The file's name without its extension.
    name: String,
    content: Content,
}

enum Content {
    Load(Box<LoadReport>),
    Compare(Box<CompareReport>),
    Simulate(SimulateReport),
}

impl Results {
    fn read(file: &Path) -> Result<Results, Error> {
        let wrong = |reason: String| Error::Result { file: file.display().to_string(), reason };
        let text = std::fs::read_to_string(file).map_err(Error::io(format!("read {}", file.display())))?;
        let value: Value = serde_json::from_str(&text).map_err(|error| wrong(format!("not valid JSON: {error}")))?;
        let name = file.file_stem().unwrap_or(file.as_os_str()).to_string_lossy().into_owned();
        Ok(Results { name, content: content(&value).map_err(wrong)? })
    }

    fn section(&self) -> String {
        let mut parts = vec![format!("## {}", self.name)];
        match &self.content {
            Content::Load(report) => {
                let doubts = report.measurement.doubts(report.filled);
                parts.extend(doubts.into_iter().map(|doubt| format!("warning: {doubt}")));
                let filled = report.filled.iter().map(|filled| filled.line());
                let lines = filled.chain(report.measurement.lines()).map(|line| format!("- {line}"));
                parts.push(lines.collect::<Vec<_>>().join("\n"));
                parts.push(report.machine.text());
            }
            Content::Compare(report) => parts.extend([report.text(), report.machine.text()]),
            Content::Simulate(report) => parts.push(report.table(true)),
        }
        parts.push(format!("```sh\n{}\n```", self.commands().join("\n")));
        parts.join("\n\n")
    }

    fn commands(&self) -> Vec<String> {
        let arguments = match &self.content {
            Content::Simulate(report) => return report.cases.iter().map(|case| case.command.clone()).collect(),
            Content::Load(report) => &report.arguments,
            Content::Compare(report) => &report.arguments,
        };
        let words = std::iter::once("leaseway-bench").chain(arguments.iter().map(String::as_str));
        vec![shlex::try_join(words).unwrap_or_else(|_| arguments.join(" "))]
    }
}

fn content(value: &Value) -> Result<Content, String> {
    let has = |field: &str| value.get(field).is_some();
    if has("measurement") {
        typed("load", value).map(Content::Load)
    } else if has("a") && has("b") && has("cases") {
        typed("compare", value).map(Content::Compare)
    } else if value.pointer("/cases/0/scenario").is_some() {
        typed("simulate", value).map(Content::Simulate)
    } else {
        Err("not written by load, compare or simulate with --json: it has neither `measurement`, nor `a`, `b` and \
             `cases`, nor `cases` with a `scenario`"
            .into())
    }
}

fn typed<T: DeserializeOwned>(command: &str, value: &Value) -> Result<T, String> {
    serde_path_to_error::deserialize(value).map_err(|error| {
        let (path, what) = (error.path().to_string(), error.inner());
        let place = if path == "." { String::new() } else { format!(" in `{path}`") };
        format!("this looks like the result of `{command}`, but{place}: {what}; was it written by another version?")
    })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::{common::output::Machine, load::measurement::Measurement};

    #[test]
    fn errors_name_the_field() {
        let refused = |value: &Value| content(value).err().expect("it is malformed");
        assert!(refused(&json!({"x": 1})).contains("neither `measurement`"));
        assert!(refused(&json!([])).contains("neither `measurement`"));
        let compare = json!({"a": "x", "b": "y", "cases": [{"resources": 1}], "arguments": [], "machine": {}});
        assert!(refused(&compare).contains("in `cases[0]`: missing field `load`"), "{}", refused(&compare));
    }

    #[test]
    fn errors_name_the_file() {
        let error = Results::read(Path::new("/nowhere/at-all.json")).err().expect("there is no file").to_string();
        assert!(error.contains("/nowhere/at-all.json"), "{error}");
        let file = tempfile::Builder::new().prefix("cut").suffix(".json").tempfile().unwrap();
        std::fs::write(file.path(), "{\"measurement\":").unwrap();
        let error = Results::read(file.path()).err().expect("it is truncated").to_string();
        assert!(error.contains(".json: not valid JSON") && error.contains("line 1"), "{error}");
    }

    #[test]
    fn a_section_has_the_figures_and_the_command() {
        let report = LoadReport {
            arguments: vec!["load".into(), "--target".into(), "a b".into()],
            machine: Machine::read(),
            target: "127.0.0.1:1".into(),
            clients: 1,
            resources: 1,
            load: "1x1".into(),
            filled: None,
            measurement: Measurement::example(),
        };
        let report: LoadReport = serde_json::from_value(serde_json::to_value(report).unwrap()).unwrap();
        let section = Results { name: "one".into(), content: Content::Load(Box::new(report)) }.section();
        assert!(section.starts_with("## one\n\n- nothing was answered"), "{section}");
        assert!(section.ends_with("```sh\nleaseway-bench load --target 'a b'\n```"), "{section}");
    }
}
