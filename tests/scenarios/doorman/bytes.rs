//! The bytes on the wire are those of the protocol of 2016.

use leaseway_proto::doorman::GetCapacityRequest;
use prost::Message as _;
use prost_reflect::Value;

use crate::harness::{
    config::{ConfigFile, Template},
    doorman::{Asks as _, entry, request},
    legacy_client::{self, UnknownFields, build, field, inner, list, number, strict},
    server::Server,
};

/// On a development server: a lease of a minute, refreshed every five seconds.
#[test]
fn a_hand_written_request_is_understood() {
    let server = Server::development();
    #[rustfmt::skip]
    let request = vec![
        0x0a, 5, b'a', b'l', b'i', b'c', b'e',                  // 1: client_id
        0x12, 18,                                               // 2: resource
            0x0a, 5, b'm', b'y', b's', b'q', b'l',              //    1: resource_id
            0x10, 0,                                            //    2: priority
            0x21, 0, 0, 0, 0, 0, 0, 0x44, 0x40,                 //    4: wants, 40.0
    ];
    let answer = strict("GetCapacityResponse", &server.raw().call("GetCapacity", request).unwrap());
    let [response] = list(&answer, "response").try_into().expect("one answer");
    assert_eq!(field(&response, "resource_id").as_str(), Some("mysql"));
    assert_eq!(number(&response, "safe_capacity"), 100.0);
    let lease = inner(&response, "gets");
    assert_eq!(number(&lease, "capacity"), 40.0);
    assert_eq!(field(&lease, "refresh_interval").as_i64(), Some(5));
    assert!(!answer.has_field_by_name("mastership"), "the server is the master");
}

#[test]
fn our_requests_are_original_requests_with_extra_fields() {
    let plain = request("alice", vec![entry("bytes", 40.0)]);
    let ours = GetCapacityRequest { drops_late: Some(true), ..plain.clone() }.encode_to_vec();
    let entries = Value::List(vec![legacy_client::entry("bytes", 40.0, None)]);
    let fields = [("client_id", Value::String("alice".into())), ("resource", entries)];
    let original = build("GetCapacityRequest", fields).encode_to_vec();
    assert_eq!(plain.encode_to_vec(), original);
    assert_eq!(ours, [&original[..], &[0xa0, 0x06, 1]].concat(), "100: drops_late");

    let answer = strict("GetCapacityResponse", &Server::shared().raw().call("GetCapacity", ours).unwrap());
    let [response] = list(&answer, "response").try_into().expect("one answer");
    assert_eq!(number(&inner(&response, "gets"), "capacity"), 40.0);
}

#[test]
fn answers_have_every_required_field_even_if_it_is_zero() {
    let config = ConfigFile::of(&[Template { kind: "NO_ALGORITHM", ..Template::fair("*", 0.0) }]);
    let server = Server::with_config(&config);
    let raw = server.raw();
    // `strict` fails if a required field is missing.
    let answer = legacy_client::get(&raw, "alice", vec![legacy_client::entry("nothing", 0.0, None)]).unwrap();
    let [response] = list(&answer, "response").try_into().expect("one answer");
    assert_eq!(number(&inner(&response, "gets"), "capacity"), 0.0);

    let band = build(
        "PriorityBandAggregate",
        [("priority", Value::I64(0)), ("num_clients", Value::I64(1)), ("wants", Value::F64(0.0))],
    );
    let entry = build(
        "ServerCapacityResourceRequest",
        [("resource_id", Value::String("nothing".into())), ("wants", Value::List(vec![Value::Message(band)]))],
    );
    let fields = [("server_id", Value::String("child".into())), ("resource", Value::List(vec![Value::Message(entry)]))];
    let request = build("GetServerCapacityRequest", fields).encode_to_vec();
    let answer = strict("GetServerCapacityResponse", &raw.call("GetServerCapacity", request).unwrap());
    let [response] = list(&answer, "response").try_into().expect("one answer");
    let algorithm = inner(&response, "algorithm");
    assert_eq!(field(&algorithm, "kind").as_enum_number(), Some(0), "NO_ALGORITHM is zero, and required");
}

#[test]
fn the_other_rpcs_speak_the_original_protocol() {
    let server = Server::shared();
    let raw = server.raw();
    let answer = strict("DiscoveryResponse", &raw.call("Discovery", Vec::new()).unwrap());
    assert_eq!(field(&answer, "is_master").as_bool(), Some(true));
    let address = field(&inner(&answer, "mastership"), "master_address");
    assert_eq!(address.as_str(), Some(server.grpc().to_string().as_str()));

    let fields = [
        ("client_id", Value::String("alice".into())),
        ("resource_id", Value::List(vec![Value::String(String::new()), Value::String("mysql".into())])),
    ];
    let request = build("ReleaseCapacityRequest", fields).encode_to_vec();
    let answer = raw.call("ReleaseCapacity", request).unwrap();
    assert_eq!(answer, [0u8; 0], "an empty message, to the last byte");
}

#[test]
fn a_client_that_keeps_unknown_fields_echoes_the_token() {
    let server = Server::shared();
    let mut keeps = server.legacy_client("go", UnknownFields::Kept);
    let mut drops = server.legacy_client("rust", UnknownFields::Dropped);
    for client in [&mut keeps, &mut drops] {
        client.ask("echo", 10.0);
    }
    let numbers = |lease: &prost_reflect::DynamicMessage| {
        lease.unknown_fields().map(prost_reflect::UnknownField::number).collect::<Vec<_>>()
    };
    assert_eq!(numbers(keeps.lease("echo")), [100, 101], "token and remaining_ms");
    assert_eq!(numbers(drops.lease("echo")), [0u32; 0]);
}
