//! Processes in Rust, in Python and behind an HTTP gateway take permits of the same three limits while the master is
//! killed. Each writes down when it took what; the books are audited afterwards, and no server is asked.

use std::{
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, Ordering},
    },
    thread,
    time::SystemTime,
};

use leaseway_client::Client;
use serde_json::{Value, json};

use crate::harness::{
    config::{ConfigFile, Template},
    foreign,
    gateway::Gateway,
    peers::Peers,
    process::Process,
    wait::{block_on, eventually, runtime},
};

/// The resources and their capacities per second.
const LIMITS: [(&str, f64); 3] = [("requests", 40.0), ("tokens", 400.0), ("bytes", 4_000.0)];

/// What one operation of each participant costs. Each is held back by another limit.
const COSTS: [[u32; 3]; 3] = [[2, 5, 50], [1, 20, 10], [1, 5, 200]];
const RUST: usize = 0;
const PYTHON: usize = 1;
const HTTP: usize = 2;

/// Waits for all three limits until it is killed. Prints the seconds since 1970 before and after each operation.
const PYTHON_PROGRAM: &str = r#"
import sys, time, leaseway
servers, costs = sys.argv[1], [int(cost) for cost in sys.argv[2].split(",")]
client = leaseway.Client(servers)
rates = [client.rate(name) for name in ("requests", "tokens", "bytes")]
limits = client.limits(*(rate.of(cost) for rate, cost in zip(rates, costs)))
while True:
    before = time.time()
    limits.acquire()
    print(before, time.time(), flush=True)
"#;

/// An operation: seconds since 1970 before it waited and after it had the permits of all limits.
#[derive(Debug, Clone, Copy)]
struct Operation {
    participant: usize,
    before: f64,
    after: f64,
}

#[derive(Clone, Default)]
struct Books {
    operations: Arc<Mutex<Vec<Operation>>>,
    ended: Arc<AtomicBool>,
}

fn now() -> f64 {
    SystemTime::UNIX_EPOCH.elapsed().unwrap().as_secs_f64()
}

impl Books {
    /// Performs operations until the end. `take` returns false if one was refused.
    fn keep(&self, participant: usize, mut take: impl FnMut() -> bool) {
        while !self.ended.load(Ordering::Relaxed) {
            let before = now();
            if take() {
                self.operations.lock().unwrap().push(Operation { participant, before, after: now() });
            }
        }
    }

    fn of(&self, participant: usize) -> usize {
        self.operations.lock().unwrap().iter().filter(|operation| operation.participant == participant).count()
    }
}

/// Whether the permits of a limit in any period exceed what its capacity and the saved permits allow. Only operations
/// that began and ended in the period certainly took their permits in it.
fn audit(operations: &[Operation], limit: usize) {
    let (name, capacity) = LIMITS[limit];
    // A gateway saves up a second of its share, the libraries 20 ms and a permit. One operation more of each may have
    // collected its permits while it waited.
    let waiting: u32 = COSTS.iter().map(|costs| costs[limit]).sum();
    let saved = capacity * (1.0 + 2.0 * 0.02) + 2.0 + f64::from(waiting);
    let mut ends: Vec<&Operation> = operations.iter().collect();
    ends.sort_by(|one, other| one.after.total_cmp(&other.after));
    for begin in operations.iter().map(|operation| operation.before) {
        let mut taken = 0.0;
        for operation in ends.iter().filter(|operation| operation.before >= begin) {
            taken += f64::from(COSTS[operation.participant][limit]);
            let most = capacity * (operation.after - begin) + saved;
            assert!(taken <= most, "{taken} {name} in {} s, at most {most}", operation.after - begin);
        }
    }
}

