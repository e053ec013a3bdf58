//! What was measured, case by case: a table for people, JSON for programs.

use serde::Serialize;

use super::{
    args::Case,
    pools::PoolFigures,
    seeds::Outcomes,
    world::{Broken, Figures},
};
use crate::table::{self, Columns};

/// Everything, as JSON has it; the table is a view of it.
#[derive(Serialize)]
pub(super) struct Report<'c> {
    cases: Vec<Measured<'c>>,
}

#[derive(Serialize)]
pub(super) struct Measured<'c> {
    #[serde(flatten)]
    pub(super) case: &'c Case,
    spreads: Spreads,
    pub(super) runs: Vec<Figures>,
    broken: Vec<Failed>,
    #[serde(skip)]
    breaks: Vec<Broken>,
}

/// A run that broke a promise.
#[derive(Serialize)]
struct Failed {
    seed: u64,
    at_s: f64,
    what: String,
}

/// A figure of several runs.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
struct Spread {
    median: f64,
    least: f64,
    most: f64,
    /// Of how many runs; some figures not every run has.
    of: usize,
}

/// The figures of the table.
#[derive(Serialize)]
struct Spreads {
    of_wanted: Option<Spread>,
    of_wanted_sampled: Option<Spread>,
    of_capacity: Option<Spread>,
    over_seconds: Option<Spread>,
    over_events: Option<Spread>,
    over_most: Option<Spread>,
    over_mean: Option<Spread>,
    first_95_s: Option<Spread>,
    first_99_s: Option<Spread>,
    apart_mean: Option<Spread>,
    apart_at_end_mean: Option<Spread>,
    apart_at_end_worst: Option<Spread>,
    settled_refreshes: Option<Spread>,
    messages_per_s: Option<Spread>,
    /// Of one thread, in millions of events a second.
    speed: Option<Spread>,
    #[serde(flatten, skip_serializing_if = "Option::is_none")]
    pool: Option<PoolSpreads>,
}

/// The figures of the table of pools.
#[derive(Serialize)]
struct PoolSpreads {
    overloads_in_8_h: Option<Spread>,
    overused: Option<Spread>,
    used: Option<Spread>,
    total: Option<Spread>,
    total_most: Option<Spread>,
    kicked_out_in_8_h: Option<Spread>,
    kicked_out_most: Option<Spread>,
    took_turns_in_8_h: Option<Spread>,
}

impl Spread {
    fn of(values: impl Iterator<Item = f64>) -> Option<Spread> {
        let mut values: Vec<f64> = values.collect();
        values.sort_by(f64::total_cmp);
        let (least, most) = (*values.first()?, *values.last()?);
        Some(Spread { median: median(&values)?, least, most, of: values.len() })
    }

    /// `median [least..most]`, or just the one value there is.
    fn show(spread: Option<Spread>, digits: usize) -> String {
        let number = |value: f64| format!("{value:.digits$}");
        match spread {
            None => "-".into(),
            Some(spread) if number(spread.least) == number(spread.most) => number(spread.median),
            Some(Spread { median, least, most, .. }) => {
                format!("{} [{}..{}]", number(median), number(least), number(most))
            }
        }
    }
}

/// The middle of sorted values, or of the two in the middle.
pub(super) fn median(sorted: &[f64]) -> Option<f64> {
    let middle = sorted.len() / 2;
    let upper = *sorted.get(middle)?;
    Some(if sorted.len().is_multiple_of(2) { f64::midpoint(sorted[middle - 1], upper) } else { upper })
}

impl PoolSpreads {
    fn new(runs: &[Figures]) -> Option<PoolSpreads> {
        let all =
            |figure: fn(&PoolFigures) -> f64| Spread::of(runs.iter().filter_map(|run| run.pool.as_ref().map(figure)));
        runs.first()?.pool.as_ref()?;
        Some(PoolSpreads {
            overloads_in_8_h: all(|pool| pool.overloads_in_8_h),
            overused: all(|pool| pool.overused),
            used: all(|pool| pool.used),
            total: all(|pool| pool.total),
            total_most: all(|pool| pool.total_most),
            kicked_out_in_8_h: all(|pool| pool.kicked_out_in_8_h),
            kicked_out_most: all(|pool| pool.kicked_out_most as f64),
            took_turns_in_8_h: all(|pool| pool.took_turns_in_8_h),
        })
    }
}

