//! Answers that are requested and not read.

use std::{rc::Rc, time::Duration};

use bytes::Bytes;
use leaseway_proto::status::GetStatusRequest;
use tokio::{task::JoinSet, time::sleep};

use crate::{
    hostile::{
        attack::{
            floods::flood,
            on_lanes,
            tables::{GET_CAPACITY, asks, entries},
        },
        attacker::Attacker,
        caller::{Caller, WIDE},
        frames::{DATA, END_HEADERS, END_STREAM, HEADERS, WINDOW_UPDATE, call_headers, frame, opening},
    },
    load::connection::framed,
};

const GET_STATUS: &str = "/leaseway.status.v1.Status/GetStatus";

/// Resources of a long call.
const ENTRIES: u32 = 2000;

/// Pending calls of one connection.
const CALLS: usize = 1000;

/// How often a lane checks for room for more calls.
const PAUSE: Duration = Duration::from_millis(20);

pub(crate) async fn status(attacker: Rc<Attacker>) {
    long_page(&attacker).await;
    on_lanes(attacker, |attacker, _| unread(attacker, GET_STATUS, page(), 0)).await;
}

pub(crate) async fn capacity(attacker: Rc<Attacker>) {
    let of = |number: u32| framed(&asks(format!("unread-{number}"), entries("unread", 0..ENTRIES)));
    on_lanes(attacker, |attacker, number| unread(attacker, GET_CAPACITY, of(number), ENTRIES / 20)).await;
}

/// Frames of four bytes, each of which makes the server send ten bytes.
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

/// Asks for 1,000 resources with names of the maximum length.
async fn long_page(attacker: &Rc<Attacker>) {
    let message = framed(&asks("filler".into(), entries(&"x".repeat(250), 0..1000)));
    loop {
        let Some(mut caller) = Caller::open(attacker, WIDE).await else { continue };
        if caller.ask(caller.post(GET_CAPACITY, &[]), message.clone()).await.is_ok() {
            return;
        }
    }
}

/// Each call counts as this many more acts.
async fn unread(attacker: Rc<Attacker>, path: &'static str, message: Bytes, more: u32) {
    loop {
        let Some(mut caller) = Caller::open(&attacker, 0).await else { continue };
        let mut waiting = JoinSet::new();
        while let Ok((answer, mut body)) = caller.begin(caller.post(path, &[])).await {
            // It may have been refused already.
            let _ = body.send_data(message.clone(), true);
            let own = Rc::clone(&attacker);
            waiting.spawn_local(async move { own.leave_unread((answer, body)).await });
            attacker.acts(more).await;
            while waiting.try_join_next().is_some() {}
            while waiting.len() >= CALLS && !caller.has_ended() {
                sleep(PAUSE).await;
                while waiting.try_join_next().is_some() {}
            }
        }
    }
}
