//! What happened to trees and masters: simulations, mishaps, fleets.

use leaseway_core::Kind;

use super::read::{Chaos, Fleet, Simulated, SimulatedCase, SimulatedSpread};
use crate::{
    chart::{
        Chart,
        axis::grouped,
        bars::{self, Bar, Group, Scale},
    },
    compare::Spread,
};

/// Rows below a head, as the page shows them.
pub(super) struct Table {
    pub(super) title: String,
    pub(super) head: Vec<&'static str>,
    pub(super) rows: Vec<Vec<String>>,
}

impl From<SimulatedSpread> for Spread {
    fn from(SimulatedSpread { median, least, most }: SimulatedSpread) -> Spread {
        Spread { median, min: least, max: most }
    }
}

impl SimulatedCase {
    fn label(&self) -> String {
        let algorithm = self.algorithm.as_str().map_or_else(|| self.algorithm.to_string(), str::to_owned);
        let push = if self.push { "with hints" } else { "without hints" };
        let set: String = self.set.iter().map(|(name, value)| format!(" {name}={value}")).collect();
        format!("{}{set}: {algorithm}, {}, {push}", self.scenario, self.reuse)
    }

    /// A pool is overbooked on purpose, and nobody in it is due a part: other figures say how well it does.
    fn is_pool(&self) -> bool {
        self.algorithm == Kind::PriorityPool.name()
    }

    fn seeds(&self) -> [String; 2] {
        [(self.runs.len() + self.broken.len()).to_string(), self.broken.len().to_string()]
    }
}

pub(super) fn simulated_chart(simulated: &Simulated) -> Option<Chart> {
    let group = |case: &SimulatedCase| {
        let spread = case.spreads.of_wanted?.into();
        Some(Group { label: case.label(), bars: vec![Bar { series: 0, spread }] })
    };
    let groups: Vec<_> = simulated.cases.iter().filter(|case| !case.is_pool()).filter_map(group).collect();
    let least = groups.iter().flat_map(|group| &group.bars).map(|bar| bar.spread.min).fold(100.0, f64::min);
    // Room for all of it, and no more: the last per cent is what these differ in.
    let from = [99.0, 98.0, 95.0, 90.0, 50.0].into_iter().find(|from| *from < least).unwrap_or(0.0);
    let scale = Scale { from, to: Some(100.0), digits: 2, unit: "per cent" };
    let begins = if from > 0.0 { format!(" The scale begins at {from} %, not at zero.") } else { String::new() };
    let note = format!("Of min(wants, capacity), by virtual time; median of all seeds and range.{begins}");
    bars::bars("What could be used and was, simulated", &note, &scale, &["used"], &groups)
}

/// One of trees, and one of pools; only those that there is something to say in.
pub(super) fn simulated_tables(name: &str, simulated: &Simulated) -> Vec<Table> {
    let (pools, trees): (Vec<_>, Vec<_>) = simulated.cases.iter().partition(|case| case.is_pool());
    let tables = [tree_table(name, &trees), pool_table(name, &pools)];
    tables.into_iter().filter(|table| !table.rows.is_empty()).collect()
}

fn show(spread: Option<SimulatedSpread>, digits: usize) -> String {
    spread.map_or("–".into(), |spread| range(spread.into(), digits))
}

fn tree_table(name: &str, cases: &[&SimulatedCase]) -> Table {
    let row = |case: &&SimulatedCase| {
        let ([seeds, broken], spreads) = (case.seeds(), &case.spreads);
        vec![
            case.label(),
            seeds,
            broken,
            show(spreads.of_wanted, 2),
            show(spreads.over_seconds, 1),
            show(spreads.apart_at_end_worst, 2),
            show(spreads.settled_refreshes, 1),
            show(spreads.messages_per_s, 1),
        ]
    };
    Table {
        title: format!("Simulated trees ({name})"),
        head: vec![
            "scenario",
            "seeds",
            "broke a promise",
            "used %",
            "over the capacity, s",
            "worst client off at the end, %",
            "settled after refreshes",
            "messages/s",
        ],
        rows: cases.iter().map(row).collect(),
    }
}