impl Spreads {
    fn new(runs: &[Figures]) -> Spreads {
        let all = |figure: fn(&Figures) -> f64| Spread::of(runs.iter().map(figure));
        let some = |figure: fn(&Figures) -> Option<f64>| Spread::of(runs.iter().filter_map(figure));
        Spreads {
            of_wanted: all(|run| run.usage.of_wanted),
            of_wanted_sampled: all(|run| run.usage.of_wanted_sampled),
            of_capacity: all(|run| run.usage.of_capacity),
            over_seconds: all(|run| run.usage.over_seconds),
            over_events: all(|run| run.usage.over_events as f64),
            over_most: some(|run| Some(run.usage.over_most).filter(|_| run.usage.over_seconds > 0.0)),
            over_mean: some(|run| Some(run.usage.over_mean).filter(|_| run.usage.over_seconds > 0.0)),
            first_95_s: some(|run| run.usage.first_95_s),
            first_99_s: some(|run| run.usage.first_99_s),
            apart_mean: all(|run| run.apart_mean),
            apart_at_end_mean: all(|run| run.apart_at_end.mean),
            apart_at_end_worst: all(|run| run.apart_at_end.worst),
            settled_refreshes: some(|run| run.settled_refreshes),
            messages_per_s: all(|run| run.messages_per_s),
            speed: all(|run| run.events as f64 / run.took_s / 1e6),
            pool: PoolSpreads::new(runs),
        }
    }
}

