//! Long messages are decoded and encoded in parts, between which others go on: see [`crate::runtime::stint`].
//!
//! A message of protobuf that is cut between two fields is two messages, and merging these makes the one again.

use bytes::Bytes;
use leaseway_proto::doorman::GetCapacityResponse;
use prost::{
    DecodeError, Message,
    encoding::{DecodeContext, decode_key, skip_field},
};

use super::{
    entries::LOOKED_AT,
    framing::{self, PREFIX},
};
use crate::runtime::coop::{ChunkPermit, ENTRIES};

/// Decodes a message.
pub(super) async fn decode<M: Message + Default>(message: &[u8]) -> Result<M, DecodeError> {
    if message.len() <= LOOKED_AT {
        return M::decode(message);
    }
    // Boxed: most messages are short, and need no room for this.
    Box::pin(decode_long(message)).await
}

async fn decode_long<M: Message + Default>(mut rest: &[u8]) -> Result<M, DecodeError> {
    let (mut permit, mut message) = (ChunkPermit::acquire().await, M::default());
    while !rest.is_empty() {
        let (part, after) = rest.split_at(length_of_part(rest));
        message.merge(part)?;
        rest = after;
        permit = permit.next().await;
    }
    Ok(message)
}

/// How long so many fields are as make a part. What is malformed is one part with all that comes after it: decoding it
/// says what is wrong.
fn length_of_part(message: &[u8]) -> usize {
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

/// An answer with its prefix.
pub(super) async fn framed(answer: GetCapacityResponse) -> Bytes {
    if answer.response.len() <= ENTRIES {
        return framing::framed(&answer);
    }
    // Boxed: as in [`decode`].
    Box::pin(framed_long(answer)).await
}

async fn framed_long(answer: GetCapacityResponse) -> Bytes {
    let GetCapacityResponse { response, mastership, problem } = answer;
    let mut framed = vec![0; PREFIX];
    let mut rest = response.into_iter();
    let mut permit = ChunkPermit::acquire().await;
    while rest.len() > 0 {
        let response = rest.by_ref().take(ENTRIES).collect();
        append(&GetCapacityResponse { response, ..Default::default() }, &mut framed);
        permit = permit.next().await;
    }
    append(&GetCapacityResponse { response: Vec::new(), mastership, problem }, &mut framed);
    framing::set_length(&mut framed);
    framed.into_boxed_slice().into()
}

fn append(part: &GetCapacityResponse, framed: &mut Vec<u8>) {
    part.encode(framed).expect("a vector grows as needed");
}

#[cfg(test)]
mod tests {
    use leaseway_proto::doorman::{GetCapacityRequest, Lease, Mastership, Problem, ResourceRequest, ResourceResponse};
    use proptest::prelude::*;

    use super::*;
    use crate::node::block_on;

    fn request(entries: usize) -> GetCapacityRequest {
        let entry = |number| ResourceRequest {
            resource_id: Some(format!("a-resource-with-a-name-of-some-length-{number}")),
            wants: Some(number as f64),
            ..ResourceRequest::default()
        };
        let resource = (0..entries).map(entry).collect();
        GetCapacityRequest { client_id: Some("c".into()), resource, drops_late: Some(true), is_gateway: None }
    }

    fn answer(entries: usize) -> GetCapacityResponse {
        let entry = |number: usize| ResourceResponse {
            resource_id: Some(format!("r{number}")),
            gets: Some(Lease { capacity: Some(number as f64), ..Lease::default() }),
            ..ResourceResponse::default()
        };
        GetCapacityResponse {
            response: (0..entries).map(entry).collect(),
            mastership: Some(Mastership { master_address: Some("a:1".into()) }),
            problem: vec![Problem::default(); 2],
        }
    }

    #[test]
    fn answers_have_the_same_bytes_in_parts() {
        for entries in [0, ENTRIES, ENTRIES + 1, 3 * ENTRIES, 1000] {
            let whole = framing::framed(&answer(entries));
            assert_eq!(block_on(framed(answer(entries))), whole, "{entries} entries");
        }
    }

    proptest! {
        /// Whole, cut, and with bytes that are others.
        #[test]
        fn what_is_decoded_in_parts_is_what_is_decoded_at_once(
            entries in 0_usize..1000, cut in any::<prop::sample::Index>(),
            changed in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 0..3),
        ) {
            let whole = request(entries).encode_to_vec();
            prop_assert_eq!(block_on(decode_long(&whole)), Ok(request(entries)));
            let mut other = whole[..cut.index(whole.len())].to_vec();
            for (at, byte) in changed.into_iter().filter(|_| cut.index(whole.len()) > 0) {
                *at.get_mut(&mut other) = byte;
            }
            let at_once = GetCapacityRequest::decode(&*other);
            let in_parts = block_on(decode_long::<GetCapacityRequest>(&other));
            // Of two faults either may be told.
            prop_assert_eq!(format!("{:?}", at_once.ok()), format!("{:?}", in_parts.ok()));
        }
    }
}
