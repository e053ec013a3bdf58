//! What tonic answers, charged.
//!
//! tonic makes the bytes of an answer when they are asked for, and keeps the answer as it was made until then, of which
//! no one knows the size. So its first frame is asked for at once: of most answers that is all.

use std::{
    future::poll_fn,
    pin::Pin,
    task::{Context, Poll},
};

use bytes::Bytes;
use hyper::body::{Body, Frame};
use tonic::Status;

use crate::listen::budget::{Charge, ChargedBytes};

type Polled = Option<Result<Frame<Bytes>, Status>>;

/// The body of tonic's answer.
pub(super) struct TonicAnswer {
    body: tonic::body::Body,
    /// What was asked for at once.
    first: Option<Frame<ChargedBytes>>,
    /// Of the request, which is under way as long as its answer is.
    request: Charge,
    /// The end that it comes to because it is beyond the budget was told.
    has_ended: bool,
}

impl TonicAnswer {
    /// Makes the beginning of it; the error is that it is beyond the budget.
    pub(super) async fn begin(mut body: tonic::body::Body, request: Charge) -> Result<TonicAnswer, Status> {
        let first: Poll<Polled> = poll_fn(|task| Poll::Ready(Pin::new(&mut body).poll_frame(task))).await;
        let mut answer = TonicAnswer { body, first: None, request, has_ended: false };
        match first {
            Poll::Pending => {}
            Poll::Ready(Some(frame)) => answer.first = Some(answer.charged(frame?)?),
            Poll::Ready(None) => answer.has_ended = true,
        }
        Ok(answer)
    }

    fn charged(&self, frame: Frame<Bytes>) -> Result<Frame<ChargedBytes>, Status> {
        let charge = match frame.data_ref() {
            Some(data) => Some(Charge::answer(self.request.connection(), data.len())?),
            None => None,
        };
        Ok(frame.map_data(|bytes| ChargedBytes { bytes, charge }))
    }

    pub(super) fn poll(&mut self, task: &mut Context<'_>) -> Poll<Option<Result<Frame<ChargedBytes>, Status>>> {
        if self.first.is_some() {
            return Poll::Ready(self.first.take().map(Ok));
        }
        if self.has_ended {
            return Poll::Ready(None);
        }
        Pin::new(&mut self.body).poll_frame(task).map(|frame| {
            let frame = frame?;
            Some(frame.and_then(|frame| self.charged(frame)).or_else(|status| self.end(&status)))
        })
    }

    /// The end of a stream that has begun.
    fn end(&mut self, status: &Status) -> Result<Frame<ChargedBytes>, Status> {
        self.has_ended = true;
        let mut trailers = http::HeaderMap::with_capacity(2);
        status.add_header(&mut trailers)?;
        Ok(Frame::trailers(trailers))
    }

    pub(super) fn is_end_stream(&self) -> bool {
        self.first.is_none() && (self.has_ended || self.body.is_end_stream())
    }
}
