//! Checks the options for the parent.

use std::{path::PathBuf, sync::Arc};

use leaseway_client::transport::{Token, is_loopback};
use leaseway_tls::{ClientTls, Credentials, Files, TlsError};

use crate::{
    config::error::ParentError,
    listen::tls::Tls,
    node::{Parent, addresses::ServerInfo},
};

/// The parent whose capacity this node divides.
#[derive(Debug, Clone)]
pub struct ParentOptions {
    /// Peers of the parent, as `host:port`. The prefix `https://` means TLS and `http://` plain text. The default is
    /// TLS if there is a CA.
    pub addresses: Vec<String>,
    /// The file with the token that authenticates this node.
    pub token: Option<PathBuf>,
    /// The name of this node at the parent, the same for all its peers. The default is the id of this server.
    pub node: Option<String>,
}

impl ParentOptions {
    /// Validates the options. `listening` is the address of this server.
    pub(crate) fn check(
        &self,
        info: &ServerInfo,
        listening: std::net::SocketAddr,
        has_peers: bool,
        tls: Option<&Tls>,
    ) -> Result<Parent, ParentError> {
        if has_peers && self.node.is_none() {
            return Err(ParentError::NoName);
        }
        let by_default = tls.is_some_and(Tls::has_ca);
        let mut over_tls = None;
        let mut addresses = Vec::with_capacity(self.addresses.len());
        for given in &self.addresses {
            let (secure, address) = match given.split_once("://") {
                Some(("https", address)) => (true, address),
                Some(("http", address)) => (false, address),
                _ => (by_default, given.as_str()),
            };
            if *over_tls.get_or_insert(secure) != secure {
                return Err(ParentError::Mixed);
            }
            addresses.push(check_address(given, address)?);
        }
        let is_open = |address: &&String| over_tls != Some(true) && !is_loopback(address);
        if let (Some(_), Some(address)) = (&self.token, addresses.iter().find(is_open)) {
            return Err(ParentError::TokenInTheClear { address: address.clone() });
        }
        let own = [info.advertise.to_string(), listening.to_string()];
        if let Some(address) = addresses.iter().find(|address| own.contains(address)) {
            return Err(ParentError::Itself { address: address.clone() });
        }
        Ok(Parent {
            node: self.node.as_deref().map_or_else(|| Arc::clone(&info.id), Arc::from),
            addresses: addresses.into_iter().map(Arc::from).collect(),
            token: self.token.as_ref().map(Token::file).transpose()?,
            tls: if over_tls == Some(true) { Some(client(tls)?) } else { None },
        })
    }
}

fn check_address(given: &str, address: &str) -> Result<String, ParentError> {
    let address = address.strip_suffix('/').unwrap_or(address);
    let parts = address.rsplit_once(':');
    if parts.is_some_and(|(host, port)| !host.is_empty() && !host.contains('/') && port.parse::<u16>().is_ok()) {
        return Ok(address.to_owned());
    }
    Err(ParentError::Address { address: given.to_owned() })
}

/// TLS for connections to the parent, with the CAs of the system if no CA is configured.
fn client(tls: Option<&Tls>) -> Result<ClientTls, TlsError> {
    match tls {
        Some(tls) => tls.to_parent(),
        None => ClientTls::new(&Credentials::load(Files::default())?, None),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(addresses: &[&str], node: Option<&str>, has_peers: bool) -> Result<Parent, ParentError> {
        let addresses = addresses.iter().map(|address| (*address).to_owned()).collect();
        let options = ParentOptions { addresses, token: None, node: node.map(str::to_owned) };
        check_options(&options, has_peers)
    }

    fn check_options(options: &ParentOptions, has_peers: bool) -> Result<Parent, ParentError> {
        let info =
            ServerInfo { id: "me".into(), advertise: "example.test:5100".into(), admin: "".into(), http: "".into() };
        options.check(&info, "127.0.0.1:5100".parse().expect("an address"), has_peers, None)
    }

    #[test]
    fn a_server_without_peers_uses_its_id_and_peers_need_one_name() {
        assert_eq!(&*check(&["a:1", "b:1"], None, false).expect("fine").node, "me");
        assert_eq!(&*check(&["a:1"], Some("region"), true).expect("fine").node, "region");
        assert_eq!(check(&["a:1"], None, true).expect_err("no name"), ParentError::NoName);
    }

    #[test]
    fn a_node_is_not_its_own_parent() {
        for own in ["example.test:5100", "127.0.0.1:5100"] {
            let error = check(&["a:1", own], None, false).expect_err("itself");
            assert_eq!(error, ParentError::Itself { address: own.into() });
        }
    }

    #[test]
    fn invalid_addresses_are_named() {
        for bad in ["", "host", ":5100", "host:port", "host:99999", "ftp://a:1", "http://a:1/b"] {
            let error = check(&["a:1", bad], None, false).expect_err("no address");
            assert_eq!(error, ParentError::Address { address: bad.into() });
        }
    }

    #[test]
    fn a_token_requires_loopback_or_tls() {
        let directory = tempfile::tempdir().expect("a directory");
        let token = directory.path().join("token");
        std::fs::write(&token, "secret\n").expect("written");
        let check = |address: &str, token: &std::path::Path| {
            let options = ParentOptions { addresses: vec![address.into()], token: Some(token.into()), node: None };
            check_options(&options, false)
        };
        for address in ["127.0.0.1:1", "localhost:1", "[::1]:1", "https://a:1"] {
            assert!(check(address, &token).expect("fine").token.is_some(), "{address}");
        }
        let error = check("a:1", &token).expect_err("in the clear");
        assert_eq!(error, ParentError::TokenInTheClear { address: "a:1".into() });
        let error = check("127.0.0.1:1", &directory.path().join("none")).expect_err("there is none").to_string();
        assert!(error.starts_with("--parent-token-file: cannot read the token in "), "{error}");
    }

    #[test]
    fn the_scheme_selects_tls_and_must_be_the_same_for_all_addresses() {
        let plain = check(&["http://a:1", "http://b:1/"], None, false).expect("fine");
        assert_eq!(plain.addresses, ["a:1".into(), "b:1".into()] as [Arc<str>; 2]);
        assert!(plain.tls.is_none());
        let mixed = check(&["https://a:1", "b:1"], None, false).expect_err("one speaks TLS, the other does not");
        assert_eq!(mixed, ParentError::Mixed);
    }
}
