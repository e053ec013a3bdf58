//! Limiters of the client library with real leases: gauges, threads, middleware, balancing, metrics.

use leaseway_client::{Balanced, Client, OpenError};
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
fn a_lease_is_not_released_while_its_permits_are_in_use() {
    let server = Server::shared();
    let client = client_of(server);
    let gauge = client.resource("slots in use").wants(10.0).gauge().unwrap();
    let permit = block_on(gauge.acquire()).unwrap();
    let marker = client.resource("released later").wants(1.0).gauge().unwrap();
    drop(block_on(marker.acquire()).unwrap());
    drop((gauge, client));
    // A release by that drop would reach the server no later than this one.
    drop(marker);
    let holders = |id: &str| server.status(&[id])["resources"][0]["holders"].clone();
    eventually("the later lease is released", || (holders("released later") == 0).then_some(()));
    assert_eq!(holders("slots in use"), 1);
    drop(permit);
    eventually("the lease is released", || (holders("slots in use") == 0).then_some(()));
}

#[test]
fn a_layer_limits_a_tonic_client() {
    let server = Server::shared();
    let client = client_of(server);
    let calls = client.resource("layer calls").wants(100.0).rate().unwrap();
    let slots = client.resource("layer slots").wants(1.0).gauge().unwrap();
    let limited = calls.layer().layer(slots.layer().layer(server.channel()));
    let mut service = StatusClient::new(limited);
    for _ in 0..5 {
        block_on(service.get_status(GetStatusRequest::default())).unwrap();
    }
    eventually("the permit is returned", || (slots.in_use() == 0).then_some(()));
    block_on(client.close());
    let refused = block_on(service.get_status(GetStatusRequest::default())).unwrap_err();
    assert!(refused.message().contains("closed"), "{refused:?}");
}

#[test]
fn balancing_follows_the_leases_of_backends() {
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
    eventually("both leases arrive", || {
        let balancer = search.balancer();
        (balancer.is_enabled(0) && balancer.is_enabled(1)).then_some(())
    });
    let turn = || block_on(search.wait()).unwrap().backend().resource().id().replace("search/", "");
    assert_eq!((0..20).map(|_| turn()).collect::<String>(), "abaaabaabaabaaabaaba");
    search.failed(0);
    assert_eq!((0..5).map(|_| turn()).collect::<String>(), "bbbbb");
    search.failed(1);
    // Without a backend, `wait` waits until the client is closed.
    let waiting = runtime().spawn({
        let search = search.clone();
        async move { search.wait().await.map(|turn| turn.index()) }
    });
    block_on(client.close());
    assert!(block_on(waiting).unwrap().is_err());
    let estimated = client_of(&server).resource("search/c").rate().unwrap();
    assert!(matches!(Balanced::new([estimated]), Err(OpenError::EstimatedWants(_))));
}

#[test]
fn client_requests_are_counted_under_doormans_metric_names() {
    let server = Server::shared();
    let recorder = PrometheusBuilder::new().build_recorder();
    let metrics = recorder.handle();
    // The recorder is local to this thread, so the client runs on it.
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    metrics::with_local_recorder(&recorder, || {
        runtime.block_on(async {
            let client = Client::builder().endpoint(server.grpc().to_string()).build().unwrap();
            client.resource("counted").wants(1.0).open().unwrap().answered().await.unwrap();
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
