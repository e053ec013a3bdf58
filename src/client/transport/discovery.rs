//! The peers of a node: asked of every new master, and again now and then.

use std::{
    future::Future,
    pin::Pin,
    sync::{Arc, Weak},
    time::Duration,
};

use crate::transport::{Channel, Connection, wire};
use leaseway_proto::doorman::{DiscoveryRequest, capacity_client::CapacityClient};
use tokio::time::Instant;

#[derive(Default)]
pub(crate) struct Discovery {
    /// Which server, and when.
    asked: Option<(Weak<Connection>, Instant)>,
    answer: Option<Pin<Box<dyn Future<Output = Option<Peers>> + Send>>>,
}

/// Where they are.
type Peers = Vec<Arc<str>>;

/// Peers change rarely, and cost nothing to know late.
const REDISCOVERY_INTERVAL: Duration = Duration::from_secs(300);

impl Discovery {
    /// The server behind `connection` has answered as master.
    pub(crate) fn follow(&mut self, connection: &Arc<Connection>, deadline: Duration) {
        let known = |(server, at): &(Weak<Connection>, Instant)| {
            std::ptr::eq(server.as_ptr(), Arc::as_ptr(connection)) && at.elapsed() < REDISCOVERY_INTERVAL
        };
        if self.asked.as_ref().is_some_and(known) {
            return;
        }
        self.asked = Some((Arc::downgrade(connection), Instant::now()));
        self.answer = Some(Box::pin(peers(connection.channel.clone(), deadline)));
    }

    /// The peers, once they have been named.
    pub(crate) async fn next(&mut self) -> Option<Peers> {
        match &mut self.answer {
            Some(answer) => {
                let peers = answer.as_mut().await;
                self.answer = None;
                peers
            }
            None => std::future::pending().await,
        }
    }
}

/// `None`: it does not say. Servers that speak only the original protocol name none, and so do those without peers.
async fn peers(channel: Channel, deadline: Duration) -> Option<Peers> {
    let mut client = CapacityClient::new(channel);
    let answer = tokio::time::timeout(deadline, client.discovery(DiscoveryRequest {})).await.ok()?.ok()?;
    Some(wire::peers(answer.get_ref())).filter(|peers| !peers.is_empty())
}
