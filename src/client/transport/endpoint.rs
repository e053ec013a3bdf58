//! Parses the address of a server: `HOST:PORT`, a name or an IP address, optionally with `http://` or `https://`.
//!
//! The client, the command line and servers all use this parser, so the same addresses work everywhere. Names are
//! resolved when a connection is made.

use std::net::Ipv6Addr;

/// The default port for clients, as for `--listen`.
pub const DEFAULT_PORT: u16 = 5100;

/// The maximum length of a DNS name.
const MAX_HOST_BYTES: usize = 253;

/// An invalid endpoint.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("invalid server address `{endpoint}`: {why}")]
pub struct BadEndpoint {
    /// The endpoint as given, truncated if it is very long.
    pub endpoint: String,
    /// What is wrong, and what is expected.
    pub why: String,
}

/// The scheme of an endpoint: whether it uses TLS.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Scheme {
    /// `HOST:PORT`: not specified.
    Unspecified,
    /// `http://`: without TLS.
    Plain,
    /// `https://`: with TLS.
    Tls,
}

/// A parsed endpoint.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Endpoint {
    /// The normalised `HOST:PORT`: always with a port, and with IPv6 addresses in brackets.
    pub address: String,
    /// The scheme.
    pub scheme: Scheme,
}

/// Parses `HOST:PORT`, `http://HOST:PORT` or `https://HOST:PORT`; the default port is [`DEFAULT_PORT`].
///
/// ```
/// use leaseway_client::endpoint::{Scheme, read};
/// assert_eq!(read("localhost:5100")?.address, "localhost:5100");
/// assert_eq!(read("https://db.internal")?.address, "db.internal:5100");
/// assert_eq!(read("https://db.internal")?.scheme, Scheme::Tls);
/// assert_eq!(read("::1")?.address, "[::1]:5100");
/// assert!(read("localhost:5100/metrics").is_err());
/// # Ok::<(), leaseway_client::endpoint::BadEndpoint>(())
/// ```
pub fn read(endpoint: &str) -> Result<Endpoint, BadEndpoint> {
    read_with(endpoint, DEFAULT_PORT)
}

/// As [`read`], with another default port.
pub fn read_with(endpoint: &str, default_port: u16) -> Result<Endpoint, BadEndpoint> {
    let (scheme, rest) = scheme(endpoint.trim()).map_err(|why| bad(endpoint, why))?;
    let address = normalised(rest, default_port).map_err(|why| bad(endpoint, why))?;
    Ok(Endpoint { address, scheme })
}

/// As [`read`], but rejects `https://`, for callers that select TLS by other means.
pub fn parse(endpoint: &str) -> Result<String, BadEndpoint> {
    parse_with(endpoint, DEFAULT_PORT)
}

/// As [`parse`], with another default port.
pub fn parse_with(endpoint: &str, default_port: u16) -> Result<String, BadEndpoint> {
    match read_with(endpoint, default_port)? {
        Endpoint { scheme: Scheme::Tls, .. } => Err(bad(
            endpoint,
            "https:// is not allowed here: write HOST:PORT, and enable TLS by the TLS options".to_owned(),
        )),
        Endpoint { address, .. } => Ok(address),
    }
}

/// Whether these servers of one node use TLS. Either all do or none, because each may redirect a client to any other.
/// `wanted` says that TLS was selected by other means.
pub fn over_tls(endpoints: &[Endpoint], wanted: bool) -> Result<bool, BadEndpoint> {
    let is = |scheme| move |endpoint: &&Endpoint| endpoint.scheme == scheme;
    let secured = endpoints.iter().find(is(Scheme::Tls));
    match (endpoints.iter().find(is(Scheme::Plain)), secured, wanted) {
        (Some(plain), Some(secured), _) => {
            let why =
                format!("it does not use TLS, but https://{} does: use https:// for all servers", secured.address);
            Err(bad(&format!("http://{}", plain.address), why))
        }
        (Some(plain), None, true) => {
            let why = "http:// conflicts with TLS options: write https://, or HOST:PORT".to_owned();
            Err(bad(&format!("http://{}", plain.address), why))
        }
        (_, secured, wanted) => Ok(wanted || secured.is_some()),
    }
}

fn bad(endpoint: &str, why: String) -> BadEndpoint {
    BadEndpoint { endpoint: endpoint.chars().take(MAX_HOST_BYTES).collect(), why }
}

fn scheme(endpoint: &str) -> Result<(Scheme, &str), String> {
    let Some((scheme, rest)) = endpoint.split_once("://") else { return Ok((Scheme::Unspecified, endpoint)) };
    let rest = rest.strip_suffix('/').unwrap_or(rest);
    match scheme.to_ascii_lowercase().as_str() {
        "http" => Ok((Scheme::Plain, rest)),
        "https" => Ok((Scheme::Tls, rest)),
        _ => Err(format!("unknown scheme `{scheme}://`: write HOST:PORT, or https://HOST:PORT")),
    }
}

