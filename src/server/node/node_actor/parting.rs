//! What is said before a server stops.

use std::time::Duration;

use futures_util::future::join_all;
use tokio::sync::oneshot;

use super::{
    super::{
        directory::Directory,
        resource_actor::{ResourceHandle, ResourceMessage},
    },
    NodeHandle,
    actor::{NodeActor, NodeMessage},
};

/// How long a server that stops waits for its pools.
const PARTING: Duration = Duration::from_secs(1);
/// So many of them say their last at once.
const PART_AT_ONCE: usize = 64;

impl NodeHandle {
    /// This server is going to stop: pools tell what clients have cost, the peers are told what they do not know of
    /// that yet, and the mastership is handed over. Returns when that is done, or after a moment.
    pub(crate) async fn hand_over(&self) {
        let (reply, done) = oneshot::channel();
        if self.tell(NodeMessage::HandOver { reply }).await.is_ok() {
            // An error means that the node is gone, and with it what could be handed over.
            let _ = done.await;
        }
    }
}

impl NodeActor {
    /// Goes on in a task, so that resources can still be asked meanwhile.
    pub(super) fn hand_over(&self, reply: oneshot::Sender<()>) {
        let directory = self.shared.directory.clone();
        let quorum = self.membership.as_ref().map(|membership| membership.quorum.clone());
        actix_rt::spawn(async move {
            let _ = tokio::time::timeout(PARTING, part(&directory)).await;
            if let Some(quorum) = quorum {
                quorum.shutdown().await;
            }
            // The caller may have gone away meanwhile.
            let _ = reply.send(());
        });
    }
}

/// Pools say their last. Returns when the peers have stored it, or never will.
async fn part(directory: &Directory) {
    for some in directory.resources().chunks(PART_AT_ONCE) {
        let part = |handle: &ResourceHandle| {
            let (reply, parted) = oneshot::channel();
            // One that has too many commands pending has said what was due a tick ago.
            handle.send(ResourceMessage::Part { reply }).is_ok().then_some(parted)
        };
        for under_way in join_all(some.iter().filter_map(part)).await.into_iter().flatten().flatten() {
            while !under_way.is_over() {
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
        }
    }
}
