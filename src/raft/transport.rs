//! The peer protocol: gRPC on a port of its own. This module authenticates messages; `handle/service.rs` acts on them.
//!
//! Every message, in both directions, carries the info of its sender: format, cluster, identity, name, timing.
//! [`handshake`] writes and checks it. Senders are authenticated by TLS certificates or, without TLS, by proofs of a
//! shared secret ([`proof`]). [`authenticator`] checks incoming requests, and [`client`] checks answers. [`network`]
//! connects openraft to the client. [`liveness`] records the last contact with each peer. [`HistoryAnswer`] answers the
//! one message that is no part of consensus.

pub(crate) mod authenticator;
pub(crate) mod client;
pub(crate) mod connection;
pub(crate) mod handshake;
pub(crate) mod liveness;
pub(crate) mod network;
pub(crate) mod proof;

use std::sync::{Arc, OnceLock};

/// The maximum size of a message: a megabyte of entries, a proposal beyond that, and the framing.
pub(crate) const MAX_MESSAGE_BYTES: usize = 8 << 20;

/// The methods of the peer protocol.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Method {
    Hello,
    Join,
    Append,
    Vote,
    Snapshot,
    Poll,
    Stand,
    History,
}

impl Method {
    /// The name that proofs cover.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Method::Hello => "hello",
            Method::Join => "join",
            Method::Append => "append",
            Method::Vote => "vote",
            Method::Snapshot => "snapshot",
            Method::Poll => "poll",
            Method::Stand => "stand",
            Method::History => "history",
        }
    }
}

type Answer = Box<dyn Fn(&[u8]) -> Vec<u8> + Send + Sync>;

/// Answers requests of other peers for the history of resources ([`Method::History`]): bytes of the user of this crate,
/// which it does not interpret.
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