fn share_three_limits(with_python: bool) {
    let templates = LIMITS.map(|(name, capacity)| Template { refresh: 1, ..Template::fair(name, capacity) });
    let mut peers = Peers::start(3, ConfigFile::of(&templates), &[]);
    let gateway = Gateway::for_http(&peers.endpoints().join(","), &[]);
    let books = Books::default();

    let endpoints = peers.endpoints();
    let client = {
        let _inside = runtime().enter();
        Client::builder().endpoints(endpoints.iter().map(String::as_str)).id("rust").build().unwrap()
    };
    let rates = LIMITS.map(|(name, _)| client.resource(name).rate().unwrap());
    let limits = client.limits([0, 1, 2].map(|at| rates[at].of(COSTS[RUST][at])));
    let in_rust = thread::spawn({
        let books = books.clone();
        move || books.keep(RUST, || limits.blocking_acquire().is_ok())
    });

    let python = with_python.then(|| {
        let costs = COSTS[PYTHON].map(|cost| cost.to_string()).join(",");
        let program = foreign::path("LEASEWAY_TEST_PYTHON_CLIENT");
        Process::start_program(&program, &["-c", PYTHON_PROGRAM, &endpoints.join(","), &costs], &[])
    });
    let by_python = || {
        let printed = python.as_ref().map(Process::stdout).unwrap_or_default();
        let whole = printed.rfind('\n').map_or("", |end| &printed[..end]);
        let operation = |line: &str| {
            let (before, after) = line.split_once(' ').unwrap();
            Operation { participant: PYTHON, before: before.parse().unwrap(), after: after.parse().unwrap() }
        };
        whole.lines().map(operation).collect::<Vec<_>>()
    };

    thread::scope(|scope| {
        let (by_http, over_http) = (books.clone(), &gateway);
        scope.spawn(move || {
            let limit = |at: usize| json!({ "resource": LIMITS[at].0, "permits": COSTS[HTTP][at] });
            let limits = [0, 1, 2].map(limit);
            let body: Value = json!({ "limits": limits, "wait": 5 });
            by_http.keep(HTTP, || {
                let answer = over_http.ask("POST", "/v1/acquire", &body);
                assert!([200, 429].contains(&answer.status), "{answer:?}");
                answer.status == 200
            });
        });
        let counts = || [books.of(RUST), by_python().len(), books.of(HTTP)];
        let all_go_on = |what: &str, since: [usize; 3]| {
            eventually(what, || {
                let done = counts();
                let go_on = (0..3).all(|at| done[at] >= since[at] + 20 || at == PYTHON && !with_python);
                go_on.then_some(done)
            })
        };
        let before = all_go_on("all participants have permits", [0; 3]);
        let master = peers.master();
        peers.kill(master);
        let after = all_go_on("all participants go on without the master", before);
        peers.master_but(&[master]);
        all_go_on("all participants go on with the next master", after);
        books.ended.store(true, Ordering::Relaxed);
    });
    in_rust.join().unwrap();
    let mut operations = books.operations.lock().unwrap().clone();
    operations.extend(by_python());
    (0..LIMITS.len()).for_each(|limit| audit(&operations, limit));
    block_on(client.close());
}

#[test]
fn rust_and_http_processes_share_three_limits_when_the_master_is_killed() {
    share_three_limits(false);
}

#[test]
#[cfg_attr(not(python_client), ignore = "needs LEASEWAY_TEST_PYTHON_CLIENT")]
fn rust_python_and_http_processes_share_three_limits_when_the_master_is_killed() {
    share_three_limits(true);
}

/// The audit finds too many permits, whatever the moment of the operations within their time.
#[test]
fn the_audit_finds_overuse() {
    let operation = |at: f64| Operation { participant: RUST, before: at, after: at + 0.01 };
    let at_rate = |per_second: f64| (0..400).map(|n| operation(f64::from(n) / per_second)).collect::<Vec<_>>();
    audit(&at_rate(20.0), 0);
    assert!(std::panic::catch_unwind(|| audit(&at_rate(30.0), 0)).is_err(), "60 requests per second, of 40");
}
