//! Connections to servers, shared by all clients of a process that want to share them.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, PoisonError, Weak},
    time::Duration,
};

use tonic::transport::{Channel, Endpoint};

/// A connection is shared until so many hold on to it. A client does so two or three times: it has a stream of hints,
/// and its requests. Servers bound the streams of a connection, commonly at 1024 or at 100.
const USES_PER_CONNECTION: usize = 96;

/// A pool of connections by address. Clones share it. Every client has one of its own unless its builder is given
/// another; a process with thousands of clients should share one.
#[derive(Clone, Default)]
pub struct Transport {
    by_address: Arc<Mutex<ByAddress>>,
    /// In the clear, without.
    open: Option<Arc<Open>>,
}

/// Makes a channel that connects when it is first used.
type Open = dyn Fn(Endpoint) -> Channel + Send + Sync;

/// Connections, as long as they are in use.
type ByAddress = HashMap<Arc<str>, Vec<Weak<Connection>>>;

/// A connection, open for as long as it is in use.
pub struct Connection {
    /// Where to, as `host:port`.
    pub address: Arc<str>,
    /// What to send over.
    pub channel: Channel,
}

impl Transport {
    /// A pool without connections.
    pub fn new() -> Transport {
        Transport::default()
    }

    /// A pool without connections, whose connections are opened so: over TLS, for one.
    pub fn opening(open: impl Fn(Endpoint) -> Channel + Send + Sync + 'static) -> Transport {
        Transport { open: Some(Arc::new(open)), ..Transport::default() }
    }

    /// A connection to `address`; it connects when it is first used, and again when that has failed.
    pub fn connection(&self, address: &Arc<str>) -> Result<Arc<Connection>, tonic::transport::Error> {
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

    fn channel(&self, address: &str) -> Result<Channel, tonic::transport::Error> {
        let endpoint = Endpoint::from_shared(format!("http://{address}"))?
            .connect_timeout(Duration::from_secs(3))
            .tcp_nodelay(true)
            // Finds out about hosts that vanished while an answer or a hint is awaited.
            .http2_keep_alive_interval(Duration::from_secs(10))
            .keep_alive_timeout(Duration::from_secs(5));
        Ok(match &self.open {
            Some(open) => open(endpoint),
            None => endpoint.connect_lazy(),
        })
    }

    /// Gives this connection out no more: it did not answer in time, so it may be dead without knowing it.
    pub fn distrust(&self, connection: &Arc<Connection>) {
        let mut by_address = self.by_address.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(connections) = by_address.get_mut(&connection.address) {
            connections.retain(|other| !std::ptr::eq(other.as_ptr(), Arc::as_ptr(connection)));
        }
    }
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
    async fn clients_share_connections_up_to_a_number() {
        let transport = Transport::new();
        let address: Arc<str> = "127.0.0.1:1".into();
        let used: Vec<_> =
            (0..=USES_PER_CONNECTION).map(|_| transport.connection(&address).expect("an address")).collect();
        assert!(used[1..USES_PER_CONNECTION].iter().all(|connection| Arc::ptr_eq(connection, &used[0])));
        assert!(!Arc::ptr_eq(&used[0], &used[USES_PER_CONNECTION]));
    }

    #[tokio::test]
    async fn a_connection_closes_with_its_last_user_and_a_distrusted_one_is_not_given_out() {
        let transport = Transport::new();
        let address: Arc<str> = "127.0.0.1:1".into();
        let first = transport.connection(&address).expect("an address");
        transport.distrust(&first);
        let second = transport.connection(&address).expect("an address");
        assert!(!Arc::ptr_eq(&first, &second));
        drop((first, second));
        assert!(transport.by_address.lock().expect("not poisoned")[&address].iter().all(|c| c.strong_count() == 0));
    }

    #[tokio::test]
    async fn distrust_is_of_one_connection_and_unused_addresses_are_forgotten() {
        let transport = Transport::new();
        let address: Arc<str> = "127.0.0.1:1".into();
        let first = transport.connection(&address).expect("an address");
        transport.distrust(&first);
        let second = transport.connection(&address).expect("an address");
        transport.distrust(&first);
        assert!(Arc::ptr_eq(&second, &transport.connection(&address).expect("an address")), "it is still good");
        drop((first, second));
        let _other = transport.connection(&"127.0.0.1:2".into()).expect("an address");
        assert_eq!(transport.by_address.lock().expect("not poisoned").len(), 1);
    }

    #[tokio::test]
    async fn an_address_that_is_none_is_an_error() {
        assert!(Transport::new().connection(&"not an address".into()).is_err());
    }
}
