//! Tables of the server that one address tries to fill.

use std::{ops::Range, rc::Rc};

use leaseway_proto::{
    doorman::{GetCapacityRequest, ResourceRequest},
    push::WatchRequest,
};
use tokio::task::JoinSet;

use crate::{
    hostile::{
        attack::{on_lanes, on_many},
        attacker::Attacker,
        caller::{Caller, WIDE, repeat},
    },
    load::connection::framed,
};

pub(crate) const GET_CAPACITY: &str = "/doorman.Capacity/GetCapacity";
/// A PRIORITY_POOL in the configuration of the target.
const POOL: &str = "pool-0";
const WATCH: &str = "/leaseway.push.v1.Push/Watch";

/// New resources in one request.
const ENTRIES: u32 = 100;

/// Streams of hints on one connection.
const STREAMS: usize = 1000;

pub(crate) fn asks(client: String, resource: Vec<ResourceRequest>) -> GetCapacityRequest {
    GetCapacityRequest { client_id: Some(client), resource, ..GetCapacityRequest::default() }
}

/// The numbers come first, so that names differ even if they are truncated.
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

/// Goes on trying beyond the limits.
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
