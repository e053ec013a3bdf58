//! The curve: what clients wanted, what they had, and what there was, over time; of a pool what was used, what might be
//! connected, and who was kicked out. One picture for each case, below each other.

use std::fmt::Write as _;

use super::{
    report::{Measured, Report},
    svg::{self, HEIGHT, WIDTH},
    world::{Point, PoolPoint},
};
use crate::axis::{round_up, tick};

const MINUTE: f64 = 60.0;
/// Bars of who was kicked out are no higher than this part of the picture.
const BARS: f64 = 0.3;
/// A bar of that height stands for so many clients at least.
const CLIENTS: u64 = 20;

/// A document of its own.
pub(super) fn draw(report: &Report<'_>, seed: u64) -> String {
    let pictures = report.cases().iter().filter_map(|measured| Picture::of(measured, seed));
    svg::document(&pictures.map(|picture| picture.draw()).collect::<Vec<_>>())
}

struct Picture<'r> {
    title: String,
    points: &'r [Point],
    capacity: f64,
    /// The end of the axes: seconds, and an amount.
    seconds: f64,
    most: f64,
}

impl<'r> Picture<'r> {
    fn of(measured: &'r Measured<'_>, seed: u64) -> Option<Picture<'r>> {
        let run = measured.runs.iter().find(|run| run.seed == seed)?;
        let (last, case) = (run.curve.last()?, measured.case);
        let capacity = case.plan.scenario.resource.capacity;
        let outcome = match &run.pool {
            Some(pool) => format!("{} overloads, {} kicked out", pool.overloads, pool.kicked_out),
            None => format!("{:.2} % of min(wants, capacity) used", run.usage.of_wanted),
        };
        let push = if case.push { "on" } else { "off" };
        let title = format!("{}: {}, {}, push {push}, seed {seed}; {outcome}", case.name(), case.algorithm, case.reuse);
        let heights = run.curve.iter().map(|point| match point.pool {
            Some(pool) => pool.total.max(pool.used).max(point.had),
            None => point.wants.max(point.had),
        });
        let most = heights.fold(capacity, f64::max) * 1.05;
        // A few that want a hundred times as much would press everything else to the ground.
        let most = round_up(if run.pool.is_some() { most } else { most.min(capacity * 3.0) });
        Some(Picture { title, points: &run.curve, capacity, seconds: last.at.0 as f64 / 1000.0, most })
    }

    fn draw(&self) -> String {
        let mut svg = String::new();
        svg::frame(&mut svg, &self.title);
        self.axes(&mut svg);
        let capacity = self.y(self.capacity);
        let names = if self.points.iter().any(|point| point.pool.is_some()) {
            let pool = |value: fn(&PoolPoint) -> f64| move |point: &Point| point.pool.as_ref().map_or(0.0, value);
            self.line(&mut svg, "#e93", 0.7, pool(|pool| pool.used));
            self.line(&mut svg, "#06c", 1.0, |point| point.had);
            self.line(&mut svg, "#080", 1.5, pool(|pool| pool.total));
            self.bars(&mut svg);
            &[("#e93", "used"), ("#06c", "connected"), ("#080", "total"), ("#c00", "capacity"), ("#808", "kicked out")]
                [..]
        } else {
            self.line(&mut svg, "#999", 1.0, |point| point.wants);
            self.line(&mut svg, "#06c", 1.5, |point| point.had);
            &[("#999", "wanted"), ("#06c", "had"), ("#c00", "capacity")][..]
        };
        let _ = writeln!(
            svg,
            "<line x1=\"0\" x2=\"{WIDTH}\" y1=\"{capacity:.1}\" y2=\"{capacity:.1}\" stroke=\"#c00\" stroke-dasharray=\"6 4\"/>"
        );
        svg::legend(&mut svg, names);
        svg
    }

    fn axes(&self, svg: &mut String) {
        let step = tick(self.most, 6.0);
        for number in 0..=(self.most / step) as u32 {
            let value = f64::from(number) * step;
            svg::mark_left(svg, self.y(value), &value.to_string());
        }
        let step = tick(self.seconds, 10.0);
        for number in 0..=(self.seconds / step) as u32 {
            let second = f64::from(number) * step;
            svg::mark_below(svg, self.x(second), &format!("{second} s"));
        }
    }

    /// A step for every point: what was had did not change little by little.
    fn line(&self, svg: &mut String, colour: &str, width: f64, value: impl Fn(&Point) -> f64) {
        let mut path = String::new();
        for (place, point) in self.points.iter().enumerate() {
            let (x, y) = (self.x(point.at.0 as f64 / 1000.0), self.y(value(point)));
            let _ = match place {
                0 => write!(path, "M{x:.1} {y:.1}"),
                _ => write!(path, "H{x:.1}V{y:.1}"),
            };
        }
        let _ = writeln!(svg, "<path d=\"{path}\" fill=\"none\" stroke=\"{colour}\" stroke-width=\"{width}\"/>");
    }

    /// Who was kicked out, minute by minute; the numbers stand above the bars.
    fn bars(&self, svg: &mut String) {
        let minutes = kicked_out_by_minute(self.points);
        let most = minutes.iter().map(|(_, clients)| *clients).max().unwrap_or_default().max(CLIENTS);
        let scale = HEIGHT * BARS / most as f64;
        let width = (self.x(MINUTE)).max(1.5);
        for (minute, clients) in minutes {
            let (x, height) = (self.x(minute as f64 * MINUTE), clients as f64 * scale);
            let top = HEIGHT - height;
            let _ = writeln!(
                svg,
                "<rect x=\"{x:.1}\" y=\"{top:.1}\" width=\"{width:.1}\" height=\"{height:.1}\" fill=\"#808\"/>\
                 <text x=\"{:.1}\" y=\"{:.1}\" text-anchor=\"middle\" font-size=\"9\" fill=\"#808\">{clients}</text>",
                x + width / 2.0,
                top - 2.0
            );
        }
    }

    fn x(&self, second: f64) -> f64 {
        second / self.seconds * WIDTH
    }

    fn y(&self, value: f64) -> f64 {
        HEIGHT * (1.0 - (value / self.most).clamp(0.0, 1.0))
    }
}

/// The minutes in which anybody was kicked out, and how many were.
fn kicked_out_by_minute(points: &[Point]) -> Vec<(u64, u64)> {
    let (mut minutes, mut before) = (Vec::<(u64, u64)>::new(), 0);
    for point in points {
        let Some(pool) = point.pool else { continue };
        let (minute, clients) = (point.at.0 / 60_000, pool.kicked_out - before);
        before = pool.kicked_out;
        match minutes.last_mut().filter(|(last, _)| *last == minute) {
            Some((_, kicked_out)) => *kicked_out += clients,
            None if clients > 0 => minutes.push((minute, clients)),
            None => {}
        }
    }
    minutes
}

#[cfg(test)]
mod tests {
    use leaseway_core::Millis;

    use super::*;

    #[test]
    fn who_was_kicked_out_is_counted_by_the_minute() {
        let point = |second: u64, kicked_out| Point {
            at: Millis(second * 1000),
            wants: 0.0,
            had: 0.0,
            pool: Some(PoolPoint { used: 0.0, total: 0.0, kicked_out }),
        };
        let points = [point(10, 0), point(70, 2), point(110, 5), point(130, 5), point(250, 6)];
        assert_eq!(kicked_out_by_minute(&points), [(1, 5), (4, 1)]);
    }
}
