//! Loads and comparisons in one form: servers, each measured in one or more cases.

use super::read::{Content, Source};
use crate::{
    chart::{
        Chart,
        axis::{Axis, grouped, linear, powers, round_up},
        bars::{self, Bar, Group, Scale},
        lines::{self, ChartLine, Join},
    },
    compare::{CompareReport, RunSpreads, Summary},
    load::{LoadReport, Measurement},
    spread::Spread,
};

/// A server under one load.
pub(super) struct LoadCase<'s> {
    /// Its server's place in `Cases::names`.
    pub(super) series: usize,
    /// The place of the name that the server has with any clients: a line through numbers of clients has that one.
    pub(super) server: usize,
    pub(super) summary: Summary,
    pub(super) resources: u32,
    pub(super) load: &'s str,
    pub(super) runs: Vec<&'s Measurement>,
    /// Cases that were measured in turns have the same number, and the ratio of the first to the second.
    pub(super) turns: usize,
    pub(super) ratio: Option<&'s RunSpreads>,
}

pub(super) struct Cases<'s> {
    pub(super) names: Vec<String>,
    pub(super) cases: Vec<LoadCase<'s>>,
}

impl<'s> Cases<'s> {
    pub(super) fn of(sources: &'s [Source]) -> Cases<'s> {
        let comparisons = sources.iter().filter(|source| matches!(source.content, Content::Compare(_))).count();
        let mut cases = Cases { names: Vec::new(), cases: Vec::new() };
        for source in sources {
            match &source.content {
                Content::Load(report) => cases.add_load(&source.name, report),
                Content::Compare(report) => {
                    // The same words in two files may be servers with two configurations.
                    let suffix = if comparisons > 1 { format!(" ({})", source.name) } else { String::new() };
                    cases.add_comparison(&suffix, report);
                }
                Content::Simulate(_) | Content::Chaos(_) | Content::Fleet(_) => {}
            }
        }
        cases
    }

    fn series(&mut self, name: String) -> usize {
        self.names.iter().position(|known| *known == name).unwrap_or_else(|| {
            self.names.push(name);
            self.names.len() - 1
        })
    }

    fn turns(&self) -> usize {
        self.cases.last().map_or(0, |case| case.turns + 1)
    }

    fn add_load(&mut self, file: &str, report: &'s LoadReport) {
        let (series, turns) = (self.series(file.into()), self.turns());
        let summary = Summary::of(report.clients, report.filled, &[&report.measurement]);
        let runs = vec![&report.measurement];
        self.cases.push(LoadCase {
            series,
            server: series,
            summary,
            resources: report.resources,
            load: &report.load,
            runs,
            turns,
            ratio: None,
        });
    }

    fn add_comparison(&mut self, suffix: &str, report: &'s CompareReport) {
        let names = names(&report.a, &report.b).map(|name| name + suffix);
        let [a, b] = names.clone().map(|name| self.series(name));
        for case in &report.cases {
            let turns = self.turns();
            // The same server twice, that is what its clients make of it: they have to be told apart.
            let apart = a == b && case.a.clients != case.b.clients;
            let clients = || format!("{}, {} clients", names[1], grouped(case.b.clients.into(), 0));
            let series_b = if apart { self.series(clients()) } else { b };
            let runs_a: Vec<_> = case.runs.iter().map(|run| &run.a).collect();
            let runs_b: Vec<_> = case.runs.iter().map(|run| &run.b).collect();
            for (series, server, side, runs) in [(a, a, &case.a, runs_a), (series_b, b, &case.b, runs_b)] {
                let (resources, load) = (case.resources, case.load.as_str());
                let ratio = Some(&case.ratio);
                let summary = side.clone();
                self.cases.push(LoadCase { series, server, summary, resources, load, runs, turns, ratio });
            }
        }
    }

    pub(super) fn name(&self, case: &LoadCase<'_>) -> &str {
        &self.names[case.series]
    }

    fn names(&self) -> Vec<&str> {
        self.names.iter().map(String::as_str).collect()
    }

    /// Cases that were measured in turns, together; loads that nothing was measured beside, too.
    fn groups(&self) -> impl Iterator<Item = &[LoadCase<'s>]> {
        self.cases.chunk_by(|one, other| one.turns == other.turns || one.ratio.is_none() && other.ratio.is_none())
    }

    pub(super) fn charts(&self) -> Vec<Chart> {
        let mut charts: Vec<_> = [self.throughput(), self.cpu()].into_iter().flatten().collect();
        charts.extend(self.costs());
        charts.extend(self.groups().filter_map(|group| self.latency(group)));
        charts
    }

    fn throughput(&self) -> Option<Chart> {
        let scale = Scale { from: 0.0, to: None, digits: 0, unit: "requests/s" };
        let note = "Median of the repetitions; the line goes from the lowest to the highest. More is better.";
        self.bars("Throughput", note, &scale, |summary| summary.spreads.requests_per_second)
    }

    fn cpu(&self) -> Option<Chart> {
        let scale = Scale { from: 0.0, to: None, digits: 1, unit: "µs" };
        let note = "Of all the server's threads, divided by the requests. Less is better.";
        self.bars("CPU time per request", note, &scale, |summary| summary.spreads.cpu_us_per_request)
    }

    fn bars(&self, title: &str, note: &str, scale: &Scale, figure: fn(&Summary) -> Spread) -> Option<Chart> {
        let of = |turns: &[LoadCase<'_>]| Group {
            label: label(turns),
            bars: turns.iter().map(|case| Bar { series: case.series, spread: figure(&case.summary) }).collect(),
        };
        let groups: Vec<_> = self.cases.chunk_by(|one, other| one.turns == other.turns).map(of).collect();
        bars::bars(title, note, scale, &self.names(), &groups)
    }

    /// One picture for each load that was measured with several numbers of clients.
    fn costs(&self) -> Vec<Chart> {
        let mut loads: Vec<_> = self.cases.iter().map(|case| (case.resources, case.load)).collect();
        loads.sort_unstable();
        loads.dedup();
        loads.into_iter().filter_map(|(resources, load)| self.cost(resources, load)).collect()
    }

    fn cost(&self, resources: u32, load: &str) -> Option<Chart> {
        let same = |case: &&LoadCase<'_>| {
            case.resources == resources
                && case.load == load
                && case.summary.spreads.cpu_us_per_request.median.is_finite()
        };
        let cases: Vec<_> = self.cases.iter().filter(same).collect();
        let clients = cases.iter().map(|case| f64::from(case.summary.clients));
        let (least, most) = (clients.clone().reduce(f64::min)?, clients.reduce(f64::max)?);
        let cost = cases.iter().map(|case| case.summary.spreads.cpu_us_per_request.max).fold(0.0, f64::max);
        // Too little was asked for a tick of CPU time: there is no scale for that.
        if least == most || cost <= 0.0 {
            return None;
        }
        let across = powers("clients", least, most, |value| grouped(value, 0));
        let up = linear("µs of CPU per request", [0.0, round_up(cost)], 6.0);
        let mut all = Vec::new();
        for series in 0..self.names.len() {
            let mut points: Vec<_> = cases
                .iter()
                .filter(|case| case.server == series)
                .map(|case| (f64::from(case.summary.clients), case.summary.spreads.cpu_us_per_request))
                .collect();
            points.sort_by(|one, other| one.0.total_cmp(&other.0));
            if !points.is_empty() {
                all.push(ChartLine { series, points, join: Join::Dotted });
            }
        }
        let title = format!("Cost against the number of clients: {}", words(resources, load));
        let note =
            "Median and range of the repetitions. Level is good: a request should cost the same among any number.";
        Some(lines::lines(&title, note, [&across, &up], &self.names(), &all))
    }

