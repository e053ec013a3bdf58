//! The push service: a stream of hints for each watching holder.
//!
//! Pending hints are kept in [`watchers`](crate::node::streams::hints). A stream takes them at most once per
//! [`MIN_INTERVAL`], and not while its connection is slow. Streams have no tasks: they are polled by their connection,
//! and dropped with it.

use std::time::Duration;

use futures_util::{Stream, stream};
use leaseway_core::policy::access::{AccessRequest, Action};
use leaseway_proto::push::{Hint, WatchRequest, push_server::Push};
use tokio::{sync::watch, time::Instant};
use tonic::{Request, Response, Status};

use super::{admitted, convert, not_master};
use crate::{
    auth::Admitted,
    node::{
        NodeHandle,
        streams::hints::{Ended, PendingHints, Watch},
    },
    observe::metrics::CallKind,
};

/// The minimum interval between messages of a stream. Hints in between are combined.
const MIN_INTERVAL: Duration = Duration::from_millis(50);

#[derive(Clone)]
pub(crate) struct PushService {
    node: NodeHandle,
    stopped: watch::Receiver<bool>,
}

impl PushService {
    /// Open streams end when `stopped` becomes true.
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

/// The state of a stream between two messages.
struct HintStream {
    watch: Watch,
    stopped: watch::Receiver<bool>,
    admitted: Admitted,
    /// When the last message was sent.
    last: Option<Instant>,
    ended: bool,
}

impl HintStream {
    async fn next(mut self) -> Option<(Result<Hint, Status>, HintStream)> {
        if self.ended {
            return None;
        }
        let hint = match self.last {
            // The first message is empty, and confirms the watch.
            None => Ok(Hint::default()),
            Some(last) => self.wait(last).await,
        };
        // The policy may have changed, and the token may have expired.
        let hint = hint.and_then(|hint| self.check_again().map(|()| hint));
        self.last = Some(Instant::now());
        self.ended = hint.is_err();
        Some((hint, self))
    }

    /// Waits for hints while the caller has permission.
    async fn wait(&mut self, last: Instant) -> Result<Hint, Status> {
        loop {
            tokio::select! {
                biased;
                // An error means that the sender is gone, which also ends the server.
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
        Ended::Replaced => {
            Status::aborted("replaced by another stream of the same id: if these are two clients, give each its own id")
        }
        Ended::Dismissed => Status::unavailable("this server is no longer the master"),
    }
}

async fn paced(watch: &Watch, last: Instant) -> Result<PendingHints, Ended> {
    tokio::time::sleep_until(last + MIN_INTERVAL).await;
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
        // Checked after the watch has started, so that a change of master in between dismisses it.
        self.node.check().map_err(|why| not_master(&why))?;
        Ok(Response::new(Box::pin(messages(watch, self.stopped.clone(), admitted))))
    }
}

/// The paused clock of tokio advances only while all tasks wait.
#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use futures_util::StreamExt as _;
    use leaseway_core::{
        resource::watch_list::HintReason,
        types::{HolderKind, Principal, PrincipalShare},
    };
    use tonic::Code;

    use super::*;
    use crate::{auth::Authorizer, node::streams::hints::Watchers};

    /// A server that can be stopped.
    struct Fixture {
        watchers: Arc<Watchers>,
        stop: watch::Sender<bool>,
    }

    type Messages = std::pin::Pin<Box<dyn Stream<Item = Result<Hint, Status>>>>;

    impl Fixture {
        fn new() -> Fixture {
            Fixture { watchers: Arc::new(Watchers::new(10, PrincipalShare::ALL)), stop: watch::Sender::new(false) }
        }

        fn watch(&self) -> Messages {
            let watch = self.watchers.start(HolderKind::Client, "a".into(), Principal::NONE).expect("there is room");
            Box::pin(messages(watch, self.stop.subscribe(), Admitted::unknown(&Arc::new(Authorizer::open()))))
        }

        fn hint(&self, resource: &str) {
            let hint = leaseway_core::resource::watch_list::Hint {
                kind: HolderKind::Client,
                id: "a".into(),
                reason: HintReason::Shrink,
            };
            self.watchers.hint(&resource.into(), &mut vec![hint]);
        }
    }

    async fn next(messages: &mut Messages) -> Result<Hint, Status> {
        within_a_minute(messages).await.expect("a message")
    }

    async fn within_a_minute(messages: &mut Messages) -> Option<Result<Hint, Status>> {
        tokio::time::timeout(Duration::from_secs(60), messages.next()).await.expect("within a minute")
    }

    fn names(hint: Result<Hint, Status>) -> Vec<String> {
        hint.expect("a hint").resource_id
    }

    #[tokio::test(start_paused = true)]
    async fn the_first_hint_is_empty_and_immediate() {
        let fixture = Fixture::new();
        let mut messages = fixture.watch();
        fixture.hint("r");
        let start = Instant::now();
        assert_eq!(next(&mut messages).await.expect("a hint"), Hint::default());
        assert_eq!(start.elapsed(), Duration::ZERO);
        assert_eq!(names(next(&mut messages).await), ["r"]);
    }

    #[tokio::test(start_paused = true)]
    async fn messages_are_50_ms_apart_and_hints_in_between_are_combined() {
        let fixture = Fixture::new();
        let mut messages = fixture.watch();
        next(&mut messages).await.expect("the first");
        tokio::time::sleep(Duration::from_secs(1)).await;
        fixture.hint("r1");
        let start = Instant::now();
        assert_eq!(names(next(&mut messages).await), ["r1"]);
        assert_eq!(start.elapsed(), Duration::ZERO, "the interval has passed");
        fixture.hint("r2");
        let (second, ()) = tokio::join!(next(&mut messages), async {
            tokio::time::sleep(Duration::from_millis(49)).await;
            fixture.hint("r3");
        });
        assert_eq!(names(second), ["r2", "r3"]);
        assert_eq!(start.elapsed(), MIN_INTERVAL);
    }

    #[tokio::test(start_paused = true)]
    async fn a_replaced_stream_ends_with_an_error() {
        let fixture = Fixture::new();
        let mut older = fixture.watch();
        next(&mut older).await.expect("the first");
        let mut newer = fixture.watch();
        assert_eq!(next(&mut older).await.expect_err("the end").code(), Code::Aborted);
        assert!(within_a_minute(&mut older).await.is_none());
        fixture.hint("r");
        next(&mut newer).await.expect("the first");
        assert_eq!(names(next(&mut newer).await), ["r"]);
    }

    #[tokio::test(start_paused = true)]
    async fn streams_end_immediately_when_the_server_stops() {
        let fixture = Fixture::new();
        let mut messages = fixture.watch();
        next(&mut messages).await.expect("the first");
        let start = Instant::now();
        fixture.hint("r");
        fixture.stop.send_replace(true);
        assert_eq!(next(&mut messages).await.expect_err("the end").code(), Code::Unavailable);
        assert_eq!(start.elapsed(), Duration::ZERO);
        assert!(within_a_minute(&mut messages).await.is_none());
    }

    #[tokio::test(start_paused = true)]
    async fn dropping_a_stream_ends_the_watch() {
        let fixture = Fixture::new();
        let mut messages = fixture.watch();
        next(&mut messages).await.expect("the first");
        // Dropped while waiting, as when a client disconnects.
        let waiting = tokio::time::timeout(Duration::from_secs(1), messages.next());
        waiting.await.expect_err("no hint");
        assert_eq!(fixture.watchers.count(), 1);
        drop(messages);
        assert_eq!(fixture.watchers.count(), 0);
    }
}
