//! Errors as `application/problem+json` (RFC 9457): a word for programs under `reason`, a sentence for people under
//! `detail`, and the field that is meant where there is one.

use std::time::Duration;

use axum::{
    http::{HeaderMap, HeaderValue, StatusCode, header},
    response::{IntoResponse, Response},
};
use serde_json::{Map, Value};

/// The media type of problems.
pub(super) const PROBLEM_JSON: &str = "application/problem+json";

/// The type that the draft of the RateLimit fields registers for requests beyond a quota.
const QUOTA_EXCEEDED: &str = "https://iana.org/assignments/http-problem-types#quota-exceeded";

/// What kind of problem it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ProblemKind {
    /// The body or the path cannot be read at all.
    Malformed,
    UnknownField,
    MissingField,
    BadValue,
    Unauthenticated,
    Denied,
    /// A browser sent it for a page of another place.
    ForeignPage,
    NotFound,
    NoSuchReservation,
    NoSuchMethod,
    Slow,
    TooLarge,
    NotJson,
    OverLimit,
    TooSoon,
    /// The cluster, or what is between, does not do what it should.
    BadCluster,
    NoLease,
    NoMaster,
    NoRoom,
    Closing,
}

impl ProblemKind {
    #[cfg(test)]
    pub(super) const ALL: [ProblemKind; 20] = [
        ProblemKind::Malformed,
        ProblemKind::UnknownField,
        ProblemKind::MissingField,
        ProblemKind::BadValue,
        ProblemKind::Unauthenticated,
        ProblemKind::Denied,
        ProblemKind::ForeignPage,
        ProblemKind::NotFound,
        ProblemKind::NoSuchReservation,
        ProblemKind::NoSuchMethod,
        ProblemKind::Slow,
        ProblemKind::TooLarge,
        ProblemKind::NotJson,
        ProblemKind::OverLimit,
        ProblemKind::TooSoon,
        ProblemKind::BadCluster,
        ProblemKind::NoLease,
        ProblemKind::NoMaster,
        ProblemKind::NoRoom,
        ProblemKind::Closing,
    ];

    /// The word for programs.
    pub(super) fn reason(self) -> &'static str {
        match self {
            ProblemKind::Malformed => "malformed",
            ProblemKind::UnknownField => "unknown_field",
            ProblemKind::MissingField => "missing_field",
            ProblemKind::BadValue => "bad_value",
            ProblemKind::Unauthenticated => "unauthenticated",
            ProblemKind::Denied => "denied",
            ProblemKind::ForeignPage => "foreign_page",
            ProblemKind::NotFound => "not_found",
            ProblemKind::NoSuchReservation => "no_such_reservation",
            ProblemKind::NoSuchMethod => "no_such_method",
            ProblemKind::Slow => "slow",
            ProblemKind::TooLarge => "too_large",
            ProblemKind::NotJson => "not_json",
            ProblemKind::OverLimit => "over_limit",
            ProblemKind::TooSoon => "too_soon",
            ProblemKind::BadCluster => "bad_cluster",
            ProblemKind::NoLease => "no_lease",
            ProblemKind::NoMaster => "no_master",
            ProblemKind::NoRoom => "no_room",
            ProblemKind::Closing => "closing",
        }
    }

    pub(super) fn status(self) -> StatusCode {
        match self {
            ProblemKind::Malformed | ProblemKind::UnknownField | ProblemKind::MissingField | ProblemKind::BadValue => {
                StatusCode::BAD_REQUEST
            }
            ProblemKind::Unauthenticated => StatusCode::UNAUTHORIZED,
            ProblemKind::Denied | ProblemKind::ForeignPage => StatusCode::FORBIDDEN,
            ProblemKind::NotFound | ProblemKind::NoSuchReservation => StatusCode::NOT_FOUND,
            ProblemKind::NoSuchMethod => StatusCode::METHOD_NOT_ALLOWED,
            ProblemKind::Slow => StatusCode::REQUEST_TIMEOUT,
            ProblemKind::TooLarge => StatusCode::PAYLOAD_TOO_LARGE,
            ProblemKind::NotJson => StatusCode::UNSUPPORTED_MEDIA_TYPE,
            ProblemKind::OverLimit | ProblemKind::TooSoon => StatusCode::TOO_MANY_REQUESTS,
            ProblemKind::BadCluster => StatusCode::BAD_GATEWAY,
            ProblemKind::NoLease | ProblemKind::NoMaster | ProblemKind::NoRoom | ProblemKind::Closing => {
                StatusCode::SERVICE_UNAVAILABLE
            }
        }
    }

    /// The same for every problem of this kind.
    pub(super) fn title(self) -> &'static str {
        match self {
            ProblemKind::Malformed => "The request cannot be read",
            ProblemKind::UnknownField => "The request has a field that means nothing here",
            ProblemKind::MissingField => "A field is missing",
            ProblemKind::BadValue => "A field has a value that makes no sense",
            ProblemKind::Unauthenticated => "The caller is not known",
            ProblemKind::Denied => "The access policy does not allow it",
            ProblemKind::ForeignPage => "Pages in a browser are not served",
            ProblemKind::NotFound => "There is nothing here",
            ProblemKind::NoSuchReservation => "There is no such reservation",
            ProblemKind::NoSuchMethod => "This method is not served here",
            ProblemKind::Slow => "The request took too long to come",
            ProblemKind::TooLarge => "The request is too large",
            ProblemKind::NotJson => "The body is not said to be JSON",
            ProblemKind::OverLimit => "More than may pass now",
            ProblemKind::TooSoon => "Asked again too soon",
            ProblemKind::BadCluster => "The cluster refuses this gateway",
            ProblemKind::NoLease => "There is no lease",
            ProblemKind::NoMaster => "No master answers",
            ProblemKind::NoRoom => "There is no room",
            ProblemKind::Closing => "The gateway is closing",
        }
    }
}

