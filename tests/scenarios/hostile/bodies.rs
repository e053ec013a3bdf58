//! Requests that never end.

use prost::bytes::Bytes;
use tonic::Code;

use super::{GET_CAPACITY, GET_STATUS, Victim};
use crate::harness::{http2::Http2, wait::eventually};

const METHODS: [&str; 6] = [
    GET_CAPACITY,
    GET_STATUS,
    "/doorman.Capacity/GetServerCapacity",
    "/doorman.Capacity/ReleaseCapacity",
    "/leaseway.push.v1.Push/Watch",
    "/grpc.health.v1.Health/Check",
];
/// This service ends its answers without an error even if a request is incomplete.
const REFLECTION: &str = "/grpc.reflection.v1.ServerReflection/ServerReflectionInfo";

/// The gRPC prefix of a message of this length.
fn prefix(length: u32) -> Bytes {
    [&[0][..], &length.to_be_bytes()].concat().into()
}

#[test]
fn an_oversized_message_is_refused_as_soon_as_its_length_arrives() {
    let victim = Victim::with_flags(&["--max-message-bytes", "1000"]);
    let mut stranger = Http2::connect(victim.server.grpc(), None, 1 << 16);
    for path in METHODS {
        let mut call = stranger.begin(path, &[]);
        // The message itself is never sent.
        call.send(prefix(1001), false);
        let ended = call.ends();
        assert_eq!(ended.code, Code::OutOfRange as i32, "{path}: {ended:?}");
    }
    victim.serves_others();
}

#[test]
fn an_unfinished_request_times_out() {
    let victim = Victim::with_flags(&["--request-secs", "1"]);
    let mut stranger = Http2::connect(victim.server.grpc(), None, 1 << 16);
    for path in METHODS {
        let mut half = stranger.begin(path, &[]);
        half.send(prefix(100), false);
        let nothing = stranger.begin(path, &[]);
        for call in [half, nothing] {
            let ended = call.ends();
            assert_eq!(ended.code, Code::DeadlineExceeded as i32, "{path}: {ended:?}");
            assert!(ended.message.contains("--request-secs"), "{path}: {ended:?}");
        }
        // Here the caller's deadline is earlier than the server's.
        let mut hasty = stranger.begin(path, &[("grpc-timeout", "10m")]);
        hasty.send(prefix(100), false);
        assert_eq!(hasty.ends().code, Code::Cancelled as i32, "{path}");
    }
    let mut half = stranger.begin(REFLECTION, &[]);
    half.send(prefix(100), false);
    half.ends();
    victim.holds_nothing();
    victim.serves_others();
}

#[test]
fn unfinished_long_requests_stay_within_the_memory_of_a_connection() {
    for path in [GET_CAPACITY, "/doorman.Capacity/ReleaseCapacity"] {
        let victim = Victim::with_flags(&["--request-secs", "5"]);
        let mut stranger = Http2::connect(victim.server.grpc(), None, 1 << 16);
        // A single entry with a long name, because many entries would exceed another limit.
        let name = [0x12, 0xf0, 0xff, 0xff, 0x01, 0x0a, 0xf0, 0xff, 0xff, 0x01];
        let part = Bytes::from([&name[..], &vec![0; (4 << 20) - 1 - name.len()]].concat());
        let calls: Vec<_> = (0..40)
            .map(|_| {
                let mut call = stranger.begin(path, &[]);
                call.send(prefix(4 << 20), false);
                call.send(part.clone(), false);
                call
            })
            .collect();
        victim.serves_others();
        let ended: Vec<i32> = calls.into_iter().map(|call| call.ends().code).collect();
        let count = |code: Code| ended.iter().filter(|ended| **ended == code as i32).count();
        // Calls beyond the budget are refused immediately. The others reach their deadline.
        assert!(count(Code::ResourceExhausted) > 0, "{ended:?}");
        assert_eq!(count(Code::ResourceExhausted) + count(Code::DeadlineExceeded), 40, "{ended:?}");
        let grown = victim.grown();
        assert!(grown < 150, "{path}: {grown} MiB");
        eventually("the buffers are freed", || (victim.metric("leaseway_waiting_bytes") == 0.0).then_some(()));
    }
}
