//! The result of one run, which is printed, written as JSON and compared.

use std::time::Duration;

use hdrhistogram::Histogram;
use leaseway_process::usage::Memory;
use serde::{Deserialize, Serialize};

use crate::{
    common::spread::number_or_null,
    load::tally::{Counts, SecondTally, Tally},
};

/// From this CPU share on, the load generator may be the limit.
const LIMIT_SHARE: f64 = 0.85;

const LAPSED: &str = "leases ended before it was their clients' turn, so that there were fewer than asked for: give the \
                      server's resources a longer lease_length";

const UNANSWERED: &str = "at the end a request had waited, unanswered, for longer than the longest latency shown: what is shown \
                          is too little; measure for longer";

const FAILED: &str = "requests failed: those, and attempts to connect, are counted in requests/s and have no latency";

/// With less CPU time than this, in seconds, ticks of 10 ms are more than 5 %.
const COARSE_S: f64 = 0.2;

const COARSE: &str = "the server used so little CPU time that the ticks of 10 ms in which it is counted are coarse: measure \
                      for longer";

/// Requests may be this late without a warning: a timer, and a little more.
const LATE_MS: f64 = 2.0;

/// The longest time without an answer is printed from here on.
const SILENCE_MS: f64 = 100.0;

#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Measurement {
    pub(crate) seconds: f64,
    /// Requests that ended, including errors and failed attempts to connect.
    pub(crate) requests: u64,
    pub(crate) requests_per_second: f64,
    /// Latencies of answers, without errors.
    pub(crate) latency_ms: Latency,
    /// The longest that a request without an answer had waited at the end. Such requests are in no other figure.
    #[serde(default)]
    pub(crate) unanswered_ms: f64,
    #[serde(flatten)]
    pub(crate) counts: Counts,
    /// Clients whose lease had not ended at the end.
    pub(crate) leased: u64,
    /// The sum of these leases.
    #[serde(default)]
    pub(crate) held: f64,
    /// Of an open loop.
    pub(crate) schedule: Option<Kept>,
    pub(crate) server: Option<ServerUse>,
    pub(crate) generator: GeneratorUse,
    /// One entry per second; the last may be shorter.
    #[serde(default)]
    pub(crate) by_second: Vec<Second>,
    /// The longest time between two answers.
    #[serde(default)]
    pub(crate) silence_ms: f64,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Second {
    pub(crate) answered: u64,
    pub(crate) failed: u64,
    #[serde(deserialize_with = "number_or_null")]
    pub(crate) p99_ms: f64,
    #[serde(deserialize_with = "number_or_null")]
    pub(crate) max_ms: f64,
}

/// Counted from when a request was due in an open loop, and from when it was sent in a closed one. NaN without answers.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Latency {
    #[serde(deserialize_with = "number_or_null")]
    pub(crate) p50: f64,
    #[serde(deserialize_with = "number_or_null")]
    pub(crate) p99: f64,
    #[serde(deserialize_with = "number_or_null")]
    pub(crate) p999: f64,
    #[serde(deserialize_with = "number_or_null")]
    pub(crate) max: f64,
    /// Fractions of all requests, and the latency at each.
    pub(crate) distribution: Vec<(f64, f64)>,
}

/// How well an open loop kept its schedule.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Kept {
    /// The requested rate per second.
    pub(crate) rate: f64,
    /// Requests that were due, and that began.
    pub(crate) due: u64,
    pub(crate) begun: u64,
    pub(crate) late_p99_ms: f64,
    pub(crate) late_max_ms: f64,
}

#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub(crate) struct ServerUse {
    /// Releases count as requests.
    #[serde(deserialize_with = "number_or_null")]
    pub(crate) cpu_us_per_request: f64,
    /// The number of busy cores.
    pub(crate) cores: f64,
    pub(crate) memory: Memory,
    /// The growth of its resident memory during the measurement.
    #[serde(default)]
    pub(crate) grown_kib: i64,
}

