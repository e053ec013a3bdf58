//! Calls to other peers, over connections that are opened on first use and kept.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use leaseway_core::Millis;
use leaseway_proto::peer::{Heard, Introduction, PeerRequest, PeerResponse, peers_client::PeersClient};
use serde::{Serialize, de::DeserializeOwned};
use tonic::transport::{Channel, Endpoint};

use super::{
    contacts::Contacts,
    introduction::{Introducer, OTHER_CLUSTER, REJECTED, Rejected},
};
use crate::{codec, raft::PeerId, settings::Clock};

/// A megabyte of entries, a proposal beyond that, and the framing.
pub(super) const LARGEST_MESSAGE: usize = 8 << 20;

/// The method to call.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Call {
    Hello,
    Join,
    Append,
    Vote,
    Snapshot,
    Poll,
    Stand,
}

/// Why there is no answer.
#[derive(Debug, Clone, thiserror::Error)]
pub(crate) enum CallError {
    #[error("{address:?} is no address: {why}")]
    Address { address: String, why: String },
    #[error("{}", .0.message())]
    Refused(tonic::Status),
    #[error("{0}")]
    Rejected(#[from] Rejected),
    #[error("another peer answers there: {0:?}")]
    OtherPeer(String),
    #[error("the answer makes no sense: {0}")]
    Nonsense(String),
    #[error("no answer within {0:?}")]
    Late(Duration),
}

impl CallError {
    /// Whether the two peers belong to different clusters, according to either of them.
    pub(crate) fn is_of_another_cluster(&self) -> bool {
        match self {
            CallError::Refused(status) => {
                status.metadata().get(REJECTED).is_some_and(|why| why.as_bytes() == OTHER_CLUSTER.as_bytes())
            }
            CallError::Rejected(rejected) => *rejected == Rejected::Cluster,
            _ => false,
        }
    }
}

/// The client side of the peer protocol. Shared by all tasks of this peer.
#[derive(Debug)]
pub(crate) struct Calls {
    introducer: Arc<Introducer>,
    contacts: Arc<Contacts>,
    clock: DebugClock,
    /// Keep-alive interval and timeout of connections.
    patience: Duration,
    connections: Mutex<HashMap<String, PeersClient<Channel>>>,
}

/// Makes `Debug` derivable around a clock.
struct DebugClock(Clock);

impl std::fmt::Debug for DebugClock {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Clock")
    }
}

impl Calls {
    pub(crate) fn new(introducer: Arc<Introducer>, contacts: Arc<Contacts>, clock: Clock, patience: Duration) -> Calls {
        Calls { introducer, contacts, clock: DebugClock(clock), patience, connections: Mutex::default() }
    }

    pub(crate) fn now(&self) -> Millis {
        (self.clock.0)()
    }

    pub(crate) fn contacts(&self) -> &Contacts {
        &self.contacts
    }

    /// Calls a peer and checks its identity. A repeated error is logged once.
    pub(crate) async fn call<Q: Serialize, A: DeserializeOwned>(
        &self,
        (name, address): (&str, &str),
        to: PeerId,
        call: Call,
        question: &Q,
    ) -> Result<(Introduction, A), CallError> {
        let (other, response) = self.ask(name, address, to, call, codec::encode(question)).await?;
        let answer = codec::decode(&response.payload).map_err(|error| CallError::Nonsense(error.to_string()))?;
        Ok((other, answer))
    }

    /// Asks a peer who it is and which master it hears from.
    pub(crate) async fn hello(
        &self,
        (name, address): (&str, &str),
    ) -> Result<(Introduction, Option<Heard>), CallError> {
        let (other, response) = self.ask(name, address, 0, Call::Hello, codec::encode(&())).await?;
        Ok((other, response.heard))
    }

    /// [`call`](Calls::call) with a timeout.
    pub(crate) async fn call_within<Q: Serialize, A: DeserializeOwned>(
        &self,
        within: Duration,
        peer: (&str, &str),
        to: PeerId,
        call: Call,
        question: &Q,
    ) -> Result<(Introduction, A), CallError> {
        match tokio::time::timeout(within, self.call(peer, to, call, question)).await {
            Ok(result) => result,
            Err(_) => Err(CallError::Late(within)),
        }
    }

    async fn ask(
        &self,
        name: &str,
        address: &str,
        to: PeerId,
        call: Call,
        payload: Vec<u8>,
    ) -> Result<(Introduction, PeerResponse), CallError> {
        let result = self.send(name, address, to, call, payload).await;
        match &result {
            Ok((other, _)) => {
                self.contacts.heard(other, self.now());
                self.contacts.clear_problems(name);
            }
            Err(error) => self.contacts.report_problem(name, error),
        }
        result
    }

    async fn send(
        &self,
        name: &str,
        address: &str,
        to: PeerId,
        call: Call,
        payload: Vec<u8>,
    ) -> Result<(Introduction, PeerResponse), CallError> {
        let mut client = self.connection(address)?;
        let request = PeerRequest { from: Some(self.introducer.introduction()), to, payload };
        let answer = match call {
            Call::Hello => client.hello(request).await,
            Call::Join => client.join(request).await,
            Call::Append => client.append(request).await,
            Call::Vote => client.vote(request).await,
            Call::Snapshot => client.snapshot(request).await,
            Call::Poll => client.poll(request).await,
            Call::Stand => client.stand(request).await,
        };
        let mut response = answer.map_err(CallError::Refused)?.into_inner();
        let other = self.introducer.check(response.from.take())?;
        if other.name != name || (to != 0 && other.peer != to) {
            return Err(CallError::OtherPeer(other.name));
        }
        Ok((other, response))
    }

    fn connection(&self, address: &str) -> Result<PeersClient<Channel>, CallError> {
        let mut connections = self.connections.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(client) = connections.get(address) {
            return Ok(client.clone());
        }
        let endpoint = Endpoint::from_shared(format!("http://{address}"))
            .map_err(|error| CallError::Address { address: address.to_owned(), why: error.to_string() })?
            .connect_timeout(self.patience)
            .tcp_nodelay(true)
            .http2_keep_alive_interval(self.patience)
            .keep_alive_timeout(self.patience)
            .keep_alive_while_idle(true);
        let client = PeersClient::new(endpoint.connect_lazy())
            .max_decoding_message_size(LARGEST_MESSAGE)
            .max_encoding_message_size(LARGEST_MESSAGE);
        connections.insert(address.to_owned(), client.clone());
        Ok(client)
    }
}