impl<'c> Report<'c> {
    pub(super) fn new(cases: &'c [Case], outcomes: Vec<Outcomes>) -> Report<'c> {
        let measured = |(case, outcomes): (&'c Case, Outcomes)| {
            let (mut runs, mut breaks) = (Vec::new(), Vec::new());
            for outcome in outcomes {
                match outcome {
                    Ok(figures) => runs.push(figures),
                    Err(broken) => breaks.push(*broken),
                }
            }
            let failed = |broken: &Broken| Failed {
                seed: broken.seed,
                at_s: broken.at.0 as f64 / 1000.0,
                what: broken.violation.to_string(),
            };
            Measured { case, spreads: Spreads::new(&runs), runs, broken: breaks.iter().map(failed).collect(), breaks }
        };
        Report { cases: cases.iter().zip(outcomes).map(measured).collect() }
    }

    pub(super) fn cases(&self) -> &[Measured<'c>] {
        &self.cases
    }

    /// The runs that broke a promise, and of which case.
    pub(super) fn broken(&self) -> Vec<(&'c Case, &Broken)> {
        let of = |measured: &'_ Measured<'c>| measured.case;
        self.cases
            .iter()
            .flat_map(|measured| measured.breaks.iter().map(move |broken| (of(measured), broken)))
            .collect()
    }

    /// Pools have a table of their own. Unless it is to be `wide`, a table fits a terminal.
    pub(super) fn table(&self, wide: bool) -> String {
        let is_pool = |measured: &&Measured<'_>| measured.case.plan.is_pool();
        let (pools, others): (Vec<_>, Vec<_>) = self.cases.iter().partition(is_pool);
        let show: [fn(&[&Measured<'_>], bool) -> String; 2] = [Self::table_of_divisions, Self::table_of_pools];
        let tables = [others, pools].into_iter().zip(show).filter(|(cases, _)| !cases.is_empty());
        tables.map(|(cases, table)| table(&cases, wide)).collect::<Vec<_>>().join("\n\n")
    }

    fn table_of_pools(cases: &[&Measured<'_>], wide: bool) -> String {
        let head = [
            "scenario",
            "reuse",
            "push",
            "seeds",
            "broken",
            "overloads in 8 h",
            "overused % of the time",
            "used % of capacity",
            "connected %",
            "total %",
            "total max %",
            "kicked out in 8 h",
            "in a minute",
            "took turns in 8 h",
            "messages/s",
            "M events/s",
        ];
        let rows: Vec<_> = cases.iter().map(|measured| measured.row_of_pool()).collect();
        let columns = Columns { head, left: 3, always: 5, then: &[5, 6, 7, 9, 11, 8, 10, 12, 13, 14, 15] };
        if wide { table::render(head, 3, &rows) } else { columns.fitted(&rows) }
    }

    fn table_of_divisions(cases: &[&Measured<'_>], wide: bool) -> String {
        let head = [
            "scenario",
            "algorithm",
            "reuse",
            "push",
            "seeds",
            "broken",
            "of min(wants, capacity) %",
            "5 s samples %",
            "of capacity %",
            "over s",
            "over events",
            "over max %",
            "over avg %",
            "95 % after s",
            "99 % after s",
            "apart %",
            "at end: mean %",
            "worst %",
            "settled after refreshes",
            "messages/s",
            "M events/s",
        ];
        let rows: Vec<_> = cases.iter().map(|measured| measured.row()).collect();
        let columns =
            Columns { head, left: 4, always: 6, then: &[6, 11, 18, 15, 13, 8, 9, 14, 16, 17, 19, 7, 10, 12, 20] };
        if wide { table::render(head, 4, &rows) } else { columns.fitted(&rows) }
    }
}

impl Measured<'_> {
    fn row(&self) -> [String; 21] {
        let (case, spreads) = (self.case, &self.spreads);
        [
            case.name(),
            case.algorithm.to_string(),
            case.reuse.clone(),
            if case.push { "on" } else { "off" }.into(),
            (self.runs.len() + self.broken.len()).to_string(),
            self.broken.len().to_string(),
            Spread::show(spreads.of_wanted, 2),
            Spread::show(spreads.of_wanted_sampled, 2),
            Spread::show(spreads.of_capacity, 1),
            Spread::show(spreads.over_seconds, 1),
            Spread::show(spreads.over_events, 0),
            Spread::show(spreads.over_most, 2),
            Spread::show(spreads.over_mean, 2),
            Spread::show(spreads.first_95_s, 0),
            Spread::show(spreads.first_99_s, 0),
            Spread::show(spreads.apart_mean, 2),
            Spread::show(spreads.apart_at_end_mean, 2),
            Spread::show(spreads.apart_at_end_worst, 2),
            Spread::show(spreads.settled_refreshes, 1),
            Spread::show(spreads.messages_per_s, 1),
            Spread::show(spreads.speed, 2),
        ]
    }

    fn row_of_pool(&self) -> [String; 16] {
        let (case, spreads) = (self.case, &self.spreads);
        let pool = |figure: fn(&PoolSpreads) -> Option<Spread>, digits| {
            Spread::show(spreads.pool.as_ref().and_then(figure), digits)
        };
        [
            case.name(),
            case.reuse.clone(),
            if case.push { "on" } else { "off" }.into(),
            (self.runs.len() + self.broken.len()).to_string(),
            self.broken.len().to_string(),
            pool(|pool| pool.overloads_in_8_h, 1),
            pool(|pool| pool.overused, 2),
            pool(|pool| pool.used, 1),
            Spread::show(spreads.of_capacity, 1),
            pool(|pool| pool.total, 1),
            pool(|pool| pool.total_most, 1),
            pool(|pool| pool.kicked_out_in_8_h, 0),
            pool(|pool| pool.kicked_out_most, 0),
            pool(|pool| pool.took_turns_in_8_h, 0),
            Spread::show(spreads.messages_per_s, 1),
            Spread::show(spreads.speed, 2),
        ]
    }
}

/// What happened, what led to it, and how to see it again.
pub(super) fn complaint(case: &Case, broken: &Broken) -> String {
    let Broken { seed, at, violation, trace } = broken;
    let seconds = at.0 as f64 / 1000.0;
    let command = &case.command;
    format!(
        "\n{}, seed {seed}: after {seconds:.3} s {violation}\n{}\nThis happens again with:\n  {command} --seed {seed}",
        case.name(),
        trace.join("\n"),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figures_of_several_runs_are_a_median_and_its_bounds() {
        let spread = |values: &[f64], digits| Spread::show(Spread::of(values.iter().copied()), digits);
        assert_eq!(spread(&[3.0, 1.0, 2.0], 1), "2.0 [1.0..3.0]");
        assert_eq!(spread(&[4.0, 1.0], 1), "2.5 [1.0..4.0]");
        assert_eq!(spread(&[7.0], 0), "7");
        assert_eq!(spread(&[99.991, 99.993], 2), "99.99", "what reads the same is one figure");
        assert_eq!(spread(&[], 2), "-");
    }
}
