//! The results by case, as a table and as JSON.

use std::collections::BTreeMap;

use leaseway_sim::{
    accounting::{
        figures::{Figures, RunFailure},
        pool::PoolFigures,
    },
    runner::Outcomes,
};
use serde::Serialize;
use serde_json::Value;

use crate::{
    common::output::{self, Spread},
    simulate::args::Case,
};

/// A case, and its runs.
pub(crate) struct Simulated<'c> {
    pub(crate) case: &'c Case,
    pub(crate) runs: Vec<Figures>,
    pub(crate) broken: Vec<RunFailure>,
}

impl<'c> Simulated<'c> {
    pub(crate) fn of(case: &'c Case, outcomes: Outcomes) -> Simulated<'c> {
        let (mut runs, mut broken) = (Vec::new(), Vec::new());
        for outcome in outcomes {
            match outcome {
                Ok(figures) => runs.push(figures),
                Err(reason) => broken.push(*reason),
            }
        }
        Simulated { case, runs, broken }
    }

    fn written(&self) -> SimulatedCase {
        let Case { set, reuse, command, .. } = self.case;
        let failed = |broken: &RunFailure| FailedRun {
            seed: broken.seed,
            at_s: broken.at.0 as f64 / 1000.0,
            what: broken.violation.to_string(),
        };
        let metrics = metrics(self.case.plan.is_pool());
        let spread = |metric: &Metric| {
            Some((metric.name.to_owned(), Spread::of(self.runs.iter().filter_map(|run| (metric.of)(run)))?))
        };
        SimulatedCase {
            scenario: self.case.scenario.clone(),
            set: set.clone(),
            algorithm: self.case.algorithm().to_string(),
            reuse: reuse.clone(),
            push: self.case.push(),
            handover: self.case.plan.scenario().handover.to_string(),
            command: command.clone(),
            is_pool: self.case.plan.is_pool(),
            spreads: metrics.iter().filter_map(spread).collect(),
            runs: self.runs.iter().map(|run| serde_json::to_value(run).unwrap_or_default()).collect(),
            broken: self.broken.iter().map(failed).collect(),
        }
    }

    /// Describes the first run that violated an invariant, with its trace and the command that repeats it.
    pub(crate) fn complaint(&self) -> Option<String> {
        let RunFailure { seed, at, violation, trace } = self.broken.first()?;
        let (seconds, trace, command) = (at.0 as f64 / 1000.0, trace.join("\n"), &self.case.command);
        let name = self.case.name();
        Some(format!(
            "\n{name}, seed {seed}: after {seconds:.3} s {violation}\n{trace}\nTo repeat this run:\n  {command} \
             --seed {seed}"
        ))
    }
}

#[derive(Serialize)]
pub(crate) struct SimulateReport {
    pub(crate) cases: Vec<SimulatedCase>,
}

#[derive(Serialize)]
pub(crate) struct SimulatedCase {
    pub(crate) scenario: String,
    /// The values that --set gave to parameters.
    pub(crate) set: BTreeMap<String, String>,
    pub(crate) algorithm: String,
    pub(crate) reuse: String,
    pub(crate) push: bool,
    handover: String,
    /// The command that repeats the case, without the seed.
    pub(crate) command: String,
    /// Whether the resource is a pool. Pools have different figures, because they are overbooked on purpose and clients
    /// have no due.
    pub(crate) is_pool: bool,
    /// The spread of each metric, by its name.
    pub(crate) spreads: BTreeMap<String, Spread>,
    runs: Vec<Value>,
    pub(crate) broken: Vec<FailedRun>,
}

/// A run that violated an invariant.
#[derive(Serialize)]
pub(crate) struct FailedRun {
    seed: u64,
    at_s: f64,
    what: String,
}

/// A figure of a run, and its column in the table.
pub(crate) struct Metric {
    pub(crate) name: &'static str,
    pub(crate) head: &'static str,
    pub(crate) digits: usize,
    of: fn(&Figures) -> Option<f64>,
}

const fn metric(name: &'static str, head: &'static str, digits: usize, of: fn(&Figures) -> Option<f64>) -> Metric {
    Metric { name, head, digits, of }
}

/// The metrics of resources other than pools, the most important first.
const OF_DIVISIONS: [Metric; 17] = [
    metric("of_wanted", "of min(wants, capacity) %", 2, |run| Some(run.usage.of_wanted)),
    metric("over_seconds", "over s", 1, |run| Some(run.usage.over_seconds)),
    metric("apart_at_end_worst", "at end: worst apart %", 2, |run| Some(run.apart_at_end.worst)),
    metric("settled_refreshes", "settled after refreshes", 1, |run| run.settled_refreshes),
    metric("newcomers_median_s", "newcomers wait s", 1, |run| run.newcomers_median_s),
    metric("newcomers_worst_s", "newcomers wait most s", 1, |run| run.newcomers_worst_s),
    metric("messages_per_s", "messages/s", 1, |run| Some(run.messages_per_s)),
    metric("over_most", "over max %", 2, |run| Some(run.usage.over_most).filter(|_| run.usage.over_seconds > 0.0)),
    metric("apart_mean", "apart %", 2, |run| Some(run.apart_mean)),
    metric("first_95_s", "95 % after s", 0, |run| run.usage.first_95_s),
    metric("first_99_s", "99 % after s", 0, |run| run.usage.first_99_s),
    metric("of_capacity", "of capacity %", 1, |run| Some(run.usage.of_capacity)),
    metric("apart_at_end_mean", "at end: mean apart %", 2, |run| Some(run.apart_at_end.mean)),
    metric("of_wanted_sampled", "5 s samples %", 2, |run| Some(run.usage.of_wanted_sampled)),
    metric("over_events", "over events", 0, |run| Some(run.usage.over_events as f64)),
    metric("over_mean", "over avg %", 2, |run| Some(run.usage.over_mean).filter(|_| run.usage.over_seconds > 0.0)),
    metric("speed", "M events/s", 2, speed),
];

const OF_POOLS: [Metric; 11] = [
    metric("overloads_in_8_h", "overloads in 8 h", 1, |run| pool(run, |pool| pool.overloads_in_8_h)),
    metric("overused", "overused % of the time", 2, |run| pool(run, |pool| pool.overused)),
    metric("used", "used % of capacity", 1, |run| pool(run, |pool| pool.used)),
    metric("total", "total %", 1, |run| pool(run, |pool| pool.total)),
    metric("kicked_out_in_8_h", "kicked out in 8 h", 0, |run| pool(run, |pool| pool.kicked_out_in_8_h)),
    metric("of_capacity", "connected %", 1, |run| Some(run.usage.of_capacity)),
    metric("total_most", "total max %", 1, |run| pool(run, |pool| pool.total_most)),
    metric("kicked_out_most", "in a minute", 0, |run| pool(run, |pool| pool.kicked_out_most as f64)),
    metric("took_turns_in_8_h", "took turns in 8 h", 0, |run| pool(run, |pool| pool.took_turns_in_8_h)),
    metric("messages_per_s", "messages/s", 1, |run| Some(run.messages_per_s)),
    metric("speed", "M events/s", 2, speed),
];

fn pool(run: &Figures, figure: fn(&PoolFigures) -> f64) -> Option<f64> {
    run.pool.as_ref().map(figure)
}

/// Simulated events per wall-clock second on one thread, in millions.
fn speed(run: &Figures) -> Option<f64> {
    Some(run.events as f64 / run.took_s / 1e6)
}

fn metrics(is_pool: bool) -> &'static [Metric] {
    if is_pool { &OF_POOLS } else { &OF_DIVISIONS }
}

