//! Which names a plain HTTP listener answers to.
//!
//! A browser on this machine can be made to send requests here by a page from anywhere: its name is looked up again,
//! and then leads to this address (DNS rebinding). To the browser page and server are the same origin, so the page
//! reads everything that the browser may. What the attacker cannot choose is the `Host` header, which has the name of
//! the page. Over TLS the certificate does the same job.

use std::net::IpAddr;

use http::{HeaderMap, Uri, header};

#[derive(Debug, Clone, Default)]
pub(crate) struct HostNames(Vec<String>);

impl HostNames {
    /// `advertise` is `HOST:PORT`, where others are told to reach this server.
    pub(crate) fn new(named: &[String], advertise: Option<&str>) -> HostNames {
        let names = named.iter().map(String::as_str).chain(advertise);
        HostNames(names.map(|name| host(name).to_ascii_lowercase()).collect())
    }

    /// Refuses a request that was meant for another name. One without a name, as HTTP/1.0 has it, comes from no
    /// browser.
    pub(crate) fn check(&self, uri: &Uri, headers: &HeaderMap) -> Result<(), String> {
        let of_header = || headers.get(header::HOST).map(|name| String::from_utf8_lossy(name.as_bytes()).into_owned());
        let Some(name) = uri.host().map(str::to_owned).or_else(of_header) else { return Ok(()) };
        if self.has(&name) {
            return Ok(());
        }
        Err(format!(
            "this server does not answer to the name `{}`, because any page could choose it: use the address of the \
             server, or start it with the name in --http-names",
            leaseway_core::escaped(host(&name))
        ))
    }

    fn has(&self, name: &str) -> bool {
        let host = host(name).to_ascii_lowercase();
        let is_local = host == "localhost" || host.ends_with(".localhost");
        let is_address = host.trim_matches(['[', ']']).parse::<IpAddr>().is_ok();
        is_local || is_address || self.0.contains(&host)
    }
}

/// Without the port, and without the dot at the end of a complete name.
fn host(name: &str) -> &str {
    let end_of_address = name.rfind(']').unwrap_or(0);
    let host = name.rfind(':').filter(|colon| *colon > end_of_address).map_or(name, |colon| &name[..colon]);
    host.strip_suffix('.').unwrap_or(host)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(names: &HostNames, host: &str) -> Result<(), String> {
        let headers = HeaderMap::from_iter([(header::HOST, host.parse().expect("a header"))]);
        names.check(&Uri::from_static("/"), &headers)
    }

    #[test]
    fn a_server_answers_to_its_addresses_and_to_names_that_it_was_given() {
        let names = HostNames::new(&["Limits.example".to_owned()], Some("a.internal:5100"));
        for host in [
            "127.0.0.1:5150",
            "10.1.2.3",
            "[::1]:5150",
            "[::1]",
            "localhost:5150",
            "LOCALHOST",
            "a.localhost",
            "limits.example",
            "LIMITS.example.:80",
            "a.internal:5150",
        ] {
            assert_eq!(check(&names, host), Ok(()), "{host}");
        }
        assert!(names.check(&Uri::from_static("/"), &HeaderMap::new()).is_ok(), "no browser");
    }

    #[test]
    fn a_name_that_anybody_can_have_lead_here_is_refused() {
        let names = HostNames::new(&["limits.example".to_owned()], Some("127.0.0.1:5100"));
        for host in [
            "evil.example:5150",
            "evil.limits.example",
            "limits.example.evil",
            "127.0.0.1.evil.example",
            "localhost.evil",
            "a.internal",
            "",
            "é",
        ] {
            let error = check(&names, host).expect_err(host);
            assert!(error.contains("--http-names"), "{error}");
        }
        let http2 = Uri::from_static("http://evil.example/");
        assert!(names.check(&http2, &HeaderMap::new()).is_err());
    }
}
