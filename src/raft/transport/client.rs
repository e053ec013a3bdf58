//! The client side of the peer protocol. Connections are opened on first use and kept.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use leaseway_core::types::Millis;
use leaseway_proto::peer::{MasterInfo, PeerInfo, PeerRequest, PeerResponse, peers_client::PeersClient};
use serde::{Serialize, de::DeserializeOwned};
use tonic::{
    Code, Status,
    transport::{Channel, Endpoint},
};

use crate::{
    log::{PeerId, acknowledged::Acknowledged, codec},
    settings::Settings,
    transport::{
        MAX_MESSAGE_BYTES, Method,
        handshake::{Handshake, OTHER_CLUSTER, REJECTED, Rejected, incarnation_of},
        liveness::Liveness,
        proof::{CHALLENGE, ProofSession, Prover},
    },
};

/// Why a call failed.
#[derive(Debug, Clone, thiserror::Error)]
pub(crate) enum CallError {
    #[error("{address:?} is not a valid address: {why}")]
    Address { address: String, why: String },
    #[error("{}", innermost(.0))]
    Refused(Status),
    #[error("{0}")]
    Rejected(#[from] Rejected),
    #[error("peer {0:?} answers at this address: check --peers")]
    OtherPeer(String),
    #[error("invalid answer: {0}")]
    InvalidAnswer(String),
    #[error("no answer within {0:?}")]
    Late(Duration),
}

/// The innermost cause of a status, or its message.
fn innermost(status: &Status) -> String {
    let below = std::iter::successors(std::error::Error::source(status), |error| error.source()).last();
    below.map_or_else(|| status.message().to_owned(), ToString::to_string)
}

impl CallError {
    /// Whether either peer says that they belong to different clusters.
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

/// Shared by all tasks of this peer.
pub(crate) struct PeerClient {
    pub(crate) settings: Arc<Settings>,
    pub(crate) prover: Arc<Prover>,
    pub(crate) handshake: Arc<Handshake>,
    pub(crate) liveness: Arc<Liveness>,
    pub(crate) acknowledged: Acknowledged,
    pub(crate) connections: Mutex<HashMap<String, Connection>>,
}

/// A connection to a peer, and the state of its proofs.
#[derive(Debug, Clone)]
pub(crate) struct Connection {
    client: PeersClient<Channel>,
    session: Arc<ProofSession>,
}

impl PeerClient {
    pub(crate) fn now(&self) -> Millis {
        (self.settings.clock)()
    }

    /// Calls a peer, and checks that the answer comes from it. `to` is its identity; zero accepts any. A repeated error
    /// is logged once.
    pub(crate) async fn call<Q: Serialize, A: DeserializeOwned>(
        &self,
        (name, address): (&str, &str),
        to: PeerId,
        method: Method,
        question: &Q,
    ) -> Result<(PeerInfo, A), CallError> {
        let (other, response) = self.ask(name, address, to, method, codec::encode(question)).await?;
        let answer = codec::decode(&response.payload).map_err(|error| CallError::InvalidAnswer(error.to_string()))?;
        Ok((other, answer))
    }

    /// Asks a peer who it is and which master it hears.
    pub(crate) async fn hello(
        &self,
        (name, address): (&str, &str),
    ) -> Result<(PeerInfo, Option<MasterInfo>), CallError> {
        let (other, response) = self.ask(name, address, 0, Method::Hello, codec::encode(&())).await?;
        Ok((other, response.master))
    }

    /// [`call`](PeerClient::call) with a timeout.
    pub(crate) async fn call_within<Q: Serialize, A: DeserializeOwned>(
        &self,
        within: Duration,
        peer: (&str, &str),
        to: PeerId,
        method: Method,
        question: &Q,
    ) -> Result<(PeerInfo, A), CallError> {
        match tokio::time::timeout(within, self.call(peer, to, method, question)).await {
            Ok(result) => result,
            Err(_) => Err(CallError::Late(within)),
        }
    }

    async fn ask(
        &self,
        name: &str,
        address: &str,
        to: PeerId,
        method: Method,
        payload: Vec<u8>,
    ) -> Result<(PeerInfo, PeerResponse), CallError> {
        let before = self.acknowledged.known();
        let result = self.send(name, address, to, method, payload).await;
        match &result {
            Ok((other, _)) => {
                self.acknowledged.compare_answer(name, incarnation_of(other), &before);
                self.liveness.record_contact(other, self.now());
                self.liveness.clear_problems(name);
            }
            Err(CallError::Refused(status))
                if status.code() == Code::Unavailable && self.liveness.may_be_starting(name, self.now()) => {}
            Err(error) => self.liveness.report_problem(name, error),
        }
        result
    }

