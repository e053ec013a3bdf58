//! What the peers' metrics pages say about consensus. A page that lacks something is no error: it is shown as missing.

use std::{
    collections::BTreeMap,
    io::{Read as _, Write as _},
    net::{SocketAddr, TcpStream},
    time::{Duration, Instant},
};

use serde::Serialize;

/// Counters that are shown.
const PREFIXES: [&str; 2] = ["leaseway_quorum_", "leaseway_promises_"];

/// A peer that was stopped accepts and says nothing.
const PATIENCE: Duration = Duration::from_millis(500);

/// How fast counters rise, while all is well and during faults.
pub(super) struct Pages {
    peers: Vec<SocketAddr>,
    last: Vec<BTreeMap<String, f64>>,
    since: Instant,
    calm: Stretch,
    faulty: Stretch,
}

#[derive(Default)]
struct Stretch {
    time: Duration,
    /// By peer: every entry is in every log.
    rises: Vec<BTreeMap<String, f64>>,
}

/// How often a minute something was counted, on the peer that counted most of it.
#[derive(Clone, Debug, Serialize)]
pub(super) struct Pace {
    pub(super) counter: String,
    pub(super) calm: Option<f64>,
    pub(super) faulty: Option<f64>,
}

impl Pages {
    pub(super) fn open(peers: Vec<SocketAddr>) -> Pages {
        let stretch = || Stretch { time: Duration::ZERO, rises: vec![BTreeMap::new(); peers.len()] };
        let (calm, faulty) = (stretch(), stretch());
        let last = peers.iter().map(|peer| read(*peer).unwrap_or_default()).collect();
        Pages { peers, last, since: Instant::now(), calm, faulty }
    }

    /// Adds what has happened since it last looked to a stretch.
    pub(super) fn look(&mut self, calm: bool) {
        let stretch = if calm { &mut self.calm } else { &mut self.faulty };
        for (number, peer) in self.peers.iter().enumerate() {
            let Some(now) = read(*peer) else { continue };
            rise(&mut stretch.rises[number], &self.last[number], &now);
            self.last[number] = now;
        }
        stretch.time += self.since.elapsed();
        self.since = Instant::now();
    }

    pub(super) fn paces(&self) -> Vec<Pace> {
        let stretches = [&self.calm, &self.faulty];
        let mut names: Vec<_> = stretches.iter().flat_map(|stretch| &stretch.rises).flat_map(BTreeMap::keys).collect();
        names.sort();
        names.dedup();
        let pace = |name: &String| {
            let [calm, faulty] = stretches.map(|stretch| stretch.per_minute(name));
            Pace { counter: name.clone(), calm, faulty }
        };
        names.into_iter().map(pace).collect()
    }
}

impl Stretch {
    fn per_minute(&self, name: &str) -> Option<f64> {
        let most = self.rises.iter().filter_map(|rises| rises.get(name)).copied().reduce(f64::max)?;
        (!self.time.is_zero()).then(|| most / self.time.as_secs_f64() * 60.0)
    }
}

/// A counter that has fallen has begun anew.
fn rise(sums: &mut BTreeMap<String, f64>, before: &BTreeMap<String, f64>, now: &BTreeMap<String, f64>) {
    for (name, &now) in now {
        let before = before.get(name).copied().filter(|before| *before <= now).unwrap_or(0.0);
        *sums.entry(name.clone()).or_default() += now - before;
    }
}

fn read(peer: SocketAddr) -> Option<BTreeMap<String, f64>> {
    let mut stream = TcpStream::connect_timeout(&peer, PATIENCE).ok()?;
    stream.set_read_timeout(Some(PATIENCE)).ok()?;
    write!(stream, "GET /metrics HTTP/1.1\r\nHost: {peer}\r\nConnection: close\r\n\r\n").ok()?;
    let mut text = String::new();
    stream.read_to_string(&mut text).ok()?;
    Some(counters(&text))
}

/// Counters of consensus, added up over their labels.
fn counters(page: &str) -> BTreeMap<String, f64> {
    let kinds = page.lines().filter_map(|line| line.strip_prefix("# TYPE ")?.strip_suffix(" counter"));
    let names: Vec<_> = kinds.filter(|name| PREFIXES.iter().any(|prefix| name.starts_with(prefix))).collect();
    let mut counters = BTreeMap::new();
    for line in page.lines() {
        let Some((name, value)) = line.split_once(['{', ' ']).zip(line.rsplit_once(' ')).map(|(a, b)| (a.0, b.1))
        else {
            continue;
        };
        if let (true, Ok(value)) = (names.contains(&name), value.parse::<f64>()) {
            *counters.entry(name.to_owned()).or_default() += value;
        }
    }
    counters
}

#[cfg(test)]
mod tests {
    use super::*;

    const PAGE: &str = "HTTP/1.1 200 OK\r\n\r\n# HELP leaseway_quorum_appended_total entries
# TYPE leaseway_quorum_appended_total counter
leaseway_quorum_appended_total{kind=\"a b\"} 5
leaseway_quorum_appended_total{kind=\"c\"} 2
# TYPE leaseway_reign gauge
leaseway_reign 7
# TYPE leaseway_requests_total counter
leaseway_requests_total 9
";

    #[test]
    fn counters_of_consensus_are_read_and_added_up_over_labels() {
        let read: Vec<_> = counters(PAGE).into_iter().collect();
        assert_eq!(read, [("leaseway_quorum_appended_total".to_owned(), 7.0)]);
        assert!(counters("").is_empty());
    }

    #[test]
    fn a_peer_that_started_anew_counts_from_nothing() {
        let page = |value: f64| BTreeMap::from([("n".to_owned(), value)]);
        let mut sums = BTreeMap::new();
        for (before, now) in [(0.0, 5.0), (5.0, 8.0), (8.0, 2.0)] {
            rise(&mut sums, &page(before), &page(now));
        }
        assert_eq!(sums["n"], 10.0);
    }

    #[test]
    fn the_pace_is_that_of_the_peer_that_counted_most() {
        let rises = vec![BTreeMap::from([("n".to_owned(), 3.0)]), BTreeMap::from([("n".to_owned(), 10.0)])];
        let stretch = Stretch { time: Duration::from_secs(30), rises };
        assert_eq!((stretch.per_minute("n"), stretch.per_minute("m")), (Some(20.0), None));
    }
}
