//! The metadata of rules, and the dynamic metadata of answers: data for later filters and access logs of Envoy, in the
//! form of envoyproxy/ratelimit.

use leaseway_proto::envoy::ratelimit::{RateLimitDescriptor, RateLimitRequest};
use prost_types::{ListValue, Struct, Value, value::Kind};
use serde_json::{Map, Value as Json};

fn value(kind: Kind) -> Value {
    Value { kind: Some(kind) }
}

fn text(text: impl Into<String>) -> Value {
    value(Kind::StringValue(text.into()))
}

fn list(values: impl IntoIterator<Item = Value>) -> Value {
    value(Kind::ListValue(ListValue { values: values.into_iter().collect() }))
}

pub(super) fn of_json(fields: Map<String, Json>) -> Struct {
    Struct { fields: fields.into_iter().map(|(key, json)| (key, of_json_value(json))).collect() }
}

fn of_json_value(json: Json) -> Value {
    match json {
        Json::Null => value(Kind::NullValue(0)),
        Json::Bool(flag) => value(Kind::BoolValue(flag)),
        Json::Number(number) => value(Kind::NumberValue(number.as_f64().unwrap_or_default())),
        Json::String(string) => text(string),
        Json::Array(items) => list(items.into_iter().map(of_json_value)),
        Json::Object(fields) => value(Kind::StructValue(of_json(fields))),
    }
}

pub(super) fn as_json(fields: &Struct) -> Json {
    fields.fields.iter().map(|(key, value)| (key.clone(), as_json_value(value))).collect::<Map<_, _>>().into()
}

fn as_json_value(value: &Value) -> Json {
    match &value.kind {
        None | Some(Kind::NullValue(_)) => Json::Null,
        Some(Kind::BoolValue(flag)) => (*flag).into(),
        Some(Kind::NumberValue(number)) => (*number).into(),
        Some(Kind::StringValue(text)) => text.as_str().into(),
        Some(Kind::ListValue(list)) => list.values.iter().map(as_json_value).collect::<Vec<_>>().into(),
        Some(Kind::StructValue(fields)) => as_json(fields),
    }
}

/// The dynamic metadata of an answer. `of_rules` is the metadata of the rules that let the request pass, in the order
/// of the descriptors. `held` has the descriptors of which the request has taken hits, and how many; the original has
/// no such field.
pub(super) fn of_answer<'r>(
    request: &RateLimitRequest,
    of_rules: impl Iterator<Item = &'r Struct>,
    held: &[(usize, u32)],
) -> Struct {
    let mut fields = vec![
        ("domain", text(&request.domain)),
        ("descriptors", list(request.descriptors.iter().map(|one| value(Kind::StructValue(of_descriptor(one)))))),
    ];
    if request.hits_addend > 0 {
        fields.push(("hitsAddend", value(Kind::NumberValue(request.hits_addend.into()))));
    }
    let mut merged = Struct::default();
    of_rules.for_each(|metadata| merge(&mut merged, metadata));
    if !merged.fields.is_empty() {
        fields.push(("metadata", value(Kind::StructValue(merged))));
    }
    if !held.is_empty() {
        // Texts, because Envoy's descriptors take no numbers.
        let held = held.iter().map(|(index, hits)| (index.to_string(), text(hits.to_string())));
        fields.push(("held", value(Kind::StructValue(Struct { fields: held.collect() }))));
    }
    named(fields)
}

fn of_descriptor(descriptor: &RateLimitDescriptor) -> Struct {
    let entries = descriptor.entries.iter().map(|entry| text(format!("{}={}", entry.key, entry.value)));
    let mut fields = vec![("entries", list(entries))];
    if let Some(limit) = &descriptor.limit {
        let unit = limit.unit().as_str_name();
        fields.push(("limit", text(format!("requests_per_unit:{} unit:{unit}", limit.requests_per_unit))));
    }
    if let Some(hits) = descriptor.hits_addend {
        fields.push(("hitsAddend", value(Kind::NumberValue(hits as f64))));
    }
    named(fields)
}

fn named(fields: Vec<(&str, Value)>) -> Struct {
    Struct { fields: fields.into_iter().map(|(key, value)| (key.to_owned(), value)).collect() }
}

/// Adds the fields that are missing. Maps of the same name are merged.
fn merge(into: &mut Struct, from: &Struct) {
    for (key, value) in &from.fields {
        let Some(existing) = into.fields.get_mut(key) else {
            into.fields.insert(key.clone(), value.clone());
            continue;
        };
        if let (Some(Kind::StructValue(into)), Some(Kind::StructValue(from))) = (&mut existing.kind, &value.kind) {
            merge(into, from);
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn metadata(json: Json) -> Struct {
        match json {
            Json::Object(fields) => of_json(fields),
            other => panic!("{other}"),
        }
    }

    #[test]
    fn the_first_metadata_wins_and_maps_are_merged() {
        let rules = [json!({"a": {"x": 1}, "b": [true, null]}), json!({"a": {"x": 2, "y": "z"}, "b": 1, "c": 1.5})];
        let request = RateLimitRequest { domain: "d".into(), hits_addend: 2, ..RateLimitRequest::default() };
        let answer = of_answer(&request, rules.map(metadata).iter(), &[(0, 7)]);
        let expected = json!({
            "domain": "d", "descriptors": [], "hitsAddend": 2, "held": {"0": "7"},
            "metadata": {"a": {"x": 1, "y": "z"}, "b": [true, null], "c": 1.5},
        });
        assert_eq!(answer, metadata(expected));
    }
}
