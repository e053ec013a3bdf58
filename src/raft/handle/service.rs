//! The server side of the peer protocol.
//!
//! # Late messages
//! TCP may deliver a message long after its sender gave up on it: over an old connection, in a later term, to a peer
//! that has followed other masters since. The effect of a late message:
//!
//! | message | effect if it is late | why that is safe |
//! |---|---|---|
//! | `Append` of an older vote | refused | openraft compares votes |
//! | `Append` of the current vote | renews the vote lease; entries that are there already are skipped | a vote belongs to one master, whose log only grows; a longer vote lease only delays an election |
//! | answer to `Append` | nothing | a confirmation counts for the heartbeat that asked for it, and only within two heartbeats |
//! | `Vote` | refused while a vote lease runs, or if its log or vote is older than ours; otherwise this peer votes for a candidate that has given up, and the next election takes one more round | a vote promises something about the future, and breaks no lease |
//! | answer to `Vote` | may complete an election of the same Raft term | the voters voted for no other peer in that term, and a master lease needs a new confirmation |
//! | `Poll` | an answer, and nothing else | a pre-vote promises nothing |
//! | `Stand` | starts an election if neither vote nor log has changed since it was sent | it breaks a vote lease, so it must not count in a later term: see [`StandRequest`] and `membership/transfer.rs` |
//! | `Snapshot` | a chunk of an earlier transfer starts the transfer over; a finished snapshot that is older than the committed entries is ignored | chunks with a gap before them are refused ([`ReceivedSnapshot`]) |
//! | `Join` | a master may admit a dead peer as a learner, which delays other changes for at most two minutes and is removed afterwards | a peer gets a vote only after it has caught up |
//! | `History` | none but its answer | it reads memory, and nothing depends on the answer but plots |
//! | `Hello` | the sender counts as alive for two leases | liveness only decides whom a master chooses or refuses to replace; both are asked again before anything depends on it |
//!
//! A proposal is not a message: only a master proposes, and an entry that follows a later `BeginTerm` in the log is
//! ignored. A change of membership belongs to the master lease in which it was decided (`Members::step`). After a
//! restart a peer waits until every vote lease that it may have granted has ended, and never resumes an earlier vote
//! for itself. With a secret, a message that a thousand others have overtaken on its connection is refused as well.

use std::sync::Arc;

use leaseway_proto::peer::{
    MasterInfo, PeerInfo, PeerRequest, PeerResponse,
    peers_server::{Peers, PeersServer},
};
use openraft::{
    SnapshotSegmentId,
    error::{InstallSnapshotError, RaftError, SnapshotMismatch},
    raft::{AppendEntriesRequest, InstallSnapshotRequest, InstallSnapshotResponse, VoteRequest, VoteResponse},
};
use serde::de::DeserializeOwned;
use tokio::sync::{Mutex, mpsc};
use tonic::{Request, Response, Status};

use crate::{
    election::{
        PeerContext,
        master_lease::Mastership,
        vote::{StandRequest, follows_live_master, is_free_to_vote, start_election},
    },
    log::{LogId, Member, PeerId, Raft, RaftState, Types, acknowledged::Conflict, codec},
    membership::discovery::status_of,
    transport::{
        MAX_MESSAGE_BYTES, Method,
        authenticator::{Authenticated, Authenticator},
        handshake::{cluster_of, incarnation_of},
    },
};

/// The length of a snapshot that has arrived without a gap. If a late chunk of a restarted transfer left a gap,
/// openraft would fill it with zeros.
#[derive(Debug, Default)]
pub(crate) struct ReceivedSnapshot {
    id: String,
    bytes: u64,
}

impl ReceivedSnapshot {
    /// The progress after this chunk. An error makes the sender restart the transfer.
    pub(crate) fn next(&self, chunk: &InstallSnapshotRequest<Types>) -> Result<ReceivedSnapshot, InstallSnapshotError> {
        let id = &chunk.meta.snapshot_id;
        let before = if *id == self.id { self.bytes } else { 0 };
        if chunk.offset > before {
            let at = |offset| SnapshotSegmentId { id: id.clone(), offset };
            return Err(SnapshotMismatch { expect: at(before), got: at(chunk.offset) }.into());
        }
        let after = chunk.offset + chunk.data.len() as u64;
        // The first chunk of a snapshot discards the chunks of another one.
        Ok(ReceivedSnapshot { id: id.clone(), bytes: if chunk.done { 0 } else { after.max(before) } })
    }
}

/// The server side of the peer protocol.
pub(crate) struct PeersService {
    context: Arc<PeerContext>,
    authenticator: Authenticator,
    received: Mutex<ReceivedSnapshot>,
    /// Peers that ask to join.
    joins: mpsc::Sender<(PeerId, Member)>,
}

impl PeersService {
    pub(crate) fn serve(
        context: Arc<PeerContext>,
        authenticator: Authenticator,
        joins: mpsc::Sender<(PeerId, Member)>,
    ) -> PeersServer<PeersService> {
        PeersServer::new(PeersService { context, authenticator, received: Mutex::default(), joins })
            .max_decoding_message_size(MAX_MESSAGE_BYTES)
            .max_encoding_message_size(MAX_MESSAGE_BYTES)
    }
}

