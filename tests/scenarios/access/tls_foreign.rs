//! TLS clients with other TLS stacks: Python's grpcio and grpc-go.

use leaseway_proto::doorman::{GetCapacityRequest, GetCapacityResponse, ResourceRequest};
use prost::Message as _;

use crate::harness::{authority::Authority, foreign, server::Server, tls::text, wait::eventually};

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn bytes(hex: &str) -> Vec<u8> {
    let digits = hex.as_bytes().chunks(2).map(|pair| std::str::from_utf8(pair).unwrap());
    digits.map(|pair| u8::from_str_radix(pair, 16).unwrap()).collect()
}

#[test]
#[cfg_attr(not(python), ignore = "needs LEASEWAY_TEST_PYTHON")]
fn python_grpcio_gets_a_lease_over_tls_and_mutual_tls() {
    let authority = Authority::with_node_and_alice();
    let [certificate, key, ca] = ["node.pem", "node.key", "ca.pem"].map(|file| text(&authority.path(file)));
    let entry = ResourceRequest {
        resource_id: Some("mysql".into()),
        priority: Some(0),
        wants: Some(40.0),
        ..ResourceRequest::default()
    };
    let request =
        GetCapacityRequest { client_id: Some("alice".into()), resource: vec![entry], ..GetCapacityRequest::default() };
    let request = hex(&request.encode_to_vec());
    let ask = |server: &Server, own: &[&str]| {
        let address = format!("localhost:{}", server.grpc().port());
        let arguments = [&[&address[..], "/doorman.Capacity/GetCapacity", &request, &ca], own].concat();
        foreign::call_with_python(&arguments)
    };
    let granted = |output: &str| {
        let answer = output.strip_prefix("ok ").unwrap_or_else(|| panic!("{output}"));
        let answer = GetCapacityResponse::decode(&bytes(answer)[..]).unwrap();
        assert_eq!(answer.response[0].gets.unwrap().capacity, Some(40.0));
    };

    let one_sided = Server::with_flags(&["--tls-cert", &certificate, "--tls-key", &key]);
    granted(&ask(&one_sided, &[]));
    let mutual = Server::with_flags(&["--tls-cert", &certificate, "--tls-key", &key, "--tls-ca", &ca]);
    let [own_key, own] = ["alice.key", "alice.pem"].map(|file| text(&authority.path(file)));
    granted(&ask(&mutual, &[&own_key, &own]));
    let without = ask(&mutual, &[]);
    assert!(without.starts_with("failed UNAVAILABLE"), "{without}");
}

#[test]
#[cfg_attr(not(go_client), ignore = "needs LEASEWAY_TEST_GO_CLIENT")]
fn go_grpc_gets_a_lease_or_a_clear_error_over_tls_and_mutual_tls() {
    let (authority, others) = (Authority::with_node_and_alice(), Authority::new("another"));
    let [certificate, key, ca] = ["node.pem", "node.key", "ca.pem"].map(|file| text(&authority.path(file)));
    let [own, own_key] = ["alice.pem", "alice.key"].map(|file| text(&authority.path(file)));
    let ask = |server: &Server, more: &[&str]| {
        let address = format!("localhost:{}", server.grpc().port());
        foreign::call_with_go(&[&[&address[..], "alice", "mysql", "40"], more].concat())
    };
    let all = "asked 40\nrefreshed 20\nreleased\n";

    let one_sided = Server::with_flags(&["--tls-cert", &certificate, "--tls-key", &key]);
    assert_eq!(ask(&one_sided, &[&ca]), all);
    let mutual = Server::with_flags(&["--tls-cert", &certificate, "--tls-key", &key, "--tls-ca", &ca]);
    assert_eq!(ask(&mutual, &[&ca, &own, &own_key]), all);
    for (flags, go_says, server_says) in [
        (vec![&ca], "failed Unavailable", "the client presented no certificate"),
        (
            vec![&text(&others.path("ca.pem")), &own, &own_key],
            "certificate signed by unknown authority",
            "the client rejected this server's",
        ),
    ] {
        let flags: Vec<&str> = flags.into_iter().map(String::as_str).collect();
        eventually("client and server report the reason", || {
            let output = ask(&mutual, &flags);
            assert!(output.contains(go_says), "{output}");
            mutual.log().contains(server_says).then_some(())
        });
    }
}
