//! The plot of a resource: capacity, wants, granted and held over the last 15 minutes.

use std::time::{Duration, SystemTime};

use maud::{Markup, html};

use crate::api::{
    pages::text,
    status::{
        history::SAMPLES,
        survey::{SAMPLE_EVERY, Sample},
    },
};

const WIDTH: f64 = 900.0;
const HEIGHT: f64 = 240.0;
const LEFT: f64 = 70.0;
const RIGHT: f64 = 12.0;
const TOP: f64 = 10.0;
const BOTTOM: f64 = 24.0;
/// Upper bound of the axis, as a multiple of the largest value other than wants, which can be far larger.
const MAX_RATIO: f64 = 3.0;
/// Number of intervals between grid lines.
const STEPS: u32 = 4;

/// CSS class, name, and value. Series are drawn in this order, so later ones cover earlier ones.
type Series = (&'static str, &'static str, fn(&Sample) -> f64);
const SERIES: [Series; 4] = [
    ("wants", "Wants", |sample| sample.wants),
    ("held", "Held", |sample| sample.held),
    ("granted", "Granted", |sample| sample.granted),
    ("capacity", "Capacity", |sample| sample.capacity),
];

/// `kept`: the maximum number of resources with a history.
pub(super) fn plot(samples: &[Sample], kept: usize) -> Markup {
    let Some(last) = samples.last() else {
        return html! {
            p.none {
                "No history yet: while this peer is master, it samples the " (text::count(kept))
                " resources under the most pressure every " (SAMPLE_EVERY.as_secs()) " s (" code { "--history-resources" } ")."
            }
        };
    };
    let scale = Scale::of(samples, last.at);
    html! {
        figure.plot {
            div.scroll tabindex="0" role="group" aria-label="Plot" {
                svg viewBox={ "0 0 " (WIDTH) " " (HEIGHT) } role="img" aria-label=(description(samples)) {
                    (axes(&scale))
                    @for (class, _, of) in SERIES { path.line.(class) d=(line(samples, &scale, of)) {} }
                }
            }
            figcaption {
                ul.legend {
                    @for (class, name, of) in SERIES.iter().rev() {
                        li {
                            svg.key viewBox="0 0 28 8" aria-hidden="true" { path.line.(class) d="M0 4H28" {} }
                            (name) " " span.n { (text::number(of(last))) }
                        }
                    }
                }
                @if scale.is_cut { p.caption { "Wants exceed the axis: up to " (text::number(scale.beyond)) "." } }
            }
        }
    }
}

/// Maps samples to coordinates.
struct Scale {
    end: SystemTime,
    most: f64,
    is_cut: bool,
    /// The largest value, which may exceed `most`, the maximum of the axis.
    beyond: f64,
}

impl Scale {
    fn of(samples: &[Sample], end: SystemTime) -> Scale {
        let largest = |of: fn(&Sample) -> f64| samples.iter().map(of).fold(0.0, f64::max);
        let there = largest(|sample| sample.capacity.max(sample.held).max(sample.granted));
        let beyond = there.max(largest(|sample| sample.wants));
        let bound = if there > 0.0 { MAX_RATIO * there } else { f64::INFINITY };
        let most = round_up(beyond.min(bound));
        Scale { end, most, is_cut: beyond > most, beyond }
    }

    fn x(&self, at: SystemTime) -> f64 {
        let span = SAMPLE_EVERY * SAMPLES as u32;
        let ago = self.end.duration_since(at).unwrap_or_default().min(span);
        LEFT + (WIDTH - LEFT - RIGHT) * (1.0 - ago.as_secs_f64() / span.as_secs_f64())
    }

    fn y(&self, value: f64) -> f64 {
        TOP + (HEIGHT - TOP - BOTTOM) * (1.0 - (value / self.most).clamp(0.0, 1.0))
    }
}

/// Rounds up to a value whose quarters have few digits, for the labels of the grid lines.
fn round_up(value: f64) -> f64 {
    if value <= 0.0 {
        return 1.0;
    }
    let power = 10f64.powf(value.log10().floor());
    let steps = [1.0, 1.2, 1.6, 2.0, 3.0, 4.0, 6.0, 8.0, 10.0].map(|step| step * power);
    steps.into_iter().find(|step| *step >= value * (1.0 - 1e-9)).unwrap_or(value)
}

