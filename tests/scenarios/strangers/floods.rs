//! Frames that cost nothing to send. What has always held.

use super::{GET_CAPACITY, Victim};
use crate::harness::http2::{
    CONTINUATION, END_HEADERS, END_STREAM, Frames, HEADERS, PING, RST_STREAM, SETTINGS, call_headers, frame, literal,
};

/// Sends it until the server hangs up, but not for ever; then others are served, and memory has not grown by more.
fn flood(most_mib: u64, mut part: impl FnMut(u32) -> Vec<u8>) {
    let victim = Victim::with_flags(&[]);
    let mut stranger = Frames::connect(victim.server.grpc(), None);
    for n in 0..2_000 {
        if !stranger.send_all(&part(n)) {
            break;
        }
        if n % 500 == 0 {
            victim.serves_others();
        }
    }
    victim.serves_others();
    stranger.drain();
    let grown = victim.grown();
    assert!(grown < most_mib, "{grown} MiB");
    drop(stranger);
    victim.serves_others();
}

/// The streams of a client, ten to a part.
fn streams(n: u32) -> impl Iterator<Item = u32> {
    (0..10).map(move |m| 2 * (10 * n + m) + 1)
}

#[test]
fn requests_that_are_taken_back_at_once_take_no_memory() {
    let headers = call_headers(GET_CAPACITY);
    flood(60, |n| {
        let both = |stream| {
            [frame(HEADERS, END_HEADERS, stream, &headers), frame(RST_STREAM, 0, stream, &8_u32.to_be_bytes())].concat()
        };
        streams(n).flat_map(both).collect()
    });
}

#[test]
fn headers_that_go_on_for_ever_take_no_memory() {
    let mut more = Vec::new();
    (0..100).for_each(|n| literal(&mut more, &format!("x-{n}"), &"v".repeat(100)));
    flood(60, |n| match n {
        0 => frame(HEADERS, 0, 1, &call_headers(GET_CAPACITY)),
        _ => frame(CONTINUATION, 0, 1, &more),
    });
}

#[test]
fn pings_and_settings_take_no_memory() {
    flood(60, |_| frame(PING, 0, 0, &[7; 8]).repeat(100));
    // Each a larger window for streams, and a table for headers of another size.
    flood(60, |n| {
        let settings = [&[0, 4][..], &(n + 65_535).to_be_bytes(), &[0, 1], &(n % 4096).to_be_bytes()].concat();
        frame(SETTINGS, 0, 0, &settings).repeat(100)
    });
}

#[test]
fn headers_that_unpack_to_much_take_no_memory() {
    // A header of 4,000 bytes is remembered once, and then named by a byte, 3,000 times in each request.
    let mut once = call_headers(GET_CAPACITY);
    once.extend_from_slice(&[0x40, 1, b'x']);
    // 4,000 in HPACK: 127 and 3,873 more.
    once.extend_from_slice(&[0x7f, 0xa1, 0x1e]);
    once.extend_from_slice(&[b'v'; 4000]);
    let mut bomb = call_headers(GET_CAPACITY);
    bomb.resize(bomb.len() + 3000, 0x80 | 62);
    flood(80, |n| match n {
        0 => frame(HEADERS, END_HEADERS | END_STREAM, 1, &once),
        _ => streams(n).flat_map(|stream| frame(HEADERS, END_HEADERS | END_STREAM, stream, &bomb)).collect(),
    });
}
