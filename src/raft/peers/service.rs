//! The server side of the peer protocol.

use std::{
    future::{Future, poll_fn},
    pin::pin,
    sync::{
        Arc, OnceLock,
        atomic::{AtomicU64, Ordering},
    },
    task::Poll,
};

use leaseway_core::{
    Millis,
    planted::{self, Fault},
};
use leaseway_proto::peer::{
    Heard, Introduction, PeerRequest, PeerResponse, Place, Proof,
    peers_server::{Peers, PeersServer},
};
use leaseway_tls::Names;
use openraft::{
    SnapshotSegmentId,
    error::{InstallSnapshotError, RaftError, SnapshotMismatch},
    raft::{AppendEntriesRequest, InstallSnapshotRequest, InstallSnapshotResponse, VoteRequest, VoteResponse},
};
use serde::{Deserialize, Serialize, de::DeserializeOwned};
use tokio::sync::{Mutex, mpsc, watch};
use tonic::{Code, Request, Response, Status, metadata::MetadataValue};

use super::{
    client::MAX_MESSAGE_BYTES,
    handshake::{Handshake, OTHER_CLUSTER, REJECTED, Rejected, cluster_of, incarnation_of},
    liveness::Liveness,
    method::Method,
    proof::{CHALLENGE, ProofCheck, Prover},
    vote_lease::{follows_live_master, is_free_to_vote},
};
use crate::{
    acknowledged::{Acknowledged, Conflict},
    codec::{self, FORMAT},
    discovered::Discovered,
    incoming::Caller,
    master_lease::Mastership,
    raft::{LogId, Member, PeerId, Raft, RaftState, Types, Vote},
    settings::{Clock, Timing},
    store::{LogStore, disk::Failing},
};

/// Whether this peer may vote, and the order in which messages reach openraft.
///
/// openraft's followers refuse to vote as long as they honour a master's lease; a master has no such lease from itself.
/// It is one of the quorum that confirms its master lease, so it must not vote for another peer as long as that confirmation
/// counts: together with a peer that has confirmed nothing it could elect a second master.
#[derive(Debug, Default)]
pub(crate) struct Ballot {
    withheld_until: AtomicU64,
    order: Mutex<()>,
}

impl Ballot {
    /// Runs `work`, whose first poll sends a message to openraft. Messages arrive there in the order of these calls.
    pub(crate) async fn in_order<T>(&self, work: impl Future<Output = T>) -> T {
        let mut work = pin!(work);
        let first = {
            let _order = self.order.lock().await;
            poll_fn(|context| Poll::Ready(work.as_mut().poll(context))).await
        };
        match first {
            Poll::Ready(result) => result,
            Poll::Pending => work.await,
        }
    }

    /// Runs `work` to its end while no message is sent to openraft.
    pub(crate) async fn exclusively<T>(&self, work: impl Future<Output = T>) -> T {
        let _order = self.order.lock().await;
        work.await
    }

    /// No votes until then. Certain only for votes that run through [`in_order`](Ballot::in_order).
    pub(crate) fn withhold(&self, until: Millis) {
        self.withheld_until.fetch_max(until.0, Ordering::SeqCst);
    }

    /// Votes are given again: the master lease that they were withheld for has ended, and this peer begins no other.
    pub(crate) fn release(&self) {
        self.withheld_until.store(0, Ordering::SeqCst);
    }

    pub(crate) fn is_withheld(&self, now: Millis) -> bool {
        now.0 <= self.withheld_until.load(Ordering::SeqCst)
    }
}

/// How much of a snapshot has arrived without a gap. openraft fills a gap with zeros, which a chunk leaves that arrives
/// late, after the transfer has begun anew.
#[derive(Debug, Default)]
pub(crate) struct ReceivedSnapshot {
    id: String,
    bytes: u64,
}

impl ReceivedSnapshot {
    /// What has arrived with this chunk. An error asks the sender to begin anew.
    pub(crate) fn next(&self, chunk: &InstallSnapshotRequest<Types>) -> Result<ReceivedSnapshot, InstallSnapshotError> {
        let id = &chunk.meta.snapshot_id;
        let before = if *id == self.id { self.bytes } else { 0 };
        if chunk.offset > before {
            let at = |offset| SnapshotSegmentId { id: id.clone(), offset };
            return Err(SnapshotMismatch { expect: at(before), got: at(chunk.offset) }.into());
        }
        let after = chunk.offset + chunk.data.len() as u64;
        // A chunk that begins a snapshot discards what has arrived of another one.
        Ok(ReceivedSnapshot { id: id.clone(), bytes: if chunk.done { 0 } else { after.max(before) } })
    }
}

