//! The session service: streams of renewals.
//!
//! [`Stream`] decides what a message stands for. Here messages are read, checked like requests for capacity, and
//! answered: renewals in place where that is possible, all others by the rounds that answer a GetCapacity. A stream has
//! no task: it is polled by its connection, and dropped with it.

use std::{
    pin::Pin,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use futures_util::stream;
use leaseway_core::{
    engine::stream::{Message, Restart, Statement, Stream, StreamAnswer, Turn},
    policy::access::{AccessRequest, Action},
    resource::{Answer, Ask, Renewal, Request as Asked},
};
use leaseway_proto::session::{Grant, RenewRequest, RenewResponse, session_server::Session};
use tokio::sync::watch;
use tonic::{Request, Response, Status, Streaming};

use super::{
    admitted,
    capacity::{left_out, mastership, redirect_in, temporary},
    convert::{self, ForResource, Stated},
    problems::Problems,
};
use crate::{
    auth::Admitted,
    config::limits::Limits,
    node::{
        NodeHandle, RequestError, WeakResourceHandle,
        streams::hints::{Ended, Watch},
    },
    observe::metrics::{self, CallKind, Reason},
    runtime::coop::{ChunkPermit, pause},
};

/// Renewals between two yields: about a tenth of a millisecond.
const CHUNK: usize = 256;
/// The time for the first message to arrive.
const FIRST_MESSAGE: Duration = Duration::from_secs(10);

#[derive(Clone)]
pub(crate) struct SessionService {
    node: NodeHandle,
    stopped: watch::Receiver<bool>,
}

impl SessionService {
    /// Open streams end when `stopped` becomes true.
    pub(crate) fn new(node: NodeHandle, stopped: watch::Receiver<bool>) -> SessionService {
        SessionService { node, stopped }
    }
}

#[tonic::async_trait]
impl Session for SessionService {
    type RenewStream = Pin<Box<dyn futures_util::Stream<Item = Result<RenewResponse, Status>> + Send>>;

    async fn renew(&self, request: Request<Streaming<RenewRequest>>) -> Result<Response<Self::RenewStream>, Status> {
        let admitted = admitted(&request, self.node.authorizer());
        admitted.check_known(CallKind::Renew)?;
        let connection = RenewalConnection {
            node: self.node.clone(),
            stopped: self.stopped.clone(),
            admitted,
            requests: request.into_inner(),
            is_outdated: false,
            open: None,
            has_ended: false,
        };
        Ok(Response::new(Box::pin(stream::unfold(connection, RenewalConnection::next))))
    }
}

/// The resource of an entry.
struct Reached {
    id: Arc<str>,
    handle: Option<WeakResourceHandle>,
}

/// A stream after its first message.
struct OpenStream {
    entries: Stream<Reached>,
    /// Its position among the streams of all clients.
    watch: Watch,
    /// The entries that are counted.
    counted: usize,
    count: Arc<AtomicUsize>,
}

impl OpenStream {
    /// Counts the entries, if there may be so many.
    fn count(&mut self, limits: &Limits) -> Result<(), Status> {
        let more = self.entries.len() - self.counted;
        self.counted += more;
        if more > 0 && self.count.fetch_add(more, Ordering::Relaxed) + more > limits.clients {
            let most = limits.clients;
            return Err(Status::resource_exhausted(format!(
                "too many leases on streams of renewals (limit {most}): raise the server's --max-clients"
            )));
        }
        Ok(())
    }
}

impl Drop for OpenStream {
    fn drop(&mut self) {
        self.count.fetch_sub(self.counted, Ordering::Relaxed);
    }
}

/// The state of a stream between two messages.
struct RenewalConnection {
    node: NodeHandle,
    stopped: watch::Receiver<bool>,
    admitted: Admitted,
    requests: Streaming<RenewRequest>,
    /// The policy or the tokens have changed since the entries were admitted.
    is_outdated: bool,
    open: Option<OpenStream>,
    has_ended: bool,
}

impl RenewalConnection {
    async fn next(mut self) -> Option<(Result<RenewResponse, Status>, RenewalConnection)> {
        if self.has_ended {
            return None;
        }
        let answer = match self.message().await.transpose()? {
            Ok(message) => self.answer(message).await,
            Err(status) => Err(status),
        };
        let ends = |answer: &RenewResponse| answer.restart.is_some() || answer.mastership.is_some();
        self.has_ended = answer.as_ref().map_or(true, ends);
        if self.has_ended {
            // The connection may keep this state until its client reads the end.
            self.open = None;
        }
        Some((answer, self))
    }

    /// Waits for a message. `None`: the client has closed the stream.
    async fn message(&mut self) -> Result<Option<RenewRequest>, Status> {
        let is_first = self.open.is_none();
        loop {
            let ended = async {
                match &self.open {
                    Some(open) => open.watch.pending().await.err(),
                    None => std::future::pending().await,
                }
            };
            tokio::select! {
                biased;
                // An error means that the sender is gone, which also ends the server.
                _ = self.stopped.wait_for(|stop| *stop) => {
                    return Err(Status::unavailable("this server is shutting down"));
                }
                Some(Ended::Replaced) = ended => {
                    return Err(Status::aborted("replaced by another stream of the same client: if these are two clients, give each its own id"));
                }
                // The next message is answered with the master, or with a restart.
                message = self.requests.message() => return message,
                () = self.admitted.until_outdated(), if !self.is_outdated => self.is_outdated = true,
                () = tokio::time::sleep(FIRST_MESSAGE), if is_first => {
                    return Err(Status::deadline_exceeded("the first message has not arrived in time"));
                }
            }
        }
    }

    async fn answer(&mut self, message: RenewRequest) -> Result<RenewResponse, Status> {
        let sequence = message.sequence;
        let term = match self.node.master_lease() {
            Ok(master_lease) => master_lease.map_or(0, |master_lease| master_lease.term()),
            Err(why) => {
                let mastership = Some(mastership(&why));
                return Ok(RenewResponse { sequence, mastership, ..RenewResponse::default() });
            }
        };
        if self.is_outdated {
            return Ok(restart(sequence, "the access policy or the credentials have changed"));
        }
        if self.open.is_none() {
            if sequence != 1 {
                return Ok(restart(sequence, Restart::Sequence.reason()));
            }
            self.open(&message, term)?;
        }
        match self.decide(message, term).await {
            Ok(answer) => Ok(answer),
            Err(Refusal::Restart(why)) => Ok(restart(sequence, why.reason())),
            Err(Refusal::NotMaster(mastership)) => {
                Ok(RenewResponse { sequence, mastership: Some(mastership), ..RenewResponse::default() })
            }
            Err(Refusal::Failed(status)) => Err(status),
        }
    }

    fn open(&mut self, first: &RenewRequest, term: u64) -> Result<(), Status> {
        let client: Arc<str> = convert::id(first.client_id.clone(), &self.node.limits, || "client_id".into())?.into();
        // Else a stranger could end the stream of another client.
        let asking = AccessRequest { holder: Some(&client), ..AccessRequest::to(Action::Ask) };
        self.admitted.check(CallKind::Renew, &asking)?;
        let watch = self.node.open_stream(Arc::clone(&client), self.admitted.origin());
        let watch = watch.map_err(|why| Status::resource_exhausted(why.to_string()))?;
        let entries = Stream::new(client, first.is_gateway(), term);
        let count = Arc::clone(self.node.streamed_entries());
        self.open = Some(OpenStream { entries, watch, counted: 0, count });
        Ok(())
    }

    /// Answers a message of an open stream.
    async fn decide(&mut self, message: RenewRequest, term: u64) -> Result<RenewResponse, Refusal> {
        let RenewalConnection { node, admitted, open, .. } = self;
        let Some(open) = open else { return Err(Refusal::Restart(Restart::Sequence)) };
        let (client, from) = (Arc::clone(open.entries.client()), admitted.origin());
        let mut problems = Problems::default();
        let RenewRequest { sequence, entry, renew, .. } = message;
        let ranges = renew.iter().map(|range| range.first..range.first.saturating_add(range.count)).collect();
        let stated = convert::stated(entry, &client, open.entries.is_gateway(), &node.limits, &mut problems)?;
        let stated =
            Message { sequence, stated: statements(stated, &client, admitted, &mut problems)?, renewed: ranges };
        let reach = |stated: &ForStream| Reached { id: stated.resource.as_str().into(), handle: None };
        let (mut turn, stated) = open.entries.receive(term, stated, reach).map_err(Refusal::Restart)?;
        open.count(&node.limits)?;
        let mut asked = renew_all(&mut open.entries, &mut turn).await;
        for Statement { index, resource, .. } in stated {
            match resource.request {
                Some(request) => asked.push((index, (resource.resource, request))),
                None => open.entries.answered(&mut turn, index, None),
            }
        }
        let (indexes, requests): (Vec<u32>, Vec<ForResource>) = asked.into_iter().unzip();
        let answers = if requests.is_empty() { Vec::new() } else { node.submit_all(&requests, from).await };
        if let Some(mastership) = redirect_in(&answers) {
            return Err(Refusal::NotMaster(mastership));
        }
        let answered = indexes.into_iter().zip(requests).zip(answers);
        for (at, ((index, (resource, _)), answer)) in answered.enumerate() {
            if at > 0 && at.is_multiple_of(CHUNK) {
                pause().await;
            }
            let answer = granted(answer, &client, &resource, &mut problems);
            open.entries.answered(&mut turn, index, answer.as_ref());
            if let (Some(_), Some(reached)) = (&answer, open.entries.resource_mut(index)) {
                reached.handle = node.reach(&resource);
            }
        }
        problems.count(node.authorizer().audit().refusals());
        Ok(response(turn.finish(node.clock.now().unix), &mut open.entries, problems))
    }
}

/// Why a message is not answered.
enum Refusal {
    Restart(Restart),
    NotMaster(leaseway_proto::doorman::Mastership),
    Failed(Status),
}

impl<E: Into<Status>> From<E> for Refusal {
    fn from(error: E) -> Refusal {
        Refusal::Failed(error.into())
    }
}

/// A stated entry: its request, unless that is invalid or not allowed.
struct ForStream {
    resource: String,
    request: Option<Asked>,
}

/// The statements of a message. Those that are invalid, or that the caller has no permission for, have no request.
fn statements(
    stated: Vec<Stated>,
    client: &Arc<str>,
    admitted: &Admitted,
    problems: &mut Problems,
) -> Result<Vec<Statement<ForStream>>, Status> {
    let mut statements = Vec::with_capacity(stated.len());
    for Stated { index, resource, request } in stated {
        let is_allowed =
            |request: &Asked| admitted.check_remembered(CallKind::Renew, &AccessRequest::of(&resource, request));
        let request = match request.as_ref().map(is_allowed) {
            Some(Err(denied)) => {
                problems.note(Reason::Denied, client, &resource, denied.message());
                None
            }
            _ => request,
        };
        let ask = match &request {
            Some(Asked::Ask(ask) | Asked::Renew(ask)) => ask.clone(),
            _ => Ask::of_nothing(Arc::clone(client)),
        };
        statements.push(Statement { index, resource: ForStream { resource, request }, ask });
    }
    Ok(statements)
}

/// Renews all entries that the message renews, in chunks. Returns the requests that need a round.
async fn renew_all(entries: &mut Stream<Reached>, turn: &mut Turn) -> Vec<(u32, ForResource)> {
    let (mut permit, mut asked, mut renewed) = (None, Vec::new(), 0);
    loop {
        let in_place = |reached: &mut Reached, renewal: &Renewal<'_>| {
            let done = reached.handle.as_ref()?.renew(renewal);
            renewed += u64::from(done.is_some());
            done
        };
        let ask = |index, reached: &Reached, ask| asked.push((index, (reached.id.to_string(), Asked::Ask(ask))));
        let has_more = entries.renew(turn, CHUNK, in_place, ask);
        if !has_more {
            metrics::renewed_in_place(renewed);
            return asked;
        }
        permit = match permit.take() {
            Some(permit) => Some(ChunkPermit::next(permit).await),
            None => Some(ChunkPermit::acquire().await),
        };
    }
}

