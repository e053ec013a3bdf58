//! Malformed HTTP/2 frames close at most their own connection.

use std::io::{Read as _, Write as _};

use leaseway_proto::doorman::GetCapacityRequest;

use super::{GET_CAPACITY, Ipv4Addr, Victim};
use crate::harness::{
    doorman::{entry, request},
    http2::{connect_tcp, framed},
};

const CONNECTIONS: u64 = 400;

/// The connection preface of a client.
const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";

const DATA: u8 = 0;
const HEADERS: u8 = 1;
const SETTINGS: u8 = 4;
const CONTINUATION: u8 = 9;
/// One more than the number of frame types.
const KINDS: u8 = 11;

const END_STREAM: u8 = 1;
const END_HEADERS: u8 = 4;

fn frame(kind: u8, flags: u8, stream: u32, payload: &[u8]) -> Vec<u8> {
    let length = u32::try_from(payload.len()).unwrap().to_be_bytes();
    [&length[1..], &[kind, flags], &stream.to_be_bytes(), payload].concat()
}

/// The headers of a call, as HPACK literals.
fn headers(path: &str) -> Vec<u8> {
    // `:method: POST`, `:scheme: http`.
    let mut block = vec![0x83, 0x86];
    for (name, value) in [(":path", path), (":authority", "a"), ("content-type", "application/grpc")] {
        block.push(0);
        for text in [name, value] {
            block.push(u8::try_from(text.len()).unwrap());
            block.extend_from_slice(text.as_bytes());
        }
    }
    block
}

/// The bytes of one connection: valid calls mixed with random frames.
fn conversation(random: &mut fastrand::Rng, asks: &GetCapacityRequest) -> Vec<u8> {
    let mut sent = Vec::new();
    if random.u8(..8) > 0 {
        sent.extend_from_slice(PREFACE);
        sent.extend(frame(SETTINGS, 0, 0, &[]));
    }
    for number in 0..random.u32(1..30) {
        let stream = if random.bool() { 2 * number + 1 } else { random.choice([0, 1, 2, 7, u32::MAX >> 1]).unwrap() };
        let noise: Vec<u8> = (0..random.usize(..60)).map(|_| random.u8(..)).collect();
        let next = match random.u8(..8) {
            0..3 => frame(HEADERS, END_HEADERS | random.u8(..2), stream, &headers(GET_CAPACITY)),
            3..5 => frame(DATA, END_STREAM & random.u8(..), stream, &framed(asks)),
            5 => frame(random.choice([HEADERS, CONTINUATION]).unwrap(), random.u8(..), stream, &noise),
            _ => frame(random.u8(..KINDS), random.u8(..), stream, &noise),
        };
        let from = sent.len();
        sent.extend(next);
        if random.u8(..8) == 0 {
            let at = random.usize(from..sent.len());
            sent[at] = random.u8(..);
        }
    }
    sent
}

#[test]
fn random_frames_close_only_their_own_connection() {
    let victim = Victim::with_flags(&[]);
    let asks = request("a stranger", vec![entry("mysql", 1.0)]);
    for seed in 0..CONNECTIONS {
        let mut random = fastrand::Rng::with_seed(seed);
        // Each connection has its own address, because the rate of connections per address is limited.
        let from = Ipv4Addr::new(127, 8, random.u8(..), random.u8(1..255));
        let mut stream = connect_tcp(victim.server.grpc(), Some(from.into()));
        // The server may have closed the connection already.
        let _ = stream.write_all(&conversation(&mut random, &asks));
        let _ = stream.shutdown(std::net::Shutdown::Write);
        let mut answer = Vec::new();
        let ended = stream.read_to_end(&mut answer);
        let may_be = |error: &std::io::Error| error.kind() == std::io::ErrorKind::ConnectionReset;
        assert!(ended.as_ref().err().is_none_or(may_be), "seed {seed}: {ended:?}");
    }
    victim.serves_others();
    assert!(!victim.server.log().contains("panicked"), "{}", victim.server.log());
    assert!(victim.grown() < 60, "{} MiB", victim.grown());
}
