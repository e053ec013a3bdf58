//! The addresses of a peer, as peers exchange them.

use std::fmt;

/// The addresses of one peer. The quorum stores them as one opaque text.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct PeerEndpoints {
    pub grpc: String,
    /// The address for operators. Empty if unknown.
    pub admin: String,
    /// The address of the pages. Empty if unknown.
    pub http: String,
}

impl fmt::Display for PeerEndpoints {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {} {}", self.grpc, self.admin, self.http)
    }
}

impl From<&str> for PeerEndpoints {
    fn from(advertised: &str) -> PeerEndpoints {
        let mut addresses = advertised.split(' ').map(str::to_owned);
        let mut next = || addresses.next().unwrap_or_default();
        PeerEndpoints { grpc: next(), admin: next(), http: next() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_parsed_as_they_were_written() {
        let http = "10.0.0.1:5150".to_owned();
        let services = PeerEndpoints { grpc: "10.0.0.1:5100".into(), admin: "127.0.0.1:5160".into(), http };
        assert_eq!(PeerEndpoints::from(services.to_string().as_str()), services);
        let no_operators = PeerEndpoints { admin: String::new(), ..services };
        assert_eq!(PeerEndpoints::from(no_operators.to_string().as_str()), no_operators);
        assert_eq!(PeerEndpoints::from("10.0.0.1:5100 127.0.0.1:5160").http, "");
        assert_eq!(PeerEndpoints::from("10.0.0.1:5100").admin, "");
    }
}
