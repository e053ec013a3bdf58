//! What goes out: responses, and their bodies, of which the bytes are charged until they are sent.

use std::{
    pin::Pin,
    task::{Context, Poll},
};

use bytes::Bytes;
use http::{HeaderMap, HeaderName, HeaderValue, Response, header::CONTENT_TYPE};
use hyper::body::{Body, Frame};
use prost::Message;
use tonic::Status;

use super::{
    framing::framed,
    hint_answer::{HintAnswer, Hints},
    tonic_answer::TonicAnswer,
};
use crate::listen::budget::{Charge, ChargedBytes};

const STATUS: HeaderName = HeaderName::from_static("grpc-status");
const GRPC: HeaderValue = HeaderValue::from_static("application/grpc");
const OK: HeaderValue = HeaderValue::from_static("0");

/// The response to a request that is charged so far with `request`.
pub(super) fn message<M: Message>(result: Result<M, Status>, request: Charge) -> Response<Answer> {
    encoded(result.map(|message| framed(&message)), request)
}

/// As [`message`], of a message that has its prefix.
pub(super) fn encoded(framed: Result<Bytes, Status>, request: Charge) -> Response<Answer> {
    let charged = framed.and_then(|bytes| {
        let charge = Some(request.answered(bytes.len())?);
        Ok(ChargedBytes { bytes, charge })
    });
    match charged {
        Ok(message) => {
            let mut response = Response::new(Answer::Message(message));
            response.headers_mut().insert(CONTENT_TYPE, GRPC);
            response
        }
        Err(status) => refusal(status),
    }
}

/// The response to a request that cannot be answered.
pub(super) fn refusal(status: Status) -> Response<Answer> {
    status.into_http::<()>().map(|()| Answer::Sent)
}

/// The response whose messages are hints.
pub(super) fn hints(hints: Hints, request: Charge) -> Response<Answer> {
    let mut response = Response::new(Answer::Hints(HintAnswer::new(hints, request)));
    response.headers_mut().insert(CONTENT_TYPE, GRPC);
    response
}

/// The body of an answer.
pub(super) enum Answer {
    /// A message that is still to be sent, and after it that all is well.
    Message(ChargedBytes),
    /// The message has been sent.
    AllIsWell,
    /// Everything has been sent.
    Sent,
    /// Hints, as they come.
    Hints(HintAnswer),
    /// What tonic has made.
    Tonic(TonicAnswer),
}

impl Body for Answer {
    type Data = ChargedBytes;
    type Error = Status;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        task: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<ChargedBytes>, Status>>> {
        let (frame, rest) = match std::mem::replace(&mut *self, Answer::Sent) {
            Answer::Message(message) => (Frame::data(message), Answer::AllIsWell),
            Answer::AllIsWell => {
                let mut trailers = HeaderMap::with_capacity(1);
                trailers.insert(STATUS, OK);
                (Frame::trailers(trailers), Answer::Sent)
            }
            Answer::Sent => return Poll::Ready(None),
            Answer::Hints(mut body) => {
                let polled = body.poll(task);
                *self = Answer::Hints(body);
                return polled;
            }
            Answer::Tonic(mut body) => {
                let polled = body.poll(task);
                if !matches!(polled, Poll::Ready(None)) {
                    *self = Answer::Tonic(body);
                }
                return polled;
            }
        };
        *self = rest;
        Poll::Ready(Some(Ok(frame)))
    }

    fn is_end_stream(&self) -> bool {
        match self {
            Answer::Message(_) | Answer::AllIsWell => false,
            Answer::Sent => true,
            Answer::Hints(body) => body.has_ended(),
            Answer::Tonic(body) => body.is_end_stream(),
        }
    }
}

#[cfg(test)]
mod tests;
