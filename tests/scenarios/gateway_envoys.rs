//! Three real Envoys share a limit by quotas, in front of a backend that counts.

use std::{
    io::{Read as _, Write as _},
    net::{SocketAddr, TcpListener, TcpStream},
    path::Path,
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    thread,
    time::{Duration, Instant},
};

use crate::harness::{
    config::{ConfigFile, Template},
    envoy::{self, Envoy, cluster, cluster_of, socket},
    gateway::Gateway,
    peers::Peers,
    wait::eventually,
};

const CAPACITY: f64 = 90.0;

/// Notes when each request came.
struct Backend {
    address: SocketAddr,
    came: Arc<Mutex<Vec<Instant>>>,
}

impl Backend {
    fn start() -> Backend {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let (address, came) = (listener.local_addr().unwrap(), Arc::<Mutex<Vec<Instant>>>::default());
        let noted = Arc::clone(&came);
        thread::spawn(move || {
            for stream in listener.incoming().map_while(Result::ok) {
                let noted = Arc::clone(&noted);
                thread::spawn(move || attend(stream, &noted));
            }
        });
        Backend { address, came }
    }

    fn count(&self) -> usize {
        self.came.lock().unwrap().len()
    }

    /// By how much more came, in any span of time, than so many per second.
    fn excess(&self, rate: f64) -> f64 {
        let came = self.came.lock().unwrap();
        let (mut lowest, mut excess) = (f64::INFINITY, f64::NEG_INFINITY);
        for (before, at) in came.iter().enumerate() {
            let due = at.duration_since(came[0]).as_secs_f64() * rate;
            lowest = lowest.min(before as f64 - due);
            excess = excess.max(before as f64 + 1.0 - due - lowest);
        }
        excess
    }
}

fn attend(mut stream: TcpStream, came: &Mutex<Vec<Instant>>) {
    let (mut seen, mut buffer) = (Vec::new(), [0; 4096]);
    while let Ok(read @ 1..) = stream.read(&mut buffer) {
        seen.extend_from_slice(&buffer[..read]);
        if seen.ends_with(b"\r\n\r\n") {
            seen.clear();
            came.lock().unwrap().push(Instant::now());
            if stream.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok").is_err() {
                return;
            }
        }
    }
}

/// Asks an Envoy so many times a second, as far as the machine can, until it is dropped.
struct Driver {
    rate: Arc<AtomicU64>,
    passed: Arc<AtomicU64>,
    stop: Arc<AtomicBool>,
}

impl Driver {
    fn start(envoy: SocketAddr, rate: u64) -> Driver {
        let driver = Driver { rate: Arc::new(rate.into()), passed: Arc::default(), stop: Arc::default() };
        let (rate, passed, stop) = (Arc::clone(&driver.rate), Arc::clone(&driver.passed), Arc::clone(&driver.stop));
        thread::spawn(move || {
            let mut stream = TcpStream::connect(envoy).unwrap();
            let mut buffer = [0; 4096];
            while !stop.load(Ordering::Relaxed) {
                let begun = Instant::now();
                stream.write_all(b"GET / HTTP/1.1\r\nHost: shop\r\n\r\n").unwrap();
                let read = stream.read(&mut buffer).unwrap();
                passed.fetch_add(buffer[..read].starts_with(b"HTTP/1.1 200").into(), Ordering::Relaxed);
                let pause = Duration::from_secs(1) / rate.load(Ordering::Relaxed) as u32;
                thread::sleep(pause.saturating_sub(begun.elapsed()));
            }
        });
        driver
    }

    fn passed(&self) -> u64 {
        self.passed.load(Ordering::Relaxed)
    }
}

impl Drop for Driver {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
    }
}

