//! What a comparison found: medians, how far the repetitions were apart, and ratios. A ratio is taken within each
//! repetition, where both servers met the same weather, and only then the median.

use serde::{Deserialize, Serialize};

use crate::{
    load::{Filled, Measurement, number_or_null},
    machine::Machine,
    table,
};

/// Everything, as JSON has it; the table is a view of it.
#[derive(Serialize, Deserialize)]
pub(crate) struct Report {
    /// The commands compared.
    pub(crate) a: String,
    pub(crate) b: String,
    /// The whole command line, so that it can be repeated.
    pub(crate) arguments: Vec<String>,
    pub(crate) machine: Machine,
    pub(crate) cases: Vec<Case>,
}

#[derive(Serialize, Deserialize)]
pub(crate) struct Case {
    pub(crate) resources: u32,
    /// Connections x requests in flight.
    pub(crate) load: String,
    pub(crate) a: Summary,
    pub(crate) b: Summary,
    /// A divided by B.
    pub(crate) ratio: Ratio,
    pub(crate) runs: Vec<Pair>,
}

/// One repetition: A, and B right after it.
#[derive(Serialize, Deserialize)]
pub(crate) struct Pair {
    pub(crate) a: Measurement,
    pub(crate) b: Measurement,
}

#[derive(Clone, Serialize, Deserialize)]
pub(crate) struct Summary {
    pub(crate) clients: u32,
    /// How they came, if they were let in before the first repetition.
    pub(crate) filled: Option<Filled>,
    pub(crate) requests_per_second: Spread,
    pub(crate) cpu_us_per_request: Spread,
    pub(crate) p50_ms: Spread,
    pub(crate) p99_ms: Spread,
    pub(crate) peak_mib: f64,
    pub(crate) errors: u64,
    pub(crate) ignored: u64,
    /// The fewest clients that held a lease at the end of a repetition.
    pub(crate) leased: u64,
}

#[derive(Serialize, Deserialize)]
pub(crate) struct Ratio {
    pub(crate) requests_per_second: Spread,
    pub(crate) cpu_us_per_request: Spread,
    pub(crate) p50_ms: Spread,
    pub(crate) p99_ms: Spread,
}

#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Spread {
    #[serde(deserialize_with = "number_or_null")]
    pub(crate) median: f64,
    #[serde(deserialize_with = "number_or_null")]
    pub(crate) min: f64,
    #[serde(deserialize_with = "number_or_null")]
    pub(crate) max: f64,
}

impl Spread {
    /// Of at least one value.
    pub(crate) fn of(values: impl Iterator<Item = f64>) -> Spread {
        let mut values: Vec<_> = values.collect();
        values.sort_by(f64::total_cmp);
        let (&min, &max) = values.first().zip(values.last()).expect("a case has at least one repetition");
        let middle = values.len() / 2;
        let median = if values.len() % 2 == 1 { values[middle] } else { (values[middle - 1] + values[middle]) / 2.0 };
        Spread { median, min, max }
    }

    pub(crate) fn text(self, digits: usize) -> String {
        let Spread { median, min, max } = self;
        // A server that answered nothing has no latency to divide by.
        if !median.is_finite() {
            return "-".into();
        }
        format!("{median:.digits$} ({min:.digits$}..{max:.digits$})")
    }
}

fn requests_per_second(run: &Measurement) -> f64 {
    run.requests_per_second
}

fn cpu_us_per_request(run: &Measurement) -> f64 {
    run.server.as_ref().map_or(f64::NAN, |server| server.cpu_us_per_request)
}

fn p50_ms(run: &Measurement) -> f64 {
    run.latency_ms.p50
}

fn p99_ms(run: &Measurement) -> f64 {
    run.latency_ms.p99
}

impl Summary {
    /// Of at least one run.
    pub(crate) fn of(clients: u32, filled: Option<Filled>, runs: &[&Measurement]) -> Summary {
        let spread = |figure: fn(&Measurement) -> f64| Spread::of(runs.iter().map(|run| figure(run)));
        let peak_kib = runs.iter().filter_map(|run| Some(run.server?.memory.peak_kib)).max();
        Summary {
            clients,
            filled,
            requests_per_second: spread(requests_per_second),
            cpu_us_per_request: spread(cpu_us_per_request),
            p50_ms: spread(p50_ms),
            p99_ms: spread(p99_ms),
            peak_mib: peak_kib.unwrap_or(0) as f64 / 1024.0,
            errors: runs.iter().map(|run| run.error_count()).sum(),
            ignored: runs.iter().map(|run| run.ignored).sum(),
            leased: runs.iter().map(|run| run.leased).min().unwrap_or_default(),
        }
    }
}

impl Ratio {
    fn of(runs: &[Pair]) -> Ratio {
        let spread =
            |figure: fn(&Measurement) -> f64| Spread::of(runs.iter().map(|run| figure(&run.a) / figure(&run.b)));
        Ratio {
            requests_per_second: spread(requests_per_second),
            cpu_us_per_request: spread(cpu_us_per_request),
            p50_ms: spread(p50_ms),
            p99_ms: spread(p99_ms),
        }
    }
}

impl Case {
    /// Of at least one repetition.
    pub(crate) fn new(resources: u32, load: String, a: Summary, b: Summary, runs: Vec<Pair>) -> Case {
        Case { resources, load, a, b, ratio: Ratio::of(&runs), runs }
    }

