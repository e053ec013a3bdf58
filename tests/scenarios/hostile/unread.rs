//! Callers that do not read their answers.

use std::io::Write as _;

use leaseway_proto::status::GetStatusRequest;
use tonic::Code;

use super::{ELSEWHERE, GET_CAPACITY, GET_STATUS, Victim};
use crate::harness::{
    doorman::{Doorman, entry, request},
    http2::{Call, Ended, Http2, connect_tcp, hangs_up},
    wait::eventually,
};

const REFUSED: i32 = Code::ResourceExhausted as i32;

/// Creates a thousand resources with names of the maximum length.
fn fill(victim: &Victim) {
    let doorman = Doorman::over(victim.server.channel());
    let entries = (0..1000).map(|n| entry(&format!("{n:04}{}", "x".repeat(250)), 1.0)).collect();
    assert_eq!(doorman.get(request("a stranger", entries)).unwrap().response.len(), 1000);
}

/// The refused calls.
fn refused(calls: &mut [Call]) -> Vec<Ended> {
    let ended: Vec<Option<Ended>> = calls.iter_mut().map(Call::has_ended).collect();
    ended.into_iter().flatten().collect()
}

#[test]
fn a_thousand_unread_status_answers_stay_within_the_memory_of_a_connection() {
    let victim = Victim::with_flags(&[]);
    fill(&victim);
    let mut stranger = Http2::connect(victim.server.grpc(), None, 0);
    let page = GetStatusRequest { page_size: 1000, ..GetStatusRequest::default() };
    let mut calls: Vec<Call> = (0..1000).map(|_| stranger.call(GET_STATUS, &page)).collect();
    let refusals = eventually("most calls are refused", || {
        let refused = refused(&mut calls);
        (refused.len() > 900).then_some(refused)
    });
    assert!(refusals.iter().all(|ended| ended.code == REFUSED), "{refusals:?}");
    assert!(refusals[0].message.contains("--max-connection-bytes"), "{refusals:?}");
    victim.serves_others();
    let grown = victim.grown();
    assert!(grown < 150, "{grown} MiB");
    drop((calls, stranger));
    victim.holds_nothing();
}

#[test]
fn a_connection_that_never_reads_its_answers_is_closed() {
    let victim = Victim::with_flags(&["--answer-secs", "1"]);
    let mut stranger = Http2::connect(victim.server.grpc(), None, 0);
    let unread = stranger.call(GET_CAPACITY, &request("a stranger", vec![entry("r", 1.0)]));
    eventually("the connection is closed", || (victim.closed("stalled") == 1.0).then_some(()));
    victim.holds_nothing();
    assert_eq!(unread.ends().code, -1, "the connection is closed");
    victim.serves_others();
}

#[test]
fn an_unread_page_is_abandoned() {
    let victim = Victim::with_flags(&["--answer-secs", "1"]);
    fill(&victim);
    let mut stranger = connect_tcp(victim.server.http(), Some(ELSEWHERE));
    // The pages exceed the socket buffers.
    for _ in 0..50 {
        let _ = stranger.write_all(b"GET /resources HTTP/1.1\r\nHost: localhost\r\n\r\n");
    }
    eventually("the connection is closed", || (victim.closed("stalled") == 1.0).then_some(()));
    assert!(hangs_up(&mut stranger));
    victim.holds_nothing();
}
