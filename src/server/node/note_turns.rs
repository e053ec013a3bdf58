//! Limits the rate at which all pools of a node together write notes. A pool writes when it is its turn.

use std::sync::{
    Arc,
    atomic::{AtomicBool, Ordering},
};

use tokio::{sync::mpsc, time::Duration};

/// Minimum time between two turns: at most 1,280 entries and 320 KiB per second.
const MIN_INTERVAL: Duration = Duration::from_millis(50);

/// Grants turns in the order of the requests.
#[derive(Debug, Clone)]
pub(super) struct NoteTurns(mpsc::UnboundedSender<Arc<AtomicBool>>);

impl NoteTurns {
    /// A pool asks for one turn at a time, so the number of pools bounds the queue.
    pub(super) fn start() -> NoteTurns {
        let (queue, mut asked) = mpsc::unbounded_channel::<Arc<AtomicBool>>();
        actix_rt::spawn(async move {
            while let Some(turn) = asked.recv().await {
                // Skips pools that are gone.
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
    /// The pending request. Becomes true when the turn has come.
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
            // Fails only if the server is stopping.
            let _ = self.turns.0.send(Arc::clone(&turn));
            self.asked = Some(turn);
        }
    }
}
