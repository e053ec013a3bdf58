//! What a run has shown: times after blows, what the books add up to, and what else was noticed.

use std::ops::Range;

use serde::Serialize;

use super::{args::Args, crowd::SCARCE, pages::Pace, round::Measured};
use crate::{
    audit::{self, Audit, Line},
    table,
};

/// How often the books are looked at for the utilisation.
const SAMPLE_US: u64 = 100_000;

#[derive(Debug, Serialize)]
pub(super) struct Report {
    pub(super) arguments: Vec<String>,
    pub(super) capacity: f64,
    pub(super) seconds: f64,
    pub(super) rounds: Vec<Measured>,
    pub(super) audits: Vec<(String, Audit)>,
    pub(super) utilisation: Option<Utilisation>,
    pub(super) counters: Vec<Pace>,
}

/// What part of the scarce resource clients could use, looked at ten times a second.
#[derive(Debug, PartialEq, Serialize)]
pub(super) struct Utilisation {
    mean: f64,
    lowest_percent: f64,
    least: f64,
}

/// Of times, or of parts.
#[derive(Debug, PartialEq)]
pub(super) struct Percentiles {
    pub(super) n: usize,
    pub(super) p50: f64,
    pub(super) p90: f64,
    pub(super) max: f64,
}

impl Percentiles {
    /// `None` of nothing. The smallest value that so many are not above: always one that was measured.
    pub(super) fn of(values: impl IntoIterator<Item = f64>) -> Option<Percentiles> {
        let mut values: Vec<_> = values.into_iter().collect();
        values.sort_by(f64::total_cmp);
        let rank = |part: f64| ((values.len() as f64 * part).ceil() as usize).max(1) - 1;
        let max = *values.last()?;
        Some(Percentiles { n: values.len(), p50: values[rank(0.5)], p90: values[rank(0.9)], max })
    }
}

impl Utilisation {
    fn of(lines: &[Line], capacity: f64) -> Option<Utilisation> {
        let parts = audit::samples(lines, SCARCE, SAMPLE_US).into_iter().map(|usable| usable / capacity);
        let mut parts: Vec<f64> = parts.collect();
        parts.sort_by(f64::total_cmp);
        let least = *parts.first()?;
        let mean = parts.iter().sum::<f64>() / parts.len() as f64;
        Some(Utilisation { mean, lowest_percent: parts[parts.len() / 100], least })
    }
}

impl Report {
    /// `lines` are of all clients; what was not `measured` counts for the audit, but not for the utilisation:
    /// clients were still coming, or leaving.
    pub(super) fn new(
        args: &Args,
        rounds: Vec<Measured>,
        counters: Vec<Pace>,
        lines: &[Line],
        measured: Range<u64>,
    ) -> Report {
        let utilisation = Utilisation::of(&audit::within(lines, measured.clone()), args.capacity());
        Report {
            arguments: std::env::args().skip(1).collect(),
            capacity: args.capacity(),
            seconds: (measured.end - measured.start) as f64 / 1e6,
            rounds,
            audits: audit::audit(lines.to_vec(), args.audited_capacity()),
            utilisation,
            counters,
        }
    }

    pub(super) fn over(&self) -> usize {
        self.audits.iter().filter(|(_, audit)| audit.over_us > 0).count()
    }

    /// Rounds after which nobody (else) was master, or granted anything, within the patience.
    pub(super) fn headless(&self) -> usize {
        self.rounds.iter().filter(|round| round.master_ms.is_none() || round.grant_ms.is_none()).count()
    }

    pub(super) fn text(&self) -> String {
        let mut parts = vec![self.times(), self.verdict(), self.noticed(), self.logged()];
        parts.retain(|part| !part.is_empty());
        parts.join("\n\n")
    }

    fn times(&self) -> String {
        let mut labels: Vec<_> = self.rounds.iter().map(|round| round.label.as_str()).collect();
        labels.sort_unstable();
        labels.dedup();
        let rows: Vec<_> = labels.into_iter().flat_map(|label| self.rows(label)).collect();
        if rows.is_empty() {
            String::new()
        } else {
            table::render(["after", "what", "rounds", "never", "p50", "p90", "max"], 2, &rows)
        }
    }

    fn rows(&self, label: &str) -> Vec<[String; 7]> {
        type Read = fn(&Measured) -> Option<f64>;
        let measures: [(&str, Read, &str); 7] = [
            ("a master says so, ms", |m| m.master_ms, "ms"),
            ("first grant, ms", |m| m.grant_ms, "ms"),
            ("a newcomer is answered, ms", |m| m.newcomer_ms, "ms"),
            ("a newcomer gets, % of its wish", |m| m.newcomer_part.map(|part| part * 100.0), "%"),
            ("all clients renewed, ms", |m| m.all_ms, "ms"),
            ("longest without a grant, ms", |m| Some(m.gap_ms), "ms"),
            ("clients without a lease", |m| Some(m.without_lease as f64), ""),
        ];
        let rounds: Vec<_> = self.rounds.iter().filter(|round| round.label == label).collect();
        let row = |(what, read, unit): (&str, Read, &str)| {
            let values = rounds.iter().filter_map(|round| read(round));
            let digits = usize::from(unit == "ms");
            let found = Percentiles::of(values);
            let cell = |value: fn(&Percentiles) -> f64| {
                found.as_ref().map_or_else(|| "-".to_owned(), |found| format!("{:.digits$}", value(found)))
            };
            let n = found.as_ref().map_or(0, |found| found.n);
            let never = (rounds.len() - n).to_string();
            [label.to_owned(), what.to_owned(), n.to_string(), never, cell(|p| p.p50), cell(|p| p.p90), cell(|p| p.max)]
        };
        measures.into_iter().map(row).collect()
    }

