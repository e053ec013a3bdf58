use std::sync::Arc;

use leaseway_core::PrincipalShare;
use leaseway_proto::doorman::GetCapacityRequest;

use super::*;
use crate::listen::{
    accounts::Accounts,
    budget::{Budget, ConnectionBudget, REQUEST},
};

fn request() -> GetCapacityRequest {
    GetCapacityRequest { client_id: Some("c".into()), ..GetCapacityRequest::default() }
}

/// A connection with a budget of so many bytes, and a request on it.
fn under_way(most: usize) -> (Arc<ConnectionBudget>, Charge) {
    let account = Accounts::default().of_address([10, 0, 0, 1].into());
    let connection = Arc::new(ConnectionBudget::new(Arc::new(Budget::new(most, most, PrincipalShare::ALL)), account));
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
    let response = message(Ok(request()), charge);
    assert_eq!(response.headers()[CONTENT_TYPE], "application/grpc");
    assert!(!response.body().is_end_stream());
    let frames = frames(response);
    let [first, trailers] = &frames[..] else { panic!("two frames") };
    assert_eq!(first.data_ref().map(|data| &data.bytes), Some(&framed(&request())));
    assert_eq!(trailers.trailers_ref().map(|trailers| &trailers[STATUS]), Some(&OK));
    assert!(connection.activity().has_answers(), "it is charged until it is sent");
    drop(frames);
    assert!(connection.activity().is_idle());
}

#[test]
fn a_refusal_has_no_message() {
    let refusal: Result<GetCapacityRequest, Status> = Err(Status::invalid_argument("client_id: must not be empty"));
    let (connection, charge) = under_way(1 << 20);
    let response = message(refusal, charge);
    assert_eq!(response.headers()[STATUS], "3");
    assert_eq!(response.headers()["grpc-message"], "client_id:%20must%20not%20be%20empty");
    assert!(frames(response).is_empty());
    assert!(connection.activity().is_idle());
}

#[test]
fn an_answer_for_which_there_is_no_room_is_a_refusal() {
    let long = GetCapacityRequest { client_id: Some("c".repeat(5 * REQUEST)), ..request() };
    let (connection, charge) = under_way(4 * REQUEST);
    let response = message(Ok(long), charge);
    assert_eq!(response.headers()[STATUS], "8");
    assert!(connection.activity().is_idle());
}
