//! Reading of unary requests, bypassing tonic.
//!
//! tonic treats every call as two streams of messages: each gets a buffer of 8 KiB and is polled until its end.
//! GetCapacity is called far more often than all other methods, so its message is decoded directly from the frame that
//! it arrived in. The body must arrive within a time limit ([`RequestBody`]), and its memory is charged to the
//! connection before it is decoded.

use std::{
    future::poll_fn,
    pin::Pin,
    task::{Context, Poll},
    time::Duration,
};

use bytes::Bytes;
use hyper::body::{Body, Frame, Incoming, SizeHint};
use prost::{
    DecodeError, Message,
    encoding::{DecodeContext, WireType, decode_key, skip_field},
};
use tokio::time::{Sleep, sleep};
use tonic::Status;

use crate::{
    listen::waiting_bytes::{Charge, ENTRY, NESTED_PER_ENTRY, TooManyBytes},
    runtime::coop::{ChunkPermit, CoopBudget, ENTRIES},
};

/// Bytes before each gRPC message: a compression flag, and the length.
pub(super) const PREFIX: usize = 5;
/// Messages longer than this are decoded in chunks, and their entries are counted beforehand. Most are shorter.
const LONG_MESSAGE: usize = 16 << 10;

/// Bounds on the body of a request.
#[derive(Debug, Clone, Copy)]
pub(crate) struct BodyLimits {
    pub(crate) message_bytes: usize,
    /// Time for the whole body to arrive; in a stream of requests, for each message.
    pub(crate) timeout: Duration,
}

/// The body of a request.
pub(super) struct RequestBody {
    incoming: Incoming,
    limits: BodyLimits,
    framing: Framing,
    coop: CoopBudget,
    /// `base_charge`, plus the incomplete message and the memory of the decoded entries.
    charge: Charge,
    base_charge: usize,
    /// Created on the first wait. Most bodies are complete when they are first polled.
    timer: Option<Pin<Box<Sleep>>>,
    /// Whether it is a stream of requests, in which the client may pause between messages.
    is_stream: bool,
}

impl RequestBody {
    /// Adds the memory of the body to `charge`.
    pub(super) fn new(incoming: Incoming, limits: BodyLimits, charge: Charge) -> RequestBody {
        let base_charge = charge.bytes();
        let (framing, coop) = (Framing::default(), CoopBudget::default());
        RequestBody { incoming, limits, framing, coop, charge, base_charge, timer: None, is_stream: false }
    }

    /// Like [`new`](Self::new), for a method with a stream of requests.
    pub(super) fn of_stream(incoming: Incoming, limits: BodyLimits, charge: Charge) -> RequestBody {
        RequestBody { is_stream: true, ..RequestBody::new(incoming, limits, charge) }
    }

    /// The charge, which now covers the decoded message.
    pub(super) fn into_charge(self) -> Charge {
        self.charge
    }

    fn consume(&mut self, data: &[u8]) -> Result<(), Status> {
        self.framing.consume(data, self.limits.message_bytes)?;
        if self.is_stream && self.framing.pending() == 0 {
            self.timer = None;
        }
        let buffered = if self.incoming.is_end_stream() { 0 } else { self.framing.pending() };
        let entries = self.framing.entries();
        self.charge.resize(self.base_charge + buffered + ENTRY * entries).map_err(|why| too_many(entries, why))
    }

    /// Polls the timeout while there is no more data.
    fn wait(&mut self, task: &mut Context<'_>) -> Poll<Status> {
        if self.is_stream && self.framing.pending() == 0 {
            return Poll::Pending;
        }
        let timeout = self.limits.timeout;
        let timer = self.timer.get_or_insert_with(|| Box::pin(sleep(timeout)));
        timer.as_mut().poll(task).map(|()| {
            Status::deadline_exceeded(format!(
                "the request was not complete within {} s (--request-secs)",
                timeout.as_secs_f64()
            ))
        })
    }
}