    /// As HdrHistogram draws it: every mark to the right has a tenth of the requests above it.
    fn latency(&self, group: &[LoadCase<'_>]) -> Option<Chart> {
        let all: Vec<_> = group
            .iter()
            .filter(|case| case.runs.iter().all(|run| run.latency_ms.distribution.len() > 1))
            .map(|case| ChartLine { series: case.series, points: distribution(&case.runs), join: Join::Straight })
            .collect();
        let values = || all.iter().flat_map(|line| &line.points).flat_map(|(_, spread)| [spread.min, spread.max]);
        let least = values().filter(|value| *value > 0.0).reduce(f64::min)?;
        let most = values().reduce(f64::max)?;
        let nines = all.iter().filter_map(|line| line.points.last()).map(|last| last.0).fold(1.0, f64::max).ceil();
        let across = Axis {
            label: "part of the requests that were answered within that time",
            marks: (0..=nines as i32).map(|nines| (f64::from(nines), percent(nines))).collect(),
            place: Box::new(move |value| value / nines),
        };
        let up = powers("milliseconds", least, most, |value| value.to_string());
        let title = format!("Latency: {}", label(group));
        Some(lines::lines(&title, latency_note(group), [&across, &up], &self.names(), &all))
    }
}

/// From when to when a latency is. Curves of one picture may be of loads of both kinds.
fn latency_note(group: &[LoadCase<'_>]) -> &'static str {
    let mut open = group.iter().flat_map(|case| &case.runs).map(|run| run.schedule.is_some());
    if !open.clone().any(|open| open) {
        "From sending a request to its answer; closed loop. Lower is better."
    } else if open.all(|open| open) {
        "From when a request was due to its answer; open loop. Lower is better."
    } else {
        "To its answer: with a rate from when a request was due, open loop; else from sending it, closed loop. These do not \
         compare. Lower is better."
    }
}

/// The median of the runs wherever all of them have a value. Parts become nines: 0.999 is 3.
fn distribution(runs: &[&Measurement]) -> Vec<(f64, Spread)> {
    let shortest = runs.iter().map(|run| &run.latency_ms.distribution).min_by_key(|parts| parts.len());
    let parts = shortest.into_iter().flatten().map(|(part, _)| *part).enumerate();
    parts
        .filter(|(_, part)| *part < 1.0)
        .map(|(place, part)| {
            let values = runs.iter().map(|run| run.latency_ms.distribution[place].1);
            (-(1.0 - part).log10(), Spread::of(values).expect("there is a run"))
        })
        .collect()
}

fn percent(nines: i32) -> String {
    let digits = usize::try_from(nines - 2).unwrap_or(0);
    format!("{:.digits$} %", 100.0 - 100.0 / 10f64.powi(nines))
}

/// What the cases of a group have in common.
fn label(group: &[LoadCase<'_>]) -> String {
    let mut loads: Vec<_> = group.iter().map(|case| words(case.resources, case.load)).collect();
    loads.dedup();
    let mut clients: Vec<_> = group.iter().map(|case| grouped(case.summary.clients.into(), 0)).collect();
    clients.dedup();
    let [load] = &loads[..] else { return "all loads".into() };
    format!("{} clients, {load}", clients.join(" and "))
}

fn words(resources: u32, load: &str) -> String {
    let resources =
        if resources == 1 { "1 resource".into() } else { format!("{} resources", grouped(resources.into(), 0)) };
    format!("{resources}, {} in flight", load.replace('x', " × "))
}

/// What to call servers by: their programs, and which is which if need be. The same command twice is one server.
fn names(a: &str, b: &str) -> [String; 2] {
    let short = |command: &str| {
        let mut words = shlex::split(command).unwrap_or_default().into_iter();
        let program = words.next().unwrap_or_default();
        let program = program.rsplit('/').next().unwrap_or_default().to_owned();
        match words.next().filter(|word| !word.starts_with('-')) {
            Some(word) => format!("{program} {word}"),
            None => program,
        }
    };
    let (short_a, short_b) = (short(a), short(b));
    if a == b {
        [short_a.clone(), short_a]
    } else if short_a == short_b {
        [format!("A: {short_a}"), format!("B: {short_b}")]
    } else {
        [short_a, short_b]
    }
}

#[cfg(test)]
mod tests {
    use leaseway_process::usage::Memory;

    use super::*;
    use crate::{
        compare::{ComparedCase, Pair},
        load::{Kept, ServerUse},
        machine::Machine,
    };

    #[test]
    fn servers_are_called_by_their_programs() {
        assert_eq!(names("/x/leaseway serve --a", "/y/bench ceiling"), ["leaseway serve", "bench ceiling"]);
        assert_eq!(names("srv --a {port}", "srv --b {port}"), ["A: srv", "B: srv"]);
        assert_eq!(names("srv --a {port}", "srv --a {port}"), ["srv", "srv"]);
    }

    fn comparison(a: &str, b: &str, clients: [u32; 2], cpu: f64) -> CompareReport {
        let runs: Vec<_> = [cpu, cpu * 2.0]
            .map(|cpu| {
                let memory = Memory { peak_kib: 1, now_kib: 1 };
                let server = Some(ServerUse { cpu_us_per_request: cpu, cores: 1.0, memory });
                let run = Measurement { server, ..Measurement::example() };
                Pair { a: run.clone(), b: run }
            })
            .into();
        let summary = |clients| Summary::of(clients, None, &runs.iter().map(|run| &run.a).collect::<Vec<_>>());
        let [a_side, b_side] = clients.map(summary);
        let case = ComparedCase::new(1, "1x4".into(), a_side, b_side, runs);
        let (a, b) = (a.into(), b.into());
        CompareReport { a, b, arguments: Vec::new(), machine: Machine::read(), cases: vec![case] }
    }

    fn compared(a: &str, b: &str, clients: [u32; 2]) -> Source {
        let content = Content::Compare(Box::new(comparison(a, b, clients, 10.0)));
        Source { name: "x".into(), content }
    }

    #[test]
    fn one_server_with_clients_of_two_numbers_has_two_colours_and_one_line_of_cost() {
        let sources = [compared("srv --at {port}", "srv --at {port}", [1_000_000, 10])];
        let cases = Cases::of(&sources);
        assert_eq!(cases.names(), ["srv", "srv, 10 clients"]);
        let [a, b] = &cases.cases[..] else { panic!("two sides") };
        assert!(a.series != b.series && a.server == b.server);
        let cost = cases.cost(1, "1x4").expect("two numbers of clients").body.into_string();
        assert_eq!(cost.matches("class=\"line").count(), 1, "{cost}");
        let nothing = Content::Compare(Box::new(comparison("srv", "srv", [10, 20], 0.0)));
        assert!(Cases::of(&[Source { name: "x".into(), content: nothing }]).cost(1, "1x4").is_none());
        let sources = [compared("srv --at {port}", "srv --at {port}", [10, 10])];
        assert_eq!(Cases::of(&sources).names(), ["srv"]);
    }

    #[test]
    fn latencies_say_from_when_they_count() {
        let kept = Kept { rate: 1.0, due: 1, begun: 1, late_p99_ms: 0.0, late_max_ms: 0.0 };
        let (open, closed) = (Measurement { schedule: Some(kept), ..Measurement::example() }, Measurement::example());
        let note = |runs: &[&Measurement]| {
            let case = |run| LoadCase {
                series: 0,
                server: 0,
                summary: Summary::of(1, None, &[run]),
                resources: 1,
                load: "1x1",
                runs: vec![run],
                turns: 0,
                ratio: None,
            };
            latency_note(&runs.iter().map(|run| case(*run)).collect::<Vec<_>>())
        };
        assert!(note(&[&closed, &closed]).contains("; closed loop."));
        assert!(note(&[&open, &open]).contains("; open loop."));
        assert!(
            note(&[&open, &closed]).contains("do not compare") && note(&[&closed, &open]).contains("do not compare")
        );
    }

    #[test]
    fn a_distribution_is_the_median_of_all_runs_where_all_have_one() {
        let run = |factor: f64, parts: &[f64]| {
            let mut run = Measurement::example();
            run.latency_ms.distribution = parts.iter().map(|part| (*part, part * factor)).collect();
            run
        };
        let runs = [run(1.0, &[0.0, 0.9, 0.99]), run(3.0, &[0.0, 0.9]), run(2.0, &[0.0, 0.9, 0.99, 0.999])];
        let points = distribution(&runs.each_ref());
        assert_eq!(points.len(), 2);
        let (nines, spread) = points[1];
        assert!((nines - 1.0).abs() < 1e-9 && spread == Spread { median: 1.8, min: 0.9, max: 2.7 }, "{spread:?}");
    }

    #[test]
    fn parts_are_named_by_their_nines() {
        assert_eq!([0, 1, 2, 3, 4].map(percent), ["0 %", "90 %", "99 %", "99.9 %", "99.99 %"]);
    }
}
