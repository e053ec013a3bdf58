//! What other peers ask this one.

use std::{
    future::{Future, poll_fn},
    pin::pin,
    sync::{
        Arc, OnceLock,
        atomic::{AtomicU64, Ordering},
    },
    task::Poll,
};

use leaseway_core::Millis;
use leaseway_proto::peer::{
    Heard, Introduction, PeerRequest, PeerResponse, Place,
    peers_server::{Peers, PeersServer},
};
use openraft::{
    error::{InstallSnapshotError, RaftError},
    raft::{InstallSnapshotResponse, VoteRequest, VoteResponse},
};
use serde::{Serialize, de::DeserializeOwned};
use tokio::sync::{Mutex, mpsc, watch};
use tonic::{Code, Request, Response, Status, metadata::MetadataValue};

use super::{
    call::LARGEST_MESSAGE,
    contacts::Contacts,
    introduction::{Introducer, OTHER_CLUSTER, Stranger, TURNED_AWAY, cluster_of},
    silence::{hears_a_master, hears_nobody},
};
use crate::{
    codec,
    inquiry::Hearsay,
    raft::{LogId, Member, PeerId, Raft, State, Vote},
    reign::Mastership,
    settings::{Clock, Timing},
    store::disk::Failing,
};

/// Whether this peer may vote, and in which order consensus hears of things.
///
/// openraft's followers refuse to vote as long as they have promised to stand by a master; a master has no such
/// promise to itself. It is one of the quorum that confirms its reign, so it must not vote for somebody else as long
/// as that confirmation counts: together with one who has confirmed nothing it could make a second master.
#[derive(Debug, Default)]
pub(crate) struct Ballot {
    withheld_until: AtomicU64,
    order: Mutex<()>,
}

impl Ballot {
    /// Does something whose beginning hands a message to consensus. What was begun first is heard first.
    pub(crate) async fn begin<T>(&self, work: impl Future<Output = T>) -> T {
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

    /// Does something while nothing else is begun.
    pub(crate) async fn alone<T>(&self, work: impl Future<Output = T>) -> T {
        let _order = self.order.lock().await;
        work.await
    }

    /// No votes until then. Only what is begun in order with this is certain to keep to it.
    pub(crate) fn withhold(&self, until: Millis) {
        self.withheld_until.fetch_max(until.0, Ordering::SeqCst);
    }

    /// Votes are given again: the reign that they were withheld for has ended for good, and there will be no other.
    pub(crate) fn release(&self) {
        self.withheld_until.store(0, Ordering::SeqCst);
    }

    pub(crate) fn is_withheld(&self, now: Millis) -> bool {
        now.0 <= self.withheld_until.load(Ordering::SeqCst)
    }
}

/// Everything that an answer needs.
pub(crate) struct Core {
    /// There is none before the promises of an earlier life to stand by a master have certainly ended.
    pub(crate) raft: OnceLock<Raft>,
    pub(crate) introducer: Arc<Introducer>,
    pub(crate) contacts: Arc<Contacts>,
    pub(crate) ballot: Ballot,
    pub(crate) clock: Clock,
    pub(crate) timing: Timing,
    pub(crate) failing: Failing,
    /// Where this peer stands.
    pub(crate) mastership: watch::Receiver<Mastership>,
    /// What others say about that.
    pub(crate) hearsay: Hearsay,
    /// Those who ask to be taken in.
    pub(crate) joins: mpsc::Sender<(PeerId, Member)>,
}

/// Serves [`Core`].
pub(crate) struct PeersService(Arc<Core>);

impl PeersService {
    pub(crate) fn serve(core: Arc<Core>) -> PeersServer<PeersService> {
        PeersServer::new(PeersService(core))
            .max_decoding_message_size(LARGEST_MESSAGE)
            .max_encoding_message_size(LARGEST_MESSAGE)
    }
}

#[tonic::async_trait]
impl Peers for PeersService {
    async fn hello(&self, request: Request<PeerRequest>) -> Result<Response<PeerResponse>, Status> {
        let (other, _) = self.0.check(request)?;
        let mut answer = self.0.answer(&())?;
        answer.get_mut().heard = self.0.heard(&other).await;
        Ok(answer)
    }

