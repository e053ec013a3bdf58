//! Holds back single messages between peers, and delivers them later, while others pass.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use tokio::sync::Notify;

use crate::transport::Method;

/// The messages to hold of all tests in this process, by the address that they are sent to. Each link of a
/// [`Cluster`](super::cluster::Cluster) has its own address.
static WANTED: Mutex<BTreeMap<String, Vec<Held>>> = Mutex::new(BTreeMap::new());

/// A message that is held until it is released, at most for ten seconds.
#[derive(Clone)]
pub(super) struct Held {
    method: Option<Method>,
    state: Arc<HeldState>,
}

#[derive(Default)]
struct HeldState {
    caught: Notify,
    released: Notify,
    answered: Notify,
}

impl Held {
    /// Waits until a message is held.
    pub(super) async fn caught(&self) {
        self.state.caught.notified().await;
    }

    /// Delivers the message, and waits for the answer.
    pub(super) async fn deliver(&self) {
        self.release();
        self.state.answered.notified().await;
    }

    pub(super) fn release(&self) {
        self.state.released.notify_one();
    }
}

/// Holds the next message to this address, and of this method if one is given. The sender's timeout goes on.
pub(super) fn hold_next(address: &str, method: Option<Method>) -> Held {
    let held = Held { method, state: Arc::default() };
    let mut wanted = WANTED.lock().unwrap_or_else(PoisonError::into_inner);
    wanted.entry(address.to_owned()).or_default().push(held.clone());
    held
}

/// Sends a message, or holds it first. A held message is delivered even if its sender has given up on it.
pub(crate) async fn deliver<T: Send + 'static>(
    address: &str,
    method: Method,
    send: impl Future<Output = T> + Send + 'static,
) -> T {
    let held = {
        let mut wanted = WANTED.lock().unwrap_or_else(PoisonError::into_inner);
        let of_link = wanted.get_mut(address);
        of_link.and_then(|of_link| {
            let place = of_link.iter().position(|held| held.method.is_none_or(|wanted| wanted == method))?;
            Some(of_link.remove(place))
        })
    };
    let Some(held) = held else { return send.await };
    held.state.caught.notify_one();
    let late = tokio::spawn(async move {
        // A message that is never released must not outlive its test.
        let _ = tokio::time::timeout(Duration::from_secs(10), held.state.released.notified()).await;
        let answer = send.await;
        held.state.answered.notify_one();
        answer
    });
    late.await.expect("a held message is delivered in the end")
}
