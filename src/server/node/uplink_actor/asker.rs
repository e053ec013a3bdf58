//! Time, the network and the resources of an uplink: carries out what its actor says, and tells it what has happened.

use std::{collections::HashMap, sync::Arc, time::Duration};

use actix::Addr;
use futures_util::future::join_all;
use leaseway_client::{
    session::Body,
    transport::{
        Asker, Call, Channel, Driver, Ended, Hints, Listener, Outcome, Reply, Step, Transport, explain, wire as shared,
    },
};
use leaseway_core::{DemandSummary, Millis};
use leaseway_proto::doorman::{GetServerCapacityRequest, ReleaseCapacityRequest, capacity_client::CapacityClient};
use leaseway_uplink::{Aggregate, Granted, Lent, Notice, ParentReply, UplinkEffects, UplinkEngine, UplinkInput};
use tokio::{sync::oneshot, time::Instant};
use tonic::Status;

use super::{
    UplinkContext,
    actor::{Run, UplinkActor},
    settings::Complaint,
    wire::{self, ParentAnswer},
};
use crate::{
    node::resource_actor::ResourceMessage,
    observe::{
        logging::worth_logging,
        metrics::{self, ParentOutcome},
    },
};

/// A resource that cannot say by then what its holders want is asked about with a later request.
const CONDENSING: Duration = Duration::from_millis(100);

pub(super) struct UplinkAsker {
    context: UplinkContext,
    actor: Addr<UplinkActor>,
    /// What has happened since the last run, other than notices.
    happened: Vec<UplinkInput>,
    /// Resources to be asked for: those that lived before the uplink, or could not be given what was lent to them.
    asking: Vec<Arc<str>>,
    /// What was last said to be wrong with a resource: each thing is told once.
    complaints: HashMap<Arc<str>, String>,
    /// Failures since the parent last answered.
    failures: u64,
}

/// An uplink with nothing behind it yet, and the task that drives it: it ends when its actor is no more.
pub(super) fn driver(context: UplinkContext) -> Driver<UplinkAsker> {
    // What was posted before says nothing that the directory does not.
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
    let asker = UplinkAsker {
        actor: UplinkActor::start(UplinkEngine::new(settings)),
        context,
        happened: Vec::new(),
        asking,
        complaints: HashMap::new(),
        failures: 0,
    };
    Driver::new(asker, transport, Some(hints))
}

impl Asker for UplinkAsker {
    type Demand = Aggregate;
    type Answer = ParentAnswer;

    async fn step(&mut self) -> Option<Step<Aggregate>> {
        let inputs = self.inputs();
        let mut effects = self.run(inputs).await?;
        self.hand_out(std::mem::take(&mut effects.lent));
        if let Some(due) = effects.summarize {
            let summary = self.summarize(due).await;
            effects = self.run(vec![UplinkInput::Summaries(summary)]).await?;
        }
        let UplinkEffects { send, under_way, wake, parent, failures, resources, .. } = effects;
        self.context.status.write(|report| {
            (report.master, report.failures, report.resources) = (parent, failures, resources);
        });
        Some(Step { outgoing: send, in_flight: under_way, wake: wake.map(|at| self.instant(at)) })
    }

    fn call(&mut self, channel: Result<Channel, Status>, body: Body<Aggregate>) -> Call<ParentAnswer> {
        let (node, instance) = (&self.context.parent.node, self.context.instance);
        match body {
            Body::Ask(asks) => {
                let sent = Duration::from_millis(self.context.clock.unix_ms());
                Box::pin(ask(channel, wire::get_server_capacity(node, instance, &asks), sent))
            }
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
                tracing::debug!(%server, ?master, "the parent's master is another");
                if master.is_none() {
                    self.failed(format!("{server}: is not the master and knows none"));
                }
                (ParentOutcome::Redirected, Some(ParentReply::Elsewhere(master)))
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
        self.happened.extend(reply.map(|reply| UplinkInput::Ended { number, reply }));
    }

    fn hinted(&mut self, resources: Option<Vec<String>>) {
        self.happened.push(UplinkInput::Hinted(resources));
    }

    async fn changed(&mut self) {
        self.context.notices.posted().await;
    }
}

impl UplinkAsker {
    /// What has happened since the last run. A resource may have retired meanwhile, so notices come after `asking`.
    fn inputs(&mut self) -> Vec<UplinkInput> {
        let notices = self.context.notices.take();
        for notice in &notices {
            if let Notice::Retired(id) = notice {
                self.complaints.remove(id);
            }
        }
        let asking = self.asking.drain(..).map(Notice::Asks);
        let mut inputs: Vec<_> = asking.chain(notices).map(UplinkInput::Notice).collect();
        inputs.append(&mut self.happened);
        inputs
    }