    async fn join(&self, request: Request<PeerRequest>) -> Result<Response<PeerResponse>, Status> {
        let (other, payload) = self.0.check(request)?;
        let address = decode(&payload)?;
        let member = Member { name: other.name, address, advertise: other.advertise };
        // Full: it will ask again.
        let _ = self.0.joins.try_send((other.peer, member));
        self.0.answer(&())
    }

    async fn append(&self, request: Request<PeerRequest>) -> Result<Response<PeerResponse>, Status> {
        let (raft, payload) = self.0.consensus(request).await?;
        let rpc = decode(&payload)?;
        let answer = self.0.ballot.begin(raft.append_entries(rpc)).await.map_err(ended)?;
        self.0.answer(&answer)
    }

    async fn vote(&self, request: Request<PeerRequest>) -> Result<Response<PeerResponse>, Status> {
        let (raft, payload) = self.0.consensus(request).await?;
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
        let answer = self.0.ballot.begin(vote).await.map_err(ended)?;
        self.0.answer(&answer)
    }

    async fn snapshot(&self, request: Request<PeerRequest>) -> Result<Response<PeerResponse>, Status> {
        let (raft, payload) = self.0.consensus(request).await?;
        let rpc = decode(&payload)?;
        let answer: Result<InstallSnapshotResponse<PeerId>, InstallSnapshotError> =
            match self.0.ballot.begin(raft.install_snapshot(rpc)).await {
                Ok(answer) => Ok(answer),
                Err(RaftError::APIError(error)) => Err(error),
                Err(RaftError::Fatal(error)) => return Err(ended(error)),
            };
        self.0.answer(&answer)
    }

    async fn poll(&self, request: Request<PeerRequest>) -> Result<Response<PeerResponse>, Status> {
        let (raft, payload) = self.0.consensus(request).await?;
        let theirs: Option<LogId> = decode(&payload)?;
        let timing = self.0.timing;
        let alone = raft.with_raft_state(move |state| hears_nobody(state, timing)).await.map_err(ended)?;
        let mine = raft.data_metrics().borrow().last_log;
        self.0.answer(&(alone && theirs >= mine && !self.0.ballot.is_withheld((self.0.clock)())))
    }

    async fn stand(&self, request: Request<PeerRequest>) -> Result<Response<PeerResponse>, Status> {
        let (raft, payload) = self.0.consensus(request).await?;
        let master: Vote = decode(&payload)?;
        // It has said itself that it has stopped: the promise to stand by it is void. If there is another master by
        // now nothing happens.
        let still = move |state: &State| *state.vote_ref() == master;
        let stood = stand(&raft, &self.0.ballot, still).await;
        self.0.answer(&stood)
    }
}

/// Stands for election at once, if that is right as things are. Nothing else is heard in between, or the promise that
/// is broken could be one that was given meanwhile.
pub(crate) async fn stand(
    raft: &Raft,
    ballot: &Ballot,
    is_right: impl FnOnce(&State) -> bool + Send + 'static,
) -> bool {
    let stands = async {
        let right = raft.with_raft_state(is_right).await;
        right.unwrap_or(false) && raft.trigger().elect().await.is_ok()
    };
    ballot.alone(stands).await
}

impl Core {
    /// Who speaks, and what it says.
    fn check(&self, request: Request<PeerRequest>) -> Result<(Introduction, Vec<u8>), Status> {
        let address = request.remote_addr();
        let PeerRequest { from, to, payload } = request.into_inner();
        let other = self.introducer.check(from).map_err(|stranger| {
            let whom = address.map_or_else(|| "?".to_owned(), |address| address.ip().to_string());
            self.contacts.trouble(&whom, &stranger);
            let code = if stranger == Stranger::Secret { Code::Unauthenticated } else { Code::FailedPrecondition };
            // In the words of whoever reads it: there "it" is this peer, which may not be trusted with more.
            let mut status = Status::new(code, format!("turned away: {}", told(&stranger)));
            if stranger == Stranger::Cluster {
                status.metadata_mut().insert(TURNED_AWAY, MetadataValue::from_static(OTHER_CLUSTER));
            }
            status
        })?;
        if to != 0 && to != self.introducer.peer() {
            return Err(Status::not_found("turned away: this peer has lost its directory, and has a new identity"));
        }
        self.contacts.heard(&other, (self.clock)());
        Ok((other, payload))
    }

