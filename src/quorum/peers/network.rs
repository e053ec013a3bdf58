//! How openraft reaches the other peers.

use std::{sync::Arc, time::Duration};

use openraft::{
    error::{InstallSnapshotError, RPCError, RaftError, RemoteError, Unreachable},
    network::{Backoff, RPCOption, RaftNetwork, RaftNetworkFactory},
    raft::{
        AppendEntriesRequest, AppendEntriesResponse, InstallSnapshotRequest, InstallSnapshotResponse, VoteRequest,
        VoteResponse,
    },
};
use serde::{Serialize, de::DeserializeOwned};

use super::call::{Call, CallError, Calls};
use crate::{
    raft::{Member, PeerId, Types},
    settings::Settings,
};

/// Makes [`Link`]s.
#[derive(Debug, Clone)]
pub(crate) struct Network {
    pub(crate) calls: Arc<Calls>,
    pub(crate) settings: Arc<Settings>,
}

/// To one peer. Many of these share a connection.
#[derive(Debug)]
pub(crate) struct Link {
    calls: Arc<Calls>,
    target: PeerId,
    name: String,
    address: String,
    /// Between two attempts to reach somebody who is not there.
    pause: Duration,
}

impl RaftNetworkFactory<Types> for Network {
    type Network = Link;

    /// The settings know better where a peer is than the membership, which says where it was when it was added.
    async fn new_client(&mut self, target: PeerId, member: &Member) -> Link {
        let address = self.settings.address_of(&member.name).unwrap_or(&member.address).to_owned();
        Link {
            calls: Arc::clone(&self.calls),
            target,
            name: member.name.clone(),
            address,
            pause: self.settings.timing.heartbeat(),
        }
    }
}

impl Link {
    /// Whatever goes wrong, openraft is told that the peer cannot be reached: of anything else it believes that
    /// trying again at once would help, and does nothing else any more.
    async fn ask<Q: Serialize, A: DeserializeOwned, E: std::error::Error>(
        &self,
        call: Call,
        question: &Q,
    ) -> Result<A, RPCError<PeerId, Member, E>> {
        let answer = self.calls.call((&self.name, &self.address), self.target, call, question).await;
        answer.map(|(_, answer)| answer).map_err(|error: CallError| RPCError::Unreachable(Unreachable::new(&error)))
    }
}

impl RaftNetwork<Types> for Link {
    async fn append_entries(
        &mut self,
        rpc: AppendEntriesRequest<Types>,
        _option: RPCOption,
    ) -> Result<AppendEntriesResponse<PeerId>, RPCError<PeerId, Member, RaftError<PeerId>>> {
        self.ask(Call::Append, &rpc).await
    }

    async fn install_snapshot(
        &mut self,
        rpc: InstallSnapshotRequest<Types>,
        _option: RPCOption,
    ) -> Result<InstallSnapshotResponse<PeerId>, RPCError<PeerId, Member, RaftError<PeerId, InstallSnapshotError>>>
    {
        let answer: Result<InstallSnapshotResponse<PeerId>, InstallSnapshotError> =
            self.ask(Call::Snapshot, &rpc).await?;
        // The one thing that openraft has to know: then it begins anew.
        answer.map_err(|error| RPCError::RemoteError(RemoteError::new(self.target, RaftError::APIError(error))))
    }

    async fn vote(
        &mut self,
        rpc: VoteRequest<PeerId>,
        _option: RPCOption,
    ) -> Result<VoteResponse<PeerId>, RPCError<PeerId, Member, RaftError<PeerId>>> {
        self.ask(Call::Vote, &rpc).await
    }

    fn backoff(&self) -> Backoff {
        Backoff::new(std::iter::repeat(self.pause))
    }
}
