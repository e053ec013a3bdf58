//! Time and the network of an uplink: sends what the actor says, when it says so, and tells it what comes back.

use std::{
    collections::HashMap,
    future::Future,
    pin::Pin,
    sync::Arc,
    time::{Duration, Instant},
};

use actix::Addr;
use futures_util::future::join_all;
use leaseway_client::{
    Connection, Transport,
    push::{Hints, Listener},
    session::{Body, Outgoing, Pace, Settings as SessionSettings},
    uplink::{Granted, Uplink},
    wire as shared,
};
use leaseway_core::{Condensed, Millis, Settings, Supply};
use leaseway_proto::doorman::{GetServerCapacityRequest, ReleaseCapacityRequest, capacity_client::CapacityClient};
use tokio::sync::oneshot;
use tonic::Status;

use super::{
    Surroundings,
    actor::{Landed, Send, Standing, Turn, Turned, UplinkActor},
    settings::Instructed,
    wire::{self, Parsed},
};
use crate::{
    actors::{notices::Notice, resource::Command},
    logging::worth_logging,
    metrics::{self, Asked},
};

/// A resource that cannot say by then what its holders want is asked about with a later request.
const CONDENSING: Duration = Duration::from_millis(100);
/// As the servers have it.
const RESOURCES_PER_REQUEST: usize = 1000;

/// A node has no time to lose: those below it live by its leases.
fn pace() -> Pace {
    // What is due within a second is asked for together, so that resources of one refresh interval stay together.
    Pace { backoff_max: Millis::from_secs(5), ahead: Millis::from_secs(1), ..Pace::default() }
}

pub(super) struct Driver {
    around: Surroundings,
    actor: Addr<UplinkActor>,
    transport: Transport,
    hints: Hints,
    /// To whom the last request went.
    connection: Option<Arc<Connection>>,
    under_way: Option<UnderWay>,
    /// What has happened since the last turn.
    turn: Turn,
    /// How the resources of the answer that has just landed are run.
    instructions: HashMap<Arc<str>, Settings>,
    /// What was last said to be wrong with a resource: each thing is told once.
    complaints: HashMap<Arc<str>, String>,
}

struct UnderWay {
    number: u64,
    server: Arc<str>,
    sent: Instant,
    answer: Pin<Box<dyn Future<Output = Result<Answer, Status>>>>,
}

enum Answer {
    Granted(Parsed),
    Released,
    Elsewhere(Option<String>),
}

/// The actor is no more: it has panicked.
struct Gone;

impl Driver {
    pub(super) fn new(around: Surroundings) -> Driver {
        let settings = SessionSettings {
            endpoints: around.parent.addresses.clone(),
            pace: pace(),
            resources_per_request: RESOURCES_PER_REQUEST,
            seed: around.seed,
        };
        // What was posted before says nothing that the directory does not.
        drop(around.notices.take());
        let living = around.directory.ids_after("").into_iter().map(Notice::Asks).collect();
        let hints = Hints::new(Listener::Node(Arc::clone(&around.parent.node)));
        let since = around.clock.at();
        around.board.wipe();
        around.board.write(|report| report.since = since);
        Driver {
            actor: UplinkActor::start(Uplink::new(settings)),
            around,
            transport: Transport::new(),
            hints,
            connection: None,
            under_way: None,
            turn: Turn { notices: living, ..Turn::default() },
            instructions: HashMap::new(),
            complaints: HashMap::new(),
        }
    }

    /// Goes on until the actor is no more.
    pub(super) async fn run(mut self) {
        while let Ok(standing) = self.take_turn().await {
            self.wait(standing.wake).await;
        }
    }

