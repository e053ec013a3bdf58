//! Parsers of flag values.

use std::net::SocketAddr;

use clap::builder::RangedU64ValueParser;
use leaseway_client::endpoint;

/// The maximum number of threads, more than any machine has cores. Each thread has its own runtime.
const MAX_THREADS: u64 = 1024;

/// Sizes of a message. The minimum fits a request for one resource.
const MESSAGE_BYTES: std::ops::RangeInclusive<u64> = 64..=1 << 30;

/// The maximum number of seconds: one year.
const MAX_IDLE_SECS: u64 = 365 * 86_400;

/// Speeds of the clock, relative to the real one.
const CLOCK_RATES: std::ops::RangeInclusive<f64> = 0.01..=100.0;

/// The maximum rate per second, more than any server serves.
const MAX_RATE: f64 = 1e9;

/// A hundred years in milliseconds.
const MAX_CLOCK_OFFSET: i64 = 100 * 366 * 86_400_000;

pub(crate) fn threads() -> RangedU64ValueParser<usize> {
    RangedU64ValueParser::new().range(1..=MAX_THREADS)
}

/// A bound of 0 would refuse everything.
pub(crate) fn at_least_one() -> RangedU64ValueParser<usize> {
    RangedU64ValueParser::new().range(1..=u64::from(u32::MAX))
}

pub(crate) fn message_bytes() -> RangedU64ValueParser<usize> {
    RangedU64ValueParser::new().range(MESSAGE_BYTES)
}

pub(crate) fn idle_secs() -> RangedU64ValueParser<u64> {
    RangedU64ValueParser::new().range(0..=MAX_IDLE_SECS)
}

/// A limit of 0 would refuse everything.
pub(crate) fn seconds() -> RangedU64ValueParser<u64> {
    RangedU64ValueParser::new().range(1..=MAX_IDLE_SECS)
}

/// Requests per second.
pub(crate) fn rate(text: &str) -> Result<f64, String> {
    let rate = text.parse().ok().filter(|rate| (0.0..=MAX_RATE).contains(rate));
    rate.ok_or_else(|| format!("expected a number from 0 to {MAX_RATE}"))
}

pub(crate) fn clock_rate(text: &str) -> Result<f64, String> {
    let rate = text.parse().ok().filter(|rate| CLOCK_RATES.contains(rate));
    rate.ok_or_else(|| format!("expected a number from {} to {}", CLOCK_RATES.start(), CLOCK_RATES.end()))
}

pub(crate) fn clock_offset_ms(text: &str) -> Result<i64, String> {
    let offset = text.parse().ok().filter(|offset: &i64| offset.unsigned_abs() <= MAX_CLOCK_OFFSET.unsigned_abs());
    offset.ok_or_else(|| "expected a number of milliseconds, at most a hundred years".to_owned())
}

/// `HOST:PORT` that others can reach.
pub(crate) fn reachable(text: &str) -> Result<String, String> {
    let address = endpoint::parse_with(text, 0).map_err(|error| error.why)?;
    if address.ends_with(":0") {
        return Err(
            "the port is missing: write the HOST:PORT at which others reach this server, like 10.0.0.1:5100".to_owned()
        );
    }
    if address.parse().is_ok_and(|address: SocketAddr| address.ip().is_unspecified()) {
        return Err("this is a wildcard address: write one that others can reach, like 10.0.0.1:5100".to_owned());
    }
    Ok(address)
}

/// Parses `IP:PORT`. The error says what to write in place of a port or a name alone.
pub(crate) fn listen_address(text: &str) -> Result<SocketAddr, String> {
    text.trim().parse().map_err(|_| match text.trim().rsplit_once(':') {
        _ if is_port(text.trim()) => {
            format!("expected IP:PORT: write 127.0.0.1:{0} for this machine only, or 0.0.0.0:{0} for all", text.trim())
        }
        Some(("", port)) if is_port(port) => {
            format!("expected IP:PORT: write 127.0.0.1:{port} for this machine only, or 0.0.0.0:{port} for all")
        }
        Some(("localhost", port)) if is_port(port) => {
            format!("expected an IP address, not a name: write 127.0.0.1:{port}")
        }
        Some((host, port)) if is_port(port) && !host.contains(':') => {
            format!("expected an IP address of this machine before the port; `{host}` is a name")
        }
        _ => "expected IP:PORT, such as 127.0.0.1:5100 or [::1]:5100".to_owned(),
    })
}

fn is_port(text: &str) -> bool {
    text.parse::<u16>().is_ok() && text.bytes().all(|byte| byte.is_ascii_digit())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reachable_addresses_have_a_host_and_a_port() {
        for (text, address) in [("db:5100", "db:5100"), ("http://db:1", "db:1"), ("[::1]:7", "[::1]:7")] {
            assert_eq!(reachable(text).as_deref(), Ok(address));
        }
        for (text, says) in [
            ("nowhere", "port"),
            (":5100", "missing host"),
            ("a:0", "port"),
            ("0.0.0.0:1", "wildcard address"),
            ("https://a:1", "TLS"),
        ] {
            assert!(reachable(text).is_err_and(|why| why.contains(says)), "{text}: {:?}", reachable(text));
        }
    }

    #[test]
    fn listen_addresses_are_parsed_and_errors_suggest_one() {
        for text in ["127.0.0.1:5100", "[::1]:5100", " 0.0.0.0:0 "] {
            assert!(listen_address(text).is_ok(), "{text}");
        }
        for (text, says) in [
            ("5100", "write 127.0.0.1:5100 for this machine only"),
            (":5100", "write 127.0.0.1:5100 for this machine only"),
            ("localhost:5100", "not a name: write 127.0.0.1:5100"),
            ("db.internal:5100", "`db.internal` is a name"),
            ("127.0.0.1", "such as 127.0.0.1:5100"),
            ("::1:x", "such as 127.0.0.1:5100"),
            ("", "such as 127.0.0.1:5100"),
            ("70000", "such as 127.0.0.1:5100"),
        ] {
            let error = listen_address(text).expect_err(text);
            assert!(error.contains(says), "{text}: {error}");
        }
    }
}
