//! Statistics under the names of envoyproxy/ratelimit: for Prometheus, as its default mapping of statsd has them, and
//! for a statsd server.

use std::{
    collections::HashMap,
    fmt,
    str::FromStr,
    sync::{
        Arc, Mutex, OnceLock, PoisonError,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use leaseway_client::limiter::Standing;
use metrics::{Counter, counter, describe_counter, describe_histogram, histogram};
use tokio::{
    io::AsyncWriteExt,
    net::{TcpStream, UdpSocket},
    time::{MissedTickBehavior, interval, timeout},
};

use super::rules::Verdict;

/// The statistics of this process, if they are kept.
static STATS: OnceLock<Stats> = OnceLock::new();

/// The interval of gostats.
const FLUSH_INTERVAL: Duration = Duration::from_secs(5);
/// The time limit for connecting and sending.
const SEND_TIMEOUT: Duration = Duration::from_secs(2);
/// The maximum size of a datagram, so that it fits into an Ethernet frame.
const MAX_DATAGRAM: usize = 1_400;
/// The fraction of the limit above which hits are near it.
const NEAR: f64 = 0.8;
/// The names of the counters of a rule.
const OF_RULE: [&str; 5] = ["total_hits", "within_limit", "over_limit", "near_limit", "shadow_mode"];
const PREFIX: &str = "ratelimit.service.rate_limit";

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StatsOptions {
    /// A statsd server.
    pub statsd: Option<Statsd>,
}

/// The address of a statsd server: `HOST:PORT`, with `udp://` (the default) or `tcp://` in front.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Statsd {
    is_tcp: bool,
    address: String,
}

impl FromStr for Statsd {
    type Err = String;

    fn from_str(text: &str) -> Result<Statsd, String> {
        let (is_tcp, address) = match text.split_once("://") {
            None => (false, text),
            Some(("udp", address)) => (false, address),
            Some(("tcp", address)) => (true, address),
            Some((scheme, _)) => return Err(format!("unknown scheme `{scheme}`; expected udp:// or tcp://")),
        };
        let has_port = |(host, port): (&str, &str)| !host.is_empty() && port.parse::<u16>().is_ok_and(|port| port > 0);
        match address.rsplit_once(':').is_some_and(has_port) {
            true => Ok(Statsd { is_tcp, address: address.to_owned() }),
            false => Err("expected HOST:PORT, such as udp://127.0.0.1:8125".to_owned()),
        }
    }
}

impl fmt::Display for Statsd {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}://{}", if self.is_tcp { "tcp" } else { "udp" }, self.address)
    }
}

#[derive(Debug, Default)]
pub(super) struct Stats {
    rules: Mutex<HashMap<Box<str>, Arc<RuleCounters>>>,
    config_loads: [AtomicU64; 2],
    service_errors: AtomicU64,
    keeps_statsd: bool,
}

struct RuleCounters {
    /// As in names of statsd.
    path: String,
    prometheus: [Counter; OF_RULE.len()],
    /// Since the last flush.
    unsent: [AtomicU64; OF_RULE.len()],
}

impl fmt::Debug for RuleCounters {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.unsent.fmt(f)
    }
}

/// Keeps statistics from now on. `has_rules`: rules were put in force before. Must be called within a tokio runtime.
pub(crate) fn enable(options: StatsOptions, has_rules: bool) {
    for name in OF_RULE {
        describe_counter!(
            format!("ratelimit_service_rate_limit_{name}"),
            "Hits of a limit, as in envoyproxy/ratelimit."
        );
    }
    describe_counter!("ratelimit_service_config_load_success", "Rules that were put in force.");
    describe_counter!("ratelimit_service_config_load_error", "Rules that were rejected.");
    describe_counter!("ratelimit_service_should_rate_limit_error", "Requests that failed.");
    describe_counter!("ratelimit_service_total_requests", "Requests, by method.");
    describe_histogram!("ratelimit_service_response_time_seconds", "Time until the answer, by method.");
    let stats = Stats { keeps_statsd: options.statsd.is_some(), ..Stats::default() };
    if STATS.set(stats).is_err() {
        return;
    }
    if has_rules {
        count_rules(true);
    }
    if let Some(statsd) = options.statsd {
        tokio::spawn(flush(statsd));
    }
}

/// The statistics, if they are kept.
pub(super) fn kept() -> Option<&'static Stats> {
    STATS.get()
}

