//! The peer protocol: gRPC on a port of its own. This module authenticates messages; `handle/service.rs` acts on them.
//!
//! Every message, in both directions, carries the info of its sender: format, cluster, identity, name, timing.
//! [`handshake`] writes and checks it. Senders are authenticated by TLS certificates or, without TLS, by proofs of a
//! shared secret ([`proof`]). [`authenticator`] checks incoming requests, and [`client`] checks answers. [`network`]
//! connects openraft to the client. [`liveness`] records the last contact with each peer. [`history`] is the one message
//! that is no part of consensus.

pub(crate) mod authenticator;
pub(crate) mod client;
pub(crate) mod connection;
pub(crate) mod handshake;
pub(crate) mod history;
pub(crate) mod liveness;
pub(crate) mod network;
pub(crate) mod proof;

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