    fn verdict(&self) -> String {
        let verdict = match self.over() {
            0 => "never more than there is".to_owned(),
            over => format!("MORE THAN THERE IS, of {over} resources"),
        };
        format!("Books of all clients, capacity {}: {verdict}.\n{}", self.capacity, audit::render(&self.audits))
    }

    fn noticed(&self) -> String {
        let sum = |of: fn(&Measured) -> u64| self.rounds.iter().map(of).sum::<u64>().to_string();
        let mut rows = vec![
            ["requests of clients after blows".to_owned(), sum(|m| m.clients.requests)],
            ["… that failed and were sent again".to_owned(), sum(|m| m.clients.errors)],
            ["… that were sent elsewhere".to_owned(), sum(|m| m.clients.redirects)],
            ["… that were lost: nobody granted for longer than a client waits".to_owned(), sum(|m| u64::from(m.lost))],
            ["leases that ended unrenewed".to_owned(), sum(|m| m.clients.leases_ended)],
        ];
        if let Some(used) = &self.utilisation {
            let percent = |part: f64| format!("{:.1} %", part * 100.0);
            rows.push(["capacity that clients could use: mean".to_owned(), percent(used.mean)]);
            rows.push(["… in the worst hundredth of the time at most".to_owned(), percent(used.lowest_percent)]);
            rows.push(["… least".to_owned(), percent(used.least)]);
        }
        table::render(["noticed", "in all"], 1, &rows)
    }

    fn logged(&self) -> String {
        let cell = |pace: Option<f64>| pace.map_or_else(|| "-".to_owned(), |pace| format!("{pace:.1}"));
        let mut rows: Vec<_> =
            self.counters.iter().map(|pace| [pace.counter.clone(), cell(pace.calm), cell(pace.faulty)]).collect();
        if rows.is_empty() {
            rows.push(["(the pages of the peers count nothing about consensus)".into(), cell(None), cell(None)]);
        }
        table::render(["a minute", "between rounds", "in rounds"], 1, &rows)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn measured(label: &str, grant_ms: Option<f64>) -> Measured {
        Measured { label: label.into(), master_ms: Some(1.0), grant_ms, ..Measured::default() }
    }

    fn report(rounds: Vec<Measured>, lines: &[Line]) -> Report {
        Report {
            arguments: Vec::new(),
            capacity: 100.0,
            seconds: 1.0,
            rounds,
            audits: audit::audit(lines.to_vec(), 100.0),
            utilisation: Utilisation::of(lines, 100.0),
            counters: Vec::new(),
        }
    }

    #[test]
    fn percentiles_are_values_that_were_measured() {
        let of = |values: &[f64]| Percentiles::of(values.iter().copied()).map(|p| (p.n, p.p50, p.p90, p.max));
        assert_eq!(of(&[]), None);
        assert_eq!(of(&[3.0]), Some((1, 3.0, 3.0, 3.0)));
        assert_eq!(of(&[2.0, 1.0]), Some((2, 1.0, 2.0, 2.0)));
        let hundred: Vec<f64> = (1..=100).rev().map(f64::from).collect();
        assert_eq!(of(&hundred), Some((100, 50.0, 90.0, 100.0)));
    }

    #[test]
    fn what_never_happened_is_counted_and_fails_the_run() {
        let report =
            report(vec![measured("kill", Some(5.0)), measured("kill", None), measured("term", Some(7.0))], &[]);
        assert_eq!(report.headless(), 1);
        let text = report.text();
        let row = |what: &str| {
            text.lines()
                .find(|line| line.contains(what))
                .unwrap()
                .split('|')
                .map(str::trim)
                .skip(1)
                .take(7)
                .collect::<Vec<_>>()
        };
        assert_eq!(row("kill  | first grant"), ["kill", "first grant, ms", "1", "1", "5.0", "5.0", "5.0"]);
        assert_eq!(row("term  | first grant"), ["term", "first grant, ms", "1", "0", "7.0", "7.0", "7.0"]);
        assert_eq!(row("kill  | a newcomer is")[2..], ["0", "2", "-", "-", "-"]);
    }

    #[test]
    fn books_above_the_capacity_are_shouted_about() {
        let line =
            |at_us, client: &str, capacity| Line { at_us, client: client.into(), resource: SCARCE.into(), capacity };
        let within = report(Vec::new(), &[line(0, "a", 60.0), line(9, "b", 40.0)]);
        assert!(within.over() == 0 && within.text().contains("never more than there is"));
        let over = report(Vec::new(), &[line(0, "a", 60.0), line(9, "b", 41.0)]);
        assert!(over.over() == 1 && over.text().contains("MORE THAN THERE IS, of 1"));
    }

    #[test]
    fn utilisation_is_sampled_over_time() {
        let line = |at_us, capacity| Line { at_us, client: "a".into(), resource: SCARCE.into(), capacity };
        let used = Utilisation::of(&[line(0, 50.0), line(SAMPLE_US * 5, 100.0), line(SAMPLE_US * 10, 0.0)], 100.0);
        // Five samples each of a half and of all; the last moment is the end and counts nothing.
        assert_eq!(used, Some(Utilisation { mean: 0.75, lowest_percent: 0.5, least: 0.5 }));
    }
}
