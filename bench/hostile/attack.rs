//! The attacks: what each does, how the server is started, and how far its memory may grow.

use std::{ops::Range, rc::Rc, time::Duration};

use bytes::Bytes;
use leaseway_proto::{
    doorman::{GetCapacityRequest, ResourceRequest},
    push::WatchRequest,
    status::GetStatusRequest,
};
use serde::Serialize;
use tokio::{
    io::{AsyncRead, AsyncReadExt as _, AsyncWriteExt as _, split},
    task::{JoinSet, spawn_local},
    time::{sleep, timeout},
};

use crate::{
    hostile::attacker::{
        Attacker, CONTINUATION, Caller, DATA, END_HEADERS, END_STREAM, HEADERS, PING, PREFACE, PRIORITY, RST_STREAM,
        WIDE, WINDOW_UPDATE, call_headers, frame, literal, opening, repeat, settings as settings_frame, stream,
    },
    load::connection::framed,
};

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, clap::ValueEnum)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Attack {
    /// Unread answers to GetStatus (a page of 1,000 resources each)
    UnreadStatus,
    /// Unread answers to GetCapacity (2,000 resources each)
    UnreadCapacity,
    /// Flow-control dribble: one WINDOW_UPDATE frame for each byte of an answer
    Dribble,
    /// Unfinished messages: 4 MiB without the last byte
    EndlessBodies,
    /// Length prefixes that announce a message of 4 GiB
    LongPrefix,
    /// Idle connections, which do not even begin a TLS handshake
    Silent,
    /// Connections that stop halfway through the HTTP/2 preface (after the TLS handshake)
    HalfPreface,
    /// Connections with a HEADERS frame that nothing follows
    HalfHeaders,
    /// Connections that are closed as soon as they are open (after the TLS handshake)
    Handshakes,
    /// Rapid reset: streams that are opened and reset immediately
    RapidReset,
    /// Endless CONTINUATION frames
    Continuation,
    /// HPACK bomb: one-byte headers that decompress to 4,000 bytes each
    HpackBomb,
    /// PING flood; the answers are read
    Ping,
    /// PING flood; the answers are not read
    PingUnread,
    /// SETTINGS flood: changes the windows of all streams and the header table
    Settings,
    /// PRIORITY flood
    Priority,
    /// Flood of empty DATA frames
    EmptyData,
    /// Unlimited client ids, with --max-clients 30000
    Holders,
    /// Unlimited resource names
    Resources,
    /// Unlimited client ids in a PRIORITY_POOL
    PoolPlaces,
    /// Watch streams of unlimited client ids, with --max-watchers 20000
    Watchers,
    /// Scrapes of /metrics with 1,000 resources, whose names are long and full of control characters
    Scrapes,
    /// Slow HTTP requests, one byte at a time (slowloris)
    SlowPages,
    /// Malformed gRPC calls, Protocol Buffers and HTTP/2 connections
    Malformed,
    /// Calls with unknown bearer tokens
    BadTokens,
    /// Calls with JWTs that have a wrong signature
    BadJwts,
}

/// The number of parallel connections in attacks that are not about connections.
const LANES: u32 = 4;

impl Attack {
    /// Runs the attack. Never returns.
    pub(crate) async fn make(self, attacker: Rc<Attacker>) {
        match self {
            Attack::UnreadStatus => status(attacker).await,
            Attack::UnreadCapacity => capacity(attacker).await,
            Attack::Dribble => dribble(attacker).await,
            Attack::EndlessBodies => endless(attacker).await,
            Attack::LongPrefix => long_prefix(attacker).await,
            Attack::Silent => silent(attacker).await,
            Attack::HalfPreface => half_preface(attacker).await,
            Attack::HalfHeaders => half_headers(attacker).await,
            Attack::Handshakes => handshakes(attacker).await,
            Attack::RapidReset => rapid_reset(attacker).await,
            Attack::Continuation => continuation(attacker).await,
            Attack::HpackBomb => hpack_bomb(attacker).await,
            Attack::Ping => ping(attacker, true).await,
            Attack::PingUnread => ping(attacker, false).await,
            Attack::Settings => settings(attacker).await,
            Attack::Priority => priority(attacker).await,
            Attack::EmptyData => empty_data(attacker).await,
            Attack::Holders => holders(attacker).await,
            Attack::Resources => resources(attacker).await,
            Attack::PoolPlaces => pool_places(attacker).await,
            Attack::Watchers => watchers(attacker).await,
            Attack::Scrapes => scrapes(attacker).await,
            Attack::SlowPages => slow(attacker).await,
            Attack::Malformed => malformed(attacker).await,
            Attack::BadTokens => unknown(attacker).await,
            Attack::BadJwts => wrongly_signed(attacker).await,
        }
    }

