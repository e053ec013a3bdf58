//! An RLS gateway and a control plane made of go-control-plane.

use serde_json::{Value, json};

use crate::harness::{
    authority::Authority,
    config::{ConfigFile, Template},
    gateway::Gateway,
    go_control_plane::GoControlPlane,
    server::Server,
    tls::text,
    wait::eventually,
};

fn server() -> Server {
    Server::with_config(&ConfigFile::of(&[Template::fair("*", 5.0 / 86_400.0)]))
}

fn gateway(server: &Server, control_plane: &str, flags: &[&str]) -> Gateway {
    Gateway::following(&[server.grpc().to_string()], control_plane, &[&["--rls-xds-node", "gw-1"], flags].concat())
}

/// A domain with a limit per day of a key.
fn shop(key: &str, requests: u32) -> Value {
    let limit = json!({ "unit": "DAY", "requests_per_unit": requests });
    json!([{ "name": "shop", "domain": "shop", "descriptors": [{ "key": key, "rate_limit": limit }] }])
}

/// Waits for a request after the first, and returns it.
fn told(control_plane: &GoControlPlane, is: impl Fn(&Value) -> bool) -> Value {
    eventually("the gateway answers", || control_plane.requests().into_iter().find(&is))
}

#[test]
#[cfg_attr(not(go_control_plane), ignore = "needs LEASEWAY_TEST_GO_CONTROL_PLANE")]
fn a_go_control_plane_changes_rules_gets_a_nack_and_restarts() {
    let server = server();
    let mut control_plane = GoControlPlane::start("127.0.0.1:0", "ads", None);
    let address = control_plane.address.to_string();
    let gateway = gateway(&server, &address, &[]);
    let envoy = gateway.caller();
    control_plane.set("1", &shop("user", 5));
    let accepted = told(&control_plane, |request| request["version"] == "1" && request["error"] == "");
    assert_eq!(accepted["node"], "gw-1");
    assert_eq!(envoy.count("shop", &[("user", "ann")], 9), 5);

    control_plane.set("2", &shop("", 5));
    let rejected = told(&control_plane, |request| request["error"] != "");
    let error = rejected["error"].as_str().unwrap();
    assert!(error.starts_with("resource `shop`: descriptors[0]: a descriptor needs a `key`"), "{error}");
    assert_eq!(rejected["version"], "1", "the version in force");
    // go-control-plane sends a rejected response again after each NACK. The gateway answers that with pauses.
    let rejections = || control_plane.requests().iter().filter(|request| request["error"] != "").count();
    eventually("the response is rejected again", || (rejections() > 1).then_some(()));
    assert_eq!(gateway.log().matches("rules of version `2` rejected").count(), 1, "{}", gateway.log());
    assert_eq!(envoy.count("shop", &[("user", "bob")], 9), 5);

    control_plane.set("3", &shop("new", 5));
    told(&control_plane, |request| request["version"] == "3");
    assert_eq!(envoy.count("shop", &[("new", "x")], 9), 5);

    drop(control_plane);
    eventually("the gateway notices", || gateway.metrics().contains("\nleaseway_rls_xds_connected 0\n").then_some(()));
    let mut control_plane = GoControlPlane::start(&address, "ads", None);
    told(&control_plane, |request| request["version"] == "3" && request["nonce"] == "");
    assert_eq!(envoy.count("shop", &[("new", "y")], 9), 5);
    control_plane.set("4", &shop("user", 5));
    told(&control_plane, |request| request["version"] == "4");
    assert_eq!((envoy.count("shop", &[("new", "z")], 9), envoy.count("shop", &[("user", "eve")], 9)), (9, 5));
}

#[test]
#[cfg_attr(not(go_control_plane), ignore = "needs LEASEWAY_TEST_GO_CONTROL_PLANE")]
fn a_go_control_plane_sends_changes_only() {
    let server = server();
    let mut control_plane = GoControlPlane::start("127.0.0.1:0", "ads", None);
    let address = control_plane.address.to_string();
    let gateway = gateway(&server, &address, &["--rls-xds-variant", "delta"]);
    let envoy = gateway.caller();
    let domain = |name: &str, key: &str| {
        let limit = json!({ "unit": "DAY", "requests_per_unit": 5 });
        json!({ "name": name, "domain": name, "descriptors": [{ "key": key, "rate_limit": limit }] })
    };
    let of = |name: &str| envoy.count(name, &[("user", "ann")], 9);
    control_plane.set("1", &json!([domain("shop", "user"), domain("other", "new")]));
    eventually("the first rules are in force", || gateway.page("/readyz").starts_with("ready").then_some(()));
    assert_eq!((of("shop"), of("other")), (5, 9));
    control_plane.set("2", &json!([domain("shop", "user"), domain("other", "user")]));
    eventually("the changed domain is in force", || (of("other") < 9).then_some(()));
    control_plane.set("3", &json!([domain("shop", "user"), domain("other", "")]));
    let rejected = told(&control_plane, |request| request["error"].as_str().is_some_and(|error| !error.is_empty()));
    assert!(rejected["error"].as_str().unwrap().contains("a descriptor needs a `key`"), "{rejected}");
    control_plane.set("4", &json!([domain("other", "user")]));
    eventually("the removed domain is gone", || (of("shop") == 9).then_some(()));
    drop(control_plane);
    eventually("the gateway notices", || gateway.metrics().contains("\nleaseway_rls_xds_connected 0\n").then_some(()));
    let mut control_plane = GoControlPlane::start(&address, "ads", None);
    control_plane.set("5", &json!([domain("other", "user"), domain("shop", "user")]));
    let again = told(&control_plane, |request| request["delta"] == true);
    let known = again["known"].as_object().expect("the resources in force");
    assert!(known.contains_key("other") && known.len() == 1, "{again}");
    eventually("the domain is back", || (envoy.count("shop", &[("user", "bob")], 9) < 9).then_some(()));
}

#[test]
#[cfg_attr(not(go_control_plane), ignore = "needs LEASEWAY_TEST_GO_CONTROL_PLANE")]
fn a_go_control_plane_is_verified_by_its_own_ca() {
    let server = server();
    let (authority, others) = (Authority::with_node_and_alice(), Authority::new("another"));
    let mut control_plane = GoControlPlane::start("127.0.0.1:0", "rls", Some(&authority.issued("node")));
    control_plane.set("1", &shop("user", 5));
    let address = format!("https://localhost:{}", control_plane.address.port());
    let wrong = gateway(&server, &address, &["--rls-xds-ca", &text(&others.path("ca.pem"))]);
    eventually("the log has the reason", || {
        let says = "not issued by a CA that is trusted here: pass the file of its CA with --rls-xds-ca";
        wrong.log().contains(says).then_some(())
    });
    assert!(wrong.log().contains("there are no rules yet, retrying in"), "{}", wrong.log());
    let gateway = gateway(&server, &address, &["--rls-xds-ca", &text(&authority.path("ca.pem"))]);
    told(&control_plane, |request| request["version"] == "1");
    assert_eq!(gateway.caller().count("shop", &[("user", "ann")], 9), 5);
}
