//! Clients and the runtimes and threads that they run on. There is no server.

use std::{future::Future, thread};

use tokio::runtime::{Builder as Tokio, Runtime};

use super::*;
use crate::{
    Balanced,
    error::OpenError,
    handles::{gauge::Gauge, rate::Rate},
};

/// Longer means a hang.
const PATIENCE: Duration = Duration::from_secs(20);

fn runtime() -> Runtime {
    Tokio::new_multi_thread().worker_threads(1).enable_all().build().expect("a runtime")
}

fn client(runtime: &Runtime) -> Client {
    let _inside = runtime.enter();
    Client::connect("127.0.0.1:1").expect("the endpoint is one")
}

/// Blocks on a runtime of its own.
fn within<T>(work: impl Future<Output = T>) -> T {
    let runtime = Tokio::new_current_thread().enable_all().build().expect("a runtime");
    runtime.block_on(async { tokio::time::timeout(PATIENCE, work).await.expect("it hangs") })
}

fn open(client: &Client) -> (Rate, Gauge) {
    let rate = client.resource("rate").wants(1.0).rate().expect("open");
    (rate, client.resource("gauge").wants(1.0).gauge().expect("open"))
}

#[test]
fn a_waiter_is_told_when_the_runtime_of_the_client_ends() {
    let of_client = runtime();
    let client = client(&of_client);
    let (rate, gauge) = open(&client);
    let balanced = {
        let _inside = of_client.enter();
        Balanced::new([rate.clone()]).expect("its wants are said")
    };
    let waiting = runtime();
    let waits = [
        waiting.spawn(async move { rate.wait().await.is_err() }),
        waiting.spawn(async move { gauge.acquire().await.is_err() }),
        waiting.spawn(async move { balanced.wait().await.is_err() }),
        waiting.spawn(async move {
            client.guard.shared.closed().await;
            true
        }),
    ];
    of_client.shutdown_background();
    for wait in waits {
        assert!(within(wait).expect("no panic"), "it must fail");
    }
}

#[test]
fn a_client_whose_runtime_has_ended_is_closed() {
    let of_client = runtime();
    let client = client(&of_client);
    let (rate, gauge) = open(&client);
    drop(of_client);
    within(async {
        assert!(rate.wait().await.is_err() && gauge.acquire().await.is_err());
        assert!(rate.resource().answered().await.is_err());
        client.close().await;
    });
    assert_eq!(client.resource("new").wants(1.0).open().expect_err("closed"), OpenError::Closed);
    assert!(rate.resource().set_wants(7.0).is_ok() && rate.resource().lease().is_none());
    assert!(rate.blocking_wait().is_err() && gauge.blocking_acquire().is_err());
    client.blocking_close();
}

#[test]
fn a_client_made_for_a_runtime_that_has_ended_is_closed_from_the_start() {
    let ended = runtime();
    let handle = ended.handle().clone();
    drop(ended);
    let _inside = handle.enter();
    let client = Client::connect("127.0.0.1:1").expect("the endpoint is one");
    assert_eq!(client.resource("r").rate().expect_err("closed"), OpenError::Closed);
}

#[test]
fn clients_and_handles_can_be_dropped_anywhere() {
    let of_client = runtime();
    let on_a_thread = client(&of_client);
    let handles = open(&on_a_thread);
    let shared = Arc::clone(&on_a_thread.guard.shared);
    thread::spawn(move || drop((on_a_thread, handles))).join().expect("no panic");
    within(shared.closed());

    // Dropped by a task that is aborted.
    let in_a_task = client(&of_client);
    let shared = Arc::clone(&in_a_task.guard.shared);
    let task = of_client.spawn(async move {
        let (rate, _gauge) = open(&in_a_task);
        let _client = in_a_task;
        rate.wait().await
    });
    task.abort();
    assert!(within(task).is_err());
    within(shared.closed());

    // Dropped by the runtime that the client runs on.
    let with_its_runtime = client(&of_client);
    let shared = Arc::clone(&with_its_runtime.guard.shared);
    of_client.spawn(async move {
        let (rate, _gauge) = open(&with_its_runtime);
        rate.wait().await
    });
    drop(of_client);
    within(shared.closed());
}

#[test]
fn handles_that_are_opened_cloned_and_dropped_at_once_leave_nothing_open() {
    let of_client = runtime();
    let client = client(&of_client);
    thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                for _ in 0..200 {
                    let rate = client.resource("rate").wants(1.0).rate().expect("open");
                    drop(rate.clone());
                    assert_ne!(rate.try_acquire(1), Err(crate::limiter::TryError::Closed), "it is open");
                }
            });
        }
    });
    let probe = client.resource("rate").wants(1.0).gauge();
    assert!(probe.is_ok(), "the last handle has closed it, so it can be another kind");
    within(client.close());
}

#[test]
fn what_is_open_cannot_be_opened_as_another_kind_and_trying_leaves_no_handle() {
    let of_client = runtime();
    let client = client(&of_client);
    let rate = client.resource("r").wants(1.0).rate().expect("open");
    let errors = [
        client.resource("r").wants(1.0).gauge().expect_err("it is a rate"),
        client.resource("r").wants(1.0).open().expect_err("it is a rate"),
    ];
    assert!(errors.iter().all(|error| matches!(error, OpenError::OtherKind { is: "rate", .. })), "{errors:?}");
    drop(rate);
    assert!(client.resource("r").wants(1.0).open().is_ok(), "its only handle was the last");
}

#[test]
fn a_blocking_client_that_cannot_be_made_is_an_error_wherever_it_is_tried() {
    within(async {
        assert_eq!(Client::builder().build_blocking().expect_err("there is no server to ask"), BuildError::NoEndpoint);
    });
}

#[test]
fn the_thread_of_a_blocking_client_ends_with_its_handles() {
    let client = Client::builder().endpoint("127.0.0.1:1").build_blocking().expect("a thread");
    let (rate, gauge) = open(&client);
    let shared = Arc::clone(&client.guard.shared);
    let (done, is_done) = std::sync::mpsc::channel();
    thread::spawn(move || {
        client.blocking_close();
        let _ = done.send(rate.blocking_wait().is_err() && gauge.blocking_acquire().is_err());
    });
    assert_eq!(is_done.recv_timeout(PATIENCE), Ok(true), "they end, and fail");
    within(shared.closed());
}

#[test]
fn ids_differ_within_a_process_and_do_not_begin_at_a_number_that_every_process_has() {
    let ids: Vec<_> = (0..3).map(|_| unique_id()).collect();
    assert!(ids[0] != ids[1] && ids[1] != ids[2]);
    let number = ids[0].rsplit(':').next().and_then(|number| number.parse::<u64>().ok()).expect("HOST:PID:NUMBER");
    assert!(number > 1_000, "once in four million runs this is no fault: {number}");
}