    /// Flags of the server with low limits, so that the attack fills its tables in seconds instead of minutes.
    pub(crate) fn flags(self) -> &'static [&'static str] {
        match self {
            Attack::Holders => &["--max-clients", "30000"],
            Attack::Watchers => &["--max-watchers", "20000"],
            _ => &[],
        }
    }

    /// Whether the server needs an access policy. Without one it ignores tokens.
    pub(crate) fn meets_policy(self) -> bool {
        matches!(self, Attack::BadTokens | Attack::BadJwts)
    }

    /// The maximum growth of the server's memory, in MiB.
    pub(crate) fn budget_mib(self) -> u64 {
        match self {
            // Four connections with up to 16 MiB of unsent answers each, plus memory that the allocator does not
            // return.
            Attack::UnreadStatus | Attack::UnreadCapacity | Attack::EndlessBodies => 250,
            Attack::HpackBomb | Attack::Malformed | Attack::Holders | Attack::Scrapes => 100,
            // 7,500 resources of 10 KiB each.
            Attack::Resources => 150,
            Attack::Silent | Attack::HalfPreface | Attack::HalfHeaders | Attack::Handshakes => 100,
            // 15,000 streams of 4 KiB each.
            Attack::Watchers => 150,
            _ => 60,
        }
    }
}

/// Runs [`LANES`] lanes in parallel.
async fn on_lanes<F: Future<Output = ()> + 'static>(attacker: Rc<Attacker>, lane: impl Fn(Rc<Attacker>, u32) -> F) {
    on_many(attacker, LANES, lane).await;
}

/// Runs `number` lanes in parallel.
async fn on_many<F: Future<Output = ()> + 'static>(
    attacker: Rc<Attacker>,
    number: u32,
    lane: impl Fn(Rc<Attacker>, u32) -> F,
) {
    let lanes: Vec<_> = (0..number).map(|number| spawn_local(lane(Rc::clone(&attacker), number))).collect();
    for lane in lanes {
        // A lane only ends when this task is aborted.
        let _ = lane.await;
    }
}

// Endless messages.

const LONG: u32 = 4 << 20;

/// The number of acts that a long message counts as: one for each 16 KiB.
const ACTS: u32 = LONG / (16 << 10);

/// The gRPC prefix of a message of this length.
fn prefix(length: u32) -> Bytes {
    [&[0][..], &length.to_be_bytes()].concat().into()
}

pub(crate) async fn endless(attacker: Rc<Attacker>) {
    let part = Bytes::from([&prefix(LONG)[..], &vec![0x12; LONG as usize - 1]].concat());
    on_lanes(attacker, |attacker, _| begin_and_wait(attacker, part.clone())).await;
}

async fn begin_and_wait(attacker: Rc<Attacker>, part: Bytes) {
    loop {
        let Some(mut caller) = Caller::open(&attacker, WIDE).await else { continue };
        let mut waiting = JoinSet::new();
        while let Ok((answer, mut body)) = caller.begin(caller.post(GET_CAPACITY, &[])).await {
            let _ = body.send_data(part.clone(), false);
            let own = Rc::clone(&attacker);
            waiting.spawn_local(async move {
                let _ = own.read(answer).await;
                drop(body);
            });
            while waiting.try_join_next().is_some() {}
            attacker.acts(ACTS).await;
        }
    }
}

pub(crate) async fn long_prefix(attacker: Rc<Attacker>) {
    on_lanes(attacker, |attacker, _| {
        let own = Rc::clone(&attacker);
        repeat(attacker, WIDE, async move |caller| {
            let (answer, mut body) = caller.begin(caller.post(GET_CAPACITY, &[])).await?;
            let _ = body.send_data(prefix(u32::MAX), false);
            own.read(answer).await
        })
    })
    .await;
}