/// This peer's own state, shared by its tasks and its peer service.
pub(crate) struct LocalPeer {
    /// Unset until every vote lease that an earlier process of this peer may have given has certainly ended.
    pub(crate) raft: OnceLock<Raft>,
    pub(crate) handshake: Arc<Handshake>,
    pub(crate) prover: Arc<Prover>,
    /// Only a certificate for the host of a peer makes a caller one.
    pub(crate) knows_peers_by_certificate: bool,
    /// Peers as they were named at the start: names and addresses.
    pub(crate) named: Vec<(String, String)>,
    pub(crate) liveness: Arc<Liveness>,
    pub(crate) acknowledged: Acknowledged,
    pub(crate) log: LogStore,
    pub(crate) ballot: Ballot,
    pub(crate) received: Mutex<ReceivedSnapshot>,
    pub(crate) clock: Clock,
    pub(crate) timing: Timing,
    pub(crate) failing: Failing,
    /// Which peer is master, as far as this one knows.
    pub(crate) mastership: watch::Receiver<Mastership>,
    /// What other peers say about that.
    pub(crate) discovered: Discovered,
    /// Peers that ask to join.
    pub(crate) joins: mpsc::Sender<(PeerId, Member)>,
}

/// A request whose sender was checked.
struct Checked {
    from: Introduction,
    payload: Vec<u8>,
    /// Its proof, to which the answer refers.
    asked: Option<Proof>,
}

/// A master's request to stand for election in its place.
#[derive(Debug, Clone, Copy, Serialize, Deserialize)]
pub(crate) struct StandRequest {
    /// The vote that the master was elected with.
    pub(crate) master: Vote,
    /// The last entry of its log, after its master lease.
    pub(crate) last: Option<LogId>,
}

impl StandRequest {
    /// Whether no master lease has begun since, as far as a peer knows that might win the election.
    fn is_current(&self, state: &RaftState, log: &LogStore) -> bool {
        let is_last = log.log().last() == self.last || planted::is(Fault::StaleHandOver);
        *state.vote_ref() == self.master && is_last
    }
}

/// Serves [`LocalPeer`].
pub(crate) struct PeersService(Arc<LocalPeer>);

impl PeersService {
    pub(crate) fn serve(local: Arc<LocalPeer>) -> PeersServer<PeersService> {
        PeersServer::new(PeersService(local))
            .max_decoding_message_size(MAX_MESSAGE_BYTES)
            .max_encoding_message_size(MAX_MESSAGE_BYTES)
    }
}

#[tonic::async_trait]
impl Peers for PeersService {
    async fn hello(&self, request: Request<PeerRequest>) -> Result<Response<PeerResponse>, Status> {
        let checked = self.0.check(Method::Hello, request)?;
        let heard = self.0.heard(&checked.from).await;
        self.0.answer_with(checked.asked.as_ref(), &(), heard)
    }

    async fn join(&self, request: Request<PeerRequest>) -> Result<Response<PeerResponse>, Status> {
        let Checked { from: other, payload, asked } = self.0.check(Method::Join, request)?;
        let address = decode(&payload)?;
        let member = Member { name: other.name, address, advertise: other.advertise };
        // If the queue is full the peer asks again.
        let _ = self.0.joins.try_send((other.peer, member));
        self.0.answer(asked.as_ref(), &())
    }

    async fn append(&self, request: Request<PeerRequest>) -> Result<Response<PeerResponse>, Status> {
        let from = request.get_ref().from.as_ref().map(incarnation_of);
        let (raft, payload, asked) = self.0.consensus(Method::Append, request).await?;
        let rpc: AppendEntriesRequest<Types> = decode(&payload)?;
        if let Some(from) = from {
            // A master has what it says is committed.
            self.0.acknowledged.has(from.peer, from.number, rpc.leader_commit);
        }
        self.0.check_committed(&raft, &rpc)?;
        let answer = self.0.ballot.in_order(raft.append_entries(rpc)).await.map_err(ended)?;
        self.0.answer(asked.as_ref(), &answer)
    }

