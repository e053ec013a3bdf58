//! Limiters with real leases: rates, gauges, threads, middleware.

use std::{
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    thread,
    time::{Duration, Instant},
};

use leaseway_client::{Balanced, Client, Mode, OpenError, limiter::TryError};
use leaseway_proto::status::{GetStatusRequest, status_client::StatusClient};
use metrics_exporter_prometheus::PrometheusBuilder;
use tower_layer::Layer as _;

use crate::harness::{
    config::{self, ConfigFile, Template},
    server::Server,
    wait::{block_on, eventually, runtime},
};

fn client_of(server: &Server) -> Client {
    let _inside = runtime().enter();
    Client::builder().endpoint(server.grpc().to_string()).id("library").build().unwrap()
}

#[test]
fn a_rate_lets_pass_no_more_than_its_lease() {
    let server = Server::development();
    let client = client_of(&server);
    let rate = client.resource("searches").wants(1_000.0).rate().unwrap();
    block_on(rate.resource().answered()).unwrap();
    assert_eq!(rate.resource().capacity().get(), 100.0);
    let (from, passed) = (Instant::now(), Arc::new(AtomicU64::new(0)));
    for _ in 0..16 {
        let (rate, passed) = (rate.clone(), Arc::clone(&passed));
        runtime().spawn(async move {
            while rate.wait().await.is_ok() {
                passed.fetch_add(1, Ordering::Relaxed);
            }
        });
    }
    let passed = || passed.load(Ordering::Relaxed);
    eventually("a hundred have passed", || (passed() >= 100).then_some(()));
    let most = 100.0 * from.elapsed().as_secs_f64() + 2.0 + 16.0;
    assert!(passed() as f64 <= most, "{} in {:?}", passed(), from.elapsed());
    block_on(client.close());
    assert!(matches!(rate.try_acquire(1), Err(TryError::Closed)));
}

#[test]
fn a_lease_is_not_given_back_while_its_permits_are_in_use() {
    let server = Server::development();
    let client = client_of(&server);
    let gauge = client.resource("slots").wants(10.0).gauge().unwrap();
    let permit = block_on(gauge.acquire()).unwrap();
    drop((gauge, client));
    thread::sleep(Duration::from_millis(100));
    let holders = || server.status(&["slots"])["resources"][0]["holders"].clone();
    assert_eq!(holders(), 1);
    drop(permit);
    eventually("it is given back", || (holders() == 0).then_some(()));
}

#[test]
fn threads_wait_without_a_runtime() {
    let server = Server::development();
    let client = Client::builder().endpoint(server.grpc().to_string()).build_blocking().unwrap();
    let (rate, gauge) = (client.resource("searches").rate().unwrap(), client.resource("slots").gauge().unwrap());
    let passed = AtomicU64::new(0);
    thread::scope(|scope| {
        for _ in 0..8 {
            scope.spawn(|| {
                let _permit = gauge.blocking_acquire().unwrap();
                rate.blocking_wait().unwrap();
                passed.fetch_add(1, Ordering::Relaxed);
            });
        }
    });
    assert_eq!(passed.load(Ordering::Relaxed), 8);
    client.blocking_close();
    assert!(rate.blocking_wait().is_err());
}

#[test]
fn a_tonic_client_waits_for_its_turn_in_one_line() {
    let server = Server::development();
    let client = client_of(&server);
    let calls = client.resource("calls").wants(100.0).rate().unwrap();
    let slots = client.resource("slots").wants(1.0).gauge().unwrap();
    let limited = calls.layer().layer(slots.layer().layer(server.channel()));
    let mut service = StatusClient::new(limited);
    for _ in 0..5 {
        block_on(service.get_status(GetStatusRequest::default())).unwrap();
    }
    eventually("the permit is back", || (slots.in_use() == 0).then_some(()));
    block_on(client.close());
    let refused = block_on(service.get_status(GetStatusRequest::default())).unwrap_err();
    assert!(refused.message().contains("closed"), "{refused:?}");
}

#[test]
fn an_optimistic_client_works_without_any_server() {
    let _inside = runtime().enter();
    let client = Client::builder().endpoint("127.0.0.1:1").mode(Mode::Optimistic).build().unwrap();
    let rate = client.resource("searches").wants(50.0).rate().unwrap();
    block_on(rate.wait()).unwrap();
    assert!(client.health().failures > 0);
}

#[test]
fn turns_among_backends_follow_their_leases() {
    let templates = [Template::fair("search/a", 700.0), Template::fair("search/b", 300.0), Template::fair("*", 1.0)];
    let server = Server::with_config(&ConfigFile::new(&config::text(&templates)));
    let client = client_of(&server);
    let rates = ["search/a", "search/b"].map(|id| client.resource(id).wants(1_000.0).rate().unwrap());
    for rate in &rates {
        block_on(rate.resource().answered()).unwrap();
    }
    let search = {
        let _inside = runtime().enter();
        Balanced::new(rates).unwrap()
    };
    eventually("both leases have arrived", || {
        let balancer = search.balancer();
        (balancer.is_enabled(0) && balancer.is_enabled(1)).then_some(())
    });
    let turn = || block_on(search.wait()).unwrap().backend().resource().id().replace("search/", "");
    assert_eq!((0..20).map(|_| turn()).collect::<String>(), "abaaabaabaabaaabaaba");
    search.failed(0);
    assert_eq!((0..5).map(|_| turn()).collect::<String>(), "bbbbb");
    search.failed(1);
    // No server is left: it waits, until the client is closed.
    let waiting = runtime().spawn({
        let search = search.clone();
        async move { search.wait().await.map(|turn| turn.index()) }
    });
    thread::sleep(Duration::from_millis(50));
    assert!(!waiting.is_finished());
    block_on(client.close());
    assert!(block_on(waiting).unwrap().is_err());
    let estimated = client_of(&server).resource("search/c").rate().unwrap();
    assert!(matches!(Balanced::new([estimated]), Err(OpenError::NoWants(_))));
}

#[test]
fn what_a_client_does_is_counted_under_the_names_that_doorman_gave() {
    let server = Server::development();
    let recorder = PrometheusBuilder::new().build_recorder();
    let metrics = recorder.handle();
    // The recorder is this thread's: the client has to live on it as well.
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    metrics::with_local_recorder(&recorder, || {
        runtime.block_on(async {
            let client = Client::builder().endpoint(server.grpc().to_string()).build().unwrap();
            client.resource("searches").wants(1.0).open().unwrap().answered().await.unwrap();
            client.close().await;
        });
    });
    let shown = metrics.render();
    let address = server.grpc();
    for line in [
        format!("doorman_client_requests{{method=\"GetCapacity\",server=\"{address}\"}} 1"),
        format!("doorman_client_requests{{method=\"ReleaseCapacity\",server=\"{address}\"}} 1"),
        format!("doorman_client_request_durations_count{{method=\"GetCapacity\",server=\"{address}\"}} 1"),
    ] {
        assert!(shown.contains(&line), "`{line}` is not in\n{shown}");
    }
}
