//! `leaseway access`: evaluates an access policy without a request.

use std::path::PathBuf;

use clap::{Args, Subcommand};
use leaseway_core::policy::access::{AccessRequest, Action, Condition, Identity, Policy, Rule};
use leaseway_proto::admin::GetConfigRequest;
use leaseway_server::config;
use serde_json::json;

use crate::Outcome;
use crate::connect::block_on;
use crate::error::CliError;
use crate::operate::admin::AdminTarget;
use crate::output::{Output, print, print_json, table};

#[derive(Subcommand)]
pub(crate) enum AccessCommand {
    /// Test what an identity may do. Prints the rule that decides, or the rules that almost apply; exits with 77 if
    /// denied
    Test(Test),
}

impl AccessCommand {
    pub(crate) fn run(self) -> Outcome {
        let AccessCommand::Test(test) = self;
        test.run()
    }
}

#[derive(Args)]
pub(crate) struct Test {
    /// Identity from a certificate or token; `anonymous` for a caller without one
    #[arg(value_parser = identity)]
    identity: Identity,
    /// Resource id [default: any resource]
    resource: Option<String>,
    /// Action: ask, lend, read, configure, pools, peers, override, limits, declare [default: ask; lend with --as-node]
    #[arg(long, value_name = "ACTION", value_parser = action)]
    action: Option<Action>,
    /// Client id of the request [default: the identity]
    #[arg(long, value_name = "ID", conflicts_with = "as_node")]
    client: Option<String>,
    /// Priority of the request
    #[arg(long, value_name = "N", allow_hyphen_values = true)]
    priority: Option<i16>,
    /// Name of the requesting child node
    #[arg(long, value_name = "NAME")]
    as_node: Option<String>,
    /// Configuration file with the policy [default: the one in force, read from the admin address]
    #[arg(long, value_name = "FILE", value_parser = crate::operate::config::file_path)]
    config: Option<PathBuf>,
    #[command(flatten)]
    output: Output,
    #[command(flatten)]
    target: AdminTarget,
}

fn identity(text: &str) -> Result<Identity, String> {
    Identity::parse(text).map_err(|error| error.to_string())
}

fn action(text: &str) -> Result<Action, String> {
    let known = || format!("expected one of {}", Action::ALL.map(Action::name).join(", "));
    Action::named(text).ok_or_else(known)
}

impl Test {
    fn run(self) -> Outcome {
        let policy = self.policy()?;
        let request = self.request();
        let Some(policy) = policy else {
            let why = "the configuration has no `access:` section, so the server allows everything";
            let json = || json!({ "allowed": true, "rule": null, "why": why, "rules": [] });
            return self.output.print(|| format!("allowed: {why}"), json);
        };
        let permissions = policy.of(&self.identity);
        let decision = permissions.decide(&request);
        let sentence = decision.sentence(&self.identity, &request);
        let explained = policy.explain(&self.identity, &request);
        if self.output.is_json() {
            let rules = explained.iter().map(|(rule, unmet)| {
                let unmet = unmet.iter().map(|condition| name(*condition)).collect::<Vec<_>>();
                json!({ "rule": rule.name, "unmet": unmet })
            });
            let rules = rules.collect::<Vec<_>>();
            print_json(json!({ "allowed": decision.allowed, "rule": decision.rule, "why": sentence, "rules": rules }))?;
        } else {
            print(format_args!("{}: {sentence}", if decision.allowed { "allowed" } else { "denied" }))?;
            print(rows(&explained))?;
        }
        if decision.allowed { Ok(()) } else { Err(CliError::NotAllowed) }
    }

    fn policy(&self) -> Result<Option<Policy>, CliError> {
        if let Some(file) = &self.config {
            return Ok(config::load(file)?.access.map(|policy| Policy::clone(&policy)));
        }
        let ask = self.target.ask(async |mut client| client.get_config(GetConfigRequest { version: 0 }).await);
        let answer = block_on(ask)?;
        let version = answer.header.map_or(0, |header| header.version);
        let unreadable = |error| CliError::UnreadableVersion { version, error };
        let loaded = config::parse(&format!("version {version}"), &answer.text).map_err(unreadable)?;
        Ok(loaded.access.map(|policy| Policy::clone(&policy)))
    }

    fn request(&self) -> AccessRequest<'_> {
        let action = self.action.unwrap_or(if self.as_node.is_some() { Action::Lend } else { Action::Ask });
        let named = self.as_node.as_deref().or(self.client.as_deref());
        let holder = action.is_of_holders().then(|| named.unwrap_or(self.identity.text()));
        let (resource, priority) = (self.resource.as_deref(), self.priority.filter(|_| action.is_of_holders()));
        AccessRequest { action, resource: resource.filter(|_| action.is_of_resources()), holder, priority }
    }
}

/// A table of the rules for the identity, and of those that fail by a single condition, with the conditions that fail.
fn rows(explained: &[(&Rule, Vec<Condition>)]) -> String {
    let near = explained.iter().filter(|(_, unmet)| unmet.len() <= 1 || !unmet.contains(&Condition::Who));
    let rows = near.map(|(rule, unmet)| {
        let unmet: Vec<String> = unmet.iter().map(|condition| in_words(rule, *condition)).collect();
        let unmet = if unmet.is_empty() { "none: this rule allows it".to_owned() } else { unmet.join("; ") };
        vec![rule.name.clone(), rule.may.to_string(), unmet]
    });
    let rows: Vec<Vec<String>> = rows.collect();
    if rows.is_empty() {
        return "no rule applies to this identity".to_owned();
    }
    table(&["RULE", "MAY", "UNMET CONDITIONS"], rows)
}

fn name(condition: Condition) -> &'static str {
    match condition {
        Condition::Who => "who",
        Condition::May => "may",
        Condition::Resource => "resources",
        Condition::Holder => "clients",
        Condition::Priority => "max_priority",
    }
}

fn in_words(rule: &Rule, condition: Condition) -> String {
    let list = |patterns: &[leaseway_core::policy::access::Pattern]| {
        patterns.iter().map(leaseway_core::policy::access::Pattern::text).collect::<Vec<_>>().join(", ")
    };
    match condition {
        Condition::Who => format!("who: {}", list(&rule.who)),
        Condition::May => format!("may: {}", rule.may),
        Condition::Resource => format!("resources: {}", list(&rule.resources)),
        Condition::Holder if rule.may.has(Action::Lend) && !rule.may.has(Action::Ask) => {
            format!("nodes: {}", list(&rule.nodes))
        }
        Condition::Holder => format!("clients: {}", list(&rule.clients)),
        Condition::Priority => format!("max_priority: {}", rule.max_priority.unwrap_or(i16::MAX)),
    }
}
