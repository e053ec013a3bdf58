//! Handles time, the network and the resources for the uplink actor.

use std::{collections::HashMap, sync::Arc, time::Duration};

use actix::Addr;
use futures_util::future::join_all;
use leaseway_client::{
    session::Body,
    transport::{
        Asker, Call, Channel, Driver, Ended, Hints, Listener, Outcome, Reply, Step, Transport, explain, wire as shared,
    },
};
use leaseway_core::{resource::supply::DemandSummary, types::Millis};
use leaseway_proto::doorman::{GetServerCapacityRequest, ReleaseCapacityRequest, capacity_client::CapacityClient};
use leaseway_uplink::{Aggregate, Granted, NewSupply, Notice, ParentReply, UplinkEffects, UplinkEngine, UplinkInput};
use tokio::time::Instant;
use tonic::Status;

use super::{
    Run, UplinkActor, UplinkContext,
    settings::Complaint,
    wire::{self, ParentAnswer},
};
use crate::{
    node::resource_actor::{Summarize, Supplied},
    observe::{
        logging::worth_logging,
        metrics::{self, ParentOutcome},
    },
};

/// Timeout for the summary of a resource. A slower resource is left out of the request.
const SUMMARY_TIMEOUT: Duration = Duration::from_millis(100);

pub(super) struct ParentClient {
    context: UplinkContext,
    actor: Addr<UplinkActor>,
    /// Inputs for the next run, other than notices.
    happened: Vec<UplinkInput>,
    /// Resources to ask the parent for: those older than the uplink, and those that did not accept their supply.
    asking: Vec<Arc<str>>,
    /// The last complaint about the settings of each resource, because each complaint is logged once.
    complaints: HashMap<Arc<str>, String>,
    /// Failures since the parent last answered.
    failures: u64,
}

/// Creates an uplink without leases. Its driver ends when the actor ends.
pub(super) fn driver(context: UplinkContext) -> Driver<ParentClient> {
    // Earlier notices are not needed, because `asking` starts with all active resources.
    drop(context.notices.take());
    let asking = context.directory.ids_after("");
    let since = context.clock.at();
    context.status.wipe();
    context.status.write(|report| report.since = since);
    let hints = Hints::new(Listener::Node(Arc::clone(&context.parent.node)));
    let settings = UplinkEngine::settings(context.parent.addresses.clone(), context.seed);
    let mut transport = Transport::new();
    if let Some(tls) = context.parent.tls.clone() {
        transport = transport.with_tls(tls);
    }
    if let Some(token) = context.parent.token.clone() {
        transport = transport.with_token(token);
    }
    let asker = ParentClient {
        actor: UplinkActor::start(UplinkEngine::new(settings)),
        context,
        happened: Vec::new(),
        asking,
        complaints: HashMap::new(),
        failures: 0,
    };
    Driver::new(asker, transport, Some(hints))
}

impl Asker for ParentClient {
    type Demand = Aggregate;
    type Answer = ParentAnswer;

    async fn step(&mut self) -> Option<Step<Aggregate>> {
        let inputs = self.inputs();
        let mut effects = self.run(inputs).await?;
        self.deliver(std::mem::take(&mut effects.supplies));
        if let Some(due) = effects.summarize {
            let summary = self.summarize(due).await;
            effects = self.run(vec![UplinkInput::Summaries(summary)]).await?;
        }
        let UplinkEffects { send, in_flight, wake, parent, failures, resources, .. } = effects;
        self.context.status.write(|report| {
            (report.master, report.failures, report.resources) = (parent, failures, resources);
        });
        Some(Step { outgoing: send, in_flight, wake: wake.map(|at| self.instant(at)) })
    }

    fn call(&mut self, channel: Result<Channel, Status>, body: Body<Aggregate>) -> Call<ParentAnswer> {
        let (node, instance) = (&self.context.parent.node, self.context.instance);
        match body {
            Body::Ask(asks) => {
                let sent = Duration::from_millis(self.context.clock.unix_ms());
                Box::pin(ask(channel, wire::get_server_capacity(node, instance, &asks), sent))
            }
            // No parent offers streams to nodes.
            Body::Stream(_) => Box::pin(std::future::ready(Err(Status::unimplemented("streams are for clients")))),
            Body::Release(releases) => Box::pin(release(channel, wire::release_capacity(node, instance, releases))),
        }
    }

    fn ended(&mut self, ended: Ended<'_, ParentAnswer>) {
        let Ended { number, server, took, outcome, .. } = ended;
        let (asked, reply) = match outcome {
            Outcome::Replied(Reply::Master(parsed)) => {
                (ParentOutcome::Answered, Some(ParentReply::Granted(self.answered(server, parsed))))
            }
            Outcome::Replied(Reply::Redirect(master)) => {
                tracing::debug!(%server, ?master, "the parent redirects to another master");
                if master.is_none() {
                    self.failed(format!("{server}: not the master, and knows no master"));
                }
                (ParentOutcome::Redirected, Some(ParentReply::Redirected(master)))
            }
            Outcome::Failed(status) => {
                self.failed(explain(server, &status));
                (ParentOutcome::Failed, Some(ParentReply::Failed))
            }
            Outcome::Late => {
                self.failed(format!("{server}: no answer in time"));
                (ParentOutcome::Late, None)
            }
        };
        metrics::parent_asked(asked, took);
        self.happened.extend(reply.map(|reply| UplinkInput::RequestEnded { number, reply }));
    }

    fn hinted(&mut self, resources: Option<Vec<String>>) {
        self.happened.push(UplinkInput::Hinted(resources));
    }

