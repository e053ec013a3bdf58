//! A child node that behaves as the Go Doorman: it speaks the original protocol, asks for the sum of its clients' wants
//! as one band of priority 1, never sends `has`, and wants 0 of `*` while it has no clients. Only the requests to its
//! parent are implemented.

use std::collections::BTreeMap;

use prost::Message as _;
use prost_reflect::{DynamicMessage, Value};

use super::{
    legacy_client::{build, inner, list, number, strict},
    raw::Raw,
};

pub(crate) struct GoChild {
    raw: Raw,
    id: String,
    /// The wants of its clients, by resource.
    clients: BTreeMap<String, Vec<f64>>,
}

/// The parent's response for one resource.
#[derive(Debug)]
pub(crate) struct GoChildAnswer {
    pub(crate) capacity: f64,
    pub(crate) expiry: i64,
    pub(crate) refresh: i64,
    pub(crate) algorithm: DynamicMessage,
    pub(crate) safe_capacity: f64,
}

impl GoChild {
    pub(crate) fn new(raw: Raw, id: &str) -> GoChild {
        GoChild { raw, id: id.into(), clients: BTreeMap::new() }
    }

    /// Replaces the wants of its clients.
    pub(crate) fn has_clients(&mut self, resource: &str, wants: &[f64]) {
        self.clients.insert(resource.into(), wants.to_vec());
    }

    /// Refreshes all resources. Fails if a Go peer could not decode the response.
    pub(crate) fn poll(&self) -> BTreeMap<String, GoChildAnswer> {
        let mut entries: Vec<_> = self.clients.iter().map(|(resource, wants)| entry(resource, wants)).collect();
        if entries.is_empty() {
            entries.push(entry("*", &[0.0]));
        }
        let fields = [("server_id", Value::String(self.id.clone())), ("resource", Value::List(entries))];
        let request = build("GetServerCapacityRequest", fields).encode_to_vec();
        let answer = strict("GetServerCapacityResponse", &self.raw.call("GetServerCapacity", request).unwrap());
        assert!(!answer.has_field_by_name("mastership"), "the parent is not the master: {answer:?}");
        list(&answer, "response").iter().map(read).collect()
    }
}

fn entry(resource: &str, wants: &[f64]) -> Value {
    let count = i64::try_from(wants.len()).unwrap();
    let band = build(
        "PriorityBandAggregate",
        [("priority", Value::I64(1)), ("num_clients", Value::I64(count)), ("wants", Value::F64(wants.iter().sum()))],
    );
    let bands = Value::List(vec![Value::Message(band)]);
    let fields = [("resource_id", Value::String(resource.into())), ("wants", bands)];
    Value::Message(build("ServerCapacityResourceRequest", fields))
}

fn read(response: &DynamicMessage) -> (String, GoChildAnswer) {
    let lease = inner(response, "gets");
    let whole = |name| lease.get_field_by_name(name).and_then(|value| value.as_i64()).unwrap();
    let resource = response.get_field_by_name("resource_id").unwrap().as_str().unwrap().to_owned();
    let answer = GoChildAnswer {
        capacity: number(&lease, "capacity"),
        expiry: whole("expiry_time"),
        refresh: whole("refresh_interval"),
        // The Go server reads the lengths of its own clients' leases from it.
        algorithm: inner(response, "algorithm"),
        safe_capacity: number(response, "safe_capacity"),
    };
    (resource, answer)
}
