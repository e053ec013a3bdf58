//! What goes over the network: requests, answers and hints. The same for clients and for child nodes.

use std::sync::Arc;

use leaseway_client::session::{self, Given, Wire};
use leaseway_core::{Amount, Has, HolderKind, Lease, Millis, Request, Supplied, Token};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Participant {
    Client(usize),
    Node(usize),
}

/// A message. Boxes keep it small: it is moved a few times.
#[derive(Debug, Clone)]
pub(crate) enum Message {
    Request(Box<RequestMessage>),
    Reply(Box<Reply>),
    /// To a name, whichever process has it.
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
    /// What really sent it, if that is another.
    pub(crate) forged_by: Option<Participant>,
}

/// What sent a request, and which of its requests that was: an answer goes there.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Sender {
    pub(crate) participant: Participant,
    /// A client that starts anew, or a node's next master, is not what asked, though it may have the same name.
    pub(crate) incarnation: u32,
    pub(crate) number: u64,
}

#[derive(Debug, Clone)]
pub(crate) struct Reply {
    pub(crate) to: Participant,
    pub(crate) incarnation: u32,
    pub(crate) number: u64,
    pub(crate) from: usize,
    pub(crate) what: ReplyBody,
}

/// What an answer says.
#[derive(Debug, Clone)]
pub(crate) enum ReplyBody {
    Granted(Lease),
    Supplied(Box<Supplied>),
    /// Given back; or too soon, and the lease stays as it is.
    Nothing,
    /// Another peer is the master, if any is.
    Redirect(Option<u8>),
}

impl Message {
    /// What asks, and the node that is asked.
    pub(crate) fn ends(&self) -> (Participant, usize) {
        match self {
            Message::Request(request) => (request.from.participant, request.node),
            Message::Reply(reply) => (reply.to, reply.from),
            Message::Hint { to, from, .. } => (*to, *from),
        }
    }
}

impl Participant {
    /// The name that `name` gave, and the number that it had.
    pub(crate) fn named(kind: HolderKind, name: &str) -> Option<(Participant, u32)> {
        let (index, number) = name.split_once('.')?;
        let (index, number) = (index.parse().ok()?, number.parse().ok()?);
        match kind {
            HolderKind::Client => Some((Participant::Client(index), number)),
            HolderKind::Node => Some((Participant::Node(index), number)),
        }
    }

    /// As it is known to servers. All peers of a node have one name, whichever is master; a client may get another.
    pub(crate) fn name(self, number: u32) -> String {
        match self {
            Participant::Client(index) => format!("{index}.{number}"),
            Participant::Node(index) => format!("{index}.0"),
        }
    }
}

/// What a request says of a lease.
pub(crate) fn has(lease: Option<session::Lease>) -> Option<Has> {
    lease.map(|lease| Has {
        token: lease.token.and_then(Token::new),
        capacity: Amount::clamped(lease.wire.capacity),
        expiry_time: lease.wire.expiry_time,
    })
}

/// A lease as it comes off the wire, where refresh intervals are whole seconds.
pub(crate) fn given(resource: &Arc<str>, lease: &Lease) -> Given {
    let seconds = lease.refresh.0 / 1000;
    Given {
        id: Arc::clone(resource),
        length: lease.length,
        refresh: Millis::from_secs(seconds),
        token: Some(lease.token.get()),
        wire: Wire { expiry_time: lease.expiry_time, refresh_interval: seconds as i64, capacity: lease.capacity.get() },
        safe: Some(lease.safe_capacity),
    }
}
