//! Streams of hints, one for each holder that listens.
//!
//! What is pending for a listener is kept in [`watchers`](crate::node::watchers); a stream takes it from there no more often
//! than once in [`PACE`], and not while its connection is slow. No task of its own runs for a stream: tonic polls it,
//! and drops it when its client is gone, which ends the watch.

use std::time::Duration;

use futures_util::{Stream, stream};
use leaseway_core::access::{AccessRequest, Action};
use leaseway_proto::push::{Hint, WatchRequest, push_server::Push};
use tokio::{sync::watch, time::Instant};
use tonic::{Request, Response, Status};

use super::{admitted, convert, not_master};
use crate::{
    auth::Admitted,
    node::{
        NodeHandle,
        watchers::{Ended, PendingHints, Watch},
    },
    observe::metrics::CallKind,
};

/// The shortest time between two messages of a stream; hints that come meanwhile are in the next.
const PACE: Duration = Duration::from_millis(50);

#[derive(Clone)]
pub(crate) struct PushService {
    node: NodeHandle,
    stopped: watch::Receiver<bool>,
}

impl PushService {
    /// Streams end once `stopped` says so.
    pub(crate) fn new(node: NodeHandle, stopped: watch::Receiver<bool>) -> PushService {
        PushService { node, stopped }
    }
}

fn messages(
    watch: Watch,
    stopped: watch::Receiver<bool>,
    admitted: Admitted,
) -> impl Stream<Item = Result<Hint, Status>> + Send {
    stream::unfold(HintStream { watch, stopped, admitted, last: None, ended: false }, HintStream::next)
}

/// A stream, between two messages.
struct HintStream {
    watch: Watch,
    stopped: watch::Receiver<bool>,
    admitted: Admitted,
    /// When its last message left; none has yet.
    last: Option<Instant>,
    ended: bool,
}

impl HintStream {
    async fn next(mut self) -> Option<(Result<Hint, Status>, HintStream)> {
        if self.ended {
            return None;
        }
        let hint = match self.last {
            // Tells the client that its watch has begun.
            None => Ok(Hint::default()),
            Some(last) => self.wait(last).await,
        };
        // The policy may be another by now, and a token may have ended.
        let hint = hint.and_then(|hint| self.check_again().map(|()| hint));
        self.last = Some(Instant::now());
        self.ended = hint.is_err();
        Some((hint, self))
    }

    /// Waits for hints, for as long as the caller may.
    async fn wait(&mut self, last: Instant) -> Result<Hint, Status> {
        loop {
            tokio::select! {
                biased;
                // An error means that the sender is gone, which is as good as a stop.
                _ = self.stopped.wait_for(|stop| *stop) => {
                    return Err(Status::unavailable("this server is shutting down"));
                }
                () = self.admitted.until_outdated() => {}
                pending = paced(&self.watch, last) => {
                    return pending.map(|pending| hint(&pending)).map_err(ended);
                }
            }
            self.check_again()?;
        }
    }

    fn check_again(&mut self) -> Result<(), Status> {
        let (kind, id) = self.watch.holder();
        let watching = AccessRequest { holder: Some(id), ..AccessRequest::to(Action::of(kind)) };
        self.admitted.check_again(CallKind::Watch, &[watching])
    }
}

fn ended(why: Ended) -> Status {
    match why {
        Ended::Replaced => Status::aborted("another stream for the same id has taken the place of this one"),
        Ended::Dismissed => Status::unavailable("this server is not the master any more"),
    }
}

async fn paced(watch: &Watch, last: Instant) -> Result<PendingHints, Ended> {
    tokio::time::sleep_until(last + PACE).await;
    watch.pending().await
}

fn hint(pending: &PendingHints) -> Hint {
    let resource_id = pending.resources.iter().map(ToString::to_string).collect();
    Hint { resource_id, everything: pending.everything }
}

#[tonic::async_trait]
impl Push for PushService {
    type WatchStream = std::pin::Pin<Box<dyn Stream<Item = Result<Hint, Status>> + Send>>;

    async fn watch(&self, request: Request<WatchRequest>) -> Result<Response<Self::WatchStream>, Status> {
        let admitted = admitted(&request, self.node.authorizer());
        let from = admitted.origin();
        let (kind, id) = convert::watch(request.into_inner(), &self.node.limits)?;
        let watching = AccessRequest { holder: Some(&id), ..AccessRequest::to(Action::of(kind)) };
        admitted.check(CallKind::Watch, &watching)?;
        let watch = self.node.watch(kind, id, from).map_err(|why| Status::resource_exhausted(why.to_string()))?;
        // After the watch has started: checked before, it would not be dismissed if another peer became master in
        // between.
        self.node.check().map_err(|why| not_master(&why))?;
        Ok(Response::new(Box::pin(messages(watch, self.stopped.clone(), admitted))))
    }
}

#[cfg(test)]
mod tests;
