//! Stores how far the clock of the cluster has got, while anything that is stored has an end that is still to come.
//!
//! Every entry of proposals begins with the moment, so this writes nothing while there are others. Nor does it where
//! nothing is promised.

use std::time::Duration;

use tokio::sync::watch;

use crate::{
    Clock,
    machine::SharedState,
    master_lease::Mastership,
    proposals::{self, WeakProposals},
};

/// How often the master looks whether the advance is due.
const CHECK_INTERVAL: Duration = Duration::from_millis(250);

pub(crate) async fn run(
    state: SharedState,
    mastership: watch::Receiver<Mastership>,
    queue: WeakProposals,
    clock: Clock,
) {
    loop {
        tokio::time::sleep(CHECK_INTERVAL).await;
        let Mastership::Master(lease) = mastership.borrow().clone() else { continue };
        let (stored, last) = {
            let state = state.read();
            (state.clock(), state.last_end())
        };
        if lease.clock().advance(clock(), stored, last).is_none() {
            continue;
        }
        let Some(queue) = queue.upgrade() else { return };
        // If it is lost, the next look finds it due.
        let _ = proposals::propose(&queue, &lease, Vec::new()).await;
    }
}
