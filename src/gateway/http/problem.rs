//! Errors as `application/problem+json` (RFC 9457), with a `reason` for programs, a `detail` for people, and the name
//! of the field that is wrong.

use std::time::Duration;

use axum::{
    http::{HeaderMap, HeaderValue, StatusCode, header},
    response::{IntoResponse, Response},
};
use serde_json::{Map, Value};

pub(super) const PROBLEM_JSON: &str = "application/problem+json";

/// The problem type for requests beyond a quota, from the draft of the RateLimit fields.
const QUOTA_EXCEEDED: &str = "https://iana.org/assignments/http-problem-types#quota-exceeded";

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ProblemKind {
    /// The body or the path cannot be parsed.
    Malformed,
    UnknownField,
    MissingField,
    BadValue,
    Unauthenticated,
    Denied,
    /// A browser sent the request for a page of another origin.
    ForeignPage,
    NotFound,
    NoSuchReservation,
    /// A reservation of several limits was settled as one of a single limit, or one of permits as one of an amount, or
    /// a resource was used as another kind.
    Conflict,
    NoSuchMethod,
    Slow,
    TooLarge,
    NotJson,
    OverLimit,
    TooSoon,
    /// The cluster, or a proxy in front of it, misbehaves.
    BadCluster,
    NoLease,
    NoMaster,
    NoRoom,
    Closing,
}

impl ProblemKind {
    /// The status, the reason for programs, and the title for people.
    fn describe(self) -> (u16, &'static str, &'static str) {
        match self {
            ProblemKind::Malformed => (400, "malformed", "Malformed request"),
            ProblemKind::UnknownField => (400, "unknown_field", "Unknown field"),
            ProblemKind::MissingField => (400, "missing_field", "Missing field"),
            ProblemKind::BadValue => (400, "bad_value", "Invalid value"),
            ProblemKind::Unauthenticated => (401, "unauthenticated", "Not authenticated"),
            ProblemKind::Denied => (403, "denied", "Denied by the access policy"),
            ProblemKind::ForeignPage => (403, "foreign_page", "Requests from web pages are not served"),
            ProblemKind::NotFound => (404, "not_found", "Not found"),
            ProblemKind::NoSuchReservation => (404, "no_such_reservation", "Unknown reservation"),
            ProblemKind::Conflict => (409, "conflict", "Conflict with an earlier request"),
            ProblemKind::NoSuchMethod => (405, "no_such_method", "Method not allowed"),
            ProblemKind::Slow => (408, "slow", "Request timeout"),
            ProblemKind::TooLarge => (413, "too_large", "Request too large"),
            ProblemKind::NotJson => (415, "not_json", "Content-Type is not JSON"),
            ProblemKind::OverLimit => (429, "over_limit", "Over the limit"),
            ProblemKind::TooSoon => (429, "too_soon", "Request came too soon"),
            ProblemKind::BadCluster => (502, "bad_cluster", "Bad answer from the cluster"),
            ProblemKind::NoLease => (503, "no_lease", "No lease"),
            ProblemKind::NoMaster => (503, "no_master", "No master"),
            ProblemKind::NoRoom => (503, "no_room", "Limit reached"),
            ProblemKind::Closing => (503, "closing", "Gateway is stopping"),
        }
    }

    pub(super) fn status(self) -> StatusCode {
        StatusCode::from_u16(self.describe().0).expect("a valid status")
    }

    pub(super) fn title(self) -> &'static str {
        self.describe().2
    }
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Problem {
    pub(super) kind: ProblemKind,
    /// A more specific reason, as the cluster gives it.
    word: Option<Box<str>>,
    detail: Box<str>,
    field: Option<Box<str>>,
    /// The exceeded policies, as `RateLimit-Policy` names them.
    violated: Box<[Box<str>]>,
    retry_after: Option<Duration>,
    /// Additional header fields. Boxed, because few problems have any.
    headers: Option<Box<HeaderMap>>,
}

impl Problem {
    pub(super) fn new(kind: ProblemKind, detail: impl Into<Box<str>>) -> Problem {
        let detail = detail.into();
        Problem { kind, word: None, detail, field: None, violated: Box::default(), retry_after: None, headers: None }
    }

