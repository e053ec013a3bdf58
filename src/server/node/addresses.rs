//! The advertised addresses of this server and of its peers.

use std::{fmt, net::SocketAddr, sync::Arc};

/// The id and the advertised addresses of a server.
#[derive(Debug, Clone)]
pub(crate) struct ServerInfo {
    pub(crate) id: Arc<str>,
    pub(crate) advertise: Arc<str>,
    /// The address for operators. Empty without peers.
    pub(crate) admin: Arc<str>,
    /// The address of the pages.
    pub(crate) http: Arc<str>,
}

impl ServerInfo {
    /// `id` and `advertise` default to the address for gRPC.
    pub(crate) fn new(id: Option<String>, advertise: Option<String>, grpc: SocketAddr, http: SocketAddr) -> ServerInfo {
        let advertise: Arc<str> = advertise.unwrap_or_else(|| grpc.to_string()).into();
        let http = page_address(&advertise, http).into();
        ServerInfo { id: id.map_or_else(|| Arc::clone(&advertise), Arc::from), advertise, admin: "".into(), http }
    }
}

/// If pages are served on all addresses, they have the advertised host.
fn page_address(advertise: &str, http: SocketAddr) -> String {
    match advertise.rsplit_once(':') {
        Some((host, _)) if http.ip().is_unspecified() => format!("{host}:{}", http.port()),
        _ => http.to_string(),
    }
}

/// The addresses of one peer. Raft stores them as one opaque text.
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
    fn pages_on_all_addresses_have_the_advertised_host() {
        let address = |http: &str| page_address("a.example:5100", http.parse().expect("an address"));
        assert_eq!(address("0.0.0.0:5150"), "a.example:5150");
        assert_eq!(address("[::]:5150"), "a.example:5150");
        assert_eq!(address("127.0.0.1:5150"), "127.0.0.1:5150");
    }

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
