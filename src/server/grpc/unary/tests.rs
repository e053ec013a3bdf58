use std::sync::Arc;

use leaseway_core::Share;
use leaseway_proto::doorman::{GetCapacityRequest, ResourceRequest};
use tonic::Code;

use super::*;
use crate::{
    accounts::Accounts,
    budget::{Budget, ConnectionBudget, REQUEST},
};

const MOST: usize = 1000;

fn request() -> GetCapacityRequest {
    let resource = ResourceRequest {
        resource_id: Some("r".into()),
        priority: Some(1),
        wants: Some(10.0),
        ..ResourceRequest::default()
    };
    GetCapacityRequest { client_id: Some("c".into()), resource: vec![resource], drops_late: None }
}

fn parsed(framed: &[u8]) -> Result<GetCapacityRequest, (Code, String)> {
    parse(framed, MOST).map_err(|status| (status.code(), status.message().to_owned()))
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
    assert_eq!(parsed(&of_length(MOST)), Ok(GetCapacityRequest::default()));
    assert_eq!(parsed(&of_length(MOST + 1)).expect_err("one too many").0, Code::OutOfRange);
}

/// A connection with a budget of so many bytes, and a request on it.
fn under_way(most: usize) -> (Arc<ConnectionBudget>, Charge) {
    let account = Accounts::default().of_address([10, 0, 0, 1].into());
    let connection = Arc::new(ConnectionBudget::new(Arc::new(Budget::new(most, most, Share::ALL)), account));
    let request = Charge::request(&connection, REQUEST).expect("there is room");
    (connection, request)
}

fn frames(response: Response<Answer>) -> Vec<Frame<ChargedBytes>> {
    let mut body = response.into_body();
    let mut task = Context::from_waker(std::task::Waker::noop());
    let mut frames = Vec::new();
    while let Poll::Ready(Some(frame)) = Pin::new(&mut body).poll_frame(&mut task) {
        frames.push(frame.expect("nothing can fail"));
    }
    assert!(body.is_end_stream());
    frames
}

#[test]
fn an_answer_is_its_message_and_then_that_all_is_well() {
    let (connection, charge) = under_way(1 << 20);
    let response = answer(Ok(request()), charge);
    assert_eq!(response.headers()[CONTENT_TYPE], "application/grpc");
    assert!(!response.body().is_end_stream());
    let frames = frames(response);
    let [message, trailers] = &frames[..] else { panic!("two frames") };
    assert_eq!(message.data_ref().map(|data| &data.bytes), Some(&framed(&request())));
    assert_eq!(trailers.trailers_ref().map(|trailers| &trailers[STATUS]), Some(&OK));
    assert!(connection.activity().has_answers(), "it is charged until it is sent");
    drop(frames);
    assert!(connection.activity().is_idle());
}

#[test]
fn a_refusal_has_no_message() {
    let refusal: Result<GetCapacityRequest, Status> = Err(Status::invalid_argument("client_id: must not be empty"));
    let (connection, charge) = under_way(1 << 20);
    let response = answer(refusal, charge);
    assert_eq!(response.headers()[STATUS], "3");
    assert_eq!(response.headers()["grpc-message"], "client_id:%20must%20not%20be%20empty");
    assert!(frames(response).is_empty());
    assert!(connection.activity().is_idle());
}

#[test]
fn an_answer_for_which_there_is_no_room_is_a_refusal() {
    let long = GetCapacityRequest { client_id: Some("c".repeat(5 * REQUEST)), ..request() };
    let (connection, charge) = under_way(4 * REQUEST);
    let response = answer(Ok(long), charge);
    assert_eq!(response.headers()[STATUS], "8");
    assert!(connection.activity().is_idle());
}
