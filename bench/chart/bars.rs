//! Figures side by side: a bar for the median, and a line from the smallest to the largest of the repetitions. Where
//! bars from zero would all look alike, dots on a scale that does not begin there, which the note has to say.

use maud::{Markup, html};

use super::{
    Chart, SERIES, WIDTH, at,
    axis::{grouped, linear, round_up},
    legend,
};
use crate::spread::Spread;

/// Right of the longest bar: its value.
const VALUES: f64 = 200.0;
const ROW: f64 = 20.0;
const LABEL: f64 = 20.0;

/// What is compared within one case.
pub(crate) struct Group {
    pub(crate) label: String,
    pub(crate) bars: Vec<Bar>,
}

pub(crate) struct Bar {
    pub(crate) series: usize,
    pub(crate) spread: Spread,
}

/// How numbers become lengths and words.
pub(crate) struct Scale {
    /// Only what is above it is drawn, as dots; bars begin at zero.
    pub(crate) from: f64,
    /// The end, if it does not follow from the figures.
    pub(crate) to: Option<f64>,
    pub(crate) digits: usize,
    pub(crate) unit: &'static str,
}

/// `names` are those of the series. `None` if there is nothing to draw.
pub(crate) fn bars(title: &str, note: &str, scale: &Scale, names: &[&str], groups: &[Group]) -> Option<Chart> {
    let most = groups.iter().flat_map(|group| &group.bars).map(|bar| bar.spread.max).filter(|max| max.is_finite());
    let most = most.reduce(f64::max).filter(|most| *most > scale.from)?;
    let to = scale.to.unwrap_or_else(|| round_up(most));
    let x = |value: f64| ((value - scale.from) / (to - scale.from)).clamp(0.0, 1.0) * (WIDTH - VALUES);
    let mut used: Vec<_> = groups.iter().flat_map(|group| group.bars.iter().map(|bar| bar.series)).collect();
    used.sort_unstable();
    used.dedup();
    let names: Vec<_> = used.iter().map(|&series| (series, names[series])).collect();
    let (legend_height, legend) = legend(&names);

    let top = legend_height + 4.0;
    let mut bottom = top;
    let mut placed = Vec::with_capacity(groups.len());
    for group in groups {
        placed.push((bottom, group));
        bottom += LABEL + group.bars.len() as f64 * ROW + 6.0;
    }
    let body = html! {
        (grid(scale, to, top, bottom, &x))
        (legend)
        @for (top, group) in placed {
            text.soft x="0" y=(at(top + 14.0)) { (group.label) }
            @for (place, bar) in group.bars.iter().enumerate() {
                (draw(bar, scale, top + LABEL + place as f64 * ROW, &x))
            }
        }
    };
    Some(Chart { title: title.into(), note: note.into(), height: bottom + 20.0, body })
}

fn draw(bar: &Bar, scale: &Scale, top: f64, x: &impl Fn(f64) -> f64) -> Markup {
    let Spread { median, min, max } = bar.spread;
    let Scale { digits, unit, .. } = *scale;
    let fill = format!("f{}", bar.series % SERIES);
    let middle = top + ROW / 2.0 - 2.0;
    let value = |value| grouped(value, digits);
    // A repetition without an answer has no figure, so that there is no range.
    let apart = min.is_finite() && max.is_finite() && value(min) != value(max);
    let range = if apart { format!(" ({} to {})", value(min), value(max)) } else { String::new() };
    html! {
        @if !median.is_finite() {
            text.soft x="4" y=(at(middle + 4.0)) { "–" }
        } @else {
            g {
                title { (value(median)) (range) " " (unit) }
                @if scale.from == 0.0 {
                    rect.bar.(fill) x="0" y=(at(top)) width=(at(x(median))) height=(ROW - 5.0) rx="2" {}
                } @else {
                    circle.(fill) cx=(at(x(median))) cy=(at(middle)) r="5" {}
                }
                @if apart {
                    line.range x1=(at(x(min))) x2=(at(x(max))) y1=(at(middle)) y2=(at(middle)) {}
                    line.range x1=(at(x(min))) x2=(at(x(min))) y1=(at(middle - 3.0)) y2=(at(middle + 3.0)) {}
                    line.range x1=(at(x(max))) x2=(at(x(max))) y1=(at(middle - 3.0)) y2=(at(middle + 3.0)) {}
                }
                text x=(at(x(max).max(x(median)) + 8.0)) y=(at(middle + 4.0)) {
                    (value(median)) @if apart { tspan style="fill: var(--soft)" { (range) } }
                }
            }
        }
    }
}

fn grid(scale: &Scale, to: f64, top: f64, bottom: f64, x: &impl Fn(f64) -> f64) -> Markup {
    html! {
        @for (nth, (value, text)) in linear(scale.unit, [scale.from, to], 6.0).marks.iter().enumerate() {
            line.grid x1=(at(x(*value))) x2=(at(x(*value))) y1=(at(top)) y2=(at(bottom)) {}
            text.soft.middle[nth > 0] x=(at(x(*value))) y=(at(bottom + 15.0)) { (text) }
        }
        text.soft.end x=(WIDTH) y=(at(bottom + 15.0)) { (scale.unit) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn group(values: &[f64]) -> Group {
        let bar = |(series, &median): (usize, &f64)| Bar {
            series,
            spread: Spread { median, min: median * 0.5, max: median * 2.0 },
        };
        Group { label: "a < case".into(), bars: values.iter().enumerate().map(bar).collect() }
    }

    const SCALE: Scale = Scale { from: 0.0, to: None, digits: 0, unit: "requests/s" };

    #[test]
    fn a_bar_is_as_long_as_its_figure() {
        let chart = bars("t", "n", &SCALE, &["one", "two"], &[group(&[50_000.0, 25_000.0])]).unwrap();
        let svg = chart.body.into_string();
        // 100,000 is the end of the scale.
        let (whole, half) = (at((WIDTH - VALUES) / 2.0), at((WIDTH - VALUES) / 4.0));
        assert!(svg.contains(&format!("width=\"{whole}\"")) && svg.contains(&format!("width=\"{half}\"")), "{svg}");
        assert!(svg.contains("a &lt; case") && svg.contains("50,000") && svg.contains(" (25,000 to 100,000)"), "{svg}");
    }

    #[test]
    fn what_was_not_measured_is_a_dash_and_nothing_at_all_no_picture() {
        let chart = bars("t", "n", &SCALE, &["one", "two"], &[group(&[50_000.0, f64::NAN])]).unwrap();
        assert!(chart.body.into_string().contains('–'));
        assert!(bars("t", "n", &SCALE, &["one"], &[group(&[f64::NAN])]).is_none());
        let mut partly = group(&[50_000.0, 20_000.0]);
        partly.bars[0].spread.max = f64::NAN;
        let svg = bars("t", "n", &SCALE, &["one", "two"], &[partly]).unwrap().body.into_string();
        assert!(svg.contains("50,000") && !svg.contains("NaN") && !svg.contains('–'), "{svg}");
        assert!(bars("t", "n", &SCALE, &[], &[]).is_none());
    }
}
