//! RLS gateways that declare the templates of their rules to the cluster (`--declare`).

use std::{
    fs::File,
    time::{Duration, UNIX_EPOCH},
};

use leaseway_proto::envoy::ratelimit::{
    RateLimitDescriptor, rate_limit_descriptor::RateLimitOverride, rate_limit_response::rate_limit::Unit,
};
use serde_json::Value;

use crate::harness::{
    bearer::TokenFiles,
    config::{self, ConfigFile, Template},
    gateway::Gateway,
    peers::{Peers, channel},
    rls::{Answered as _, Entries, RlsCaller, descriptor, request},
    server::{ANYWHERE, Server},
    wait::eventually,
};

/// Nothing passes without a declaration.
fn nothing() -> Template<'static> {
    Template::fair("*", 0.0)
}

fn text(domain: &str, per_day: u32) -> String {
    // Limits per day, so that no permits are refilled during a test.
    format!("domain: {domain}\ndescriptors: [{{key: user, rate_limit: {{unit: day, requests_per_unit: {per_day}}}}}]\n")
}

fn rules(per_day: u32) -> ConfigFile {
    ConfigFile::new(&text("shop", per_day))
}

fn user(name: &str) -> [(&'static str, &str); 1] {
    [("user", name)]
}

fn gateway(peers: &Peers, admin: usize, rules: &ConfigFile, flags: &[&str]) -> Gateway {
    let admin = peers.admin(admin).to_string();
    let own = ["--declare", "--declare-admin", &admin];
    Gateway::for_requests(&peers.endpoints(), rules, &[&own[..], flags].concat())
}

fn has(gateway: &Gateway, metric: &str) -> bool {
    gateway.metrics().lines().any(|line| line == metric)
}

fn is_declared(gateway: &Gateway) {
    gateway.await_declared();
    assert!(gateway.page("/readyz").starts_with("ready: "), "{}", gateway.page("/readyz"));
}

fn names(peers: &Peers, peer: usize) -> Vec<String> {
    let listed: Value = serde_json::from_str(&peers.operated(peer, &["declarations", "list", "--json"])).unwrap();
    listed["declarations"].as_array().unwrap().iter().map(|one| one["name"].as_str().unwrap().to_owned()).collect()
}

fn count(gateway: &Gateway, domain: &str, entries: Entries<'_>) -> usize {
    gateway.caller().count(domain, entries, 20)
}

#[test]
fn limits_are_written_in_the_rules_only() {
    let mut peers = Peers::start(3, ConfigFile::of(&[nothing()]), &[]);
    let rules = rules(5);
    let one = gateway(&peers, peers.follower(), &rules, &[]);
    is_declared(&one);
    assert_eq!(count(&one, "shop", &user("ann")), 5);
    let status = peers.status(peers.master(), &["shop/user=ann"]);
    assert_eq!(status["resources"][0]["template"], "rls/shop: shop/user=*", "{status}");
    let listed = peers.operated(peers.follower(), &["declarations", "list"]);
    assert!(listed.contains("rls/shop") && listed.contains("anonymous"), "{listed}");

    let other_rules = ConfigFile::new(&text("shop", 5));
    let other = gateway(&peers, peers.master(), &other_rules, &[]);
    is_declared(&other);
    assert!(other.log().contains("changed=false"), "the same content: {}", other.log());
    assert_eq!(count(&one, "shop", &user("bob")) + count(&other, "shop", &user("bob")), 5, "they share the limit");

    rules.replace(&text("shop", 8));
    eventually("the new limit is declared", || {
        peers.operated(0, &["declarations", "show", "rls/shop"]).contains("8 per day").then_some(())
    });
    assert_eq!(count(&one, "shop", &user("carol")), 8);
    drop(other);

    peers.kill(peers.master());
    let master = peers.master();
    // A new user each time: those of an attempt that was refused in part have fewer permits left.
    let mut users = 0;
    eventually("the next master keeps the declaration", || {
        users += 1;
        (count(&one, "shop", &user(&format!("dan-{users}"))) == 8).then_some(())
    });
    rules.replace(&text("store", 3));
    eventually("the other domain is declared instead", || (names(&peers, master) == ["rls/store"]).then_some(()));
    assert_eq!(count(&one, "store", &user("eve")), 3);
    assert!(peers.operated(master, &["declarations", "delete", "rls/store"]).contains("rls/store deleted"));
    assert_eq!(count(&one, "store", &user("fay")), 0, "the configuration's `*` applies");
    let unknown = peers.operate(master, &["declarations", "delete", "rls/store"]);
    assert!(unknown.code == Some(1) && unknown.stderr.contains("no declaration `rls/store`"), "{unknown:?}");
}

#[test]
fn older_rules_do_not_replace_newer_ones() {
    let peers = Peers::start(1, ConfigFile::of(&[nothing()]), &[]);
    let newest = gateway(&peers, 0, &rules(5), &[]);
    is_declared(&newest);
    let old = rules(9);
    let modified = UNIX_EPOCH + Duration::from_secs(1_000_000_000);
    File::options().write(true).open(old.path()).unwrap().set_modified(modified).unwrap();
    let older = gateway(&peers, 0, &old, &[]);
    let page = eventually("the older gateway says so", || {
        Some(older.page("/readyz")).filter(|page| page.contains("cannot declare"))
    });
    let says = "version 1000000000000 of `rls/shop` is not newer";
    assert!(page.starts_with("ready, but ") && page.contains("which is in force") && page.contains(says), "{page}");
    assert!(has(&older, "leaseway_rls_declared 0"), "{}", older.metrics());
    assert_eq!(count(&newest, "shop", &user("ann")), 5);
    old.replace(&text("shop", 5));
    is_declared(&older);
}

#[test]
fn a_gateway_declares_only_what_the_policy_allows() {
    let tokens = TokenFiles::of(&["cart", "shop", "ops"]);
    let access = "\
access:
- {name: probe, who: anonymous, may: ask, resources: probe, clients: probe}
- {name: gateways, who: [cart, shop], may: ask}
- {name: declares, who: [cart, shop], may: declare, resources: \"{identity}/*\"}
- {name: ops, who: ops, may: [read, declare]}
";
    let config = ConfigFile::new(&format!("{}{access}", config::text(&[nothing()])));
    let peers = Peers::start(1, config, &["--tokens", &tokens.server()]);
    let rules = rules(5);
    let start =
        |identity: &str| gateway(&peers, 0, &rules, &["--id", identity, "--token-file", &tokens.of_identity(identity)]);
    let denied = start("cart");
    let page = eventually("the gateway says that it is refused", || {
        Some(denied.page("/readyz")).filter(|page| page.contains("cannot declare"))
    });
    let says = "`cart` may not declare templates for `shop/user=*`: no rule allows this";
    assert!(page.contains(says) && denied.log().contains(says), "{page}");
    assert!(!has(&denied, "leaseway_rls_declarations_total{outcome=\"failed\"} 0"), "{}", denied.metrics());
    assert_eq!(count(&denied, "shop", &user("ann")), 0);
    let allowed = start("shop");
    is_declared(&allowed);
    assert_eq!(count(&allowed, "shop", &user("bob")), 5);
    let delete = |identity: &str| {
        let token = tokens.of_identity(identity);
        peers.operate(0, &["declarations", "delete", "rls/shop", "--token-file", &token])
    };
    let refused = delete("cart");
    assert!(refused.code != Some(0) && refused.stderr.contains("may not declare"), "{refused:?}");
    assert_eq!(delete("ops").code, Some(0));
}

#[test]
fn a_gateway_within_a_server_declares_to_its_cluster() {
    let (data, templates, rules) = (tempfile::tempdir().unwrap(), ConfigFile::of(&[nothing()]), rules(5));
    let own = ["--config", templates.path(), "--data", data.path().to_str().unwrap(), "--bootstrap"];
    let rest = ["--admin", ANYWHERE, "--gateway-rls", ANYWHERE, "--ratelimit-config", rules.path(), "--declare"];
    let server = Server::with_flags(&[&own[..], &rest, &["--first-wait-ms", "20000"]].concat());
    eventually("the gateway has declared its templates", || {
        server.log().contains("templates declared at the cluster").then_some(())
    });
    let envoy = RlsCaller::on(channel(server.gateway("RLS")));
    assert_eq!(envoy.count("shop", &user("ann"), 20), 5);
}

#[test]
fn a_node_with_a_parent_takes_no_declarations() {
    let peers = Peers::start(1, ConfigFile::of(&[nothing()]), &[]);
    let leaf = peers.child("leaf", 1);
    let gateway = gateway(&leaf, 0, &rules(5), &[]);
    eventually("the gateway is told the parent", || {
        gateway.log().contains("a node with a parent takes its templates from the parent").then_some(())
    });
    let listed = leaf.operate(0, &["declarations", "list"]);
    assert!(listed.code != Some(0) && listed.stderr.contains("takes its templates from the parent"), "{listed:?}");
}

#[test]
fn a_limit_in_a_request_is_declared_by_each_gateway_that_sees_it() {
    let peers = Peers::start(3, ConfigFile::of(&[nothing()]), &[]);
    let rules = rules(5);
    let both = ["a", "b"].map(|_| gateway(&peers, peers.master(), &rules, &[]));
    both.iter().for_each(is_declared);
    let limit = Some(RateLimitOverride { requests_per_unit: 6, unit: Unit::Day.into() });
    let asked = request("shop", &[RateLimitDescriptor { limit, ..descriptor(&user("ann")) }]);
    let passed = |gateway: &Gateway| (0..9).filter(|_| gateway.caller().ask(asked.clone()).passes()).count();
    assert_eq!(passed(&both[0]), 6, "the first request waits for the template");
    assert_eq!(names(&peers, 0), ["rls/shop", "rls/shop/6-per-day"]);
    // The other gateway declares the same.
    both[1].caller().ask(asked);
    is_declared(&both[1]);
    assert_eq!(names(&peers, 0), ["rls/shop", "rls/shop/6-per-day"]);
    rules.replace(&text("other", 5));
    for gateway in &both {
        eventually("the domain is removed", || {
            (gateway.caller().count("other", &user("ann"), 1) <= 1
                && !names(&peers, 0).contains(&"rls/shop/6-per-day".to_owned()))
            .then_some(())
        });
    }
}
