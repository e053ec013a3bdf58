//! What a server calls itself.

use std::{net::SocketAddr, sync::Arc};

/// What a server calls itself, and where it can be reached.
#[derive(Debug, Clone)]
pub(crate) struct ServerInfo {
    pub(crate) id: Arc<str>,
    pub(crate) advertise: Arc<str>,
    /// Where operators reach it; empty without peers.
    pub(crate) admin: Arc<str>,
    /// Where its pages are.
    pub(crate) http: Arc<str>,
}

impl ServerInfo {
    /// Of a server at `grpc`, unless it is called something else.
    pub(crate) fn new(id: Option<String>, advertise: Option<String>, grpc: SocketAddr, http: SocketAddr) -> ServerInfo {
        let advertise: Arc<str> = advertise.unwrap_or_else(|| grpc.to_string()).into();
        let http = page_address(&advertise, http).into();
        ServerInfo { id: id.map_or_else(|| Arc::clone(&advertise), Arc::from), advertise, admin: "".into(), http }
    }
}

/// Pages that are served on all addresses are found where clients find the server.
fn page_address(advertise: &str, http: SocketAddr) -> String {
    match advertise.rsplit_once(':') {
        Some((host, _)) if http.ip().is_unspecified() => format!("{host}:{}", http.port()),
        _ => http.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pages_on_all_addresses_are_found_where_clients_find_the_server() {
        let address = |http: &str| page_address("a.example:5100", http.parse().expect("an address"));
        assert_eq!(address("0.0.0.0:5150"), "a.example:5150");
        assert_eq!(address("[::]:5150"), "a.example:5150");
        assert_eq!(address("127.0.0.1:5150"), "127.0.0.1:5150");
    }
}
