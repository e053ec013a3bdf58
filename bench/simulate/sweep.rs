//! What a parameter changes: a figure of all seeds against the values that --set gave the parameter.
//!
//! Of pools it is how often there were overloads, and how far the pool was overbooked for that; of everything else how
//! much of what was wanted was had. The line goes through the medians.

use leaseway_sim::accounting::{figures::Figures, pool::PoolFigures};

use super::report::Simulated;
use crate::{
    chart::{
        self, Chart,
        axis::{Axis, linear, powers},
        lines::{self, Join},
    },
    spread::Spread,
};

/// Room at either side of the outermost values, as a part of the picture.
const MARGIN: f64 = 0.08;

/// The picture, if one parameter was set to several numbers and nothing else changed but what the lines are for.
pub(super) fn draw(simulated: &[Simulated<'_>]) -> Option<String> {
    let lines = lines(simulated)?;
    let is_pool = simulated.iter().all(|simulated| simulated.case.plan.is_pool());
    let seeds = simulated.iter().map(|simulated| simulated.runs.len()).max().unwrap_or_default();
    let figures: &[Figure] = if is_pool { &POOL } else { &[OF_WANTED] };
    let charts: Vec<Chart> = figures.iter().map(|figure| chart(&lines, figure, seeds)).collect();
    Some(chart::stacked(&format!("What {} changes", lines[0].parameter), &charts.iter().collect::<Vec<_>>()))
}

struct Figure {
    what: &'static str,
    of: fn(&Figures) -> f64,
    /// Whether it is drawn by its logarithm.
    by_logarithm: bool,
}

const OF_WANTED: Figure =
    Figure { what: "% of min(wants, capacity) had", of: |run| run.usage.of_wanted, by_logarithm: false };

const POOL: [Figure; 2] = [
    Figure { what: "overloads in 8 h", of: |run| pool(run, |pool| pool.overloads_in_8_h), by_logarithm: true },
    Figure { what: "total, % of the capacity (mean)", of: |run| pool(run, |pool| pool.total), by_logarithm: false },
];

fn pool(run: &Figures, figure: impl Fn(&PoolFigures) -> f64) -> f64 {
    run.pool.as_ref().map_or(0.0, figure)
}

/// Cases that differ in the parameter alone.
struct SweptCases<'r> {
    name: String,
    parameter: &'r str,
    /// Each value, and its runs.
    values: Vec<(f64, &'r [Figures])>,
}

fn lines<'r>(cases: &'r [Simulated<'_>]) -> Option<Vec<SweptCases<'r>>> {
    let mut lines: Vec<SweptCases<'r>> = Vec::new();
    for simulated in cases {
        let case = simulated.case;
        let (parameter, value) = case.set.iter().next().filter(|_| case.set.len() == 1)?;
        let value: f64 = value.parse().ok().filter(|value: &f64| value.is_finite() && *value > 0.0)?;
        let push = if case.push() { "on" } else { "off" };
        let name = format!("{}: {}, {}, push {push}", case.scenario, case.algorithm(), case.reuse);
        match lines.iter_mut().find(|line| line.name == name) {
            Some(line) => line.values.push((value, &simulated.runs)),
            None => lines.push(SweptCases { name, parameter, values: vec![(value, &simulated.runs)] }),
        }
    }
    for line in &mut lines {
        line.values.sort_by(|one, other| one.0.total_cmp(&other.0));
    }
    // One number may be written in several ways; of a single one there is no axis.
    let several =
        |line: &SweptCases<'_>| line.values.first().map(|least| least.0) != line.values.last().map(|most| most.0);
    (!lines.is_empty() && lines.iter().all(several)).then_some(lines)
}

fn chart(lines: &[SweptCases<'_>], figure: &Figure, seeds: usize) -> Chart {
    let parameter = lines[0].parameter;
    let scale = if figure.by_logarithm { "both axes are logarithmic" } else { "the axis below is logarithmic" };
    let runs = if seeds == 1 { "one run each".to_owned() } else { format!("{seeds} runs each, median and range") };
    let drawn: Vec<lines::ChartLine> =
        lines.iter().enumerate().map(|(series, line)| line.drawn(series, figure)).collect();
    let names: Vec<&str> = lines.iter().map(|line| &line.name[..]).collect();
    let title = format!("{} against {parameter}", figure.what);
    lines::lines(&title, &format!("{runs}; {scale}"), [&across(lines), &figure.up(lines)], &names, &drawn)
}

impl SweptCases<'_> {
    fn drawn(&self, series: usize, figure: &Figure) -> lines::ChartLine {
        let values = self.values.iter().filter(|(_, runs)| !runs.is_empty());
        let points = values
            .map(|(value, runs)| (*value, Spread::of(runs.iter().map(figure.of)).expect("there is a run")))
            .collect();
        lines::ChartLine { series, points, join: Join::Dotted }
    }
}

/// Of the parameter: a mark at each of its values.
fn across<'l>(lines: &'l [SweptCases<'_>]) -> Axis<'l> {
    let mut values: Vec<f64> = lines.iter().flat_map(|line| line.values.iter().map(|(value, _)| *value)).collect();
    values.sort_by(f64::total_cmp);
    values.dedup();
    let (least, most) = bounds(values.iter().copied());
    let marks = values.into_iter().map(|value| (value, rounded(value))).collect();
    let place = move |value: f64| MARGIN + (1.0 - 2.0 * MARGIN) * (value / least).ln() / (most / least).ln();
    Axis { label: lines[0].parameter, marks, place: Box::new(place) }
}

impl Figure {
    fn up<'a>(&self, lines: &[SweptCases<'_>]) -> Axis<'a> {
        let runs = lines.iter().flat_map(|line| line.values.iter().flat_map(|(_, runs)| runs.iter()));
        let found: Vec<f64> = runs.map(self.of).collect();
        if !self.by_logarithm {
            let (least, most) = bounds(found.into_iter());
            let room = ((most - least) * 0.15).max(most.abs() * 0.01).max(1e-9);
            return linear("", [least - room, most + room], 6.0);
        }
        let (least, most) = bounds(found.iter().copied().filter(|found| *found > 0.0));
        let Axis { label, mut marks, place } = powers("", least, most, rounded);
        if found.iter().all(|found| *found > 0.0) {
            return Axis { label, marks, place };
        }
        // Nothing has no logarithm; it stands below.
        marks.insert(0, (0.0, "0".into()));
        let lifted = move |value| if value > 0.0 { MARGIN + (1.0 - MARGIN) * place(value) } else { 0.0 };
        Axis { label, marks, place: Box::new(lifted) }
    }
}

/// The least and the most of them; something that can be drawn, if there are none.
fn bounds(values: impl Iterator<Item = f64>) -> (f64, f64) {
    let (least, most) =
        values.fold((f64::INFINITY, f64::NEG_INFINITY), |(least, most), value| (least.min(value), most.max(value)));
    if least <= most { (least, most) } else { (1.0, 10.0) }
}

/// Three digits, or all before the point.
fn rounded(value: f64) -> String {
    let digits = (2.0 - value.abs().max(1e-9).log10().floor()).clamp(0.0, 6.0) as usize;
    let text = format!("{value:.digits$}");
    if text.contains('.') { text.trim_end_matches('0').trim_end_matches('.').to_owned() } else { text }
}

#[cfg(test)]
mod tests;
