//! The curve: what clients wanted, what they had, and what there was, over time. One picture for each case, below each other.

use std::fmt::Write as _;

use super::{
    report::{Measured, Report},
    world::Point,
};
use crate::axis::{round_up, tick};

const WIDTH: f64 = 960.0;
const HEIGHT: f64 = 300.0;
/// Room around a picture: for its title, and for the numbers at its sides.
const LEFT: f64 = 60.0;
const RIGHT: f64 = 20.0;
const TOP: f64 = 44.0;
const BOTTOM: f64 = 40.0;

/// A document of its own.
pub(super) fn draw(report: &Report<'_>, seed: u64) -> String {
    let pictures: Vec<_> = report.cases().iter().filter_map(|measured| Picture::of(measured, seed)).collect();
    let (width, height) = (LEFT + WIDTH + RIGHT, (TOP + HEIGHT + BOTTOM) * pictures.len() as f64);
    let mut svg = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {width} {height}\" width=\"{width}\" height=\"{height}\" \
         font-family=\"sans-serif\" font-size=\"12\">\n<rect width=\"100%\" height=\"100%\" fill=\"white\"/>\n"
    );
    for (row, picture) in pictures.iter().enumerate() {
        let top = TOP + row as f64 * (TOP + HEIGHT + BOTTOM);
        let _ = writeln!(svg, "<g transform=\"translate({LEFT} {top})\">{}</g>", picture.draw());
    }
    svg.push_str("</svg>\n");
    svg
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
        let title = format!(
            "{}: {}, {}, push {}, seed {seed}; {:.2} % of min(wants, capacity) used",
            case.scenario,
            case.algorithm,
            case.reuse,
            if case.push { "on" } else { "off" },
            run.usage.of_wanted
        );
        let most = run.curve.iter().map(|point| point.wants.max(point.had)).fold(capacity, f64::max);
        // A few that want a hundred times as much would press everything else to the ground.
        let most = round_up((most * 1.05).min(capacity * 3.0));
        Some(Picture { title, points: &run.curve, capacity, seconds: last.at.0 as f64 / 1000.0, most })
    }

    fn draw(&self) -> String {
        let mut svg = format!("<text x=\"0\" y=\"-24\" font-size=\"14\">{}</text>\n", escaped(&self.title));
        self.axes(&mut svg);
        let capacity = self.y(self.capacity);
        let _ = writeln!(
            svg,
            "<line x1=\"0\" x2=\"{WIDTH}\" y1=\"{capacity:.1}\" y2=\"{capacity:.1}\" stroke=\"#c00\" stroke-dasharray=\"6 4\"/>"
        );
        self.line(&mut svg, "#999", 1.0, |point| point.wants);
        self.line(&mut svg, "#06c", 1.5, |point| point.had);
        for (place, (colour, name)) in [("#999", "wanted"), ("#06c", "had"), ("#c00", "capacity")].iter().enumerate() {
            let x = WIDTH - 260.0 + place as f64 * 90.0;
            let _ = writeln!(
                svg,
                "<line x1=\"{x}\" x2=\"{}\" y1=\"-10\" y2=\"-10\" stroke=\"{colour}\" stroke-width=\"3\"/>\
                 <text x=\"{}\" y=\"-6\">{name}</text>",
                x + 18.0,
                x + 23.0
            );
        }
        svg
    }

    fn axes(&self, svg: &mut String) {
        let _ = writeln!(svg, "<rect width=\"{WIDTH}\" height=\"{HEIGHT}\" fill=\"none\" stroke=\"#333\"/>");
        let step = tick(self.most, 6.0);
        for number in 0..=(self.most / step) as u32 {
            let value = f64::from(number) * step;
            let y = self.y(value);
            let _ = writeln!(
                svg,
                "<line x1=\"0\" x2=\"{WIDTH}\" y1=\"{y:.1}\" y2=\"{y:.1}\" stroke=\"#eee\"/>\
                 <text x=\"-8\" y=\"{:.1}\" text-anchor=\"end\">{value}</text>",
                y + 4.0
            );
        }
        let step = tick(self.seconds, 10.0);
        for number in 0..=(self.seconds / step) as u32 {
            let second = f64::from(number) * step;
            let x = second / self.seconds * WIDTH;
            let _ = writeln!(
                svg,
                "<line x1=\"{x:.1}\" x2=\"{x:.1}\" y1=\"{HEIGHT}\" y2=\"{}\" stroke=\"#333\"/>\
                 <text x=\"{x:.1}\" y=\"{}\" text-anchor=\"middle\">{second} s</text>",
                HEIGHT + 5.0,
                HEIGHT + 20.0
            );
        }
    }

    /// A step for every point: what was had did not change little by little.
    fn line(&self, svg: &mut String, colour: &str, width: f64, value: impl Fn(&Point) -> f64) {
        let mut path = String::new();
        for (place, point) in self.points.iter().enumerate() {
            let (x, y) = (point.at.0 as f64 / 1000.0 / self.seconds * WIDTH, self.y(value(point)));
            let _ = match place {
                0 => write!(path, "M{x:.1} {y:.1}"),
                _ => write!(path, "H{x:.1}V{y:.1}"),
            };
        }
        let _ = writeln!(svg, "<path d=\"{path}\" fill=\"none\" stroke=\"{colour}\" stroke-width=\"{width}\"/>");
    }

    fn y(&self, value: f64) -> f64 {
        HEIGHT * (1.0 - (value / self.most).clamp(0.0, 1.0))
    }
}

fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;")
}
