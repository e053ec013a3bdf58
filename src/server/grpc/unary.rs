//! One message in, one message out: what gRPC puts around them, for a method that is called far more often than all
//! others.
//!
//! tonic takes every call for two streams of messages: each gets a buffer of 8 KiB, and is polled until it has ended.
//! Here the message is read from the frame it came in, and the answer is encoded once, into as many bytes as it has.
//! Special cases are left to tonic: compression (see [`super::front`]), and all other methods.

use std::{
    future::poll_fn,
    pin::Pin,
    task::{Context, Poll},
};

use bytes::{BufMut, Bytes};
use http::{HeaderMap, HeaderName, HeaderValue, Response, header::CONTENT_TYPE};
use hyper::body::{Body, Frame};
use prost::Message;
use tonic::Status;

use super::{body::RequestBody, hint_answer::HintAnswer, tonic_answer::TonicAnswer};
use crate::budget::{Charge, ChargedBytes};

const STATUS: HeaderName = HeaderName::from_static("grpc-status");
pub(super) const GRPC: HeaderValue = HeaderValue::from_static("application/grpc");
const OK: HeaderValue = HeaderValue::from_static("0");

/// Before each message: whether it is compressed, and its length.
pub(super) const PREFIX: usize = 5;

/// The one message of a request.
pub(super) async fn read<M: Message + Default>(body: &mut RequestBody) -> Result<M, Status> {
    let (mut framed, most) = (Vec::new(), body.message_bytes());
    while let Some(data) = next_data(body).await? {
        if framed.is_empty() && body.is_end_stream() {
            // Nearly always: all of it came in one frame.
            return parse(&data, most);
        }
        if framed.len() + data.len() > PREFIX + most {
            return Err(too_long(framed.len() + data.len() - PREFIX, most));
        }
        framed.extend_from_slice(&data);
    }
    parse(&framed, most)
}

async fn next_data(body: &mut RequestBody) -> Result<Option<Bytes>, Status> {
    while let Some(frame) = poll_fn(|task| Pin::new(&mut *body).poll_frame(task)).await {
        // Requests have no trailers that mean anything.
        if let Ok(data) = frame?.into_data() {
            return Ok(Some(data));
        }
    }
    Ok(None)
}

/// The first message. As in tonic, further ones are read, which is an error if they are malformed, and ignored.
fn parse<M: Message + Default>(framed: &[u8], most: usize) -> Result<M, Status> {
    let (message, mut rest) = next_message(framed, most)?;
    while !rest.is_empty() {
        rest = next_message::<M>(rest, most)?.1;
    }
    Ok(message)
}

fn next_message<M: Message + Default>(framed: &[u8], most: usize) -> Result<(M, &[u8]), Status> {
    let Some(([compressed, length @ ..], rest)) = framed.split_first_chunk::<PREFIX>() else {
        return Err(Status::internal("the request has no message, or breaks off before its length"));
    };
    if *compressed != 0 {
        return Err(Status::internal("the message is said to be compressed, but grpc-encoding does not say how"));
    }
    let length = u32::from_be_bytes(*length) as usize;
    if length > most {
        return Err(too_long(length, most));
    }
    let Some((message, rest)) = rest.split_at_checked(length) else {
        let found = rest.len();
        return Err(Status::internal(format!("the message breaks off after {found} of {length} bytes")));
    };
    let message =
        M::decode(message).map_err(|error| Status::internal(format!("the message cannot be read: {error}")))?;
    Ok((message, rest))
}

pub(super) fn too_long(length: usize, most: usize) -> Status {
    Status::out_of_range(format!(
        "the message is {length} bytes long, this server takes at most {most} (--max-message-bytes raises that)"
    ))
}

/// The response to a request that is charged so far with `request`.
pub(super) fn answer<M: Message>(result: Result<M, Status>, request: Charge) -> Response<Answer> {
    let framed = result.and_then(|message| {
        let charge = Some(request.answered(PREFIX + message.encoded_len())?);
        Ok(ChargedBytes { bytes: framed(&message), charge })
    });
    match framed {
        Ok(framed) => {
            let mut response = Response::new(Answer::Message(framed));
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

pub(super) fn framed<M: Message>(message: &M) -> Bytes {
    let length = message.encoded_len();
    let mut framed = Vec::with_capacity(PREFIX + length);
    framed.put_u8(0);
    framed.put_u32(u32::try_from(length).expect("answers are as long as requests, which are at most 4 GiB"));
    message.encode(&mut framed).expect("a vector grows as needed");
    framed.into()
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