/// Counts rules that were put in force, or rejected.
pub(super) fn count_rules(are_valid: bool) {
    if let Some(stats) = kept() {
        let name = ["ratelimit_service_config_load_error", "ratelimit_service_config_load_success"];
        counter!(name[usize::from(are_valid)]).increment(1);
        stats.config_loads[usize::from(are_valid)].fetch_add(1, Ordering::Relaxed);
    }
}

impl Stats {
    /// Counts a request and its outcome.
    pub(super) fn count_request(&self, took: Duration, failed: bool) {
        counter!("ratelimit_service_total_requests", "grpc_method" => "ShouldRateLimit").increment(1);
        histogram!("ratelimit_service_response_time_seconds", "grpc_method" => "ShouldRateLimit").record(took);
        if failed {
            counter!("ratelimit_service_should_rate_limit_error", "err_type" => "service_error").increment(1);
            self.service_errors.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Counts the hits of a descriptor. `standing` is that after the decision.
    pub(super) fn count(&self, path: &str, hits: u64, verdict: Verdict, standing: Option<Standing>) {
        let counters = self.of_rule(path);
        let near = standing.map_or(0, |standing| near_hits(&standing, hits));
        let counts = match verdict {
            Verdict::Ok => [hits, hits, 0, near, 0],
            Verdict::OverLimit => [hits, 0, hits, 0, 0],
            Verdict::Shadow => [hits, 0, hits, 0, hits],
            Verdict::NoLease => [hits, 0, 0, 0, 0],
        };
        for (at, count) in counts.into_iter().enumerate().filter(|(_, count)| *count > 0) {
            counters.prometheus[at].increment(count);
            if self.keeps_statsd {
                counters.unsent[at].fetch_add(count, Ordering::Relaxed);
            }
        }
    }

    fn of_rule(&self, path: &str) -> Arc<RuleCounters> {
        let mut rules = self.rules.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(known) = rules.get(path) {
            return Arc::clone(known);
        }
        let clean = sanitized(path);
        let prometheus = OF_RULE.map(|name| labelled(&clean, name));
        let made = Arc::new(RuleCounters { path: clean, prometheus, unsent: Default::default() });
        rules.insert(path.into(), Arc::clone(&made));
        made
    }

    /// The lines for statsd since the last call.
    fn take_lines(&self) -> Vec<String> {
        let rules = self.rules.lock().unwrap_or_else(PoisonError::into_inner);
        let mut lines = Vec::new();
        let mut line = |name: String, count: &AtomicU64| {
            let count = count.swap(0, Ordering::Relaxed);
            lines.extend((count > 0).then(|| format!("{name}:{count}|c\n")));
        };
        for RuleCounters { path, unsent, .. } in rules.values().map(Arc::as_ref) {
            OF_RULE.iter().zip(unsent).for_each(|(name, count)| line(format!("{PREFIX}.{path}.{name}"), count));
        }
        line("ratelimit.service.config_load_error".to_owned(), &self.config_loads[0]);
        line("ratelimit.service.config_load_success".to_owned(), &self.config_loads[1]);
        line("ratelimit.service.call.should_rate_limit.service_error".to_owned(), &self.service_errors);
        lines
    }
}

/// The hits that were taken above the fraction [`NEAR`] of what this gateway may pass.
fn near_hits(standing: &Standing, hits: u64) -> u64 {
    if standing.burst.is_infinite() {
        return 0;
    }
    let used = standing.burst - standing.available;
    let threshold = (standing.burst * NEAR).floor();
    (used - threshold).clamp(0.0, hits as f64) as u64
}

/// statsd gives `:` and `|` a meaning, and the dots of an address would separate parts of the name.
fn sanitized(path: &str) -> String {
    let path = path.replace([':', '|'], "_");
    let (mut clean, mut rest) = (String::with_capacity(path.len()), path.as_str());
    while let Some(first) = rest.chars().next() {
        let length = address_length(rest).unwrap_or(0);
        clean.push_str(&rest[..length].replace('.', "_"));
        rest = &rest[length..];
        if length == 0 {
            clean.push(first);
            rest = &rest[first.len_utf8()..];
        }
    }
    clean
}

/// The length of the IPv4 address that a text begins with: four numbers of up to three digits.
fn address_length(text: &str) -> Option<usize> {
    let mut length = 0;
    for part in 0..4 {
        let rest = &text[length..];
        let rest = if part == 0 { rest } else { rest.strip_prefix('.')? };
        let digits = rest.bytes().take(3).take_while(u8::is_ascii_digit).count();
        length += usize::from(part > 0) + digits;
        (digits > 0).then_some(())?;
    }
    Some(length)
}

/// The counter of the default mapping: the first two keys are labels, further ones are left out.
fn labelled(path: &str, name: &str) -> Counter {
    let name = format!("ratelimit_service_rate_limit_{name}");
    let mut parts = path.split('.').map(str::to_owned);
    let domain = parts.next().unwrap_or_default();
    match (parts.next(), parts.next()) {
        (Some(key1), Some(key2)) => counter!(name, "domain" => domain, "key1" => key1, "key2" => key2),
        (key1, _) => counter!(name, "domain" => domain, "key1" => key1.unwrap_or_default()),
    }
}

/// Sends the counters to statsd in regular intervals.
async fn flush(statsd: Statsd) {
    let mut ticks = interval(FLUSH_INTERVAL);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let (mut stream, mut failed) = (None, false);
    loop {
        ticks.tick().await;
        let lines = kept().map(Stats::take_lines).unwrap_or_default();
        if lines.is_empty() {
            continue;
        }
        let sent = timeout(SEND_TIMEOUT, send(&statsd, &mut stream, &lines)).await;
        let error =
            sent.map_err(|_| "timeout".to_owned()).and_then(|sent| sent.map_err(|error| error.to_string())).err();
        if let Some(error) = &error {
            stream = None;
            if !failed {
                tracing::warn!("cannot send statistics to {statsd}: {error}; these counts are lost; trying again");
            }
        }
        failed = error.is_some();
    }
}

async fn send(statsd: &Statsd, stream: &mut Option<TcpStream>, lines: &[String]) -> std::io::Result<()> {
    if statsd.is_tcp {
        let connected = match stream {
            Some(connected) => connected,
            None => stream.insert(TcpStream::connect(&statsd.address).await?),
        };
        return connected.write_all(lines.concat().as_bytes()).await;
    }
    let socket = UdpSocket::bind("0.0.0.0:0").await?;
    socket.connect(&statsd.address).await?;
    let mut datagram = String::new();
    for line in lines {
        if !datagram.is_empty() && datagram.len() + line.len() > MAX_DATAGRAM {
            socket.send(datagram.as_bytes()).await?;
            datagram.clear();
        }
        datagram.push_str(line);
    }
    socket.send(datagram.as_bytes()).await.map(drop)
}

#[cfg(test)]
mod tests {
    use leaseway_client::Capacity;

    use super::*;

    fn standing(available: f64) -> Option<Standing> {
        Some(Standing { available, burst: 100.0, capacity: Capacity::of(1.0), next_in: None })
    }

    #[test]
    fn hits_are_counted_as_by_the_original() {
        let stats = Stats { keeps_statsd: true, ..Stats::default() };
        stats.count("shop.user", 10, Verdict::Ok, standing(90.0));
        stats.count("shop.user", 30, Verdict::Ok, standing(5.0));
        stats.count("shop.user", 7, Verdict::OverLimit, standing(5.0));
        stats.count("shop.user_10.0.0.1.path", 1, Verdict::Shadow, None);
        stats.count("shop.user_10.0.0.1.path", 1, Verdict::Shadow, None);
        stats.count("shop.user_a:b", 1, Verdict::NoLease, None);
        let mut lines = stats.take_lines();
        lines.sort();
        let line = |name: &str, count| format!("ratelimit.service.rate_limit.{name}:{count}|c\n");
        let expected = [
            line("shop.user.near_limit", 15),
            line("shop.user.over_limit", 7),
            line("shop.user.total_hits", 47),
            line("shop.user.within_limit", 40),
            line("shop.user_10_0_0_1.path.over_limit", 2),
            line("shop.user_10_0_0_1.path.shadow_mode", 2),
            line("shop.user_10_0_0_1.path.total_hits", 2),
            line("shop.user_a_b.total_hits", 1),
        ];
        assert_eq!(lines, expected);
        assert!(stats.take_lines().is_empty(), "counts since the last call");
    }

    #[test]
    fn dots_of_addresses_do_not_separate() {
        assert_eq!(sanitized("d.ip_10.20.30.40/24.é|x"), "d.ip_10_20_30_40/24.é_x");
        assert_eq!(sanitized("d.1.2.3"), "d.1.2.3");
    }

    #[test]
    fn addresses_of_statsd_are_read() {
        let read = |text: &str| text.parse::<Statsd>().map(|statsd| statsd.to_string());
        assert_eq!(read("localhost:8125"), Ok("udp://localhost:8125".into()));
        assert_eq!(read("tcp://10.0.0.1:8125"), Ok("tcp://10.0.0.1:8125".into()));
        for bad in ["", "localhost", "http://a:1", ":8125", "a:0"] {
            assert!(read(bad).is_err(), "{bad}");
        }
    }
}
