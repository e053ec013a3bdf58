//! What clients wanted, what they had, and what there was, over time; of a pool what was used, what might be connected,
//! and how many were kicked out. One case below the other.

use leaseway_sim::accounting::figures::{Figures, Point, PoolPoint};

use super::report::Simulated;
use crate::{
    chart::{
        self, Chart,
        axis::{linear, round_up},
        lines::{ChartLine, Join, lines},
    },
    spread::Spread,
};

/// A name, and what it is at each second.
type Series = (&'static str, Vec<(f64, f64)>);

/// A document of its own.
pub(super) fn draw(simulated: &[Simulated<'_>], seed: u64) -> String {
    let run = |case: &Simulated<'_>| case.runs.iter().find(|run| run.seed == seed).map(|run| charts(case, run));
    let charts: Vec<Chart> = simulated.iter().filter_map(run).flatten().collect();
    chart::stacked("Simulated", &charts.iter().collect::<Vec<_>>())
}

fn charts(simulated: &Simulated<'_>, run: &Figures) -> Vec<Chart> {
    let case = simulated.case;
    let capacity = case.plan.scenario().resource.capacity;
    let outcome = match &run.pool {
        Some(pool) => format!("{} overloads, {} kicked out", pool.overloads, pool.kicked_out),
        None => format!("{:.2} % of min(wants, capacity) used", run.usage.of_wanted),
    };
    let push = if case.push() { "on" } else { "off" };
    let title = format!("{}: {}, {}, push {push}", case.name(), case.algorithm(), case.reuse);
    let note = format!("seed {}; {outcome}", run.seed);

    let at = |value: &dyn Fn(&Point) -> f64| run.curve.iter().map(|point| (second(point), value(point))).collect();
    let pool = |value: fn(&PoolPoint) -> f64| move |point: &Point| point.pool.as_ref().map_or(0.0, value);
    let Some(last) = run.curve.last().map(second) else { return Vec::new() };
    let there_was = ("capacity", vec![(0.0, capacity), (last, capacity)]);
    if run.pool.is_none() {
        // A few that want a hundred times as much would press everything else to the ground.
        let series = [("wanted", at(&|point| point.wants)), ("had", at(&|point| point.had)), there_was];
        return vec![over_time(&title, &note, &series, capacity * 3.0)];
    }
    let series = [
        ("used", at(&pool(|pool| pool.used))),
        ("connected", at(&|point| point.had)),
        ("total", at(&pool(|pool| pool.total))),
        there_was,
    ];
    let kicked_out = [("kicked out", kicked_out_by_minute(&run.curve))];
    vec![
        over_time(&title, &note, &series, f64::INFINITY),
        over_time("Kicked out", "Clients in each minute.", &kicked_out, f64::INFINITY),
    ]
}

fn second(point: &Point) -> f64 {
    point.at.0 as f64 / 1000.0
}

fn over_time(title: &str, note: &str, series: &[Series], limit: f64) -> Chart {
    let points = || series.iter().flat_map(|(_, points)| points);
    let last = points().map(|(second, _)| *second).fold(1.0, f64::max);
    let most = points().map(|(_, value)| *value).fold(1.0, f64::max).min(limit);
    let (across, up) = (linear("seconds", [0.0, last], 10.0), linear("", [0.0, round_up(most * 1.05)], 6.0));
    let names: Vec<&str> = series.iter().map(|(name, _)| *name).collect();
    let line = |(series, (_, points)): (usize, &Series)| {
        let points = points.iter().map(|&(second, value)| (second, Spread { median: value, min: value, max: value }));
        ChartLine { series, points: points.collect(), join: Join::Stepped }
    };
    let all: Vec<ChartLine> = series.iter().enumerate().map(line).collect();
    lines(title, note, [&across, &up], &names, &all)
}

/// How many were kicked out, at the beginning of each minute.
fn kicked_out_by_minute(points: &[Point]) -> Vec<(f64, f64)> {
    let mut minutes: Vec<(f64, f64)> = Vec::new();
    let mut before = 0;
    for point in points {
        let Some(pool) = point.pool else { continue };
        let begin = (point.at.0 / 60_000 * 60) as f64;
        if minutes.last().is_none_or(|(last, _)| *last != begin) {
            minutes.push((begin, 0.0));
        }
        if let Some((_, clients)) = minutes.last_mut() {
            *clients += (pool.kicked_out - before) as f64;
        }
        before = pool.kicked_out;
    }
    minutes
}

#[cfg(test)]
mod tests {
    use leaseway_core::Millis;

    use super::*;

    #[test]
    fn kicked_out_clients_are_counted_by_the_minute() {
        let point = |second: u64, kicked_out| Point {
            at: Millis(second * 1000),
            wants: 0.0,
            had: 0.0,
            pool: Some(PoolPoint { used: 0.0, total: 0.0, kicked_out }),
        };
        let points = [point(10, 0), point(70, 2), point(110, 5), point(130, 5), point(250, 6)];
        assert_eq!(kicked_out_by_minute(&points), [(0.0, 0.0), (60.0, 5.0), (120.0, 0.0), (240.0, 1.0)]);
    }
}
