use std::time::Duration;

use futures_util::StreamExt as _;
use leaseway_core::{
    policy::template::Repository,
    resource::Ask,
    types::{Amount, Claim, Claims},
};
use leaseway_proto::pools::{
    Assigned, EventKind, Holder, Standing, Totals, assigned::Amount as Portion, report_load_request::Load as Reported,
};
use tonic::Code;

use super::*;
use crate::{
    api::grpc::start_node,
    auth::Authorizer,
    config,
    node::{Threads, block_on},
};

fn repository(kind: &str) -> Repository {
    let text = format!(
        "resources:
- identifier_glob: \"searches\"
  capacity: 20
  algorithm:
    kind: {kind}
    lease_length: 60
    refresh_interval: 5
    learning_mode_duration: 0
    parameters:
    - {{ name: capacity_floor, value: 10 }}
    - {{ name: capacity_ceiling, value: 40 }}
{}",
        if kind == "PRIORITY_POOL" { "    - { name: min_capacity, value: 10 }\n" } else { "" }
    );
    config::parse("test", &text).expect("valid").repository
}

/// Runs `test` with a single node that has a pool. The sender stops the service.
fn with_pool<F: Future<Output = ()>>(test: impl FnOnce(PoolService, NodeHandle, watch::Sender<bool>) -> F) {
    block_on(async {
        let threads = Threads::start(1);
        let node = start_node(repository("PRIORITY_POOL"), &threads);
        let (stop, stopped) = watch::channel(false);
        test(PoolService::new(node.clone(), stopped), node, stop).await;
        threads.stop();
    });
}

fn anyone() -> Admitted {
    Admitted::unknown(&Arc::new(Authorizer::open()))
}

fn holder(id: &str) -> Option<Holder> {
    Some(Holder { id: id.into(), is_server: false })
}

async fn set(service: &PoolService, id: &str, capacity: f64) -> Result<Option<Portion>, Code> {
    let request = SetClientCapacityRequest {
        resource_id: "searches".into(),
        holder: holder(id),
        assigned: Some(Assigned { amount: Some(Portion::Capacity(capacity)) }),
    };
    let set = service.set(request).await.map_err(|status| status.code())?;
    assert_eq!(set.memory(), Memory::Process);
    Ok(set.before.and_then(|before| before.amount))
}

async fn get(service: &PoolService, id: &str) -> Result<Option<Portion>, Code> {
    let request = GetClientCapacityRequest { resource_id: "searches".into(), holder: holder(id) };
    let get = service.get(request).await.map_err(|status| status.code())?;
    Ok(get.assigned.and_then(|assigned| assigned.amount))
}

async fn load(service: &PoolService, load: Option<Reported>, valid_ms: Option<u64>) -> Result<f64, Code> {
    let request = ReportLoadRequest { resource_id: "searches".into(), load, valid_ms };
    service.load(request).await.map(|answer| answer.capacity).map_err(|status| status.code())
}

/// The base capacity, the reported load, and the time until that expires.
async fn load_of_pool(service: &PoolService) -> (f64, Option<f64>, Option<u64>) {
    let request = GetPoolRequest { resource_id: "searches".into() };
    let pool = service.show(request).await.expect("it is a pool");
    (pool.base_capacity, pool.reported_load, pool.reported_load_ms)
}

async fn asks(node: &NodeHandle, id: &str, wants: f64) -> f64 {
    let ask = Ask {
        claims: Claims::from_slice(&[Claim::of_client(Amount::clamped(wants), 0)]),
        ..Ask::of_nothing(id.into())
    };
    let answer = node.submit(&"searches".into(), leaseway_core::resource::Request::Ask(ask)).await.expect("an answer");
    answer.lease().expect("a lease").capacity.get()
}

#[test]
fn an_assignment_survives_a_restart_and_a_temporary_removal_of_the_pool() {
    with_pool(|service, node, _stop| async move {
        assert_eq!(set(&service, "acme", 15.0).await, Ok(None));
        assert_eq!(set(&service, "acme", 12.0).await, Ok(Some(Portion::Capacity(15.0))));
        node.plant_panic("searches");
        assert_eq!(get(&service, "acme").await, Ok(Some(Portion::Capacity(12.0))));
        node.configure(config::Loaded::of(repository("FAIR_SHARE"))).await.expect("a running node");
        assert_eq!(get(&service, "acme").await, Err(Code::NotFound));
        assert_eq!(set(&service, "acme", 18.0).await, Err(Code::NotFound));
        node.configure(config::Loaded::of(repository("PRIORITY_POOL"))).await.expect("a running node");
        assert_eq!(get(&service, "acme").await, Ok(Some(Portion::Capacity(12.0))));
        assert_eq!(set(&service, "acme", 0.0).await, Ok(Some(Portion::Capacity(12.0))));
        node.plant_panic("searches");
        assert_eq!(get(&service, "acme").await, Ok(None), "it stays removed");
    });
}

#[test]
fn a_refused_assignment_is_not_stored() {
    with_pool(|service, node, _stop| async move {
        assert_eq!(set(&service, "acme", 5.0).await, Err(Code::InvalidArgument));
        assert_eq!(set(&service, "acme", 10.0).await, Ok(None));
        assert_eq!(asks(&node, "acme", 100.0).await, 10.0);
        assert_eq!(set(&service, "acme", 30.0).await, Err(Code::Aborted));
        node.plant_panic("searches");
        assert_eq!(get(&service, "acme").await, Ok(Some(Portion::Capacity(10.0))));
        assert_eq!(load(&service, Some(Reported::Factor(f64::NAN)), None).await, Err(Code::InvalidArgument));
    });
}