#[tonic::async_trait]
impl Peers for PeersService {
    async fn hello(&self, request: Request<PeerRequest>) -> Result<Response<PeerResponse>, Status> {
        let Authenticated { from, proof, .. } = self.authenticator.check(Method::Hello, request)?;
        let master = self.master_info(&from).await;
        self.authenticator.answer(proof.as_ref(), &(), master)
    }

    async fn join(&self, request: Request<PeerRequest>) -> Result<Response<PeerResponse>, Status> {
        let Authenticated { from, payload, proof } = self.authenticator.check(Method::Join, request)?;
        let address = decode(&payload)?;
        let member = Member { name: from.name, address, advertise: from.advertise };
        // If the queue is full the peer asks again.
        let _ = self.joins.try_send((from.peer, member));
        self.authenticator.answer(proof.as_ref(), &(), None)
    }

    async fn append(&self, request: Request<PeerRequest>) -> Result<Response<PeerResponse>, Status> {
        let (raft, Authenticated { from, payload, proof }) = self.consensus(Method::Append, request).await?;
        let rpc: AppendEntriesRequest<Types> = decode(&payload)?;
        // A master has all committed entries on disk.
        let from = incarnation_of(&from);
        self.context.acknowledged.record_stored(from.peer, from.number, rpc.leader_commit);
        self.check_committed(&raft, &rpc)?;
        let answer = self.context.ballot.in_order(raft.append_entries(rpc)).await.map_err(ended)?;
        self.authenticator.answer(proof.as_ref(), &answer, None)
    }

    async fn vote(&self, request: Request<PeerRequest>) -> Result<Response<PeerResponse>, Status> {
        let (raft, Authenticated { payload, proof, .. }) = self.consensus(Method::Vote, request).await?;
        let rpc: VoteRequest<PeerId> = decode(&payload)?;
        let vote = async {
            if self.context.ballot.is_withheld(self.context.now()) {
                let (vote, last) = {
                    let metrics = raft.data_metrics();
                    let last = metrics.borrow().last_log;
                    (raft.server_metrics().borrow().vote, last)
                };
                return Ok(VoteResponse::new(vote, last, false));
            }
            raft.vote(rpc).await
        };
        let answer = self.context.ballot.in_order(vote).await.map_err(ended)?;
        self.authenticator.answer(proof.as_ref(), &answer, None)
    }

    async fn snapshot(&self, request: Request<PeerRequest>) -> Result<Response<PeerResponse>, Status> {
        let (raft, Authenticated { payload, proof, .. }) = self.consensus(Method::Snapshot, request).await?;
        let rpc: InstallSnapshotRequest<Types> = decode(&payload)?;
        let mut received = self.received.lock().await;
        let chunk = received.next(&rpc);
        let answer: Result<InstallSnapshotResponse<PeerId>, InstallSnapshotError> = match chunk {
            Err(gap) => Err(gap),
            Ok(next) => match self.context.ballot.in_order(raft.install_snapshot(rpc)).await {
                Ok(answer) => {
                    *received = next;
                    Ok(answer)
                }
                Err(RaftError::APIError(error)) => Err(error),
                Err(RaftError::Fatal(error)) => return Err(ended(error)),
            },
        };
        self.authenticator.answer(proof.as_ref(), &answer, None)
    }

    async fn poll(&self, request: Request<PeerRequest>) -> Result<Response<PeerResponse>, Status> {
        let (raft, Authenticated { payload, proof, .. }) = self.consensus(Method::Poll, request).await?;
        let theirs: Option<LogId> = decode(&payload)?;
        let timing = self.context.settings.timing;
        let is_free = raft.with_raft_state(move |state| is_free_to_vote(state, timing)).await.map_err(ended)?;
        let ours = raft.data_metrics().borrow().last_log;
        let would = is_free && theirs >= ours && !self.context.ballot.is_withheld(self.context.now());
        self.authenticator.answer(proof.as_ref(), &would, None)
    }

    async fn stand(&self, request: Request<PeerRequest>) -> Result<Response<PeerResponse>, Status> {
        let (raft, Authenticated { payload, proof, .. }) = self.consensus(Method::Stand, request).await?;
        let request: StandRequest = decode(&payload)?;
        // The request comes from the master, so its lease has ended and this peer's vote lease to it is void. If a
        // later master lease has begun, the vote lease may count for that one, and the request is ignored.
        let log = self.context.log.clone();
        let still = move |state: &RaftState| request.is_current(state, &log);
        let started = start_election(&raft, &self.context.ballot, still).await;
        self.authenticator.answer(proof.as_ref(), &started, None)
    }

    async fn history(&self, request: Request<PeerRequest>) -> Result<Response<PeerResponse>, Status> {
        let (_, Authenticated { payload, proof, .. }) = self.consensus(Method::History, request).await?;
        let request: Vec<u8> = decode(&payload)?;
        let answer = self.context.history.to(request).await;
        let answer = answer.ok_or_else(|| Status::unavailable("the peer is still starting"))?;
        self.authenticator.answer(proof.as_ref(), &answer, None)
    }
}