#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub(crate) struct GeneratorUse {
    pub(crate) threads: usize,
    /// CPU time of the generator threads, as a share of their wall-clock time.
    pub(crate) cpu_share: Option<f64>,
    /// Time in which they ran or waited for a core. At least `cpu_share`.
    pub(crate) busy_share: f64,
}

/// How long it took until all clients had a lease.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub(crate) struct Filled {
    pub(crate) clients: u32,
    pub(crate) seconds: f64,
    /// The growth of the server's memory per client. None with few clients, where connections and buffers dominate.
    pub(crate) bytes_per_client: Option<f64>,
}

impl Filled {
    pub(crate) fn line(&self) -> String {
        let Filled { clients, seconds, bytes_per_client } = self;
        let memory = bytes_per_client
            .map_or(String::new(), |bytes| format!("; the server's memory grew by {bytes:.0} bytes for each"));
        format!("filled: {clients} clients had a lease after {seconds:.1} s{memory}")
    }
}

impl Measurement {
    pub(crate) fn new(
        tally: &Tally,
        elapsed: Duration,
        server: Option<(Duration, [Memory; 2])>,
        generator: GeneratorUse,
    ) -> Measurement {
        let seconds = elapsed.as_secs_f64();
        let requests = tally.requests();
        let server = server.map(|(cpu, [before, memory])| ServerUse {
            // Infinite without answers: a dash in tables, null in JSON.
            cpu_us_per_request: cpu.as_secs_f64() * 1e6 / (requests + tally.counts.releases) as f64,
            cores: cpu.as_secs_f64() / seconds,
            memory,
            grown_kib: memory.now_kib.cast_signed() - before.now_kib.cast_signed(),
        });
        Measurement {
            seconds,
            requests,
            requests_per_second: requests as f64 / seconds,
            latency_ms: Latency::of(&tally.latency_us),
            unanswered_ms: tally.unanswered.as_secs_f64() * 1e3,
            counts: tally.counts.clone(),
            leased: 0,
            held: 0.0,
            schedule: None,
            server,
            generator,
            by_second: tally.seconds.iter().map(Second::of).collect(),
            silence_ms: tally.silence.as_secs_f64() * 1e3,
        }
    }

    /// One line for each figure.
    pub(crate) fn lines(&self) -> Vec<String> {
        if self.latency_ms.distribution.is_empty() {
            return vec![format!("nothing was answered: {}", self.counts.errors_text()), self.generator.line()];
        }
        let Latency { p50, p99, p999, max, .. } = self.latency_ms;
        let mut lines = vec![
            format!("{:.0} requests/s ({} in {:.2} s)", self.requests_per_second, self.requests, self.seconds),
            format!("latency p50 {p50:.2} ms, p99 {p99:.2} ms, p99.9 {p999:.2} ms, max {max:.2} ms"),
            format!("{} resources granted, {}", self.counts.granted, self.counts.errors_text()),
            format!("{} clients hold leases of {:.1} in all", self.leased, self.held),
        ];
        if let Some(schedule) = &self.schedule {
            lines.insert(2, schedule.line());
        }
        if self.silence_ms >= SILENCE_MS {
            lines.push(format!("the longest time without an answer: {:.0} ms", self.silence_ms));
        }
        if self.counts.newcomers > 0 {
            let Counts { newcomers, releases, .. } = self.counts;
            lines.push(format!("{newcomers} clients came for others that left; {releases} gave back what they had"));
        }
        if self.counts.ignored > 0 {
            lines.push(format!(
                "{} resources ignored: asked for sooner than the server's minimum request interval (0 turns that off)",
                self.counts.ignored
            ));
        }
        if let Some(server) = &self.server {
            lines.push(server.line());
        }
        lines.push(self.generator.line());
        lines
    }

