//! How soon sessions notice that a server is back, and the load during an outage, in virtual time.

use super::*;

const REFRESH: u64 = 1_000;

/// A session in an outage: every request fails `hangs` ms after it was sent.
struct Outage {
    session: Session<Wants>,
    hangs: u64,
}

impl Outage {
    /// An outage of a session with a lease of `r` that it refreshes every second.
    fn new(endpoints: &[&str], seed: u64, hangs: u64) -> Outage {
        let mut session = Session::new(Settings { seed, ..settings(endpoints) });
        session.want(Millis(0), &id("r"), wants(100.0), MODE);
        let first = session.poll(Millis(0)).expect("it asks");
        let lease = Given { refresh: Millis(REFRESH), ..given("r", 40.0, 1) };
        assert!(session.answered(Millis(1), first.number, vec![lease]));
        Outage { session, hangs }
    }

    /// Runs until `end`. Returns the time and target of each request.
    fn run(&mut self, end: u64) -> Vec<(u64, String)> {
        let (mut now, mut sent) = (Millis(0), Vec::new());
        loop {
            now = now.max(self.session.wake(now).expect("it tries again"));
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
fn a_server_that_is_back_is_asked_within_one_refresh_interval_however_long_it_was_gone() {
    for endpoints in [&["a:1"][..], &["a:1", "b:1"], &["a:1", "b:1", "c:1"]] {
        for (seed, hangs) in (0..50).map(|seed| (seed, [0, 200][seed as usize % 2])) {
            // If a single server comes back at any time in these ten minutes, the longest time without a request to
            // it is the longest time until that is noticed.
            let sent = Outage::new(endpoints, seed, hangs).run(600_000);
            for server in endpoints {
                let to_it: Vec<u64> = sent.iter().filter(|(_, to)| to == server).map(|(at, _)| *at).collect();
                let longest = to_it.windows(2).map(|pair| pair[1] - pair[0]).max().expect("it was asked");
                let bound = REFRESH.max(endpoints.len() as u64 * (hangs + 100));
                assert!(longest <= bound, "{server} of {endpoints:?} was not asked for {longest} ms, seed {seed}");
            }
        }
    }
}

#[test]
fn a_request_that_hangs_counts_as_pause() {
    let mut outage = Outage::new(&["a:1"], 1, 900);
    let sent = outage.run(100_000);
    assert!(sent.windows(2).all(|pair| (950..=1_000).contains(&(pair[1].0 - pair[0].0))), "{sent:?}");
}

#[test]
fn a_session_that_never_had_a_lease_tries_again_within_the_default_interval() {
    let mut session = session();
    session.want(Millis(0), &id("r"), wants(100.0), MODE);
    let sent = Outage { session, hangs: 0 }.run(600_000);
    assert!(sent.windows(2).all(|pair| pair[1].0 - pair[0].0 <= 5_000), "{sent:?}");
}

/// Ten thousand clients stand for a million: the result is the number of requests per interval and client.
#[test]
fn a_fleet_costs_a_server_no_more_than_twice_its_usual_requests_during_an_outage_and_comes_back_spread() {
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
