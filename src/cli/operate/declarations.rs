//! `leaseway declarations`: the templates that gateways declare for their rules.

use clap::{Args, Subcommand};
use leaseway_core::types::escaped;
use leaseway_proto::admin::{Declaration, DeclareTemplatesRequest, ListDeclarationsRequest};
use serde_json::{Value, json};

use crate::Outcome;
use crate::connect::block_on;
use crate::error::CliError;
use crate::operate::admin::{AdminTarget, Client};
use crate::output::{Output, print, print_json, table, utc};

/// Maximum number of patterns that are printed.
const MAX_LISTED: usize = 10;

#[derive(Subcommand)]
pub(crate) enum DeclarationsCommand {
    /// List the declarations of gateways
    List(List),
    /// Print the templates of a declaration
    Show(Show),
    /// Delete a declaration. A gateway that still has the rules declares them again when it starts or they change
    Delete(Delete),
}

#[derive(Args)]
pub(crate) struct List {
    #[command(flatten)]
    output: Output,
    #[command(flatten)]
    target: AdminTarget,
}

#[derive(Args)]
pub(crate) struct Show {
    /// Name of the declaration, such as rls/shop
    name: String,
    #[command(flatten)]
    output: Output,
    #[command(flatten)]
    target: AdminTarget,
}

#[derive(Args)]
pub(crate) struct Delete {
    /// Name of the declaration, such as rls/shop
    name: String,
    #[command(flatten)]
    output: Output,
    #[command(flatten)]
    target: AdminTarget,
}

impl DeclarationsCommand {
    pub(crate) fn run(self) -> Outcome {
        block_on(async {
            match self {
                DeclarationsCommand::List(list) => list.run().await,
                DeclarationsCommand::Show(show) => show.run().await,
                DeclarationsCommand::Delete(delete) => delete.run().await,
            }
        })
    }
}

impl AdminTarget {
    /// All declarations, or the one of this name with its text.
    async fn declarations(&self, name: &str) -> Result<Vec<Declaration>, CliError> {
        let request = ListDeclarationsRequest { name: name.to_owned() };
        let listed = self.ask(async |mut client: Client| client.list_declarations(request.clone()).await).await?;
        Ok(listed.declaration)
    }
}

impl List {
    async fn run(self) -> Outcome {
        let all = self.target.declarations("").await?;
        if self.output.is_json() {
            return print_json(json!({ "declarations": all.iter().map(as_json).collect::<Vec<_>>() }));
        }
        if all.is_empty() {
            return print("no declarations: all templates are those of the configuration");
        }
        let row = |one: &Declaration| {
            vec![one.name.clone(), one.version.to_string(), one.templates.to_string(), utc(one.at_unix), one.by.clone()]
        };
        print(table(&["NAME", "VERSION", "TEMPLATES", "DECLARED", "BY"], all.iter().map(row)))
    }
}

impl Show {
    async fn run(self) -> Outcome {
        let found = self.target.declarations(&self.name).await?;
        let Some(one) = found.first() else { return Err(CliError::NoDeclaration { name: self.name }) };
        let with_text = || {
            let mut value = as_json(one);
            value["text"] = one.text.clone().into();
            value
        };
        self.output.print(|| one.text.trim_end().to_owned(), with_text)
    }
}

impl Delete {
    async fn run(self) -> Outcome {
        let Delete { name, output, target } = self;
        let request = DeclareTemplatesRequest { name: name.clone(), version: 0, text: None };
        let done = target.ask(async |mut client: Client| client.declare_templates(request.clone()).await).await?;
        if !done.changed {
            return Err(CliError::NoDeclaration { name });
        }
        output.print(|| deleted(&name, &done.unlimited), || json!({ "name": name, "unlimited": done.unlimited }))
    }
}

/// `unlimited`: the patterns that no template matches now.
fn deleted(name: &str, unlimited: &[String]) -> String {
    let name = escaped(name);
    if unlimited.is_empty() {
        return format!("{name} deleted; its resources have other templates now");
    }
    let mut shown: Vec<_> =
        unlimited.iter().take(MAX_LISTED).map(|pattern| format!("  {}", escaped(pattern))).collect();
    let more = unlimited.len() - shown.len();
    if more > 0 {
        shown.push(format!("  and {more} more"));
    }
    format!(
        "{name} deleted\nNo template matches these patterns now, so their resources have no limit:\n{}\nTo limit them, add \
         templates to the configuration, or start the gateway, which declares its rules again",
        shown.join("\n")
    )
}

fn as_json(one: &Declaration) -> Value {
    json!({
        "name": one.name, "version": one.version, "templates": one.templates, "at_unix": one.at_unix, "by": one.by,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_deletion_lists_the_patterns_that_nothing_limits_now() {
        assert_eq!(deleted("rls/shop", &[]), "rls/shop deleted; its resources have other templates now");
        let patterns: Vec<String> = (0..12).map(|number| format!("shop/{number}=*")).collect();
        let text = deleted("rls/shop", &patterns);
        assert!(text.contains("have no limit:\n  shop/0=*\n") && text.contains("\n  and 2 more\n"), "{text}");
    }
}
