//! Single messages between peers that are held back and delivered later, while others pass.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use tokio::sync::Notify;

use crate::transport::Method;

/// The messages to hold, by the address that they are sent to, of all tests of this process. Each link of a
/// [`Cluster`](super::cluster::Cluster) has an address of its own.
static WANTED: Mutex<BTreeMap<String, Vec<Held>>> = Mutex::new(BTreeMap::new());

/// A message that is held until this is released, ten seconds at most.
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

    /// Delivers it, and waits for the answer.
    pub(super) async fn deliver(&self) {
        self.release();
        self.state.answered.notified().await;
    }

    pub(super) fn release(&self) {
        self.state.released.notify_one();
    }
}

/// Holds the next message to this address, of this kind if one is named. The sender's timeout runs on meanwhile.
pub(super) fn hold_next(address: &str, method: Option<Method>) -> Held {
    let held = Held { method, state: Arc::default() };
    let mut wanted = WANTED.lock().unwrap_or_else(PoisonError::into_inner);
    wanted.entry(address.to_owned()).or_default().push(held.clone());
    held
}

/// Sends a message, later if it is to be held. A held message is delivered also if its sender has given up on it.
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
        // Unreleased ones do not outlive the test that holds them.
        let _ = tokio::time::timeout(Duration::from_secs(10), held.state.released.notified()).await;
        let answer = send.await;
        held.state.answered.notify_one();
        answer
    });
    late.await.expect("a held message is delivered in the end")
}
