//! What happened to trees and masters: simulations, faults, fleets.

use crate::{
    chaos::{ChaosReport, MEASURES, Measure},
    chart::{
        Chart,
        axis::grouped,
        bars::{self, Bar, Group, Scale},
    },
    fleet::FleetReport,
    simulate::{SimulateReport, SimulatedCase, SimulatedTable},
    spread::Spread,
};

/// Rows below a head, as the page shows them.
pub(super) struct PageTable {
    pub(super) title: String,
    pub(super) head: Vec<&'static str>,
    pub(super) rows: Vec<Vec<String>>,
}

pub(super) fn simulated_chart(simulated: &SimulateReport) -> Option<Chart> {
    let group = |case: &SimulatedCase| {
        let spread = *case.spreads.get("of_wanted")?;
        Some(Group { label: case.label(), bars: vec![Bar { series: 0, spread }] })
    };
    let groups: Vec<_> = simulated.cases.iter().filter_map(group).collect();
    let least = groups.iter().flat_map(|group| &group.bars).map(|bar| bar.spread.min).fold(100.0, f64::min);
    // Room for all of it, and no more: the last per cent is what these differ in.
    let from = [99.0, 98.0, 95.0, 90.0, 50.0].into_iter().find(|from| *from < least).unwrap_or(0.0);
    let scale = Scale { from, to: Some(100.0), digits: 2, unit: "per cent" };
    let begins = if from > 0.0 { format!(" The scale begins at {from} %, not at zero.") } else { String::new() };
    let note = format!("Of min(wants, capacity), by virtual time; median of all seeds and range.{begins}");
    bars::bars("What could be used and was, simulated", &note, &scale, &["used"], &groups)
}

/// One of trees, and one of pools; only those that there is something to say in.
pub(super) fn simulated_tables(name: &str, simulated: &SimulateReport) -> Vec<PageTable> {
    let table = |(title, is_pool): (&str, bool)| {
        let SimulatedTable { head, rows } = SimulatedTable::for_page(&simulated.cases, is_pool);
        PageTable { title: format!("Simulated {title} ({name})"), head, rows }
    };
    [("trees", false), ("pools", true)].map(table).into_iter().filter(|table| !table.rows.is_empty()).collect()
}

/// The times among the measures of chaos.
const TIMES: &[Measure] = MEASURES.first_chunk::<3>().expect("there are more");

/// A time of all rounds of a kind, and how often it never came; `–` if there were no rounds.
fn times(values: impl Iterator<Item = Option<f64>>, digits: usize) -> String {
    let (known, never): (Vec<_>, Vec<_>) = values.partition(Option::is_some);
    match (Spread::of(known.into_iter().flatten()), never.len()) {
        (None, 0) => "–".into(),
        (None, _) => "never".into(),
        (Some(spread), 0) => range(spread, digits),
        (Some(spread), never) => format!("{}, never in {never}", range(spread, digits)),
    }
}

pub(super) fn chaos_chart(chaos: &ChaosReport) -> Option<Chart> {
    let by_fault = chaos.by_fault();
    let groups = by_fault.iter().map(|(label, rounds)| {
        let bar = |(series, (_, _, read)): (usize, &Measure)| {
            Some(Bar { series, spread: Spread::of(rounds.iter().filter_map(|round| read(round)))? })
        };
        Group { label: format!("after {label}"), bars: TIMES.iter().enumerate().filter_map(bar).collect() }
    });
    let scale = Scale { from: 0.0, to: None, digits: 0, unit: "ms after the fault" };
    let note = "Real processes. Median of the rounds, and range. Less is better. Rounds in which it never happened are left out.";
    let names: Vec<_> = TIMES.iter().map(|(name, ..)| name.trim_end_matches(", ms")).collect();
    bars::bars("After a fault", note, &scale, &names, &groups.collect::<Vec<_>>())
}

/// Resources of which clients could use more than there is.
pub(super) fn chaos_doubts(chaos: &ChaosReport) -> Vec<String> {
    let over = chaos.audits.iter().filter(|(_, audit)| audit.over_us > 0);
    over.map(|(resource, audit)| {
        format!("clients could use more than there is of {resource}, for {:.6} s", audit.over_us as f64 / 1e6)
    })
    .collect()
}

pub(super) fn chaos_table(name: &str, chaos: &ChaosReport) -> PageTable {
    // Resources are over at the same time or not: their times are no sum.
    let over = chaos.audits.iter().map(|(_, audit)| audit.over_us).max().unwrap_or_default();
    let rows = chaos.by_fault().into_iter().map(|(label, rounds)| {
        let read = |(_, _, read): &Measure| times(rounds.iter().map(|round| read(round)), 0);
        [label.to_owned(), rounds.len().to_string()].into_iter().chain(TIMES.iter().map(read)).collect()
    });
    let over = over as f64 / 1e6;
    PageTable {
        title: format!(
            "Faults ({name}): {:.0} s, {over:.3} s of them with more than the capacity in clients' books",
            chaos.seconds
        ),
        head: ["after", "rounds"].into_iter().chain(TIMES.iter().map(|(name, ..)| *name)).collect(),
        rows: rows.collect(),
    }
}