fn pool_table(name: &str, cases: &[&SimulatedCase]) -> Table {
    let row = |case: &&SimulatedCase| {
        let ([seeds, broken], spreads) = (case.seeds(), &case.spreads);
        vec![
            case.label(),
            seeds,
            broken,
            show(spreads.overloads_in_8_h, 1),
            show(spreads.overused, 2),
            show(spreads.used, 1),
            show(spreads.of_capacity, 1),
            show(spreads.total, 1),
            show(spreads.kicked_out_in_8_h, 0),
            show(spreads.messages_per_s, 1),
        ]
    };
    Table {
        title: format!("Simulated pools ({name})"),
        head: vec![
            "scenario",
            "seeds",
            "broke a promise",
            "overloads in 8 h",
            "overused % of the time",
            "used % of capacity",
            "connected %",
            "total %",
            "kicked out in 8 h",
            "messages/s",
        ],
        rows: cases.iter().map(row).collect(),
    }
}

/// What of a mishap is shown.
type Read = fn(&super::read::Round) -> Option<f64>;
const MISHAPS: [(&str, Read); 3] = [
    ("a master says so", |round| round.master_ms),
    ("first grant", |round| round.grant_ms),
    ("longest without a grant", |round| Some(round.gap_ms)),
];

/// What was found in all rounds of a kind, and in how many of them it never happened.
struct Times {
    spread: Option<Spread>,
    never: usize,
}

impl Times {
    fn of(values: impl Iterator<Item = Option<f64>>) -> Times {
        let (known, never): (Vec<_>, Vec<_>) = values.partition(Option::is_some);
        let spread = (!known.is_empty()).then(|| Spread::of(known.into_iter().flatten()));
        Times { spread, never: never.len() }
    }

    /// `–` if there were no rounds.
    fn text(&self, digits: usize) -> String {
        match (self.spread, self.never) {
            (None, 0) => "–".into(),
            (None, _) => "never".into(),
            (Some(spread), 0) => range(spread, digits),
            (Some(spread), never) => format!("{}, never in {never}", range(spread, digits)),
        }
    }
}

fn mishaps(chaos: &Chaos) -> Vec<(&str, Vec<Times>)> {
    let rounds = &chaos.report.rounds;
    let mut labels: Vec<_> = rounds.iter().map(|round| round.label.as_str()).collect();
    labels.sort_unstable();
    labels.dedup();
    let times = |label: &str, read: Read| Times::of(rounds.iter().filter(|round| round.label == label).map(read));
    labels.into_iter().map(|label| (label, MISHAPS.iter().map(|(_, read)| times(label, *read)).collect())).collect()
}

pub(super) fn chaos_chart(chaos: &Chaos) -> Option<Chart> {
    let group = |(label, times): (&str, Vec<Times>)| Group {
        label: format!("after {label}"),
        bars: times
            .into_iter()
            .enumerate()
            .filter_map(|(series, times)| Some(Bar { series, spread: times.spread? }))
            .collect(),
    };
    let groups: Vec<_> = mishaps(chaos).into_iter().map(group).collect();
    let scale = Scale { from: 0.0, to: None, digits: 0, unit: "ms after the blow" };
    let note = "Real processes. Median of the rounds, and range. Less is better. Rounds in which it never happened are left out.";
    bars::bars("After a mishap", note, &scale, &MISHAPS.map(|(name, _)| name), &groups)
}

/// Resources of which clients could use more than there is.
pub(super) fn chaos_doubts(chaos: &Chaos) -> Vec<String> {
    let over = chaos.report.audits.iter().filter(|(_, audited)| audited.over_us > 0);
    over.map(|(resource, audited)| {
        format!("clients could use more than there is of {resource}, for {:.6} s", audited.over_us as f64 / 1e6)
    })
    .collect()
}

pub(super) fn chaos_table(name: &str, chaos: &Chaos) -> Table {
    // Resources are over at the same time or not: their times are no sum.
    let over = chaos.report.audits.iter().map(|(_, audited)| audited.over_us).max().unwrap_or_default();
    let rounds = |label: &str| chaos.report.rounds.iter().filter(|round| round.label == label).count();
    let row = |(label, times): (&str, Vec<Times>)| {
        let mut row = vec![label.to_owned(), rounds(label).to_string()];
        row.extend(times.into_iter().map(|times| times.text(0)));
        row
    };
    Table {
        title: format!(
            "Mishaps ({name}): {:.0} s, {:.3} s of them with more than the capacity in clients' books",
            chaos.report.seconds,
            over as f64 / 1e6
        ),
        head: vec!["after", "rounds", "a master says so, ms", "first grant, ms", "longest without a grant, ms"],
        rows: mishaps(chaos).into_iter().map(row).collect(),
    }
}