/// The answer with a lease. Records the problem of any other.
fn granted(
    answer: Result<Answer, RequestError>,
    client: &str,
    resource: &str,
    problems: &mut Problems,
) -> Option<Answer> {
    match answer {
        Ok(answer @ Answer::Granted(_)) => Some(answer),
        Ok(answer) => {
            if let Some((reason, message)) = left_out(&answer) {
                problems.note(reason, client, resource, message);
            }
            None
        }
        Err(why) => {
            // The client keeps its lease, and states the entry again.
            let _ = temporary(&why, client, resource, problems);
            None
        }
    }
}

fn response(answer: StreamAnswer, entries: &mut Stream<Reached>, problems: Problems) -> RenewResponse {
    let StreamAnswer { sequence, unix: unix_time, granted, left_out } = answer;
    let grant = granted.into_iter().map(|(index, lease)| {
        let id = entries.resource_mut(index).map(|reached| reached.id.to_string()).unwrap_or_default();
        Grant { index, response: convert::resource_response(id, &Answer::Granted(lease)) }
    });
    let (grant, problem) = (grant.collect(), problems.into_wire());
    RenewResponse { sequence, unix_time, grant, left_out, problem, ..RenewResponse::default() }
}

fn restart(sequence: u64, why: &str) -> RenewResponse {
    RenewResponse { sequence, restart: Some(why.to_owned()), ..RenewResponse::default() }
}