    /// `None`: the actor is no more, it has panicked.
    async fn run(&self, inputs: Vec<UplinkInput>) -> Option<UplinkEffects> {
        self.actor.send(Run { now: self.context.clock.at(), inputs }).await.ok()
    }

    /// A step that changes nothing must not be followed by another at once.
    fn instant(&self, at: Millis) -> Instant {
        Instant::now() + Duration::from_millis(at.since(self.context.clock.at()).0.max(1))
    }

    /// A supply that a resource cannot take is as if it had never come: what the resource says of itself next names the
    /// one before.
    fn hand_out(&mut self, lent: Vec<Lent>) {
        for Lent { id, supply, settings } in lent {
            metrics::supplied();
            let resource = self.context.directory.get(&id);
            let message = ResourceMessage::Supply { supply, settings: Box::new(settings) };
            if resource.and_then(|resource| resource.send(message).ok()).is_none() {
                self.asking.push(id);
            }
        }
    }

    /// What those that are due say of themselves; those that say nothing in time are left out. Once the reign is over
    /// none says anything: another peer may ask in this node's name by then.
    async fn summarize(&self, due: Vec<Arc<str>>) -> Vec<(Arc<str>, DemandSummary)> {
        let ask = |id: Arc<str>| async move {
            let (reply, summary) = oneshot::channel();
            self.context.directory.get(&id)?.send(ResourceMessage::Condense { reply }).ok()?;
            let summary = tokio::time::timeout(CONDENSING, summary).await.ok()?.ok()?;
            Some((id, summary))
        };
        join_all(due.into_iter().map(ask)).await.into_iter().flatten().collect()
    }

    fn answered(&mut self, server: &Arc<str>, parsed: ParentAnswer) -> Vec<Granted> {
        self.failures = 0;
        let now = self.context.clock.at();
        let before = self.context.status.read().and_then(|report| report.answered);
        if before.is_none() {
            tracing::info!(%server, node = %self.context.parent.node, "the parent has answered");
        }
        self.context.status.write(|report| (report.answered, report.page) = (Some(now), parsed.page));
        if !parsed.malformed.is_empty() {
            self.failed(format!("{server}: answered nonsense for {}", parsed.malformed.join(", ")));
        }
        if let Some(taken) = parsed.name_taken {
            self.name_taken(format!("{server}: {taken}"));
        }
        let take = |(granted, complaint): (Granted, Complaint)| {
            self.complain(&granted.given.id, complaint);
            self.context.status.lease_of(&granted.settings);
            granted
        };
        parsed.granted.into_iter().map(take).collect()
    }

    /// Of some resources; those that are asked for alone are refused with it. Told once.
    fn name_taken(&mut self, error: String) {
        if self.context.status.read().and_then(|report| report.last_error).as_ref() != Some(&error) {
            tracing::warn!(parent = %error, "the parent refuses this node some resources");
            self.context.status.write(|report| report.last_error = Some(error));
        }
    }

    /// Once for each thing that is wrong.
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
                "cannot be run as the parent says: each holder gets what it wants, within this node's lease"
            );
        } else {
            tracing::warn!(resource = %id, %complaint, "what the parent says is not all understood here");
        }
        self.complaints.insert(Arc::clone(id), complaint);
    }

    fn failed(&mut self, error: String) {
        let before = self.failures;
        self.failures += 1;
        if worth_logging(before, self.failures) {
            tracing::warn!(parent = %error, "the parent could not be asked");
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
