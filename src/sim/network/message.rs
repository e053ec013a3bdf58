//! Messages: requests, answers and hints, for clients and child nodes alike.

use std::sync::Arc;

use leaseway_client::session::{self, GrantedLease, Wire};
use leaseway_core::{
    engine::stream,
    lease::holder::ShownLease,
    resource::{Lease, Request, Supplied},
    types::{Amount, HolderKind, Millis, Token},
};

/// How the group of a client follows from its [name](Participant::name).
pub(crate) const GROUPS: &str = "*/{org}/{team}";

/// A client or node, by its index.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Participant {
    Client(usize),
    Node(usize),
}

/// A message. Its variants are boxed to keep it small, because it is moved several times.
#[derive(Debug, Clone)]
pub(crate) enum Message {
    Request(Box<RequestMessage>),
    Stream(Box<StreamMessage>),
    Reply(Box<Reply>),
    /// Delivered to the participant that owns the name at the time of arrival.
    Hint {
        to: Participant,
        name: u32,
        from: usize,
    },
}

/// A request to one peer of a node.
#[derive(Debug, Clone)]
pub(crate) struct RequestMessage {
    pub(crate) from: Sender,
    pub(crate) node: usize,
    pub(crate) peer: u8,
    pub(crate) request: Request,
    /// The actual sender of a forged request.
    pub(crate) forged_by: Option<Participant>,
}

/// A message on a stream of renewals to one peer of a node. It has at most one entry, because there is one resource.
#[derive(Debug, Clone)]
pub(crate) struct StreamMessage {
    pub(crate) from: Sender,
    pub(crate) node: usize,
    pub(crate) peer: u8,
    /// The name of the client.
    pub(crate) name: Arc<str>,
    pub(crate) message: stream::Message<()>,
}

/// The sender and number of a request, which its answer is addressed to.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Sender {
    pub(crate) participant: Participant,
    /// The incarnation of the sender. A restarted client, or the next master of a node, must not receive answers to its
    /// predecessor, even under the same name.
    pub(crate) incarnation: u32,
    pub(crate) number: u64,
    /// The number of the stream that it came by.
    pub(crate) stream: Option<u64>,
}

#[derive(Debug, Clone)]
pub(crate) struct Reply {
    pub(crate) to: Participant,
    pub(crate) incarnation: u32,
    pub(crate) number: u64,
    pub(crate) from: usize,
    pub(crate) what: ReplyBody,
}

#[derive(Debug, Clone)]
pub(crate) enum ReplyBody {
    Granted(Lease),
    Supplied(Box<Supplied>),
    /// A release was processed, or the request was refused and the lease stays.
    Nothing,
    /// Another peer is master, or no peer is.
    Redirect(Option<u8>),
    /// The answer on a stream; `None`: everything has to be stated again.
    Stream(Option<stream::StreamAnswer>),
}

impl Message {
    /// The two ends of the message: a holder and a node.
    pub(crate) fn ends(&self) -> (Participant, usize) {
        match self {
            Message::Request(request) => (request.from.participant, request.node),
            Message::Stream(message) => (message.from.participant, message.node),
            Message::Reply(reply) => (reply.to, reply.from),
            Message::Hint { to, from, .. } => (*to, *from),
        }
    }
}

impl Participant {
    /// The inverse of `name`.
    pub(crate) fn named(kind: HolderKind, name: &str) -> Option<(Participant, u32)> {
        let (index, number) = name.split('/').next()?.split_once('.')?;
        let (index, number) = (index.parse().ok()?, number.parse().ok()?);
        match kind {
            HolderKind::Client => Some((Participant::Client(index), number)),
            HolderKind::Node => Some((Participant::Node(index), number)),
        }
    }

    /// The name at servers. All peers of a node share a name. `number` counts the names of a client, which may be
    /// renamed. Each of the [`GROUPS`] has clients below every node with some clients.
    pub(crate) fn name(self, number: u32) -> String {
        match self {
            Participant::Client(index) => format!("{index}.{number}/o{}/t{}", index % 3, index % 7),
            Participant::Node(index) => format!("{index}.0"),
        }
    }
}

/// Converts a lease to the form in which requests name it.
pub(crate) fn has(lease: Option<session::Lease>) -> Option<ShownLease> {
    lease.map(|lease| ShownLease {
        token: lease.token.and_then(Token::new),
        capacity: Amount::clamped(lease.wire.capacity),
        expiry_time: lease.wire.expiry_time,
    })
}

/// Decodes a lease. The wire has refresh intervals in whole seconds.
pub(crate) fn given(resource: &Arc<str>, lease: &Lease) -> GrantedLease {
    let seconds = lease.refresh.0 / 1000;
    GrantedLease {
        id: Arc::clone(resource),
        length: lease.length,
        refresh: Millis::from_secs(seconds),
        token: Some(lease.token.get()),
        wire: Wire { expiry_time: lease.expiry_time, refresh_interval: seconds as i64, capacity: lease.capacity.get() },
        safe: Some(lease.safe_capacity),
        budget: lease.budget,
    }
}
