//! What one run of load found out. The same value is printed, written as JSON and compared.

use std::{collections::BTreeMap, time::Duration};

use hdrhistogram::Histogram;
use serde::Serialize;

use super::tally::Tally;
use crate::process::Memory;

/// From this share of its cores on, the load generator may be what was measured.
const LIMIT_SHARE: f64 = 0.85;

#[derive(Clone, Debug, Serialize)]
pub(crate) struct Measurement {
    pub(crate) seconds: f64,
    /// Requests that ended in these seconds, errors included.
    pub(crate) requests: u64,
    pub(crate) requests_per_second: f64,
    /// Of answers; errors are not part of it.
    pub(crate) latency_ms: Latency,
    /// Resources that got a lease.
    pub(crate) granted: u64,
    /// Resources that an answer left out, because their client came sooner than the server's minimum request interval.
    pub(crate) ignored: u64,
    pub(crate) errors: BTreeMap<String, u64>,
    pub(crate) server: Option<ServerUse>,
    pub(crate) generator: GeneratorUse,
}

#[derive(Clone, Copy, Debug, Serialize)]
pub(crate) struct Latency {
    pub(crate) p50: f64,
    pub(crate) p99: f64,
    pub(crate) p999: f64,
    pub(crate) max: f64,
}

#[derive(Clone, Copy, Debug, Serialize)]
pub(crate) struct ServerUse {
    pub(crate) cpu_us_per_request: f64,
    /// Cores kept busy: 1.5 is one and a half.
    pub(crate) cores: f64,
    pub(crate) memory: Memory,
}

#[derive(Clone, Copy, Debug, Serialize)]
pub(crate) struct GeneratorUse {
    pub(crate) threads: usize,
    /// CPU time of the generator's threads, as a share of all they could have had.
    pub(crate) cpu_share: Option<f64>,
    /// Time in which they had something to do, on a core or waiting for one: never less than `cpu_share`.
    pub(crate) busy_share: f64,
}

impl Measurement {
    pub(crate) fn new(
        tally: &Tally,
        elapsed: Duration,
        server: Option<(Duration, Memory)>,
        generator: GeneratorUse,
    ) -> Measurement {
        let seconds = elapsed.as_secs_f64();
        let requests = tally.requests();
        let server = server.map(|(cpu, memory)| ServerUse {
            // Infinite if nothing was answered: a dash in tables, null in JSON.
            cpu_us_per_request: cpu.as_secs_f64() * 1e6 / requests as f64,
            cores: cpu.as_secs_f64() / seconds,
            memory,
        });
        Measurement {
            seconds,
            requests,
            requests_per_second: requests as f64 / seconds,
            latency_ms: Latency::of(&tally.latency_us),
            granted: tally.granted,
            ignored: tally.ignored,
            errors: tally.errors.clone(),
            server,
            generator,
        }
    }

    pub(crate) fn error_count(&self) -> u64 {
        self.errors.values().sum()
    }

    /// For people: one line each.
    pub(crate) fn lines(&self) -> Vec<String> {
        if self.requests == 0 {
            return vec!["nothing was answered".into(), self.generator.line()];
        }
        let Latency { p50, p99, p999, max } = self.latency_ms;
        let mut lines = vec![
            format!("{:.0} requests/s ({} in {:.2} s)", self.requests_per_second, self.requests, self.seconds),
            format!("latency p50 {p50:.2} ms, p99 {p99:.2} ms, p99.9 {p999:.2} ms, max {max:.2} ms"),
            format!("{} resources granted, {}", self.granted, self.errors_text()),
        ];
        if self.ignored > 0 {
            lines.push(format!(
                "{} resources ignored: asked for sooner than the server's minimum request interval (0 turns that off)",
                self.ignored
            ));
        }
        if let Some(server) = &self.server {
            lines.push(server.line());
        }
        lines.push(self.generator.line());
        lines
    }

    fn errors_text(&self) -> String {
        if self.errors.is_empty() {
            return "no errors".into();
        }
        let kinds: Vec<_> = self.errors.iter().map(|(kind, count)| format!("{kind} {count}")).collect();
        format!("{} errors: {}", self.error_count(), kinds.join(", "))
    }
}

impl ServerUse {
    fn line(&self) -> String {
        let mib = |kib: u64| kib as f64 / 1024.0;
        format!(
            "server: {:.1} us of CPU per request, {:.2} cores, {:.1} MiB resident ({:.1} at most)",
            self.cpu_us_per_request,
            self.cores,
            mib(self.memory.now_kib),
            mib(self.memory.peak_kib),
        )
    }
}

impl Latency {
    fn of(histogram: &Histogram<u64>) -> Latency {
        let at = |quantile| histogram.value_at_quantile(quantile) as f64 / 1e3;
        Latency { p50: at(0.5), p99: at(0.99), p999: at(0.999), max: histogram.max() as f64 / 1e3 }
    }
}

impl GeneratorUse {
    /// Why the figures may not be the server's, if so.
    pub(crate) fn doubt(&self) -> Option<&'static str> {
        if self.cpu_share.unwrap_or(self.busy_share) > LIMIT_SHARE {
            Some("the load generator was the limit: give it more --threads, or take what was measured as a lower bound")
        } else if self.busy_share > LIMIT_SHARE {
            Some(
                "the machine was the limit: the load generator had to wait for a core; compare ratios and CPU time only",
            )
        } else {
            None
        }
    }

    fn line(&self) -> String {
        let cpu = self.cpu_share.map_or(String::new(), |share| format!(" ({:.0} % on a core)", share * 100.0));
        let threads = if self.threads == 1 { "1 thread".into() } else { format!("{} threads", self.threads) };
        let doubt = self.doubt().map_or(String::new(), |doubt| format!(" — {doubt}"));
        format!("load generator: {threads}, {:.0} % busy{cpu}{doubt}", self.busy_share * 100.0)
    }
}

#[cfg(test)]
impl Measurement {
    /// Of a server that answered nothing, for tests to change.
    pub(crate) fn example() -> Measurement {
        let generator = GeneratorUse { threads: 1, cpu_share: None, busy_share: 0.1 };
        Measurement::new(&Tally::new(), Duration::from_secs(1), None, generator)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn generator(cpu_share: Option<f64>, busy_share: f64) -> Option<&'static str> {
        GeneratorUse { threads: 1, cpu_share, busy_share }.doubt()
    }

    #[test]
    fn the_limit_is_named() {
        assert_eq!(generator(Some(0.5), 0.6), None);
        assert!(generator(Some(0.9), 0.95).is_some_and(|doubt| doubt.contains("load generator was the limit")));
        assert!(generator(Some(0.6), 0.95).is_some_and(|doubt| doubt.contains("machine was the limit")));
        assert!(generator(None, 0.95).is_some_and(|doubt| doubt.contains("load generator was the limit")));
    }
}