// Floods of cheap frames.

/// The number of frames per write.
const FRAMES: u32 = 10;

/// The number of writes after which a connection is replaced, because stream ids have only 31 bits.
const PARTS: u32 = 50_000_000;

/// Writes `begin` and then one part after the other. Each part counts as `acts`. Reconnects when the server closes the
/// connection.
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
            // Flush, because TLS buffers writes.
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

/// The flow-control window for each answer.
const WINDOW: u32 = 1 << 16;

/// The stream ids of part `n`.
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
    // The length 4,000 as an HPACK integer: 127, and a continuation of 3,873.
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

// Malformed input.

const CALL: &[(&str, &str)] = &[("content-type", "application/grpc"), ("te", "trailers")];

/// Method, path, headers and body.
type OddCall = (&'static str, &'static str, &'static [(&'static str, &'static str)], &'static [u8]);

/// Malformed calls that no client makes.
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
            let wire = if n < 3 { attacker.connect_plain().await } else { attacker.connect().await };
            let Some(mut wire) = wire else { continue };
            let _ = wire.write_all(&beginning).await;
            let _ = wire.flush().await;
            // The server answers, hangs up, or waits for more.
            let _ = timeout(std::time::Duration::from_millis(20), wire.read(&mut [0; 256])).await;
        }
    }
}

// Attacks on the listener for pages.

/// The number of connections: more than the server accepts for pages by default.
const CONNECTIONS: u32 = 400;

/// The pause between two bytes.
const SLOWLY: Duration = Duration::from_millis(100);

pub(crate) async fn scrapes(attacker: Rc<Attacker>) {
    let message = framed(&asks("filler".into(), entries(&"\u{1b}[31m\n".repeat(40), 0..1000)));
    loop {
        let Some(mut caller) = Caller::open(&attacker, WIDE).await else { continue };
        if caller.ask(caller.post(GET_CAPACITY, &[]), message.clone()).await.is_ok() {
            break;
        }
    }
    on_lanes(attacker, |attacker, _| async move {
        loop {
            let Some(mut wire) = attacker.connect_to_pages().await else { continue };
            let _ = wire.write_all(b"GET /metrics HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n").await;
            let _ = wire.flush().await;
            let mut buffer = vec![0; 1 << 16];
            while wire.read(&mut buffer).await.is_ok_and(|read| read > 0) {}
        }
    })
    .await;
}

pub(crate) async fn slow(attacker: Rc<Attacker>) {
    on_many(attacker, CONNECTIONS, |attacker, _| async move {
        loop {
            let Some(mut wire) = attacker.connect_to_pages().await else { continue };
            let head = b"GET /metrics HTTP/1.1\r\nHost: ".iter().chain(std::iter::repeat(&b'h'));
            for byte in head {
                attacker.acts(1).await;
                if wire.write_all(&[*byte]).await.is_err() || wire.flush().await.is_err() {
                    attacker.was_ended();
                    break;
                }
                sleep(SLOWLY).await;
            }
        }
    })
    .await;
}

// Idle connections.

pub(crate) async fn silent(attacker: Rc<Attacker>) {
    let connections = attacker.plan.connections;
    on_many(attacker, connections, |attacker, _| say(attacker, true, Vec::new())).await;
}

pub(crate) async fn half_preface(attacker: Rc<Attacker>) {
    let connections = attacker.plan.connections;
    on_many(attacker, connections, |attacker, _| say(attacker, false, PREFACE[..PREFACE.len() / 2].to_vec())).await;
}

pub(crate) async fn half_headers(attacker: Rc<Attacker>) {
    let connections = attacker.plan.connections;
    let said = [opening(0), frame(HEADERS, 0, 1, &call_headers(GET_CAPACITY))].concat();
    on_many(attacker, connections, |attacker, _| say(attacker, false, said.clone())).await;
}

/// Sends these bytes, and waits until the server closes the connection. `barely`: without a TLS handshake.
async fn say(attacker: Rc<Attacker>, barely: bool, said: Vec<u8>) {
    loop {
        let wire = if barely { attacker.connect_plain().await } else { attacker.connect().await };
        let Some(mut wire) = wire else { continue };
        let mut buffer = [0; 256];
        if wire.write_all(&said).await.is_ok() && wire.flush().await.is_ok() {
            while wire.read(&mut buffer).await.is_ok_and(|read| read > 0) {}
        }
        attacker.was_ended();
    }
}