    /// Why the figures may be wrong. `filled` if clients had leases before the first run.
    pub(crate) fn doubts(&self, filled: Option<Filled>) -> Vec<&'static str> {
        let schedule = self.schedule.as_ref().and_then(Kept::doubt);
        let lapse = filled.and_then(|filled| self.lapse(filled));
        let failed = (!self.counts.errors.is_empty()).then_some(FAILED);
        let doubts = self.generator.doubt().into_iter().chain(schedule);
        doubts.chain(failed).chain(self.unanswered()).chain(self.coarse()).chain(lapse).collect()
    }

    fn coarse(&self) -> Option<&'static str> {
        let cpu_s = self.server?.cores * self.seconds;
        (self.requests > 0 && cpu_s < COARSE_S).then_some(COARSE)
    }

    fn unanswered(&self) -> Option<&'static str> {
        (self.unanswered_ms > self.latency_ms.max.max(0.0)).then_some(UNANSWERED)
    }

    /// Fewer clients than requested held leases, because leases ended. Does not apply if clients leave.
    fn lapse(&self, filled: Filled) -> Option<&'static str> {
        let lapsed = self.counts.newcomers == 0 && (self.leased as f64) < f64::from(filled.clients) * 0.99;
        lapsed.then_some(LAPSED)
    }
}

impl ServerUse {
    fn line(&self) -> String {
        let mib = |kib: u64| kib as f64 / 1024.0;
        format!(
            "server: {:.1} us of CPU per request, {:.2} cores, {:.1} MiB resident ({:+.1} since the warm-up, {:.1} at most)",
            self.cpu_us_per_request,
            self.cores,
            mib(self.memory.now_kib),
            self.grown_kib as f64 / 1024.0,
            mib(self.memory.peak_kib),
        )
    }
}

impl Kept {
    fn line(&self) -> String {
        let Kept { rate, due, begun, late_p99_ms, late_max_ms } = self;
        format!(
            "schedule: {rate}/s, {due} due, {begun} begun; late by {late_p99_ms:.2} ms in p99, {late_max_ms:.2} ms at most, \
             which counts as latency"
        )
    }

    fn doubt(&self) -> Option<&'static str> {
        if (self.begun as f64) < self.due as f64 * 0.99 {
            Some(
                "the schedule was not kept, fewer requests began than were due: the server cannot answer that many, or not \
                 with so few in flight, or the load generator had no time",
            )
        } else if self.late_p99_ms > LATE_MS {
            Some("requests began late: nothing was free to send them, or the load generator had no time")
        } else {
            None
        }
    }
}

impl Second {
    fn of(tally: &SecondTally) -> Second {
        let latency = &tally.latency_us;
        let ms = |us: u64| if latency.is_empty() { f64::NAN } else { us as f64 / 1e3 };
        let (p99_ms, max_ms) = (ms(latency.value_at_quantile(0.99)), ms(latency.max()));
        Second { answered: latency.len(), failed: tally.failed, p99_ms, max_ms }
    }
}

impl Latency {
    fn of(histogram: &Histogram<u64>) -> Latency {
        // An empty histogram reports 0, which would be a very fast answer.
        let ms = |us: u64| if histogram.is_empty() { f64::NAN } else { us as f64 / 1e3 };
        let at = |quantile| ms(histogram.value_at_quantile(quantile));
        let parts = parts(histogram.len());
        Latency {
            p50: at(0.5),
            p99: at(0.99),
            p999: at(0.999),
            max: ms(histogram.max()),
            distribution: parts.into_iter().map(|part| (part, at(part))).collect(),
        }
    }
}

/// The fractions at which a distribution is sampled: ten up to one half, ten in half of the rest, and so on down to a
/// single request. They are the same for all runs.
fn parts(requests: u64) -> Vec<f64> {
    let mut parts = Vec::new();
    let mut rest = 1.0;
    while rest * requests as f64 >= 1.0 {
        parts.extend((0..10).map(|tenth| 1.0 - rest * (1.0 - f64::from(tenth) / 20.0)));
        rest /= 2.0;
    }
    if requests > 0 {
        parts.push(1.0);
    }
    parts
}

impl GeneratorUse {
    /// Why the figures may be those of the generator.
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
        format!("load generator: {threads}, {:.0} % busy{cpu}", self.busy_share * 100.0)
    }
}

#[cfg(test)]
impl Measurement {
    /// The result of a server that answered nothing.
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

