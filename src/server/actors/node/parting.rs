//! What is said before a server stops.

use std::time::Duration;

use futures_util::future::join_all;
use tokio::sync::oneshot;

use super::{
    super::resource::{Command, ResourceHandle},
    NodeHandle,
};

/// How long a server that stops waits for its pools.
const PARTING: Duration = Duration::from_secs(1);
/// So many of them say their last at once.
const PART_AT_ONCE: usize = 64;

impl NodeHandle {
    /// This server is going to stop: pools tell what clients have cost, and the peers are told what they do not know of
    /// that yet. Returns when they know, or after a moment.
    pub async fn part(&self) {
        let parting = async {
            for some in self.directory.resources().chunks(PART_AT_ONCE) {
                let part = |handle: &ResourceHandle| {
                    let (reply, parted) = oneshot::channel();
                    // One whose mailbox is full has said what was due a tick ago.
                    handle.send(Command::Part { reply }).is_ok().then_some(parted)
                };
                for under_way in join_all(some.iter().filter_map(part)).await.into_iter().flatten().flatten() {
                    while !under_way.is_over() {
                        tokio::time::sleep(Duration::from_millis(5)).await;
                    }
                }
            }
        };
        let _ = tokio::time::timeout(PARTING, parting).await;
    }
}