    async fn changed(&mut self) {
        self.context.notices.posted().await;
    }
}

impl ParentClient {
    /// The inputs for a run. Notices come after `asking`, because a resource may have retired in the meantime.
    fn inputs(&mut self) -> Vec<UplinkInput> {
        let notices = self.context.notices.take();
        for notice in &notices {
            if let Notice::Retired(id) = notice {
                self.complaints.remove(id);
            }
        }
        let asking = self.asking.drain(..).map(Notice::AskSoon);
        let mut inputs: Vec<_> = asking.chain(notices).map(UplinkInput::Notice).collect();
        inputs.append(&mut self.happened);
        inputs
    }

    /// Runs the actor. `None` if it has panicked.
    async fn run(&self, inputs: Vec<UplinkInput>) -> Option<UplinkEffects> {
        self.actor.send(Run { now: self.context.clock.at(), inputs }).await.ok()
    }

    /// The instant of a wake-up, at least one millisecond from now, so that steps without effect do not spin.
    fn instant(&self, at: Millis) -> Instant {
        Instant::now() + Duration::from_millis(at.since(self.context.clock.at()).0.max(1))
    }

    /// Delivers supplies. A supply that a resource does not accept has no effect: the next summary of the resource
    /// names the previous one, and the parent is asked again.
    fn deliver(&mut self, supplies: Vec<NewSupply>) {
        for NewSupply { id, supply, settings } in supplies {
            metrics::supplied();
            let resource = self.context.directory.get(&id);
            if resource.and_then(|resource| resource.send(Supplied { supply, settings }).ok()).is_none() {
                self.asking.push(id);
            }
        }
    }

    /// The summaries of the resources that answer in time. After a loss of mastership none answers, because another
    /// peer may then ask in this node's name.
    async fn summarize(&self, due: Vec<Arc<str>>) -> Vec<(Arc<str>, DemandSummary)> {
        let ask = |id: Arc<str>| async move {
            let summary = self.context.directory.get(&id)?.ask(Summarize).ok()?;
            let summary = tokio::time::timeout(SUMMARY_TIMEOUT, summary).await.ok()?.ok()??;
            Some((id, summary))
        };
        join_all(due.into_iter().map(ask)).await.into_iter().flatten().collect()
    }

    fn answered(&mut self, server: &Arc<str>, parsed: ParentAnswer) -> Vec<Granted> {
        self.failures = 0;
        let now = self.context.clock.at();
        let before = self.context.status.read().and_then(|report| report.answered);
        if before.is_none() {
            tracing::info!(%server, node = %self.context.parent.node, "connected to the parent");
        }
        self.context.status.write(|report| (report.answered, report.page) = (Some(now), parsed.page));
        if !parsed.malformed.is_empty() {
            self.failed(format!("{server}: malformed answer for {}", parsed.malformed.join(", ")));
        }
        if let Some(taken) = parsed.name_taken {
            self.name_taken(format!("{server}: {taken}"));
        }
        let take = |(granted, complaint): (Granted, Complaint)| {
            self.complain(&granted.given.id, complaint);
            self.context.status.note_settings(&granted.settings);
            granted
        };
        parsed.granted.into_iter().map(take).collect()
    }

    /// Another node has this node's name, so the parent refuses some resources. Logged once.
    fn name_taken(&mut self, error: String) {
        if self.context.status.read().and_then(|report| report.last_error).as_ref() != Some(&error) {
            tracing::warn!(parent = %error, "another node uses this node's name, so the parent refuses some resources: give each node its own --node");
            self.context.status.write(|report| report.last_error = Some(error));
        }
    }

    /// Logs each complaint once.
    fn complain(&mut self, id: &Arc<str>, Complaint { impossible, text: complaint }: Complaint) {
        if complaint.is_empty() {
            self.complaints.remove(id);
            return;
        }
        if self.complaints.get(id) == Some(&complaint) {
            return;
        }
        if impossible {
            metrics::parent_misunderstood();
            tracing::error!(
                resource = %id, %complaint,
                "cannot apply the parent's settings, so each holder is granted its wants, up to this node's lease: upgrade \
                 this node if its parent is newer"
            );
        } else {
            tracing::warn!(resource = %id, %complaint, "ignoring invalid or unknown settings from the parent");
        }
        self.complaints.insert(Arc::clone(id), complaint);
    }

    fn failed(&mut self, error: String) {
        let before = self.failures;
        self.failures += 1;
        if worth_logging(before, self.failures) {
            tracing::warn!(parent = %error, "request to the parent failed");
        }
        self.context.status.write(|report| report.last_error = Some(error));
    }
}

async fn ask(
    channel: Result<Channel, Status>,
    request: GetServerCapacityRequest,
    sent: Duration,
) -> Result<Reply<ParentAnswer>, Status> {
    let mut answer = CapacityClient::new(channel?).get_server_capacity(request).await?.into_inner();
    let mastership = answer.mastership.take();
    let answered = answer.response.len();
    let page = answer.page.take();
    shared::reply(mastership, &answer.problem, answered, || ParentAnswer {
        page,
        ..wire::parsed(answer.response, &answer.problem, sent)
    })
}

async fn release(
    channel: Result<Channel, Status>,
    request: ReleaseCapacityRequest,
) -> Result<Reply<ParentAnswer>, Status> {
    let answer = CapacityClient::new(channel?).release_capacity(request).await?.into_inner();
    Ok(shared::released(answer, ParentAnswer::default()))
}
