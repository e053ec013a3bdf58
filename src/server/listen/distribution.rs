//! Distributes the connections of clients to the arbiters, each to the one with the fewest.

use std::sync::Arc;

use tokio::sync::mpsc;

use super::{
    in_process::LocalConnections,
    listener::{Accepted, Listener},
};

/// The sending end of an arbiter's queue of connections.
pub(crate) struct ArbiterQueue {
    connections: mpsc::UnboundedSender<ArbiterConnection>,
    /// Its reference count is the number of connections, plus one.
    open: Arc<()>,
}

/// A connection on its way to its arbiter. It counts as open there until the second element is dropped.
pub(crate) type ArbiterConnection = (Accepted, Arc<()>);

/// Creates a queue. The limit on open connections bounds its length.
pub(crate) fn arbiter_queue() -> (ArbiterQueue, mpsc::UnboundedReceiver<ArbiterConnection>) {
    let (connections, dealt) = mpsc::unbounded_channel();
    (ArbiterQueue { connections, open: Arc::default() }, dealt)
}

/// Accepts connections over the network and from this process, until there are no queues.
pub(crate) async fn distribute(listener: Listener, mut local: LocalConnections, queues: Vec<ArbiterQueue>) {
    loop {
        let accepted = tokio::select! {
            accepted = listener.accept() => accepted,
            accepted = local.accept() => accepted,
        };
        let Some(queue) = queues.iter().min_by_key(|queue| Arc::strong_count(&queue.open)) else { return };
        // If the arbiter is gone, the connection is closed and the client retries.
        let _ = queue.connections.send((accepted, Arc::clone(&queue.open)));
    }
}