fn normalised(address: &str, default_port: u16) -> Result<String, String> {
    let (host, port) = split(address)?;
    let port = match port {
        None => default_port,
        Some(port) => port
            .parse()
            .ok()
            .filter(|number| *number > 0 && port.bytes().all(|byte| byte.is_ascii_digit()))
            .ok_or_else(|| format!("the port `{port}` is not a number from 1 to 65535"))?,
    };
    Ok(format!("{host}:{port}"))
}

/// Splits into the host and the port, if there is one.
fn split(address: &str) -> Result<(String, Option<&str>), String> {
    if address.parse::<Ipv6Addr>().is_ok() {
        return Ok((format!("[{address}]"), None));
    }
    if let Some(bracketed) = address.strip_prefix('[') {
        let (host, port) = bracketed.split_once(']').ok_or("missing closing bracket: write [::1]:5100")?;
        host.parse::<Ipv6Addr>().map_err(|_| format!("`{host}` is not an IPv6 address"))?;
        let port = match port {
            "" => None,
            port => Some(port.strip_prefix(':').ok_or("expected `:` and a port after the bracket")?),
        };
        return Ok((format!("[{host}]"), port));
    }
    let (host, port) = match address.split_once(':') {
        Some((_, port)) if port.contains(':') => {
            return Err("several colons: write HOST:PORT, with an IPv6 address in brackets".to_owned());
        }
        Some((host, port)) => (host, Some(port)),
        None => (address, None),
    };
    check_host(host)?;
    Ok((host.to_owned(), port))
}

/// Allows what URLs and resolvers accept. Underscores are not valid in host names, but container platforms use them.
fn check_host(host: &str) -> Result<(), String> {
    let odd = |c: &char| !(c.is_ascii_alphanumeric() || matches!(c, '.' | '-' | '_'));
    match host {
        "" => Err("missing host: write HOST:PORT, such as localhost:5100".to_owned()),
        _ if host.len() > MAX_HOST_BYTES => Err(format!("the host has more than {MAX_HOST_BYTES} bytes")),
        _ => match host.chars().find(odd) {
            Some('/') => Err("unexpected path: write HOST:PORT".to_owned()),
            Some(',') => Err("unexpected comma: write one server".to_owned()),
            Some(c) => Err(format!("invalid character {c:?} in the host: write HOST:PORT, such as localhost:5100")),
            None => Ok(()),
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_addresses_and_urls_are_normalised() {
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
            assert_eq!(parse(read).as_deref(), Ok(read), "parsing is idempotent");
        }
        let secured = Endpoint { address: "db.internal:5100".into(), scheme: Scheme::Tls };
        assert_eq!(read("HTTPS://db.internal/"), Ok(secured));
        assert_eq!(parse_with("localhost", 5160).as_deref(), Ok("localhost:5160"));
    }

    #[test]
    fn invalid_endpoints_are_rejected_with_the_expected_form() {
        let long = "x".repeat(254);
        for (written, says) in [
            ("", "missing host"),
            (":5100", "missing host"),
            ("http://", "missing host"),
            ("https://db.internal:5100", "https:// is not allowed here"),
            ("grpc://db.internal", "unknown scheme `grpc://`"),
            ("localhost:", "the port `` is not a number"),
            ("localhost:http", "the port `http` is not a number"),
            ("localhost:+80", "the port `+80` is not a number"),
            ("localhost:0", "the port `0` is not a number from 1 to 65535"),
            ("localhost:65536", "the port `65536` is not"),
            ("localhost:5100/metrics", "the port `5100/metrics` is not"),
            ("localhost/metrics", "unexpected path"),
            ("a b:1", "invalid character ' '"),
            ("me@host:1", "invalid character '@'"),
            ("a,b", "write one server"),
            ("1:2:3", "several colons"),
            ("[::1:5100", "missing closing bracket"),
            ("[::1]5100", "after the bracket"),
            ("[localhost]:1", "`localhost` is not an IPv6 address"),
            (long.as_str(), "more than 253 bytes"),
        ] {
            let error = parse(written).expect_err(written).to_string();
            assert!(error.contains(says), "{written}: {error}");
        }
    }

    #[test]
    fn either_all_servers_of_a_node_use_tls_or_none() {
        let read = |texts: &[&str]| texts.iter().map(|text| read(text).expect(text)).collect::<Vec<_>>();
        for (texts, wanted, tls) in [
            (&["a", "b"][..], false, false),
            (&["a", "b"], true, true),
            (&["a", "https://b"], false, true),
            (&["http://a", "b"], false, false),
        ] {
            assert_eq!(over_tls(&read(texts), wanted), Ok(tls), "{texts:?}");
        }
        for (texts, wanted) in [(&["http://a"][..], true), (&["http://a", "https://b"], false)] {
            let error = over_tls(&read(texts), wanted).expect_err("a conflict").to_string();
            assert!(error.starts_with("invalid server address `http://a:5100`"), "{error}");
        }
    }
}