    async fn vote(&self, request: Request<PeerRequest>) -> Result<Response<PeerResponse>, Status> {
        let (raft, payload, asked) = self.0.consensus(Method::Vote, request).await?;
        let rpc: VoteRequest<PeerId> = decode(&payload)?;
        let vote = async {
            if self.0.ballot.is_withheld((self.0.clock)()) {
                let (vote, last) = {
                    let metrics = raft.data_metrics();
                    let last = metrics.borrow().last_log;
                    (raft.server_metrics().borrow().vote, last)
                };
                return Ok(VoteResponse::new(vote, last, false));
            }
            raft.vote(rpc).await
        };
        let answer = self.0.ballot.in_order(vote).await.map_err(ended)?;
        self.0.answer(asked.as_ref(), &answer)
    }

    async fn snapshot(&self, request: Request<PeerRequest>) -> Result<Response<PeerResponse>, Status> {
        let (raft, payload, asked) = self.0.consensus(Method::Snapshot, request).await?;
        let rpc: InstallSnapshotRequest<Types> = decode(&payload)?;
        let mut received = self.0.received.lock().await;
        let chunk = received.next(&rpc);
        let answer: Result<InstallSnapshotResponse<PeerId>, InstallSnapshotError> = match chunk {
            Err(gap) => Err(gap),
            Ok(next) => match self.0.ballot.in_order(raft.install_snapshot(rpc)).await {
                Ok(answer) => {
                    *received = next;
                    Ok(answer)
                }
                Err(RaftError::APIError(error)) => Err(error),
                Err(RaftError::Fatal(error)) => return Err(ended(error)),
            },
        };
        self.0.answer(asked.as_ref(), &answer)
    }

    async fn poll(&self, request: Request<PeerRequest>) -> Result<Response<PeerResponse>, Status> {
        let (raft, payload, asked) = self.0.consensus(Method::Poll, request).await?;
        let theirs: Option<LogId> = decode(&payload)?;
        let timing = self.0.timing;
        let alone = raft.with_raft_state(move |state| is_free_to_vote(state, timing)).await.map_err(ended)?;
        let mine = raft.data_metrics().borrow().last_log;
        self.0.answer(asked.as_ref(), &(alone && theirs >= mine && !self.0.ballot.is_withheld((self.0.clock)())))
    }

    async fn stand(&self, request: Request<PeerRequest>) -> Result<Response<PeerResponse>, Status> {
        let (raft, payload, asked) = self.0.consensus(Method::Stand, request).await?;
        let request: StandRequest = decode(&payload)?;
        // The master itself says that it has stopped, so its lease on this peer's vote is void. If it, or another peer,
        // reigns again by now, the lease may count in that master lease, and nothing happens.
        let log = self.0.log.clone();
        let still = move |state: &RaftState| request.is_current(state, &log);
        let started = start_election(&raft, &self.0.ballot, still).await;
        self.0.answer(asked.as_ref(), &started)
    }
}

/// Starts an election at once if `is_right`. No message reaches openraft in between, or this could break a vote lease
/// that was given after the check.
pub(crate) async fn start_election(
    raft: &Raft,
    ballot: &Ballot,
    is_right: impl FnOnce(&RaftState) -> bool + Send + 'static,
) -> bool {
    let elect = async {
        let right = raft.with_raft_state(is_right).await;
        right.unwrap_or(false) && raft.trigger().elect().await.is_ok()
    };
    ballot.exclusively(elect).await
}

