//! The answer to [`Method::History`](super::Method::History): bytes of the user of this crate, which it does not
//! interpret.

use std::sync::{Arc, OnceLock};

type Answer = Box<dyn Fn(&[u8]) -> Vec<u8> + Send + Sync>;

/// Answers requests of other peers for the history of resources.
#[derive(Clone, Default)]
pub(crate) struct HistoryAnswer(Arc<OnceLock<Answer>>);

impl HistoryAnswer {
    /// The first call counts.
    pub(crate) fn set(&self, answer: impl Fn(&[u8]) -> Vec<u8> + Send + Sync + 'static) {
        let _ = self.0.set(Box::new(answer));
    }

    /// Calls the function on a thread that may block. None before it is set, and if it panics.
    pub(crate) async fn to(&self, request: Vec<u8>) -> Option<Vec<u8>> {
        let answer = Arc::clone(&self.0);
        let answered = tokio::task::spawn_blocking(move || answer.get().map(|answer| answer(&request)));
        answered.await.ok().flatten()
    }
}
