//! CSV files of limits: one resource and its capacity in each record, and an optional heading.

use std::collections::HashMap;
use std::fs::File;
use std::io::{self, Read};
use std::path::Path;

use leaseway_core::types::escaped;
use leaseway_proto::admin::{Limit, LimitChange};

use super::capacity;
use crate::error::CliError;
use crate::output::print_file;

const HEADING: [&str; 2] = ["resource", "capacity"];
/// Maximum number of mistakes that are shown.
const MAX_MISTAKES: usize = 20;

/// Reads a file as a whole, so that a mistake in its last line is found before anything is sent.
pub(super) fn read(path: &Path) -> Result<Vec<LimitChange>, CliError> {
    let failed = |mistakes| CliError::LimitsFile { file: path.to_owned(), mistakes };
    let input: Box<dyn Read> = match path.to_str() {
        Some("-") => Box::new(io::stdin().lock()),
        _ => Box::new(File::open(path).map_err(|error| failed(error.to_string()))?),
    };
    parse(input).map_err(failed)
}

fn parse(mut input: impl Read) -> Result<Vec<LimitChange>, String> {
    let mut text = Vec::new();
    input.read_to_end(&mut text).map_err(|error| error.to_string())?;
    let mut reader = csv::ReaderBuilder::new().has_headers(false).flexible(true).from_reader(&text[..]);
    let (mut changes, mut mistakes) = (Vec::new(), Vec::new());
    let mut lines: HashMap<String, u64> = HashMap::new();
    for (at, record) in reader.records().enumerate() {
        let record = record.map_err(|error| error.to_string())?;
        let line = record.position().map_or(0, |position| line_of(&text, position));
        let fields: Vec<&str> = record.iter().collect();
        if at == 0 && fields == HEADING {
            continue;
        }
        match read_record(&fields) {
            Ok((resource, capacity)) => {
                if let Some(first) = lines.insert(resource.to_owned(), line) {
                    mistakes
                        .push(format!("line {line}: `{}` is also in line {first}; keep only one", escaped(resource)));
                }
                changes.push(LimitChange { resource_id: resource.to_owned(), capacity: Some(capacity) });
            }
            Err(mistake) => mistakes.push(format!("line {line}: {mistake}")),
        }
    }
    if mistakes.is_empty() {
        return Ok(changes);
    }
    let more = mistakes.len().saturating_sub(MAX_MISTAKES);
    mistakes.truncate(MAX_MISTAKES);
    mistakes.extend((more > 0).then(|| format!("... and {more} more mistakes")));
    Err(mistakes.join("\n"))
}

/// The line of a record. Its position is before the empty lines that precede it.
fn line_of(text: &[u8], position: &csv::Position) -> u64 {
    let rest = usize::try_from(position.byte()).ok().and_then(|start| text.get(start..)).unwrap_or_default();
    let empty = rest.iter().take_while(|byte| matches!(byte, b'\n' | b'\r')).filter(|byte| **byte == b'\n');
    position.line() + empty.count() as u64
}

fn read_record<'a>(fields: &[&'a str]) -> Result<(&'a str, f64), String> {
    match fields {
        ["", _] => Err("the resource id is empty".to_owned()),
        [resource, amount] => Ok((resource, capacity(&escaped(amount.trim()))?)),
        _ => Err(format!("has {} fields, expected a resource and its capacity, like `tenant/acme,500`", fields.len())),
    }
}

pub(super) fn print(limits: &[Limit]) -> Result<(), CliError> {
    let failed = |error: csv::Error| CliError::Output(error.into());
    let mut writer = csv::Writer::from_writer(Vec::new());
    writer.write_record(HEADING).map_err(failed)?;
    for Limit { resource_id, capacity, .. } in limits {
        writer.write_record([resource_id.as_str(), &capacity.to_string()]).map_err(failed)?;
    }
    let bytes = writer.into_inner().map_err(|error| CliError::Output(io::Error::other(error.to_string())))?;
    print_file(String::from_utf8_lossy(&bytes).trim_end())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn limits_are_read_with_or_without_a_heading() {
        let text = "resource,capacity\ntenant/acme, 500\n\"a,b\",60000/min\n";
        let read = parse(text.as_bytes()).expect("a valid file");
        let read: Vec<_> = read.iter().map(|one| (one.resource_id.as_str(), one.capacity)).collect();
        assert_eq!(read, [("tenant/acme", Some(500.0)), ("a,b", Some(1000.0))]);
        assert_eq!(parse("x,1\n".as_bytes()).map(|read| read.len()), Ok(1));
        assert_eq!(parse("".as_bytes()), Ok(vec![]));
    }

    #[test]
    fn all_mistakes_are_named_with_their_lines() {
        let text = "a,1\n\nb\nc,much\n,4\na,-2\nd,1,2\na,3\n";
        let mistakes = parse(text.as_bytes()).expect_err("mistakes");
        let expected = "line 3: has 1 fields, expected a resource and its capacity, like `tenant/acme,500`\n\
            line 4: `much`: expected a number like 40 or a rate like 60000/min\n\
            line 5: the resource id is empty\n\
            line 6: `-2`: expected a number like 40 or a rate like 60000/min\n\
            line 7: has 3 fields, expected a resource and its capacity, like `tenant/acme,500`\n\
            line 8: `a` is also in line 1; keep only one";
        assert_eq!(mistakes, expected);
        let many = "x\n".repeat(50);
        assert!(parse(many.as_bytes()).expect_err("mistakes").ends_with("\n... and 30 more mistakes"));
    }
}
