//! A gateway for quotas (RLQS).

use tonic::Code;

use crate::harness::{
    config::{ConfigFile, Template},
    gateway::Gateway,
    peers::Peers,
    quotas::QuotaStream,
    server::Server,
    tree::Tree,
    wait::eventually,
};

/// Leases outlast the test, so that only a release frees capacity.
fn server(capacity: f64) -> Server {
    Server::with_config(&ConfigFile::of(&[Template::fair("shop/*", capacity)]))
}

fn gateway(server: &Server, flags: &[&str]) -> Gateway {
    Gateway::for_quotas(
        &[server.grpc().to_string()],
        &[&["--assignment-secs", "2", "--id", "gateway-1"], flags].concat(),
    )
}

/// The capacity held for the only bucket.
fn held(server: &Server) -> f64 {
    server.status(&["shop/route=cart"])["resources"][0]["held"].as_f64().unwrap_or_default()
}

#[test]
fn assignments_start_with_the_first_report_and_follow_the_load() {
    let server = server(100.0);
    let gateway = gateway(&server, &[]);
    let mut stream = gateway.stream(Some("envoy-1"));
    stream.report("shop", "cart", 0, 0, 1);
    assert_eq!(stream.assigned("cart"), (10.0, 2), "the first assignment, before any usage is known");
    stream.report("shop", "cart", 5, 50, 200);
    let (rate, _) = std::iter::repeat_with(|| stream.assigned("cart")).find(|(rate, _)| *rate != 10.0).unwrap();
    assert!(rate > 10.0 && rate <= 100.0, "{rate}");
    assert!(gateway.metrics().contains("leaseway_rlqs_streams 1"), "{}", gateway.metrics());
}

/// A stream of an Envoy that reports enough requests to be assigned more than 80 of 100.
fn with_most_of_it(gateway: &Gateway) -> QuotaStream {
    let mut stream = gateway.stream(Some("envoy-1"));
    stream.report("shop", "cart", 0, 0, 1);
    stream.report("shop", "cart", 5, 425, 0);
    eventually("the Envoy is assigned more than 80", || (stream.assigned("cart").0 > 80.0).then_some(()));
    stream
}

#[test]
fn another_gateway_takes_over_the_leases_of_a_stopped_one() {
    let server = server(100.0);
    let stopped = gateway(&server, &[]);
    let mut stream = with_most_of_it(&stopped);
    let output = stopped.stop();
    assert_eq!(output.code, Some(0), "{output:?}");
    let ended = loop {
        if let Err(status) = stream.next() {
            break status;
        }
    };
    assert_eq!(ended.code(), Code::Unavailable, "{ended:?}");
    assert!(held(&server) > 80.0, "the leases of the Envoy are kept");
    let other = Gateway::for_quotas(&[server.grpc().to_string()], &["--assignment-secs", "2", "--id", "gateway-2"]);
    let mut stream = other.stream(Some("envoy-1"));
    stream.report("shop", "cart", 5, 425, 0);
    assert!(stream.assigned("cart").0 > 80.0);
}

#[test]
fn a_new_bucket_keeps_its_lease_across_a_failover() {
    let template = Template { refresh: 1, ..Template::fair("shop/*", 100.0) };
    let mut peers = Peers::start(3, ConfigFile::of(&[template]), &[]);
    let gateway = Gateway::for_quotas(&peers.endpoints(), &["--assignment-secs", "4", "--id", "gateway-1"]);
    let stream = with_most_of_it(&gateway);
    peers.kill(peers.master());
    let master = peers.master();
    eventually("the next master knows the lease", || {
        stream.report("shop", "cart", 5, 425, 0);
        std::thread::sleep(std::time::Duration::from_millis(200));
        let status = peers.status(master, &[]);
        let granted = status["resources"].as_array()?.iter().find(|one| one["resource"] == "shop/route=cart")?;
        (granted["granted"].as_f64()? > 80.0).then_some(())
    });
}

#[test]
fn envoys_at_different_leaves_share_the_roots_capacity() {
    let template = Template { refresh: 1, ..Template::fair("shop/*", 12.0) };
    let tree = Tree::start(1, 2, ConfigFile::of(&[template]));
    let start = |leaf: &Vec<String>| Gateway::for_quotas(leaf, &["--assignment-secs", "2"]);
    let gateways: Vec<_> = tree.endpoints().iter().map(start).collect();
    let mut streams: Vec<_> = gateways.iter().map(|gateway| gateway.stream(Some("envoy"))).collect();
    for stream in &mut streams {
        stream.report("shop", "cart", 0, 0, 1);
    }
    let mut told = [0.0; 2];
    eventually("each Envoy has half", || {
        for (stream, told) in streams.iter_mut().zip(&mut told) {
            *told = stream.assigned("cart").0;
        }
        (told == [6.0; 2]).then_some(())
    });
}
