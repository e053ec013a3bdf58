//! The task that serves one Envoy, with or without a stream, until all of its assignments have expired.

use std::{future::pending, sync::Arc, time::Duration};

use leaseway_client::Client;
use leaseway_core::types::{Millis, Principal};
use leaseway_proto::envoy::quota::{
    BucketId, RateLimitQuotaResponse, RateLimitStrategy, TokenBucket,
    rate_limit_quota_response::{
        BucketAction,
        bucket_action::{AbandonAction, BucketAction as Kind, QuotaAssignmentAction},
    },
    rate_limit_strategy::{BlanketRule, Strategy},
};
use metrics::{counter, gauge};
use tokio::{
    sync::{mpsc, watch},
    time::sleep,
};
use tonic::Status;

use super::{
    leases::{ClientLeases, Clock},
    report::Bucket,
};
use crate::{
    lease_table::{CallerShares, NotOpened},
    rlqs::quotas::{Action, EnvoyQuotas, Quota, Usage, stay_after_report},
};

pub(super) const STOPS: &str = "this gateway is stopping; use another one";

/// The sending half of a stream. It buffers a single message, because the duration of an assignment counts from the
/// time when the message is made.
pub(super) type Sink = mpsc::Sender<Result<RateLimitQuotaResponse, Status>>;

pub(super) enum Command {
    /// The Envoy sent a report. A stream with a higher number replaces the earlier ones.
    Reported {
        stream: Stream,
        /// The usage of all buckets that the Envoy is allowed to request.
        usages: Vec<(Bucket, Usage)>,
        /// New buckets count toward the share of this principal.
        owner: Principal,
    },
    /// The stream with this number ended.
    Left(u64),
}

#[derive(Clone)]
pub(super) struct Stream {
    /// Later streams have higher numbers.
    pub(super) number: u64,
    pub(super) sink: Sink,
}

pub(super) struct EnvoySession {
    pub(super) quotas: EnvoyQuotas<BucketId>,
    pub(super) leases: ClientLeases,
    pub(super) clock: Clock,
    pub(super) caller_shares: Arc<CallerShares>,
    pub(super) first_wants: f64,
    pub(super) stream: Option<Stream>,
    /// Whether a stream has ever been opened.
    pub(super) has_begun: bool,
    /// The Envoy certainly stays with this gateway until this time.
    pub(super) here_until: Millis,
    /// The Envoy has the same name at all gateways.
    pub(super) is_named: bool,
    pub(super) stop: watch::Receiver<bool>,
    /// Whether a refused bucket was logged. Only the first one is.
    pub(super) has_refused: bool,
}