impl LocalPeer {
    /// Checks who has sent a request.
    fn check(&self, method: Method, request: Request<PeerRequest>) -> Result<Checked, Status> {
        let caller = request.extensions().get::<Arc<Caller>>().cloned();
        let request = request.into_inner();
        let caller = caller.ok_or_else(|| Status::internal("the connection is unknown"))?;
        let reject = |rejected| self.reject(&caller, &rejected);
        if self.knows_peers_by_certificate && !caller.is_peer(|names| self.is_host_of_peer(names)) {
            let names = caller.names.as_deref().map(Names::all).unwrap_or_default();
            return Err(reject(Rejected::Certificate(names.join(", "))));
        }
        let shown = self.prover.check(&request, method, self.handshake.name(), &caller.challenge);
        let PeerRequest { from, to, payload, proof } = request;
        let is_of_this_format = from.as_ref().is_some_and(|from| from.format == u32::from(FORMAT));
        if shown == ProofCheck::StaleChallenge && is_of_this_format {
            let mut status = Status::unauthenticated("the challenge is another");
            let challenge = MetadataValue::from_bytes(caller.challenge.bytes());
            status.metadata_mut().insert_bin(CHALLENGE, challenge);
            return Err(status);
        }
        let other = self.handshake.check(from, shown == ProofCheck::Valid).map_err(reject)?;
        if to != 0 && to != self.handshake.peer() {
            return Err(Status::not_found("rejected: this peer has lost its directory, and has a new identity"));
        }
        self.liveness.heard(&other, (self.clock)());
        self.acknowledged.heard(incarnation_of(&other));
        Ok(Checked { from: other, payload, asked: proof })
    }

    /// Tells the log, and the sender.
    fn reject(&self, caller: &Caller, rejected: &Rejected) -> Status {
        self.liveness.report_problem(&caller.address.to_string(), rejected);
        let code = match rejected {
            Rejected::Secret => Code::Unauthenticated,
            Rejected::Certificate(_) => Code::PermissionDenied,
            _ => Code::FailedPrecondition,
        };
        // Worded for the sender, for which "it" is this peer.
        let mut status = Status::new(code, format!("rejected: {}", as_told_to_it(rejected)));
        if *rejected == Rejected::Cluster {
            status.metadata_mut().insert(REJECTED, MetadataValue::from_static(OTHER_CLUSTER));
        }
        status
    }

    /// Whether a certificate would do for the host of a peer: one that was named at the start, or a member.
    fn is_host_of_peer(&self, names: &Names) -> bool {
        let is_for = |address: &str| {
            let host = address.rsplit_once(':').map_or(address, |(host, _)| host);
            names.is_valid_for(host)
        };
        if self.named.iter().any(|(_, address)| is_for(address)) {
            return true;
        }
        let Some(raft) = self.raft.get() else { return false };
        let membership = raft.metrics().borrow().membership_config.clone();
        membership.nodes().any(|(_, member)| is_for(&member.address))
    }

    /// Checks a message of consensus. Those are addressed to an identity, which is unique, so the sender of the first
    /// one has made this peer a member of its cluster.
    async fn consensus(
        &self,
        method: Method,
        request: Request<PeerRequest>,
    ) -> Result<(Raft, Vec<u8>, Option<Proof>), Status> {
        if request.get_ref().to == 0 {
            return Err(Status::invalid_argument("a message of consensus needs an addressee"));
        }
        let Checked { from: other, payload, asked } = self.check(method, request)?;
        let cluster = cluster_of(&other).ok_or_else(|| Status::failed_precondition("rejected: of no cluster"))?;
        if self.handshake.cluster().is_none() {
            let handshake = Arc::clone(&self.handshake);
            let belongs = tokio::task::spawn_blocking(move || handshake.join_cluster(cluster)).await;
            match belongs {
                Ok(Ok(())) => {}
                Ok(Err(error)) => {
                    self.failing.fail(&error);
                    return Err(Status::unavailable("its disk has failed"));
                }
                Err(_) => return Err(Status::unavailable("it is going down")),
            }
        }
        if self.handshake.cluster() != Some(cluster) {
            return Err(Status::failed_precondition("rejected: of another cluster"));
        }
        if self.failing.get().is_some() {
            return Err(Status::unavailable("its disk has failed"));
        }
        let raft = self.raft.get().cloned().ok_or_else(|| Status::unavailable("it has only just started"))?;
        Ok((raft, payload, asked))
    }

    /// Whether a master's message leaves alone what was committed here. If not, a majority has lost a part of the log.
    /// A peer that has only stored that part goes on with the log of the master; one that has applied it cannot take it
    /// back. openraft would not notice: it takes what is committed to be the same everywhere.
    fn check_committed(&self, raft: &Raft, rpc: &AppendEntriesRequest<Types>) -> Result<(), Status> {
        let applied = raft.data_metrics().borrow().last_applied;
        let Some(conflict) = self.conflict(applied, rpc) else { return Ok(()) };
        self.acknowledged.conflicts(conflict);
        if applied.is_none_or(|applied| applied.index < conflict.ours.index) {
            return Ok(());
        }
        self.failing.fail(&format!("{conflict}; empty its data directory and start it again, so that it rejoins"));
        Err(Status::unavailable("its log is that of another cluster"))
    }

