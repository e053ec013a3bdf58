//! Valid inputs, and their mutation.
//!
//! Random bytes are rarely a valid message, so most would never get past the decoder. Mutated valid messages do.

use leaseway_proto::{
    doorman::{
        GetCapacityRequest, GetServerCapacityRequest, Lease, PriorityBandAggregate, ReleaseCapacityRequest,
        ResourceRequest, ServerCapacityResourceRequest,
    },
    envoy::{
        discovery::DiscoveryResponse,
        quota::{BucketId, RateLimitQuotaUsageReports, rate_limit_quota_usage_reports::BucketQuotaUsage},
        ratelimit_discovery::{RateLimitConfig, RateLimitDescriptor, RateLimitPolicy, TYPE_URL},
    },
    pools::{Assigned, Holder, ListClientsRequest, SetAlarmRequest, SetClientCapacityRequest, assigned::Amount},
    push::WatchRequest,
};
use prost::Message;
use prost_types::Any;

/// Boundary values of bytes, and delimiters.
const BYTES: [u8; 8] = [0, 1, 0x7f, 0x80, 0xff, b'0', b'"', b'\n'];
/// Maximum length of a result.
const MAX_LENGTH: usize = 4096;

/// Applies the script to one of the seeds. An empty script returns the first seed.
pub(crate) fn mutated(seeds: &[Vec<u8>], script: &[u8]) -> Vec<u8> {
    let Some((first, mut script)) = script.split_first() else { return seeds.first().cloned().unwrap_or_default() };
    if *first == u8::MAX || seeds.is_empty() {
        return script.to_vec();
    }
    let mut bytes = seeds[usize::from(*first) % seeds.len()].clone();
    while let [change, at, by, rest @ ..] = script {
        script = rest;
        let place = if bytes.is_empty() { 0 } else { usize::from(*at) * bytes.len() / 256 };
        match change % 9 {
            0 => bytes.insert(place, *by),
            1 => bytes.truncate(place),
            2 => bytes.extend(bytes[place..].to_vec()),
            3 => bytes.extend_from_slice(&seeds[usize::from(*by) % seeds.len()]),
            _ if place == bytes.len() => bytes.push(*by),
            4 => bytes[place] = *by,
            5 => bytes[place] ^= 1 << (by % 8),
            6 => bytes[place] = BYTES[usize::from(*by) % BYTES.len()],
            7 => drop(bytes.remove(place)),
            _ => drop(bytes.drain(place..(place + usize::from(*by)).min(bytes.len()))),
        }
        bytes.truncate(MAX_LENGTH);
    }
    bytes
}

pub(crate) fn texts(texts: &[&str]) -> Vec<Vec<u8>> {
    texts.iter().map(|text| text.as_bytes().to_vec()).collect()
}

fn framed(message: &impl Message) -> Vec<u8> {
    let length = u32::try_from(message.encoded_len()).expect("the message fits into u32");
    [&[0][..], &length.to_be_bytes(), &message.encode_to_vec()].concat()
}

/// Removes the gRPC prefix.
pub(crate) fn unframed(framed: Vec<Vec<u8>>) -> Vec<Vec<u8>> {
    framed.into_iter().map(|framed| framed[5..].to_vec()).collect()
}

fn lease() -> Lease {
    Lease {
        expiry_time: Some(1_700_000_060),
        refresh_interval: Some(5),
        capacity: Some(10.0),
        token: Some((1 << 40) + 1),
        remaining_ms: None,
    }
}

fn ask(name: &str, has: Option<Lease>) -> ResourceRequest {
    ResourceRequest {
        resource_id: Some(name.to_owned()),
        priority: Some(1),
        has,
        had: None,
        wants: Some(40.0),
        ..Default::default()
    }
}

pub(crate) fn capacity() -> Vec<Vec<u8>> {
    let of = |resource| GetCapacityRequest {
        client_id: Some("c".to_owned()),
        resource,
        drops_late: Some(true),
        is_gateway: Some(true),
    };
    vec![framed(&of(vec![ask("a", None)])), framed(&of(vec![ask("a", Some(lease())), ask("b", None)]))]
}

pub(crate) fn node_capacity() -> Vec<Vec<u8>> {
    let band = |priority| PriorityBandAggregate { priority: Some(priority), num_clients: Some(7), wants: Some(1.5) };
    let entry = ServerCapacityResourceRequest {
        resource_id: Some("a".to_owned()),
        has: Some(lease()),
        wants: vec![band(0), band(3)],
        ..Default::default()
    };
    let resource = vec![entry];
    vec![framed(&GetServerCapacityRequest { server_id: Some("n".to_owned()), resource, ..Default::default() })]
}

