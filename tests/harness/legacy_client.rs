//! Clients of the original protocol of 2016.
//!
//! Protobuf libraries treat unknown fields differently. Those of Go and Python keep them, so such a client echoes our
//! tokens in `has`. Others, such as Rust's, drop them. The server has to support both.

use std::{collections::HashMap, sync::OnceLock};

use prost::Message as _;
use prost_reflect::{DescriptorPool, DynamicMessage, Kind, MessageDescriptor, ReflectMessage as _, Value};
use tonic::Status;

use super::{doorman::Asks, raw::Raw};

/// The lowest number of our extension fields.
const OURS: u32 = 100;

/// The original protocol.
pub(crate) fn pool() -> &'static DescriptorPool {
    static POOL: OnceLock<DescriptorPool> = OnceLock::new();
    POOL.get_or_init(|| {
        let fixtures = concat!(env!("CARGO_MANIFEST_DIR"), "/fixtures");
        let compiled = protox::compile(["doorman-2016.proto"], [fixtures]).expect("the fixture compiles");
        DescriptorPool::from_file_descriptor_set(compiled).expect("the fixture is complete")
    })
}

fn message(name: &str) -> MessageDescriptor {
    pool().get_message_by_name(&format!("doorman.{name}")).unwrap_or_else(|| panic!("there is no doorman.{name}"))
}

/// Builds a message with these fields.
pub(crate) fn build(name: &str, fields: impl IntoIterator<Item = (&'static str, Value)>) -> DynamicMessage {
    let mut built = DynamicMessage::new(message(name));
    for (field, value) in fields {
        built.set_field_by_name(field, value);
    }
    built
}

/// Decodes like a strict peer: a missing required field is an error, and unknown fields have to be ours.
pub(crate) fn strict(name: &str, bytes: &[u8]) -> DynamicMessage {
    let decoded = DynamicMessage::decode(message(name), bytes).expect("a peer of 2016 can decode the message");
    check(&decoded);
    decoded
}

fn check(message: &DynamicMessage) {
    let name = message.descriptor().full_name().to_owned();
    for field in message.descriptor().fields().filter(|field| field.is_required()) {
        assert!(message.has_field(&field), "{name} lacks the required field {}", field.name());
    }
    for unknown in message.unknown_fields() {
        assert!(unknown.number() >= OURS, "{name} has the unknown field {}", unknown.number());
    }
    for (field, value) in message.fields().filter(|(field, _)| matches!(field.kind(), Kind::Message(_))) {
        match value {
            Value::Message(one) => check(one),
            Value::List(several) => several.iter().filter_map(Value::as_message).for_each(check),
            other => panic!("{name}.{} is {other:?}", field.name()),
        }
    }
}

/// Panics if there is no such field.
pub(crate) fn field(message: &DynamicMessage, name: &str) -> Value {
    message.get_field_by_name(name).unwrap_or_else(|| panic!("no field {name}")).into_owned()
}

pub(crate) fn number(message: &DynamicMessage, name: &str) -> f64 {
    field(message, name).as_f64().unwrap()
}

pub(crate) fn inner(message: &DynamicMessage, name: &str) -> DynamicMessage {
    field(message, name).as_message().unwrap().clone()
}

pub(crate) fn list(message: &DynamicMessage, name: &str) -> Vec<DynamicMessage> {
    field(message, name).as_list().unwrap().iter().map(|item| item.as_message().unwrap().clone()).collect()
}

/// How a library treats unknown fields.
#[derive(Clone, Copy, PartialEq)]
pub(crate) enum UnknownFields {
    Kept,
    Dropped,
}

pub(crate) struct LegacyClient {
    raw: Raw,
    id: String,
    unknown: UnknownFields,
    leases: HashMap<String, DynamicMessage>,
}

impl LegacyClient {
    pub(crate) fn new(raw: Raw, id: &str, unknown: UnknownFields) -> LegacyClient {
        LegacyClient { raw, id: id.into(), unknown, leases: HashMap::new() }
    }

    pub(crate) fn lease(&self, resource: &str) -> &DynamicMessage {
        &self.leases[resource]
    }

    /// The number of resources with a lease.
    pub(crate) fn leases(&self) -> usize {
        self.leases.len()
    }

    /// The capacity of its lease. None before the first lease.
    pub(crate) fn capacity(&self, resource: &str) -> Option<f64> {
        self.leases.get(resource).map(|lease| number(lease, "capacity"))
    }

    /// Asks for all of these resources in one request, and returns how many are answered. The others keep their leases.
    pub(crate) fn refresh(&mut self, wants: &[(&str, f64)]) -> Result<usize, Status> {
        let entries = wants.iter().map(|(resource, wants)| entry(resource, *wants, self.leases.get(*resource)));
        let answer = get(&self.raw, &self.id, entries.collect())?;
        let responses = list(&answer, "response");
        for response in &responses {
            let resource = field(response, "resource_id").as_str().unwrap().to_owned();
            let lease = self.receive(inner(response, "gets"));
            self.leases.insert(resource, lease);
        }
        Ok(responses.len())
    }

    /// Releases all leases as the Go library does: an empty id for each resource, and then the ids.
    pub(crate) fn close(self) -> Result<(), Status> {
        let ids = self.leases.keys().map(|id| Value::String(id.clone()));
        let ids = std::iter::repeat_n(Value::String(String::new()), self.leases.len()).chain(ids).collect();
        let fields = [("client_id", Value::String(self.id.clone())), ("resource_id", Value::List(ids))];
        self.raw.call("ReleaseCapacity", build("ReleaseCapacityRequest", fields).encode_to_vec()).map(drop)
    }

    fn receive(&self, lease: DynamicMessage) -> DynamicMessage {
        match self.unknown {
            UnknownFields::Kept => lease,
            UnknownFields::Dropped => {
                let mut known = DynamicMessage::new(lease.descriptor());
                lease.fields().for_each(|(field, value)| known.set_field(&field, value.clone()));
                known
            }
        }
    }
}

pub(crate) fn entry(resource: &str, wants: f64, has: Option<&DynamicMessage>) -> Value {
    let mut entry = build(
        "ResourceRequest",
        [("resource_id", Value::String(resource.into())), ("priority", Value::I64(0)), ("wants", Value::F64(wants))],
    );
    if let Some(lease) = has {
        entry.set_field_by_name("has", Value::Message(lease.clone()));
    }
    Value::Message(entry)
}

pub(crate) fn get(raw: &Raw, client: &str, entries: Vec<Value>) -> Result<DynamicMessage, Status> {
    let fields = [("client_id", Value::String(client.into())), ("resource", Value::List(entries))];
    let answer = raw.call("GetCapacity", build("GetCapacityRequest", fields).encode_to_vec())?;
    Ok(strict("GetCapacityResponse", &answer))
}

impl Asks for LegacyClient {
    fn ask(&mut self, resource: &str, wants: f64) -> f64 {
        assert_eq!(self.refresh(&[(resource, wants)]).unwrap(), 1, "the resource is answered");
        self.capacity(resource).unwrap()
    }
}
