//! Medians, ranges and ratios. The ratio of A to B is computed for each repetition, in which both servers ran under the
//! same conditions, and the reported ratio is the median of these.

use serde::Serialize;

use crate::{
    common::output::{self, Machine, Spread},
    load::measurement::{Filled, Measurement},
};

#[derive(Serialize)]
pub(crate) struct CompareReport {
    pub(crate) a: String,
    pub(crate) b: String,
    /// The command line.
    pub(crate) arguments: Vec<String>,
    pub(crate) machine: Machine,
    pub(crate) cases: Vec<ComparedCase>,
}

#[derive(Serialize)]
pub(crate) struct ComparedCase {
    pub(crate) resources: u32,
    /// Connections x requests in flight on each connection.
    pub(crate) load: String,
    pub(crate) a: Summary,
    pub(crate) b: Summary,
    /// A divided by B.
    pub(crate) ratio: RunSpreads,
    pub(crate) runs: Vec<Pair>,
}

/// One repetition: A, and B right after it.
#[derive(Serialize)]
pub(crate) struct Pair {
    pub(crate) a: Measurement,
    pub(crate) b: Measurement,
}

#[derive(Clone, Serialize)]
pub(crate) struct Summary {
    pub(crate) clients: u32,
    /// The result of filling, if all clients got a lease before the first repetition.
    pub(crate) filled: Option<Filled>,
    #[serde(flatten)]
    pub(crate) spreads: RunSpreads,
    pub(crate) peak_mib: f64,
    pub(crate) errors: u64,
    pub(crate) ignored: u64,
    /// The smallest number of clients with a lease at the end of a repetition.
    pub(crate) leased: u64,
}

#[derive(Clone, Copy, Serialize)]
pub(crate) struct RunSpreads {
    pub(crate) requests_per_second: Spread,
    pub(crate) cpu_us_per_request: Spread,
    pub(crate) p50_ms: Spread,
    pub(crate) p99_ms: Spread,
}

impl RunSpreads {
    /// `spread` computes the spread of a figure over all runs, of which there is at least one.
    fn of(spread: impl Fn(fn(&Measurement) -> f64) -> Option<Spread>) -> RunSpreads {
        let spread = |figure| spread(figure).expect("a case has at least one repetition");
        RunSpreads {
            requests_per_second: spread(|run| run.requests_per_second),
            cpu_us_per_request: spread(|run| run.server.as_ref().map_or(f64::NAN, |server| server.cpu_us_per_request)),
            p50_ms: spread(|run| run.latency_ms.p50),
            p99_ms: spread(|run| run.latency_ms.p99),
        }
    }

    /// The cells of a table row. `digits` has the number of digits of each.
    pub(crate) fn cells(&self, digits: [usize; 4]) -> [String; 4] {
        let spreads = [self.requests_per_second, self.cpu_us_per_request, self.p50_ms, self.p99_ms];
        std::array::from_fn(|n| spreads[n].digits(digits[n]))
    }
}

impl Summary {
    /// Panics without runs.
    pub(crate) fn of(clients: u32, filled: Option<Filled>, runs: &[&Measurement]) -> Summary {
        let peak_kib = runs.iter().filter_map(|run| Some(run.server?.memory.peak_kib)).max();
        Summary {
            clients,
            filled,
            spreads: RunSpreads::of(|figure| Spread::of(runs.iter().map(|run| figure(run)))),
            peak_mib: peak_kib.unwrap_or(0) as f64 / 1024.0,
            errors: runs.iter().map(|run| run.counts.error_count()).sum(),
            ignored: runs.iter().map(|run| run.counts.ignored).sum(),
            leased: runs.iter().map(|run| run.leased).min().unwrap_or_default(),
        }
    }
}

impl ComparedCase {
    /// Panics without repetitions.
    pub(crate) fn new(resources: u32, load: String, a: Summary, b: Summary, runs: Vec<Pair>) -> ComparedCase {
        let ratio =
            |figure: fn(&Measurement) -> f64| Spread::of(runs.iter().map(|run| figure(&run.a) / figure(&run.b)));
        ComparedCase { resources, load, a, b, ratio: RunSpreads::of(ratio), runs }
    }