    fn conflict(&self, applied: Option<LogId>, rpc: &AppendEntriesRequest<Types>) -> Option<Conflict> {
        if self.log.vote().is_some_and(|newest| newest > rpc.vote) {
            return None;
        }
        let log = self.log.log();
        if let Some(committed) = self.acknowledged.committed().max(applied) {
            let sent = rpc.prev_log_id.into_iter().chain(rpc.entries.iter().map(|entry| entry.log_id));
            for theirs in sent.take_while(|theirs| theirs.index <= committed.index) {
                if let Some(ours) = log.id_at(theirs.index).filter(|ours| *ours != theirs) {
                    return Some(Conflict { ours, theirs });
                }
            }
        }
        let committed = rpc.leader_commit.filter(|id| log.id_at(id.index) == Some(*id));
        self.acknowledged.commits(committed);
        None
    }

    /// `asked` is the proof of the request.
    fn answer<A: Serialize>(&self, asked: Option<&Proof>, answer: &A) -> Result<Response<PeerResponse>, Status> {
        self.answer_with(asked, answer, None)
    }

    fn answer_with<A: Serialize>(
        &self,
        asked: Option<&Proof>,
        answer: &A,
        heard: Option<Heard>,
    ) -> Result<Response<PeerResponse>, Status> {
        let from = Some(self.handshake.introduction());
        let mut response = PeerResponse { from, payload: codec::encode(answer), heard, proof: None };
        response.proof = self.prover.prove_answer(&response, asked);
        Ok(Response::new(response))
    }

    /// The master, if this peer is it or hears from it, and the place of `other` in the quorum then.
    async fn heard(&self, other: &Introduction) -> Option<Heard> {
        let raft = self.raft.get()?;
        let (master, advertise) = self.master(raft).await?;
        Some(Heard { master, advertise, place: self.place_of(raft, other.peer, &other.name).into() })
    }

    async fn master(&self, raft: &Raft) -> Option<(String, String)> {
        let is_master = match &*self.mastership.borrow() {
            Mastership::Master(lease) => lease.holds((self.clock)()),
            Mastership::Follower { .. } | Mastership::Unknown => false,
        };
        if is_master {
            let me = self.handshake.introduction();
            return Some((me.name, me.advertise));
        }
        let timing = self.timing;
        let master = move |state: &RaftState| {
            follows_live_master(state, timing).then(|| state.vote_ref().leader_id().voted_for())
        };
        let master = raft.with_raft_state(master).await.ok()??.filter(|master| *master != self.handshake.peer())?;
        self.liveness.get(master).map(|contact| (contact.name, contact.advertise))
    }

    /// A peer's place in the quorum, as far as this one knows.
    pub(crate) fn place_of(&self, raft: &Raft, peer: PeerId, name: &str) -> Place {
        let metrics = raft.metrics();
        let membership = metrics.borrow().membership_config.clone();
        if membership.nodes().any(|(member, _)| *member == peer) {
            Place::Member
        } else if membership.nodes().any(|(_, member)| member.name == name) {
            Place::Replaced
        } else {
            Place::Removed
        }
    }
}

fn as_told_to_it(rejected: &Rejected) -> String {
    match rejected {
        Rejected::Anonymous => "who is it?".into(),
        Rejected::Format { theirs, ours } => format!("it speaks format {ours}, this peer format {theirs}"),
        Rejected::Secret => "it has another secret".into(),
        Rejected::Certificate(names) => {
            format!("your certificate ({names}) is for the host of no peer that it knows")
        }
        Rejected::Timing { theirs, ours } => {
            format!("its election timeout is {ours} ms, that of this peer {theirs}: all peers need the same timing")
        }
        Rejected::Cluster => "it belongs to another cluster".into(),
        Rejected::Namesake(name) => format!("its name is {name:?} too: every peer needs one of its own"),
    }
}

fn decode<T: DeserializeOwned>(payload: &[u8]) -> Result<T, Status> {
    codec::decode(payload).map_err(|error| Status::invalid_argument(error.to_string()))
}

fn ended(error: impl std::fmt::Display) -> Status {
    Status::unavailable(format!("it takes no part any more: {error}"))
}
