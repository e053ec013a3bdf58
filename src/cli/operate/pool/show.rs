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
        ("total", number(totals.total), "may be connected at the same time"),
        ("connected", number(totals.connected), "held by connected clients"),
        ("  priority", number(totals.priority_connected), "of it held by priority clients"),
        ("assigned", number(pool.priority_assigned), "assigned to clients, connected or not"),
        ("base", number(pool.base_capacity), "of the protected resource"),
        ("used", number(pool.recharging), "in use, as reported by clients"),
        ("most", number(pool.max_capacity), "maximum of the total"),
        ("least", number(pool.min_capacity), "minimum of a connected client"),
        ("free", number(pool.free_capacity), "of a free client"),
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
        notes.push("learning mode: until clients have reported their leases, none is disconnected".to_owned());
    }
    if let Some(left) = totals.underrun_ms {
        notes.push(format!(
            "UNDERRUN: priority clients have more than the total; in {} s the least important are disconnected, unless \
             assignments are lowered (`leaseway pool set`)",
            number((left / 100) as f64 / 10.0)
        ));
    }
    if let Some(load) = pool.reported_load {
        let until = match pool.reported_load_ms {
            Some(left) => format!("for {} s more", number((left / 100) as f64 / 10.0)),
            None => "until the next report (`leaseway pool load`)".to_owned(),
        };
        notes.push(format!("reported load: the protected resource can serve {}; valid {until}", number(load)));
    }
    let overloads = match (pool.overloads, pool.overloaded) {
        (0, _) => "no overloads since this master began".to_owned(),
        (times, false) => format!("overloads since this master began: {times}"),
        (times, true) => format!("overloads since this master began: {times}, including the current one"),
    };
    notes.push(overloads);
    if pool.memory() == Memory::Process {
        notes.push(NOT_KEPT.to_owned());
    }
    notes.push(format!(
        "waiting: {} free, {} priority; being revoked: {}",
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
             total        100  may be connected at the same time\n\
             connected     60  held by connected clients\n  \
             priority    40  of it held by priority clients\n\
             assigned     150  assigned to clients, connected or not\n\
             base          80  of the protected resource\n\
             used        12.5  in use, as reported by clients\n\
             most         200  maximum of the total\n\
             least         10  minimum of a connected client\n\
             free          10  of a free client\n\n\
             no overloads since this master began\n\
             waiting: 3 free, 0 priority; being revoked: 0"
        );
    }

    #[test]
    fn underruns_learning_mode_and_overloads_are_noted() {
        let totals = Some(Totals { underrun_ms: Some(4_270), ..Totals::default() });
        let troubled = GetPoolResponse { totals, learning: true, overloads: 2, overloaded: true, ..pool() };
        let text = as_text(&troubled);
        assert!(text.contains("UNDERRUN") && text.contains("in 4.2 s"), "{text}");
        assert!(text.contains("learning mode") && text.contains("2, including the current one"), "{text}");
    }

    #[test]
    fn a_reported_load_is_shown_with_its_remaining_time() {
        assert!(!as_text(&pool()).contains("reported load") && as_json(&pool())["reported_load"].is_null());
        let reported = GetPoolResponse { reported_load: Some(60.0), ..pool() };
        let until_next = "the protected resource can serve 60; valid until the next report";
        assert!(as_text(&reported).contains(until_next), "{}", as_text(&reported));
        let for_a_while = GetPoolResponse { reported_load_ms: Some(4_270), ..reported };
        assert!(as_text(&for_a_while).contains("valid for 4.2 s more"), "{}", as_text(&for_a_while));
        assert_eq!(
            (&as_json(&for_a_while)["reported_load"], &as_json(&for_a_while)["reported_load_ms"]),
            (&json!(60.0), &json!(4_270))
        );
    }
}
