//! What a parameter changes: a figure of all seeds against the values that --set gave the parameter.
//!
//! Of pools it is how often there were overloads, and how far the pool was overbooked for that; of everything else how much of what
//! was wanted was had. Each run is a dot, the line goes through the medians.

use std::fmt::Write as _;

use super::{
    report::{Measured, Report},
    svg::{self, HEIGHT, WIDTH},
    world::Figures,
};
use crate::axis::tick;

/// Room between the outermost values and the frame.
const MARGIN: f64 = 60.0;
/// So much is kept free below for runs in which there was none, which have no logarithm.
const GROUND: f64 = 24.0;
/// Dots of one value beside each other, so that none hides another.
const APART: f64 = 5.0;

/// The picture, if one parameter was set to several numbers and nothing else changed but what the lines are for.
pub(super) fn draw(report: &Report<'_>) -> Option<String> {
    let lines = lines(report.cases())?;
    let is_pool = report.cases().iter().all(|measured| measured.case.plan.is_pool());
    let seeds = report.cases().iter().map(|measured| measured.runs.len()).max().unwrap_or_default();
    let pictures: &[Figure] = if is_pool { &POOL } else { &[OF_WANTED] };
    let draw = |figure: &Figure| Picture { lines: &lines, figure, seeds }.draw();
    Some(svg::document(&pictures.iter().map(draw).collect::<Vec<_>>()))
}

/// What is measured.
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

fn pool(run: &Figures, figure: impl Fn(&super::pools::PoolFigures) -> f64) -> f64 {
    run.pool.as_ref().map_or(0.0, figure)
}

/// Cases that differ in the parameter alone.
struct Line<'r> {
    name: String,
    parameter: &'r str,
    /// Each value, and its runs.
    values: Vec<(f64, &'r [Figures])>,
}

fn lines<'r>(cases: &'r [Measured<'_>]) -> Option<Vec<Line<'r>>> {
    let mut lines: Vec<Line<'r>> = Vec::new();
    for measured in cases {
        let case = measured.case;
        let (parameter, value) = case.set.iter().next().filter(|_| case.set.len() == 1)?;
        let value: f64 = value.parse().ok().filter(|value: &f64| value.is_finite() && *value > 0.0)?;
        let push = if case.push { "on" } else { "off" };
        let name = format!("{}: {}, {}, push {push}", case.scenario, case.algorithm, case.reuse);
        match lines.iter_mut().find(|line| line.name == name) {
            Some(line) => line.values.push((value, &measured.runs)),
            None => lines.push(Line { name, parameter, values: vec![(value, &measured.runs)] }),
        }
    }
    for line in &mut lines {
        line.values.sort_by(|one, other| one.0.total_cmp(&other.0));
    }
    // One number may be written in several ways; of a single one there is no axis.
    let several = |line: &Line<'_>| line.values.first().map(|least| least.0) != line.values.last().map(|most| most.0);
    (!lines.is_empty() && lines.iter().all(several)).then_some(lines)
}

const COLOURS: [&str; 6] = ["#06c", "#c60", "#080", "#808", "#c00", "#555"];

struct Picture<'p, 'r> {
    lines: &'p [Line<'r>],
    figure: &'p Figure,
    seeds: usize,
}

/// Where a number stands on an axis.
struct Axis {
    least: f64,
    most: f64,
    by_logarithm: bool,
}

impl Axis {
    /// From 0 to 1, if it is on the axis.
    fn part(&self, value: f64) -> f64 {
        match self.by_logarithm {
            true => (value / self.least).ln() / (self.most / self.least).ln(),
            false => (value - self.least) / (self.most - self.least),
        }
    }

    fn marks(&self) -> Vec<f64> {
        if !self.by_logarithm {
            let step = tick(self.most - self.least, 6.0);
            let first = (self.least / step).ceil() as i64;
            return (first..).map(|mark| mark as f64 * step).take_while(|mark| *mark <= self.most).collect();
        }
        let powers = self.least.log10().floor() as i32..=self.most.log10().ceil() as i32;
        let marks = powers.flat_map(|power| [1.0, 2.0, 5.0].map(|times| times * 10f64.powi(power)));
        marks.filter(|mark| (self.least..=self.most).contains(mark)).collect()
    }
}

