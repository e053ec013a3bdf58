//! Rate-limit requests and answers as JSON, in protobuf's mapping: the form of `/json` of envoyproxy/ratelimit.

use leaseway_proto::envoy::ratelimit::{
    RateLimitDescriptor, RateLimitRequest, RateLimitResponse,
    rate_limit_descriptor::{Entry, RateLimitOverride},
    rate_limit_response::{Code, DescriptorStatus, HeaderValue, RateLimit, rate_limit::Unit},
};
use serde::{Deserialize, Deserializer, Serialize, de::Error as _};
use serde_json::{Value, json};

use super::metadata;

/// Reads a request. Names of fields may be in lower camel case or as in the .proto file.
pub(super) fn request(body: &[u8]) -> Result<RateLimitRequest, serde_json::Error> {
    // serde also reads structs from lists of their fields.
    if !body.trim_ascii_start().starts_with(b"{") {
        return Err(serde_json::Error::custom("expected an object"));
    }
    let Request { domain, descriptors, hits_addend } = serde_json::from_slice(body)?;
    let descriptors = descriptors.into_iter().map(Descriptor::read);
    Ok(RateLimitRequest {
        domain,
        descriptors: descriptors.collect::<Result<_, _>>()?,
        hits_addend: u32::try_from(hits_addend.unwrap_or_default().0)
            .map_err(|_| serde_json::Error::custom("`hitsAddend` is at most 4294967295"))?,
    })
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct Request {
    #[serde(default, deserialize_with = "or_default")]
    domain: String,
    #[serde(default, deserialize_with = "or_default")]
    descriptors: Vec<Descriptor>,
    #[serde(default, alias = "hits_addend")]
    hits_addend: Option<Integer>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct Descriptor {
    #[serde(default, deserialize_with = "or_default")]
    entries: Vec<KeyValue>,
    #[serde(default)]
    limit: Option<Override>,
    #[serde(default, alias = "hits_addend")]
    hits_addend: Option<Integer>,
    #[serde(default, alias = "is_negative_hits", deserialize_with = "or_default")]
    is_negative_hits: bool,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct KeyValue {
    #[serde(default, deserialize_with = "or_default")]
    key: String,
    #[serde(default, deserialize_with = "or_default")]
    value: String,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct Override {
    #[serde(default, alias = "requests_per_unit")]
    requests_per_unit: Option<Integer>,
    #[serde(default)]
    unit: Option<UnitName>,
}

/// `null` stands for the default.
fn or_default<'de, D: Deserializer<'de>, T: Deserialize<'de> + Default>(from: D) -> Result<T, D::Error> {
    Ok(Option::deserialize(from)?.unwrap_or_default())
}

/// An integer, as a number or a string.
#[derive(Default)]
struct Integer(u64);

impl<'de> Deserialize<'de> for Integer {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Integer, D::Error> {
        let read = match Value::deserialize(from)? {
            Value::Number(number) => number.as_u64(),
            Value::String(text) => text.parse().ok(),
            _ => None,
        };
        read.map(Integer).ok_or_else(|| D::Error::custom("expected an integer that is not negative"))
    }
}

/// A unit, by its name or number.
struct UnitName(i32);

impl<'de> Deserialize<'de> for UnitName {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<UnitName, D::Error> {
        let read = match Value::deserialize(from)? {
            Value::Number(number) => number.as_i64().and_then(|number| i32::try_from(number).ok()),
            // The names of both messages that have a unit are the same.
            Value::String(name) => Unit::from_str_name(&name).map(i32::from),
            _ => None,
        };
        read.map(UnitName).ok_or_else(|| D::Error::custom("expected a unit, such as MINUTE"))
    }
}

impl Descriptor {
    fn read(self) -> Result<RateLimitDescriptor, serde_json::Error> {
        let limit = self.limit.map(|own| {
            let requests = u32::try_from(own.requests_per_unit.unwrap_or_default().0);
            let requests =
                requests.map_err(|_| serde_json::Error::custom("`requestsPerUnit` is at most 4294967295"))?;
            Ok(RateLimitOverride { requests_per_unit: requests, unit: own.unit.map_or(0, |unit| unit.0) })
        });
        Ok(RateLimitDescriptor {
            entries: self.entries.into_iter().map(|KeyValue { key, value }| Entry { key, value }).collect(),
            limit: limit.transpose()?,
            hits_addend: self.hits_addend.map(|hits| hits.0),
            is_negative_hits: self.is_negative_hits,
        })
    }
}

/// An answer. Fields with default values are left out.
pub(super) fn answer(answer: &RateLimitResponse) -> Value {
    let statuses: Vec<_> = answer.statuses.iter().map(Status::of).collect();
    let headers: Vec<_> = answer
        .response_headers_to_add
        .iter()
        .map(|HeaderValue { key, value }| json!({ "key": key, "value": value }))
        .collect();
    let mut json = serde_json::Map::new();
    json.insert("overallCode".to_owned(), answer.overall_code().as_str_name().into());
    if !statuses.is_empty() {
        json.insert("statuses".to_owned(), json!(statuses));
    }
    if !headers.is_empty() {
        json.insert("responseHeadersToAdd".to_owned(), headers.into());
    }
    if let Some(fields) = &answer.dynamic_metadata {
        json.insert("dynamicMetadata".to_owned(), metadata::as_json(fields));
    }
    json.into()
}

fn is_zero(number: &u32) -> bool {
    *number == 0
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Status<'a> {
    code: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    current_limit: Option<CurrentLimit<'a>>,
    #[serde(skip_serializing_if = "is_zero")]
    limit_remaining: u32,
    #[serde(skip_serializing_if = "Option::is_none")]
    duration_until_reset: Option<String>,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct CurrentLimit<'a> {
    #[serde(skip_serializing_if = "str::is_empty")]
    name: &'a str,
    #[serde(skip_serializing_if = "is_zero")]
    requests_per_unit: u32,
    unit: &'static str,
}

impl Status<'_> {
    fn of(status: &DescriptorStatus) -> Status<'_> {
        let limit = |limit: &'_ RateLimit| (limit.requests_per_unit, limit.unit().as_str_name());
        Status {
            code: Code::try_from(status.code).unwrap_or(Code::Unknown).as_str_name(),
            current_limit: status.current_limit.as_ref().map(|current| {
                let (requests_per_unit, unit) = limit(current);
                CurrentLimit { name: &current.name, requests_per_unit, unit }
            }),
            limit_remaining: status.limit_remaining,
            duration_until_reset: status.duration_until_reset.as_ref().map(seconds),
        }
    }
}

/// Seconds with 0, 3, 6 or 9 digits.
fn seconds(span: &prost_types::Duration) -> String {
    let prost_types::Duration { seconds, nanos } = *span;
    match nanos {
        0 => format!("{seconds}s"),
        nanos if nanos % 1_000_000 == 0 => format!("{seconds}.{:03}s", nanos / 1_000_000),
        nanos if nanos % 1_000 == 0 => format!("{seconds}.{:06}s", nanos / 1_000),
        nanos => format!("{seconds}.{nanos:09}s"),
    }
}

/// The HTTP status of an answer.
pub(super) fn http_status(answer: &RateLimitResponse) -> u16 {
    match answer.overall_code() {
        Code::Ok => 200,
        Code::OverLimit => 429,
        Code::Unknown => 500,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_are_read_in_both_spellings() {
        let camel = br#"{"domain": "d", "hitsAddend": "3", "descriptors": [{"entries": [{"key": "k", "value": "v"}],
            "limit": {"requestsPerUnit": 5, "unit": "MINUTE"}, "hitsAddend": 2, "isNegativeHits": true}]}"#;
        let snake = br#"{"domain": "d", "hits_addend": 3, "descriptors": [{"entries": [{"key": "k", "value": "v"}],
            "limit": {"requests_per_unit": "5", "unit": 2}, "hits_addend": "2", "is_negative_hits": true}]}"#;
        let read = request(camel).expect("valid");
        assert_eq!(read, request(snake).expect("valid"));
        let [descriptor] = &read.descriptors[..] else { panic!("{read:?}") };
        assert_eq!((read.hits_addend, descriptor.hits_addend, descriptor.is_negative_hits), (3, Some(2), true));
        let limit = descriptor.limit.as_ref().expect("a limit");
        assert_eq!((limit.requests_per_unit, limit.unit), (5, Unit::Minute.into()));
        assert_eq!(request(b"{}").expect("valid"), RateLimitRequest::default());
        assert_eq!(request(br#"{"domain": null}"#).expect("valid"), RateLimitRequest::default());
    }

    #[test]
    fn invalid_requests_are_refused() {
        for bad in [
            "",
            "[]",
            r#"{"domains": "d"}"#,
            r#"{"domain": 1}"#,
            r#"{"hitsAddend": -1}"#,
            r#"{"hitsAddend": 4294967296}"#,
            r#"{"descriptors": [{"limit": {"unit": "FORTNIGHT"}}]}"#,
            r#"{"descriptors": [{"entries": [{"kay": "k"}]}]}"#,
        ] {
            assert!(request(bad.as_bytes()).is_err(), "{bad}");
        }
    }

    #[test]
    fn answers_leave_out_defaults() {
        let limit = RateLimit { requests_per_unit: 1, unit: Unit::Minute.into(), name: String::new() };
        let over = DescriptorStatus {
            code: Code::OverLimit.into(),
            current_limit: Some(limit),
            duration_until_reset: Some(prost_types::Duration { seconds: 12, nanos: 500_000_000 }),
            ..DescriptorStatus::default()
        };
        let free = DescriptorStatus { code: Code::Ok.into(), limit_remaining: 7, ..DescriptorStatus::default() };
        let response = RateLimitResponse {
            overall_code: Code::OverLimit.into(),
            statuses: vec![over, free],
            ..RateLimitResponse::default()
        };
        assert_eq!(http_status(&response), 429);
        let expected = json!({
            "overallCode": "OVER_LIMIT",
            "statuses": [
                {
                    "code": "OVER_LIMIT",
                    "currentLimit": {"requestsPerUnit": 1, "unit": "MINUTE"},
                    "durationUntilReset": "12.500s"
                },
                {"code": "OK", "limitRemaining": 7}
            ]
        });
        assert_eq!(answer(&response), expected);
    }
}
