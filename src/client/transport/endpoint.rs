//! Where a server is reached, as people write it: `HOST:PORT`, a name or an address, with or without `http://` or
//! `https://` before it.
//!
//! The client, the command line and what servers say of each other are all read here, so that what works in one place
//! works in all. Names are looked up when a connection is made, not here.

use std::net::Ipv6Addr;

/// Where clients ask if no port is named: the default of `--listen`.
pub const DEFAULT_PORT: u16 = 5100;

/// The longest name that DNS has.
const MAX_HOST_BYTES: usize = 253;

/// An endpoint that cannot be one.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("`{endpoint}` is no server's address: {why}")]
pub struct BadEndpoint {
    /// As given, or as much of it as a person reads.
    pub endpoint: String,
    /// What is wrong with it, and what would be right.
    pub why: String,
}

/// What an endpoint says of TLS.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Scheme {
    /// `HOST:PORT`: nothing.
    Unspecified,
    /// `http://`: it is reached without TLS.
    Plain,
    /// `https://`: it is reached over TLS.
    Tls,
}

/// An endpoint as it was written.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Endpoint {
    /// `HOST:PORT`, normalised: with a port, and with an IPv6 address in brackets.
    pub address: String,
    /// What was written before it.
    pub scheme: Scheme,
}

/// `HOST:PORT`, `http://HOST:PORT` or `https://HOST:PORT`, with [`DEFAULT_PORT`] if no port is named.
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

/// As [`read`], with this port if none is named: for listeners other than that of clients.
pub fn read_with(endpoint: &str, default_port: u16) -> Result<Endpoint, BadEndpoint> {
    let (scheme, rest) = scheme(endpoint.trim()).map_err(|why| bad(endpoint, why))?;
    let address = normalised(rest, default_port).map_err(|why| bad(endpoint, why))?;
    Ok(Endpoint { address, scheme })
}

/// Where a server is, where nothing is to be said of TLS: as [`read`], `https://` refused.
pub fn parse(endpoint: &str) -> Result<String, BadEndpoint> {
    parse_with(endpoint, DEFAULT_PORT)
}

/// As [`parse`], with this port if none is named.
pub fn parse_with(endpoint: &str, default_port: u16) -> Result<String, BadEndpoint> {
    match read_with(endpoint, default_port)? {
        Endpoint { scheme: Scheme::Tls, .. } => {
            Err(bad(endpoint, "whether TLS is used does not stand in this address: write HOST:PORT".to_owned()))
        }
        Endpoint { address, .. } => Ok(address),
    }
}

/// Whether these servers are reached over TLS: all, or none, for each may send a client to any other of them. `wanted`:
/// the client was told so by other means.
pub fn over_tls(endpoints: &[Endpoint], wanted: bool) -> Result<bool, BadEndpoint> {
    let is = |scheme| move |endpoint: &&Endpoint| endpoint.scheme == scheme;
    let secured = endpoints.iter().find(is(Scheme::Tls));
    match (endpoints.iter().find(is(Scheme::Plain)), secured, wanted) {
        (Some(plain), Some(secured), _) => {
            let why = format!("it is without TLS, but https://{} is with it: of one node all are", secured.address);
            Err(bad(&format!("http://{}", plain.address), why))
        }
        (Some(plain), None, true) => {
            let why = "it says that there is no TLS, but TLS is asked for: write https://, or HOST:PORT".to_owned();
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
        _ => Err(format!("`{scheme}://` is not understood: write HOST:PORT, or https://HOST:PORT")),
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
        _ if host.len() > MAX_HOST_BYTES => Err(format!("its host has more than {MAX_HOST_BYTES} bytes")),
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
        let secured = Endpoint { address: "db.internal:5100".into(), scheme: Scheme::Tls };
        assert_eq!(read("HTTPS://db.internal/"), Ok(secured));
        assert_eq!(parse_with("localhost", 5160).as_deref(), Ok("localhost:5160"));
    }

    #[test]
    fn what_is_no_endpoint_is_refused_with_what_would_be_right() {
        let long = "x".repeat(254);
        for (written, says) in [
            ("", "there is no host"),
            (":5100", "there is no host"),
            ("http://", "there is no host"),
            ("https://db.internal:5100", "whether TLS is used does not stand in this address"),
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
    fn servers_of_one_node_are_all_reached_over_tls_or_none_is() {
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
            let error = over_tls(&read(texts), wanted).expect_err("they differ").to_string();
            assert!(error.starts_with("`http://a:5100` is no server's address"), "{error}");
        }
    }
}