    fn doubts(&self) -> Vec<&'static str> {
        let of = |run: &Pair| [run.a.doubts(self.a.filled), run.b.doubts(self.b.filled)];
        self.runs.iter().flat_map(of).flatten().collect()
    }

    fn rows(&self) -> [[String; 12]; 3] {
        let row = |name: &str, summary: &Summary| {
            let bytes = summary.filled.and_then(|filled| filled.bytes_per_client);
            [
                summary.clients.to_string(),
                self.resources.to_string(),
                self.load.clone(),
                name.into(),
                summary.requests_per_second.text(0),
                summary.cpu_us_per_request.text(1),
                summary.p50_ms.text(2),
                summary.p99_ms.text(2),
                format!("{:.1}", summary.peak_mib),
                bytes.map_or("-".into(), |bytes| format!("{bytes:.0}")),
                summary.errors.to_string(),
                summary.ignored.to_string(),
            ]
        };
        let clients = if self.a.clients == self.b.clients {
            self.a.clients.to_string()
        } else {
            format!("{}:{}", self.a.clients, self.b.clients)
        };
        let ratio = [
            clients,
            self.resources.to_string(),
            self.load.clone(),
            "A/B".into(),
            self.ratio.requests_per_second.text(3),
            self.ratio.cpu_us_per_request.text(3),
            self.ratio.p50_ms.text(3),
            self.ratio.p99_ms.text(3),
            format!("{:.3}", self.a.peak_mib / self.b.peak_mib),
            String::new(),
            String::new(),
            String::new(),
        ];
        [row("A", &self.a), row("B", &self.b), ratio]
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

impl Report {
    /// For people, and for pasting.
    pub(crate) fn text(&self) -> String {
        let rows: Vec<_> = self.cases.iter().flat_map(Case::rows).collect();
        let mut text = format!("A: `{}`\nB: `{}`\n\n{}\n", self.a, self.b, table::render(HEAD, 4, &rows));
        text.push_str("\nmedian (min..max); A/B is the median of the ratios within each repetition\n");
        for (doubt, runs) in self.doubts() {
            text.push_str(&format!("warning: {runs}: {doubt}\n"));
        }
        text.truncate(text.trim_end().len());
        text
    }

    /// What is to be said against these figures, and of how many runs.
    pub(crate) fn doubts(&self) -> Vec<(&'static str, String)> {
        let runs: usize = self.cases.iter().map(|case| case.runs.len() * 2).sum();
        let mut doubts: Vec<_> = self.cases.iter().flat_map(Case::doubts).collect();
        doubts.sort_unstable();
        let counted = doubts.chunk_by(|one, other| one == other);
        counted.map(|same| (same[0], format!("in {} of {runs} runs", same.len()))).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn case(runs: Vec<Pair>) -> Case {
        let summary = |clients, runs: Vec<&Measurement>| Summary::of(clients, None, &runs);
        let (a, b) = (runs.iter().map(|run| &run.a).collect(), runs.iter().map(|run| &run.b).collect());
        Case::new(1, "4x16".into(), summary(1000, a), summary(10, b), runs)
    }

    fn report(cases: Vec<Case>) -> Report {
        Report { a: "one".into(), b: "two".into(), arguments: Vec::new(), machine: Machine::read(), cases }
    }

    #[test]
    fn the_median_is_the_middle_or_between_the_two_in_the_middle() {
        let of = |values: &[f64]| Spread::of(values.iter().copied());
        assert_eq!(of(&[3.0, 1.0, 2.0]), Spread { median: 2.0, min: 1.0, max: 3.0 });
        assert_eq!(of(&[4.0, 1.0, 2.0, 3.0]), Spread { median: 2.5, min: 1.0, max: 4.0 });
        assert_eq!(of(&[7.0]), Spread { median: 7.0, min: 7.0, max: 7.0 });
    }

    #[test]
    fn ratios_are_taken_within_each_repetition() {
        let run = |rate: f64| Measurement { requests_per_second: rate, ..Measurement::example() };
        // The machine was three times slower in the second repetition; A was twice as fast in every one.
        let runs = [(200.0, 100.0), (66.0, 33.0), (180.0, 90.0)];
        let runs = runs.map(|(a, b)| Pair { a: run(a), b: run(b) }).into_iter().collect();
        let case = case(runs);
        assert_eq!(case.ratio.requests_per_second, Spread { median: 2.0, min: 2.0, max: 2.0 });
        assert_eq!(case.a.requests_per_second, Spread { median: 180.0, min: 66.0, max: 200.0 });
    }

    #[test]
    fn what_cannot_be_divided_is_a_dash() {
        let silent = Measurement::example();
        let case = case(vec![Pair { a: silent.clone(), b: silent }]);
        assert_eq!(case.ratio.p99_ms.text(3), "-");
        let report = report(vec![case]);
        assert!(report.text().contains("| A/B    |"), "{}", report.text());
        let json = serde_json::to_string(&report).unwrap();
        let read: Report = serde_json::from_str(&json).unwrap();
        assert_eq!(read.text(), report.text(), "what cannot be divided is null, and a dash again");
    }

    #[test]
    fn numbers_of_clients_that_differ_are_both_named() {
        let text = report(vec![case(vec![Pair { a: Measurement::example(), b: Measurement::example() }])]).text();
        assert!(text.contains("| 1000:10 |") && text.contains("| 1000    |") && text.contains("| 10      |"), "{text}");
    }
}
