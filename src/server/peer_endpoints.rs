//! The addresses of a server, as peers send them to each other.

use std::fmt;

/// The addresses of one peer. The quorum carries them as one opaque text.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct PeerEndpoints {
    /// For clients.
    pub grpc: String,
    /// For operators; empty if it is not known.
    pub admin: String,
}

impl fmt::Display for PeerEndpoints {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.grpc, self.admin)
    }
}

impl From<&str> for PeerEndpoints {
    fn from(advertised: &str) -> PeerEndpoints {
        let (grpc, admin) = advertised.split_once(' ').unwrap_or((advertised, ""));
        PeerEndpoints { grpc: grpc.to_owned(), admin: admin.to_owned() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_parsed_as_they_were_written() {
        let services = PeerEndpoints { grpc: "10.0.0.1:5100".into(), admin: "127.0.0.1:5160".into() };
        assert_eq!(PeerEndpoints::from(services.to_string().as_str()), services);
        assert_eq!(PeerEndpoints::from("10.0.0.1:5100").admin, "");
    }
}
