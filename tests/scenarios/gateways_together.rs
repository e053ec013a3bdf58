//! Several gateways share a limit.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicUsize, Ordering},
    },
    time::{Duration, Instant},
};

use tokio::{task::JoinHandle, time::sleep};

use crate::harness::{
    config::{ConfigFile, Template},
    gateway::Gateway,
    rls::{Answered as _, RlsCaller, descriptor, request},
    server::Server,
    wait::{block_on, eventually, runtime},
};

const CAPACITY: f64 = 100.0;

fn rules() -> ConfigFile {
    ConfigFile::new("domain: d\ndescriptors: [{key: k, rate_limit: {unit: second, requests_per_unit: 100}}]\n")
}

/// Asks without a pause, a little more or less, until it is told to stop.
struct Load {
    passed: Arc<AtomicUsize>,
    refused: Arc<AtomicUsize>,
    failed: Arc<AtomicUsize>,
    stop: Arc<AtomicBool>,
    task: JoinHandle<()>,
}

impl Load {
    fn on(envoy: RlsCaller, pause: Duration) -> Load {
        let [passed, refused, failed] = [(); 3].map(|()| Arc::<AtomicUsize>::default());
        let stop = Arc::<AtomicBool>::default();
        let counts = [&passed, &refused, &failed].map(Arc::clone);
        let stopped = Arc::clone(&stop);
        let task = runtime().spawn(async move {
            let [passed, refused, failed] = counts;
            let asked = request("d", &[descriptor(&[("k", "v")])]);
            while !stopped.load(Ordering::Relaxed) {
                let count = match envoy.should_rate_limit(asked.clone()).await {
                    Ok(answer) if answer.passes() => &passed,
                    Ok(_) => &refused,
                    Err(_) => &failed,
                };
                count.fetch_add(1, Ordering::Relaxed);
                sleep(pause).await;
            }
        });
        Load { passed, refused, failed, stop, task }
    }

    fn passed(&self) -> usize {
        self.passed.load(Ordering::Relaxed)
    }

    fn end(self) -> [usize; 3] {
        self.stop.store(true, Ordering::Relaxed);
        block_on(self.task).unwrap();
        [self.passed, self.refused, self.failed].map(|count| count.load(Ordering::Relaxed))
    }
}

fn passed(loads: &[Load]) -> usize {
    loads.iter().map(Load::passed).sum()
}

#[test]
fn five_gateways_under_uneven_load_let_pass_no_more_than_there_is() {
    let template = Template { lease: 6, refresh: 1, ..Template::fair("*", CAPACITY) };
    let server = Server::with_config(&ConfigFile::of(&[template]));
    let rules = rules();
    let gateways: Vec<Gateway> =
        (0..5).map(|_| Gateway::for_requests(&[server.grpc().to_string()], &rules, &[])).collect();
    let loads: Vec<Load> = gateways
        .iter()
        .zip([4, 8, 30, 100, 400])
        .map(|(gateway, pause)| Load::on(gateway.caller(), Duration::from_millis(pause)))
        .collect();
    // Each that begins has a bucket that is full, of what it is lent then.
    let begin = Instant::now();
    eventually("much has passed", || (passed(&loads) > 300).then_some(()));
    let (settled, before) = (Instant::now(), passed(&loads));
    assert!(
        before as f64 <= CAPACITY * begin.elapsed().as_secs_f64() + 6.0 * CAPACITY,
        "a burst for each gateway, at most"
    );
    // From here on buckets are as empty as load makes them: at most one burst is saved up in all.
    eventually("much more has passed", || (passed(&loads) > before + 300).then_some(()));
    let (later, spent) = (passed(&loads), settled.elapsed().as_secs_f64());
    assert!((later - before) as f64 <= CAPACITY * (spent + 1.0) + 5.0, "{} in {spent} s", later - before);
    let counts: Vec<_> = loads.into_iter().map(Load::end).collect();
    assert!(counts.iter().all(|[passed, _, failed]| *passed > 0 && *failed == 0), "{counts:?}");
    assert!(
        counts[0][0] > counts[3][0] && counts[0][1] > 0,
        "what has more load lets more pass, and not all: {counts:?}"
    );
}

#[test]
fn a_gateway_bears_more_descriptors_than_fit_into_a_request() {
    let template = Template { lease: 300, refresh: 60, ..Template::fair("*", CAPACITY) };
    let config = ConfigFile::of(&[template]);
    let server =
        Server::with_flags(&["--config", config.path(), "--max-resources", "200000", "--address-share", "100"]);
    let rules = rules();
    let gateway = Gateway::for_requests(
        &[server.grpc().to_string()],
        &rules,
        &["--address-share", "100", "--first-wait-ms", "0"],
    );
    let envoy = gateway.caller();
    const MANY: usize = 3_000;
    const LANES: usize = 8;
    let ask_all = || {
        let lanes = (0..LANES).map(|lane| {
            let envoy = envoy.clone();
            runtime().spawn(async move {
                let mut passed = 0;
                for n in (lane..MANY).step_by(LANES) {
                    let asked = request("d", &[descriptor(&[("k", &n.to_string())])]);
                    passed += usize::from(envoy.should_rate_limit(asked).await.unwrap().passes());
                }
                passed
            })
        });
        let lanes: Vec<_> = lanes.collect();
        let all = async {
            let mut passed = 0;
            for lane in lanes {
                passed += lane.await.unwrap();
            }
            passed
        };
        runtime().block_on(all)
    };
    ask_all();
    let metrics = gateway.metrics();
    assert!(metrics.contains("leaseway_gateway_resources_refused_total 0\n"), "{metrics}");
    eventually("all of them have a lease, and let pass", || (ask_all() == MANY).then_some(()));
    let log = gateway.log();
    assert!(!log.contains("WARN") && !log.contains("ERROR"), "{log}");
}
