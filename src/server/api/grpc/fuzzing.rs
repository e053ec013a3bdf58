//! What clients and child nodes send, from any bytes.

use std::pin::pin;

use futures_util::FutureExt as _;
use http::HeaderValue;
use http_body_util::Full;
use leaseway_core::{
    AlgorithmKind, Amount, Answer, Birth, Epoch, Millis, Now, Request, Resource, RoundScratch, Settings, Source,
    invariant,
};
use leaseway_proto::{
    doorman::{GetCapacityRequest, GetServerCapacityRequest, ReleaseCapacityRequest},
    pools::{
        GetClientCapacityRequest, ListClientsRequest, ReportLoadRequest, SetAlarmRequest, SetClientCapacityRequest,
        SubscribeRequest,
    },
    push::WatchRequest,
};
use prost::Message;
use tonic::{
    Status,
    codec::{Codec as _, Streaming},
};
use tonic_prost::ProstCodec;

use super::{
    convert::{self, Parsed},
    deadline::timeout,
    entries::EntryCount,
    invalid::Invalid,
    pools::convert as pools_convert,
    unary,
};
use crate::config::limits::Limits;

const MOST: usize = 1 << 16;

/// Whether a body ends within a message.
fn breaks_off(mut framed: &[u8]) -> bool {
    while let [_, a, b, c, d, rest @ ..] = framed {
        match rest.get(u32::from_be_bytes([*a, *b, *c, *d]) as usize..) {
            Some(next) => framed = next,
            None => return true,
        }
    }
    !framed.is_empty()
}

/// What this server reads. Nothing is waited for: long messages are only decoded in parts.
fn decoded<M: Message + Default>(framed: &[u8]) -> Result<M, Status> {
    let mut parsing = pin!(unary::parse::<M>(framed, MOST));
    loop {
        if let Some(parsed) = parsing.as_mut().now_or_never() {
            return parsed;
        }
    }
}

/// The body of a request: the reader of this server takes what tonic's takes, and nothing else; but tonic does not
/// notice that a body ends within a message that follows the first.
fn read_as_tonic_does<M: Message + Default + 'static>(framed: &[u8]) -> Option<M> {
    let ours = decoded::<M>(framed);
    let decoder = ProstCodec::<M, M>::default().decoder();
    let body = Full::new(bytes::Bytes::copy_from_slice(framed));
    let mut stream = Streaming::new_request(decoder, body, None, Some(MOST));
    let mut first = None;
    let theirs = loop {
        match stream.message().now_or_never().expect("all of it is there") {
            Ok(Some(message)) => first = first.or(Some(message)),
            Ok(None) => break first,
            Err(_) => break None,
        }
    };
    // NaN differs from itself: compared as it is sent.
    let bytes = |message: &M| message.encode_to_vec();
    if ours.is_err() && breaks_off(framed) {
        return None;
    }
    assert_eq!(ours.as_ref().ok().map(bytes), theirs.as_ref().map(bytes), "tonic reads something else");
    ours.ok()
}

/// The entries that are counted while a message comes are no fewer than it is found to have.
fn counted(message: &[u8], outer: usize) {
    let mut count = EntryCount::default();
    for part in message.chunks(7) {
        count.pass(part);
    }
    assert!(count.entries() >= outer, "{} counted of {outer}", count.entries());
}

/// GetCapacity: the body of a request.
pub fn capacity(framed: &[u8]) {
    let Some(request) = read_as_tonic_does::<GetCapacityRequest>(framed) else { return };
    if let Ok(parsed) = convert::get_capacity(request, &Limits::default()) {
        decide(parsed);
    }
}

/// GetServerCapacity: the body of a request.
pub fn node_capacity(framed: &[u8]) {
    let Some(request) = read_as_tonic_does::<GetServerCapacityRequest>(framed) else { return };
    if let Ok(mut parsed) = convert::get_server_capacity(request, &Limits::default()) {
        parsed.requests.retain(|request| !convert::asks_for_nothing(request));
        decide(parsed);
    }
}

/// ReleaseCapacity: the body of a request.
pub fn release(framed: &[u8]) {
    let Some(request) = read_as_tonic_does::<ReleaseCapacityRequest>(framed) else { return };
    if let Ok(parsed) = convert::release_capacity(request, &Limits::default()) {
        decide(parsed);
    }
}

