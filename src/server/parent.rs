//! The parent of this server's node: from options to a checked [`Parent`].

use std::sync::Arc;

use crate::{actors::Parent, identity::Identity};

/// The message for operators who configure templates in two places.
pub(crate) const TEMPLATES: &str = "a node with a parent takes its templates from the parent";

/// The parent whose capacity this node divides.
#[derive(Debug, Clone)]
pub struct ParentOptions {
    /// Peers of the parent, as `host:port`.
    pub addresses: Vec<String>,
    /// What this node is called there, the same for all its peers; none: as this server is.
    pub node: Option<String>,
}

/// Why a node cannot have this parent.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ParentError {
    /// Each peer would be another child.
    #[error(
        "--parent with --peers needs --node NAME: what this node is called at its parent, the same for all its peers"
    )]
    NoName,
    /// It would lend to itself.
    #[error("--parent names {address}, which is this server: a node cannot be its own parent")]
    Itself {
        /// As it was given.
        address: String,
    },
    /// It is no address.
    #[error("--parent names `{address}`: expected HOST:PORT, like 10.0.0.1:5100")]
    Address {
        /// As it was given.
        address: String,
    },
}

impl ParentOptions {
    /// `listening` is where this server serves.
    pub(crate) fn check(
        &self,
        identity: &Identity,
        listening: std::net::SocketAddr,
        has_peers: bool,
    ) -> Result<Parent, ParentError> {
        if has_peers && self.node.is_none() {
            return Err(ParentError::NoName);
        }
        let is_address = |address: &str| {
            let parts = address.rsplit_once(':');
            parts.is_some_and(|(host, port)| !host.is_empty() && port.parse::<u16>().is_ok())
        };
        if let Some(address) = self.addresses.iter().find(|address| !is_address(address)) {
            return Err(ParentError::Address { address: address.clone() });
        }
        let own = [identity.advertise.to_string(), listening.to_string()];
        if let Some(address) = self.addresses.iter().find(|address| own.contains(address)) {
            return Err(ParentError::Itself { address: address.clone() });
        }
        Ok(Parent {
            node: self.node.as_deref().map_or_else(|| Arc::clone(&identity.id), Arc::from),
            addresses: self.addresses.iter().map(|address| address.as_str().into()).collect(),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(addresses: &[&str], node: Option<&str>, has_peers: bool) -> Result<Parent, ParentError> {
        let identity = Identity { id: "me".into(), advertise: "example.test:5100".into(), admin: "".into() };
        let addresses = addresses.iter().map(|address| (*address).to_owned()).collect();
        let options = ParentOptions { addresses, node: node.map(str::to_owned) };
        options.check(&identity, "127.0.0.1:5100".parse().expect("an address"), has_peers)
    }

    #[test]
    fn a_lone_server_is_called_what_it_calls_itself_and_peers_need_one_name() {
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
    fn what_is_no_address_is_named() {
        for bad in ["", "host", ":5100", "host:port", "host:99999"] {
            let error = check(&["a:1", bad], None, false).expect_err("no address");
            assert_eq!(error, ParentError::Address { address: bad.into() });
        }
    }
}
