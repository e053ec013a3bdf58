//! Several HTTP gateways in front of one cluster, while masters and gateways die.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    thread::{self, JoinHandle},
    time::Instant,
};

use serde_json::{Value, json};

use crate::harness::{
    config::{self, ConfigFile, Template},
    gateway::Gateway,
    http::Connection,
    peers::Peers,
    wait::eventually,
};

/// Low enough that the machine is not the bottleneck.
const CAPACITY: f64 = 60.0;
/// Leases last longer than an election takes.
const LEASE: u64 = 8;

fn cluster() -> Peers {
    let template = Template { lease: LEASE, refresh: 1, ..Template::fair("*", CAPACITY) };
    Peers::start(3, ConfigFile::new(&config::text(&[template])), &[])
}

/// A grant of permits: when it was requested, when it arrived, and the number of permits.
#[derive(Debug, Clone, Copy)]
struct Permitted {
    asked: Instant,
    granted: Instant,
    permits: u32,
}

/// Fails if in any time span more permits were granted than `per_second` and `burst` allow.
fn assert_never_above(permitted: &[Permitted], per_second: f64, burst: f64) {
    assert!(permitted.len() > 100, "{} grants are too few to judge", permitted.len());
    let mut by_end = permitted.to_vec();
    by_end.sort_by_key(|one| one.granted);
    let mut starts: Vec<Instant> = permitted.iter().map(|one| one.asked).collect();
    starts.sort();
    // Checks only the spans that begin at every fiftieth grant, to save time.
    for begin in starts.iter().step_by(50) {
        let mut sum = 0;
        // Ignores requests that were sent earlier, because they may have been granted before the span.
        for one in by_end.iter().filter(|one| one.asked >= *begin) {
            sum += one.permits;
            let span = one.granted.duration_since(*begin).as_secs_f64();
            let allowed = per_second * span + burst;
            assert!(f64::from(sum) <= allowed, "{sum} permits in {span} s, more than {allowed}");
        }
    }
}

/// Callers that request permits without a pause until they are stopped.
struct Callers {
    stop: Arc<AtomicBool>,
    callers: Vec<JoinHandle<Vec<Permitted>>>,
}

impl Callers {
    fn of(gateways: &[&Gateway], each: usize) -> Callers {
        let stop = Arc::<AtomicBool>::default();
        let one = |gateway: &&Gateway| {
            let (stop, address) = (Arc::clone(&stop), gateway.http());
            thread::spawn(move || call(address, &stop))
        };
        let callers = gateways.iter().flat_map(|gateway| (0..each).map(move |_| gateway)).map(one).collect();
        Callers { stop, callers }
    }

    /// Stops the callers and returns their permits.
    fn finish(self) -> Vec<Permitted> {
        self.stop.store(true, Ordering::Relaxed);
        self.callers.into_iter().flat_map(|caller| caller.join().unwrap()).collect()
    }
}

fn call(address: std::net::SocketAddr, stop: &AtomicBool) -> Vec<Permitted> {
    let mut permitted = Vec::new();
    let mut connection = Connection::open(address);
    let body = json!({ "permits": 1, "wait": 10 }).to_string();
    while !stop.load(Ordering::Relaxed) {
        let asked = Instant::now();
        let head = "POST /v1/resources/mysql/acquire HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n";
        connection.send(format!("{head}Content-Length: {}\r\n\r\n{body}", body.len()).as_bytes());
        match connection.receive() {
            Some(told) if told.status == 200 => {
                permitted.push(Permitted { asked, granted: Instant::now(), permits: 1 })
            }
            Some(_) => {}
            // The gateway was killed.
            None => return permitted,
        }
    }
    permitted
}

fn capacity(gateway: &Gateway) -> f64 {
    let told = gateway.ask("GET", "/v1/resources/mysql", &Value::Null);
    told.json()["capacity"].as_f64().unwrap_or_default()
}

/// The gateways' buckets together hold one second of capacity, and each gateway starts with a full bucket.
const BURST: f64 = 4.0 * CAPACITY;

#[test]
fn two_gateways_stay_within_the_capacity_while_the_master_is_killed() {
    let mut cluster = cluster();
    let servers = cluster.endpoints().join(",");
    let gateways = [Gateway::for_http(&servers, &[]), Gateway::for_http(&servers, &[])];
    let callers = Callers::of(&[&gateways[0], &gateways[1]], 3);
    eventually("both gateways have a share, and all capacity is leased", || {
        let shares = gateways.each_ref().map(capacity);
        (shares.iter().all(|share| *share > 0.0) && shares.iter().sum::<f64>() > 0.99 * CAPACITY).then_some(())
    });
    let master = cluster.master();
    cluster.kill(master);
    let again = cluster.master_but(&[master]);
    eventually("the new master knows both gateways", || {
        // The first request creates the resource.
        let status = cluster.status(again, &[]);
        let all = status["resources"].as_array().unwrap();
        all.iter().any(|one| one["resource"] == "mysql" && one["holders"] == 2).then_some(())
    });
    let before = gateways.each_ref().map(|gateway| gateway.acquire("mysql", 1, 30.0).status);
    assert_eq!(before, [200, 200], "both gateways still have a lease");
    let permitted = callers.finish();
    assert_never_above(&permitted, CAPACITY, BURST);
}
