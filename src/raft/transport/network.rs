//! Connects openraft to the peer client.

use std::{sync::Arc, time::Duration};

use leaseway_proto::peer::PeerInfo;
use openraft::{
    error::{InstallSnapshotError, RPCError, RaftError, RemoteError, Unreachable},
    network::{Backoff, RPCOption, RaftNetwork, RaftNetworkFactory},
    raft::{
        AppendEntriesRequest, AppendEntriesResponse, InstallSnapshotRequest, InstallSnapshotResponse, VoteRequest,
        VoteResponse,
    },
};
use serde::{Serialize, de::DeserializeOwned};

use crate::{
    log::{Member, PeerId, Types, Vote, store::LogStore},
    transport::{
        Method,
        client::{CallError, PeerClient},
    },
};

/// Creates [`PeerLink`]s.
#[derive(Clone)]
pub(crate) struct PeerNetwork {
    pub(crate) client: Arc<PeerClient>,
    pub(crate) log: LogStore,
}

/// openraft's client to one peer. All links to an address share a connection.
pub(crate) struct PeerLink {
    client: Arc<PeerClient>,
    target: PeerId,
    name: String,
    address: String,
    log: LogStore,
    /// The pause between two attempts to reach a peer that does not answer.
    pause: Duration,
}

#[derive(Debug, thiserror::Error)]
#[error("stale RPC: this peer has since voted in another term")]
struct StaleVote;

impl RaftNetworkFactory<Types> for PeerNetwork {
    type Network = PeerLink;

    async fn new_client(&mut self, target: PeerId, member: &Member) -> PeerLink {
        let address = self.client.settings.address_of_member(member).to_owned();
        PeerLink {
            client: Arc::clone(&self.client),
            target,
            name: member.name.clone(),
            address,
            log: self.log.clone(),
            pause: self.client.settings.timing.heartbeat(),
        }
    }
}

impl PeerLink {
    /// Reports every error to openraft as an unreachable peer. After any other error it would retry in a busy loop.
    async fn ask<Q: Serialize, A: DeserializeOwned, E: std::error::Error>(
        &self,
        method: Method,
        question: &Q,
    ) -> Result<(PeerInfo, A), RPCError<PeerId, Member, E>> {
        let answer = self.client.call((&self.name, &self.address), self.target, method, question).await;
        answer.map_err(|error: CallError| RPCError::Unreachable(Unreachable::new(&error)))
    }

    /// Fails if this peer has voted again since. openraft continues to replicate for the earlier vote for a while, and
    /// reads entries that the next leader may have written meanwhile. Sent after entries of the earlier vote, they
    /// would corrupt the log of a follower.
    fn check(&self, vote: &Vote) -> Result<(), Unreachable> {
        let newest = *self.log.vote();
        if newest == Some(*vote) { Ok(()) } else { Err(Unreachable::new(&StaleVote)) }
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
        // Committed entries are never taken back; others may be.
        self.client.acknowledged.record_stored(self.target, other.incarnation, stored.min(rpc.leader_commit));
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
        // openraft has to see this one error: it starts the transfer over.
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