    async fn send(
        &self,
        name: &str,
        address: &str,
        to: PeerId,
        method: Method,
        payload: Vec<u8>,
    ) -> Result<(PeerInfo, PeerResponse), CallError> {
        let connection = self.connection(address)?;
        let request = PeerRequest { from: Some(self.handshake.info()), to, payload, proof: None };
        let (prover, peer) = (Arc::clone(&self.prover), name.to_owned());
        let asked = async move { connection.ask(&prover, &peer, method, request).await };
        #[cfg(test)]
        let asked = crate::tests::harness::faults::deliver(address, method, asked);
        let (mut response, is_proven) = asked.await.map_err(CallError::Refused)?;
        let other = self.handshake.check(response.from.take(), is_proven)?;
        if other.name != name || (to != 0 && other.peer != to) {
            return Err(CallError::OtherPeer(other.name));
        }
        Ok((other, response))
    }

    fn connection(&self, address: &str) -> Result<Connection, CallError> {
        let mut connections = self.connections.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(connection) = connections.get(address) {
            return Ok(connection.clone());
        }
        let keep_alive = self.settings.timing.certainly_over();
        let endpoint = Endpoint::from_shared(format!("http://{address}"))
            .map_err(|error| CallError::Address { address: address.to_owned(), why: error.to_string() })?
            .connect_timeout(keep_alive)
            .tcp_nodelay(true)
            .http2_keep_alive_interval(keep_alive)
            .keep_alive_timeout(keep_alive)
            .keep_alive_while_idle(true);
        let connection = Connection::over(leaseway_tls::channel(self.settings.tls.as_ref(), endpoint));
        connections.insert(address.to_owned(), connection.clone());
        Ok(connection)
    }
}

/// The maximum size of a message that is sent again after a stale challenge. Consensus repeats larger ones itself.
const MAX_RESENT_BYTES: usize = 64 << 10;

impl Connection {
    pub(crate) fn over(channel: Channel) -> Connection {
        let client = PeersClient::new(channel)
            .max_decoding_message_size(MAX_MESSAGE_BYTES)
            .max_encoding_message_size(MAX_MESSAGE_BYTES);
        Connection { client, session: Arc::default() }
    }

    /// Sends a request to the peer of this name. Returns the answer, and whether it is proven to come from a peer.
    pub(crate) async fn ask(
        &self,
        prover: &Prover,
        name: &str,
        method: Method,
        mut request: PeerRequest,
    ) -> Result<(PeerResponse, bool), Status> {
        request.proof = prover.prove(&request, method, name, &self.session);
        let mut asked = request.proof.clone();
        let again = (asked.is_some() && request.payload.len() <= MAX_RESENT_BYTES).then(|| request.clone());
        let mut answer = self.send(method, request).await;
        if let Err(status) = &answer
            && let Some(challenge) = challenge(status)
        {
            self.session.set_challenge(challenge);
            if let Some(mut request) = again {
                request.proof = prover.prove(&request, method, name, &self.session);
                asked.clone_from(&request.proof);
                answer = self.send(method, request).await;
            }
        }
        let response = answer?;
        let is_proven = prover.verify_answer(&response, asked.as_ref());
        Ok((response, is_proven))
    }

    async fn send(&self, method: Method, request: PeerRequest) -> Result<PeerResponse, Status> {
        let mut client = self.client.clone();
        let answer = match method {
            Method::Hello => client.hello(request).await,
            Method::Join => client.join(request).await,
            Method::Append => client.append(request).await,
            Method::Vote => client.vote(request).await,
            Method::Snapshot => client.snapshot(request).await,
            Method::Poll => client.poll(request).await,
            Method::Stand => client.stand(request).await,
            Method::History => client.history(request).await,
        };
        answer.map(tonic::Response::into_inner)
    }
}

/// The challenge in the metadata of an error, if there is one.
fn challenge(status: &Status) -> Option<Vec<u8>> {
    let challenge = status.metadata().get_bin(CHALLENGE)?.to_bytes().ok()?;
    Some(challenge.to_vec())
}
