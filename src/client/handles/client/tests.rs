//! Clients without a server, and the runtimes and threads that they run on.

use std::{future::Future, thread};

use tokio::runtime::{Builder as Tokio, Runtime};

use super::*;
use crate::{
    Balanced,
    error::OpenError,
    handles::{gauge::Gauge, rate::Rate},
    limiter::Burst,
};

/// A longer wait counts as a hang.
const PATIENCE: Duration = Duration::from_secs(20);

fn runtime() -> Runtime {
    Tokio::new_multi_thread().worker_threads(1).enable_all().build().expect("a runtime")
}

fn client(runtime: &Runtime) -> Client {
    let _inside = runtime.enter();
    Client::connect("127.0.0.1:1").expect("a valid endpoint")
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
fn waits_end_with_the_runtime_of_the_client() {
    let of_client = runtime();
    let client = client(&of_client);
    let (rate, gauge) = open(&client);
    let balanced = {
        let _inside = of_client.enter();
        Balanced::new([rate.clone()]).expect("fixed wants")
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
        assert!(within(wait).expect("no panic"), "the wait must fail");
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
fn clients_can_be_dropped_on_threads_in_tasks_and_with_their_runtime() {
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
fn concurrently_opened_and_dropped_handles_leave_nothing_open() {
    let of_client = runtime();
    let client = client(&of_client);
    thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                for _ in 0..200 {
                    let rate = client.resource("rate").wants(1.0).rate().expect("open");
                    drop(rate.clone());
                    assert_ne!(rate.try_acquire(1), Err(crate::limiter::TryError::Closed), "the handle is open");
                }
            });
        }
    });
    let probe = client.resource("rate").wants(1.0).gauge();
    assert!(probe.is_ok(), "without handles it can be opened as another kind");
    within(client.close());
}

#[test]
fn a_resource_cannot_be_opened_as_another_kind() {
    let of_client = runtime();
    let client = client(&of_client);
    let rate = client.resource("r").wants(1.0).rate().expect("open");
    let errors = [
        client.resource("r").wants(1.0).gauge().expect_err("it is a rate"),
        client.resource("r").wants(1.0).open().expect_err("it is a rate"),
    ];
    assert!(errors.iter().all(|error| matches!(error, OpenError::OtherKind { is: "rate", .. })), "{errors:?}");
    drop(rate);
    assert!(client.resource("r").wants(1.0).open().is_ok(), "failed attempts leave no handle");
}

#[test]
fn all_handles_of_a_resource_share_its_options() {
    let of_client = runtime();
    let client = client(&of_client);
    let rate = || client.resource("r");
    let first = rate().wants(1.0).priority(2).burst(Burst::Permits(3.0)).rate().expect("open");
    for (other, name) in [
        (rate().wants(2.0), "wants"),
        (rate().priority(0), "priority"),
        (rate().mode(Mode::Optimistic), "mode"),
        (rate().burst(Burst::Smooth), "burst"),
        (rate().max_debt(7), "max_debt"),
    ] {
        let error = other.rate().expect_err("another value");
        assert!(matches!(error, OpenError::OtherOption { option, .. } if option == name), "{error}");
    }
    first.resource().set_wants(5.0).expect("valid");
    let same = rate().wants(1.0).priority(2).mode(Mode::Safe).burst(Burst::Permits(3.0)).rate().expect("the same");
    let without = rate().rate().expect("no options");
    drop((first, same, without));
    rate().wants(2.0).rate().expect("failed attempts leave no handle");
}

#[tokio::test]
async fn a_client_that_would_expose_its_token_is_not_built() {
    let token = Token::new("secret").expect("a token");
    let build =
        |endpoint: &str| Client::builder().endpoint("127.0.0.1:1").endpoint(endpoint).token(&token).build().map(drop);
    assert_eq!(build("10.0.0.1:1"), Err(BuildError::TokenInTheClear("10.0.0.1:1".into())));
    assert_eq!(build("localhost:1"), Ok(()));
}

#[test]
fn a_failed_blocking_build_is_an_error_in_async_code_too() {
    within(async {
        assert_eq!(Client::builder().build_blocking().expect_err("no endpoint"), BuildError::NoEndpoint);
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
    assert_eq!(is_done.recv_timeout(PATIENCE), Ok(true), "both waits fail");
    within(shared.closed());
}

#[test]
fn generated_ids_are_unique_and_start_at_random() {
    let ids: Vec<_> = (0..3).map(|_| unique_id()).collect();
    assert!(ids[0] != ids[1] && ids[1] != ids[2]);
    let number = ids[0].rsplit(':').next().and_then(|number| number.parse::<u64>().ok()).expect("HOST:PID:NUMBER");
    assert!(number > 1_000, "{number}, which is possible once in four million runs");
}
