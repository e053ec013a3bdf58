//! The result of one run, which is printed, written as JSON and compared.

use std::{collections::BTreeMap, time::Duration};

use hdrhistogram::Histogram;
use leaseway_process::usage::Memory;
use serde::Serialize;

use crate::load::workload::Settled;

/// The CPU share of the load generator above which it may be the bottleneck.
const LIMIT_SHARE: f64 = 0.85;

const LAPSED: &str = "leases ended before their clients renewed them, so fewer clients than requested held one: give the \
                      server's resources a longer lease_length";

const UNANSWERED: &str = "when the measurement ended, a request had waited for longer than the maximum latency shown: the latencies \
                          are too low; use more --seconds";

const FAILED: &str =
    "requests failed: failed requests and attempts to connect are counted in requests/s, but not in latencies";

/// The CPU time in seconds below which its resolution of 10 ms is an error of more than 5 %.
const COARSE_S: f64 = 0.2;

const COARSE: &str = "the server used so little CPU time that the resolution of 10 ms matters: use \
                      for longer";

/// The delay of requests above which a warning is printed: a little more than the resolution of a timer.
const LATE_MS: f64 = 2.0;

/// The longest time without an answer is printed if it exceeds this.
const SILENCE_MS: f64 = 100.0;

#[derive(Clone, Debug, Serialize)]
pub(crate) struct Measurement {
    pub(crate) seconds: f64,
    /// The number of finished requests, including errors and failed attempts to connect.
    pub(crate) requests: u64,
    pub(crate) requests_per_second: f64,
    /// Latencies of answers, without errors.
    pub(crate) latency_ms: Latency,
    /// The longest waiting time of a request that was unanswered at the end. No other figure includes such requests.
    pub(crate) unanswered_ms: f64,
    #[serde(flatten)]
    pub(crate) counts: Counts,
    /// The number of clients with a valid lease at the end.
    pub(crate) leased: u64,
    /// The sum of these leases.
    pub(crate) held: f64,
    /// The schedule, in an open loop.
    pub(crate) schedule: Option<Kept>,
    pub(crate) server: Option<ServerUse>,
    pub(crate) generator: GeneratorUse,
    /// The longest time between two answers.
    pub(crate) silence_ms: f64,
}

/// Latencies count from the time at which a request was due (open loop) or sent (closed loop). NaN without answers.
#[derive(Clone, Copy, Debug, Serialize)]
pub(crate) struct Latency {
    pub(crate) p50: f64,
    pub(crate) p99: f64,
    pub(crate) p999: f64,
    pub(crate) max: f64,
}

/// How well an open loop kept its schedule.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Kept {
    /// The requested rate per second.
    pub(crate) rate: f64,
    /// The number of requests that were due, and of those that began.
    pub(crate) due: u64,
    pub(crate) begun: u64,
    pub(crate) late_p99_ms: f64,
    pub(crate) late_max_ms: f64,
}

#[derive(Clone, Copy, Debug, Serialize)]
pub(crate) struct ServerUse {
    /// CPU time per request. Releases count as requests.
    pub(crate) cpu_us_per_request: f64,
    /// The number of busy cores.
    pub(crate) cores: f64,
    pub(crate) memory: Memory,
    /// The growth of its resident memory during the measurement.
    pub(crate) grown_kib: i64,
}

#[derive(Clone, Copy, Debug, Serialize)]
pub(crate) struct GeneratorUse {
    pub(crate) threads: usize,
    /// CPU time of the generator threads, as a share of their wall-clock time.
    pub(crate) cpu_share: Option<f64>,
    /// The share of time in which the threads ran or waited for a core. At least `cpu_share`.
    pub(crate) busy_share: f64,
}

/// The result of filling: the time until all clients had a lease.
#[derive(Clone, Copy, Debug, Serialize)]
pub(crate) struct Filled {
    pub(crate) clients: u32,
    pub(crate) seconds: f64,
    /// The growth of the server's memory per client. `None` with few clients, because connections and buffers dominate
    /// then.
    pub(crate) bytes_per_client: Option<f64>,
}

