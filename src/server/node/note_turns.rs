//! Turns to note: what all pools of a node write together is bounded, however many pools there are.

use std::sync::{
    Arc,
    atomic::{AtomicBool, Ordering},
};

use tokio::{sync::mpsc, time::Duration};

/// Turns of all pools come so far apart: 1,280 entries and 320 KiB in a second.
const MIN_INTERVAL: Duration = Duration::from_millis(50);

/// Gives turns, in the order in which they were asked for.
#[derive(Debug, Clone)]
pub(super) struct NoteTurns(mpsc::UnboundedSender<Arc<AtomicBool>>);

impl NoteTurns {
    /// For as long as a pool could ask. A pool asks for one at a time, so that no more wait than there are pools.
    pub(super) fn start() -> NoteTurns {
        let (queue, mut asked) = mpsc::unbounded_channel::<Arc<AtomicBool>>();
        actix_rt::spawn(async move {
            while let Some(turn) = asked.recv().await {
                // A turn that no pool waits for any more takes no time.
                if Arc::strong_count(&turn) > 1 {
                    turn.store(true, Ordering::Release);
                    tokio::time::sleep(MIN_INTERVAL).await;
                }
            }
        });
        NoteTurns(queue)
    }
}

/// The turn of one pool.
#[derive(Debug)]
pub(super) struct NoteTurn {
    turns: NoteTurns,
    /// It has been asked for; set once it has come.
    asked: Option<Arc<AtomicBool>>,
}

impl NoteTurn {
    pub(super) fn new(turns: NoteTurns) -> NoteTurn {
        NoteTurn { turns, asked: None }
    }

    pub(super) fn has_come(&self) -> bool {
        self.asked.as_ref().is_some_and(|turn| turn.load(Ordering::Acquire))
    }

    pub(super) fn use_up(&mut self) {
        self.asked = None;
    }

    pub(super) fn ask(&mut self) {
        if self.asked.is_none() {
            let turn = Arc::new(AtomicBool::new(false));
            // If no turns are given any more, the server is stopping.
            let _ = self.turns.0.send(Arc::clone(&turn));
            self.asked = Some(turn);
        }
    }
}
