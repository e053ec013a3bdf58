//! What a run has shown: times after faults, what the books add up to, and what else was noticed.

use std::ops::Range;

use serde::{Deserialize, Serialize};

use super::{args::ChaosArgs, crowd::SCARCE, round::Round};
use crate::{
    audit::{self, Audit},
    book::BookLine,
    output::arguments,
    spread::Spread,
    table,
};

/// What `--json` writes.
#[derive(Serialize, Deserialize)]
pub(crate) struct ChaosFile {
    pub(crate) report: ChaosReport,
}

#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct ChaosReport {
    pub(crate) arguments: Vec<String>,
    pub(crate) capacity: f64,
    pub(crate) seconds: f64,
    pub(crate) rounds: Vec<Round>,
    pub(crate) audits: Vec<(String, Audit)>,
    /// The part of the scarce resource that clients could use, on average.
    pub(crate) utilisation: Option<f64>,
}

/// What is measured in a round: how it is called, with how many digits it is shown, and where it is.
pub(crate) type Measure = (&'static str, usize, fn(&Round) -> Option<f64>);

/// The first are times in milliseconds, which pictures show.
pub(crate) const MEASURES: [Measure; 7] = [
    ("a master says so, ms", 1, |round| round.master_ms),
    ("first grant, ms", 1, |round| round.grant_ms),
    ("longest without a grant, ms", 1, |round| Some(round.gap_ms)),
    ("a newcomer is answered, ms", 1, |round| round.newcomer_ms),
    ("a newcomer gets, % of its wants", 0, |round| round.newcomer_part.map(|part| part * 100.0)),
    ("all clients renewed, ms", 1, |round| round.all_ms),
    ("clients without a lease", 0, |round| Some(round.without_lease as f64)),
];

impl ChaosReport {
    /// `lines` are of all clients; what was not `measured` counts for the audit, but not for the utilisation: clients
    /// were still coming, or leaving.
    pub(super) fn new(args: &ChaosArgs, rounds: Vec<Round>, lines: &[BookLine], measured: Range<u64>) -> ChaosReport {
        let while_measured = audit::audit(audit::within(lines, measured.clone()), args.capacity());
        let scarce = while_measured.iter().find(|(resource, _)| resource == SCARCE);
        ChaosReport {
            arguments: arguments(),
            capacity: args.capacity(),
            seconds: (measured.end - measured.start) as f64 / 1e6,
            rounds,
            audits: audit::audit(lines.to_vec(), args.audited_capacity()),
            utilisation: scarce.map(|(_, audit)| audit.mean / args.capacity()),
        }
    }

    pub(super) fn over(&self) -> usize {
        self.audits.iter().filter(|(_, audit)| audit.over_us > 0).count()
    }

    /// Rounds after which no peer (or no other one) was master, or granted anything, within the patience.
    pub(super) fn headless(&self) -> usize {
        self.rounds.iter().filter(|round| round.master_ms.is_none() || round.grant_ms.is_none()).count()
    }

    /// The rounds of each fault.
    pub(crate) fn by_fault(&self) -> Vec<(&str, Vec<&Round>)> {
        let mut labels: Vec<_> = self.rounds.iter().map(|round| round.label.as_str()).collect();
        labels.sort_unstable();
        labels.dedup();
        let of = |label| (label, self.rounds.iter().filter(|round| round.label == label).collect());
        labels.into_iter().map(of).collect()
    }

    pub(super) fn text(&self) -> String {
        let mut parts = vec![self.times(), self.verdict(), self.noticed()];
        parts.retain(|part| !part.is_empty());
        parts.join("\n\n")
    }

    fn times(&self) -> String {
        let row = |label: &str, rounds: &[&Round], (what, digits, read): Measure| {
            let values: Vec<_> = rounds.iter().filter_map(|round| read(round)).collect();
            let (n, never) = (values.len().to_string(), (rounds.len() - values.len()).to_string());
            [label.to_owned(), what.to_owned(), n, never, Spread::show(Spread::of(values), digits)]
        };
        let by_fault = self.by_fault();
        let rows = by_fault.iter().flat_map(|(label, rounds)| MEASURES.map(|measure| row(label, rounds, measure)));
        let rows: Vec<_> = rows.collect();
        if rows.is_empty() {
            return String::new();
        }
        table::render(&["after", "what", "rounds", "never", "median"], 2, &rows)
    }

    fn verdict(&self) -> String {
        let verdict = match self.over() {
            0 => "never more than there is".to_owned(),
            over => format!("MORE THAN THERE IS, of {over} resources"),
        };
        format!("Books of all clients, capacity {}: {verdict}.\n{}", self.capacity, audit::render(&self.audits))
    }

    fn noticed(&self) -> String {
        let sum = |of: fn(&Round) -> u64| self.rounds.iter().map(of).sum::<u64>().to_string();
        let used = self.utilisation.map_or("-".into(), |part| format!("{:.1} %", part * 100.0));
        let rows = [
            ["requests of clients after faults".into(), sum(|m| m.clients.requests)],
            ["… that failed and were sent again".into(), sum(|m| m.clients.errors)],
            ["… that were sent elsewhere".into(), sum(|m| m.clients.redirects)],
            ["… that were lost: no grant for longer than a client waits".into(), sum(|m| u64::from(m.lost))],
            ["leases that ended unrenewed".into(), sum(|m| m.clients.leases_ended)],
            ["capacity that clients could use: mean".into(), used],
        ];
        table::render(&["noticed", "in all"], 1, &rows)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn report(rounds: Vec<Round>, lines: &[BookLine]) -> ChaosReport {
        let audits = audit::audit(lines.to_vec(), 100.0);
        ChaosReport { arguments: Vec::new(), capacity: 100.0, seconds: 1.0, rounds, audits, utilisation: None }
    }

    #[test]
    fn what_never_happened_is_counted_and_fails_the_run() {
        let round =
            |label: &str, grant_ms| Round { label: label.into(), master_ms: Some(1.0), grant_ms, ..Round::default() };
        let rounds = vec![round("kill", Some(5.0)), round("kill", None), round("term", Some(7.0))];
        let report = report(rounds, &[]);
        assert_eq!(report.headless(), 1);
        let text = report.text();
        let row = |what: &str| {
            let line = text.lines().find(|line| line.contains(what)).unwrap();
            line.split('|').map(str::trim).skip(1).take(5).collect::<Vec<_>>()
        };
        assert_eq!(row("kill  | first grant"), ["kill", "first grant, ms", "1", "1", "5.0"]);
        assert_eq!(row("term  | first grant"), ["term", "first grant, ms", "1", "0", "7.0"]);
        assert_eq!(row("kill  | a newcomer is")[2..], ["0", "2", "-"]);
    }

    #[test]
    fn books_above_the_capacity_are_shouted_about() {
        let line = |at_us, client: &str, capacity| BookLine {
            at_us,
            client: client.into(),
            resource: SCARCE.into(),
            capacity,
        };
        let within = report(Vec::new(), &[line(0, "a", 60.0), line(9, "b", 40.0)]);
        assert!(within.over() == 0 && within.text().contains("never more than there is"));
        let over = report(Vec::new(), &[line(0, "a", 60.0), line(9, "b", 41.0)]);
        assert!(over.over() == 1 && over.text().contains("MORE THAN THERE IS, of 1"));
    }
}
