//! Malformed input.

use std::rc::Rc;

use bytes::Bytes;
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    time::timeout,
};

use crate::hostile::{
    attack::{on_lanes, tables::GET_CAPACITY},
    attacker::Attacker,
    caller::{Caller, WIDE},
    frames::{DATA, END_HEADERS, HEADERS, WINDOW_UPDATE, call_headers, frame, opening},
};

const CALL: &[(&str, &str)] = &[("content-type", "application/grpc"), ("te", "trailers")];

/// Method, path, headers and body.
type OddCall = (&'static str, &'static str, &'static [(&'static str, &'static str)], &'static [u8]);

/// Calls that no client makes.
const CALLS: &[OddCall] = &[
    ("POST", "/doorman.Capacity/NoSuchMethod", CALL, &[0; 5]),
    ("POST", "/", CALL, &[0; 5]),
    ("POST", "/../../etc/passwd", CALL, &[0; 5]),
    ("GET", GET_CAPACITY, CALL, &[]),
    ("PUT", GET_CAPACITY, CALL, &[0; 5]),
    ("POST", GET_CAPACITY, &[], &[0; 5]),
    ("POST", GET_CAPACITY, &[("content-type", "text/html")], b"<html>"),
    ("POST", GET_CAPACITY, &[("content-type", "application/grpc"), ("grpc-encoding", "no-such")], &[1, 0, 0, 0, 0]),
    ("POST", GET_CAPACITY, &[("content-type", "application/grpc"), ("grpc-timeout", "99999999999999H")], &[0; 5]),
    ("POST", GET_CAPACITY, CALL, &[]),
    ("POST", GET_CAPACITY, CALL, &[0, 0, 0]),
    // A length that does not match the message.
    ("POST", GET_CAPACITY, CALL, &[0, 0, 0, 0, 9, 1]),
    ("POST", GET_CAPACITY, CALL, &[0, 0, 0, 0, 1, 1, 1, 1]),
    // Compressed data that is not compressed, and unknown flags.
    ("POST", GET_CAPACITY, CALL, &[1, 0, 0, 0, 2, 31, 139]),
    ("POST", GET_CAPACITY, CALL, &[77, 0, 0, 0, 0]),
    // Fields of wrong types, lengths beyond the end, unterminated groups, varints of eleven bytes.
    ("POST", GET_CAPACITY, CALL, &[0, 0, 0, 0, 2, 0x08, 0xff]),
    ("POST", GET_CAPACITY, CALL, &[0, 0, 0, 0, 6, 0x0a, 0xff, 0xff, 0xff, 0xff, 0x0f]),
    ("POST", GET_CAPACITY, CALL, &[0, 0, 0, 0, 4, 0x13, 0x13, 0x13, 0x13]),
    ("POST", GET_CAPACITY, CALL, &[0, 0, 0, 0, 11, 255, 255, 255, 255, 255, 255, 255, 255, 255, 255, 1]),
    // No client id, and one that is not UTF-8.
    ("POST", GET_CAPACITY, CALL, &[0; 5]),
    ("POST", GET_CAPACITY, CALL, &[0, 0, 0, 0, 4, 0x0a, 2, 0xff, 0xfe]),
    // Two messages in a unary call.
    ("POST", GET_CAPACITY, CALL, &[0; 10]),
];

pub(crate) async fn malformed(attacker: Rc<Attacker>) {
    on_lanes(attacker, |attacker, lane| async move {
        match lane {
            0 => bytes(attacker).await,
            _ => calls(attacker).await,
        }
    })
    .await;
}

async fn calls(attacker: Rc<Attacker>) {
    loop {
        let Some(mut caller) = Caller::open(&attacker, WIDE).await else { continue };
        for (method, path, headers, body) in CALLS.iter().cycle() {
            let request = caller.request(method, path, headers);
            if caller.ask(request, Bytes::from_static(body)).await.is_err() {
                break;
            }
        }
    }
}

/// Connections that do not speak HTTP/2, or break its rules.
async fn bytes(attacker: Rc<Attacker>) {
    let mut random = fastrand::Rng::with_seed(1);
    let headers = call_headers(GET_CAPACITY);
    loop {
        let noise: Vec<u8> = std::iter::repeat_with(|| random.u8(..)).take(1000).collect();
        let beginnings = [
            b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n".to_vec(),
            // A TLS handshake that fails. With TLS, one inside TLS.
            [&[0x16, 3, 1, 2, 0][..], &noise].concat(),
            noise.clone(),
            [opening(0), noise].concat(),
            // An unknown stream, decreasing stream ids, a window that is too large, a frame that is too long.
            [opening(0), frame(DATA, 0, 7, &[0; 9])].concat(),
            [opening(0), frame(HEADERS, END_HEADERS, 5, &headers), frame(HEADERS, END_HEADERS, 3, &headers)].concat(),
            [opening(0), frame(WINDOW_UPDATE, 0, 0, &0x7fff_ffff_u32.to_be_bytes())].concat(),
            [opening(0), frame(HEADERS, END_HEADERS, 1, &vec![0x82; 20_000])].concat(),
        ];
        for (n, beginning) in beginnings.into_iter().enumerate() {
            let wire = if n < 3 { attacker.connect_barely().await } else { attacker.connect().await };
            let Some(mut wire) = wire else { continue };
            let _ = wire.write_all(&beginning).await;
            let _ = wire.flush().await;
            // The server answers, hangs up, or waits for more.
            let _ = timeout(std::time::Duration::from_millis(20), wire.read(&mut [0; 256])).await;
        }
    }
}