pub(super) fn fleet_table(name: &str, fleet: &FleetReport) -> PageTable {
    let seconds = |values: &[Option<f64>]| times(values.iter().copied(), 2);
    let clients = fleet.clients.max(1) as f64;
    let columns = [
        ("clients", fleet.clients.to_string()),
        ("hints", if fleet.hints { "on" } else { "off" }.into()),
        ("all had a lease after s", grouped(fleet.start_s, 2)),
        ("KiB per client", grouped(fleet.memory_kib as f64 / clients, 1)),
        ("CPU while idle, µs per client and second", grouped(fleet.idle_cpu_s / fleet.idle_s / clients * 1e6, 1)),
        ("all had their due after a rise, s", seconds(&fleet.rise_s)),
        ("and after a fall, s", seconds(&fleet.fall_s)),
    ];
    let (head, row) = columns.into_iter().unzip();
    PageTable { title: format!("A fleet of clients ({name})"), head, rows: vec![row] }
}

/// `median (min to max)`, or just the one value there is.
pub(super) fn range(Spread { median, min, max }: Spread, digits: usize) -> String {
    let [middle, low, high] = [median, min, max].map(|value| grouped(value, digits));
    if low == high { middle } else { format!("{middle} ({low} to {high})") }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    #[test]
    fn a_range_of_one_value_is_that_value() {
        assert_eq!(range(Spread { median: 2.0, min: 1.0, max: 3000.0 }, 0), "2 (1 to 3,000)");
        assert_eq!(range(Spread { median: 2.0, min: 2.0, max: 2.0 }, 1), "2.0");
    }

    #[test]
    fn pools_are_shown_by_figures_of_their_own() {
        let case = |is_pool: bool, spreads: Value| {
            json!({"scenario": "odd", "set": {"raise_tc_s": "900"}, "algorithm": "A", "reuse": "confirmed", "push": true,
                   "handover": "promises", "command": "x", "is_pool": is_pool, "spreads": spreads, "runs": [{}], "broken": []})
        };
        let spread = |median: f64| json!({"median": median, "min": median, "max": median});
        let tree = case(false, json!({"of_wanted": spread(99.5), "apart_at_end_worst": spread(0.0)}));
        let pool = case(true, json!({"overloads_in_8_h": spread(498.0)}));
        let cases: SimulateReport = serde_json::from_value(json!({ "cases": [tree, pool] })).unwrap();
        let [trees, pools] = &simulated_tables("x", &cases)[..] else { panic!("one of trees and one of pools") };
        assert!(trees.rows.len() == 1 && trees.rows[0].contains(&"99.50".into()), "{:?}", trees.rows);
        assert!(pools.title.starts_with("Simulated pools (x)"), "{}", pools.title);
        assert_eq!(pools.rows[0][0], "odd raise_tc_s=900: A, confirmed, with hints");
        assert!(pools.rows.len() == 1 && pools.rows[0][3] == "498.0", "{:?}", pools.rows);
        let chart = simulated_chart(&cases).unwrap();
        assert!(chart.note.contains("begins at 99 %"), "{}", chart.note);
        assert!(chart.body.into_string().contains("99.50"));
    }

    #[test]
    fn faults_are_shown_by_kind_and_what_never_happened_is_said() {
        let round = |label: &str, master: Option<f64>| {
            json!({"round": 1, "label": label, "at_s": 1.0, "victims": [],
            "hits_master": true, "master_ms": master, "gap_ms": 5.0, "lost": false, "without_lease": 0,
            "clients": {"requests": 1, "errors": 0, "redirects": 0, "leases_ended": 0}})
        };
        let audit = |resource: &str, over_us: u64| {
            json!([resource, {"clients": 1, "entries": 1, "peak": 1.0, "peak_us": 1,
            "over_us": over_us, "mean": 1.0}])
        };
        let rounds = [round("kill", Some(300.0)), round("kill", Some(500.0)), round("kill", None), round("cut", None)];
        let audits = [audit("plenty", 0), audit("scarce", 1500), audit("too", 400)];
        let report = json!({"arguments": [], "capacity": 1.0, "seconds": 9.0, "rounds": rounds, "audits": audits});
        let chaos: ChaosReport = serde_json::from_value(report).unwrap();
        let table = chaos_table("x", &chaos);
        assert!(table.title.contains("0.002 s"), "{}", table.title);
        let doubts = chaos_doubts(&chaos);
        assert!(doubts.len() == 2 && doubts[0].ends_with("of scarce, for 0.001500 s"), "{doubts:?}");
        assert_eq!(table.rows[0], ["cut", "1", "never", "never", "5"]);
        assert_eq!(table.rows[1], ["kill", "3", "400 (300 to 500), never in 1", "never", "5"]);
        assert!(chaos_chart(&chaos).is_some());
    }

    #[test]
    fn what_a_fleet_never_reached_is_said() {
        let fleet = |rise: Value| {
            let fleet = json!({"arguments": [], "clients": 5, "hints": true, "start_s": 1.0, "memory_kib": 3,
                "idle_s": 2.0, "idle_cpu_s": 0.001, "rise_s": rise, "fall_s": []});
            let mut table = fleet_table("x", &serde_json::from_value(fleet).unwrap());
            table.rows.remove(0)
        };
        assert_eq!(fleet(json!([0.5, 0.7]))[4..], ["100.0", "0.60 (0.50 to 0.70)", "–"]);
        assert_eq!(fleet(json!([0.5, null, null]))[5], "0.50, never in 2");
        assert_eq!(fleet(json!([null]))[5], "never");
    }
}