/// A table of cases. Either all of them are pools, or none is.
struct SimulatedTable {
    head: Vec<&'static str>,
    rows: Vec<Vec<String>>,
}

impl SimulatedTable {
    fn of(
        cases: &[SimulatedCase],
        is_pool: bool,
        words: &[&'static str],
        name: impl Fn(&SimulatedCase) -> Vec<String>,
    ) -> SimulatedTable {
        let metrics = metrics(is_pool);
        let row = |case: &SimulatedCase| {
            let seeds = case.runs.len() + case.broken.len();
            let mut row = name(case);
            row.extend([seeds.to_string(), case.broken.len().to_string()]);
            row.extend(
                metrics.iter().map(|metric| Spread::show(case.spreads.get(metric.name).copied(), metric.digits)),
            );
            row
        };
        let head = words.iter().copied().chain(metrics.iter().map(|metric| metric.head)).collect();
        SimulatedTable { head, rows: cases.iter().filter(|case| case.is_pool == is_pool).map(row).collect() }
    }
}

impl SimulatedCase {
    /// The scenario, and the parameters that were set.
    fn name(&self) -> String {
        let set = self.set.iter().map(|(name, value)| format!(" {name}={value}"));
        std::iter::once(self.scenario.clone()).chain(set).collect()
    }
}

impl SimulateReport {
    pub(crate) fn new(simulated: &[Simulated<'_>]) -> SimulateReport {
        SimulateReport { cases: simulated.iter().map(Simulated::written).collect() }
    }

    /// The results as text, with a separate table for pools. Unless `wide`, tables leave out columns that do not fit a
    /// terminal.
    pub(crate) fn table(&self, wide: bool) -> String {
        let words = ["scenario", "algorithm", "reuse", "push", "seeds", "broken"];
        let name = |case: &SimulatedCase| {
            let push = if case.push { "on" } else { "off" };
            vec![case.name(), case.algorithm.clone(), case.reuse.clone(), push.to_owned()]
        };
        let tables = [false, true].map(|is_pool| SimulatedTable::of(&self.cases, is_pool, &words, name));
        let tables = tables.iter().filter(|table| !table.rows.is_empty());
        let render = if wide { output::render::<Vec<String>, String> } else { output::fitted };
        tables.map(|table| render(&table.head, 4, &table.rows)).collect::<Vec<_>>().join("\n\n")
    }
}