    fn doubts(&self) -> Vec<&'static str> {
        let of = |run: &Pair| [run.a.doubts(self.a.filled), run.b.doubts(self.b.filled)];
        self.runs.iter().flat_map(of).flatten().collect()
    }

    fn rows(&self) -> [[String; 12]; 3] {
        let row = |clients: String, name: &str, spreads: [String; 4], rest: [String; 4]| {
            let [requests, cpu, p50, p99] = spreads;
            let [peak, bytes, errors, ignored] = rest;
            let (resources, load) = (self.resources.to_string(), self.load.clone());
            [clients, resources, load, name.into(), requests, cpu, p50, p99, peak, bytes, errors, ignored]
        };
        let of = |name: &str, summary: &Summary| {
            let bytes = summary.filled.and_then(|filled| filled.bytes_per_client);
            let bytes = bytes.map_or("-".into(), |bytes| format!("{bytes:.0}"));
            let peak = format!("{:.1}", summary.peak_mib);
            let rest = [peak, bytes, summary.errors.to_string(), summary.ignored.to_string()];
            row(summary.clients.to_string(), name, summary.spreads.cells([0, 1, 2, 2]), rest)
        };
        let (a, b) = (self.a.clients, self.b.clients);
        let clients = if a == b { a.to_string() } else { format!("{a}:{b}") };
        let peak = format!("{:.3}", self.a.peak_mib / self.b.peak_mib);
        let rest = [peak, String::new(), String::new(), String::new()];
        [of("A", &self.a), of("B", &self.b), row(clients, "A/B", self.ratio.cells([3; 4]), rest)]
    }
}

const HEAD: [&str; 12] = [
    "clients",
    "resources",
    "load",
    "server",
    "requests/s",
    "CPU us/request",
    "p50 ms",
    "p99 ms",
    "peak MiB",
    "bytes/client",
    "errors",
    "ignored",
];

impl CompareReport {
    /// A Markdown table, and warnings.
    pub(crate) fn text(&self) -> String {
        let rows: Vec<_> = self.cases.iter().flat_map(ComparedCase::rows).collect();
        let mut text = format!("A: `{}`\nB: `{}`\n\n{}\n", self.a, self.b, output::render(&HEAD, 4, &rows));
        text.push_str("\nmedian (min..max); A/B is the median of the ratios within each repetition");
        for (doubt, runs) in self.doubts() {
            text.push_str(&format!("\nwarning: {runs}: {doubt}"));
        }
        text
    }

    /// Warnings, each with the number of runs it applies to.
    pub(crate) fn doubts(&self) -> Vec<(&'static str, String)> {
        let runs: usize = self.cases.iter().map(|case| case.runs.len() * 2).sum();
        let mut doubts: Vec<_> = self.cases.iter().flat_map(ComparedCase::doubts).collect();
        doubts.sort_unstable();
        let counted = doubts.chunk_by(|one, other| one == other);
        counted.map(|same| (same[0], format!("in {} of {runs} runs", same.len()))).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn case(runs: Vec<Pair>) -> ComparedCase {
        let summary = |clients, runs: Vec<&Measurement>| Summary::of(clients, None, &runs);
        let (a, b) = (runs.iter().map(|run| &run.a).collect(), runs.iter().map(|run| &run.b).collect());
        ComparedCase::new(1, "4x16".into(), summary(1000, a), summary(10, b), runs)
    }

    #[test]
    fn ratios_are_taken_within_each_repetition() {
        let run = |rate: f64| Measurement { requests_per_second: rate, ..Measurement::example() };
        // The machine was three times slower in the second repetition; A was twice as fast in each.
        let runs = [(200.0, 100.0), (66.0, 33.0), (180.0, 90.0)];
        let case = case(runs.map(|(a, b)| Pair { a: run(a), b: run(b) }).into());
        assert_eq!(case.ratio.requests_per_second, Spread { median: 2.0, min: 2.0, max: 2.0 });
        assert_eq!(case.a.spreads.requests_per_second, Spread { median: 180.0, min: 66.0, max: 200.0 });
    }

    #[test]
    fn undefined_ratios_are_dashes_and_different_client_numbers_are_both_shown() {
        let case = case(vec![Pair { a: Measurement::example(), b: Measurement::example() }]);
        assert_eq!(case.ratio.p99_ms.digits(3), "-");
        let (a, b, arguments) = ("one".into(), "two".into(), Vec::new());
        let report = CompareReport { a, b, arguments, machine: Machine::read(), cases: vec![case] };
        let text = report.text();
        assert!(text.contains("| 1000:10 |") && text.contains("| 1000    |") && text.contains("| A/B    |"), "{text}");
    }
}
