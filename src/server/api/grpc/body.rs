//! The body of a request as it comes in: it is told at once that it is too long, it has to come in time, and what it
//! holds until it is complete is charged.

use std::{
    pin::Pin,
    task::{Context, Poll},
    time::Duration,
};

use bytes::Bytes;
use hyper::body::{Body, Frame, Incoming, SizeHint};
use tokio::time::{Sleep, sleep};
use tonic::Status;

use super::framing::Framing;
use crate::{
    listen::budget::{BeyondBudget, Charge, ENTRY},
    runtime::coop::CoopBudget,
};

/// Bounds on the body of a request.
#[derive(Debug, Clone, Copy)]
pub(super) struct BodyLimits {
    pub(super) message_bytes: usize,
    /// How long it may take until all of the body has come; of a stream of requests, all of one message.
    pub(super) patience: Duration,
}

/// The body of a request.
pub(super) struct RequestBody {
    incoming: Incoming,
    limits: BodyLimits,
    framing: Framing,
    coop: CoopBudget,
    /// Of what is kept: so much besides what has come of a message that is not complete.
    charge: Charge,
    besides: usize,
    /// Armed once it has to be waited for: nearly always all of it is there when it is first looked at.
    timer: Option<Pin<Box<Sleep>>>,
    /// More messages come when there is reason.
    is_stream: bool,
}

impl RequestBody {
    /// What it keeps is added to `charge`.
    pub(super) fn new(incoming: Incoming, limits: BodyLimits, charge: Charge) -> RequestBody {
        let besides = charge.bytes();
        let (framing, coop) = (Framing::default(), CoopBudget::default());
        RequestBody { incoming, limits, framing, coop, charge, besides, timer: None, is_stream: false }
    }

    /// As [`new`](Self::new), of a call that may send messages for as long as it pleases.
    pub(super) fn of_stream(incoming: Incoming, limits: BodyLimits, charge: Charge) -> RequestBody {
        RequestBody { is_stream: true, ..RequestBody::new(incoming, limits, charge) }
    }

    /// The charge, of the message that it has become.
    pub(super) fn into_charge(self) -> Charge {
        self.charge
    }

    pub(super) fn message_bytes(&self) -> usize {
        self.limits.message_bytes
    }

    fn consume(&mut self, data: &[u8]) -> Result<(), Status> {
        self.framing.pass(data, self.limits.message_bytes)?;
        if self.is_stream && self.framing.pending() == 0 {
            self.timer = None;
        }
        let kept = if self.incoming.is_end_stream() { 0 } else { self.framing.pending() };
        let entries = self.framing.entries();
        self.charge.resize(self.besides + kept + ENTRY * entries).map_err(|why| too_many(entries, why))
    }

    /// It has not come yet.
    fn wait(&mut self, task: &mut Context<'_>) -> Poll<Status> {
        if self.is_stream && self.framing.pending() == 0 {
            return Poll::Pending;
        }
        let patience = self.limits.patience;
        let timer = self.timer.get_or_insert_with(|| Box::pin(sleep(patience)));
        timer.as_mut().poll(task).map(|()| {
            Status::deadline_exceeded(format!(
                "the request has not come in full within {} s (--request-secs)",
                patience.as_secs_f64()
            ))
        })
    }
}

/// What it becomes when it is decoded is charged before it is.
fn too_many(entries: usize, why: BeyondBudget) -> Status {
    match entries {
        0 => why.into(),
        _ => Status::resource_exhausted(format!("the message has {entries} entries so far, {ENTRY} bytes each: {why}")),
    }
}

impl Body for RequestBody {
    type Data = Bytes;
    type Error = Status;

    fn poll_frame(mut self: Pin<&mut Self>, task: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, Status>>> {
        if self.coop.is_over(task) {
            return Poll::Pending;
        }
        match Pin::new(&mut self.incoming).poll_frame(task) {
            Poll::Ready(Some(Ok(frame))) => {
                self.coop.takes(frame.data_ref().map_or(0, Bytes::len));
                let consumed = frame.data_ref().map_or(Ok(()), |data| self.consume(data));
                Poll::Ready(Some(consumed.map(|()| frame)))
            }
            Poll::Ready(Some(Err(error))) => {
                let broken = Status::cancelled(format!("the request has broken off: {error}"));
                Poll::Ready(Some(Err(broken)))
            }
            Poll::Ready(None) => Poll::Ready(None),
            Poll::Pending => {
                self.coop.ends();
                self.wait(task).map(|status| Some(Err(status)))
            }
        }
    }

    fn is_end_stream(&self) -> bool {
        self.incoming.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.incoming.size_hint()
    }
}
