//! Fuzz targets: requests of clients and operators, and configuration files. Each function panics if parsing breaks a
//! rule.

use std::pin::pin;

use futures_util::FutureExt as _;
use http::HeaderValue;
use http_body_util::Full;
use leaseway_core::{
    policy::settings::{AlgorithmKind, Settings},
    resource::{Answer, Request, Resource, ResourceOptions, RoundScratch, invariant, supply::Source},
    types::{Amount, Epoch, Millis, Now},
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
    dispatch::{
        request_body::{self, EntryCount},
        timeout,
    },
    pools::convert as pools_convert,
    problems::Invalid,
};
use crate::{
    auth,
    config::{self, limits::Limits},
};

const MAX_BYTES: usize = 1 << 16;

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

/// Parses with this server's reader. It only yields between chunks of long messages.
fn decoded<M: Message + Default>(framed: &[u8]) -> Result<M, Status> {
    let mut parsing = pin!(request_body::parse::<M>(framed, MAX_BYTES));
    loop {
        if let Some(parsed) = parsing.as_mut().now_or_never() {
            return parsed;
        }
    }
}

/// Parses a body with the readers of this server and of tonic, and compares the results. tonic does not notice that a
/// body ends within a later message.
fn parse_and_compare<M: Message + Default + 'static>(framed: &[u8]) -> Option<M> {
    let ours = decoded::<M>(framed);
    let decoder = ProstCodec::<M, M>::default().decoder();
    let body = Full::new(bytes::Bytes::copy_from_slice(framed));
    let mut stream = Streaming::new_request(decoder, body, None, Some(MAX_BYTES));
    let mut first = None;
    let theirs = loop {
        match stream.message().now_or_never().expect("the body is complete") {
            Ok(Some(message)) => first = first.or(Some(message)),
            Ok(None) => break first,
            Err(_) => break None,
        }
    };
    // Compared as bytes, because NaN differs from itself.
    let bytes = |message: &M| message.encode_to_vec();
    if ours.is_err() && breaks_off(framed) {
        return None;
    }
    assert_eq!(ours.as_ref().ok().map(bytes), theirs.as_ref().map(bytes), "tonic parses something else");
    ours.ok()
}

/// Checks that no entry is missed before decoding.
fn check_count(message: &[u8], outer: usize) {
    let mut count = EntryCount::default();
    for part in message.chunks(7) {
        count.consume(part);
    }
    assert!(count.entries() >= outer, "{} of {outer} counted", count.entries());
}

/// GetCapacity: the body of a request.
pub fn capacity(framed: &[u8]) {
    let Some(request) = parse_and_compare::<GetCapacityRequest>(framed) else { return };
    if let Ok(parsed) = convert::get_capacity(request, &Limits::default()) {
        decide(parsed);
    }
}

/// GetServerCapacity: the body of a request.
pub fn node_capacity(framed: &[u8]) {
    let Some(request) = parse_and_compare::<GetServerCapacityRequest>(framed) else { return };
    if let Ok(mut parsed) = convert::get_server_capacity(request, &Limits::default()) {
        parsed.requests.retain(|request| !convert::asks_for_nothing(request));
        decide(parsed);
    }
}

/// ReleaseCapacity: the body of a request.
pub fn release(framed: &[u8]) {
    let Some(request) = parse_and_compare::<ReleaseCapacityRequest>(framed) else { return };
    if let Ok(parsed) = convert::release_capacity(request, &Limits::default()) {
        decide(parsed);
    }
}

/// Decides valid requests three times with a resource of each kind, and checks the invariants of the core.
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
            invariant::held_within_capacity(&resource, before).expect("requests do not raise what is held");
            for answer in &answers {
                if let Answer::Granted(lease) = answer {
                    invariant::lease_within_bounds(lease, None, at, None).expect("leases are bounded");
                }
                let _ = convert::resource_response("r".to_owned(), answer);
                let _ = convert::server_response("r".to_owned(), answer);
            }
            resource.tick(at);
        }
    }
}

fn resource(kind: AlgorithmKind) -> Resource {
    let capacity = Amount::new(100.0).expect("finite");
    Resource::new(ResourceOptions {
        settings: Settings::new(kind, capacity).into(),
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
    if let Some(request) = parse_and_compare::<WatchRequest>(framed) {
        let _ = convert::watch(request, &Limits::default());
    }
}

/// [`EntryCount`] on arbitrary messages.
pub fn entries(message: &[u8]) {
    if let Ok(request) = GetCapacityRequest::decode(message) {
        check_count(message, request.resource.len());
    }
    if let Ok(request) = GetServerCapacityRequest::decode(message) {
        check_count(message, request.resource.len());
    }
    if let Ok(request) = ReleaseCapacityRequest::decode(message) {
        check_count(message, request.resource_id.len());
    }
}

/// Requests of the pool service.
pub fn pools(message: &[u8]) {
    let limits = Limits::default();
    if let Ok(request) = SetClientCapacityRequest::decode(message) {
        check_message(pools_convert::resource(request.resource_id, &limits));
        check_message(pools_convert::holder(request.holder, &limits));
        check_message(pools_convert::assigned(request.assigned));
    }
    if let Ok(request) = GetClientCapacityRequest::decode(message) {
        check_message(pools_convert::holder(request.holder, &limits));
    }
    if let Ok(request) = ListClientsRequest::decode(message) {
        if let Ok(Some(start)) = pools_convert::page_start(&request.page_token) {
            let token = pools_convert::page_token(&start);
            let again = pools_convert::page_start(&token);
            assert!(again.is_ok_and(|again| again.as_ref() == Some(&start)), "{token}");
        }
        let _ = pools_convert::filter(request.filter());
    }
    if let Ok(request) = SubscribeRequest::decode(message) {
        check_message(pools_convert::event_filter(&request));
    }
    if let Ok(request) = ReportLoadRequest::decode(message) {
        check_message(pools_convert::load(request.load.as_ref()));
    }
    if let Ok(request) = SetAlarmRequest::decode(message) {
        check_message(pools_convert::mark(request.mark));
    }
}

/// Checks that a refusal has a message.
fn check_message<T>(read: Result<T, Invalid>) {
    if let Err(why) = read {
        assert!(!why.to_string().is_empty());
    }
}

/// The header `grpc-timeout`. A parsed timeout must not overflow a clock.
pub fn deadline(text: &[u8]) {
    if let Some(length) = HeaderValue::from_bytes(text).ok().and_then(|value| timeout(&value)) {
        assert!(length.as_secs() < 400_000_000_000, "it does not overflow a clock");
        assert!(tokio::time::Instant::now().checked_add(length).is_some());
    }
}

/// A configuration file: mistakes name their place, and a valid file stays valid.
pub fn configuration(bytes: &[u8]) {
    match config::parse_bytes("fuzz.yaml", bytes) {
        Err(error) => {
            let error = error.to_string();
            assert!(error.lines().count() > 0 && error.starts_with("fuzz.yaml"), "{error}");
        }
        Ok(loaded) => {
            let again = config::parse_bytes("fuzz.yaml", loaded.text.as_bytes()).expect("valid before");
            assert_eq!(loaded.warnings, again.warnings);
        }
    }
}

/// A file of tokens.
pub fn tokens(bytes: &[u8]) {
    if let Ok(text) = str::from_utf8(bytes) {
        auth::fuzzing::tokens(text);
    }
}

/// A JWT. No input is valid, because the signing key is unknown.
pub fn jwt(bytes: &[u8]) {
    if let Ok(text) = str::from_utf8(bytes) {
        auth::fuzzing::jwt(text);
    }
}