/// A path with gaps where samples are missing.
fn line(samples: &[Sample], scale: &Scale, of: fn(&Sample) -> f64) -> String {
    let mut path = String::new();
    let mut before: Option<SystemTime> = None;
    for sample in samples {
        let is_next =
            before.is_some_and(|before| sample.at.duration_since(before).is_ok_and(|passed| passed < SAMPLE_EVERY * 3));
        let verb = if is_next { 'L' } else { 'M' };
        path.push_str(&format!("{verb}{:.1} {:.1}", scale.x(sample.at), scale.y(of(sample))));
        if !is_next {
            // Makes a single sample visible.
            path.push_str("h0.1");
        }
        before = Some(sample.at);
    }
    path
}

fn axes(scale: &Scale) -> Markup {
    html! {
        @for step in 0..=STEPS {
            @let value = scale.most * f64::from(step) / f64::from(STEPS);
            @let y = format!("{:.1}", scale.y(value));
            line.grid x1=(LEFT) x2=(WIDTH - RIGHT) y1=(y) y2=(y) {}
            text x=(LEFT - 8.0) y=(format!("{:.1}", scale.y(value) + 4.0)) text-anchor="end" { (text::number(value)) }
        }
        @for minutes in [15, 10, 5, 0] {
            @let x = scale.x(scale.end - Duration::from_secs(minutes * 60));
            text x=(format!("{x:.1}")) y=(HEIGHT - 6.0) text-anchor=(if minutes == 0 { "end" } else if minutes == 15 { "start" } else { "middle" }) {
                @if minutes == 0 { (text::clock(scale.end)) " UTC" } @else { (minutes) " min ago" }
            }
        }
    }
}

/// A description for screen readers.
fn description(samples: &[Sample]) -> String {
    let series = SERIES.iter().rev().map(|(_, name, of)| {
        let (least, most) = samples
            .iter()
            .map(of)
            .fold((f64::INFINITY, 0.0_f64), |(least, most), value| (least.min(value), most.max(value)));
        let now = samples.last().map(of).unwrap_or_default();
        format!("{name} {}, between {} and {}", text::number(now), text::number(least), text::number(most))
    });
    format!("Plot of the last 15 minutes. {}.", series.collect::<Vec<_>>().join("; "))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn samples(wants: f64) -> Vec<Sample> {
        let at = |number: u32| SystemTime::UNIX_EPOCH + SAMPLE_EVERY * number;
        (0..100).map(|number| Sample { at: at(number), capacity: 100.0, wants, granted: 90.0, held: 95.0 }).collect()
    }

    #[test]
    fn wants_beyond_the_axis_are_cut_off_with_a_note() {
        let (usual, huge) = (samples(150.0), samples(1e12));
        let end = usual[99].at;
        assert_eq!((Scale::of(&usual, end).most, Scale::of(&usual, end).is_cut), (160.0, false));
        let scale = Scale::of(&huge, end);
        assert_eq!((scale.most, scale.is_cut), (300.0, true));
        assert!(
            line(&huge, &scale, |sample| sample.wants).split(['M', 'L']).skip(1).all(|place| place.contains(" 10.0"))
        );
        assert!(plot(&huge, 1).into_string().contains("up to 1,000,000,000,000"));
    }

    #[test]
    fn missing_samples_are_gaps() {
        let mut with_gap = samples(1.0);
        with_gap.drain(40..60);
        let scale = Scale::of(&with_gap, with_gap[79].at);
        assert_eq!(line(&with_gap, &scale, |sample| sample.held).matches('M').count(), 2);
    }

    #[test]
    fn zeros_and_an_empty_history_can_be_plotted() {
        let none = [Sample { at: SystemTime::UNIX_EPOCH, capacity: 0.0, wants: 0.0, granted: 0.0, held: 0.0 }];
        let page = plot(&none, 1).into_string();
        assert!(page.contains("<svg") && !page.contains("NaN") && !page.contains("inf"), "{page}");
        assert!(plot(&[], 7).into_string().contains("the 7 resources under the most pressure"));
    }
}
