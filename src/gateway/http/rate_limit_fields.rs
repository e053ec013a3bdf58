//! The header fields `RateLimit-Policy` and `RateLimit` (draft-ietf-httpapi-ratelimit-headers-11). The resource is the
//! name of the policy.

use std::time::Duration;

use axum::http::{HeaderMap, HeaderName, HeaderValue};

use super::problem::whole_seconds;

const POLICY: HeaderName = HeaderName::from_static("ratelimit-policy");
const LIMIT: HeaderName = HeaderName::from_static("ratelimit");

/// Structured fields have integers of at most fifteen digits.
const MAX_INTEGER: f64 = 999_999_999_999_999.0;

/// The longest window in seconds, a year. Tiny rates reach it.
const LONGEST_WINDOW: f64 = 31_536_000.0;

/// The permits of a resource at this gateway.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Quota {
    /// Permits per second. Infinite: no limit, and no header fields.
    pub(super) per_second: f64,
    /// How long unused permits are saved.
    pub(super) window: Duration,
    /// Permits available now.
    pub(super) remaining: f64,
    /// The time until there are more, if none are available now.
    pub(super) more_in: Option<Duration>,
}

pub(super) fn fields(resource: &str, quota: Quota) -> HeaderMap {
    fields_of_all([(resource, quota)])
}

/// The fields of several resources. Each is a list of all of them.
pub(super) fn fields_of_all<'r>(quotas: impl IntoIterator<Item = (&'r str, Quota)>) -> HeaderMap {
    let limited = quotas.into_iter().filter(|(_, quota)| quota.per_second.is_finite());
    let (policies, limits): (Vec<_>, Vec<_>) = limited.map(|(resource, quota)| members(resource, quota)).unzip();
    let mut headers = HeaderMap::new();
    for (field, members) in [(POLICY, policies), (LIMIT, limits)] {
        if let Ok(value) = HeaderValue::try_from(members.join(", "))
            && !members.is_empty()
        {
            headers.insert(field, value);
        }
    }
    headers
}

/// The policy and the rest of a quota.
fn members(resource: &str, quota: Quota) -> (String, String) {
    let Quota { per_second, window, remaining, more_in } = quota;
    let (permits, window) = policy(per_second, window.as_secs().max(1));
    let name = quoted(resource);
    let remaining = whole(remaining);
    let until = if remaining > 0 { window } else { more_in.map_or(window, whole_seconds).min(LONGEST_WINDOW as u64) };
    (format!("{name};q={permits};w={window}"), format!("{name};r={remaining};t={until}"))
}

/// The policy in whole permits and whole seconds. A window that brings less than one permit is extended.
fn policy(per_second: f64, window: u64) -> (u64, u64) {
    let permits = per_second * window as f64;
    if permits >= 1.0 {
        return (whole(permits), window);
    }
    if per_second <= 1.0 / LONGEST_WINDOW {
        return (0, LONGEST_WINDOW as u64);
    }
    (1, (1.0 / per_second).ceil() as u64)
}

fn whole(amount: f64) -> u64 {
    // NaN becomes 0.
    amount.clamp(0.0, MAX_INTEGER) as u64
}

/// A string of structured fields: printable ASCII. Other bytes are percent-encoded.
fn quoted(text: &str) -> String {
    let mut quoted = String::with_capacity(text.len() + 2);
    quoted.push('"');
    for byte in text.bytes() {
        match byte {
            b'"' | b'\\' => quoted.extend(['\\', char::from(byte)]),
            b' '..=b'~' => quoted.push(char::from(byte)),
            _ => quoted.push_str(&format!("%{byte:02X}")),
        }
    }
    quoted.push('"');
    quoted
}

#[cfg(test)]
mod tests {
    use super::*;

    fn said(resource: &str, per_second: f64, remaining: f64, more_in: Option<u64>) -> (String, String) {
        said_of_window(1, resource, per_second, remaining, more_in)
    }

    fn said_of_window(
        secs: u64,
        resource: &str,
        per_second: f64,
        remaining: f64,
        more_in: Option<u64>,
    ) -> (String, String) {
        let (more_in, window) = (more_in.map(Duration::from_millis), Duration::from_secs(secs));
        let headers = fields(resource, Quota { per_second, window, remaining, more_in });
        let text = |name| headers.get(name).map_or("", |value: &HeaderValue| value.to_str().expect("ASCII")).to_owned();
        (text(&POLICY), text(&LIMIT))
    }

    #[test]
    fn the_fields_are_those_of_the_draft() {
        let both = |policy: &str, limit: &str| (policy.to_owned(), limit.to_owned());
        assert_eq!(said("mysql", 12.5, 3.9, None), both("\"mysql\";q=12;w=1", "\"mysql\";r=3;t=1"));
        assert_eq!(said("mysql", 0.3, 0.9, Some(1_100)), both("\"mysql\";q=1;w=4", "\"mysql\";r=0;t=2"));
        assert_eq!(said("mysql", 1.0, 0.0, None), both("\"mysql\";q=1;w=1", "\"mysql\";r=0;t=1"));
        let minute = said_of_window(60, "tokens", 10.0, 599.0, None);
        assert_eq!(minute, both("\"tokens\";q=600;w=60", "\"tokens\";r=599;t=60"));
        let used_up = said_of_window(86_400, "calls", 1e-4, 0.0, Some(9_000_000));
        assert_eq!(used_up, both("\"calls\";q=8;w=86400", "\"calls\";r=0;t=9000"));
        let less_than_one = said_of_window(60, "calls", 1e-2, 0.0, Some(100_000));
        assert_eq!(less_than_one, both("\"calls\";q=1;w=100", "\"calls\";r=0;t=100"));
        assert_eq!(said("m", 0.0, 0.0, None), both("\"m\";q=0;w=31536000", "\"m\";r=0;t=31536000"));
    }

    #[test]
    fn numbers_have_at_most_fifteen_digits_and_no_limit_has_no_fields() {
        let (policy, limit) = said("m", 1e300, 1e300, None);
        assert_eq!((&*policy, &*limit), ("\"m\";q=999999999999999;w=1", "\"m\";r=999999999999999;t=1"));
        assert_eq!(said("m", 1e-300, f64::NAN, None).0, "\"m\";q=0;w=31536000");
        assert_eq!(said("m", f64::INFINITY, f64::INFINITY, None), (String::new(), String::new()));
    }

    #[test]
    fn several_resources_are_a_list_without_those_that_have_no_limit() {
        let budget = |per_second| Quota { per_second, window: Duration::from_secs(1), remaining: 2.0, more_in: None };
        let headers = fields_of_all([("a", budget(5.0)), ("b", budget(f64::INFINITY)), ("c", budget(7.0))]);
        assert_eq!(headers[POLICY], "\"a\";q=5;w=1, \"c\";q=7;w=1");
        assert_eq!(headers[LIMIT], "\"a\";r=2;t=1, \"c\";r=2;t=1");
        assert!(fields_of_all([("b", budget(f64::INFINITY))]).is_empty());
    }

    #[test]
    fn any_id_makes_a_valid_field() {
        assert_eq!(quoted("a\"b\\c\n\u{fc}%"), "\"a\\\"b\\\\c%0A%C3%BC%\"");
        for byte in 0..=0x7f_u8 {
            let (policy, _) = said(&char::from(byte).to_string(), 1.0, 1.0, None);
            assert!(!policy.is_empty(), "{byte}");
        }
    }
}
