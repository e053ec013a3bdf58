//! Access control at a gateway for Envoy: TLS, tokens and policies.

use leaseway_client::Files;
use tonic::Code;

use crate::harness::{
    authority::Authority,
    bearer::TokenFiles,
    config::{ConfigFile, Template},
    gateway::Gateway,
    quotas,
    rls::{Answered as _, RlsCaller, descriptor, request},
    server::Server,
    tls,
};

fn rules() -> ConfigFile {
    ConfigFile::new("domain: shop\ndescriptors: [{key: user, rate_limit: {unit: day, requests_per_unit: 5}}]\n")
}

/// A server, the TLS flags of a gateway, and the files of a client `alice`.
fn with_tls(authority: &Authority, template: &ConfigFile) -> (Server, Vec<String>, Files) {
    let flags = tls::flags(&authority.issued("node"));
    let words: Vec<&str> = flags.iter().map(String::as_str).chain(["--config", template.path()]).collect();
    (Server::with_flags(&words), flags, authority.issued("alice"))
}

fn template() -> ConfigFile {
    ConfigFile::of(&[Template::fair("shop/*", 100.0)])
}

#[test]
fn tokens_identify_rls_callers_and_denials_name_the_rule() {
    let authority = Authority::with_node_and_alice();
    let template = template();
    let (server, flags, alice) = with_tls(&authority, &template);
    let tokens = TokenFiles::of(&["edge-1", "other"]);
    let policy = ConfigFile::new("access:\n- {name: edges, who: \"edge-*\", may: ask, resources: \"shop/user=a*\"}\n");
    let names = tokens.server();
    let own = ["--config", policy.path(), "--tokens", &names];
    let flags: Vec<&str> = flags.iter().map(String::as_str).chain(own).collect();
    let gateway = Gateway::for_requests(&[server.grpc().to_string()], &rules(), &flags);
    let envoy = RlsCaller::on(tls::channel(gateway.rls(), &alice));
    let ask = |token: &str, user: &str| envoy.ask_with_token(token, request("shop", &[descriptor(&[("user", user)])]));
    assert!(ask(&tokens.token("edge-1"), "ann").expect("a rule allows it").passes());
    let denied = ask(&tokens.token("edge-1"), "bob").expect_err("no rule allows it");
    assert_eq!(denied.code(), Code::PermissionDenied);
    assert!(denied.message().contains("`edges`, does not cover this resource"), "{denied:?}");
    assert_eq!(
        ask(&tokens.token("other"), "ann").expect_err("no rule for this identity").code(),
        Code::PermissionDenied
    );
    assert_eq!(ask("nonsense", "ann").expect_err("an unknown token").code(), Code::Unauthenticated);
    let free = request("shop", &[descriptor(&[("more", "x")])]);
    let free = envoy.ask_with_token(&tokens.token("other"), free);
    assert!(free.expect("a descriptor without a limit needs no permission").passes());
}

#[test]
fn quotas_are_assigned_over_tls() {
    let authority = Authority::with_node_and_alice();
    let template = template();
    let (server, flags, alice) = with_tls(&authority, &template);
    let policy = ConfigFile::new(
        "access:\n- {name: edges, who: alice, may: ask, resources: \"shop/*\", clients: \"envoy-*\"}\n",
    );
    let own = ["--config", policy.path(), "--assignment-secs", "2"];
    let flags: Vec<&str> = flags.iter().map(String::as_str).chain(own).collect();
    let gateway = Gateway::for_quotas(&[server.grpc().to_string()], &flags);
    let mut stream = quotas::stream(tls::channel(gateway.rlqs(), &alice), Some("envoy-1"));
    stream.report("shop", "cart", 0, 0, 1);
    assert_eq!(stream.assigned("cart"), (10.0, 2));
}