impl PeersService {
    /// Checks a message of consensus. It is addressed to a unique identity, so only a cluster that has this peer as a
    /// member sends one. A peer without a cluster joins the cluster of the sender.
    async fn consensus(&self, method: Method, request: Request<PeerRequest>) -> Result<(Raft, Authenticated), Status> {
        if request.get_ref().to == 0 {
            return Err(Status::invalid_argument("a consensus message must name its receiver"));
        }
        let request = self.authenticator.check(method, request)?;
        let cluster = cluster_of(&request.from)
            .ok_or_else(|| Status::failed_precondition("rejected: the sender belongs to no cluster"))?;
        if self.context.handshake.cluster().is_none() {
            let handshake = Arc::clone(&self.context.handshake);
            let joined = tokio::task::spawn_blocking(move || handshake.join_cluster(cluster)).await;
            match joined {
                Ok(Ok(())) => {}
                Ok(Err(error)) => {
                    self.context.failing.fail(&error);
                    return Err(Status::unavailable("the disk of the peer has failed"));
                }
                Err(_) => return Err(Status::unavailable("the peer is stopping")),
            }
        }
        if self.context.handshake.cluster() != Some(cluster) {
            return Err(Status::failed_precondition("rejected: the sender belongs to another cluster"));
        }
        if self.context.failing.get().is_some() {
            return Err(Status::unavailable("the disk of the peer has failed"));
        }
        let raft = self.context.raft.get().cloned().ok_or_else(|| Status::unavailable("the peer is still starting"))?;
        Ok((raft, request))
    }

    /// Compares a master's entries with the committed entries of this peer. If they differ, a majority has lost a part
    /// of the log, which openraft does not notice. If this peer has stored that part but not applied it, it follows the
    /// master. If it has applied it, it cannot follow, and consensus ends on it.
    fn check_committed(&self, raft: &Raft, rpc: &AppendEntriesRequest<Types>) -> Result<(), Status> {
        let applied = raft.data_metrics().borrow().last_applied;
        let Some(conflict) = self.conflict(applied, rpc) else { return Ok(()) };
        self.context.acknowledged.report_conflict(conflict);
        if applied.is_none_or(|applied| applied.index < conflict.ours.index) {
            return Ok(());
        }
        self.context
            .failing
            .fail(&format!("{conflict}; empty the data directory of this peer and start it again, so that it rejoins"));
        Err(Status::unavailable("the log of the peer conflicts with that of the master"))
    }

    fn conflict(&self, applied: Option<LogId>, rpc: &AppendEntriesRequest<Types>) -> Option<Conflict> {
        if self.context.log.vote().is_some_and(|newest| newest > rpc.vote) {
            return None;
        }
        let log = self.context.log.log();
        if let Some(committed) = self.context.acknowledged.committed().max(applied) {
            let sent = rpc.prev_log_id.into_iter().chain(rpc.entries.iter().map(|entry| entry.log_id));
            for theirs in sent.take_while(|theirs| theirs.index <= committed.index) {
                if let Some(ours) = log.id_at(theirs.index).filter(|ours| *ours != theirs) {
                    return Some(Conflict { ours, theirs });
                }
            }
        }
        let committed = rpc.leader_commit.filter(|id| log.id_at(id.index) == Some(*id));
        self.context.acknowledged.record_committed(committed);
        None
    }

    /// The master, if this peer is it or gets heartbeats from it, and whether `other` is a member.
    async fn master_info(&self, other: &PeerInfo) -> Option<MasterInfo> {
        let (name, advertise) = self.master(self.context.raft.get()?).await?;
        let membership = self.context.membership()?;
        Some(MasterInfo { name, advertise, caller: status_of(&membership, other.peer, &other.name).into() })
    }

    async fn master(&self, raft: &Raft) -> Option<(String, String)> {
        let is_master = match &*self.context.mastership.borrow() {
            Mastership::Master(lease) => lease.holds(self.context.now()),
            Mastership::Follower { .. } | Mastership::Unknown => false,
        };
        if is_master {
            let me = self.context.handshake.info();
            return Some((me.name, me.advertise));
        }
        let timing = self.context.settings.timing;
        let master = move |state: &RaftState| {
            follows_live_master(state, timing).then(|| state.vote_ref().leader_id().voted_for())
        };
        let master = raft.with_raft_state(master).await.ok()??.filter(|master| *master != self.context.id())?;
        self.context.liveness.get(master).map(|contact| (contact.name, contact.advertise))
    }
}

fn decode<T: DeserializeOwned>(payload: &[u8]) -> Result<T, Status> {
    codec::decode(payload).map_err(|error| Status::invalid_argument(error.to_string()))
}

fn ended(error: impl std::fmt::Display) -> Status {
    Status::unavailable(format!("consensus has ended on the peer: {error}"))
}
