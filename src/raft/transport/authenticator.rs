//! Authenticates requests, and signs answers.

use std::sync::{Arc, OnceLock};

use leaseway_proto::peer::{MasterInfo, PeerInfo, PeerRequest, PeerResponse, Proof};
use leaseway_tls::Names;
use serde::Serialize;
use tonic::{Code, Request, Response, Status, metadata::MetadataValue};

use crate::{
    log::{
        Raft,
        acknowledged::Acknowledged,
        codec::{self, FORMAT},
    },
    settings::Settings,
    transport::{
        Method,
        connection::Caller,
        handshake::{Handshake, OTHER_CLUSTER, REJECTED, Rejected, incarnation_of},
        liveness::Liveness,
        proof::{CHALLENGE, ProofCheck, Prover},
    },
};

pub(crate) struct Authenticator {
    pub(crate) settings: Arc<Settings>,
    pub(crate) handshake: Arc<Handshake>,
    pub(crate) prover: Arc<Prover>,
    pub(crate) liveness: Arc<Liveness>,
    pub(crate) acknowledged: Acknowledged,
    /// For the addresses of members; unset until consensus has begun.
    pub(crate) raft: Arc<OnceLock<Raft>>,
}

/// A request of a peer.
pub(crate) struct Authenticated {
    pub(crate) from: PeerInfo,
    pub(crate) payload: Vec<u8>,
    /// The proof of the request, which the proof of the answer refers to.
    pub(crate) proof: Option<Proof>,
}

impl Authenticator {
    pub(crate) fn check(&self, method: Method, request: Request<PeerRequest>) -> Result<Authenticated, Status> {
        let caller = request.extensions().get::<Arc<Caller>>().cloned();
        let request = request.into_inner();
        let caller = caller.ok_or_else(|| Status::internal("the connection is unknown"))?;
        let reject = |rejected| self.reject(&caller, &rejected);
        if self.settings.tls.is_some() && !caller.is_peer(|names| self.is_host_of_peer(names)) {
            let names = caller.names.as_deref().map(Names::all).unwrap_or_default();
            return Err(reject(Rejected::Certificate(names.join(", "))));
        }
        let proven = self.prover.check(&request, method, self.handshake.name(), &caller.challenge);
        let PeerRequest { from, to, payload, proof } = request;
        let is_of_this_format = from.as_ref().is_some_and(|from| from.format == u32::from(FORMAT));
        if proven == ProofCheck::StaleChallenge && is_of_this_format {
            let mut status = Status::unauthenticated("stale challenge");
            let challenge = MetadataValue::from_bytes(caller.challenge.bytes());
            status.metadata_mut().insert_bin(CHALLENGE, challenge);
            return Err(status);
        }
        let from = self.handshake.check(from, proven == ProofCheck::Valid).map_err(reject)?;
        if to != 0 && to != self.handshake.peer() {
            return Err(Status::not_found(
                "rejected: the receiver has lost its data directory, and has a new identity",
            ));
        }
        self.liveness.record_contact(&from, (self.settings.clock)());
        self.acknowledged.note_incarnation(incarnation_of(&from));
        Ok(Authenticated { from, payload, proof })
    }

    /// Logs the rejection, and returns the error for the sender.
    fn reject(&self, caller: &Caller, rejected: &Rejected) -> Status {
        self.liveness.report_problem(&caller.address.to_string(), rejected);
        let code = match rejected {
            Rejected::Secret => Code::Unauthenticated,
            Rejected::Certificate(_) => Code::PermissionDenied,
            _ => Code::FailedPrecondition,
        };
        let mut status = Status::new(code, format!("rejected: {}", message_for_sender(rejected)));
        if *rejected == Rejected::Cluster {
            status.metadata_mut().insert(REJECTED, MetadataValue::from_static(OTHER_CLUSTER));
        }
        status
    }

    /// Whether a certificate is valid for the host of a peer in the settings, or of a member.
    fn is_host_of_peer(&self, names: &Names) -> bool {
        let is_for = |address: &str| {
            let host = address.rsplit_once(':').map_or(address, |(host, _)| host);
            names.is_valid_for(host)
        };
        if self.settings.peers.iter().any(|(_, address)| is_for(address)) {
            return true;
        }
        let Some(raft) = self.raft.get() else { return false };
        let membership = raft.metrics().borrow().membership_config.clone();
        membership.nodes().any(|(_, member)| is_for(&member.address))
    }

    /// Signs an answer. `request` is the proof of its request.
    pub(crate) fn answer<A: Serialize>(
        &self,
        request: Option<&Proof>,
        answer: &A,
        master: Option<MasterInfo>,
    ) -> Result<Response<PeerResponse>, Status> {
        let from = Some(self.handshake.info());
        let mut response = PeerResponse { from, payload: codec::encode(answer), master, proof: None };
        response.proof = self.prover.prove_answer(&response, request);
        Ok(Response::new(response))
    }
}

/// The reason of a rejection, as the sender logs it. "It" is the peer that rejects, and "this peer" is the sender.
fn message_for_sender(rejected: &Rejected) -> String {
    match rejected {
        Rejected::Anonymous => "this peer did not identify itself".into(),
        Rejected::Format { theirs, ours } => format!(
            "it uses format {ours} of the peer protocol, but this peer uses format {theirs}: run the same version on \
             all peers"
        ),
        Rejected::Secret => "its secret differs from this peer's: use the same --peer-secret-file on all peers".into(),
        Rejected::Certificate(names) => {
            format!("this peer's certificate ({names}) is not for the host of any peer in the other peer's --peers")
        }
        Rejected::Timing { theirs, ours } => {
            format!(
                "its election timeout is {ours} ms, but this peer's is {theirs} ms: use the same --timing on all peers"
            )
        }
        Rejected::Cluster => "it belongs to another cluster: check --peers".into(),
        Rejected::DuplicateName(name) => {
            format!("it has the same name as this peer, {name:?}: give each peer its own --id")
        }
    }
}
