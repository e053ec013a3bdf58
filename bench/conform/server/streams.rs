//! Streams of renewals: a script for the answers, and checks of the messages.

use std::{
    collections::BTreeSet,
    pin::Pin,
    sync::{Arc, Mutex, atomic::Ordering},
    time::{Instant, SystemTime, UNIX_EPOCH},
};

use leaseway_proto::{
    doorman::{Mastership, ResourceRequest},
    session::{self, RenewRequest, RenewResponse, session_server::Session},
};
use tokio::{
    sync::mpsc,
    time::{Duration, sleep},
};
use tokio_stream::{Stream, wrappers::ReceiverStream};
use tonic::{Code, Request, Response, Status, Streaming};

use super::{Grant, InFlight, ScriptedServer, Service, State, lock};

/// Changes the usual answer to a message.
type Alter = dyn Fn(&Message, RenewResponse) -> RenewResponse + Send + Sync;

/// How messages on streams are answered.
#[derive(Clone)]
pub(in crate::conform) enum Renewal {
    /// Grants this lease to all resources that are stated, and renews the others.
    Grant(Grant),
    /// The same after a pause.
    Late(Duration, Grant),
    /// Never answers.
    Silent,
    /// Refuses streams, and ends an open one at its next message.
    Fail(Code),
    /// Names another master.
    Redirect(String),
    /// Changes the answer of `Grant`.
    Altered(Grant, Arc<Alter>),
}

impl Renewal {
    pub(in crate::conform) fn altered(
        grant: Grant,
        alter: impl Fn(&Message, RenewResponse) -> RenewResponse + Send + Sync + 'static,
    ) -> Renewal {
        Renewal::Altered(grant, Arc::new(alter))
    }
}

/// A message on a stream.
#[derive(Debug, Clone)]
pub(in crate::conform) struct Message {
    pub(in crate::conform) at: Instant,
    /// The number of the stream at this server, from 1.
    pub(in crate::conform) stream: u64,
    pub(in crate::conform) request: RenewRequest,
    /// The resources that it renews by their indexes.
    pub(in crate::conform) renewed: BTreeSet<String>,
    /// The resources of this stream, by index.
    ids: Vec<String>,
}

impl Message {
    /// The entry that states this resource.
    pub(in crate::conform) fn stated(&self, resource: &str) -> Option<&ResourceRequest> {
        let entries = self.request.entry.iter().filter_map(|entry| entry.request.as_ref());
        entries.into_iter().find(|request| request.resource_id() == resource)
    }

    pub(in crate::conform) fn renews(&self, resource: &str) -> bool {
        self.renewed.contains(resource)
    }

    pub(in crate::conform) fn index(&self, resource: &str) -> Option<u32> {
        self.ids.iter().position(|id| id == resource).map(|index| index as u32)
    }

    /// Adds or replaces the lease that an answer grants to this resource.
    pub(in crate::conform) fn grant(&self, answer: &mut RenewResponse, resource: &str, grant: &Grant, token: u64) {
        let Some(index) = self.index(resource) else { return };
        answer.grant.retain(|other| other.index != index);
        answer.grant.push(session::Grant { index, response: Some(grant.response("", token)) });
    }
}

/// A stream that a client has opened.
struct Open {
    number: u64,
    answers: mpsc::Sender<Result<RenewResponse, Status>>,
}

/// The streams of a server.
#[derive(Default)]
pub(super) struct Streams {
    /// `None` if the server does not offer streams.
    script: Mutex<Option<Renewal>>,
    messages: Mutex<Vec<Message>>,
    open: Mutex<Vec<Open>>,
    /// When a client opened a stream, or tried to.
    attempts: Mutex<Vec<Instant>>,
    /// What a client did wrong, whatever the script.
    faults: Mutex<Vec<String>>,
}

impl Streams {
    /// Whether the server offers streams in its Discovery.
    pub(super) fn are_offered(&self) -> bool {
        lock(&self.script).is_some()
    }

    fn fault(&self, what: String) {
        lock(&self.faults).push(what);
    }
}

impl ScriptedServer {
    /// Offers streams of renewals, or changes how they are answered.
    pub(in crate::conform) fn renew(&self, script: Renewal) {
        *lock(&self.state.streams.script) = Some(script);
    }

    /// The messages from `since` on.
    pub(in crate::conform) fn messages_since(&self, since: Instant) -> Vec<Message> {
        lock(&self.state.streams.messages).iter().filter(|message| message.at >= since).cloned().collect()
    }

    /// The number of streams that a client has opened, or tried to, from `since` on.
    pub(in crate::conform) fn attempts_since(&self, since: Instant) -> usize {
        lock(&self.state.streams.attempts).iter().filter(|at| **at >= since).count()
    }

    /// The number of streams that the client has not closed.
    pub(in crate::conform) fn open_streams(&self) -> usize {
        lock(&self.state.streams.open).iter().filter(|open| !open.answers.is_closed()).count()
    }

    /// Ends all streams with this status.
    pub(in crate::conform) fn break_streams(&self, code: Code) {
        for open in lock(&self.state.streams.open).drain(..) {
            let _ = open.answers.try_send(Err(Status::new(code, "a scripted end")));
        }
    }

    /// Sends this on a stream, if it is open, although no message waits for it.
    pub(in crate::conform) fn push(&self, stream: u64, answer: RenewResponse) {
        if let Some(open) = lock(&self.state.streams.open).iter().find(|open| open.number == stream) {
            let _ = open.answers.try_send(Ok(answer));
        }
    }

