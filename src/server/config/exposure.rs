//! Whether a server may start where others can reach it.
//!
//! On loopback everything is allowed unless a policy says otherwise. Beyond it a caller can be any machine: without TLS
//! what passes can be read and changed on the way, tokens too, and without a policy a caller may do everything.

use std::net::SocketAddr;

/// What a server would start with.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Exposure<'a> {
    /// Where it would listen, by the flag that says so. The peers' listener has a rule of its own.
    pub(crate) listeners: &'a [(&'static str, SocketAddr)],
    /// All of these speak TLS.
    pub(crate) has_tls: bool,
    /// A policy will decide: from the configuration, or the one that the peers keep.
    pub(crate) has_policy: bool,
    /// `--insecure`.
    pub(crate) insecure: bool,
}

/// Beyond loopback, and not protected.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "{flag} {address} can be reached from other machines, and {}; on a network where only those reach it that may do \
     everything, --insecure starts it all the same", lacks(.tls, .policy)
)]
pub struct ExposedError {
    pub flag: &'static str,
    /// Where it was to listen.
    pub address: SocketAddr,
    /// TLS is missing.
    pub tls: bool,
    /// A policy is missing.
    pub policy: bool,
}

fn lacks(tls: &bool, policy: &bool) -> String {
    const TLS: &str = "there is no TLS (--tls-cert, --tls-key)";
    const POLICY: &str = "no policy says who may do what (`access:` in the configuration)";
    match (tls, policy) {
        (true, true) => format!("{TLS} and {POLICY}"),
        (true, false) => TLS.to_owned(),
        _ => POLICY.to_owned(),
    }
}

impl Exposure<'_> {
    /// Refuses what is not protected, unless that is wanted.
    pub(crate) fn check(&self) -> Result<(), ExposedError> {
        match self.exposed() {
            Some((flag, address)) if !self.insecure => {
                Err(ExposedError { flag, address, tls: !self.has_tls, policy: !self.has_policy })
            }
            _ => Ok(()),
        }
    }

    /// The first listener that others reach although it is not protected.
    pub(crate) fn exposed(&self) -> Option<(&'static str, SocketAddr)> {
        let beyond = self.listeners.iter().find(|(_, address)| !address.ip().is_loopback());
        beyond.filter(|_| !(self.has_tls && self.has_policy)).copied()
    }

    /// Whether everything may be allowed while there is no policy.
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
    fn on_loopback_nothing_is_asked_for() {
        for (listen, http) in [("127.0.0.1:1", "127.0.0.2:2"), ("[::1]:1", "127.0.0.1:0")] {
            let listeners = listeners(listen, http);
            let exposure = Exposure { listeners: &listeners, has_tls: false, has_policy: false, insecure: false };
            assert_eq!((exposure.check(), exposure.exposed()), (Ok(()), None));
            assert!(exposure.opens_without_policy());
        }
    }

    #[test]
    fn beyond_loopback_tls_and_a_policy_are_needed_or_the_word_insecure() {
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
                assert!(!exposure.opens_without_policy(), "also if the policy is taken away later");
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