impl Picture<'_, '_> {
    fn draw(&self) -> String {
        let mut svg = String::new();
        let parameter = self.lines[0].parameter;
        let figure = self.figure;
        let scale = if figure.by_logarithm { "; both axes are logarithmic" } else { "; the axis below is logarithmic" };
        let runs = if self.seeds == 1 { "one run each".to_owned() } else { format!("{} runs each", self.seeds) };
        let title = format!("{} against {parameter}: {runs}, and the median{scale}", figure.what);
        svg::frame(&mut svg, &title);
        let (across, up) = (self.across(), self.up());
        let x = |value: f64| MARGIN + across.part(value) * (WIDTH - 2.0 * MARGIN);
        let ground = if figure.by_logarithm && self.found().any(|found| found <= 0.0) { GROUND } else { 0.0 };
        let y =
            |value: f64| if ground > 0.0 && value <= 0.0 { HEIGHT } else { (HEIGHT - ground) * (1.0 - up.part(value)) };
        for mark in up.marks() {
            svg::mark_left(&mut svg, y(mark), &rounded(mark));
        }
        if ground > 0.0 {
            svg::mark_left(&mut svg, HEIGHT, "0");
        }
        let mut values: Vec<f64> =
            self.lines.iter().flat_map(|line| line.values.iter().map(|(value, _)| *value)).collect();
        values.sort_by(f64::total_cmp);
        values.dedup();
        for value in values {
            svg::mark_below(&mut svg, x(value), &rounded(value));
        }
        for (line, colour) in self.lines.iter().zip(COLOURS.iter().cycle()) {
            let mut path = String::new();
            for (place, (value, runs)) in line.values.iter().enumerate() {
                let mut found: Vec<f64> = runs.iter().map(self.figure.of).collect();
                found.sort_by(f64::total_cmp);
                dots(&mut svg, colour, x(*value), found.iter().map(|found| y(*found)));
                let Some(median) = super::report::median(&found) else { continue };
                let _ = write!(path, "{}{:.1} {:.1}", if place == 0 { 'M' } else { 'L' }, x(*value), y(median));
                let _ = writeln!(
                    svg,
                    "<text x=\"{:.1}\" y=\"{:.1}\" fill=\"{colour}\">{}</text>",
                    x(*value) + 14.0,
                    y(median) - 8.0,
                    rounded(median)
                );
            }
            let _ = writeln!(svg, "<path d=\"{path}\" fill=\"none\" stroke=\"{colour}\" stroke-width=\"2\"/>");
        }
        for (place, (line, colour)) in self.lines.iter().zip(COLOURS.iter().cycle()).enumerate() {
            let y = 16.0 + place as f64 * 16.0;
            let _ = writeln!(
                svg,
                "<text x=\"{}\" y=\"{y}\" text-anchor=\"end\" fill=\"{colour}\">{}</text>",
                WIDTH - 10.0,
                svg::escaped(&line.name)
            );
        }
        svg
    }

    /// What was found, in all runs.
    fn found(&self) -> impl Iterator<Item = f64> {
        let runs = self.lines.iter().flat_map(|line| line.values.iter().flat_map(|(_, runs)| runs.iter()));
        runs.map(self.figure.of)
    }

    fn across(&self) -> Axis {
        let values = self.lines.iter().flat_map(|line| line.values.iter().map(|(value, _)| *value));
        let (least, most) = bounds(values);
        Axis { least, most, by_logarithm: true }
    }

    fn up(&self) -> Axis {
        let by_logarithm = self.figure.by_logarithm;
        let (least, most) = bounds(self.found().filter(|found| !by_logarithm || *found > 0.0));
        match by_logarithm {
            true => Axis { least: least / 1.5, most: most * 1.5, by_logarithm },
            false => {
                let room = ((most - least) * 0.15).max(most.abs() * 0.01);
                // Where all of it is nothing.
                let room = if room > 0.0 { room } else { 1.0 };
                Axis { least: least - room, most: most + room, by_logarithm }
            }
        }
    }
}

/// The least and the most of them; something that can be drawn, if there are none.
fn bounds(values: impl Iterator<Item = f64>) -> (f64, f64) {
    let (least, most) =
        values.fold((f64::INFINITY, f64::NEG_INFINITY), |(least, most), value| (least.min(value), most.max(value)));
    if least <= most { (least, most) } else { (1.0, 10.0) }
}

/// Runs that came out alike stand beside each other.
fn dots(svg: &mut String, colour: &str, x: f64, heights: impl Iterator<Item = f64>) {
    let mut row = (f64::NAN, 0);
    for y in heights {
        row = if (row.0 - y).abs() < 1.0 { (row.0, row.1 + 1) } else { (y, 0) };
        // To the right and to the left in turn.
        let steps = (row.1 + 1) / 2 * if row.1 % 2 == 0 { 1 } else { -1 };
        let x = x + f64::from(steps) * APART;
        let _ = writeln!(svg, "<circle cx=\"{x:.1}\" cy=\"{y:.1}\" r=\"3\" fill=\"{colour}\" fill-opacity=\"0.35\"/>");
    }
}

/// Three digits, or all before the point.
fn rounded(value: f64) -> String {
    let digits = (2.0 - value.abs().max(1e-9).log10().floor()).clamp(0.0, 6.0) as usize;
    let text = format!("{value:.digits$}");
    if text.contains('.') { text.trim_end_matches('0').trim_end_matches('.').to_owned() } else { text }
}

#[cfg(test)]
mod tests;
