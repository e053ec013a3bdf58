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

use super::unary::{PREFIX, too_long};
use crate::budget::Charge;

/// Bounds on the body of a request.
#[derive(Debug, Clone, Copy)]
pub(super) struct BodyLimits {
    /// The longest message.
    pub(super) message_bytes: usize,
    /// How long it may take until all of the body has come.
    pub(super) patience: Duration,
}

/// The body of a request.
pub(super) struct RequestBody {
    incoming: Incoming,
    limits: BodyLimits,
    framing: Framing,
    /// Of what is kept: so much besides what has come of a message that is not complete.
    charge: Charge,
    besides: usize,
    /// Armed once it has to be waited for: nearly always all of it is there when it is first looked at.
    timer: Option<Pin<Box<Sleep>>>,
}

impl RequestBody {
    /// What it keeps is added to `charge`.
    pub(super) fn new(incoming: Incoming, limits: BodyLimits, charge: Charge) -> RequestBody {
        let besides = charge.bytes();
        RequestBody { incoming, limits, framing: Framing::default(), charge, besides, timer: None }
    }

    /// The charge, of the message that it has become.
    pub(super) fn into_charge(self) -> Charge {
        self.charge
    }

    /// The longest message.
    pub(super) fn message_bytes(&self) -> usize {
        self.limits.message_bytes
    }

    fn heed(&mut self, data: &[u8]) -> Result<(), Status> {
        self.framing.pass(data, self.limits.message_bytes)?;
        let kept = if self.incoming.is_end_stream() { 0 } else { self.framing.pending() };
        Ok(self.charge.resize(self.besides + kept)?)
    }

    /// It has not come yet.
    fn wait(&mut self, task: &mut Context<'_>) -> Poll<Status> {
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

impl Body for RequestBody {
    type Data = Bytes;
    type Error = Status;

    fn poll_frame(mut self: Pin<&mut Self>, task: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, Status>>> {
        match Pin::new(&mut self.incoming).poll_frame(task) {
            Poll::Ready(Some(Ok(frame))) => {
                let heeded = frame.data_ref().map_or(Ok(()), |data| self.heed(data));
                Poll::Ready(Some(heeded.map(|()| frame)))
            }
            Poll::Ready(Some(Err(error))) => {
                let broken = Status::cancelled(format!("the request has broken off: {error}"));
                Poll::Ready(Some(Err(broken)))
            }
            Poll::Ready(None) => Poll::Ready(None),
            Poll::Pending => self.wait(task).map(|status| Some(Err(status))),
        }
    }

    fn is_end_stream(&self) -> bool {
        self.incoming.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.incoming.size_hint()
    }
}

/// Where in its messages a body is.
#[derive(Debug, Default)]
struct Framing {
    /// The prefix of the next message, as far as it has come.
    prefix: [u8; PREFIX],
    /// How much of it has.
    known: usize,
    /// How much of its message has come, and has not.
    came: usize,
    missing: usize,
}

impl Framing {
    /// Takes note of what has come. A message that is too long is one as soon as its length is known.
    fn pass(&mut self, mut data: &[u8], most: usize) -> Result<(), Status> {
        while !data.is_empty() {
            if self.known < PREFIX {
                let taken = data.len().min(PREFIX - self.known);
                let (now, later) = data.split_at(taken);
                self.prefix[self.known..][..taken].copy_from_slice(now);
                self.known += taken;
                data = later;
                if self.known < PREFIX {
                    return Ok(());
                }
                let [_, length @ ..] = self.prefix;
                self.missing = u32::from_be_bytes(length) as usize;
                if self.missing > most {
                    return Err(too_long(self.missing, most));
                }
            }
            let taken = data.len().min(self.missing);
            data = &data[taken..];
            (self.came, self.missing) = (self.came + taken, self.missing - taken);
            if self.missing == 0 {
                (self.known, self.came) = (0, 0);
            }
        }
        Ok(())
    }

    /// Bytes that are kept until the message is complete.
    fn pending(&self) -> usize {
        self.known + self.came
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use tonic::Code;

    use super::*;

    fn message(length: usize) -> Vec<u8> {
        let mut framed = vec![0];
        framed.extend_from_slice(&(length as u32).to_be_bytes());
        framed.resize(PREFIX + length, b'x');
        framed
    }

    #[test]
    fn a_message_that_is_too_long_is_one_when_its_prefix_has_come() {
        let mut framing = Framing::default();
        let long = message(101);
        framing.pass(&long[..4], 100).expect("its length is not known");
        assert_eq!(framing.pass(&long[4..5], 100).expect_err("it is known now").code(), Code::OutOfRange);
        Framing::default().pass(&message(100), 100).expect("as long as it may be");
    }

    proptest! {
        #[test]
        fn what_is_pending_is_what_came_of_an_incomplete_message(
            lengths in prop::collection::vec(0_usize..50, 1..5), cuts in prop::collection::vec(1_usize..20, 1..50),
        ) {
            let all: Vec<u8> = lengths.iter().flat_map(|length| message(*length)).collect();
            let ends: Vec<usize> = lengths.iter().scan(0, |end, length| {
                *end += PREFIX + length;
                Some(*end)
            }).collect();
            let (mut framing, mut at) = (Framing::default(), 0);
            for cut in cuts.iter().cycle().take(all.len()) {
                let next = (at + cut).min(all.len());
                framing.pass(&all[at..next], 50).expect("none is too long");
                at = next;
                let begin = ends.iter().rev().find(|end| **end <= at).copied().unwrap_or_default();
                prop_assert_eq!(framing.pending(), at - begin);
            }
            prop_assert_eq!((at, framing.pending()), (all.len(), 0));
        }
    }
}
