//! The plot of a resource: capacity, wants, granted and held over 15 minutes, 6 hours or 7 days, with the changes of
//! that time as vertical lines.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use leaseway_core::types::escaped;
use maud::{Markup, html};

use crate::{
    api::{
        pages::text,
        status::{
            history::{Point, Series, Span},
            survey::SAMPLE_EVERY,
        },
    },
    observe::changes::Change,
};

const WIDTH: f64 = 900.0;
const HEIGHT: f64 = 254.0;
const LEFT: f64 = 6.0;
/// Room for the labels, which are beside the newest values: a phone shows this end.
const RIGHT: f64 = 74.0;
/// Room for the unit.
const TOP: f64 = 24.0;
const BOTTOM: f64 = 24.0;
/// Upper bound of the axis, as a multiple of the largest value other than wants, which can be far larger.
const MAX_RATIO: f64 = 3.0;
/// Number of intervals between grid lines.
const STEPS: u32 = 4;
/// Maximum number of lines for changes, the newest first.
const MAX_EVENTS: usize = 40;
/// More changes than this are folded, so that they do not push everything else off the screen.
const MAX_UNFOLDED: usize = 3;
/// Missing samples that make a gap. A missing bucket always does.
const MISSING_SAMPLES: u32 = 3;

/// CSS class, name, and index in [`Series`]. Series are drawn in this order, so later ones cover earlier ones.
const SERIES: [(&str, &str, usize); 4] =
    [("wants", "Wants", 1), ("held", "Held", 3), ("granted", "Granted", 2), ("capacity", "Capacity", 0)];

/// The data of a plot.
pub(super) struct Plot<'a> {
    pub(super) span: Span,
    pub(super) points: &'a [Point],
    /// The changes that concern the resource, the newest first.
    pub(super) events: &'a [Change],
    pub(super) now: SystemTime,
    /// The maximum number of resources with a history.
    pub(super) kept: usize,
}

impl Plot<'_> {
    pub(super) fn draw(&self) -> Markup {
        let Some(last) = self.points.last() else { return self.none() };
        let scale = Scale::of(self);
        html! {
            figure.plot {
                div.scroll tabindex="0" role="group" aria-label="Plot" {
                    svg viewBox={ "0 0 " (WIDTH) " " (HEIGHT) } role="img" aria-label=(self.description()) {
                        (axes(&scale))
                        @if self.span != Span::Minutes15 {
                            @for (class, _, series) in SERIES { path.band.(class) d=(band(self, &scale, series)) {} }
                        }
                        @for (class, _, series) in SERIES { path.line.(class) d=(line(self, &scale, series)) {} }
                        @for event in self.shown_events(&scale) { (event_line(event, &scale)) }
                    }
                }
                figcaption { (legend(last)) (self.notes(&scale)) }
            }
        }
    }

    fn none(&self) -> Markup {
        html! {
            p.none {
                "No history in the last " (self.span.in_words()) ": the master samples the " (text::count(self.kept))
                " resources under the most pressure every " (SAMPLE_EVERY.as_secs()) " s (" code { "--history-resources" } ")."
            }
        }
    }

    fn shown_events(&self, scale: &Scale) -> impl Iterator<Item = &Change> {
        let begin = scale.end.checked_sub(self.span.length()).unwrap_or(UNIX_EPOCH);
        self.events.iter().filter(move |event| event.at >= begin && event.at <= scale.end).take(MAX_EVENTS)
    }

    fn notes(&self, scale: &Scale) -> Markup {
        html! {
            @if self.span != Span::Minutes15 {
                p.caption {
                    "Lines are means of " (self.span.slot_in_words()) ", bands reach from the minimum to the maximum."
                }
            }
            @if scale.is_cut { p.caption { "Wants exceed the axis: up to " (text::number(scale.beyond)) " units." } }
            @let events: Vec<_> = self.shown_events(scale).collect();
            @if !events.is_empty() {
                @if events.len() > MAX_UNFOLDED {
                    details { summary { (events.len()) " changes in this time" } (self.list(&events)) }
                } @else { (self.list(&events)) }
            }
        }
    }

    fn list(&self, events: &[&Change]) -> Markup {
        html! {
            ul.events {
                @for event in events { li {
                    svg.key viewBox="0 0 8 12" aria-hidden="true" { line.event.(event.kind.name()) x1="4" x2="4" y1="0" y2="12" {} }
                    time datetime=(text::moment(event.at)) { (when(event.at, self.span)) } " " (escaped(&event.what))
                } }
            }
        }
    }

    /// A description for screen readers.
    fn description(&self) -> String {
        let series = SERIES.iter().rev().map(|(_, name, series)| {
            let least = self.points.iter().map(|point| point.min.0[*series]).fold(f64::INFINITY, f64::min);
            let most = self.points.iter().map(|point| point.max.0[*series]).fold(0.0, f64::max);
            let now = self.points.last().map(|point| point.mean.0[*series]).unwrap_or_default();
            format!("{name} {}, between {} and {}", text::number(now), text::number(least), text::number(most))
        });
        let series = series.collect::<Vec<_>>().join("; ");
        format!("Plot of the last {}, in units. {series}.", self.span.in_words())
    }

    /// The points without gaps between them.
    fn runs(&self) -> impl Iterator<Item = &[Point]> {
        let missing = if self.span == Span::Minutes15 { MISSING_SAMPLES } else { 2 };
        let apart = self.span.slot() * missing;
        self.points.chunk_by(move |one, next| next.at.duration_since(one.at).is_ok_and(|passed| passed < apart))
    }

    /// Where a point is drawn: in the middle of its slot, or now.
    fn middle(&self, point: &Point) -> SystemTime {
        let half = if self.span == Span::Minutes15 { Duration::ZERO } else { self.span.slot() / 2 };
        (point.at + half).min(self.now)
    }
}