/// A problem with a request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Problem {
    pub(super) kind: ProblemKind,
    /// The cluster's own word, if it was the cluster that had one.
    word: Option<Box<str>>,
    detail: Box<str>,
    field: Option<Box<str>>,
    /// A policy of the RateLimit fields that the request goes beyond.
    violated: Option<Box<str>>,
    retry_after: Option<Duration>,
    /// Fields besides those that follow from it. In a box: few problems have any.
    headers: Option<Box<HeaderMap>>,
}

impl Problem {
    pub(super) fn new(kind: ProblemKind, detail: impl Into<Box<str>>) -> Problem {
        let detail = detail.into();
        Problem { kind, word: None, detail, field: None, violated: None, retry_after: None, headers: None }
    }

    /// A problem of one field; the sentence begins with its name.
    pub(super) fn of_field(kind: ProblemKind, field: &str, detail: &str) -> Problem {
        let detail = format!("`{}` {detail}", leaseway_core::escaped(field));
        Problem { field: Some(field.into()), ..Problem::new(kind, detail) }
    }

    /// In the word of the cluster.
    pub(super) fn in_word(self, word: &str) -> Problem {
        Problem { word: Some(word.into()), ..self }
    }

    /// The caller may try again so much later.
    pub(super) fn retry_after(self, after: Duration) -> Problem {
        Problem { retry_after: Some(after), ..self }
    }

    /// Beyond what this policy allows, as these header fields tell.
    pub(super) fn beyond(self, policy: &str, headers: HeaderMap) -> Problem {
        Problem { violated: Some(policy.into()), headers: Some(Box::new(headers)), ..self }
    }

    fn to_json(&self) -> Value {
        let mut json = Map::new();
        let kind = if self.violated.is_some() { QUOTA_EXCEEDED } else { "about:blank" };
        json.insert("type".into(), kind.into());
        json.insert("title".into(), self.kind.title().into());
        json.insert("status".into(), self.kind.status().as_u16().into());
        json.insert("reason".into(), self.word.as_deref().unwrap_or_else(|| self.kind.reason()).into());
        json.insert("detail".into(), (*self.detail).into());
        if let Some(field) = &self.field {
            json.insert("field".into(), (**field).into());
        }
        if let Some(policy) = &self.violated {
            json.insert("violated-policies".into(), Value::Array(vec![(**policy).into()]));
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

/// At least one, and never less than it is: a caller that comes back earlier comes in vain.
pub(super) fn whole_seconds(span: Duration) -> u64 {
    span.as_secs().saturating_add(u64::from(span.subsec_nanos() > 0)).max(1)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn every_kind_has_a_word_of_its_own_and_an_error_for_a_status() {
        let words: BTreeSet<_> = ProblemKind::ALL.iter().map(|kind| kind.reason()).collect();
        assert_eq!(words.len(), ProblemKind::ALL.len());
        for kind in ProblemKind::ALL {
            assert!(kind.status().is_client_error() || kind.status().is_server_error(), "{kind:?}");
            assert!(!kind.title().ends_with('.'), "{kind:?}");
        }
    }

    #[test]
    fn a_problem_names_its_field_and_shows_it_harmlessly() {
        let problem = Problem::of_field(ProblemKind::UnknownField, "a\u{1b}", "means nothing here");
        let json = problem.to_json();
        assert_eq!(json["detail"], "`a\\u001b` means nothing here");
        assert_eq!((json["field"].as_str(), json["reason"].as_str()), (Some("a\u{1b}"), Some("unknown_field")));
        assert_eq!((json["type"].as_str(), json["status"].as_u64()), (Some("about:blank"), Some(400)));
    }

    #[test]
    fn what_is_beyond_a_quota_is_said_as_the_draft_has_it() {
        let problem = Problem::new(ProblemKind::OverLimit, "not now").beyond("mysql", HeaderMap::new());
        let response = problem.clone().retry_after(Duration::from_millis(1200)).into_response();
        assert_eq!(response.headers()[header::RETRY_AFTER], "2");
        assert_eq!(response.headers()[header::CONTENT_TYPE], PROBLEM_JSON);
        let json = problem.to_json();
        assert_eq!(json["violated-policies"][0], "mysql");
        assert!(json["type"].as_str().is_some_and(|kind| kind.ends_with("#quota-exceeded")));
    }

    #[test]
    fn seconds_to_wait_are_whole_and_never_too_few() {
        for (millis, seconds) in [(0, 1), (1, 1), (1000, 1), (1001, 2), (59_999, 60)] {
            assert_eq!(whole_seconds(Duration::from_millis(millis)), seconds);
        }
        assert_eq!(whole_seconds(Duration::MAX), u64::MAX);
    }
}
