//! What the times of admissions say.

use serde::Serialize;

use super::case::{Arrivals, CALLERS_MAX, LimiterCase, Load, Outcome};

/// Of what was planned, this part or one arrival may be missing at the end of a run. If more is, the generator and not
/// the limiter is what was measured.
const MISSING_MAX: f64 = 0.01;

#[derive(Debug, Serialize)]
pub(super) struct LimiterFigures {
    capacity: f64,
    load: String,
    seconds: f64,
    /// Callers per second, as far as the generator managed; none for a closed loop, which offers as much as there is.
    offered: Option<f64>,
    /// Of the callers that were to come, the part that did not because the generator was too slow.
    missing: f64,
    /// Of the callers that came, the part that was turned away because too many were there already.
    turned_away: f64,
    admitted_count: usize,
    /// Admitted per second.
    admitted: f64,
    /// Of the smaller of offered and capacity.
    percent: f64,
    /// See [`excess`].
    excess: f64,
    burst: f64,
}

impl LimiterFigures {
    pub(super) fn of(case: &LimiterCase, outcome: &Outcome) -> LimiterFigures {
        let seconds = outcome.took.as_secs_f64();
        let capacity = case.capacity.get();
        let Arrivals { planned, offered, turned_away } = outcome.arrivals;
        let missing = planned.saturating_sub(offered.saturating_add(1)) as f64 / planned.max(1) as f64;
        let offered = match case.load {
            Load::Closed { .. } => None,
            // As exact as a count of few cannot be.
            Load::Open { factor } if missing <= MISSING_MAX => Some(factor * capacity),
            Load::Open { .. } => Some(offered as f64 / seconds),
        };
        let possible = offered.unwrap_or(f64::INFINITY).min(capacity);
        let times: Vec<_> = outcome.admitted.iter().map(|&nanos| nanos as f64 / 1e9).collect();
        let admitted = rate(&times, seconds, possible);
        LimiterFigures {
            capacity,
            load: case.load.to_string(),
            seconds,
            offered,
            missing,
            turned_away: turned_away as f64 / planned.max(1) as f64,
            admitted_count: times.len(),
            admitted,
            percent: 100.0 * admitted / possible,
            excess: excess(&times, capacity),
            burst: case.burst.permits(case.capacity),
        }
    }

    /// What there is to say against these figures.
    pub(super) fn doubts(&self) -> Vec<String> {
        let mut doubts = Vec::new();
        if self.missing > MISSING_MAX {
            let missing = 100.0 * self.missing;
            doubts.push(format!(
                "the generator was too slow: {missing:.0} % of the callers are missing, % is of those that came"
            ));
        }
        if self.turned_away > 0.0 {
            let away = 100.0 * self.turned_away;
            doubts.push(format!(
                "{away:.0} % of the callers were counted as offered and turned away, as {CALLERS_MAX} were there already"
            ));
        }
        if self.excess > self.burst {
            doubts.push("the excess is above the burst; in it is how late callers were scheduled, see --help".into());
        }
        doubts.iter().map(|doubt| format!("{}/s, {}: {doubt}", self.capacity, self.load)).collect()
    }

    pub(super) fn row(&self) -> [String; 7] {
        [
            self.capacity.to_string(),
            self.load.clone(),
            self.offered.map_or("-".into(), number),
            number(self.admitted),
            format!("{:.1}", self.percent),
            format!("{:.2}", self.excess),
            format!("{:.2}", self.burst),
        ]
    }
}

fn number(value: f64) -> String {
    if value < 1000.0 { format!("{value:.2}") } else { format!("{value:.0}") }
}

/// Admissions per second in a run of so many seconds. A flow at the rate that is `possible` leaves up to one interval
/// at either end, which says nothing; a longer silence counts.
fn rate(times: &[f64], seconds: f64, possible: f64) -> f64 {
    let (Some(&first), Some(&last)) = (times.first(), times.last()) else { return 0.0 };
    let interval = 1.0 / possible;
    let span = last.max(seconds - interval) - first.min(interval);
    // The first admission begins the span.
    if span > 0.0 { (times.len() - 1) as f64 / span } else { 0.0 }
}

/// The most permits that any span of time saw beyond capacity · span: of all i <= j, the largest
/// `(j - i + 1) - capacity · (t[j] - t[i])`. A span that begins at an admission and ends at one is the worst there is.
fn excess(times: &[f64], capacity: f64) -> f64 {
    let mut least = f64::INFINITY; // of i - capacity · t[i] so far
    let ahead = times.iter().enumerate().map(|(index, &time)| index as f64 - capacity * time);
    ahead.fold(0.0, |most: f64, ahead| {
        least = least.min(ahead);
        most.max(ahead - least + 1.0)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_excess_is_that_of_the_worst_span() {
        let mut random = fastrand::Rng::with_seed(7);
        for _ in 0..100 {
            let mut times: Vec<_> = (0..40).map(|_| random.f64() * 10.0).collect();
            times.sort_by(f64::total_cmp);
            let mut worst = 0.0f64;
            for i in 0..times.len() {
                for j in i..times.len() {
                    worst = worst.max((j - i + 1) as f64 - 3.0 * (times[j] - times[i]));
                }
            }
            assert!((excess(&times, 3.0) - worst).abs() < 1e-9);
        }
        assert_eq!(excess(&[], 3.0), 0.0);
        assert_eq!(excess(&[1.0], 3.0), 1.0);
    }

    #[test]
    fn the_ends_of_a_run_do_not_count_unless_they_are_too_long() {
        let even: Vec<_> = (1..=9).map(|n| f64::from(n) * 2.0).collect();
        assert!((rate(&even, 19.9, 0.5) - 0.5).abs() < 1e-9, "every two seconds is all that is possible");
        assert!(rate(&even, 40.0, 0.5) < 0.25, "it fell silent half way");
        let late: Vec<_> = even.iter().map(|time| time + 20.0).collect();
        assert!(rate(&late, 39.9, 0.5) < 0.25, "it began half way");
        assert_eq!(rate(&[], 10.0, 1.0), 0.0);
        assert_eq!(rate(&[5.0], 10.0, 1.0), 0.0);
    }
}