pub(crate) async fn handshakes(attacker: Rc<Attacker>) {
    on_lanes(attacker, |attacker, _| async move {
        loop {
            let Some(mut wire) = attacker.connect().await else { continue };
            let _ = wire.write_all(&opening(0)).await;
            let _ = wire.flush().await;
            // Read the SETTINGS frame of the server, so that the handshake is complete.
            let _ = wire.read(&mut [0; 64]).await;
        }
    })
    .await;
}

// Attacks that fill tables of the server.

pub(crate) const GET_CAPACITY: &str = "/doorman.Capacity/GetCapacity";
/// A PRIORITY_POOL in the configuration of the target.
const POOL: &str = "pool-0";
const WATCH: &str = "/leaseway.push.v1.Push/Watch";

/// The number of new resources in one request.
const ENTRIES: u32 = 100;

/// The number of Watch streams on one connection.
const STREAMS: usize = 1000;

pub(crate) fn asks(client: String, resource: Vec<ResourceRequest>) -> GetCapacityRequest {
    GetCapacityRequest { client_id: Some(client), resource, ..GetCapacityRequest::default() }
}

/// Entries for resources with these numbers. Names begin with the number, so that they differ even if they are
/// truncated.
pub(crate) fn entries(name: &str, numbers: Range<u32>) -> Vec<ResourceRequest> {
    numbers.map(|n| entry(format!("{n:05}{name}"))).collect()
}

fn entry(resource: String) -> ResourceRequest {
    ResourceRequest { resource_id: Some(resource), priority: Some(0), wants: Some(1.0), ..ResourceRequest::default() }
}

pub(crate) async fn holders(attacker: Rc<Attacker>) {
    new_clients(attacker, "resource-0").await;
}

pub(crate) async fn pool_places(attacker: Rc<Attacker>) {
    new_clients(attacker, POOL).await;
}

async fn new_clients(attacker: Rc<Attacker>, resource: &'static str) {
    on_lanes(attacker, |attacker, lane| {
        let mut n = 0;
        repeat(attacker, WIDE, async move |caller| {
            n += 1;
            let request = asks(format!("attacker-{lane}-{n}"), vec![entry(resource.into())]);
            caller.ask(caller.post(GET_CAPACITY, &[]), framed(&request)).await
        })
    })
    .await;
}

pub(crate) async fn resources(attacker: Rc<Attacker>) {
    on_lanes(attacker, |attacker, lane| {
        let (mut n, pace) = (0, Rc::clone(&attacker));
        repeat(attacker, WIDE, async move |caller| {
            n += ENTRIES;
            pace.acts(ENTRIES / 20).await;
            let request = asks(format!("attacker-{lane}"), entries(&format!("-{lane}"), n..n + ENTRIES));
            caller.ask(caller.post(GET_CAPACITY, &[]), framed(&request)).await
        })
    })
    .await;
}

/// Opens Watch streams, and continues when the server refuses more.
pub(crate) async fn watchers(attacker: Rc<Attacker>) {
    on_many(attacker, 20, |attacker, lane| async move {
        let mut n = 0;
        loop {
            let Some(mut caller) = Caller::open(&attacker, WIDE).await else { continue };
            let mut streams = JoinSet::new();
            while let Ok((answer, mut body)) = caller.begin(caller.post(WATCH, &[])).await {
                n += 1;
                let client_id = Some(format!("attacker-{lane}-{n}"));
                let _ = body.send_data(framed(&WatchRequest { client_id, server_id: None }), true);
                let own = Rc::clone(&attacker);
                streams.spawn_local(async move { own.read(answer).await });
                while streams.try_join_next().is_some() {}
                if streams.len() >= STREAMS {
                    let _ = streams.join_next().await;
                }
            }
        }
    })
    .await;
}

// Callers with invalid credentials.

pub(crate) async fn unknown(attacker: Rc<Attacker>) {
    with_tokens(attacker, |n| format!("attacker-{n:032}")).await;
}

