//! The page: what is to be said against the figures first, then pictures, then all figures, then how they came about.

use std::collections::BTreeSet;

use maud::{DOCTYPE, Markup, PreEscaped, html};

use super::{
    cases::{Cases, LoadCase},
    read::{Content, Source},
    trees::{self, PageTable, range},
};
use crate::{
    chart::{self, Chart, axis::grouped},
    load::Measurement,
    machine::Machine,
};

const STYLE: &str = "
* { box-sizing: border-box; } :root { color-scheme: light dark; }
body { margin: 0; background: var(--paper); color: var(--ink); font: 15px/1.5 system-ui, -apple-system, 'Segoe UI', 'DejaVu Sans', sans-serif; }
main { max-width: 1400px; margin: 0 auto; padding: 28px 24px 64px; }
h1 { font-size: 26px; line-height: 1.25; margin: 0 0 4px; } h2 { font-size: 19px; margin: 40px 0 12px; }
p.soft, .soft { color: var(--soft); } p { margin: 4px 0; }
.charts { display: grid; grid-template-columns: repeat(auto-fit, minmax(min(520px, 100%), 1fr)); gap: 20px; align-items: start; }
figure { margin: 0; padding: 16px 18px; background: var(--card); border: 1px solid var(--rule); border-radius: 8px; }
figcaption { margin-bottom: 10px; } figcaption strong { display: block; font-size: 16px; } figcaption span { color: var(--soft); font-size: 13px; }
figure svg { display: block; width: 100%; height: auto; }
.warn { margin: 20px 0; padding: 10px 16px; border-radius: 8px; background: var(--warnbg); color: var(--warn); } .warn ul { margin: 4px 0; padding-left: 20px; }
.wide { overflow-x: auto; border: 1px solid var(--rule); border-radius: 8px; margin-bottom: 20px; }
table { border-collapse: collapse; width: 100%; font-size: 13.5px; font-variant-numeric: tabular-nums; }
th, td { padding: 6px 12px; text-align: right; white-space: nowrap; border-bottom: 1px solid var(--rule); }
th { color: var(--soft); font-weight: 500; background: var(--card); } tr:last-child td { border-bottom: 0; }
th.word, td.word { text-align: left; } tr.ratio td { font-weight: 600; } td span { color: var(--soft); }
caption { text-align: left; padding: 10px 12px; font-weight: 600; }
pre { margin: 4px 0 12px; padding: 10px 14px; background: var(--card); border: 1px solid var(--rule); border-radius: 8px; overflow-x: auto; font: 13px/1.5 ui-monospace, 'DejaVu Sans Mono', monospace; white-space: pre-wrap; overflow-wrap: anywhere; }
";

pub(super) struct Page<'s> {
    title: &'s str,
    sources: &'s [Source],
    cases: Cases<'s>,
    measured: Vec<Chart>,
    happened: Vec<Chart>,
}