impl EnvoySession {
    /// Runs until the Envoy is gone and all of its assignments have expired. Returns the client to close.
    pub(super) async fn serve(mut self, first: Command, commands: &mut mpsc::Receiver<Command>) -> Client {
        self.apply(first);
        let mut stopping = *self.stop.borrow();
        loop {
            if stopping {
                self.end_stream(Status::unavailable(STOPS));
                if self.is_named {
                    // It keeps its leases at another gateway, or at this one after a restart.
                    self.leases.client().abandon();
                    break;
                }
                self.quotas.stopped(self.clock.now());
            }
            self.send_assignments();
            gauge!("leaseway_rlqs_buckets").set(self.caller_shares.used() as f64);
            if self.quotas.is_finished() {
                break;
            }
            let wake = self.quotas.wake(self.clock.now()).map(|at| at.since(self.clock.now()));
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
                let stay = stay_after_report(begins, usages.iter().map(|(_, usage)| usage));
                self.here_until = self.here_until.max(now.plus(stay));
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

    /// The Envoy may move to another gateway from now on.
    fn disconnected(&mut self, now: Millis) {
        self.here_until = now;
        self.leases.client().ask_for(Duration::ZERO);
        self.quotas.disconnected(now);
    }

    fn connect(&mut self, stream: Stream, now: Millis) {
        if self.stream.is_some() {
            tracing::warn!(
                envoy = self.leases.client().id(),
                "a new stream with the same leaseway-client metadata replaces the previous one; if these are two Envoys, give each its own name"
            );
            self.end_stream(Status::aborted(
                "replaced by another stream with the same leaseway-client metadata: if these are two Envoys, give each its own name",
            ));
        }
        if std::mem::replace(&mut self.has_begun, true)
            && let Err(why) = self.leases.restart()
        {
            let _ = stream.sink.try_send(Err(Status::internal(why.to_string())));
            return;
        }
        self.quotas.connected(now);
        self.stream = Some(stream);
    }

    fn end_stream(&mut self, status: Status) {
        if let Some(stream) = self.stream.take() {
            // If the buffer is full, the stream ends without a status.
            let _ = stream.sink.try_send(Err(status));
            self.disconnected(self.clock.now());
        }
    }

    fn reported(&mut self, now: Millis, bucket: Bucket, usage: &Usage, owner: Principal) {
        if !self.quotas.has_bucket(&bucket.resource)
            && let Err(why) = self.open(&bucket.resource, owner)
        {
            counter!("leaseway_rlqs_buckets_refused_total").increment(1);
            if !std::mem::replace(&mut self.has_refused, true) {
                tracing::warn!(envoy = self.leases.client().id(), resource = %bucket.resource, "bucket refused: {why}");
            }
            return;
        }
        self.quotas.reported(now, bucket, usage, &mut self.leases);
    }

    fn open(&mut self, resource: &Arc<str>, owner: Principal) -> Result<(), NotOpened> {
        if !self.quotas.has_room() {
            return Err(NotOpened::OfEnvoy(self.quotas.buckets()));
        }
        let permit = self.caller_shares.admit(owner)?;
        Ok(self.leases.open(resource, self.first_wants, permit)?)
    }

    fn send_assignments(&mut self) {
        let room = self.stream.as_ref().and_then(|stream| stream.sink.try_reserve().ok());
        let actions = self.quotas.poll(self.clock.now(), &mut self.leases, room.is_some());
        if let Some(room) = room.filter(|_| !actions.is_empty()) {
            for action in &actions {
                let kind = match action.assignment {
                    Some((Quota::Nothing, _)) => "deny",
                    Some(_) => "assign",
                    None => "abandon",
                };
                counter!("leaseway_rlqs_actions_total", "kind" => kind).increment(1);
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

/// Waits until the stream has room for a message. Waits forever if the stream has ended, which its reader reports.
async fn has_room(blocked: Option<Sink>) -> Option<()> {
    match blocked?.reserve().await {
        Ok(_) => Some(()),
        Err(_) => pending().await,
    }
}

/// Envoy 1.40 fills its token buckets evenly, at `tokens_per_fill / fill_interval`, and truncates the interval and the
/// time to live to whole seconds. It recognises a changed bucket by `max_tokens`, `tokens_per_fill` and the
/// *nanoseconds* of the interval, but not by its seconds. Therefore an interval of n seconds also gets n nanoseconds,
/// which make intervals differ and are truncated. An Envoy that does not truncate them admits a billionth less.
fn strategy(quota: Quota) -> RateLimitStrategy {
    let strategy = match quota {
        Quota::Nothing => Strategy::BlanketRule(BlanketRule::DenyAll.into()),
        Quota::Everything => Strategy::BlanketRule(BlanketRule::AllowAll.into()),
        Quota::OneIn(seconds) => Strategy::TokenBucket(bucket(1, seconds)),
        Quota::PerSecond(requests) => Strategy::TokenBucket(bucket(requests, 1)),
    };
    RateLimitStrategy { strategy: Some(strategy) }
}

fn bucket(tokens: u32, seconds: u32) -> TokenBucket {
    let nanos = if seconds > 1 { i32::try_from(seconds).unwrap_or_default() } else { 0 };
    let interval = prost_types::Duration { seconds: i64::from(seconds), nanos };
    TokenBucket { max_tokens: tokens, tokens_per_fill: Some(tokens), fill_interval: Some(interval) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn envoy_can_tell_different_buckets_apart() {
        let seen = |quota: Quota| match strategy(quota).strategy {
            Some(Strategy::TokenBucket(bucket)) => {
                let interval = bucket.fill_interval.expect("an interval");
                (bucket.max_tokens, bucket.tokens_per_fill, interval.nanos)
            }
            other => panic!("{other:?}"),
        };
        let all = [Quota::PerSecond(1), Quota::PerSecond(2), Quota::OneIn(2), Quota::OneIn(3), Quota::OneIn(3600)];
        let mut seen = all.map(seen);
        seen.sort_unstable();
        assert!(seen.windows(2).all(|two| two[0] != two[1]), "{seen:?}");
    }
}
