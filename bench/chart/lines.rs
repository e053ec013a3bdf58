//! Figures that depend on another: a line through the medians, and a band from the smallest to the largest.

use std::fmt::Write as _;

use maud::{Markup, html};

use super::{Chart, SERIES, WIDTH, at, axis::Axis, legend};
use crate::spread::Spread;

const LEFT: f64 = 56.0;
const RIGHT: f64 = 30.0;
/// Above what is drawn, below the names: half of the topmost mark.
const TOP: f64 = 8.0;
const HEIGHT: f64 = 240.0;
const BOTTOM: f64 = 40.0;

pub(crate) struct ChartLine {
    pub(crate) series: usize,
    pub(crate) points: Vec<(f64, Spread)>,
    pub(crate) join: Join,
}

/// How the points of a line are joined.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Join {
    /// Little by little.
    Straight,
    /// The same, where points are few and mean something each.
    Dotted,
    /// A value stays until the next.
    Stepped,
}

pub(crate) fn lines(title: &str, note: &str, axes: [&Axis<'_>; 2], names: &[&str], lines: &[ChartLine]) -> Chart {
    let [across, up] = axes;
    let x = |value| LEFT + (across.place)(value).clamp(0.0, 1.0) * (WIDTH - LEFT - RIGHT);
    let mut names: Vec<_> = lines.iter().map(|line| (line.series, names[line.series])).collect();
    names.sort_unstable();
    names.dedup();
    let (legend_height, legend) = legend(&names);
    let top = legend_height + TOP;
    let y = |value| top + (1.0 - (up.place)(value).clamp(0.0, 1.0)) * HEIGHT;
    let body = html! {
        (legend)
        @for (value, text) in &up.marks {
            line.grid x1=(LEFT) x2=(WIDTH - RIGHT) y1=(at(y(*value))) y2=(at(y(*value))) {}
            text.soft.end x=(LEFT - 8.0) y=(at(y(*value) + 4.0)) { (text) }
        }
        @for (value, text) in &across.marks {
            line.grid x1=(at(x(*value))) x2=(at(x(*value))) y1=(top) y2=(top + HEIGHT) {}
            text.soft.middle x=(at(x(*value))) y=(top + HEIGHT + 16.0) { (text) }
        }
        text.soft.middle x=(at((LEFT + WIDTH - RIGHT) / 2.0)) y=(top + HEIGHT + 34.0) { (across.label) }
        text.soft.middle transform=(format!("translate(11 {}) rotate(-90)", top + HEIGHT / 2.0)) { (up.label) }
        @for line in lines { (draw(line, &x, &y)) }
    };
    Chart { title: title.into(), note: note.into(), height: top + HEIGHT + BOTTOM, body }
}

fn draw(line: &ChartLine, x: &impl Fn(f64) -> f64, y: &impl Fn(f64) -> f64) -> Markup {
    let series = line.series % SERIES;
    let path = |value: fn(&Spread) -> f64| {
        let mut path = String::new();
        for (across, spread) in &line.points {
            let (x, y) = (at(x(*across)), at(y(value(spread))));
            let _ = match line.join {
                _ if path.is_empty() => write!(path, "M{x} {y}"),
                Join::Stepped => write!(path, "H{x}V{y}"),
                Join::Straight | Join::Dotted => write!(path, "L{x} {y}"),
            };
        }
        path
    };
    let mut band = path(|spread| range(spread)[1]);
    for (across, spread) in line.points.iter().rev() {
        let _ = write!(band, "L{} {}", at(x(*across)), at(y(range(spread)[0])));
    }
    band.push('Z');
    let has_range = line.points.iter().any(|(_, spread)| spread.min != spread.max);
    html! {
        @if has_range {
            path.band.{ "f" (series) } d=(band) {}
        }
        path.line.{ "k" (series) } d=(path(|spread| spread.median)) {}
        @if line.join == Join::Dotted {
            @for (across, spread) in &line.points {
                circle.{ "f" (series) } cx=(at(x(*across))) cy=(at(y(spread.median))) r="4" {
                    @let [least, most] = range(spread);
                    title { (format!("{:.2} ({least:.2} to {most:.2})", spread.median)) }
                }
            }
        }
    }
}

/// From the least to the most. A repetition without an answer has no figure: then there is no range.
fn range(spread: &Spread) -> [f64; 2] {
    let range = [spread.min, spread.max];
    if range.iter().all(|bound| bound.is_finite()) { range } else { [spread.median; 2] }
}

#[cfg(test)]
mod tests {
    use super::{super::axis::powers, *};

    #[test]
    fn a_line_goes_through_the_medians() {
        let spread = |median: f64| Spread { median, min: median / 2.0, max: f64::NAN };
        let line =
            ChartLine { series: 7, points: vec![(10.0, spread(0.25)), (100.0, spread(0.5))], join: Join::Dotted };
        let up = Axis { label: "up", marks: vec![], place: Box::new(|value| value) };
        let across = powers("across", 10.0, 100.0, |value| value.to_string());
        let names = ["", "", "", "", "", "", "", "seven"];
        let svg = lines("t", "n", [&across, &up], &names, &[line]).body.into_string();
        let (quarter, half) = (TOP + HEIGHT * 0.75, TOP + HEIGHT / 2.0);
        let expected = format!("d=\"M{LEFT:.1} {quarter:.1}L{:.1} {half:.1}\"", WIDTH - RIGHT);
        assert!(svg.contains(&expected) && svg.contains("class=\"line k1\""), "{svg}");
        assert!(!svg.contains("NaN"), "{svg}");
    }

    #[test]
    fn names_stand_above_what_is_drawn() {
        let spread = Spread { median: 0.5, min: 0.5, max: 0.5 };
        let line = |series| ChartLine { series, points: vec![(10.0, spread), (100.0, spread)], join: Join::Straight };
        let up = Axis { label: "up", marks: vec![], place: Box::new(|value| value) };
        let across = powers("across", 10.0, 100.0, |value| value.to_string());
        let draw = |all: &[ChartLine]| lines("t", "n", [&across, &up], &["one", "two"], all);
        let (one, two) = (draw(&[line(0)]), draw(&[line(0), line(1)]));
        assert!(two.height >= one.height + 18.0, "{} and {}", one.height, two.height);
        let svg = draw(&[line(1), line(1)]).body.into_string();
        assert!(!svg.contains("two"), "one name is not written twice: {svg}");
    }
}
