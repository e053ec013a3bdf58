//! Connections to servers, which clients of a process can share.

use std::{
    collections::HashMap,
    net::IpAddr,
    sync::{Arc, Mutex, PoisonError, Weak},
    time::Duration,
};

use leaseway_tls::ClientTls;
use tonic::{service::interceptor::InterceptedService, transport::Endpoint};

use super::token::{Bearer, Token};

/// A connection is shared by up to this many users. A client counts two or three times, for its stream of hints and its
/// requests. Servers bound the number of streams per connection, commonly to 1024 or 100.
const USES_PER_CONNECTION: usize = 96;

/// A channel that adds the token, if any, to each request.
pub type Channel = InterceptedService<tonic::transport::Channel, Bearer>;

/// A pool of connections, and how to make them: with or without TLS, with or without a token. Clones share the pool.
///
/// Every client has its own unless [`Builder::transport`](crate::Builder::transport) sets one. A process with thousands
/// of clients should share one.
#[derive(Clone, Default)]
pub struct Transport {
    by_address: Arc<Mutex<ByAddress>>,
    tls: Option<ClientTls>,
    bearer: Bearer,
    clear_token: bool,
    in_process: Option<InProcessRoute>,
}

/// How a server within this process is reached.
#[derive(Clone)]
struct InProcessRoute {
    address: Arc<str>,
    connect: Arc<dyn Fn() -> tonic::transport::Channel + Send + Sync>,
}

/// Connections in use, by address.
type ByAddress = HashMap<Arc<str>, Vec<Weak<Connection>>>;

/// A connection. It is closed when the last user drops it.
pub struct Connection {
    /// The server, as `host:port`.
    pub address: Arc<str>,
    /// The channel to send over.
    pub channel: Channel,
}

/// Why there is no connection.
#[derive(Debug, thiserror::Error)]
pub enum NoConnection {
    /// The address is invalid, or the connection failed.
    #[error(transparent)]
    Transport(#[from] tonic::transport::Error),
    /// The token would be sent unencrypted.
    #[error(
        "refusing to send the token to {0} without TLS: use TLS, or allow clear-text tokens if a tunnel protects the \
         connection"
    )]
    TokenInTheClear(Arc<str>),
}

impl Transport {
    /// An empty pool that connects without TLS.
    pub fn new() -> Transport {
        Transport::default()
    }

    /// Connects over TLS. New connections use renewed certificates. The result is a new pool.
    #[must_use]
    pub fn with_tls(self, tls: ClientTls) -> Transport {
        Transport { by_address: Arc::default(), tls: Some(tls), ..self }
    }

    /// Sends this token with every request. Without TLS it is sent to this machine only. The result is a new pool.
    #[must_use]
    pub fn with_token(self, token: Token) -> Transport {
        Transport { by_address: Arc::default(), bearer: Bearer(Some(token)), ..self }
    }

    /// Allows the token to be sent without TLS, if a tunnel protects the connection. The result is a new pool.
    #[must_use]
    pub fn with_clear_token(self) -> Transport {
        Transport { by_address: Arc::default(), clear_token: true, ..self }
    }

    /// Reaches the server at `address`, which runs in this process, over channels from `connect`. The result is a new
    /// pool.
    #[must_use]
    pub fn with_in_process(
        self,
        address: &str,
        connect: impl Fn() -> tonic::transport::Channel + Send + Sync + 'static,
    ) -> Transport {
        let route = InProcessRoute { address: address.into(), connect: Arc::new(connect) };
        Transport { by_address: Arc::default(), in_process: Some(route), ..self }
    }

    /// Whether connections are made over TLS.
    pub fn is_secured(&self) -> bool {
        self.tls.is_some()
    }

    /// A connection to `address`, shared if possible. It connects when it is first used, and again after a failure.
    pub fn connection(&self, address: &Arc<str>) -> Result<Arc<Connection>, NoConnection> {
        let mut by_address = self.by_address.lock().unwrap_or_else(PoisonError::into_inner);
        by_address.retain(|_, connections| {
            connections.retain(|connection| connection.strong_count() > 0);
            !connections.is_empty()
        });
        let connections = by_address.entry(Arc::clone(address)).or_default();
        let room = connections.iter().filter(|connection| connection.strong_count() < USES_PER_CONNECTION);
        if let Some(connection) = room.filter_map(Weak::upgrade).next() {
            return Ok(connection);
        }
        let connection = Arc::new(Connection { address: Arc::clone(address), channel: self.channel(address)? });
        connections.push(Arc::downgrade(&connection));
        Ok(connection)
    }

    /// Connects now, once, without sharing the connection. `tune` configures it.
    pub async fn connect(
        &self,
        address: &str,
        tune: impl FnOnce(Endpoint) -> Endpoint,
    ) -> Result<Channel, NoConnection> {
        let endpoint = tune(self.endpoint(address)?);
        Ok(self.with_bearer(leaseway_tls::connected_channel(self.tls.as_ref(), endpoint).await?))
    }

