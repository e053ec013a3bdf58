//! The listeners of a server, and whether they may be reachable from other machines.
//!
//! On loopback everything is allowed unless there is a policy. Beyond loopback, TLS and a policy are required: without
//! TLS others can read and change traffic and tokens, and without a policy every caller may do everything.

use std::net::SocketAddr;

use leaseway_tls::Protocol;

/// The service of a listener.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Service {
    Clients,
    Pages,
    Operators,
    Peers,
}

impl Service {
    pub(crate) const ALL: [Service; 4] = [Service::Clients, Service::Pages, Service::Operators, Service::Peers];

    /// The name in logs and metrics.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Service::Clients => "clients",
            Service::Pages => "http",
            Service::Operators => "operators",
            Service::Peers => "peers",
        }
    }

    pub(crate) fn protocol(self) -> Protocol {
        match self {
            Service::Pages => Protocol::Http1,
            Service::Clients | Service::Operators | Service::Peers => Protocol::Http2,
        }
    }
}

/// The listeners and their protection.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Exposure<'a> {
    /// Flags and addresses. The peers' listener has its own rule.
    pub(crate) listeners: &'a [(&'static str, SocketAddr)],
    pub(crate) has_tls: bool,
    /// Whether there is a policy, in the configuration file or replicated by the peers.
    pub(crate) has_policy: bool,
    pub(crate) insecure: bool,
}

/// A listener is reachable from other machines and unprotected.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "{flag} {address} can be reached from other machines, but {}: add what is missing, or pass --insecure if \
     everyone on that network may do everything", lacks(.tls, .policy)
)]
pub struct ExposedError {
    pub flag: &'static str,
    pub address: SocketAddr,
    /// Whether TLS is missing.
    pub tls: bool,
    /// Whether a policy is missing.
    pub policy: bool,
}

fn lacks(tls: &bool, policy: &bool) -> String {
    const TLS: &str = "there is no TLS (--tls-cert, --tls-key)";
    const POLICY: &str = "there is no policy (`access:` in the configuration)";
    match (tls, policy) {
        (true, true) => format!("{TLS} and {POLICY}"),
        (true, false) => TLS.to_owned(),
        _ => POLICY.to_owned(),
    }
}

impl Exposure<'_> {
    /// Refuses unprotected listeners unless `insecure` is set.
    pub(crate) fn check(&self) -> Result<(), ExposedError> {
        match self.exposed() {
            Some((flag, address)) if !self.insecure => {
                Err(ExposedError { flag, address, tls: !self.has_tls, policy: !self.has_policy })
            }
            _ => Ok(()),
        }
    }

    /// The first unprotected listener that is reachable from other machines.
    pub(crate) fn exposed(&self) -> Option<(&'static str, SocketAddr)> {
        let beyond = self.listeners.iter().find(|(_, address)| !address.ip().is_loopback());
        beyond.filter(|_| !(self.has_tls && self.has_policy)).copied()
    }

    /// Whether everything is allowed without a policy.
    pub(crate) fn opens_without_policy(&self) -> bool {
        self.insecure || self.listeners.iter().all(|(_, address)| address.ip().is_loopback())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn listeners(listen: &str, http: &str) -> [(&'static str, SocketAddr); 2] {
        [("--listen", listen), ("--http", http)].map(|(flag, address)| (flag, address.parse().expect("an address")))
    }

    #[test]
    fn loopback_needs_no_protection() {
        for (listen, http) in [("127.0.0.1:1", "127.0.0.2:2"), ("[::1]:1", "127.0.0.1:0")] {
            let listeners = listeners(listen, http);
            let exposure = Exposure { listeners: &listeners, has_tls: false, has_policy: false, insecure: false };
            assert_eq!((exposure.check(), exposure.exposed()), (Ok(()), None));
            assert!(exposure.opens_without_policy());
        }
    }

    #[test]
    fn beyond_loopback_tls_and_a_policy_are_required_unless_insecure() {
        for (listen, http, flag) in [
            ("0.0.0.0:1", "127.0.0.1:2", "--listen"),
            ("127.0.0.1:1", "192.0.2.1:2", "--http"),
            ("[::]:1", "[::]:2", "--listen"),
        ] {
            let listeners = listeners(listen, http);
            for (has_tls, has_policy) in [(false, false), (true, false), (false, true), (true, true)] {
                let exposure = Exposure { listeners: &listeners, has_tls, has_policy, insecure: false };
                let is_protected = has_tls && has_policy;
                assert_eq!(exposure.check().is_ok(), is_protected);
                assert!(!exposure.opens_without_policy(), "nor without the policy");
                let insecure = Exposure { insecure: true, ..exposure };
                assert_eq!((insecure.check(), insecure.exposed().is_some()), (Ok(()), !is_protected));
                if let Err(error) = exposure.check() {
                    assert_eq!((error.flag, error.tls, error.policy), (flag, !has_tls, !has_policy));
                    let text = error.to_string();
                    assert_eq!(text.contains("--tls-cert"), !has_tls, "{text}");
                    assert_eq!(text.contains("`access:`"), !has_policy, "{text}");
                    assert!(text.contains("--insecure"), "{text}");
                }
            }
        }
    }
}
