//! openraft's network: calls to the other peers.

use std::{sync::Arc, time::Duration};

use leaseway_proto::peer::Introduction;
use openraft::{
    error::{InstallSnapshotError, RPCError, RaftError, RemoteError, Unreachable},
    network::{Backoff, RPCOption, RaftNetwork, RaftNetworkFactory},
    raft::{
        AppendEntriesRequest, AppendEntriesResponse, InstallSnapshotRequest, InstallSnapshotResponse, VoteRequest,
        VoteResponse,
    },
};
use serde::{Serialize, de::DeserializeOwned};

use super::{
    client::{CallError, PeerClient},
    method::Method,
};
use crate::{
    raft::{Member, PeerId, Types, Vote},
    settings::Settings,
    store::LogStore,
};

/// Makes [`PeerLink`]s.
#[derive(Debug, Clone)]
pub(crate) struct PeerNetwork {
    pub(crate) client: Arc<PeerClient>,
    pub(crate) settings: Arc<Settings>,
    pub(crate) log: LogStore,
}

/// openraft's client to one peer. All links to an address share a connection.
#[derive(Debug)]
pub(crate) struct PeerLink {
    client: Arc<PeerClient>,
    target: PeerId,
    name: String,
    address: String,
    log: LogStore,
    /// Between two attempts to reach a peer that does not answer.
    pause: Duration,
}

/// Another vote is newer.
#[derive(Debug, thiserror::Error)]
#[error("this peer has given up the vote that this was to be said for")]
struct GivenUp;

impl RaftNetworkFactory<Types> for PeerNetwork {
    type Network = PeerLink;

    /// An address in the settings takes precedence: the membership has the one from when the peer was added.
    async fn new_client(&mut self, target: PeerId, member: &Member) -> PeerLink {
        let address = self.settings.address_of(&member.name).unwrap_or(&member.address).to_owned();
        PeerLink {
            client: Arc::clone(&self.client),
            target,
            name: member.name.clone(),
            address,
            log: self.log.clone(),
            pause: self.settings.timing.heartbeat(),
        }
    }
}

impl PeerLink {
    /// Reports every error to openraft as an unreachable peer: after any other error it would retry at once, in a busy
    /// loop.
    async fn ask<Q: Serialize, A: DeserializeOwned, E: std::error::Error>(
        &self,
        method: Method,
        question: &Q,
    ) -> Result<(Introduction, A), RPCError<PeerId, Member, E>> {
        let answer = self.client.call((&self.name, &self.address), self.target, method, question).await;
        answer.map_err(|error: CallError| RPCError::Unreachable(Unreachable::new(&error)))
    }

    /// Says nothing more for a vote that this peer has given up. openraft goes on for a while with what it has begun
    /// for it, and reads entries that the next leader may have written meanwhile: behind others than theirs they would
    /// make another log of a follower's.
    fn check(&self, vote: &Vote) -> Result<(), Unreachable> {
        let newest = *self.log.vote();
        if newest == Some(*vote) { Ok(()) } else { Err(Unreachable::new(&GivenUp)) }
    }
}

impl RaftNetwork<Types> for PeerLink {
    async fn append_entries(
        &mut self,
        rpc: AppendEntriesRequest<Types>,
        _option: RPCOption,
    ) -> Result<AppendEntriesResponse<PeerId>, RPCError<PeerId, Member, RaftError<PeerId>>> {
        self.check(&rpc.vote).map_err(RPCError::Unreachable)?;
        let (other, answer) = self.ask(Method::Append, &rpc).await?;
        let sent = rpc.entries.last().map(|entry| entry.log_id).or(rpc.prev_log_id);
        let stored = match &answer {
            AppendEntriesResponse::Success => sent,
            AppendEntriesResponse::PartialSuccess(upto) => *upto,
            AppendEntriesResponse::Conflict | AppendEntriesResponse::HigherVote(_) => None,
        };
        // Only what is committed is never taken back.
        self.client.acknowledged().has(self.target, other.incarnation, stored.min(rpc.leader_commit));
        Ok(answer)
    }

    async fn install_snapshot(
        &mut self,
        rpc: InstallSnapshotRequest<Types>,
        _option: RPCOption,
    ) -> Result<InstallSnapshotResponse<PeerId>, RPCError<PeerId, Member, RaftError<PeerId, InstallSnapshotError>>>
    {
        self.check(&rpc.vote).map_err(RPCError::Unreachable)?;
        let (_, answer): (_, Result<InstallSnapshotResponse<PeerId>, InstallSnapshotError>) =
            self.ask(Method::Snapshot, &rpc).await?;
        // The one error that openraft has to know: it starts the snapshot over.
        answer.map_err(|error| RPCError::RemoteError(RemoteError::new(self.target, RaftError::APIError(error))))
    }

    async fn vote(
        &mut self,
        rpc: VoteRequest<PeerId>,
        _option: RPCOption,
    ) -> Result<VoteResponse<PeerId>, RPCError<PeerId, Member, RaftError<PeerId>>> {
        self.ask(Method::Vote, &rpc).await.map(|(_, answer)| answer)
    }

    fn backoff(&self) -> Backoff {
        Backoff::new(std::iter::repeat(self.pause))
    }
}
