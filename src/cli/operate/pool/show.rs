//! `leaseway pool show`.

use clap::Args;
use leaseway_core::types::escaped;
use leaseway_proto::pools::{GetPoolRequest, GetPoolResponse, Memory, Totals};
use serde_json::{Value, json};

use super::{NOT_KEPT, memory_name};
use crate::Outcome;
use crate::operate::admin::{AdminTarget, Pools};
use crate::output::{Output, number, table_without_heading};

#[derive(Args)]
pub(crate) struct ShowPool {
    /// Resource id of the pool
    resource: String,
    #[command(flatten)]
    output: Output,
    #[command(flatten)]
    target: AdminTarget,
}

impl ShowPool {
    pub(super) async fn run(self) -> Outcome {
        let request = GetPoolRequest { resource_id: self.resource.clone() };
        let get = async |mut client: Pools| client.get_pool(request.clone()).await;
        let answer = self.target.ask_pools(get).await?;
        self.output.print(|| as_text(&answer), || as_json(&answer))
    }
}

fn as_text(pool: &GetPoolResponse) -> String {
    let totals = pool.totals.unwrap_or_default();
    let rows = [
        ("total", number(totals.total), "may be connected"),
        ("connected", number(totals.connected), "clients have"),
        ("  priority", number(totals.priority_connected), "of it priority clients"),
        ("assigned", number(pool.priority_assigned), "is assigned, connected or not"),
        ("base", number(pool.base_capacity), "can be served at once"),
        ("used", number(pool.recharging), "is used of it, as far as clients say"),
        ("most", number(pool.max_capacity), "the total is never more"),
        ("least", number(pool.min_capacity), "a client has nothing or at least this much"),
        ("free", number(pool.free_capacity), "a free client gets"),
    ];
    // The table aligns the numbers; the words follow at the left.
    let figures = rows.iter().map(|(name, value, _)| vec![(*name).to_owned(), value.clone()]);
    let figures = table_without_heading(&figures.collect::<Vec<_>>());
    let lines = figures.lines().zip(&rows).map(|(figures, (_, _, what))| format!("{figures}  {what}"));
    let mut text = format!("pool {}\n\n{}\n", escaped(&pool.resource_id), lines.collect::<Vec<_>>().join("\n"));
    for line in notes(pool, &totals) {
        text.push('\n');
        text.push_str(&line);
    }
    text
}

fn notes(pool: &GetPoolResponse, totals: &Totals) -> Vec<String> {
    let mut notes = Vec::new();
    if pool.learning {
        notes.push("it is learning the leases of its clients; until then none is cut off".to_owned());
    }
    if let Some(left) = totals.underrun_ms {
        notes.push(format!(
            "UNDERRUN: priority clients have more than the total; in {} s the least important lose theirs, unless assignments are \
             lowered (`leaseway pool set`)",
            number((left / 100) as f64 / 10.0)
        ));
    }
    if let Some(load) = pool.reported_load {
        let until = match pool.reported_load_ms {
            Some(left) => format!("for {} s more", number((left / 100) as f64 / 10.0)),
            None => "until the next report (`leaseway pool load`)".to_owned(),
        };
        notes.push(format!("what can be served was reported to be {}; that counts {until}", number(load)));
    }
    let overloads = match (pool.overloads, pool.overloaded) {
        (0, _) => "more was never used than could be served".to_owned(),
        (times, false) => format!("more was used than could be served {times} times since this master began"),
        (times, true) => format!("more is used than can be served, for the {times}. time since this master began"),
    };
    notes.push(overloads);
    if pool.memory() == Memory::Process {
        notes.push(NOT_KEPT.to_owned());
    }
    notes.push(format!(
        "waiting: {} free, {} priority; to lose what they have when they ask: {}",
        pool.free_waiting, pool.priority_waiting, pool.revoking
    ));
    notes
}

fn as_json(pool: &GetPoolResponse) -> Value {
    let totals = pool.totals.unwrap_or_default();
    json!({
        "resource": pool.resource_id, "total": totals.total, "connected": totals.connected,
        "priority_connected": totals.priority_connected, "underrun_ms": totals.underrun_ms,
        "min_capacity": pool.min_capacity, "free_capacity": pool.free_capacity, "base_capacity": pool.base_capacity,
        "max_capacity": pool.max_capacity, "priority_assigned": pool.priority_assigned, "recharging": pool.recharging,
        "overloads": pool.overloads, "overloaded": pool.overloaded, "learning": pool.learning,
        "free_waiting": pool.free_waiting, "priority_waiting": pool.priority_waiting, "revoking": pool.revoking,
        "reported_load": pool.reported_load, "reported_load_ms": pool.reported_load_ms,
        "remembered": pool.remembered, "memory": memory_name(pool.memory()), "subscribers": pool.subscribers,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pool() -> GetPoolResponse {
        GetPoolResponse {
            resource_id: "searches".into(),
            totals: Some(Totals { total: 100.0, connected: 60.0, priority_connected: 40.0, underrun_ms: None }),
            min_capacity: 10.0,
            free_capacity: 10.0,
            base_capacity: 80.0,
            max_capacity: 200.0,
            priority_assigned: 150.0,
            recharging: 12.5,
            free_waiting: 3,
            ..GetPoolResponse::default()
        }
    }

    #[test]
    fn a_pool_is_shown_with_what_its_numbers_mean() {
        assert_eq!(
            as_text(&pool()),
            "pool searches\n\n\
             total        100  may be connected\n\
             connected     60  clients have\n  \
             priority    40  of it priority clients\n\
             assigned     150  is assigned, connected or not\n\
             base          80  can be served at once\n\
             used        12.5  is used of it, as far as clients say\n\
             most         200  the total is never more\n\
             least         10  a client has nothing or at least this much\n\
             free          10  a free client gets\n\n\
             more was never used than could be served\n\
             waiting: 3 free, 0 priority; to lose what they have when they ask: 0"
        );
    }

    #[test]
    fn what_needs_an_operator_is_said() {
        let totals = Some(Totals { underrun_ms: Some(4_270), ..Totals::default() });
        let troubled = GetPoolResponse { totals, learning: true, overloads: 2, overloaded: true, ..pool() };
        let text = as_text(&troubled);
        assert!(text.contains("UNDERRUN") && text.contains("in 4.2 s"), "{text}");
        assert!(text.contains("it is learning") && text.contains("for the 2. time"), "{text}");
    }

    #[test]
    fn a_reported_load_is_said_and_for_how_long_it_counts() {
        assert!(!as_text(&pool()).contains("reported") && as_json(&pool())["reported_load"].is_null());
        let reported = GetPoolResponse { reported_load: Some(60.0), ..pool() };
        let until_next = "what can be served was reported to be 60; that counts until the next report";
        assert!(as_text(&reported).contains(until_next), "{}", as_text(&reported));
        let for_a_while = GetPoolResponse { reported_load_ms: Some(4_270), ..reported };
        assert!(as_text(&for_a_while).contains("that counts for 4.2 s more"), "{}", as_text(&for_a_while));
        assert_eq!(
            (&as_json(&for_a_while)["reported_load"], &as_json(&for_a_while)["reported_load_ms"]),
            (&json!(60.0), &json!(4_270))
        );
    }
}