/// As docs/guide/envoy.md has it.
fn config(name: &str, listener: SocketAddr, backend: SocketAddr, gateways: &[SocketAddr]) -> String {
    let (backend, gateway) = (cluster("backend", backend, false), cluster_of("leaseway", gateways, true));
    format!(
        "static_resources:
  listeners:
  - address: {}
    filter_chains:
    - filters:
      - name: envoy.filters.network.http_connection_manager
        typed_config:
          \"@type\": type.googleapis.com/envoy.extensions.filters.network.http_connection_manager.v3.HttpConnectionManager
          stat_prefix: ingress
          http_filters:
          - name: envoy.filters.http.rate_limit_quota
            typed_config:
              \"@type\": type.googleapis.com/envoy.extensions.filters.http.rate_limit_quota.v3.RateLimitQuotaFilterConfig
              domain: shop
              rlqs_server:
                envoy_grpc: {{cluster_name: leaseway}}
                initial_metadata: [{{key: leaseway-client, value: {name}}}]
              bucket_matchers:
                on_no_match:
                  action:
                    name: quota
                    typed_config:
                      \"@type\": type.googleapis.com/envoy.extensions.filters.http.rate_limit_quota.v3.RateLimitQuotaBucketSettings
                      reporting_interval: 5s
                      bucket_id_builder: {{bucket_id_builder: {{route: {{string_value: cart}}}}}}
                      no_assignment_behavior: {{fallback_rate_limit: {{blanket_rule: DENY_ALL}}}}
                      deny_response_settings: {{http_status: {{code: 429}}, http_body: {{value: \"\"}}}}
          - name: envoy.filters.http.router
            typed_config:
              \"@type\": type.googleapis.com/envoy.extensions.filters.http.router.v3.Router
          route_config:
            virtual_hosts:
            - name: all
              domains: [\"*\"]
              routes:
              - match: {{prefix: /}}
                route: {{cluster: backend}}
  clusters:
{backend}{gateway}",
        socket(listener)
    )
}

fn start(binary: &Path, name: &str, backend: &Backend, gateways: &[&Gateway]) -> Envoy {
    let gateways: Vec<SocketAddr> = gateways.iter().map(|gateway| gateway.rlqs()).collect();
    Envoy::start(binary, |listener| config(name, listener, backend.address, &gateways))
}

/// Waits until each has let through so many more.
fn pass(what: &str, drivers: &[Driver], more: u64) {
    let before: Vec<u64> = drivers.iter().map(Driver::passed).collect();
    eventually(what, || {
        drivers.iter().zip(&before).all(|(driver, before)| driver.passed() >= before + more).then_some(())
    });
}

#[test]
fn three_envoys_let_through_no_more_than_there_is_whatever_is_offered_and_a_dead_master_stops_none() {
    let Some(binary) = envoy::binary() else { return };
    let template = Template { lease: 30, refresh: 2, ..Template::fair("shop/*", CAPACITY) };
    let mut peers = Peers::start(3, ConfigFile::of(&[template]), &[]);
    let gateway = Gateway::for_quotas(&peers.endpoints(), &["--assignment-secs", "4", "--id", "gateway-1"]);
    let backend = Backend::start();
    let envoys = ["envoy-1", "envoy-2", "envoy-3"].map(|name| start(&binary, name, &backend, &[&gateway]));
    let offered = envoys.iter().zip([200, 50, 10]);
    let drivers: Vec<Driver> = offered.map(|(envoy, rate)| Driver::start(envoy.listener, rate)).collect();
    pass("each has a share", &drivers, 30);
    eventually("what is offered most gets most", || {
        let status = peers.status(peers.master(), &["shop/route=cart"]);
        (status["resources"][0]["wants"].as_f64()? > CAPACITY).then_some(())
    });
    drivers[2].rate.store(200, Ordering::Relaxed);
    drivers[0].rate.store(10, Ordering::Relaxed);
    pass("what is offered elsewhere moves there", &drivers, 60);
    peers.kill(peers.master());
    pass("leases live on without a master", &drivers, 10);
    peers.master();
    pass("the next master goes on", &drivers, 100);
    drop(drivers);
    let excess = backend.excess(CAPACITY);
    // All buckets of tokens together hold what comes in a second.
    assert!(excess <= CAPACITY, "{excess} more than {CAPACITY} a second came, of {}", backend.count());
}

/// Leases outlast the test: what a killed gateway took with it would not come back.
#[test]
fn three_envoys_whose_gateway_is_killed_go_on_at_another() {
    let Some(binary) = envoy::binary() else { return };
    let template = Template { refresh: 2, ..Template::fair("shop/*", CAPACITY) };
    let peers = Peers::start(3, ConfigFile::of(&[template]), &[]);
    let [first, second] = ["gateway-1", "gateway-2"].map(|id| Gateway::for_quotas(&peers.endpoints(), &["--id", id]));
    let backend = Backend::start();
    let envoys = ["envoy-1", "envoy-2", "envoy-3"].map(|name| start(&binary, name, &backend, &[&first, &second]));
    let offered = envoys.iter().zip([80, 50, 30]);
    let drivers: Vec<Driver> = offered.map(|(envoy, rate)| Driver::start(envoy.listener, rate)).collect();
    pass("each has a share", &drivers, 30);
    eventually("all is leased", || {
        let status = peers.status(peers.master(), &["shop/route=cart"]);
        (status["resources"][0]["granted"].as_f64()? > CAPACITY * 0.99).then_some(())
    });
    first.kill();
    pass("the other gateway has their leases", &drivers, 300);
    drop(drivers);
    let excess = backend.excess(CAPACITY);
    assert!(excess <= CAPACITY, "{excess} more than {CAPACITY} a second came, of {}", backend.count());
}