/// The error for a message whose decoded size exceeds the limit of waiting bytes.
fn too_many(entries: usize, why: TooManyBytes) -> Status {
    match entries {
        0 => why.into(),
        _ => Status::resource_exhausted(format!(
            "{why} (the message has {entries} entries so far, which count as {ENTRY} bytes each)"
        )),
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
                let broken = Status::cancelled(format!("the request was cut off: {error}"));
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

/// Reads the message of a unary request.
pub(super) async fn read<M: Message + Default>(body: &mut RequestBody) -> Result<M, Status> {
    let (mut framed, max_bytes) = (Vec::new(), body.limits.message_bytes);
    while let Some(data) = next_data(body).await? {
        if framed.is_empty() && body.is_end_stream() {
            // The usual case: the whole request came in one frame.
            return parse(&data, max_bytes).await;
        }
        if framed.len() + data.len() > PREFIX + max_bytes {
            return Err(too_long(framed.len() + data.len() - PREFIX, max_bytes));
        }
        framed.extend_from_slice(&data);
    }
    parse(&framed, max_bytes).await
}

async fn next_data(body: &mut RequestBody) -> Result<Option<Bytes>, Status> {
    while let Some(frame) = poll_fn(|task| Pin::new(&mut *body).poll_frame(task)).await {
        // Trailers of requests are ignored.
        if let Ok(data) = frame?.into_data() {
            return Ok(Some(data));
        }
    }
    Ok(None)
}

/// Decodes the first message. As in tonic, further messages are ignored, but are errors if they are malformed.
pub(crate) async fn parse<M: Message + Default>(framed: &[u8], max_bytes: usize) -> Result<M, Status> {
    let (message, mut rest) = next_message(framed, max_bytes).await?;
    while !rest.is_empty() {
        rest = next_message::<M>(rest, max_bytes).await?.1;
    }
    Ok(message)
}

async fn next_message<M: Message + Default>(framed: &[u8], max_bytes: usize) -> Result<(M, &[u8]), Status> {
    let Some(([compressed, length @ ..], rest)) = framed.split_first_chunk::<PREFIX>() else {
        return Err(Status::internal("the request has no message, or ends before its length"));
    };
    if *compressed != 0 {
        return Err(Status::internal("the message is marked as compressed, but the header grpc-encoding is missing"));
    }
    let length = u32::from_be_bytes(*length) as usize;
    if length > max_bytes {
        return Err(too_long(length, max_bytes));
    }
    let Some((message, rest)) = rest.split_at_checked(length) else {
        let found = rest.len();
        return Err(Status::internal(format!("the message ends after {found} of {length} bytes")));
    };
    match decode(message).await {
        Ok(message) => Ok((message, rest)),
        Err(error) => Err(Status::internal(format!("the message cannot be decoded: {error}"))),
    }
}

fn too_long(length: usize, max_bytes: usize) -> Status {
    Status::out_of_range(format!(
        "the message is {length} bytes long, but this server takes at most {max_bytes}: raise its --max-message-bytes"
    ))
}

async fn decode<M: Message + Default>(message: &[u8]) -> Result<M, DecodeError> {
    if message.len() <= LONG_MESSAGE {
        return M::decode(message);
    }
    // Boxed, so that the futures of short messages stay small.
    Box::pin(decode_in_chunks(message)).await
}

/// Cooperative scheduling: decodes a chunk of fields, then yields. A message that is cut between two fields is two
/// messages, and merging them restores the original.
async fn decode_in_chunks<M: Message + Default>(mut rest: &[u8]) -> Result<M, DecodeError> {
    let (mut permit, mut message) = (ChunkPermit::acquire().await, M::default());
    while !rest.is_empty() {
        let (chunk, after) = rest.split_at(chunk_length(rest));
        message.merge(chunk)?;
        rest = after;
        permit = permit.next().await;
    }
    Ok(message)
}

/// The length of the first [`ENTRIES`] fields. A malformed field and everything after it belong to one chunk, so that
/// decoding reports the error.
fn chunk_length(message: &[u8]) -> usize {
    let mut rest = message;
    for _ in 0..ENTRIES {
        if rest.is_empty() {
            break;
        }
        let skipped = decode_key(&mut rest)
            .and_then(|(number, wire_type)| skip_field(wire_type, number, &mut rest, DecodeContext::default()));
        if skipped.is_err() {
            return message.len();
        }
    }
    message.len() - rest.len()
}

/// The position in a sequence of framed messages.
#[derive(Debug, Default)]
struct Framing {
    prefix: [u8; PREFIX],
    /// Bytes of the prefix received.
    prefix_bytes: usize,
    /// Bytes of the message received, and still to come.
    received: usize,
    missing: usize,
    /// The entries of a long message.
    entries: Option<Box<EntryCount>>,
}

impl Framing {
    /// Advances past `data`. Fails as soon as the length of a message is known to be more than `max_bytes`.
    fn consume(&mut self, mut data: &[u8], max_bytes: usize) -> Result<(), Status> {
        while !data.is_empty() {
            if self.prefix_bytes < PREFIX {
                let taken = data.len().min(PREFIX - self.prefix_bytes);
                let (now, later) = data.split_at(taken);
                self.prefix[self.prefix_bytes..][..taken].copy_from_slice(now);
                self.prefix_bytes += taken;
                data = later;
                if self.prefix_bytes < PREFIX {
                    return Ok(());
                }
                let [_, length @ ..] = self.prefix;
                self.missing = u32::from_be_bytes(length) as usize;
                if self.missing > max_bytes {
                    return Err(too_long(self.missing, max_bytes));
                }
                self.entries = (self.missing > LONG_MESSAGE).then(Box::default);
            }
            let (now, later) = data.split_at(data.len().min(self.missing));
            if let Some(entries) = &mut self.entries {
                entries.consume(now);
            }
            data = later;
            (self.received, self.missing) = (self.received + now.len(), self.missing - now.len());
            if self.missing == 0 {
                (self.prefix_bytes, self.received) = (0, 0);
            }
        }
        Ok(())
    }

    /// Entries of the current or last message; 0 if it is short.
    fn entries(&self) -> usize {
        self.entries.as_ref().map_or(0, |entries| entries.entries())
    }

    /// Bytes received of an incomplete message.
    fn pending(&self) -> usize {
        self.prefix_bytes + self.received
    }
}

/// Counts the entries of a message as it arrives, before it is decoded.
///
/// An empty entry has two bytes on the wire and a hundred in memory, so memory is bounded by the number of entries, not
/// by the length of the message. Length-delimited fields are counted at the top level and one level below; lists in
/// clients' requests are nested no deeper. The bytes of a string that look like a field are counted too.
#[derive(Debug, Default)]
pub(crate) struct EntryCount {
    next: Token,
    number: u64,
    bits: u32,
    /// Bytes left of the top-level entry that is being read, if any.
    entry_left: Option<u64>,
    skip: u64,
    outer: usize,
    nested: usize,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
enum Token {
    #[default]
    Tag,
    Value,
    Length,
}

impl EntryCount {
    /// The entries so far; [`NESTED_PER_ENTRY`] nested ones count as one.
    pub(crate) fn entries(&self) -> usize {
        self.outer + self.nested / NESTED_PER_ENTRY
    }

    /// Counts the entries in the next bytes of the message. Malformed data ends the count, as it ends decoding.
    pub(crate) fn consume(&mut self, mut data: &[u8]) {
        while let Some((first, rest)) = data.split_first() {
            let is_skipped = self.skip > 0;
            if is_skipped {
                let taken = data.len().min(usize::try_from(self.skip).unwrap_or(usize::MAX));
                data = &data[taken..];
                self.skip -= taken as u64;
                self.entry_left = self.entry_left.map(|left| left - taken as u64);
            } else {
                data = rest;
                self.entry_left = self.entry_left.map(|left| left - 1);
                self.read(*first);
            }
            if self.entry_left == Some(0) {
                self.leave();
            }
        }
    }

    /// Ends the entry, even within one of its fields.
    fn leave(&mut self) {
        (self.entry_left, self.next, self.skip, self.number, self.bits) = (None, Token::Tag, 0, 0, 0);
    }

    fn read(&mut self, byte: u8) {
        self.number |= u64::from(byte & 0x7f).checked_shl(self.bits).unwrap_or_default();
        self.bits += 7;
        if byte & 0x80 != 0 {
            if self.bits > u64::BITS {
                self.give_up();
            }
            return;
        }
        let number = std::mem::take(&mut self.number);
        self.bits = 0;
        match std::mem::take(&mut self.next) {
            Token::Value => {}
            Token::Length => self.enter(number),
            Token::Tag => match WireType::try_from(number & 7) {
                Ok(WireType::Varint) => self.next = Token::Value,
                Ok(WireType::SixtyFourBit) => self.skip_bytes(8),
                Ok(WireType::LengthDelimited) => self.next = Token::Length,
                Ok(WireType::StartGroup | WireType::EndGroup) => {}
                Ok(WireType::ThirtyTwoBit) => self.skip_bytes(4),
                Err(_) => self.give_up(),
            },
        }
    }

    fn enter(&mut self, length: u64) {
        if self.entry_left.is_some() {
            self.nested += 1;
            self.skip_bytes(length);
        } else {
            self.outer += 1;
            self.entry_left = Some(length);
        }
    }

    /// Skips at most the rest of the entry.
    fn skip_bytes(&mut self, bytes: u64) {
        self.skip = bytes.min(self.entry_left.unwrap_or(bytes));
    }

    /// Skips the rest of the entry, or of the message.
    fn give_up(&mut self) {
        self.skip_bytes(u64::MAX);
    }
}

#[cfg(test)]
mod tests {
    use leaseway_proto::doorman::{
        GetCapacityRequest, GetServerCapacityRequest, PriorityBandAggregate, ReleaseCapacityRequest, ResourceRequest,
        ServerCapacityResourceRequest,
    };
    use proptest::prelude::*;
    use tonic::Code;

    use super::*;
    use crate::node::block_on;

    fn message(length: usize) -> Vec<u8> {
        let mut framed = vec![0];
        framed.extend_from_slice(&(length as u32).to_be_bytes());
        framed.resize(PREFIX + length, b'x');
        framed
    }

    #[test]
    fn a_message_is_refused_as_too_long_once_its_prefix_has_arrived() {
        let mut framing = Framing::default();
        let long = message(101);
        framing.consume(&long[..4], 100).expect("the length is not known yet");
        let refused = framing.consume(&long[4..5], 100).expect_err("the length is known");
        assert_eq!(refused.code(), Code::OutOfRange);
        assert!(refused.message().contains("--max-message-bytes"), "{refused}");
        Framing::default().consume(&message(100), 100).expect("the maximum length is allowed");
    }

    fn count(message: &[u8], cut: usize) -> (usize, usize) {
        let mut count = EntryCount::default();
        message.chunks(cut).for_each(|part| count.consume(part));
        (count.outer, count.nested)
    }

    #[test]
    fn empty_entries_and_empty_nested_entries_are_counted() {
        let message = [0x12, 0].repeat(1_000);
        assert_eq!(count(&message, 7), (1_000, 0));
        // One entry of 2,000 bytes with nested lists.
        let bands = [&[0x12, 0xd0, 0x0f][..], &[0x1a, 0].repeat(1_000)].concat();
        assert_eq!(count(&bands, 7), (1, 1_000));
        assert_eq!(count(&[bands.clone(), message].concat(), 5), (1_001, 1_000));
        let mut counted = EntryCount::default();
        counted.consume(&bands);
        assert_eq!(counted.entries(), 1 + 1_000 / NESTED_PER_ENTRY);
    }

    #[test]
    fn malformed_and_truncated_messages_end_the_count() {
        assert_eq!(count(&[&[0x12, 0][..], &[0x0f], &[0x12, 0].repeat(10)].concat(), 3), (1, 0), "no wire type");
        assert_eq!(count(&[0xff; 100], 3), (0, 0), "no number");
        assert_eq!(count(&[0x12, 0x7f, 0x12, 0], 1), (1, 1), "truncated message");
        assert_eq!(count(&[0x12, 2, 0x1a, 0x7f, 0x12, 0], 1), (2, 1), "truncated nested entry");
    }

    fn request(entries: usize) -> GetCapacityRequest {
        let entry = |number| ResourceRequest {
            resource_id: Some(format!("a-resource-with-a-name-of-some-length-{number}")),
            wants: Some(number as f64),
            ..ResourceRequest::default()
        };
        let resource = (0..entries).map(entry).collect();
        GetCapacityRequest { client_id: Some("c".into()), resource, drops_late: Some(true), is_gateway: None }
    }

    proptest! {
        #[test]
        fn pending_bytes_are_those_of_the_incomplete_message(
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
                framing.consume(&all[at..next], 50).expect("none is too long");
                at = next;
                let begin = ends.iter().rev().find(|end| **end <= at).copied().unwrap_or_default();
                prop_assert_eq!(framing.pending(), at - begin);
            }
            prop_assert_eq!((at, framing.pending()), (all.len(), 0));
        }

        #[test]
        fn lists_are_counted_however_a_message_is_cut(
            bands in prop::collection::vec(0_usize..20, 0..30), names in prop::collection::vec("[a-z]{0,12}", 0..30),
            cut in 1_usize..50,
        ) {
            let band = PriorityBandAggregate { priority: Some(-1), num_clients: Some(7), wants: Some(1.5) };
            let resource = |bands: &usize| ServerCapacityResourceRequest {
                wants: vec![band; *bands],
                ..Default::default()
            };
            let resource: Vec<_> = bands.iter().map(resource).collect();
            let message = GetServerCapacityRequest { resource, ..Default::default() }.encode_to_vec();
            prop_assert_eq!(count(&message, cut), (bands.len(), bands.iter().sum::<usize>()));
            let release = ReleaseCapacityRequest { resource_id: names.clone(), ..Default::default() };
            prop_assert_eq!(count(&release.encode_to_vec(), cut).0, names.len());
        }

        #[test]
        fn any_bytes_can_be_counted(message in prop::collection::vec(any::<u8>(), 0..200), cut in 1_usize..9) {
            let (outer, nested) = count(&message, cut);
            prop_assert!(outer + nested <= message.len());
            prop_assert_eq!(count(&message, message.len().max(1)), (outer, nested));
        }

        /// The message is intact, truncated, or has changed bytes.
        #[test]
        fn decoding_in_chunks_gives_the_same_message(
            entries in 0_usize..1000, cut in any::<prop::sample::Index>(),
            changed in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 0..3),
        ) {
            let whole = request(entries).encode_to_vec();
            prop_assert_eq!(block_on(decode_in_chunks(&whole)), Ok(request(entries)));
            let mut other = whole[..cut.index(whole.len())].to_vec();
            for (at, byte) in changed.into_iter().filter(|_| cut.index(whole.len()) > 0) {
                *at.get_mut(&mut other) = byte;
            }
            let at_once = GetCapacityRequest::decode(&*other);
            let in_chunks = block_on(decode_in_chunks::<GetCapacityRequest>(&other));
            // With two errors in a message, either may be reported.
            prop_assert_eq!(format!("{:?}", at_once.ok()), format!("{:?}", in_chunks.ok()));
        }
    }
}