impl Filled {
    pub(crate) fn line(&self) -> String {
        let Filled { clients, seconds, bytes_per_client } = self;
        let memory = bytes_per_client
            .map_or(String::new(), |bytes| format!("; the server's memory grew by {bytes:.0} bytes per client"));
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
            // Infinite without answers, which is a dash in tables and null in JSON.
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
            silence_ms: tally.silence.as_secs_f64() * 1e3,
        }
    }

    /// One line for each figure.
    pub(crate) fn lines(&self) -> Vec<String> {
        if self.latency_ms.max.is_nan() {
            return vec![format!("no request was answered: {}", self.counts.errors_text()), self.generator.line()];
        }
        let Latency { p50, p99, p999, max } = self.latency_ms;
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
            lines.push(format!("longest time without an answer: {:.0} ms", self.silence_ms));
        }
        if self.counts.newcomers > 0 {
            let Counts { newcomers, releases, .. } = self.counts;
            lines.push(format!("{newcomers} clients replaced others; {releases} of those released their leases"));
        }
        if self.counts.ignored > 0 {
            lines.push(format!(
                "{} resources ignored: requested before the server's minimum request interval had passed (0 disables it)",
                self.counts.ignored
            ));
        }
        if let Some(server) = &self.server {
            lines.push(server.line());
        }
        lines.push(self.generator.line());
        lines
    }

    /// Warnings that figures may be wrong. `filled` is set if clients had leases before the first run.
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

    /// A warning if fewer clients than requested held leases, because leases ended. Does not apply if clients leave.
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
            "schedule: {rate}/s, {due} due, {begun} begun; delay p99 {late_p99_ms:.2} ms, max {late_max_ms:.2} ms, \
             which is part of the latency"
        )
    }

    fn doubt(&self) -> Option<&'static str> {
        if (self.begun as f64) < self.due as f64 * 0.99 {
            Some(
                "the schedule was not kept, fewer requests began than were due: the server cannot answer that many, or not \
                 with so few in flight, or the load generator lacked CPU time",
            )
        } else if self.late_p99_ms > LATE_MS {
            Some("requests began late: no lane was free to send them, or the load generator lacked CPU time")
        } else {
            None
        }
    }
}

impl Latency {
    fn of(histogram: &Histogram<u64>) -> Latency {
        // An empty histogram reports 0, which would be a very fast answer.
        let ms = |us: u64| if histogram.is_empty() { f64::NAN } else { us as f64 / 1e3 };
        let at = |quantile| ms(histogram.value_at_quantile(quantile));
        Latency { p50: at(0.5), p99: at(0.99), p999: at(0.999), max: ms(histogram.max()) }
    }
}

impl GeneratorUse {
    /// A warning if the generator may have been the bottleneck.
    pub(crate) fn doubt(&self) -> Option<&'static str> {
        if self.cpu_share.unwrap_or(self.busy_share) > LIMIT_SHARE {
            Some("the load generator was the limit: give it more --threads, or read the throughput as a lower bound")
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

/// The maximum latency of a histogram. Longer latencies count as this.
const LATENCY_MAX: Duration = Duration::from_secs(60);
const DIGITS: u8 = 3;

#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub(crate) struct Counts {
    /// Resources that got a lease.
    pub(crate) granted: u64,
    /// Resources that an answer left out because of the minimum request interval.
    pub(crate) ignored: u64,
    /// New clients, and clients that released their leases. Only with `--churn`.
    pub(crate) newcomers: u64,
    pub(crate) releases: u64,
    /// The number of errors, by gRPC status or other cause.
    pub(crate) errors: BTreeMap<String, u64>,
}

impl Counts {
    pub(crate) fn error_count(&self) -> u64 {
        self.errors.values().sum()
    }

    pub(crate) fn errors_text(&self) -> String {
        if self.errors.is_empty() {
            return "no errors".into();
        }
        let kinds: Vec<_> = self.errors.iter().map(|(kind, count)| format!("{kind} {count}")).collect();
        format!("{} errors: {}", self.error_count(), kinds.join(", "))
    }
}

pub(crate) struct Tally {
    /// The time since the beginning of the measurement.
    pub(crate) elapsed: Duration,
    /// The longest time between two answers to one thread, and the time of the last answer.
    pub(crate) silence: Duration,
    last_answer: Duration,
    pub(crate) latency_us: Histogram<u64>,
    /// The delays from the time at which a request was due until it began. Empty without a schedule.
    pub(crate) late_us: Histogram<u64>,
    /// The longest waiting time of a request that was unanswered at the end.
    pub(crate) unanswered: Duration,
    pub(crate) counts: Counts,
}

/// An empty histogram of latencies in microseconds.
pub(crate) fn histogram() -> Histogram<u64> {
    let max = u64::try_from(LATENCY_MAX.as_micros()).expect("a minute fits");
    Histogram::new_with_bounds(1, max, DIGITS).expect("the bounds are constants in order")
}

impl Tally {
    pub(crate) fn new() -> Tally {
        let histogram = histogram();
        Tally {
            elapsed: Duration::ZERO,
            silence: Duration::ZERO,
            last_answer: Duration::ZERO,
            latency_us: histogram.clone(),
            late_us: histogram,
            unanswered: Duration::ZERO,
            counts: Counts::default(),
        }
    }

    pub(crate) fn answered(&mut self, latency: Duration, settled: Settled) {
        record(&mut self.latency_us, latency);
        self.silence = self.silence.max(self.elapsed.saturating_sub(self.last_answer));
        self.last_answer = self.elapsed;
        self.counts.granted += u64::from(settled.granted);
        self.counts.ignored += u64::from(settled.ignored);
    }

    pub(crate) fn late(&mut self, by: Duration) {
        record(&mut self.late_us, by);
    }