/// Maps points to coordinates.
struct Scale {
    span: Span,
    end: SystemTime,
    most: f64,
    is_cut: bool,
    /// The largest value, which may exceed `most`, the maximum of the axis.
    beyond: f64,
}

impl Scale {
    fn of(plot: &Plot<'_>) -> Scale {
        let largest = |series: &[usize]| {
            let of = |point: &Point| series.iter().map(|series| point.max.0[*series]).fold(0.0, f64::max);
            plot.points.iter().map(of).fold(0.0, f64::max)
        };
        let there = largest(&[0, 2, 3]);
        let beyond = there.max(largest(&[1]));
        let bound = if there > 0.0 { MAX_RATIO * there } else { f64::INFINITY };
        let most = round_up(beyond.min(bound));
        // Moves with the samples, so that open pages are not sent the same plot again.
        let step = SAMPLE_EVERY.as_secs();
        let now = plot.now.duration_since(UNIX_EPOCH).unwrap_or_default().as_secs();
        let end = UNIX_EPOCH + Duration::from_secs(now.div_ceil(step) * step);
        Scale { span: plot.span, end, most, is_cut: beyond > most, beyond }
    }

    fn x(&self, at: SystemTime) -> f64 {
        let length = self.span.length();
        let ago = self.end.duration_since(at).unwrap_or_default().min(length);
        LEFT + (WIDTH - LEFT - RIGHT) * (1.0 - ago.as_secs_f64() / length.as_secs_f64())
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
    // Values are off by a fifth of a percent.
    steps.into_iter().find(|step| *step >= value * (1.0 - 2e-3)).unwrap_or(value)
}

/// A path with gaps where points are missing.
fn line(plot: &Plot<'_>, scale: &Scale, series: usize) -> String {
    let mut path = String::new();
    for run in plot.runs() {
        for (index, point) in run.iter().enumerate() {
            let verb = if index == 0 { 'M' } else { 'L' };
            let (x, y) = (scale.x(plot.middle(point)), scale.y(point.mean.0[series]));
            path.push_str(&format!("{verb}{x:.1} {y:.1}"));
        }
        if run.len() == 1 {
            // Makes a single point visible.
            path.push_str("h0.1");
        }
    }
    path
}

/// An area from the minimum to the maximum.
fn band(plot: &Plot<'_>, scale: &Scale, series: usize) -> String {
    let mut path = String::new();
    for run in plot.runs() {
        let at = |point: &Point, of: &Series| (scale.x(plot.middle(point)), scale.y(of.0[series]));
        if let [only] = run {
            let ((x, top), (_, bottom)) = (at(only, &only.max), at(only, &only.min));
            path.push_str(&format!("M{:.1} {top:.1}h4V{bottom:.1}h-4Z", x - 2.0));
            continue;
        }
        let there = run.iter().map(|point| at(point, &point.max));
        let back = run.iter().rev().map(|point| at(point, &point.min));
        for (number, (x, y)) in there.chain(back).enumerate() {
            path.push_str(&format!("{}{x:.1} {y:.1}", if number == 0 { 'M' } else { 'L' }));
        }
        path.push('Z');
    }
    path
}

fn event_line(event: &Change, scale: &Scale) -> Markup {
    let x = format!("{:.1}", scale.x(event.at));
    html! {
        line.event.(event.kind.name()) x1=(x) x2=(x) y1=(TOP) y2=(HEIGHT - BOTTOM) {
            title { (when(event.at, scale.span)) " UTC: " (escaped(&event.what)) }
        }
    }
}

/// The time of day, with the date if the plot is longer than a day.
fn when(at: SystemTime, span: Span) -> String {
    match span {
        Span::Days7 => text::moment(at).get(..16).unwrap_or_default().replace('T', " "),
        Span::Minutes15 | Span::Hours6 => text::clock(at),
    }
}

fn axes(scale: &Scale) -> Markup {
    // Labels and their distance from the end, in parts of the span.
    let ago = match scale.span {
        Span::Minutes15 => &[("15 min ago", 1.0), ("10 min ago", 2.0 / 3.0), ("5 min ago", 1.0 / 3.0)][..],
        Span::Hours6 => &[("6 h ago", 1.0), ("4 h ago", 2.0 / 3.0), ("2 h ago", 1.0 / 3.0)],
        Span::Days7 => {
            &[("7 days ago", 1.0), ("5 days ago", 5.0 / 7.0), ("3 days ago", 3.0 / 7.0), ("1 day ago", 1.0 / 7.0)]
        }
    };
    html! {
        @for step in 0..=STEPS {
            @let value = scale.most * f64::from(step) / f64::from(STEPS);
            @let y = format!("{:.1}", scale.y(value));
            line.grid x1=(LEFT) x2=(WIDTH - RIGHT) y1=(y) y2=(y) {}
            text x=(WIDTH - RIGHT + 8.0) y=(format!("{:.1}", scale.y(value) + 4.0)) {
                (text::number(value))
            }
        }
        text x=(WIDTH - RIGHT + 8.0) y="12" { "units" }
        @for (label, part) in ago {
            @let x = scale.x(scale.end - scale.span.length().mul_f64(*part));
            text x=(format!("{x:.1}")) y=(HEIGHT - 6.0) text-anchor=(if *part == 1.0 { "start" } else { "middle" }) { (label) }
        }
        text x=(WIDTH - RIGHT) y=(HEIGHT - 6.0) text-anchor="end" { (text::clock(scale.end)) " UTC" }
    }
}

fn legend(last: &Point) -> Markup {
    html! {
        ul.legend {
            @for (class, name, series) in SERIES.iter().rev() {
                li {
                    svg.key viewBox="0 0 28 8" aria-hidden="true" { path.line.(class) d="M0 4H28" {} }
                    (name) " " span.n { (text::number(last.mean.0[*series])) } " units"
                }
            }
        }
    }
}

/// Links to the plots of other spans.
pub(super) fn spans(span: Span, href: impl Fn(Span) -> String) -> Markup {
    html! {
        nav.kinds aria-label="Length of the plot" {
            @for one in Span::ALL { a href=(href(one)) aria-current=[(one == span).then_some("true")] { (one.in_words()) } }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::observe::changes::ChangeKind;

    fn at(span: Span, number: u32) -> SystemTime {
        UNIX_EPOCH + Duration::from_secs(1_800_000_000) + span.slot() * number
    }

    fn points(span: Span, wants: f64) -> Vec<Point> {
        let of = |factor: f64| Series([100.0, wants * factor, 90.0, 95.0]);
        (0..70).map(|number| Point { at: at(span, number), min: of(0.5), mean: of(1.0), max: of(1.5) }).collect()
    }

    fn plot<'a>(span: Span, points: &'a [Point], events: &'a [Change]) -> Plot<'a> {
        Plot { span, points, events, now: at(span, 69), kept: 7 }
    }

    #[test]
    fn wants_beyond_the_axis_are_cut_off_with_a_note() {
        let (usual, huge) = (points(Span::Minutes15, 100.0), points(Span::Minutes15, 1e12));
        let scale = Scale::of(&plot(Span::Minutes15, &usual, &[]));
        assert_eq!((scale.most, scale.is_cut), (160.0, false));
        let huge = plot(Span::Minutes15, &huge, &[]);
        let scale = Scale::of(&huge);
        assert_eq!((scale.most, scale.is_cut), (300.0, true));
        assert!(line(&huge, &scale, 1).split(['M', 'L']).skip(1).all(|point| point.contains(" 24.0")));
        assert!(huge.draw().into_string().contains("up to 1,500,000,000,000 units"));
    }

    #[test]
    fn many_changes_are_folded() {
        let points = points(Span::Minutes15, 1.0);
        let change = |number: u32| Change {
            at: at(Span::Minutes15, number),
            ..Change::new(ChangeKind::Election, format!("change {number}"))
        };
        for (number, is_folded) in [(1, false), (3, false), (4, true)] {
            let events: Vec<Change> = (0..number).map(change).collect();
            let page = plot(Span::Minutes15, &points, &events).draw().into_string();
            assert_eq!(page.contains("<details>"), is_folded, "{number}: {page}");
            assert_eq!(page.matches("<li><svg class=\"key\" viewBox=\"0 0 8 12\"").count(), number as usize, "{page}");
        }
    }

    #[test]
    fn missing_points_are_gaps() {
        for (span, missing) in [(Span::Minutes15, 3), (Span::Hours6, 1), (Span::Days7, 1)] {
            let mut with_gap = points(span, 1.0);
            with_gap.drain(40..40 + missing);
            let plot = plot(span, &with_gap, &[]);
            let scale = Scale::of(&plot);
            assert_eq!(line(&plot, &scale, 3).matches('M').count(), 2, "{span:?}");
            assert_eq!(band(&plot, &scale, 3).matches('Z').count(), 2, "{span:?}");
        }
        let mut late = points(Span::Minutes15, 1.0);
        late.remove(40);
        let plot = plot(Span::Minutes15, &late, &[]);
        assert_eq!(line(&plot, &Scale::of(&plot), 3).matches('M').count(), 1, "a late sample is no gap");
    }

    #[test]
    fn zeros_and_an_empty_history_can_be_plotted() {
        let zero = Series::default();
        for span in Span::ALL {
            let none = [Point { at: at(span, 69), min: zero, mean: zero, max: zero }];
            let page = plot(span, &none, &[]).draw().into_string();
            assert!(page.contains("<svg") && !page.contains("NaN") && !page.contains("inf"), "{page}");
            assert!(plot(span, &[], &[]).draw().into_string().contains("the 7 resources under the most pressure"));
        }
    }

    #[test]
    fn changes_are_lines_with_a_title_if_they_are_within_the_span() {
        let span = Span::Hours6;
        let points = points(span, 1.0);
        let change =
            |number: u32, what: &str| Change { at: at(span, number), ..Change::new(ChangeKind::Override, what) };
        let now = at(span, 69);
        let old = Change { at: now - Duration::from_secs(7 * 3600), ..Change::new(ChangeKind::Election, "long ago") };
        let events = [change(60, "`mysql` is set to <b>"), change(10, "over"), old];
        let page = plot(span, &points, &events).draw().into_string();
        assert_eq!(page.matches("class=\"event override\"").count(), 4, "a line and a key each: {page}");
        assert_eq!(page.matches("<title>").count(), 2, "{page}");
        assert!(page.contains("is set to &lt;b&gt;") && !page.contains("long ago"), "{page}");
        let x = |x: f64| format!("{x:.1}");
        assert!(
            page.contains(&format!("x1=\"{}\"", x(Scale::of(&plot(span, &points, &[])).x(at(span, 60))))),
            "{page}"
        );
    }

    #[test]
    fn buckets_have_bands_and_samples_have_none() {
        for (span, bands) in [(Span::Minutes15, 0), (Span::Hours6, 4), (Span::Days7, 4)] {
            let points = points(span, 50.0);
            assert_eq!(plot(span, &points, &[]).draw().into_string().matches("\"band ").count(), bands, "{span:?}");
        }
    }
}