    async fn take_turn(&mut self) -> Result<Standing, Gone> {
        let mut turn = std::mem::take(&mut self.turn);
        turn.now = self.around.clock.at();
        turn.notices.extend(self.around.notices.take());
        for notice in &turn.notices {
            if let Notice::Retired(id) = notice {
                self.complaints.remove(id);
            }
        }
        let Turned { supplies, due, mut standing } = self.actor.send(turn).await.map_err(|_| Gone)?;
        self.hand_out(supplies);
        if standing.under_way != self.under_way.as_ref().map(|under_way| under_way.number) {
            self.give_up();
        }
        if let Some(due) = due {
            let condensed = self.condense(due).await;
            let sent = self.actor.send(Send { now: self.around.clock.at(), condensed }).await;
            let (outgoing, after) = sent.map_err(|_| Gone)?;
            standing = after;
            if let Some(outgoing) = outgoing {
                self.under_way = Some(self.send(outgoing));
            }
        }
        self.around.board.write(|report| {
            report.master = Arc::clone(&standing.target);
            report.failures = standing.failures;
            report.resources = standing.resources;
        });
        Ok(standing)
    }

    /// Until something has happened that the next turn is about.
    async fn wait(&mut self, wake: Option<Millis>) {
        let now = self.around.clock.at();
        let wake = async {
            match wake {
                // A turn that changes nothing must not follow itself at once.
                Some(at) => tokio::time::sleep(Duration::from_millis(at.since(now).0.max(1))).await,
                None => std::future::pending().await,
            }
        };
        let answer = async {
            match &mut self.under_way {
                Some(under_way) => under_way.answer.as_mut().await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            answer = answer => self.landed(answer),
            () = wake => {}
            () = self.around.notices.posted() => {}
            hint = self.hints.next() => match hint {
                Some(resources) => self.turn.hinted = resources,
                None => self.turn.everything_hinted = true,
            },
        }
    }

    /// A supply that a resource cannot take is as if it had never come: what the resource says of itself next names the
    /// one before.
    fn hand_out(&mut self, supplies: Vec<(Arc<str>, Supply)>) {
        for (id, supply) in supplies {
            let Some(settings) = self.instructions.remove(&id) else { continue };
            metrics::supplied();
            let given = self.around.directory.get(&id);
            let given =
                given.and_then(|resource| resource.send(Command::Supply { supply, settings: Box::new(settings) }).ok());
            if given.is_none() {
                self.turn.notices.push(Notice::Asks(id));
            }
        }
        self.instructions.clear();
    }

    /// What those that are due say of themselves; those that say nothing in time are left out. Once the reign is over
    /// none says anything: somebody else may ask in this node's name by then.
    async fn condense(&self, due: Vec<Arc<str>>) -> Vec<(Arc<str>, Condensed)> {
        let ask = |id: Arc<str>| async move {
            let (reply, condensed) = oneshot::channel();
            self.around.directory.get(&id)?.send(Command::Condense { reply }).ok()?;
            let condensed = tokio::time::timeout(CONDENSING, condensed).await.ok()?.ok()?;
            Some((id, condensed))
        };
        join_all(due.into_iter().map(ask)).await.into_iter().flatten().collect()
    }

    fn send(&mut self, outgoing: Outgoing<Condensed>) -> UnderWay {
        let (number, server) = (outgoing.number, outgoing.target);
        let connection = self.connect(&server);
        let node = &self.around.parent.node;
        let answer: Pin<Box<dyn Future<Output = _>>> = match outgoing.body {
            Body::Ask(asks) => {
                let sent = Duration::from_millis(self.around.clock.unix_ms());
                Box::pin(ask(connection, wire::get_server_capacity(node, &asks), sent))
            }
            Body::Release(releases) => Box::pin(release(connection, wire::release_capacity(node, releases))),
        };
        UnderWay { number, server, sent: Instant::now(), answer }
    }

    fn connect(&mut self, server: &Arc<str>) -> Connected {
        if let Some(connection) = self.connection.as_ref().filter(|connection| connection.address == *server) {
            return Ok(Arc::clone(connection));
        }
        let connection =
            self.transport.connection(server).map_err(|error| Status::invalid_argument(error.to_string()))?;
        self.connection = Some(Arc::clone(&connection));
        Ok(connection)
    }

    /// The session waits no longer for the answer.
    fn give_up(&mut self) {
        let Some(late) = self.under_way.take() else { return };
        metrics::parent_asked(Asked::Late, late.sent.elapsed());
        if let Some(connection) = self.connection.take() {
            self.transport.distrust(&connection);
            self.hints.stop();
        }
        self.failed(format!("{}: no answer in time", late.server));
    }

    fn landed(&mut self, answer: Result<Answer, Status>) {
        let Some(UnderWay { number, server, sent, .. }) = self.under_way.take() else { return };
        let (outcome, landed) = match answer {
            Ok(Answer::Granted(parsed)) => (Asked::Answered, Landed::Granted(self.answered(&server, parsed))),
            Ok(Answer::Released) => (Asked::Answered, Landed::Granted(Vec::new())),
            Ok(Answer::Elsewhere(master)) => {
                tracing::debug!(%server, ?master, "the parent's master is another");
                if master.is_none() {
                    self.failed(format!("{server}: is not the master and knows none"));
                }
                (Asked::Redirected, Landed::Elsewhere(master))
            }
            Err(status) => {
                self.failed(format!("{server}: {} ({:?})", status.message(), status.code()));
                (Asked::Failed, Landed::Failed)
            }
        };
        metrics::parent_asked(outcome, sent.elapsed());
        self.turn.landed = Some((number, landed));
    }

    fn answered(&mut self, server: &Arc<str>, parsed: Parsed) -> Vec<Granted> {
        if let Some(connection) = &self.connection {
            self.hints.follow(connection);
        }
        let now = self.around.clock.at();
        let before = self.around.board.read().and_then(|report| report.answered);
        if before.is_none() {
            tracing::info!(%server, node = %self.around.parent.node, "the parent has answered");
        }
        self.around.board.write(|report| report.answered = Some(now));
        if !parsed.malformed.is_empty() {
            self.failed(format!("{server}: answered nonsense for {}", parsed.malformed.join(", ")));
        }
        let take = |(granted, instructed): (Granted, Instructed)| {
            let id = Arc::clone(&granted.given.id);
            self.complain(&id, instructed.impossible, instructed.complaint);
            self.around.board.lease_of(&instructed.settings);
            self.instructions.insert(id, instructed.settings);
            granted
        };
        parsed.granted.into_iter().map(take).collect()
    }

    /// Once for each thing that is wrong.
    fn complain(&mut self, id: &Arc<str>, impossible: bool, complaint: String) {
        if complaint.is_empty() {
            self.complaints.remove(id);
            return;
        }
        if self.complaints.get(id) == Some(&complaint) {
            return;
        }
        if impossible {
            metrics::parent_misunderstood();
            tracing::error!(resource = %id, %complaint, "cannot be run as the parent says: everybody gets what they want, within this node's lease");
        } else {
            tracing::warn!(resource = %id, %complaint, "what the parent says is not all understood here");
        }
        self.complaints.insert(Arc::clone(id), complaint);
    }

    fn failed(&self, error: String) {
        let failures = self.around.board.read().map_or(0, |report| u64::from(report.failures));
        if worth_logging(failures, failures + 1) {
            tracing::warn!(parent = %error, "the parent could not be asked");
        }
        self.around.board.write(|report| report.last_error = Some(error));
    }
}

type Connected = Result<Arc<Connection>, Status>;

async fn ask(connection: Connected, request: GetServerCapacityRequest, sent: Duration) -> Result<Answer, Status> {
    let mut client = CapacityClient::new(connection?.channel.clone());
    let response = client.get_server_capacity(request).await?.into_inner();
    if let Some(refusal) = shared::refusal(&response.problem, response.response.len()) {
        return Err(refusal);
    }
    let granted = || Answer::Granted(wire::parsed(response.response, sent));
    Ok(shared::elsewhere(response.mastership).map_or_else(granted, Answer::Elsewhere))
}

async fn release(connection: Connected, request: ReleaseCapacityRequest) -> Result<Answer, Status> {
    let response = CapacityClient::new(connection?.channel.clone()).release_capacity(request).await?.into_inner();
    Ok(shared::elsewhere(response.mastership).map_or(Answer::Released, Answer::Elsewhere))
}
