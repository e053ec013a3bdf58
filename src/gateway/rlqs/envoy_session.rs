//! The task that serves one Envoy, with a stream or without one, until nothing is left of what it was told.

use std::{future::pending, sync::Arc, time::Duration};

use leaseway_client::Client;
use leaseway_core::{Millis, Principal};
use leaseway_envoy::{Action, Envoy, Quota, Usage, stays};
use leaseway_proto::envoy::quota::{
    BucketId, RateLimitQuotaResponse,
    rate_limit_quota_response::{
        BucketAction,
        bucket_action::{AbandonAction, BucketAction as Kind, QuotaAssignmentAction},
    },
};
use tokio::{
    sync::{mpsc, watch},
    time::sleep,
};
use tonic::Status;

use super::{
    leases::{ClientLeases, Clock},
    quota::strategy,
    report::Bucket,
};
use crate::{
    lease_table::{CallerShares, NotOpened},
    metrics,
};

/// What is said to streams when the gateway stops.
pub(super) const STOPS: &str = "this gateway stops; another may be reached";

/// What goes down a stream. There is room for one message: what is told counts from when it was made.
pub(super) type Sink = mpsc::Sender<Result<RateLimitQuotaResponse, Status>>;

/// What happens to an Envoy.
pub(super) enum Command {
    /// It reports over a stream; one with a higher number takes the place of those before.
    Reported {
        stream: Stream,
        /// Of buckets that it may ask for.
        usages: Vec<(Bucket, Usage)>,
        /// To whom new ones are counted.
        owner: Principal,
    },
    /// The stream of this number is gone.
    Left(u64),
}

#[derive(Clone)]
pub(super) struct Stream {
    /// Later ones have higher numbers.
    pub(super) number: u64,
    pub(super) sink: Sink,
}

/// See the module.
pub(super) struct EnvoySession {
    pub(super) envoy: Envoy<BucketId>,
    pub(super) leases: ClientLeases,
    pub(super) clock: Clock,
    pub(super) caller_shares: Arc<CallerShares>,
    pub(super) first_wants: f64,
    pub(super) stream: Option<Stream>,
    /// Whether it has had a stream.
    pub(super) has_begun: bool,
    /// Until then the Envoy is certainly here.
    pub(super) here_until: Millis,
    /// It keeps its name wherever it reports to.
    pub(super) is_named: bool,
    pub(super) stop: watch::Receiver<bool>,
    /// A bucket was refused: said once.
    pub(super) has_refused: bool,
}

impl EnvoySession {
    /// Serves it from the first command on. Returns when nothing is left of it, with what is to be closed.
    pub(super) async fn serve(mut self, first: Command, commands: &mut mpsc::Receiver<Command>) -> Client {
        self.apply(first);
        let mut stopping = *self.stop.borrow();
        loop {
            if stopping {
                self.end_stream(Status::unavailable(STOPS));
                if self.is_named {
                    // It goes on with its leases at another gateway, or at this one once it runs again.
                    self.leases.client().abandon();
                    break;
                }
                self.envoy.stopped(self.clock.now());
            }
            self.tell();
            metrics::buckets(self.caller_shares.used());
            if self.envoy.is_gone() {
                break;
            }
            let wake = self.envoy.wake(self.clock.now()).map(|at| at.since(self.clock.now()));
            let blocked = self.stream.as_ref().map(|stream| stream.sink.clone()).filter(|sink| sink.capacity() == 0);
            tokio::select! {
                command = commands.recv() => match command {
                    Some(command) => self.apply(command),
                    None => break,
                },
                () = self.leases.changed() => {}
                () = sleep_for(wake) => {}
                Some(_) = has_room(blocked) => {}
                Ok(()) = self.stop.changed(), if !stopping => stopping = true,
            }
        }
        self.leases.client().clone()
    }

