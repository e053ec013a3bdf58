//! `leaseway pool clients`.

use clap::{Args, ValueEnum};
use leaseway_proto::pools::{Client, Filter, ListClientsRequest, ListClientsResponse, Standing};
use serde_json::{Value, json};

use super::{assigned_as_json, name, rounded, text};
use crate::Outcome;
use crate::error::CliError;
use crate::operate::admin::{AdminTarget, Pools};
use crate::output::{Output, number, print, print_json, table};

#[derive(Args)]
pub(crate) struct ListClients {
    /// Resource id of the pool
    resource: String,
    /// List only these clients
    #[arg(long, value_enum, default_value = "known")]
    only: Only,
    /// Maximum number of rows
    #[arg(long, default_value_t = 100, value_parser = clap::value_parser!(u32).range(1..))]
    rows: u32,
    #[command(flatten)]
    output: Output,
    #[command(flatten)]
    target: AdminTarget,
}

#[derive(Debug, Clone, Copy, ValueEnum)]
enum Only {
    /// Clients with a lease or a pending request
    Known,
    /// Clients with capacity
    Connected,
    /// Clients with an assignment, connected or not
    Assigned,
    /// Clients with both capacity and an assignment
    PriorityConnected,
}

impl Only {
    fn filter(self) -> Filter {
        match self {
            Only::Known => Filter::Known,
            Only::Connected => Filter::Connected,
            Only::Assigned => Filter::Assigned,
            Only::PriorityConnected => Filter::PriorityConnected,
        }
    }
}

impl ListClients {
    pub(super) async fn run(self) -> Outcome {
        let (clients, more) = self.collect().await?;
        if self.output.is_json() {
            return print_json(json!({ "clients": clients.iter().map(as_json).collect::<Vec<_>>(), "more": more }));
        }
        print(as_text(&clients))?;
        if more {
            print(format_args!("... more than {} clients; --rows shows more", self.rows))?;
        }
        Ok(())
    }

    /// Fetches all pages. Also returns whether there are more clients.
    async fn collect(&self) -> Result<(Vec<Client>, bool), CliError> {
        let mut clients = Vec::new();
        let mut page_token = String::new();
        loop {
            let request = ListClientsRequest {
                resource_id: self.resource.clone(),
                filter: self.only.filter().into(),
                page_size: self.rows.saturating_sub(clients.len() as u32),
                page_token,
            };
            let list = async |mut client: Pools| client.list_clients(request.clone()).await;
            let ListClientsResponse { client, next_page_token } = self.target.ask_pools(list).await?;
            clients.extend(client);
            if next_page_token.is_empty() || clients.len() >= self.rows as usize {
                return Ok((clients, !next_page_token.is_empty()));
            }
            page_token = next_page_token;
        }
    }
}

fn as_text(clients: &[Client]) -> String {
    if clients.is_empty() {
        return "no clients".to_owned();
    }
    let heading = ["CLIENT", "STANDING", "HAS", "DUE", "ASSIGNED", "BALANCE", "TIME COST", "REQUEST COST"];
    let rows = clients.iter().map(|client| {
        vec![
            name(client.holder.as_ref()),
            standing(client.standing()).to_owned(),
            number(client.capacity),
            number(client.due),
            client.assigned.as_ref().map_or_else(|| "-".to_owned(), |assigned| text(Some(assigned))),
            rounded(client.balance),
            rounded(client.time_cost),
            rounded(client.request_cost),
        ]
    });
    table(&heading, rows)
}

/// A client's standing in one line.
pub(super) fn stands(client: Option<&Client>) -> String {
    let Some(client) = client else { return "not connected, and not waiting".to_owned() };
    let (has, due) = (number(client.capacity), number(client.due));
    let cost = format!("cost {} + {} since it connected", rounded(client.time_cost), rounded(client.request_cost));
    match client.standing() {
        Standing::Unspecified | Standing::Waiting => "not connected: waiting, or wants nothing".to_owned(),
        Standing::Revoking => format!("connected with {has}, but its next request will return no capacity; {cost}"),
        standing if client.capacity == client.due => {
            format!("connected ({}) with {has}; {cost}", self::standing(standing))
        }
        standing => format!("connected ({}) with {has} of the {due} it is due; {cost}", self::standing(standing)),
    }
}

fn standing(standing: Standing) -> &'static str {
    match standing {
        Standing::Unspecified => "unknown",
        Standing::Waiting => "waiting",
        Standing::Free => "free",
        Standing::Priority => "priority",
        Standing::Revoking => "revoking",
    }
}

pub(super) fn as_json(client: &Client) -> Value {
    let holder = client.holder.clone().unwrap_or_default();
    json!({
        "id": holder.id, "is_server": holder.is_server, "standing": standing(client.standing()),
        "capacity": client.capacity, "due": client.due, "assigned": assigned_as_json(client.assigned.as_ref()),
        "balance": client.balance, "time_cost": client.time_cost, "request_cost": client.request_cost,
    })
}

#[cfg(test)]
mod tests {
    use leaseway_proto::pools::{Assigned, Holder, assigned::Amount};

    use super::*;

    #[test]
    fn the_list_shows_what_clients_have_and_why() {
        let holder = |id: &str, is_server| Some(Holder { id: id.into(), is_server });
        let assigned = |amount| Some(Assigned { amount: Some(amount) });
        let clients = [
            Client {
                holder: holder("acme", false),
                standing: Standing::Priority.into(),
                capacity: 40.0,
                due: 40.0,
                assigned: assigned(Amount::Capacity(40.0)),
                time_cost: 120.04,
                request_cost: 7.0,
                ..Client::default()
            },
            Client {
                holder: holder("west", true),
                standing: Standing::Waiting.into(),
                assigned: assigned(Amount::Share(0.5)),
                ..Client::default()
            },
            Client {
                holder: holder("stranger", false),
                standing: Standing::Revoking.into(),
                capacity: 10.0,
                balance: 33.333_333,
                ..Client::default()
            },
        ];
        assert_eq!(
            as_text(&clients),
            "CLIENT       STANDING  HAS  DUE  ASSIGNED  BALANCE  TIME COST  REQUEST COST\n\
             acme         priority   40   40        40        0        120             7\n\
             west (node)   waiting    0    0       50%        0          0             0\n\
             stranger     revoking   10    0         -     33.3          0             0"
        );
        assert_eq!(as_json(&clients[1])["assigned"]["share"], 0.5);
        let lines = clients.iter().map(|client| stands(Some(client)));
        assert_eq!(
            lines.collect::<Vec<_>>(),
            [
                "connected (priority) with 40; cost 120 + 7 since it connected",
                "not connected: waiting, or wants nothing",
                "connected with 10, but its next request will return no capacity; cost 0 + 0 since it connected",
            ]
        );
    }
}
