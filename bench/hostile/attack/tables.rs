//! Tables that one address would like to fill.

use std::{ops::Range, rc::Rc};

use leaseway_proto::{
    doorman::{GetCapacityRequest, ResourceRequest},
    push::WatchRequest,
};
use tokio::task::JoinSet;

use super::{
    super::{
        caller::{Caller, WIDE, repeat},
        stranger::Stranger,
    },
    on_lanes, on_many,
};
use crate::load::framed;

pub(super) const GET_CAPACITY: &str = "/doorman.Capacity/GetCapacity";
/// A PRIORITY_POOL in the configuration of the victim.
const POOL: &str = "pool-0";
const WATCH: &str = "/leaseway.push.v1.Push/Watch";

/// New resources in one request.
const ENTRIES: u32 = 100;

/// Streams of hints of one connection.
const STREAMS: usize = 1000;

pub(super) fn asks(client: String, resource: Vec<ResourceRequest>) -> GetCapacityRequest {
    GetCapacityRequest { client_id: Some(client), resource, ..GetCapacityRequest::default() }
}

/// Of so many resources; their numbers come first, so that they differ also where names are cut.
pub(super) fn entries(name: &str, numbers: Range<u32>) -> Vec<ResourceRequest> {
    numbers.map(|n| entry(format!("{n:05}{name}"))).collect()
}

fn entry(resource: String) -> ResourceRequest {
    ResourceRequest { resource_id: Some(resource), priority: Some(0), wants: Some(1.0), ..ResourceRequest::default() }
}

pub(super) async fn holders(stranger: Rc<Stranger>) {
    new_clients(stranger, "resource-0").await;
}

pub(super) async fn pool_places(stranger: Rc<Stranger>) {
    new_clients(stranger, POOL).await;
}

async fn new_clients(stranger: Rc<Stranger>, resource: &'static str) {
    on_lanes(stranger, |stranger, lane| {
        let mut n = 0;
        repeat(stranger, WIDE, async move |caller| {
            n += 1;
            let request = asks(format!("stranger-{lane}-{n}"), vec![entry(resource.into())]);
            caller.ask(caller.post(GET_CAPACITY, &[]), framed(&request)).await
        })
    })
    .await;
}

pub(super) async fn resources(stranger: Rc<Stranger>) {
    on_lanes(stranger, |stranger, lane| {
        let (mut n, pace) = (0, Rc::clone(&stranger));
        repeat(stranger, WIDE, async move |caller| {
            n += ENTRIES;
            pace.acts(ENTRIES / 20).await;
            let request = asks(format!("stranger-{lane}"), entries(&format!("-{lane}"), n..n + ENTRIES));
            caller.ask(caller.post(GET_CAPACITY, &[]), framed(&request)).await
        })
    })
    .await;
}

/// Beyond the limits it goes on trying.
pub(super) async fn watchers(stranger: Rc<Stranger>) {
    on_many(stranger, 20, |stranger, lane| async move {
        let mut n = 0;
        loop {
            let Some(mut caller) = Caller::open(&stranger, WIDE).await else { continue };
            let mut streams = JoinSet::new();
            while let Ok((answer, mut body)) = caller.begin(caller.post(WATCH, &[])).await {
                n += 1;
                let client_id = Some(format!("stranger-{lane}-{n}"));
                let _ = body.send_data(framed(&WatchRequest { client_id, server_id: None }), true);
                let own = Rc::clone(&stranger);
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
