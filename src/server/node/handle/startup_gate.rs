//! Holds requests back for up to a second after the start, until this peer first learns of a master.
//!
//! If the answer names no master, Doorman's clients sleep for more than a second. A starting peer learns of the master
//! sooner: within a round trip, or after an election. A peer that has known a master before, or has already waited in
//! vain, answers immediately, so that its clients ask other peers.

use std::{sync::Arc, time::Duration};

use tokio::{
    sync::{Semaphore, watch},
    time::{Instant, timeout_at},
};

/// Time after the start during which requests may wait.
const TIMEOUT: Duration = Duration::from_secs(1);
/// Maximum number of waiting requests; beyond it requests are answered immediately.
const MAX_WAITING: usize = 1024;

#[derive(Debug, Clone)]
pub(super) struct StartupGate {
    known: watch::Receiver<bool>,
    permits: Arc<Semaphore>,
    until: Instant,
}

impl StartupGate {
    /// Starts the timeout. `known` becomes true when a master is first known.
    pub(super) fn new(known: watch::Receiver<bool>) -> StartupGate {
        StartupGate { known, permits: Arc::new(Semaphore::new(MAX_WAITING)), until: Instant::now() + TIMEOUT }
    }

    /// Waits until a master is first known. Returns whether one is or was known.
    pub(super) async fn wait(&self) -> bool {
        let mut known = self.known.clone();
        if *known.borrow() || Instant::now() >= self.until {
            return *known.borrow();
        }
        let Ok(_permit) = self.permits.try_acquire() else { return false };
        // An error means that the node actor has ended.
        timeout_at(self.until, known.wait_for(|known| *known)).await.is_ok_and(|known| known.is_ok())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn requests_wait_until_a_master_is_known_or_the_timeout() {
        let (known, heard) = watch::channel(false);
        let gate = StartupGate::new(heard);
        let began = Instant::now();
        let soon = async {
            tokio::time::sleep(TIMEOUT / 4).await;
            known.send_replace(true);
        };
        let (waited, ()) = tokio::join!(gate.wait(), soon);
        assert!(waited && began.elapsed() < TIMEOUT / 2);
        assert!(gate.wait().await, "a master was known before");

        let (_known, heard) = watch::channel(false);
        let (gate, began) = (StartupGate::new(heard), Instant::now());
        assert!(!gate.wait().await);
        assert!(began.elapsed() >= TIMEOUT && began.elapsed() < TIMEOUT * 2);
        let again = Instant::now();
        assert!(!gate.wait().await && again.elapsed() == Duration::ZERO, "only once");
    }

    #[tokio::test(start_paused = true)]
    async fn the_number_of_waiting_requests_is_bounded() {
        let (_known, heard) = watch::channel(false);
        let gate = StartupGate::new(heard);
        let mut waiting: Vec<_> = (0..MAX_WAITING).map(|_| Box::pin(gate.wait())).collect();
        for wait in &mut waiting {
            assert!(futures_util::poll!(wait.as_mut()).is_pending());
        }
        let began = Instant::now();
        assert!(!gate.wait().await && began.elapsed() == Duration::ZERO);
        waiting.pop();
        assert!(futures_util::poll!(Box::pin(gate.wait())).is_pending());
    }
}
