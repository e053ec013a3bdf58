//! Where a server is reached, as people write it: `HOST:PORT`, a name or an address, with or without `http://` before
//! it.
//!
//! The client, the command line and what servers say of each other are all read here, so that what works in one place
//! works in all. Names are looked up when a connection is made, not here.

use std::net::Ipv6Addr;

/// Where clients ask if no port is named: the default of `--listen`.
pub const DEFAULT_PORT: u16 = 5100;

/// The longest name that DNS has.
const MOST_HOST_BYTES: usize = 253;

/// An endpoint that cannot be one.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("`{endpoint}` is no server's address: {why}")]
pub struct BadEndpoint {
    /// As given, or as much of it as a person reads.
    pub endpoint: String,
    /// What is wrong with it, and what would be right.
    pub why: String,
}

/// `HOST:PORT`, normalised: without a scheme, with a port ([`DEFAULT_PORT`] if none is named), and with an IPv6 address
/// in brackets.
///
/// ```
/// use leaseway_session::endpoint::parse;
/// assert_eq!(parse("localhost:5100")?, "localhost:5100");
/// assert_eq!(parse("http://db.internal")?, "db.internal:5100");
/// assert_eq!(parse("::1")?, "[::1]:5100");
/// assert!(parse("https://db.internal").is_err());
/// # Ok::<(), leaseway_session::endpoint::BadEndpoint>(())
/// ```
pub fn parse(endpoint: &str) -> Result<String, BadEndpoint> {
    parse_with(endpoint, DEFAULT_PORT)
}

/// As [`parse`], with this port if none is named: for listeners other than that of clients.
pub fn parse_with(endpoint: &str, default_port: u16) -> Result<String, BadEndpoint> {
    let bad = |why: String| BadEndpoint { endpoint: endpoint.chars().take(MOST_HOST_BYTES).collect(), why };
    let address = without_scheme(endpoint.trim()).map_err(bad)?;
    let (host, port) = split(address).map_err(bad)?;
    let port = match port {
        None => default_port,
        Some(port) => port
            .parse()
            .ok()
            .filter(|number| *number > 0 && port.bytes().all(|byte| byte.is_ascii_digit()))
            .ok_or_else(|| bad(format!("the port `{port}` is not a number from 1 to 65535")))?,
    };
    Ok(format!("{host}:{port}"))
}

/// Several with commas between them, as `--server` and `--parent` take them; at least one.
pub fn parse_list(endpoints: &str) -> Result<Vec<String>, BadEndpoint> {
    endpoints.split(',').map(parse).collect()
}

fn without_scheme(endpoint: &str) -> Result<&str, String> {
    let Some((scheme, rest)) = endpoint.split_once("://") else { return Ok(endpoint) };
    match scheme.to_ascii_lowercase().as_str() {
        "http" => Ok(rest.strip_suffix('/').unwrap_or(rest)),
        "https" => Err("there is no TLS yet: write HOST:PORT, or http://HOST:PORT".to_owned()),
        _ => Err(format!("`{scheme}://` is not understood: write HOST:PORT, or http://HOST:PORT")),
    }
}

/// The host, and the port if one is named.
fn split(address: &str) -> Result<(String, Option<&str>), String> {
    if address.parse::<Ipv6Addr>().is_ok() {
        return Ok((format!("[{address}]"), None));
    }
    if let Some(bracketed) = address.strip_prefix('[') {
        let (host, port) = bracketed.split_once(']').ok_or("the bracket is not closed: write [::1]:5100")?;
        host.parse::<Ipv6Addr>().map_err(|_| format!("`{host}` is no IPv6 address"))?;
        let port = match port {
            "" => None,
            port => Some(port.strip_prefix(':').ok_or("after the bracket comes `:` and the port")?),
        };
        return Ok((format!("[{host}]"), port));
    }
    let (host, port) = match address.split_once(':') {
        Some((_, port)) if port.contains(':') => {
            return Err("it has several colons: write HOST:PORT, and an IPv6 address in brackets".to_owned());
        }
        Some((host, port)) => (host, Some(port)),
        None => (address, None),
    };
    check_host(host)?;
    Ok((host.to_owned(), port))
}

/// What a URL and a resolver take. An underscore is no part of a host's name, but of many that container platforms
/// give.
fn check_host(host: &str) -> Result<(), String> {
    let odd = |c: &char| !(c.is_ascii_alphanumeric() || matches!(c, '.' | '-' | '_'));
    match host {
        "" => Err("there is no host: write HOST:PORT, such as localhost:5100".to_owned()),
        _ if host.len() > MOST_HOST_BYTES => Err(format!("its host has more than {MOST_HOST_BYTES} bytes")),
        _ => match host.chars().find(odd) {
            Some('/') => Err("there is more than HOST:PORT: a path makes no sense here".to_owned()),
            Some(',') => Err("there are commas: write one server here".to_owned()),
            Some(c) => Err(format!("{c:?} cannot be part of a host: write HOST:PORT, such as localhost:5100")),
            None => Ok(()),
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_addresses_and_urls_without_a_path_are_endpoints() {
        for (written, read) in [
            ("localhost:5100", "localhost:5100"),
            ("db.internal", "db.internal:5100"),
            ("http://db.internal:80", "db.internal:80"),
            ("HTTP://a_b-c.d/", "a_b-c.d:5100"),
            (" 127.0.0.1:7 ", "127.0.0.1:7"),
            ("127.0.0.1", "127.0.0.1:5100"),
            ("[::1]:7", "[::1]:7"),
            ("[::1]", "[::1]:5100"),
            ("::1", "[::1]:5100"),
            ("http://[fe80::1]:65535/", "[fe80::1]:65535"),
        ] {
            assert_eq!(parse(written).as_deref(), Ok(read), "{written}");
            assert_eq!(parse(read).as_deref(), Ok(read), "what was read is read again as it is");
        }
        assert_eq!(parse_with("localhost", 5160).as_deref(), Ok("localhost:5160"));
    }

    #[test]
    fn what_is_no_endpoint_is_refused_with_what_would_be_right() {
        let long = "x".repeat(254);
        for (written, says) in [
            ("", "there is no host"),
            (":5100", "there is no host"),
            ("http://", "there is no host"),
            ("https://db.internal:5100", "there is no TLS yet"),
            ("grpc://db.internal", "`grpc://` is not understood"),
            ("localhost:", "the port `` is not a number"),
            ("localhost:http", "the port `http` is not a number"),
            ("localhost:+80", "the port `+80` is not a number"),
            ("localhost:0", "the port `0` is not a number from 1 to 65535"),
            ("localhost:65536", "the port `65536` is not"),
            ("localhost:5100/metrics", "the port `5100/metrics` is not"),
            ("localhost/metrics", "a path makes no sense"),
            ("a b:1", "' ' cannot be part of a host"),
            ("me@host:1", "'@' cannot be part of a host"),
            ("a,b", "write one server here"),
            ("1:2:3", "several colons"),
            ("[::1:5100", "the bracket is not closed"),
            ("[::1]5100", "after the bracket"),
            ("[localhost]:1", "`localhost` is no IPv6 address"),
            (long.as_str(), "more than 253 bytes"),
        ] {
            let error = parse(written).expect_err(written).to_string();
            assert!(error.contains(says), "{written}: {error}");
        }
    }

    #[test]
    fn several_are_separated_by_commas() {
        assert_eq!(parse_list("a, http://b:1"), Ok(vec!["a:5100".to_owned(), "b:1".to_owned()]));
        assert!(parse_list("a,").is_err_and(|bad| bad.why.contains("there is no host")));
    }
}
