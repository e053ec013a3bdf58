//! Discovery of the peers of a node: every new master is asked for them, and again now and then.

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
    /// The server that was asked, and when.
    asked: Option<(Weak<Connection>, Instant)>,
    answer: Option<Pin<Box<dyn Future<Output = Option<Peers>> + Send>>>,
}

/// Their addresses.
type Peers = Vec<Arc<str>>;

/// Peers change rarely, and a late update does no harm.
const REDISCOVERY_INTERVAL: Duration = Duration::from_secs(300);

impl Discovery {
    /// Asks the server behind `connection`, which has answered as master, unless it was asked recently.
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

    /// Waits for an answer. Cancel safe.
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

/// The peers; `None` if the server names none, as servers of the original protocol and servers without peers do.
async fn peers(channel: Channel, deadline: Duration) -> Option<Peers> {
    let mut client = CapacityClient::new(channel);
    let answer = tokio::time::timeout(deadline, client.discovery(DiscoveryRequest {})).await.ok()?.ok()?;
    Some(wire::peers(answer.get_ref())).filter(|peers| !peers.is_empty())
}
