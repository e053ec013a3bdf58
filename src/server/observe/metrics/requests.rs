//! Counts, errors and durations of requests for capacity, by method.
//!
//! Each thread has its own stripe of counters, and a scrape adds them up. The registry's shared counters and
//! histograms, which keep each value until the next scrape, would take a few per cent of the time of a request.

use std::{
    cell::Cell,
    fmt::Write as _,
    sync::atomic::{AtomicU64, AtomicUsize, Ordering},
    time::Duration,
};

use super::SECONDS;

/// Number of stripes. With more threads, some share a stripe.
const STRIPES: usize = 32;

#[derive(Debug, Clone, Copy)]
pub(crate) enum RequestMethod {
    Discovery,
    GetCapacity,
    GetServerCapacity,
    ReleaseCapacity,
}

impl RequestMethod {
    const ALL: [RequestMethod; 4] = [
        RequestMethod::Discovery,
        RequestMethod::GetCapacity,
        RequestMethod::GetServerCapacity,
        RequestMethod::ReleaseCapacity,
    ];

    /// Counts an answered request.
    pub(crate) fn answered(self, took: Duration, failed: bool) {
        REQUESTS.answered(self, took, failed);
    }
}

static REQUESTS: RequestCounts = RequestCounts::new();

struct RequestCounts([Stripe; STRIPES]);

/// The counters of a thread, aligned to avoid false sharing.
#[repr(align(128))]
struct Stripe([MethodCount; RequestMethod::ALL.len()]);

/// The index of this thread's stripe.
fn own_stripe() -> usize {
    static NEXT: AtomicUsize = AtomicUsize::new(0);
    thread_local!(static OWN: Cell<Option<usize>> = const { Cell::new(None) });
    OWN.with(|own| {
        own.get().unwrap_or_else(|| {
            let stripe = NEXT.fetch_add(1, Ordering::Relaxed) % STRIPES;
            own.set(Some(stripe));
            stripe
        })
    })
}

struct MethodCount {
    /// A histogram with the buckets [`SECONDS`], and one for longer durations.
    took: [AtomicU64; SECONDS.len() + 1],
    nanoseconds: AtomicU64,
    failed: AtomicU64,
}

impl MethodCount {
    const fn new() -> MethodCount {
        MethodCount {
            took: [const { AtomicU64::new(0) }; SECONDS.len() + 1],
            nanoseconds: AtomicU64::new(0),
            failed: AtomicU64::new(0),
        }
    }

    fn count(&self, took: Duration, failed: bool) {
        let seconds = took.as_secs_f64();
        let bucket = SECONDS.iter().position(|bound| seconds <= *bound).unwrap_or(SECONDS.len());
        self.took[bucket].fetch_add(1, Ordering::Relaxed);
        let nanoseconds = u64::try_from(took.as_nanos()).unwrap_or(u64::MAX);
        self.nanoseconds.fetch_add(nanoseconds, Ordering::Relaxed);
        if failed {
            self.failed.fetch_add(1, Ordering::Relaxed);
        }
    }
}

impl RequestCounts {
    const fn new() -> RequestCounts {
        RequestCounts([const { Stripe([const { MethodCount::new() }; RequestMethod::ALL.len()]) }; STRIPES])
    }

    fn answered(&self, method: RequestMethod, took: Duration, failed: bool) {
        self.0[own_stripe()].0[method as usize].count(took, failed);
    }

    fn sum(&self, method: RequestMethod, of: impl Fn(&MethodCount) -> &AtomicU64) -> u64 {
        self.0.iter().map(|stripe| of(&stripe.0[method as usize]).load(Ordering::Relaxed)).sum()
    }

    fn put(&self, page: &mut String) {
        let took = |method| std::array::from_fn(|bucket| self.sum(method, |of| &of.took[bucket]));
        let took: [[u64; SECONDS.len() + 1]; RequestMethod::ALL.len()] = RequestMethod::ALL.map(took);
        // The count is the sum of the histogram.
        put_counters(page, "doorman_server_requests", "Requests, by method.", |method| {
            took[method as usize].iter().sum()
        });
        put_counters(page, "doorman_server_request_errors", "Requests answered with an error, by method.", |method| {
            self.sum(method, |of| &of.failed)
        });
        let name = "doorman_server_request_durations";
        put_head(page, name, "histogram", "Time to answer a request, by method.");
        for (method, took) in RequestMethod::ALL.into_iter().zip(&took) {
            let mut requests = 0;
            let bounds = SECONDS.iter().map(f64::to_string).chain(["+Inf".to_owned()]);
            for (bound, count) in bounds.zip(took) {
                requests += count;
                put_line(page, format_args!("{name}_bucket{{method=\"{method:?}\",le=\"{bound}\"}} {requests}"));
            }
            let seconds = Duration::from_nanos(self.sum(method, |of| &of.nanoseconds)).as_secs_f64();
            put_line(page, format_args!("{name}_sum{{method=\"{method:?}\"}} {seconds}"));
            put_line(page, format_args!("{name}_count{{method=\"{method:?}\"}} {requests}"));
        }
        page.push('\n');
    }
}

/// Appends the metrics in the text format of Prometheus.
pub(crate) fn put_requests(page: &mut String) {
    REQUESTS.put(page);
}

fn put_counters(page: &mut String, name: &str, help: &str, value: impl Fn(RequestMethod) -> u64) {
    put_head(page, name, "counter", help);
    for method in RequestMethod::ALL {
        put_line(page, format_args!("{name}{{method=\"{method:?}\"}} {}", value(method)));
    }
    page.push('\n');
}

fn put_head(page: &mut String, name: &str, kind: &str, help: &str) {
    put_line(page, format_args!("# HELP {name} {help}\n# TYPE {name} {kind}"));
}

fn put_line(page: &mut String, line: std::fmt::Arguments<'_>) {
    // Writing to a string never fails.
    let _ = writeln!(page, "{line}");
}

#[cfg(test)]
mod tests {
    use std::thread;

    use super::*;

    #[test]
    fn a_scrape_adds_up_the_counts_of_all_threads() {
        let took = [Duration::from_millis(5), Duration::from_millis(6), Duration::from_secs(11)];
        let requests = RequestCounts::new();
        let count = || {
            took.iter().for_each(|took| requests.answered(RequestMethod::ReleaseCapacity, *took, took.as_secs() > 10))
        };
        // More threads than stripes.
        thread::scope(|scope| (0..STRIPES + 8).for_each(|_| drop(scope.spawn(count))));
        let mut page = String::new();
        requests.put(&mut page);
        for line in [
            "doorman_server_requests{method=\"ReleaseCapacity\"} 120",
            "doorman_server_request_errors{method=\"ReleaseCapacity\"} 40",
            "doorman_server_request_durations_bucket{method=\"ReleaseCapacity\",le=\"0.005\"} 40",
            "doorman_server_request_durations_bucket{method=\"ReleaseCapacity\",le=\"0.01\"} 80",
            "doorman_server_request_durations_bucket{method=\"ReleaseCapacity\",le=\"10\"} 80",
            "doorman_server_request_durations_bucket{method=\"ReleaseCapacity\",le=\"+Inf\"} 120",
            "doorman_server_request_durations_sum{method=\"ReleaseCapacity\"} 440.44",
            "doorman_server_request_durations_count{method=\"ReleaseCapacity\"} 120",
        ] {
            assert!(page.lines().any(|found| found == line), "{line} is not in\n{page}");
        }
    }
}