    fn apply(&mut self, command: Command) {
        let now = self.clock.now();
        match command {
            Command::Reported { stream, usages, owner } => {
                let begins = match &self.stream {
                    Some(current) if current.number > stream.number => return,
                    Some(current) => current.number < stream.number,
                    None => true,
                };
                if begins {
                    self.connect(stream, now);
                }
                let stays = stays(begins, usages.iter().map(|(_, usage)| usage));
                self.here_until = self.here_until.max(now.plus(stays));
                for (bucket, usage) in usages {
                    self.reported(now, bucket, &usage, owner);
                }
                self.leases.client().ask_for(Duration::from_millis(self.here_until.since(now).0));
            }
            Command::Left(number) => {
                if self.stream.take_if(|stream| stream.number == number).is_some() {
                    self.disconnected(now);
                }
            }
        }
    }

    /// It may be at another gateway from now on.
    fn disconnected(&mut self, now: Millis) {
        self.here_until = now;
        self.leases.client().ask_for(Duration::ZERO);
        self.envoy.disconnected(now);
    }

    fn connect(&mut self, stream: Stream, now: Millis) {
        if self.stream.is_some() {
            tracing::warn!(
                envoy = self.leases.client().id(),
                "another stream of the same name takes the place of the one before"
            );
            self.end_stream(Status::aborted("another stream reports under the same name (leaseway-client)"));
        }
        if std::mem::replace(&mut self.has_begun, true)
            && let Err(why) = self.leases.begin_anew()
        {
            let _ = stream.sink.try_send(Err(Status::internal(why.to_string())));
            return;
        }
        self.envoy.connected(now);
        self.stream = Some(stream);
    }

    fn end_stream(&mut self, status: Status) {
        if let Some(stream) = self.stream.take() {
            // Where there is no room the stream ends without a word.
            let _ = stream.sink.try_send(Err(status));
            self.disconnected(self.clock.now());
        }
    }

    fn reported(&mut self, now: Millis, bucket: Bucket, usage: &Usage, owner: Principal) {
        if !self.envoy.knows(&bucket.resource)
            && let Err(why) = self.open(&bucket.resource, owner)
        {
            metrics::bucket_refused();
            if !std::mem::replace(&mut self.has_refused, true) {
                tracing::warn!(envoy = self.leases.client().id(), resource = %bucket.resource, "no quota for a bucket: {why}");
            }
            return;
        }
        self.envoy.reported(now, bucket, usage, &mut self.leases);
    }

    fn open(&mut self, resource: &Arc<str>, owner: Principal) -> Result<(), NotOpened> {
        if !self.envoy.has_room() {
            return Err(NotOpened::OfEnvoy(self.envoy.buckets()));
        }
        let permit = self.caller_shares.admit(owner)?;
        Ok(self.leases.open(resource, self.first_wants, permit)?)
    }

    fn tell(&mut self) {
        let room = self.stream.as_ref().and_then(|stream| stream.sink.try_reserve().ok());
        let actions = self.envoy.poll(self.clock.now(), &mut self.leases, room.is_some());
        if let Some(room) = room.filter(|_| !actions.is_empty()) {
            for action in &actions {
                metrics::told(match action.assignment {
                    Some((Quota::Nothing, _)) => "deny",
                    Some(_) => "assign",
                    None => "abandon",
                });
            }
            let bucket_action = actions.into_iter().map(on_the_wire).collect();
            room.send(Ok(RateLimitQuotaResponse { bucket_action }));
        }
    }
}

fn on_the_wire(action: Action<BucketId>) -> BucketAction {
    let kind = match action.assignment {
        None => Kind::AbandonAction(AbandonAction {}),
        Some((quota, secs)) => Kind::QuotaAssignmentAction(QuotaAssignmentAction {
            assignment_time_to_live: Some(prost_types::Duration { seconds: secs.into(), nanos: 0 }),
            rate_limit_strategy: Some(strategy(quota)),
        }),
    };
    BucketAction { bucket_id: Some(action.bucket), bucket_action: Some(kind) }
}

async fn sleep_for(span: Option<Millis>) {
    match span {
        Some(span) => sleep(Duration::from_millis(span.0)).await,
        None => pending().await,
    }
}

/// Waits until a stream takes another message. A stream that has ended never does: its reader says so.
async fn has_room(blocked: Option<Sink>) -> Option<()> {
    match blocked?.reserve().await {
        Ok(_) => Some(()),
        Err(_) => pending().await,
    }
}
