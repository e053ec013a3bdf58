//! A stream of hints as an answer.
//!
//! tonic keeps a buffer of 8 KiB for each stream; of these there are many, and nearly all wait. Here a hint is encoded
//! into as many bytes as it has, when it comes.

use std::{
    pin::Pin,
    task::{Context, Poll},
};

use futures_util::Stream;
use http::HeaderMap;
use hyper::body::Frame;
use leaseway_proto::push::Hint;
use tonic::Status;

use super::framing::framed;
use crate::listen::budget::{Charge, ChargedBytes};

/// Hints, as they come.
pub(super) type Hints = Pin<Box<dyn Stream<Item = Result<Hint, Status>> + Send>>;

/// The body of the answer.
pub(super) struct HintAnswer {
    /// None once it has ended.
    hints: Option<Hints>,
    /// Of the request, which is under way as long as its answer is.
    request: Charge,
}

impl HintAnswer {
    pub(super) fn new(hints: Hints, request: Charge) -> HintAnswer {
        HintAnswer { hints: Some(hints), request }
    }

    pub(super) fn poll(&mut self, task: &mut Context<'_>) -> Poll<Option<Result<Frame<ChargedBytes>, Status>>> {
        let Some(hints) = &mut self.hints else { return Poll::Ready(None) };
        hints.as_mut().poll_next(task).map(|hint| {
            let hint = hint.unwrap_or_else(|| Err(Status::ok("")));
            Some(hint.and_then(|hint| self.charged(&hint)).or_else(|status| self.end(&status)))
        })
    }

    fn charged(&self, hint: &Hint) -> Result<Frame<ChargedBytes>, Status> {
        let bytes = framed(hint);
        let charge = Some(Charge::answer(self.request.connection(), bytes.len())?);
        Ok(Frame::data(ChargedBytes { bytes, charge }))
    }

    fn end(&mut self, status: &Status) -> Result<Frame<ChargedBytes>, Status> {
        self.hints = None;
        let mut trailers = HeaderMap::with_capacity(2);
        status.add_header(&mut trailers)?;
        Ok(Frame::trailers(trailers))
    }

    pub(super) fn has_ended(&self) -> bool {
        self.hints.is_none()
    }
}