/// `{"alg":"ES256","kid":"1"}` and `{"sub":"alice","iss":"bench","aud":"bench","exp":9999999999}`, followed by a
/// signature of 64 bytes.
const JWT: &str = "eyJhbGciOiJFUzI1NiIsImtpZCI6IjEifQ.\
                   eyJzdWIiOiJhbGljZSIsImlzcyI6ImJlbmNoIiwiYXVkIjoiYmVuY2giLCJleHAiOjk5OTk5OTk5OTl9";

pub(crate) async fn wrongly_signed(attacker: Rc<Attacker>) {
    // 86 digits of base64 are 64 bytes and four bits that have to be 0.
    with_tokens(attacker, |n| format!("{JWT}.{n:085}A")).await;
}

async fn with_tokens(attacker: Rc<Attacker>, token: fn(u64) -> String) {
    let message = framed(&asks("alice".into(), entries("", 0..1)));
    on_lanes(attacker, |attacker, lane| {
        let (message, mut n) = (message.clone(), u64::from(lane) << 32);
        repeat(attacker, WIDE, async move |caller| {
            n += 1;
            let bearer = format!("Bearer {}", token(n));
            caller.ask(caller.post(GET_CAPACITY, &[("authorization", &bearer)]), message.clone()).await
        })
    })
    .await;
}

// Answers that are not read.

const GET_STATUS: &str = "/leaseway.status.v1.Status/GetStatus";

/// The number of resources in a long call.
const LONG_ENTRIES: u32 = 2000;

/// The maximum number of pending calls on one connection.
const MAX_CALLS: usize = 1000;

/// The interval at which a lane checks whether it can begin more calls.
const PAUSE: Duration = Duration::from_millis(20);

pub(crate) async fn status(attacker: Rc<Attacker>) {
    long_page(&attacker).await;
    on_lanes(attacker, |attacker, _| unread(attacker, GET_STATUS, page(), 0)).await;
}

pub(crate) async fn capacity(attacker: Rc<Attacker>) {
    let of = |number: u32| framed(&asks(format!("unread-{number}"), entries("unread", 0..LONG_ENTRIES)));
    on_lanes(attacker, |attacker, number| unread(attacker, GET_CAPACITY, of(number), LONG_ENTRIES / 20)).await;
}

/// Each WINDOW_UPDATE has a payload of four bytes, and makes the server send a DATA frame of ten bytes.
pub(crate) async fn dribble(attacker: Rc<Attacker>) {
    long_page(&attacker).await;
    on_lanes(attacker, |attacker, _| {
        let begin = [
            opening(0),
            frame(HEADERS, END_HEADERS, 1, &call_headers(GET_STATUS)),
            frame(DATA, END_STREAM, 1, &page()),
        ];
        let more = frame(WINDOW_UPDATE, 0, 1, &1_u32.to_be_bytes()).repeat(10);
        flood(attacker, true, begin.concat(), 10, move |_| more.clone())
    })
    .await;
}

fn page() -> Bytes {
    framed(&GetStatusRequest { page_size: 1000, ..GetStatusRequest::default() })
}

/// Creates 1,000 resources with names of the maximum length.
async fn long_page(attacker: &Rc<Attacker>) {
    let message = framed(&asks("filler".into(), entries(&"x".repeat(250), 0..1000)));
    loop {
        let Some(mut caller) = Caller::open(attacker, WIDE).await else { continue };
        if caller.ask(caller.post(GET_CAPACITY, &[]), message.clone()).await.is_ok() {
            return;
        }
    }
}

/// Makes calls whose answers it does not read. Each call counts as `more` additional acts.
async fn unread(attacker: Rc<Attacker>, path: &'static str, message: Bytes, more: u32) {
    loop {
        let Some(mut caller) = Caller::open(&attacker, 0).await else { continue };
        let mut waiting = JoinSet::new();
        while let Ok((answer, mut body)) = caller.begin(caller.post(path, &[])).await {
            // Fails if the call has been refused already.
            let _ = body.send_data(message.clone(), true);
            let own = Rc::clone(&attacker);
            waiting.spawn_local(async move { own.leave_unread((answer, body)).await });
            attacker.acts(more).await;
            while waiting.try_join_next().is_some() {}
            while waiting.len() >= MAX_CALLS && !caller.has_ended() {
                sleep(PAUSE).await;
                while waiting.try_join_next().is_some() {}
            }
        }
    }
}