    #[test]
    fn a_schedule_that_was_not_kept_is_named() {
        let kept = Kept { rate: 100.0, due: 1000, begun: 1000, late_p99_ms: 0.1, late_max_ms: 9.0 };
        assert_eq!(kept.doubt(), None);
        let behind = Kept { begun: 900, ..kept };
        assert!(behind.doubt().is_some_and(|doubt| doubt.contains("the schedule was not kept")));
        let late = Kept { late_p99_ms: 50.0, ..kept };
        assert!(late.doubt().is_some_and(|doubt| doubt.contains("requests began late")));
        let measured = Measurement { schedule: Some(late), ..Measurement::example() };
        assert_eq!(measured.doubts(None).len(), 1);
    }

    #[test]
    fn a_distribution_is_looked_at_down_to_a_single_request() {
        assert!(parts(0).is_empty());
        let parts = parts(1000);
        assert!(parts.is_sorted() && parts[0] == 0.0 && parts[10] == 0.5 && parts[20] == 0.75, "{parts:?}");
        assert!(parts[parts.len() - 2] > 0.998 && parts[parts.len() - 1] == 1.0);
        let mut histogram = Histogram::new(3).expect("three digits are allowed");
        (1..=1000).for_each(|ms| histogram.record(ms * 1000).expect("it grows by itself"));
        let latency = Latency::of(&histogram);
        let (part, ms) = latency.distribution[20];
        assert!(part == 0.75 && (749.0..752.0).contains(&ms), "{ms}");
        assert_eq!(latency.distribution.last().map(|last| last.1), Some(latency.max));
    }

    #[test]
    fn a_few_ticks_of_cpu_time_are_doubted() {
        let memory = Memory { peak_kib: 1, now_kib: 1 };
        let doubts = |cores| {
            let server = Some(ServerUse { cpu_us_per_request: 1.0, cores, memory, grown_kib: 0 });
            Measurement { seconds: 2.0, requests: 9, server, ..Measurement::example() }.doubts(None)
        };
        assert_eq!((doubts(0.05), doubts(0.11)), (vec![COARSE], vec![]));
    }

    #[test]
    fn a_server_that_refuses_everything_has_no_latency() {
        let mut tally = Tally::new();
        tally.failed("ResourceExhausted".into());
        let generator = GeneratorUse { threads: 1, cpu_share: None, busy_share: 0.1 };
        let refused = Measurement::new(&tally, Duration::from_secs(1), None, generator);
        assert_eq!(refused.lines()[0], "nothing was answered: 1 errors: ResourceExhausted 1");
        assert_eq!(refused.doubts(None), [FAILED]);
        let read: Measurement = serde_json::from_str(&serde_json::to_string(&refused).unwrap()).unwrap();
        assert!(read.latency_ms.p50.is_nan() && read.latency_ms.max.is_nan(), "{read:?}");
        assert!(Measurement::example().doubts(None).is_empty());
    }

    #[test]
    fn what_is_written_can_be_read_again() {
        let server = ServerUse {
            cpu_us_per_request: f64::INFINITY,
            cores: 0.5,
            memory: Memory { peak_kib: 2, now_kib: 1 },
            grown_kib: 0,
        };
        let written = Measurement { server: Some(server), ..Measurement::example() };
        let json = serde_json::to_string(&written).unwrap();
        let read: Measurement = serde_json::from_str(&json).unwrap();
        assert!(read.server.is_some_and(|server| server.cpu_us_per_request.is_nan() && server.cores == 0.5));
    }

    #[test]
    fn clients_that_were_let_in_and_lost_their_leases_are_said() {
        let filled = Some(Filled { clients: 1000, seconds: 1.0, bytes_per_client: None });
        let measured = |leased, newcomers| {
            let counts = Counts { newcomers, ..Counts::default() };
            Measurement { leased, counts, ..Measurement::example() }
        };
        assert!(measured(1000, 0).doubts(filled).is_empty());
        assert_eq!(measured(900, 0).doubts(filled), [LAPSED]);
        assert!(measured(900, 100).doubts(filled).is_empty(), "they left");
        assert!(measured(900, 0).doubts(None).is_empty(), "they have not come yet");
    }
}
