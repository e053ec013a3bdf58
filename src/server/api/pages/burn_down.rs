//! What is left of a budget over its period, with a forecast and, for comparison, an even pace.

use std::time::{SystemTime, UNIX_EPOCH};

use leaseway_core::resource::budget::report::BudgetReport;
use maud::{Markup, html};

use crate::api::{pages::text, status::history::Point};

/// Narrow, so that a phone can show all of it.
const WIDTH: f64 = 600.0;
const HEIGHT: f64 = 160.0;
const LEFT: f64 = 6.0;
/// Room for the labels.
const RIGHT: f64 = 90.0;
const TOP: f64 = 12.0;
const BOTTOM: f64 = 24.0;
/// Indices in [`Series`](crate::api::status::history::Series).
const CAPACITY: usize = 0;
const HELD: usize = 3;

pub(super) struct BurnDown<'a> {
    pub(super) budget: &'a BudgetReport,
    pub(super) amount: f64,
    /// The history of the resource. Points from before the period are left out.
    pub(super) points: &'a [Point],
    pub(super) now: SystemTime,
}

impl BurnDown<'_> {
    /// Draws nothing if the amount is spent once.
    pub(super) fn draw(&self) -> Markup {
        let period = self.budget.period;
        if period.is_unending() {
            return html! {};
        }
        let (start, end) = (period.start as f64, period.end as f64);
        html! {
            h3 { "Left in this period" }
            figure.plot {
                svg viewBox={ "0 0 " (WIDTH) " " (HEIGHT) } role="img" aria-label=(self.description()) {
                    @for part in [0.0, 0.5, 1.0] {
                        @let y = format!("{:.1}", self.y(self.amount * part));
                        line.grid x1=(LEFT) x2=(WIDTH - RIGHT) y1=(y) y2=(y) {}
                        text x=(WIDTH - RIGHT + 8.0) y=(format!("{:.1}", self.y(self.amount * part) + 4.0)) {
                            (text::number(self.amount * part))
                        }
                    }
                    path.line.capacity d=(self.path(&[(start, self.amount), (end, 0.0)])) {}
                    path.line.granted d=(self.path(&self.left())) {}
                    path.line.held d=(self.path(&self.forecast())) {}
                    text x=(LEFT) y=(HEIGHT - 6.0) { (day(start)) }
                    text x=(WIDTH - RIGHT) y=(HEIGHT - 6.0) text-anchor="end" { (day(end)) }
                }
                figcaption {
                    ul.legend {
                        @for (class, name) in [("granted", "Left"), ("held", "Forecast"), ("capacity", "Even pace")] {
                            li { svg.key viewBox="0 0 28 8" aria-hidden="true" { path.line.(class) d="M0 4H28" {} } (name) }
                        }
                    }
                }
            }
        }
    }

    fn now_unix(&self) -> f64 {
        unix(self.now)
    }

    /// From the start of the period until now: the times in Unix seconds, and what was left.
    fn left(&self) -> Vec<(f64, f64)> {
        let (start, now) = (self.budget.period.start as f64, self.now_unix());
        let known = self.points.iter().map(|point| {
            let of = |series: usize| point.mean.0[series];
            (unix(point.at), (of(CAPACITY) - of(HELD)).max(0.0))
        });
        let known = known.filter(|(at, _)| *at > start && *at < now);
        [(start, self.amount)].into_iter().chain(known).chain([(now, self.budget.left.get())]).collect()
    }

    /// From now until nothing is left, or the period ends.
    fn forecast(&self) -> Vec<(f64, f64)> {
        let Some(forecast) = self.budget.forecast else { return Vec::new() };
        let end = self.budget.period.end as f64;
        let last = match forecast.runs_out {
            Some(at) => (at as f64, 0.0),
            None => (end, (self.amount - forecast.spent).max(0.0)),
        };
        vec![(self.now_unix(), self.budget.left.get()), last]
    }

    fn path(&self, points: &[(f64, f64)]) -> String {
        let verbs = std::iter::once('M').chain(std::iter::repeat('L'));
        verbs.zip(points).map(|(verb, (at, left))| format!("{verb}{:.0} {:.1}", self.x(*at), self.y(*left))).collect()
    }

    fn x(&self, at: f64) -> f64 {
        let period = self.budget.period;
        let part = (at - period.start as f64) / (period.seconds() as f64).max(1.0);
        LEFT + (WIDTH - LEFT - RIGHT) * part.clamp(0.0, 1.0)
    }

    fn y(&self, left: f64) -> f64 {
        let part = if self.amount > 0.0 { left / self.amount } else { 0.0 };
        TOP + (HEIGHT - TOP - BOTTOM) * (1.0 - part.clamp(0.0, 1.0))
    }

    /// A description for screen readers.
    fn description(&self) -> String {
        let left = text::number(self.budget.left.get());
        format!("{left} of {} are left in this period.", text::number(self.amount))
    }
}

fn unix(at: SystemTime) -> f64 {
    at.duration_since(UNIX_EPOCH).unwrap_or_default().as_secs_f64()
}

/// The date and time, without seconds.
fn day(unix: f64) -> String {
    let moment = text::moment(UNIX_EPOCH + std::time::Duration::from_secs_f64(unix.max(0.0)));
    moment.get(..16).unwrap_or_default().replace('T', " ") + " UTC"
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use leaseway_core::{policy::period::Span, resource::budget::report::BudgetForecast, types::Amount};

    use super::*;
    use crate::api::status::history::Series;

    const START: i64 = 1_800_000_000;

    fn budget(left: f64, runs_out: Option<i64>) -> BudgetReport {
        BudgetReport {
            period: Span { start: START, end: START + 1000 },
            carried: Amount::ZERO,
            spent: Amount::clamped(100.0 - left),
            gone: Amount::ZERO,
            reserved: Amount::ZERO,
            left: Amount::clamped(left),
            pace: None,
            forecast: Some(BudgetForecast { spent: 80.0, runs_out }),
        }
    }

    fn at(seconds: u64) -> SystemTime {
        UNIX_EPOCH + Duration::from_secs(START as u64 + seconds)
    }

    #[test]
    fn it_falls_from_the_whole_amount_to_what_is_left_and_on_to_the_forecast() {
        let point = |seconds, held| {
            let series = Series([100.0, 1.0, held, held]);
            Point { at: at(seconds), min: series, mean: series, max: series }
        };
        let before = Point { at: UNIX_EPOCH, ..point(0, 90.0) };
        let points = [before, point(250, 20.0)];
        let budget = budget(60.0, None);
        let plot = BurnDown { budget: &budget, amount: 100.0, points: &points, now: at(500) };
        let start = START as f64;
        assert_eq!(plot.left(), [(start, 100.0), (start + 250.0, 80.0), (start + 500.0, 60.0)]);
        assert_eq!(plot.forecast(), [(start + 500.0, 60.0), (start + 1000.0, 20.0)]);
        assert_eq!(plot.path(&plot.left()), "M6 12.0L132 36.8L258 61.6");
        assert!(plot.draw().into_string().contains("60 of 100 are left in this period."));
    }

    #[test]
    fn it_ends_where_nothing_is_left_and_is_left_out_without_a_period() {
        let mut budget = budget(10.0, Some(START + 600));
        let plot = BurnDown { budget: &budget, amount: 100.0, points: &[], now: at(500) };
        assert_eq!(plot.forecast()[1], (START as f64 + 600.0, 0.0));
        budget.period = Span::UNENDING;
        let plot = BurnDown { budget: &budget, amount: 0.0, points: &[], now: at(500) };
        assert_eq!(plot.draw().into_string(), "");
    }
}
