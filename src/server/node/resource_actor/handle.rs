//! Handles to one incarnation of a resource.

use std::{
    pin::Pin,
    sync::{Arc, OnceLock},
    task::{Context, Poll, ready},
};

use leaseway_core::engine::{Ended, LostMastership};
use leaseway_core::{Answer, Request};
use tokio::sync::oneshot;

use super::{
    combiner::{Combiner, SendError, Submission, Submitted},
    message::ResourceMessage,
    queue::{Full, RequestQueue},
    wakeup::Wakeup,
};
use crate::listen::accounts::RequestOrigin;

/// Talks to one incarnation of a resource. When the last handle is gone, it ends.
#[derive(Clone)]
pub(in super::super) struct ResourceHandle(pub(super) Arc<Incarnation>);

pub(super) struct Incarnation {
    pub(super) combiner: Arc<Combiner>,
    /// Dropped after the combiner, so that the task does not find it any more.
    pub(super) _last: CallsWhenDropped,
    pub(super) generation: u64,
    /// Requests that have no answer yet.
    pub(super) queue: Arc<RequestQueue>,
    /// Set before it stops of its own will. An incarnation that ends without has failed.
    pub(super) ended: Arc<OnceLock<Ended>>,
}

/// Calls the task when the last handle is gone.
pub(super) struct CallsWhenDropped(pub(super) Arc<Wakeup>);

impl Drop for CallsWhenDropped {
    fn drop(&mut self) {
        self.0.notify();
    }
}

/// A request that is submitted, or answered. It becomes its answer; none if this incarnation of the resource is over.
///
/// Written by hand, as it is in the memory of every request under way: as an `async fn` it would be three times as
/// large.
///
/// The first request of a batch has to run the round, even if its caller has lost interest: the others wait for it.
pub(in super::super) struct PendingAnswer {
    resource: Arc<Incarnation>,
    leads: bool,
    others: YieldOnce,
    answer: oneshot::Receiver<Result<Answer, LostMastership>>,
}

impl PendingAnswer {
    /// Of the incarnation that it is submitted to.
    pub(in super::super) fn generation(&self) -> u64 {
        self.resource.generation
    }

    /// Whether it has to run the round, which it should do [after the others](YieldOnce) of its thread.
    pub(in super::super) fn leads(&self) -> bool {
        self.leads
    }

    /// Has the round run, if it has to.
    pub(in super::super) fn run(&mut self) {
        if std::mem::take(&mut self.leads) {
            self.resource.combiner.run();
        }
    }
}

impl Future for PendingAnswer {
    type Output = Option<Result<Answer, LostMastership>>;

    fn poll(mut self: Pin<&mut Self>, task: &mut Context<'_>) -> Poll<Self::Output> {
        if self.leads {
            ready!(Pin::new(&mut self.others).poll(task));
            self.run();
        }
        Pin::new(&mut self.answer).poll(task).map(Result::ok)
    }
}

impl Drop for PendingAnswer {
    fn drop(&mut self) {
        self.run();
    }
}

/// Lets every task run that is ready on this thread. Not tokio's `yield_now`, which looks for I/O first: that is a
/// system call.
#[derive(Default)]
pub(in super::super) struct YieldOnce {
    waited: bool,
}

impl Future for YieldOnce {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, task: &mut Context<'_>) -> Poll<()> {
        if std::mem::replace(&mut self.waited, true) {
            return Poll::Ready(());
        }
        task.waker().wake_by_ref();
        Poll::Pending
    }
}

impl std::fmt::Debug for ResourceHandle {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ResourceHandle").field("generation", &self.generation()).finish_non_exhaustive()
    }
}

impl ResourceHandle {
    /// Tells this incarnation from the ones before.
    pub(in super::super) fn generation(&self) -> u64 {
        self.0.generation
    }

    /// Whether it stopped of its own will, held by no one.
    pub(in super::super) fn retired(&self) -> bool {
        self.0.ended.get() == Some(&Ended::Retired)
    }

    /// Whether it is over because what it had promised was not stored, as when mastership is lost.
    pub(in super::super) fn lost_commit(&self) -> bool {
        self.0.ended.get() == Some(&Ended::CommitLost)
    }

    /// As a resource looks in the instant after it has retired.
    #[cfg(test)]
    pub(in super::super) fn pretend_to_have_retired(&self) {
        let _ = self.0.ended.set(Ended::Retired);
    }

    /// As if a round had failed just now.
    #[cfg(test)]
    pub(in super::super) fn plant_panic(&self) {
        self.0.combiner.plant_panic();
    }

    /// Submits a request, which may be answered at once.
    pub(in super::super) fn submit(
        &self,
        request: Request,
        from: Option<RequestOrigin>,
    ) -> Result<PendingAnswer, Full> {
        let resource = &self.0;
        let (sender, answer) = oneshot::channel();
        let ticket = resource.queue.enter(from, sender)?;
        let submitted = resource.combiner.submit(Submission { request, from, ticket });
        let leads = submitted == Submitted::Leads;
        Ok(PendingAnswer { resource: Arc::clone(resource), leads, others: YieldOnce::default(), answer })
    }

    /// Sends what is not a request.
    pub(in super::super) fn send(&self, message: ResourceMessage) -> Result<(), SendError> {
        self.0.combiner.send(message)
    }
}
