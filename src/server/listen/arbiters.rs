//! The connections of clients are distributed to the arbiters, each to the one that has fewest.

use tokio::sync::mpsc;

use super::{
    count::{Counted, LiveCount},
    in_process::LocalConnections,
    listener::{Accepted, Listener},
};

/// The sending end of an arbiter's queue of connections.
pub(crate) struct ArbiterQueue {
    connections: mpsc::UnboundedSender<ArbiterConnection>,
    open: LiveCount,
}

/// A connection at its arbiter. It counts as one of its connections for as long as the second part lives.
pub(crate) type ArbiterConnection = (Accepted, Counted);

/// A queue, and its other end. The limit on open connections bounds its length.
pub(crate) fn arbiter_queue() -> (ArbiterQueue, mpsc::UnboundedReceiver<ArbiterConnection>) {
    let (connections, dealt) = mpsc::unbounded_channel();
    (ArbiterQueue { connections, open: LiveCount::default() }, dealt)
}

/// Accepts for ever, over the network and from this process.
pub(crate) async fn distribute(listener: Listener, mut local: LocalConnections, queues: Vec<ArbiterQueue>) {
    loop {
        let accepted = tokio::select! {
            accepted = listener.accept() => accepted,
            accepted = local.accept() => accepted,
        };
        let Some(queue) = queues.iter().min_by_key(|queue| queue.open.get()) else { return };
        // An arbiter that is gone takes no connections; the client retries.
        let _ = queue.connections.send((accepted, queue.open.one_more()));
    }
}
