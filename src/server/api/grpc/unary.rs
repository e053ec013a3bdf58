//! One message in, one message out ([`super::answer`]), for a method that is called far more often than all others.
//!
//! tonic takes every call for two streams of messages: each gets a buffer of 8 KiB, and is polled until it has ended.
//! Here the message is read from the frame it came in, and the answer is encoded once, into as many bytes as it has.
//! Special cases are left to tonic: compression (see [`super::front`]), and all other methods.

use std::{future::poll_fn, pin::Pin};

use bytes::Bytes;
use hyper::body::Body as _;
use prost::Message;
use tonic::Status;

use super::{
    body::RequestBody,
    framing::{PREFIX, too_long},
    parts,
};

/// The one message of a request.
pub(super) async fn read<M: Message + Default>(body: &mut RequestBody) -> Result<M, Status> {
    let (mut framed, most) = (Vec::new(), body.message_bytes());
    while let Some(data) = next_data(body).await? {
        if framed.is_empty() && body.is_end_stream() {
            // Nearly always: all of it came in one frame.
            return parse(&data, most).await;
        }
        if framed.len() + data.len() > PREFIX + most {
            return Err(too_long(framed.len() + data.len() - PREFIX, most));
        }
        framed.extend_from_slice(&data);
    }
    parse(&framed, most).await
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
pub(super) async fn parse<M: Message + Default>(framed: &[u8], most: usize) -> Result<M, Status> {
    let (message, mut rest) = next_message(framed, most).await?;
    while !rest.is_empty() {
        rest = next_message::<M>(rest, most).await?.1;
    }
    Ok(message)
}

async fn next_message<M: Message + Default>(framed: &[u8], most: usize) -> Result<(M, &[u8]), Status> {
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
    match parts::decode(message).await {
        Ok(message) => Ok((message, rest)),
        Err(error) => Err(Status::internal(format!("the message cannot be read: {error}"))),
    }
}

#[cfg(test)]
mod tests;