pub(super) fn fleet_table(name: &str, fleet: &Fleet) -> Table {
    let seconds = |values: &[Option<f64>]| Times::of(values.iter().copied()).text(2);
    let row = vec![
        fleet.clients.to_string(),
        if fleet.hints { "on" } else { "off" }.into(),
        grouped(fleet.start_s, 2),
        grouped(fleet.memory_kib as f64 / fleet.clients.max(1) as f64, 1),
        grouped(fleet.idle_cpu_s / fleet.idle_s / fleet.clients.max(1) as f64 * 1e6, 1),
        seconds(&fleet.rise_s),
        seconds(&fleet.fall_s),
    ];
    Table {
        title: format!("A fleet of clients ({name})"),
        head: vec![
            "clients",
            "hints",
            "all had a lease after s",
            "KiB per client",
            "CPU while idle, µs per client and second",
            "all had their due after a rise, s",
            "and after a fall, s",
        ],
        rows: vec![row],
    }
}

/// `median (min to max)`, or just the one value there is.
pub(super) fn range(Spread { median, min, max }: Spread, digits: usize) -> String {
    let [middle, low, high] = [median, min, max].map(|value| grouped(value, digits));
    if low == high { middle } else { format!("{middle} ({low} to {high})") }
}

/// The commands that repeat a simulation, but for the seed.
pub(super) fn commands(simulated: &Simulated) -> Vec<String> {
    simulated.cases.iter().map(|case| case.command.clone()).collect()
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

    fn simulated(of_wanted: f64, pool: Option<f64>) -> Value {
        let spread = |median: f64| json!({"median": median, "least": median, "most": median, "of": 1});
        let mut spreads = json!({"of_wanted": spread(of_wanted), "apart_at_end_worst": spread(0.0)});
        if let Some(overloads) = pool {
            spreads["overloads_in_8_h"] = spread(overloads);
        }
        let algorithm = if pool.is_some() { "PRIORITY_POOL" } else { "FAIR_SHARE" };
        json!({"scenario": "odd", "set": {"raise_tc_s": "900"}, "algorithm": algorithm, "reuse": "confirmed", "push": true,
               "command": "x", "spreads": spreads, "runs": [{}], "broken": []})
    }

    #[test]
    fn pools_are_shown_by_figures_of_their_own() {
        let cases = json!({"cases": [simulated(99.5, None), simulated(12.25, Some(498.0))]});
        let cases: Simulated = serde_json::from_value(cases).unwrap();
        let [trees, pools] = &simulated_tables("x", &cases)[..] else { panic!("one of trees and one of pools") };
        assert!(trees.rows.len() == 1 && trees.rows[0].contains(&"99.50".into()), "{:?}", trees.rows);
        assert!(pools.title.starts_with("Simulated pools (x)"), "{}", pools.title);
        assert_eq!(pools.rows[0][0], "odd raise_tc_s=900: PRIORITY_POOL, confirmed, with hints");
        assert!(pools.rows.len() == 1 && pools.rows[0][3] == "498.0", "{:?}", pools.rows);
        assert!(pools.rows[0].iter().all(|cell| !cell.contains("12.25") && cell != "0.00"), "{:?}", pools.rows);
        let chart = simulated_chart(&cases).unwrap();
        assert!(chart.note.contains("begins at 99 %"), "{}", chart.note);
        let svg = chart.body.into_string();
        assert!(svg.contains("99.50") && !svg.contains("12.25"), "{svg}");
    }

    #[test]
    fn mishaps_are_shown_by_kind_and_what_never_happened_is_said() {
        let round = |label: &str, master: Option<f64>| json!({"label": label, "master_ms": master, "grant_ms": null, "gap_ms": 5.0, "more": "is ignored"});
        let rounds = [round("kill", Some(300.0)), round("kill", Some(500.0)), round("kill", None), round("cut", None)];
        let report = json!({"arguments": [], "seconds": 9.0, "rounds": rounds, "audits": [["plenty", {"over_us": 0}], ["scarce", {"over_us": 1500}], ["too", {"over_us": 400}]]});
        let chaos: Chaos = serde_json::from_value(json!({ "report": report })).unwrap();
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
            let fleet = json!({"clients": 5, "hints": true, "start_s": 1.0, "memory_kib": 3, "idle_s": 2.0, "idle_cpu_s": 0.001, "rise_s": rise, "fall_s": []});
            let mut table = fleet_table("x", &serde_json::from_value(fleet).unwrap());
            table.rows.remove(0)
        };
        assert_eq!(fleet(json!([0.5, 0.7]))[4..], ["100.0", "0.60 (0.50 to 0.70)", "–"]);
        assert_eq!(fleet(json!([0.5, null, null]))[5], "0.50, never in 2");
        assert_eq!(fleet(json!([null]))[5], "never");
    }
}