    /// The first message that no script permits.
    pub(in crate::conform) fn check_streams(&self) -> Result<(), String> {
        lock(&self.state.streams.faults).first().cloned().map_or(Ok(()), Err)
    }
}

/// What a server knows of a stream.
#[derive(Default)]
struct Known {
    ids: Vec<String>,
    /// Indexes that may be renewed.
    renewable: BTreeSet<u32>,
    messages: u64,
}

impl Known {
    /// Checks a message. Returns the names of what it renews.
    fn receive(&mut self, request: &RenewRequest, fault: impl Fn(String)) -> BTreeSet<String> {
        self.messages += 1;
        if request.sequence != self.messages {
            fault(format!("message {} has number {}", self.messages, request.sequence));
        }
        if request.sequence == 1 && request.client_id() != "client-1" {
            fault(format!("the first message has client_id `{}`", request.client_id()));
        }
        let mut renewed = BTreeSet::new();
        for index in request.renew.iter().flat_map(|range| range.first..range.first.saturating_add(range.count)) {
            match self.ids.get(index as usize) {
                Some(id) if self.renewable.contains(&index) => _ = renewed.insert(id.clone()),
                Some(id) => fault(format!("`{id}` is renewed, and has to be stated")),
                None => fault(format!("index {index} is renewed, and was never stated")),
            }
        }
        for entry in &request.entry {
            let id = entry.request.as_ref().map_or("", |request| request.resource_id());
            if renewed.contains(id) {
                fault(format!("`{id}` is stated and renewed by one message"));
            }
            let (index, next) = (entry.index as usize, self.ids.len());
            match self.ids.get_mut(index) {
                Some(known) => *known = id.to_owned(),
                None if index == next => self.ids.push(id.to_owned()),
                None => fault(format!("index {index} is not the next one, {next}")),
            }
        }
        renewed
    }

    fn answered(&mut self, answer: &RenewResponse) {
        self.renewable.extend(answer.grant.iter().map(|grant| grant.index));
        answer.left_out.iter().for_each(|index| _ = self.renewable.remove(index));
    }
}

fn usual(request: &RenewRequest, grant: &Grant, token: u64) -> RenewResponse {
    let unix_time = SystemTime::now().duration_since(UNIX_EPOCH).expect("after 1970").as_secs() as i64;
    let grants = request
        .entry
        .iter()
        .map(|entry| session::Grant { index: entry.index, response: Some(grant.response("", token)) });
    RenewResponse { sequence: request.sequence, unix_time, grant: grants.collect(), ..RenewResponse::default() }
}

/// Answers the messages of a stream until it ends.
async fn serve(
    state: Arc<State>,
    number: u64,
    mut requests: Streaming<RenewRequest>,
    answers: mpsc::Sender<Result<RenewResponse, Status>>,
) {
    let mut known = Known::default();
    while let Ok(Some(request)) = requests.message().await {
        let in_flight = InFlight::of(&state);
        let renewed = known.receive(&request, |what| state.streams.fault(what));
        let message = Message { at: Instant::now(), stream: number, request, renewed, ids: known.ids.clone() };
        lock(&state.streams.messages).push(message.clone());
        let script = lock(&state.streams.script).clone();
        let usually = |grant: &Grant| usual(&message.request, grant, state.token.fetch_add(1, Ordering::SeqCst) + 1);
        let answer = match script {
            Some(Renewal::Grant(grant)) => Ok(usually(&grant)),
            Some(Renewal::Late(pause, grant)) => {
                let answer = usually(&grant);
                sleep(pause).await;
                Ok(answer)
            }
            Some(Renewal::Altered(grant, alter)) => Ok(alter(&message, usually(&grant))),
            Some(Renewal::Redirect(master)) => Ok(RenewResponse {
                sequence: message.request.sequence,
                mastership: Some(Mastership { master_address: Some(master) }),
                ..RenewResponse::default()
            }),
            Some(Renewal::Fail(code)) => Err(Status::new(code, "a scripted failure")),
            Some(Renewal::Silent) | None => {
                if let Ok(Some(_)) = requests.message().await {
                    state.streams.fault("a message was sent before the one before was answered".to_owned());
                }
                return;
            }
        };
        drop(in_flight);
        if let Ok(answer) = &answer {
            known.answered(answer);
        }
        let ends = answer.is_err();
        if answers.send(answer).await.is_err() || ends {
            return;
        }
    }
}

#[tonic::async_trait]
impl Session for Service {
    type RenewStream = Pin<Box<dyn Stream<Item = Result<RenewResponse, Status>> + Send>>;

    async fn renew(&self, request: Request<Streaming<RenewRequest>>) -> Result<Response<Self::RenewStream>, Status> {
        let streams = &self.0.streams;
        let number = {
            let mut attempts = lock(&streams.attempts);
            attempts.push(Instant::now());
            attempts.len() as u64
        };
        match &*lock(&streams.script) {
            Some(Renewal::Fail(code)) => return Err(Status::new(*code, "a scripted failure")),
            Some(_) => {}
            None => streams.fault("a stream was opened, and none was offered".to_owned()),
        }
        let (answers, receiver) = mpsc::channel(16);
        lock(&streams.open).push(Open { number, answers: answers.clone() });
        let state = Arc::clone(&self.0);
        tokio::spawn(async move {
            serve(Arc::clone(&state), number, request.into_inner(), answers).await;
            lock(&state.streams.open).retain(|open| open.number != number);
        });
        Ok(Response::new(Box::pin(ReceiverStream::new(receiver))))
    }
}
