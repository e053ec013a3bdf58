//! The OpenAPI document, made from the table of operations.

use serde_json::{Map, Value, json};

use super::{
    fields::{Field, FieldKind, MAX_AMOUNT, MAX_ID_BYTES, UNITS, USAGE_FIELDS},
    operation::{Member, MemberKind, Operation, Shape},
    problem::{PROBLEM_JSON, ProblemKind},
};

pub(super) const PATH: &str = "/openapi.json";

const ABOUT: &str = "Leases on shares of limited resources, and permits. A lease belongs to the client, which renews it \
    and stays within its capacity. Permits are taken from a lease that this gateway holds.";

/// The document of a gateway. Only one that `has_prices` takes usage.
pub(super) fn document(has_prices: bool) -> Value {
    let mut paths = Map::new();
    for operation in Operation::ALL {
        let path = paths.entry(operation.path()).or_insert_with(|| json!({}));
        path[operation.method().as_str().to_lowercase()] = describe(operation, has_prices);
    }
    json!({
        "openapi": "3.1.0",
        "info": {
            "title": "Leaseway",
            "version": env!("CARGO_PKG_VERSION"),
            "description": ABOUT,
            "license": { "name": "Apache-2.0", "identifier": "Apache-2.0" },
        },
        "security": [{}, { "bearer": [] }],
        "paths": paths,
        "components": {
            "securitySchemes": { "bearer": { "type": "http", "scheme": "bearer" } },
            "schemas": { "Problem": problem_schema() },
        },
    })
}

fn describe(operation: Operation, has_prices: bool) -> Value {
    let mut described = json!({
        "operationId": operation.name(),
        "summary": operation.about(),
        "parameters": parameters(operation),
        "responses": responses(operation),
    });
    let body = operation.body();
    if !body.is_empty() {
        described["requestBody"] = json!({
            "required": body.iter().any(|field| field.required),
            "content": { "application/json": { "schema": object(body, has_prices) } },
        });
    }
    described
}

fn parameters(operation: Operation) -> Vec<Value> {
    let in_path = operation.parameter().map(|name| {
        // Names of reservations are described as ids.
        let about = if name == "resource" { "The resource." } else { "The `reservation` of the answer to `reserve`." };
        json!({ "name": name, "in": "path", "required": true, "description": about, "schema": schema(FieldKind::Id, false) })
    });
    let in_query = operation.query().iter().map(|field| {
        let Field { name, required, about, .. } = field;
        let schema = schema(field.kind, false);
        json!({ "name": name, "in": "query", "required": required, "description": about, "schema": schema })
    });
    in_path.into_iter().chain(in_query).collect()
}

fn object(fields: &[Field], has_prices: bool) -> Value {
    let is_shown = |name: &&str| has_prices || !USAGE_FIELDS.contains(name);
    let fields: Vec<&Field> = fields.iter().filter(|field| is_shown(&field.name)).collect();
    let mut properties = Map::new();
    for field in &fields {
        let mut property = schema(field.kind, has_prices);
        property["description"] = field.about.into();
        if let Some(default) = field.default {
            property["default"] = match field.kind {
                FieldKind::Whole { .. } => (default as i64).into(),
                _ => default.into(),
            };
        }
        properties.insert(field.name.into(), property);
    }
    let required: Vec<_> = fields
        .iter()
        .filter(|field| field.required && !field.alternatives.iter().any(is_shown))
        .map(|field| field.name)
        .collect();
    let mut object =
        json!({ "type": "object", "properties": properties, "required": required, "additionalProperties": false });
    let needs = fields.iter().filter_map(|field| Some((field.name, field.needs?)));
    let needs: Map<_, _> = needs.map(|(name, needed)| (name.to_owned(), json!([needed]))).collect();
    if !needs.is_empty() {
        object["dependentRequired"] = needs.into();
    }
    let mut exclusive = Vec::new();
    for field in fields {
        let alternatives: Vec<&str> = field.alternatives.iter().copied().filter(is_shown).collect();
        if field.required && !alternatives.is_empty() {
            let any_of = [field.name].into_iter().chain(alternatives.iter().copied());
            object["oneOf"] = any_of.map(|name| json!({ "required": [name] })).collect();
        }
        // Each pair once.
        let others = alternatives.iter().filter(|other| field.name < **other);
        exclusive.extend(others.map(|other| json!({ "required": [field.name, other] })));
    }
    if !exclusive.is_empty() {
        object["not"] = json!({ "anyOf": exclusive });
    }
    object
}

fn schema(kind: FieldKind, has_prices: bool) -> Value {
    match kind {
        FieldKind::Id => json!({ "type": "string", "minLength": 1, "maxLength": MAX_ID_BYTES }),
        FieldKind::Amount => json!({ "type": "number", "minimum": 0, "maximum": MAX_AMOUNT }),
        FieldKind::Whole { least, most } => json!({ "type": "integer", "minimum": least, "maximum": most }),
        FieldKind::Seconds { least, most } => json!({ "type": "number", "minimum": least, "maximum": most }),
        FieldKind::Usage => {
            let units = json!({ "type": "integer", "minimum": UNITS.start(), "maximum": UNITS.end() });
            json!({ "type": "object", "additionalProperties": units })
        }
        FieldKind::List { fields, most } => {
            json!({ "type": "array", "minItems": 1, "maxItems": most, "items": object(fields, has_prices) })
        }
        FieldKind::LeaseToken => json!({ "type": "string", "pattern": "^[0-9a-f]{1,16}(\\.[0-9a-f]{1,16}){3}$" }),
    }
}

