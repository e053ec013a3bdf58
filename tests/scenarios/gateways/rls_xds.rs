//! An RLS gateway that takes its rules from an xDS control plane, as envoyproxy/ratelimit does.

use leaseway_proto::envoy::ratelimit_discovery::{RateLimitPolicy, RateLimitUnit};
use tonic::Code;
use tonic_health::pb::{HealthCheckRequest, health_check_response::ServingStatus, health_client::HealthClient};

use crate::harness::{
    config::{ConfigFile, Template},
    control_plane::{ControlPlane, Service, config},
    gateway::Gateway,
    peers::channel,
    process::leaseway,
    rls::{Entries, descriptor, request},
    server::{ANYWHERE, Server},
    wait::{block_on, eventually},
};

const ANN: Entries<'static> = &[("user", "ann")];

fn server() -> Server {
    // Five permits per day, so that none is refilled during a test.
    Server::with_config(&ConfigFile::of(&[Template::fair("*", 5.0 / 86_400.0)]))
}

fn gateway(server: &Server, control_plane: &ControlPlane, flags: &[&str]) -> Gateway {
    Gateway::following(&[server.grpc().to_string()], &control_plane.address.to_string(), flags)
}

fn health(gateway: &Gateway) -> ServingStatus {
    let service = "envoy.service.ratelimit.v3.RateLimitService".to_owned();
    block_on(HealthClient::new(channel(gateway.rls())).check(HealthCheckRequest { service }))
        .unwrap()
        .into_inner()
        .status()
}

fn five_per_day() -> RateLimitPolicy {
    RateLimitPolicy { unit: RateLimitUnit::Day.into(), requests_per_unit: 5, ..RateLimitPolicy::default() }
}

#[test]
fn rules_follow_the_control_plane_and_the_last_good_ones_stay() {
    let server = server();
    let control_plane = ControlPlane::start(Service::Aggregated);
    let gateway = gateway(&server, &control_plane, &["--rls-xds-node", "gw-1", "--rls-xds-metadata", "zone=a"]);
    let envoy = gateway.caller();

    let early = block_on(envoy.should_rate_limit(request("shop", &[descriptor(ANN)]))).expect_err("no rules yet");
    assert_eq!(early.code(), Code::Unavailable, "{early:?}");
    assert!(gateway.page("/readyz").contains("waiting for the first rules"), "{}", gateway.page("/readyz"));
    assert_eq!(health(&gateway), ServingStatus::NotServing);
    assert!(gateway.log().contains("waiting for rules from the xDS control plane"), "{}", gateway.log());

    control_plane.set("1", &[config("shop", &[("user", five_per_day())])]);
    control_plane.accepted("1");
    assert_eq!(envoy.count("shop", ANN, 10), 5);
    eventually("the gateway is healthy", || (health(&gateway) == ServingStatus::Serving).then_some(()));
    assert!(gateway.page("/readyz").starts_with("ready"), "{}", gateway.page("/readyz"));
    assert_eq!(
        gateway.page("/rlconfig"),
        "shop.user: unit=DAY requests_per_unit=5, shadow_mode: false, quota_mode: false\n"
    );
    assert!(gateway.page("/rlconfig/resources").contains("- identifier_glob: \"shop/user=*\""));

    let fortnight = RateLimitPolicy { unit: 14, ..five_per_day() };
    control_plane.set("2", &[config("shop", &[("new", fortnight)])]);
    let rejected = control_plane.answer("2");
    let error = rejected.error_detail.as_ref().expect("a NACK");
    let says = "resource `shop`: descriptors[0].rate_limit.unit: unknown unit `14`; known: second, minute,";
    assert!(error.message.starts_with(says) && error.code == Code::InvalidArgument as i32, "{error:?}");
    assert_eq!(rejected.version_info, "1", "the version in force");
    let new = &[("new", "x")][..];
    assert_eq!((envoy.count("shop", new, 9), envoy.count("shop", &[("user", "bob")], 9)), (9, 5));
    assert!(gateway.metrics().contains("leaseway_rls_reloads_total{outcome=\"rejected\"} 1"), "{}", gateway.metrics());

    control_plane.set("3", &[config("shop", &[("new", five_per_day())])]);
    control_plane.accepted("3");
    assert_eq!((envoy.count("shop", new, 9), envoy.count("shop", ANN, 9)), (5, 9));

    let address = control_plane.address;
    let connected = |number| gateway.metrics().contains(&format!("\nleaseway_rls_xds_connected {number}\n"));
    assert!(connected(1));
    drop(control_plane);
    eventually("the gateway notices", || connected(0).then_some(()));
    assert_eq!(envoy.count("shop", &[("new", "y")], 9), 5, "the last good rules stay");
    let control_plane = ControlPlane::on(address, Service::Aggregated);
    control_plane.set("4", &[config("shop", &[("user", five_per_day())]), config("other", &[("new", five_per_day())])]);
    control_plane.accepted("4");
    assert_eq!((envoy.count("other", &[("new", "z")], 9), envoy.count("shop", new, 9)), (5, 9));
    let first = &control_plane.received()[0].request;
    assert_eq!((&*first.version_info, &*first.response_nonce), ("3", ""), "a new stream begins with what is in force");
    let node = first.node.as_ref().expect("the first request has the node");
    assert!(node.id == "gw-1" && node.metadata.as_ref().is_some_and(|data| data.fields.contains_key("zone")));
}

#[test]
fn the_dedicated_service_is_used_where_there_is_no_aggregated_one() {
    let server = server();
    let control_plane = ControlPlane::start(Service::Dedicated);
    control_plane.set("1", &[config("shop", &[("user", five_per_day())])]);
    let token = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(token.path(), "secret\n").unwrap();
    let gateway = gateway(&server, &control_plane, &["--rls-xds-token-file", token.path().to_str().unwrap()]);
    control_plane.accepted("1");
    assert_eq!(gateway.caller().count("shop", ANN, 9), 5);
    let first = &control_plane.received()[0];
    assert_eq!(first.token.as_deref(), Some("Bearer secret"));
    assert_eq!(first.request.node.as_ref().map(|node| &*node.id), Some("default"));
}

#[test]
fn an_empty_configuration_limits_nothing() {
    let server = server();
    let control_plane = ControlPlane::start(Service::Aggregated);
    control_plane.set("1", &[]);
    let gateway = gateway(&server, &control_plane, &[]);
    control_plane.accepted("1");
    assert_eq!(gateway.caller().count("shop", ANN, 9), 9);
    assert!(gateway.page("/readyz").starts_with("ready"), "{}", gateway.page("/readyz"));
}

#[test]
fn files_and_a_control_plane_exclude_each_other() {
    let both = ["--ratelimit-config", "rules", "--rls-xds", "localhost"];
    for (flags, says) in
        [(&both[..], "'--rls-xds <HOST:PORT>'"), (&[], "<--ratelimit-config <FILE|DIR,…>|--rls-xds <HOST:PORT>>")]
    {
        let output = leaseway(&[&["gateway", "--rls", ANYWHERE], flags].concat());
        assert!(output.code == Some(2) && output.stderr.contains(says), "{output:?}");
    }
}