impl<'s> Page<'s> {
    pub(super) fn new(title: &'s str, sources: &'s [Source]) -> Page<'s> {
        let cases = Cases::of(sources);
        let measured = cases.charts();
        let happened = sources.iter().filter_map(|source| match &source.content {
            Content::Simulate(simulated) => trees::simulated_chart(simulated),
            Content::Chaos(chaos) => trees::chaos_chart(&chaos.report),
            Content::Load(_) | Content::Compare(_) | Content::Fleet(_) => None,
        });
        Page { title, sources, measured, happened: happened.collect(), cases }
    }

    pub(super) fn svg(&self) -> String {
        chart::stacked(self.title, &self.measured.iter().chain(&self.happened).collect::<Vec<_>>())
    }

    pub(super) fn html(&self) -> String {
        let (doubts, tables) = (self.doubts(), self.tables());
        let page = html! {
            (DOCTYPE)
            html lang="en" {
                head {
                    meta charset="utf-8";
                    meta name="viewport" content="width=device-width, initial-scale=1";
                    title { (self.title) }
                    style { (PreEscaped(chart::STYLE)) (PreEscaped(STYLE)) }
                }
                body {
                    main {
                        h1 { (self.title) }
                        @for machine in self.machines() { p.soft { (machine) } }
                        @if !doubts.is_empty() {
                            div.warn { "To be said against these figures:" ul { @for doubt in doubts { li { (doubt) } } } }
                        }
                        (section("Servers", &self.measured))
                        (section("Trees and masters", &self.happened))
                        @if !self.cases.cases.is_empty() || !tables.is_empty() { h2 { "All figures" } }
                        @if !self.cases.cases.is_empty() { (self.figures()) }
                        @for table in tables { (plain(&table)) }
                        h2 { "How they came about" }
                        @for source in self.sources { (origin(source)) }
                    }
                }
            }
        };
        page.into_string() + "\n"
    }

    fn machines(&self) -> BTreeSet<String> {
        self.sources.iter().filter_map(|source| source.content.machine()).map(Machine::text).collect()
    }

    fn doubts(&self) -> Vec<String> {
        let mut doubts = Vec::new();
        for Source { name, content } in self.sources {
            match content {
                Content::Load(report) => {
                    let found = report.measurement.doubts(report.filled);
                    doubts.extend(found.into_iter().map(|doubt| format!("{name}: {doubt}")));
                }
                Content::Compare(report) => {
                    let found = report.doubts();
                    doubts.extend(found.into_iter().map(|(doubt, runs)| format!("{name}, {runs}: {doubt}")));
                }
                Content::Simulate(simulated) => {
                    let broken: usize = simulated.cases.iter().map(|case| case.broken.len()).sum();
                    doubts.extend((broken > 0).then(|| format!("{name}: {broken} runs broke a promise")));
                }
                Content::Chaos(chaos) => {
                    let found = trees::chaos_doubts(&chaos.report);
                    doubts.extend(found.into_iter().map(|doubt| format!("{name}: {doubt}")));
                }
                Content::Fleet(_) => {}
            }
            if content.machine().is_some_and(|machine| !machine.optimised) {
                doubts.push(format!("{name}: the load generator was a debug build"));
            }
        }
        doubts
    }

    fn figures(&self) -> Markup {
        let turns = self.cases.cases.chunk_by(|one, other| one.turns == other.turns);
        html! {
            div.wide {
                table {
                    tr {
                        th.word { "server" } th { "clients" } th { "resources" } th { "load" } th { "rate" }
                        th { "requests/s" } th { "CPU µs/request" } th { "p50 ms" } th { "p99 ms" } th { "p99.9 ms, worst" }
                        th { "max ms, worst" } th { "peak MiB" } th { "bytes/client" } th { "errors" } th { "ignored" }
                    }
                    @for turn in turns {
                        @for case in turn { (self.row(case)) }
                        @if let Some(ratio) = turn[0].ratio {
                            tr.ratio {
                                td.word { "first ÷ second" } td {} td {} td {} td {}
                                td { (cell(&range(ratio.requests_per_second, 3))) }
                                td { (cell(&range(ratio.cpu_us_per_request, 3))) }
                                td { (cell(&range(ratio.p50_ms, 3))) } td { (cell(&range(ratio.p99_ms, 3))) }
                                td {} td {} td { (grouped(turn[0].summary.peak_mib / turn[1].summary.peak_mib, 3)) }
                                td {} td {} td {}
                            }
                        }
                    }
                }
            }
        }
    }

    fn row(&self, case: &LoadCase<'_>) -> Markup {
        let summary = &case.summary;
        let worst = |figure: fn(&Measurement) -> f64| case.runs.iter().map(|run| figure(run)).fold(f64::NAN, f64::max);
        let rate = case.runs.iter().find_map(|run| Some(run.schedule.as_ref()?.rate));
        let bytes = summary.filled.and_then(|filled| filled.bytes_per_client);
        let dash = |value: Option<f64>| value.map_or("–".to_owned(), |value| grouped(value, 0));
        html! {
            tr {
                td.word { (self.cases.name(case)) }
                td { (grouped(summary.clients.into(), 0)) } td { (grouped(case.resources.into(), 0)) }
                td { (case.load.replace('x', " × ")) } td { (rate.map_or("closed loop".into(), |rate| grouped(rate, 0))) }
                td { (cell(&range(summary.spreads.requests_per_second, 0))) }
                td { (cell(&range(summary.spreads.cpu_us_per_request, 1))) }
                td { (cell(&range(summary.spreads.p50_ms, 2))) } td { (cell(&range(summary.spreads.p99_ms, 2))) }
                td { (grouped(worst(|run| run.latency_ms.p999), 2)) } td { (grouped(worst(|run| run.latency_ms.max), 2)) }
                td { (if summary.peak_mib > 0.0 { grouped(summary.peak_mib, 1) } else { "–".into() }) }
                td { (dash(bytes)) } td { (grouped(summary.errors as f64, 0)) } td { (grouped(summary.ignored as f64, 0)) }
            }
        }
    }

    fn tables(&self) -> Vec<PageTable> {
        let tables = |source: &Source| match &source.content {
            Content::Simulate(simulated) => trees::simulated_tables(&source.name, simulated),
            Content::Chaos(chaos) => vec![trees::chaos_table(&source.name, &chaos.report)],
            Content::Fleet(fleet) => vec![trees::fleet_table(&source.name, fleet)],
            Content::Load(_) | Content::Compare(_) => Vec::new(),
        };
        self.sources.iter().flat_map(tables).collect()
    }
}

fn section(title: &str, charts: &[Chart]) -> Markup {
    html! {
        @if !charts.is_empty() {
            h2 { (title) }
            div.charts { @for chart in charts { (chart.figure()) } }
        }
    }
}

/// The range in brackets is less important than the median.
fn cell(text: &str) -> Markup {
    match text.split_once(" (") {
        Some((median, range)) => html! { (median) span { " (" (range) } },
        None => html! { (text) },
    }
}

fn plain(table: &PageTable) -> Markup {
    html! {
        div.wide {
            table {
                caption { (table.title) }
                tr { @for (place, head) in table.head.iter().enumerate() { th.word[place == 0] { (head) } } }
                @for row in &table.rows {
                    tr { @for (place, text) in row.iter().enumerate() { td.word[place == 0] { (cell(text)) } } }
                }
            }
        }
    }
}

fn origin(source: &Source) -> Markup {
    html! {
        p {
            strong { (source.name) }
            @if let Some(machine) = source.content.machine() { span.soft { ", " (machine.at) } }
        }
        pre { (source.content.commands().join("\n")) }
    }
}