/// What was taken is decided by a resource of each kind, three times: no rule of the core is broken.
fn decide(parsed: Parsed) {
    let problems = parsed.problems.into_wire();
    assert!(problems.iter().all(|problem| !problem.message().is_empty()));
    let requests: Vec<Request> = parsed.requests.into_iter().map(|(_, request)| request).collect();
    for kind in AlgorithmKind::ALL {
        let mut resource = resource(kind);
        for round in 1..=3 {
            let at = Millis(round * 6_000);
            let before = resource.sums().held;
            let (mut asked, mut answers) = (requests.clone(), Vec::new());
            let now = Now { at, unix: 1_700_000_000 + at.0 as i64 / 1000 };
            resource.round(now, &mut asked, &mut answers, &mut RoundScratch::default());
            assert_eq!(answers.len(), requests.len());
            invariant::held_within_capacity(&resource, before).expect("what is asked for changes nothing about that");
            for answer in &answers {
                if let Answer::Granted(lease) = answer {
                    invariant::lease_within_bounds(lease, None, at, None).expect("no lease is out of bounds");
                }
                let _ = convert::resource_response("r".to_owned(), answer);
                let _ = convert::server_response("r".to_owned(), answer);
            }
            resource.tick(at);
        }
    }
}

fn resource(kind: AlgorithmKind) -> Resource {
    let capacity = Amount::new(100.0).expect("it is finite");
    Resource::new(Birth {
        settings: Settings::new(kind, capacity),
        source: Source::Own,
        epoch: Epoch(1 << 40),
        since: Millis(0),
        learning_until: Millis(0),
        inherited: None,
        max_holders: 1_000,
        seed: 7,
    })
}

/// Watch: the body of a request.
pub fn watch(framed: &[u8]) {
    if let Some(request) = read_as_tonic_does::<WatchRequest>(framed) {
        let _ = convert::watch(request, &Limits::default());
    }
}

/// Lists in messages are counted before they are read.
pub fn entries(message: &[u8]) {
    if let Ok(request) = GetCapacityRequest::decode(message) {
        counted(message, request.resource.len());
    }
    if let Ok(request) = GetServerCapacityRequest::decode(message) {
        counted(message, request.resource.len());
    }
    if let Ok(request) = ReleaseCapacityRequest::decode(message) {
        counted(message, request.resource_id.len());
    }
}

/// What managers of pools send.
pub fn pools(message: &[u8]) {
    let limits = Limits::default();
    if let Ok(request) = SetClientCapacityRequest::decode(message) {
        said(pools_convert::resource(request.resource_id, &limits));
        said(pools_convert::holder(request.holder, &limits));
        said(pools_convert::assigned(request.assigned));
    }
    if let Ok(request) = GetClientCapacityRequest::decode(message) {
        said(pools_convert::holder(request.holder, &limits));
    }
    if let Ok(request) = ListClientsRequest::decode(message) {
        assert!(pools_convert::page_size(request.page_size) <= 1_000);
        if let Ok(Some(place)) = pools_convert::place(&request.page_token) {
            let token = pools_convert::page_token(&place);
            let again = pools_convert::place(&token);
            assert!(again.is_ok_and(|again| again.as_ref() == Some(&place)), "{token}");
        }
        let _ = pools_convert::filter(request.filter());
    }
    if let Ok(request) = SubscribeRequest::decode(message) {
        said(pools_convert::event_filter(&request));
    }
    if let Ok(request) = ReportLoadRequest::decode(message) {
        said(pools_convert::load(request.load.as_ref()));
    }
    if let Ok(request) = SetAlarmRequest::decode(message) {
        said(pools_convert::mark(request.mark));
    }
}

/// What is refused is refused in words.
fn said<T>(read: Result<T, Invalid>) {
    if let Err(why) = read {
        assert!(!why.to_string().is_empty());
    }
}

/// The header `grpc-timeout`.
pub fn deadline(text: &[u8]) {
    if let Some(length) = HeaderValue::from_bytes(text).ok().and_then(|value| timeout(&value)) {
        assert!(length.as_secs() < 400_000_000_000, "it can be added to a clock");
        assert!(tokio::time::Instant::now().checked_add(length).is_some());
    }
}
