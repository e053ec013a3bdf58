//! `leaseway explain`: why a client has its current lease.

use clap::Args;
use leaseway_core::types::escaped;
use leaseway_proto::status::{ExplainRequest, ExplainResponse, GetStatusRequest, status_client::StatusClient};
use serde_json::{Value, json};

use crate::Outcome;
use crate::connect::{Observed, Target, block_on, refused};
use crate::error::CliError;
use crate::inspect::status::{limit_as_json, overridden_as_json};
use crate::output::{Output, print, print_json};

/// Maximum depth of a tree. Guards against parents that form a cycle.
const LEVELS: usize = 16;

#[derive(Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Explain {
    /// Id of the client, or with --node the name of a child node
    client: String,
    /// Resource id
    resource: String,
    /// CLIENT is the name of a child node (`serve --node`)
    #[arg(long)]
    node: bool,
    #[command(flatten)]
    output: Output,
    #[command(flatten)]
    target: Target,
}

const EXAMPLES: &str = "\
Examples:
  leaseway explain alice mysql                      explain alice's lease
  leaseway explain east mysql --node                explain the lease of child node east, at its parent
  leaseway explain alice mysql -o json | jq .levels[0].rule";

/// The answer of one node.
struct Level {
    address: String,
    holder: String,
    answer: ExplainResponse,
}

/// The answers of the node that was asked and those above it.
struct Explained {
    levels: Vec<Level>,
    /// Why the next node above did not answer.
    silence: Option<String>,
}

impl Explain {
    pub(crate) fn run(self) -> Outcome {
        let Explained { levels, silence } = block_on(self.ask())?;
        if self.output.is_json() {
            let levels = levels.iter().map(as_json).collect::<Vec<_>>();
            return print_json(json!({ "levels": levels, "silence": silence }));
        }
        for (at, level) in levels.iter().enumerate() {
            if at > 0 {
                print(format_args!(
                    "\n{} gets its capacity from its parent at {}:",
                    escaped(&level.holder),
                    level.address
                ))?;
            }
            for sentence in &level.answer.sentences {
                // The server has escaped the names in it.
                print(escaped(sentence))?;
            }
            if level.answer.holder.is_none() {
                print(format_args!(
                    "{} holds no lease there: the node has sent no request, or its lease has expired.",
                    escaped(&level.holder)
                ))?;
            }
        }
        match silence {
            Some(why) => print(format_args!("\nThe parent does not answer: {}", escaped(&why))),
            None => Ok(()),
        }
    }

    /// Asks the target's node, and those above it.
    async fn ask(&self) -> Result<Explained, CliError> {
        let first = self.ask_node(&self.target, &self.client, self.node).await?;
        if first.answer.holder.is_none() {
            // The algorithm is that of the resource, if there is such a resource.
            if first.answer.algorithm.is_empty() {
                return Err(CliError::NoSuchResource(self.resource.clone()));
            }
            let (client, resource) = (self.client.clone(), self.resource.clone());
            return Err(CliError::NoSuchHolder { client, resource, address: first.address });
        }
        let mut levels = vec![first];
        while let Some(above) = levels.last().filter(|level| !level.answer.parent.is_empty() && levels.len() < LEVELS) {
            let target = self.target.with_servers(&above.answer.parent)?;
            let node = above.answer.node.clone();
            match self.ask_node(&target, &node, true).await {
                Ok(level) => levels.push(level),
                Err(error) => return Ok(Explained { levels, silence: Some(error.brief()) }),
            }
        }
        Ok(Explained { levels, silence: None })
    }

    async fn ask_node(&self, target: &Target, holder: &str, is_server: bool) -> Result<Level, CliError> {
        let of_resource = GetStatusRequest { resource_id: self.resource.clone(), page_size: 1, ..Default::default() };
        let Observed { address, channel, .. } = target.observe(&of_resource, false).await?;
        let request = ExplainRequest { resource_id: self.resource.clone(), holder_id: holder.to_owned(), is_server };
        let answer = StatusClient::new(channel).explain(request).await.map_err(|status| refused(&address, &status))?;
        Ok(Level { address, holder: holder.to_owned(), answer: answer.into_inner() })
    }
}

fn as_json(level: &Level) -> Value {
    let Level { address, holder, answer } = level;
    let known = answer.holder.as_ref().map(|holder| {
        json!({
            "priority": holder.priority, "subclients": holder.subclients, "wants": holder.wants, "due": holder.due,
            "has": holder.granted, "held": holder.held, "remaining_ms": holder.remaining_ms,
        })
    });
    json!({
        "server": address, "holder": holder, "algorithm": answer.algorithm, "template": answer.template,
        "capacity": answer.capacity, "free": answer.free, "standing": known, "rule": answer.rule,
        "blocks": answer.blocks, "asks_ms": answer.asks_ms, "latest_ms": answer.latest_ms,
        "limit": answer.limit.as_ref().map(limit_as_json),
        "overridden": answer.overridden.as_ref().map(overridden_as_json),
        "overridden_groups": answer.overridden_group.iter().map(overridden_as_json).collect::<Vec<_>>(),
        "sentences": answer.sentences, "node": answer.node, "parent": answer.parent,
    })
}