    /// A problem of one field, whose name is put in front of `detail`.
    pub(super) fn of_field(kind: ProblemKind, field: &str, detail: &str) -> Problem {
        let detail = format!("`{}` {detail}", leaseway_core::types::escaped(field));
        Problem { field: Some(field.into()), ..Problem::new(kind, detail) }
    }

    /// With a more specific reason.
    pub(super) fn in_word(self, word: &str) -> Problem {
        Problem { word: Some(word.into()), ..self }
    }

    /// The caller may try again after this time.
    pub(super) fn retry_after(self, after: Duration) -> Problem {
        Problem { retry_after: Some(after), ..self }
    }

    /// For a request that exceeds `policies`. `headers` are the RateLimit fields of the request.
    pub(super) fn beyond(self, policies: &[&str], headers: HeaderMap) -> Problem {
        let violated = policies.iter().map(|policy| Box::from(*policy)).collect();
        Problem { violated, headers: Some(Box::new(headers)), ..self }
    }

    fn to_json(&self) -> Value {
        let mut json = Map::new();
        let kind = if self.violated.is_empty() { "about:blank" } else { QUOTA_EXCEEDED };
        json.insert("type".into(), kind.into());
        json.insert("title".into(), self.kind.title().into());
        json.insert("status".into(), self.kind.status().as_u16().into());
        json.insert("reason".into(), self.word.as_deref().unwrap_or_else(|| self.kind.describe().1).into());
        json.insert("detail".into(), (*self.detail).into());
        if let Some(field) = &self.field {
            json.insert("field".into(), (**field).into());
        }
        if !self.violated.is_empty() {
            let policies = self.violated.iter().map(|policy| Value::from(&**policy)).collect();
            json.insert("violated-policies".into(), Value::Array(policies));
        }
        Value::Object(json)
    }
}

impl IntoResponse for Problem {
    fn into_response(self) -> Response {
        let json = self.to_json().to_string();
        let mut response = (self.kind.status(), [(header::CONTENT_TYPE, PROBLEM_JSON)], json + "\n").into_response();
        let headers = response.headers_mut();
        if let Some(more) = self.headers {
            headers.extend(*more);
        }
        if let Some(after) = self.retry_after {
            headers.insert(header::RETRY_AFTER, HeaderValue::from(whole_seconds(after)));
        }
        if self.kind == ProblemKind::Unauthenticated {
            headers.insert(header::WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"));
        }
        response
    }
}

/// Rounds up to at least one, so that callers do not retry too early.
pub(super) fn whole_seconds(span: Duration) -> u64 {
    span.as_secs().saturating_add(u64::from(span.subsec_nanos() > 0)).max(1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_problem_names_its_field_escaped() {
        let problem = Problem::of_field(ProblemKind::UnknownField, "a\u{1b}", "is unknown");
        let json = problem.to_json();
        assert_eq!(json["detail"], "`a\\u001b` is unknown");
        assert_eq!((json["field"].as_str(), json["reason"].as_str()), (Some("a\u{1b}"), Some("unknown_field")));
        assert_eq!((json["type"].as_str(), json["status"].as_u64()), (Some("about:blank"), Some(400)));
    }

    #[test]
    fn problems_beyond_a_quota_follow_the_draft() {
        let problem = Problem::new(ProblemKind::OverLimit, "not now").beyond(&["mysql"], HeaderMap::new());
        let response = problem.clone().retry_after(Duration::from_millis(1200)).into_response();
        assert_eq!(response.headers()[header::RETRY_AFTER], "2");
        assert_eq!(response.headers()[header::CONTENT_TYPE], PROBLEM_JSON);
        let json = problem.to_json();
        assert_eq!(json["violated-policies"][0], "mysql");
        assert!(json["type"].as_str().is_some_and(|kind| kind.ends_with("#quota-exceeded")));
    }

    #[test]
    fn seconds_to_wait_are_rounded_up() {
        for (millis, seconds) in [(0, 1), (1, 1), (1000, 1), (1001, 2), (59_999, 60)] {
            assert_eq!(whole_seconds(Duration::from_millis(millis)), seconds);
        }
        assert_eq!(whole_seconds(Duration::MAX), u64::MAX);
    }
}