    /// As [`connect`](Self::connect), but connects when it is first used, and again after a failure.
    pub fn connect_lazy(
        &self,
        address: &str,
        tune: impl FnOnce(Endpoint) -> Endpoint,
    ) -> Result<Channel, NoConnection> {
        let endpoint = tune(self.endpoint(address)?);
        Ok(self.with_bearer(leaseway_tls::channel(self.tls.as_ref(), endpoint)))
    }

    fn with_bearer(&self, channel: tonic::transport::Channel) -> Channel {
        InterceptedService::new(channel, self.bearer.clone())
    }

    /// Whether the token would be sent to this server without TLS, so that no connection is made.
    pub(crate) fn exposes_token(&self, address: &str) -> bool {
        self.bearer.0.is_some() && self.tls.is_none() && !self.clear_token && !is_loopback(address)
    }

    fn endpoint(&self, address: &str) -> Result<Endpoint, NoConnection> {
        if self.exposes_token(address) {
            return Err(NoConnection::TokenInTheClear(address.into()));
        }
        Ok(Endpoint::from_shared(format!("http://{address}"))?)
    }

    fn channel(&self, address: &str) -> Result<Channel, NoConnection> {
        if let Some(route) = self.in_process.as_ref().filter(|route| *route.address == *address) {
            return Ok(InterceptedService::new((route.connect)(), Bearer::default()));
        }
        self.connect_lazy(address, |endpoint| {
            endpoint
                .connect_timeout(CONNECT_TIMEOUT)
                .tcp_nodelay(true)
                // Detects hosts that vanished while a call or a stream is open.
                .http2_keep_alive_interval(Duration::from_secs(10))
                .keep_alive_timeout(Duration::from_secs(5))
        })
    }

    /// Stops sharing this connection: it did not answer in time and may be dead.
    pub fn distrust(&self, connection: &Arc<Connection>) {
        let mut by_address = self.by_address.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(connections) = by_address.get_mut(&connection.address) {
            connections.retain(|other| !std::ptr::eq(other.as_ptr(), Arc::as_ptr(connection)));
        }
    }
}

/// Includes the TLS handshake.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(3);

/// Whether an address is on this machine.
pub fn is_loopback(address: &str) -> bool {
    let host = address.rsplit_once(':').map_or(address, |(host, _)| host);
    let bare = host.trim_start_matches('[').trim_end_matches(']');
    bare.eq_ignore_ascii_case("localhost") || bare.parse::<IpAddr>().is_ok_and(|address| address.is_loopback())
}

impl std::fmt::Debug for Connection {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Connection").field("address", &self.address).finish_non_exhaustive()
    }
}

impl std::fmt::Debug for Transport {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Transport").finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn connections_are_shared_up_to_a_maximum_of_users() {
        let transport = Transport::new();
        let address: Arc<str> = "127.0.0.1:1".into();
        let used: Vec<_> =
            (0..=USES_PER_CONNECTION).map(|_| transport.connection(&address).expect("an address")).collect();
        assert!(used[1..USES_PER_CONNECTION].iter().all(|connection| Arc::ptr_eq(connection, &used[0])));
        assert!(!Arc::ptr_eq(&used[0], &used[USES_PER_CONNECTION]));
        assert!(transport.connection(&"not an address".into()).is_err());
    }

    #[tokio::test]
    async fn distrusted_connections_are_not_shared_and_unused_ones_are_dropped() {
        let transport = Transport::new();
        let address: Arc<str> = "127.0.0.1:1".into();
        let first = transport.connection(&address).expect("an address");
        transport.distrust(&first);
        let second = transport.connection(&address).expect("an address");
        assert!(!Arc::ptr_eq(&first, &second));
        transport.distrust(&first);
        assert!(Arc::ptr_eq(&second, &transport.connection(&address).expect("an address")), "still trusted");
        drop((first, second));
        let _other = transport.connection(&"127.0.0.1:2".into()).expect("an address");
        assert_eq!(transport.by_address.lock().expect("not poisoned").len(), 1);
    }

    #[tokio::test]
    async fn tokens_are_sent_unencrypted_to_this_machine_only() {
        let transport = Transport::new().with_token(Token::new("secret").expect("a token"));
        for address in ["127.0.0.1:1", "localhost:1", "[::1]:1"] {
            assert!(transport.connection(&address.into()).is_ok(), "{address}");
        }
        for address in ["10.0.0.1:1", "db.internal:1", "localhost.evil:1", "[fe80::1]:1"] {
            let refused = transport.connection(&address.into());
            assert!(matches!(refused, Err(NoConnection::TokenInTheClear(_))), "{address}");
        }
        assert!(transport.with_clear_token().connection(&"10.0.0.1:1".into()).is_ok());
    }
}
