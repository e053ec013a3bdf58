use leaseway_proto::doorman::{GetCapacityRequest, ResourceRequest};
use tonic::Code;

use bytes::BufMut as _;

use super::*;
use crate::{api::grpc::framing::framed, node::block_on};

const MAX_BYTES: usize = 1000;

fn request() -> GetCapacityRequest {
    let resource = ResourceRequest {
        resource_id: Some("r".into()),
        priority: Some(1),
        wants: Some(10.0),
        ..ResourceRequest::default()
    };
    GetCapacityRequest { client_id: Some("c".into()), resource: vec![resource], drops_late: None, is_gateway: None }
}

fn parsed(framed: &[u8]) -> Result<GetCapacityRequest, (Code, String)> {
    block_on(parse(framed, MAX_BYTES)).map_err(|status| (status.code(), status.message().to_owned()))
}

#[test]
fn what_is_framed_is_parsed_again() {
    assert_eq!(parsed(&framed(&request())), Ok(request()));
    assert_eq!(parsed(&[0, 0, 0, 0, 0]), Ok(GetCapacityRequest::default()), "an empty message is a message");
    let second = framed(&GetCapacityRequest::default());
    assert_eq!(parsed(&[&framed(&request())[..], &second].concat()), Ok(request()), "further messages mean nothing");
}

#[test]
fn what_is_wrong_is_said() {
    let good = framed(&request());
    let with = |place: usize, byte: u8| {
        let mut framed = good.to_vec();
        framed[place] = byte;
        framed
    };
    let more = [&good[..], &good[..]].concat();
    for (framed, code, text) in [
        (&b""[..], Code::Internal, "no message"),
        (&good[..4], Code::Internal, "no message"),
        (&good[..good.len() - 1], Code::Internal, "breaks off after"),
        (&with(0, 1), Code::Internal, "compressed"),
        (&with(1, 1), Code::OutOfRange, "--max-message-bytes"),
        (&more[..good.len() + 7], Code::Internal, "breaks off after 2 of"),
        (&with(5, 0xff), Code::Internal, "cannot be read"),
    ] {
        let (found, message) = parsed(framed).expect_err(text);
        assert_eq!(found, code, "{message}");
        assert!(message.contains(text), "{message}");
    }
}

#[test]
fn the_longest_message_may_be_as_long_as_it_may() {
    let of_length = |length: usize| {
        // An unknown field is skipped.
        let mut framed = vec![0];
        framed.put_u32(u32::try_from(length).expect("short"));
        framed.put_slice(&[0xfa, 0x7f]);
        prost::encoding::encode_varint(length as u64 - 4, &mut framed);
        framed.resize(PREFIX + length, b'x');
        framed
    };
    assert_eq!(parsed(&of_length(MAX_BYTES)), Ok(GetCapacityRequest::default()));
    assert_eq!(parsed(&of_length(MAX_BYTES + 1)).expect_err("one too many").0, Code::OutOfRange);
}