/// Polls a call until it waits for the resource, then drops it.
async fn cancel<T>(call: impl Future<Output = T>) {
    let mut call = std::pin::pin!(call);
    let waits = std::future::poll_fn(|task| std::task::Poll::Ready(call.as_mut().poll(task).is_pending())).await;
    assert!(waits, "the resource runs on another thread");
}

#[test]
fn a_change_is_stored_although_its_call_was_cancelled() {
    with_pool(|service, node, _stop| async move {
        assert_eq!(load_of_pool(&service).await, (20.0, None, None), "the pool exists");
        let request = SetClientCapacityRequest {
            resource_id: "searches".into(),
            holder: holder("acme"),
            assigned: Some(Assigned { amount: Some(Portion::Capacity(15.0)) }),
        };
        cancel(service.set_client_capacity(Request::new(request))).await;
        let load = Some(Reported::Capacity(30.0));
        let request = ReportLoadRequest { resource_id: "searches".into(), load, valid_ms: None };
        cancel(service.report_load(Request::new(request))).await;
        // Changes are serialized, so this one completes last.
        let request = SetClientCapacityRequest {
            resource_id: "searches".into(),
            holder: holder("tom"),
            assigned: Some(Assigned { amount: Some(Portion::Capacity(12.0)) }),
        };
        service.set_client_capacity(Request::new(request)).await.expect("it is valid");
        node.plant_panic("searches");
        assert_eq!(get(&service, "acme").await, Ok(Some(Portion::Capacity(15.0))));
        assert_eq!(load_of_pool(&service).await, (30.0, Some(30.0), None));
    });
}

#[test]
fn a_client_is_shown_with_its_standing() {
    with_pool(|service, node, _stop| async move {
        let stands = async |id: &str| {
            let request = GetClientCapacityRequest { resource_id: "searches".into(), holder: holder(id) };
            let client = service.get(request).await.expect("it is a pool").client?;
            Some((client.standing(), client.capacity, client.due))
        };
        assert_eq!(set(&service, "acme", 15.0).await, Ok(None));
        assert_eq!(stands("acme").await, None, "before its first request");
        assert_eq!(asks(&node, "acme", 100.0).await, 15.0);
        assert_eq!(asks(&node, "tom", 10.0).await, 0.0);
        assert_eq!(stands("acme").await, Some((Standing::Priority, 15.0, 15.0)));
        assert_eq!(stands("tom").await, Some((Standing::Waiting, 0.0, 0.0)), "less than the minimum is left");
        assert_eq!(set(&service, "acme", 0.0).await, Ok(Some(Portion::Capacity(15.0))));
        assert_eq!(get(&service, "acme").await, Ok(None));
        assert_eq!(stands("acme").await.map(|(_, has, _)| has), Some(15.0), "until its next request");
    });
}

#[test]
fn only_the_latest_report_of_load_counts() {
    with_pool(|service, node, _stop| async move {
        assert_eq!(load(&service, Some(Reported::Factor(0.75)), None).await, Ok(15.0));
        node.plant_panic("searches");
        assert_eq!(load_of_pool(&service).await, (15.0, Some(15.0), None));
        assert_eq!(load(&service, Some(Reported::Capacity(1e6)), Some(60_000)).await, Ok(40.0));
        let (base, reported, left) = load_of_pool(&service).await;
        assert_eq!((base, reported), (40.0, Some(40.0)), "clamped");
        assert!(left.is_some_and(|left| (1..=60_000).contains(&left)), "{left:?}");
        node.plant_panic("searches");
        assert_eq!(
            load_of_pool(&service).await,
            (20.0, None, None),
            "reports that expire are not stored, and replace stored ones"
        );
        assert_eq!(load(&service, Some(Reported::Capacity(30.0)), None).await, Ok(30.0));
        assert_eq!(load(&service, None, None).await, Ok(20.0));
        assert_eq!(load_of_pool(&service).await, (20.0, None, None), "the capacity of the template");
    });
}

#[test]
fn a_stream_begins_with_the_state_of_the_pool_and_ends_with_the_server() {
    with_pool(|service, node, stop| async move {
        let subscribe = SubscribeRequest { resource_id: "searches".into(), ..SubscribeRequest::default() };
        let mut other = subscribe.clone();
        other.resource_id = "mysql".into();
        assert!(service.begin(other, anyone()).await.is_err_and(|status| status.code() == Code::NotFound));
        assert_eq!(node.subscribers().count(), 0, "a refused subscription is removed");
        let streaming = service.begin(subscribe, anyone()).await.expect("it is a pool");
        let events = stream::unfold(streaming, EventStream::next);
        let mut events = std::pin::pin!(events);
        assert_eq!(asks(&node, "tom", 10.0).await, 10.0);
        let mut next = async || tokio::time::timeout(Duration::from_secs(30), events.next()).await.expect("in time");
        let begin = next().await.expect("an event").expect("no error");
        let empty = Totals { total: 20.0, ..Totals::default() };
        assert_eq!((begin.kind(), begin.totals), (EventKind::Begin, Some(empty)));
        let connected = next().await.expect("an event").expect("no error");
        let client = connected.client.as_ref().expect("a client");
        assert_eq!(
            (connected.kind(), client.holder.clone(), client.capacity),
            (EventKind::ConnectedNow, holder("tom"), 10.0)
        );
        assert_eq!((client.is_priority, connected.seq), (false, begin.seq + 1));
        stop.send_replace(true);
        let end = next().await.expect("an end").expect_err("it is over");
        assert_eq!(end.code(), Code::Unavailable);
        assert!(next().await.is_none());
    });
}