pub(crate) fn release() -> Vec<Vec<u8>> {
    let resource_id = vec!["a".to_owned(), "b".to_owned()];
    vec![framed(&ReleaseCapacityRequest { client_id: Some("c".to_owned()), resource_id, ..Default::default() })]
}

pub(crate) fn watch() -> Vec<Vec<u8>> {
    vec![framed(&WatchRequest::default()), vec![0, 0, 0, 0, 3, 0x0a, 1, b'c']]
}

pub(crate) fn pools() -> Vec<Vec<u8>> {
    let holder = || Some(Holder { id: "c".to_owned(), is_server: false });
    let resource_id = || "a".to_owned();
    let assigned = Some(Assigned { amount: Some(Amount::Share(0.5)) });
    vec![
        SetClientCapacityRequest { resource_id: resource_id(), holder: holder(), assigned }.encode_to_vec(),
        ListClientsRequest { resource_id: resource_id(), page_token: "cabc".to_owned(), ..Default::default() }
            .encode_to_vec(),
        SetAlarmRequest { resource_id: resource_id(), holder: holder(), mark: Some(1.0) }.encode_to_vec(),
    ]
}

pub(crate) fn configuration() -> Vec<Vec<u8>> {
    texts(&[
        "resources:\n- identifier_glob: 'mysql*'\n  capacity: 500\n  algorithm: {kind: FAIR_SHARE, lease_length: 60, \
         refresh_interval: 5, parameters: {reuse: prompt}}\n- identifier_glob: '*'\n  capacity: 1\n",
        "resources: &a [{identifier_glob: '*', capacity: 1e3}]\naccess:\n  rules:\n  - {identities: ['*'], may: [ask], \
         resources: ['*'], clients: ['{identity}-*']}\n",
    ])
}

pub(crate) fn tokens() -> Vec<Vec<u8>> {
    let hash = "0123456789abcdef".repeat(4);
    texts(&[&format!("# who\nalice sha256:{hash}\n"), &format!("spiffe://a/b sha256:{hash}")])
}

pub(crate) fn jwt() -> Vec<Vec<u8>> {
    texts(&[
        "eyJhbGciOiJFZERTQSIsImtpZCI6ImEifQ.eyJpc3MiOiJodHRwczovL2lzc3VlciIsImF1ZCI6ImxlYXNld2F5Iiwic3ViIjoiYSIsImV4c\
         CI6OTk5OTk5OTk5OX0.AAAA",
        "eyJhbGciOiJub25lIn0.e30.",
        r#"{"keys": [{"kty": "EC", "crv": "P-256", "x": "AA", "y": "AA"}, {"kty": "RSA", "n": "AA", "e": "AQAB"}]}"#,
    ])
}

pub(crate) fn rules() -> Vec<Vec<u8>> {
    texts(&["domain: d\ndescriptors:\n- key: a\n  value: b\n  rate_limit: {unit: minute, requests_per_unit: 5}\n  \
             shadow_mode: true\n  descriptors:\n  - {key: c, rate_limit: {unlimited: true}}\n"])
}

pub(crate) fn discovery() -> Vec<Vec<u8>> {
    let limit = RateLimitPolicy { unit: 2, requests_per_unit: 5, name: "n".to_owned(), ..RateLimitPolicy::default() };
    let below = RateLimitDescriptor { key: "c".to_owned(), ..RateLimitDescriptor::default() };
    let descriptor = RateLimitDescriptor {
        key: "a".to_owned(),
        value: "b*".to_owned(),
        rate_limit: Some(limit),
        descriptors: vec![below],
        ..RateLimitDescriptor::default()
    };
    let config = RateLimitConfig { name: "r".to_owned(), domain: "d".to_owned(), descriptors: vec![descriptor] };
    let resource = Any { type_url: TYPE_URL.to_owned(), value: config.encode_to_vec() };
    vec![DiscoveryResponse { resources: vec![resource], ..DiscoveryResponse::default() }.encode_to_vec()]
}

pub(crate) fn reports() -> Vec<Vec<u8>> {
    let bucket = [("name".to_owned(), "a".to_owned())].into_iter().collect();
    let usage = BucketQuotaUsage {
        bucket_id: Some(BucketId { bucket }),
        time_elapsed: None,
        num_requests_allowed: 3,
        num_requests_denied: 1,
    };
    vec![
        RateLimitQuotaUsageReports { domain: "d".to_owned(), bucket_quota_usages: vec![usage.encode_to_vec()] }
            .encode_to_vec(),
    ]
}

pub(crate) fn fields() -> Vec<Vec<u8>> {
    texts(&[r#"{"client": "a", "wants": 40, "priority": 1, "token": "1.0.0.0"}"#, "permits=2&wait=0.5", "{}"])
}
