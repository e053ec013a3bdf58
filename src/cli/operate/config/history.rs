//! `leaseway config show` and `leaseway config history`.

use clap::Args;
use leaseway_core::types::escaped;
use leaseway_proto::admin::{ConfigHeader, ListConfigsRequest, ListConfigsResponse};
use serde_json::json;

use super::get;
use crate::Outcome;
use crate::connect::block_on;
use crate::operate::admin::AdminTarget;
use crate::output::{Output, note, print_file, print_json, table, utc};

#[derive(Args)]
pub(crate) struct ShowVersion {
    /// Version number [default: the one in force]
    #[arg(value_parser = clap::value_parser!(u64).range(1..))]
    version: Option<u64>,
    #[command(flatten)]
    output: Output,
    #[command(flatten)]
    target: AdminTarget,
}

impl ShowVersion {
    pub(crate) fn run(self) -> Outcome {
        let answer = block_on(get(&self.target, self.version.unwrap_or(0)))?;
        let header = answer.header.unwrap_or_default();
        if self.output.is_json() {
            let ConfigHeader { version, source, applied_at_unix, applied_by } = header;
            return print_json(json!({
                "version": version, "source": source, "applied_at_unix": applied_at_unix, "applied_by": applied_by,
                "text": answer.text, "declarations": answer.declaration,
            }));
        }
        note(format_args!(
            "# version {} from {}, applied {}",
            header.version,
            escaped(&header.source),
            utc(header.applied_at_unix)
        ));
        if !answer.declaration.is_empty() {
            let names = answer.declaration.iter().map(|name| escaped(name).to_string()).collect::<Vec<_>>().join(", ");
            note(format_args!("# gateways declare more templates (leaseway declarations): {names}"));
        }
        print_file(answer.text.trim_end())
    }
}

#[derive(Args)]
pub(crate) struct History {
    #[command(flatten)]
    output: Output,
    #[command(flatten)]
    target: AdminTarget,
}

impl History {
    pub(crate) fn run(self) -> Outcome {
        let ask = self.target.ask(async |mut client| client.list_configs(ListConfigsRequest {}).await);
        let answer = block_on(ask)?;
        self.output.print(|| as_text(&answer), || as_json(&answer))
    }
}

fn as_text(answer: &ListConfigsResponse) -> String {
    if answer.header.is_empty() {
        return "no configuration has been applied yet; use `leaseway config apply FILE`".to_owned();
    }
    let rows = answer.header.iter().map(|header| {
        let mark = if header.version == answer.in_force { "*" } else { "" };
        let version = format!("{}{mark}", header.version);
        vec![version, utc(header.applied_at_unix), header.applied_by.clone(), header.source.clone()]
    });
    table(&["VERSION", "APPLIED", "BY", "SOURCE"], rows)
}

fn as_json(answer: &ListConfigsResponse) -> serde_json::Value {
    let header = |header: &ConfigHeader| {
        json!({
            "version": header.version, "source": header.source, "applied_at_unix": header.applied_at_unix,
            "applied_by": header.applied_by,
        })
    };
    json!({ "in_force": answer.in_force, "versions": answer.header.iter().map(header).collect::<Vec<_>>() })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_version_in_force_is_marked() {
        let header = |version, source: &str| ConfigHeader {
            version,
            source: source.into(),
            applied_at_unix: 1_700_000_000,
            applied_by: "a".into(),
        };
        let header = vec![header(1, "three.yaml"), header(2, "rollback to version 1")];
        let text = as_text(&ListConfigsResponse { header, in_force: 2 });
        assert_eq!(
            text,
            "VERSION               APPLIED  BY                 SOURCE\n\
             1        2023-11-14T22:13:20Z   a             three.yaml\n\
             2*       2023-11-14T22:13:20Z   a  rollback to version 1"
        );
        assert!(as_text(&ListConfigsResponse::default()).contains("config apply"));
    }
}