    /// For messages of consensus. They are addressed to an identity that nobody else ever had, so whoever sends the
    /// first of them has counted this peer into its cluster.
    async fn consensus(&self, request: Request<PeerRequest>) -> Result<(Raft, Vec<u8>), Status> {
        if request.get_ref().to == 0 {
            return Err(Status::invalid_argument("a message of consensus needs an addressee"));
        }
        let (other, payload) = self.check(request)?;
        let cluster = cluster_of(&other).ok_or_else(|| Status::failed_precondition("turned away: of no cluster"))?;
        if self.introducer.cluster().is_none() {
            let introducer = Arc::clone(&self.introducer);
            let belongs = tokio::task::spawn_blocking(move || introducer.belong(cluster)).await;
            match belongs {
                Ok(Ok(())) => {}
                Ok(Err(error)) => {
                    self.failing.fail(&error);
                    return Err(Status::unavailable("its disk has failed"));
                }
                Err(_) => return Err(Status::unavailable("it is going down")),
            }
        }
        if self.introducer.cluster() != Some(cluster) {
            return Err(Status::failed_precondition("turned away: of another cluster"));
        }
        if self.failing.get().is_some() {
            return Err(Status::unavailable("its disk has failed"));
        }
        let raft = self.raft.get().cloned().ok_or_else(|| Status::unavailable("it has only just started"))?;
        Ok((raft, payload))
    }

    fn answer<A: Serialize>(&self, answer: &A) -> Result<Response<PeerResponse>, Status> {
        let from = Some(self.introducer.introduction());
        Ok(Response::new(PeerResponse { from, payload: codec::encode(answer), heard: None }))
    }

    /// Who is master, if this peer is or hears from one, and what `other` is to the quorum then.
    async fn heard(&self, other: &Introduction) -> Option<Heard> {
        let raft = self.raft.get()?;
        let (master, advertise) = self.master(raft).await?;
        Some(Heard { master, advertise, place: self.place_of(raft, other.peer, &other.name).into() })
    }

    async fn master(&self, raft: &Raft) -> Option<(String, String)> {
        let reigns = match &*self.mastership.borrow() {
            Mastership::Master(reign) => reign.holds((self.clock)()),
            Mastership::Follower { .. } | Mastership::Unknown => false,
        };
        if reigns {
            let me = self.introducer.introduction();
            return Some((me.name, me.advertise));
        }
        let timing = self.timing;
        let master =
            move |state: &State| hears_a_master(state, timing).then(|| state.vote_ref().leader_id().voted_for());
        let master = raft.with_raft_state(master).await.ok()??.filter(|master| *master != self.introducer.peer())?;
        self.contacts.get(master).map(|contact| (contact.name, contact.advertise))
    }

    /// What a peer is to the quorum, as far as this one knows.
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

fn told(stranger: &Stranger) -> String {
    match stranger {
        Stranger::Nobody => "who is it?".into(),
        Stranger::Format { theirs, ours } => format!("it speaks format {ours}, this peer format {theirs}"),
        Stranger::Secret => "its secret is another one".into(),
        Stranger::Timing { theirs, ours } => {
            format!("it stands by a master for {ours} ms, this peer for {theirs}: all peers need the same timing")
        }
        Stranger::Cluster => "it belongs to another cluster".into(),
        Stranger::Namesake(name) => format!("its name is {name:?} too: every peer needs one of its own"),
    }
}

fn decode<T: DeserializeOwned>(payload: &[u8]) -> Result<T, Status> {
    codec::decode(payload).map_err(|error| Status::invalid_argument(error.to_string()))
}

fn ended(error: impl std::fmt::Display) -> Status {
    Status::unavailable(format!("it takes no part any more: {error}"))
}