fn responses(operation: Operation) -> Value {
    let (status, shapes) = operation.answer();
    let mut answer = json!({ "description": "Success." });
    if !shapes.is_empty() {
        answer["content"] = json!({ "application/json": { "schema": answer_schema(shapes) } });
    }
    if operation.tells_quota() {
        answer["headers"] = quota_headers();
    }
    if matches!(operation, Operation::Reserve | Operation::ReserveAll) {
        let about = "The path that settles the reservation.";
        answer["headers"]["Location"] = json!({ "description": about, "schema": { "type": "string" } });
    }
    let mut responses = Map::new();
    responses.insert(status.to_string(), answer);
    for kind in operation.problems() {
        responses.insert(kind.status().as_u16().to_string(), problem(kind));
    }
    Value::Object(responses)
}

/// An object of one of these shapes.
fn answer_schema(shapes: &[Shape]) -> Value {
    match shapes {
        [shape] => shape_schema(shape),
        shapes => json!({ "oneOf": shapes.iter().map(|shape| shape_schema(shape)).collect::<Vec<_>>() }),
    }
}

fn shape_schema(members: &[Member]) -> Value {
    let mut properties = Map::new();
    for Member { name, kind, about } in members {
        let mut property = match kind {
            MemberKind::Text => json!({ "type": "string" }),
            MemberKind::Number => json!({ "type": "number" }),
            MemberKind::NumberOrNull => json!({ "type": ["number", "null"] }),
            MemberKind::Whole => json!({ "type": "integer" }),
            MemberKind::Flag => json!({ "type": "boolean" }),
            MemberKind::List(shapes) => json!({ "type": "array", "items": answer_schema(shapes) }),
        };
        property["description"] = (*about).into();
        properties.insert((*name).into(), property);
    }
    let required: Vec<_> = members.iter().map(|member| member.name).collect();
    json!({ "type": "object", "properties": properties, "required": required, "additionalProperties": false })
}

fn quota_headers() -> Value {
    let header = |about: &str| json!({ "description": about, "schema": { "type": "string" } });
    json!({
        "RateLimit-Policy": header("The quota of this gateway (draft-ietf-httpapi-ratelimit-headers)."),
        "RateLimit": header("The rest of the quota."),
    })
}

fn problem(kind: ProblemKind) -> Value {
    let mut described = json!({
        "description": kind.title(),
        "content": { PROBLEM_JSON: { "schema": { "$ref": "#/components/schemas/Problem" } } },
    });
    if kind == ProblemKind::OverLimit {
        described["headers"] = quota_headers();
    }
    if matches!(kind, ProblemKind::OverLimit | ProblemKind::Closing | ProblemKind::TooSoon) {
        let about = "Seconds after which a retry may succeed, if known.";
        described["headers"]["Retry-After"] = json!({ "description": about, "schema": { "type": "integer" } });
    }
    described
}

fn problem_schema() -> Value {
    let text = |about: &str| json!({ "type": "string", "description": about });
    json!({
        "type": "object",
        "description": "Problem details (RFC 9457).",
        "properties": {
            "type": text("`about:blank`, or a registered type."),
            "title": text("The kind of problem, human-readable."),
            "status": { "type": "integer", "description": "The HTTP status code." },
            "reason": text("The kind of problem, machine-readable."),
            "detail": text("The error in this request, human-readable."),
            "field": text("The name of the invalid field."),
            "violated-policies": {
                "type": "array",
                "items": { "type": "string" },
                "description": "The resources whose limits are exceeded.",
            },
        },
        "required": ["type", "title", "status", "reason", "detail"],
        "additionalProperties": false,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_operation_is_in_the_document_with_all_its_answers() {
        let document = document(true);
        for operation in Operation::ALL {
            let described = &document["paths"][operation.path()][operation.method().as_str().to_lowercase()];
            assert_eq!(described["operationId"], operation.name());
            let responses = described["responses"].as_object().expect("answers");
            assert_eq!(responses.len(), 1 + operation.problems().len(), "{operation:?}");
        }
    }

    #[test]
    fn all_references_resolve() {
        let document = document(true);
        let text = document.to_string();
        for reference in text.split("\"$ref\":\"#").skip(1) {
            let pointer = reference.split('"').next().expect("an end");
            assert!(document.pointer(pointer).is_some(), "{pointer}");
        }
    }

    #[test]
    fn only_a_gateway_with_prices_takes_usage() {
        let body = |operation: Operation, has_prices| {
            describe(operation, has_prices)["requestBody"]["content"]["application/json"]["schema"].clone()
        };
        assert!(!document(false).to_string().contains("\"usage\""));
        let spend = body(Operation::Spend, false);
        assert_eq!((&spend["required"], &spend["not"]), (&json!(["amount"]), &Value::Null));
        let spend = body(Operation::Spend, true);
        assert_eq!(spend["oneOf"], json!([{ "required": ["amount"] }, { "required": ["usage"] }]));
        assert_eq!(spend["dependentRequired"], json!({ "model": ["usage"], "usage": ["model"] }));
        assert_eq!(spend["properties"]["usage"]["additionalProperties"]["type"], "integer");
        let pairs = json!([["amount", "permits"], ["amount", "usage"], ["permits", "usage"]]);
        let reserve = body(Operation::Reserve, true);
        let excluded = reserve["not"]["anyOf"].as_array().expect("pairs").iter().map(|pair| pair["required"].clone());
        let mut excluded: Vec<_> = excluded.collect();
        excluded.sort_by_key(Value::to_string);
        assert_eq!(Value::from(excluded), pairs);
    }
}
