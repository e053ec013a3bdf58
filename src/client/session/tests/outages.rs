//! How soon sessions notice that a server is back, and the load during an outage, in virtual time.

use super::*;

const REFRESH: u64 = 1_000;

/// A session whose requests all fail.
struct Outage {
    session: Session<Wants>,
    /// Time until a request fails, in milliseconds.
    hangs: u64,
}

impl Outage {
    /// The session has a lease of `r` and refreshes it every second.
    fn new(endpoints: &[&str], seed: u64, hangs: u64) -> Outage {
        let mut session = Session::new(Settings { seed, ..settings(endpoints) });
        session.want(Millis(0), &id("r"), wants(100.0), MODE);
        let first = session.poll(Millis(0)).expect("a request is due");
        let lease = GrantedLease { refresh: Millis(REFRESH), ..given("r", 40.0, 1) };
        assert!(session.answered(Millis(1), first.number, vec![lease]));
        Outage { session, hangs }
    }

    /// Runs until `end`. Returns the time and target of each request.
    fn run(&mut self, end: u64) -> Vec<(u64, String)> {
        let (mut now, mut sent) = (Millis(0), Vec::new());
        loop {
            now = now.max(self.session.wake(now).expect("another attempt"));
            if now.0 >= end {
                return sent;
            }
            if let Some(outgoing) = self.session.poll(now) {
                sent.push((now.0, outgoing.target.to_string()));
                now = now.plus(Millis(self.hangs));
                assert!(self.session.failed(now, outgoing.number));
            }
        }
    }
}

#[test]
fn a_recovered_server_is_asked_within_one_refresh_interval() {
    for endpoints in [&["a:1"][..], &["a:1", "b:1"], &["a:1", "b:1", "c:1"]] {
        for (seed, hangs) in (0..50).map(|seed| (seed, [0, 200][seed as usize % 2])) {
            // A server may recover at any time in these ten minutes. The longest time without a request to it bounds
            // the time until the session notices.
            let sent = Outage::new(endpoints, seed, hangs).run(600_000);
            for server in endpoints {
                let to_it: Vec<u64> = sent.iter().filter(|(_, to)| to == server).map(|(at, _)| *at).collect();
                let longest = to_it.windows(2).map(|pair| pair[1] - pair[0]).max().expect("several requests");
                let bound = REFRESH.max(endpoints.len() as u64 * (hangs + 100));
                assert!(longest <= bound, "{server} of {endpoints:?} was not asked for {longest} ms, seed {seed}");
            }
        }
    }
}

#[test]
fn a_session_without_a_lease_retries_within_the_default_interval() {
    let sent = Outage { session: session(), hangs: 0 }.run(600_000);
    assert!(sent.windows(2).all(|pair| pair[1].0 - pair[0].0 <= 5_000), "{sent:?}");
}

/// Ten thousand clients stand for a million: the result is requests per interval and client.
#[test]
fn an_outage_at_most_doubles_the_requests_to_a_server() {
    const CLIENTS: u64 = 10_000;
    let endpoints = ["a:1", "b:1", "c:1"];
    let mut per_tenth = [0_u64; 300];
    for seed in 0..CLIENTS {
        for (at, to) in Outage::new(&endpoints, seed, 0).run(30_000) {
            per_tenth[at as usize / 100] += u64::from(to == "a:1");
        }
    }
    // After ten seconds the pauses have their final length.
    let (usual, late) = (CLIENTS / 10, &per_tenth[100..]);
    assert!(late.iter().all(|count| (usual..=usual * 2).contains(count)), "usual {usual}: {late:?}");
}