    pub(crate) fn unanswered(&mut self, waited: Duration) {
        self.unanswered = self.unanswered.max(waited);
    }

    pub(crate) fn failed(&mut self, kind: String) {
        *self.counts.errors.entry(kind).or_default() += 1;
    }

    /// The number of requests for capacity that finished, plus failed attempts to connect and failed releases.
    pub(crate) fn requests(&self) -> u64 {
        self.latency_us.len() + self.counts.error_count()
    }

    pub(crate) fn add(&mut self, other: Tally) {
        let same = "all tallies have the same bounds";
        self.latency_us.add(&other.latency_us).expect(same);
        self.late_us.add(&other.late_us).expect(same);
        self.unanswered(other.unanswered);
        self.silence = self.silence.max(other.silence);
        let counts = &mut self.counts;
        counts.granted += other.counts.granted;
        counts.ignored += other.counts.ignored;
        counts.newcomers += other.counts.newcomers;
        counts.releases += other.counts.releases;
        for (kind, count) in other.counts.errors {
            *counts.errors.entry(kind).or_default() += count;
        }
    }
}

fn record(histogram: &mut Histogram<u64>, time: Duration) {
    histogram.saturating_record(u64::try_from(time.as_micros()).unwrap_or(u64::MAX));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_doubt_is_raised_by_its_figure_alone() {
        let example = Measurement::example;
        let generator = |cpu_share, busy_share| Measurement {
            generator: GeneratorUse { threads: 1, cpu_share, busy_share },
            ..example()
        };
        let schedule = |begun, late_p99_ms| Measurement {
            schedule: Some(Kept { rate: 100.0, due: 1000, begun, late_p99_ms, late_max_ms: 90.0 }),
            ..example()
        };
        let server = |cores| Measurement {
            seconds: 2.0,
            requests: 9,
            server: Some(ServerUse {
                cpu_us_per_request: 1.0,
                cores,
                memory: Memory { peak_kib: 1, now_kib: 1 },
                grown_kib: 0,
            }),
            ..example()
        };
        let leased =
            |leased, newcomers| Measurement { leased, counts: Counts { newcomers, ..Counts::default() }, ..example() };
        let filled = Some(Filled { clients: 1000, seconds: 1.0, bytes_per_client: None });
        for (measured, filled, doubt) in [
            (generator(Some(0.5), 0.6), None, ""),
            (generator(Some(0.9), 0.95), None, "load generator was the limit"),
            (generator(None, 0.95), None, "load generator was the limit"),
            (generator(Some(0.6), 0.95), None, "machine was the limit"),
            (schedule(1000, 0.1), None, ""),
            (schedule(900, 0.1), None, "the schedule was not kept"),
            (schedule(1000, 50.0), None, "requests began late"),
            (server(0.05), None, COARSE),
            (server(0.11), None, ""),
            (leased(1000, 0), filled, ""),
            (leased(900, 0), filled, LAPSED),
            (leased(900, 100), filled, ""),
            (leased(900, 0), None, ""),
        ] {
            let doubts = measured.doubts(filled);
            assert_eq!(doubts.len(), usize::from(!doubt.is_empty()), "{doubts:?}");
            assert!(doubts.iter().all(|one| one.contains(doubt)), "{doubts:?}, not {doubt}");
        }
    }

    #[test]
    fn a_server_that_refuses_everything_has_no_latency() {
        let mut tally = Tally::new();
        tally.failed("ResourceExhausted".into());
        let generator = GeneratorUse { threads: 1, cpu_share: None, busy_share: 0.1 };
        let refused = Measurement::new(&tally, Duration::from_secs(1), None, generator);
        assert_eq!(refused.lines()[0], "no request was answered: 1 errors: ResourceExhausted 1");
        assert_eq!(refused.doubts(None), [FAILED]);
        assert!(refused.latency_ms.p50.is_nan() && refused.latency_ms.max.is_nan(), "{refused:?}");
    }

    #[test]
    fn tallies_add_up() {
        let (mut one, mut two) = (Tally::new(), Tally::new());
        one.answered(Duration::from_micros(100), Settled { granted: 1, ignored: 0 });
        one.failed("Unavailable".into());
        two.answered(Duration::from_secs(3600), Settled { granted: 0, ignored: 2 });
        two.failed("Unavailable".into());
        two.failed("Internal".into());
        two.elapsed = Duration::from_millis(1500);
        two.answered(Duration::from_millis(1), Settled { granted: 1, ignored: 0 });
        one.add(two);
        assert_eq!(one.silence, Duration::from_millis(1500));
        assert_eq!((one.requests(), one.counts.granted, one.counts.ignored), (6, 2, 2));
        assert_eq!(one.counts.errors, BTreeMap::from([("Unavailable".into(), 2), ("Internal".into(), 1)]));
        assert!(one.latency_us.max() >= 59_900_000, "a long wait is kept, at the upper bound");
    }
}
