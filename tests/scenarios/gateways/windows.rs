//! By default, gateways let at most N requests pass in any window of a limit of N per window.

use std::{
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, Ordering},
    },
    thread,
    time::{Duration, Instant},
};

use crate::harness::{
    config::{ConfigFile, Template},
    gateway::Gateway,
    rls::{Answered as _, RlsCaller, descriptor, request},
    server::Server,
    wait::{block_on, eventually},
};

const LIMIT: usize = 60;
const SECOND: Duration = Duration::from_secs(1);

fn rules(unit: &str) -> ConfigFile {
    let limit = format!("{{unit: {unit}, requests_per_unit: {LIMIT}}}");
    ConfigFile::new(&format!("domain: shop\ndescriptors: [{{key: user, rate_limit: {limit}}}]\n"))
}

/// When a request that passed was sent, and when it was answered. It passed between the two.
type Passed = Arc<Mutex<Vec<(Instant, Instant)>>>;

/// Sends requests to a gateway, more than the limit, until it is stopped.
struct Load {
    stopping: Arc<AtomicBool>,
    threads: Vec<thread::JoinHandle<()>>,
}

impl Load {
    fn start(gateway: &Gateway, passed: &Passed) -> Load {
        let stopping = Arc::new(AtomicBool::new(false));
        let threads = (0..2).map(|_| {
            let (caller, stopping, passed) = (gateway.caller(), Arc::clone(&stopping), Arc::clone(passed));
            thread::spawn(move || send(&caller, &stopping, &passed))
        });
        Load { threads: threads.collect(), stopping }
    }

    fn stop(self) {
        self.stopping.store(true, Ordering::Relaxed);
        self.threads.into_iter().for_each(|thread| thread.join().unwrap());
    }
}

fn send(caller: &RlsCaller, stopping: &AtomicBool, passed: &Passed) {
    while !stopping.load(Ordering::Relaxed) {
        let sent = Instant::now();
        let asked = request("shop", &[descriptor(&[("user", "ann")])]);
        // The gateway may be killed meanwhile.
        if let Ok(answer) = block_on(caller.should_rate_limit(asked))
            && answer.passes()
        {
            passed.lock().unwrap().push((sent, Instant::now()));
        }
        thread::sleep(Duration::from_millis(5));
    }
}

/// The most requests that certainly passed within one window.
fn most_in_a_window(passed: &[(Instant, Instant)], window: Duration) -> usize {
    let of = |start: Instant| {
        let within = passed.iter().filter(|(sent, answered)| *sent >= start && *answered <= start + window);
        within.count()
    };
    passed.iter().map(|(sent, _)| of(*sent)).max().unwrap_or_default()
}

fn run_for(span: Duration, gateways: &[&Gateway], passed: &Passed) {
    let loads: Vec<Load> = gateways.iter().map(|gateway| Load::start(gateway, passed)).collect();
    thread::sleep(span);
    loads.into_iter().for_each(Load::stop);
}

#[test]
fn in_no_second_do_two_gateways_pass_more_than_the_limit() {
    let server = Server::with_config(&ConfigFile::of(&[Template::fair("*", LIMIT as f64)]));
    let (servers, rules) = ([server.grpc().to_string()], rules("second"));
    let start = |flags: &[&str]| Gateway::for_requests(&servers, &rules, flags);
    let (one, two) = (start(&[]), start(&[]));
    let passed = Passed::default();
    // The start of both, then idle phases, and leases that move from one to the other.
    run_for(3 * SECOND, &[&one, &two], &passed);
    thread::sleep(3 * SECOND / 2);
    run_for(2 * SECOND, &[&one], &passed);
    run_for(2 * SECOND, &[&two], &passed);
    run_for(2 * SECOND, &[&one, &two], &passed);
    // A gateway stops, another starts, and one is killed.
    one.stop();
    let three = start(&[]);
    run_for(2 * SECOND, &[&two, &three], &passed);
    two.kill();
    let four = start(&[]);
    run_for(2 * SECOND, &[&three, &four], &passed);
    let passed = passed.lock().unwrap();
    let most = most_in_a_window(&passed, SECOND);
    assert!(most <= LIMIT, "{most}");
    assert!(passed.len() > LIMIT, "{}", passed.len());
}

#[test]
fn who_asks_for_bursts_gets_them() {
    let server = Server::with_config(&ConfigFile::of(&[Template::fair("*", LIMIT as f64)]));
    let servers = [server.grpc().to_string()];
    let gateway = Gateway::for_requests(&servers, &rules("second"), &["--bursts", "shop/*"]);
    let passed = Passed::default();
    eventually("more than the limit passes in a second", || {
        run_for(3 * SECOND / 2, &[&gateway], &passed);
        thread::sleep(3 * SECOND / 2);
        let most = most_in_a_window(&passed.lock().unwrap(), SECOND);
        (most > LIMIT).then_some(())
    });
}

#[test]
fn the_reset_is_when_the_next_permit_comes_back() {
    let server = Server::with_config(&ConfigFile::of(&[Template::fair("*", LIMIT as f64 / 60.0)]));
    let servers = [server.grpc().to_string()];
    let gateway = Gateway::for_requests(&servers, &rules("minute"), &[]);
    let envoy = gateway.caller();
    let reset = || {
        let answer = envoy.ask(request("shop", &[descriptor(&[("user", "ann")])]));
        let reset = answer.statuses[0].duration_until_reset.unwrap();
        (answer.passes(), Duration::new(reset.seconds as u64, reset.nanos as u32))
    };
    let begun = Instant::now();
    let (passes, first) = reset();
    assert!(passes && (59 * SECOND..=61 * SECOND).contains(&first), "{first:?}");
    while reset().0 {}
    let (_, later) = reset();
    assert!(later + begun.elapsed() >= 59 * SECOND && later <= first, "that of the first request: {later:?}");
}

#[test]
fn first_requests_are_answered_by_leases() {
    let server = Server::with_config(&ConfigFile::of(&[Template::fair("*", LIMIT as f64)]));
    let servers = [server.grpc().to_string()];
    // Without the patience of other tests.
    let gateway = Gateway::for_requests(&servers, &rules("second"), &["--first-wait-ms", "500"]);
    let envoy = gateway.caller();
    let denied = (0..200).filter(|user| !envoy.passes("shop", &[("user", &user.to_string())])).count();
    assert_eq!(denied, 0, "{}", gateway.log());
}

#[test]
fn a_gateway_that_does_not_reach_the_cluster_says_so_at_once() {
    let nowhere = ["127.0.0.1:1".to_owned()];
    let gateway = Gateway::for_requests(&nowhere, &rules("second"), &["--first-wait-ms", "10"]);
    eventually("the log names the server", || {
        let log = gateway.log();
        (log.contains("no server of the cluster answers (127.0.0.1:1: ") && log.contains("check --server"))
            .then_some(())
    });
    assert!(!gateway.caller().passes("shop", &[("user", "ann")]));
    eventually("the log tells this from a limit", || {
        gateway.log().contains("denied without a lease: the cluster does not answer").then_some(())
    });
    let metrics = gateway.metrics();
    assert!(metrics.contains("leaseway_gateway_without_lease_total{reason=\"unreachable\"} 1"), "{metrics}");
}
