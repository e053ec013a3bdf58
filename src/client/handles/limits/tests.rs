//! Handles of a client without a server, in a mode in which it may use what it wants.

use std::time::Duration;

use super::*;
use crate::{Builder, Client, limiter::Burst, session::Mode};

fn builder() -> Builder {
    Client::builder().endpoint("127.0.0.1:1").mode(Mode::Optimistic)
}

/// Ten tokens per second, of which a hundred are saved up, and two slots.
async fn open() -> (Client, Rate, Gauge) {
    let client = builder().build().expect("a valid endpoint");
    let tokens = client.resource("tokens").wants(10.0).burst(Burst::Permits(100.0)).max_debt(100).rate().expect("open");
    let slots = client.resource("slots").wants(2.0).gauge().expect("open");
    tokio::try_join!(tokens.resource().answered(), slots.resource().answered()).expect("a fallback");
    tokens.wait_many(100).await.expect("open");
    tokens.refund(100);
    (client, tokens, slots)
}

#[tokio::test(start_paused = true)]
async fn a_refusal_names_the_resource_and_when_to_retry() {
    let (client, tokens, slots) = open().await;
    let limits = client.limits([slots.of(1), tokens.of(50)]);
    tokens.try_acquire(100).expect("saved up");
    let refusal = limits.try_acquire().expect_err("no tokens");
    assert_eq!((refusal.index, &*refusal.resource), (1, "tokens"));
    assert_eq!(refusal.retry_after(), Some(Duration::from_secs(5)));
    assert_eq!(refusal.to_string(), "`tokens`: no permit is free now");
    assert_eq!(slots.in_use(), 0);
    let permits = limits.acquire().await.expect("after five seconds");
    assert_eq!((slots.in_use(), tokens.available()), (1, 0));
    let too_many = limits.with_permits(&[3, 0]).try_acquire().expect_err("there are two");
    assert_eq!((too_many.retry_after(), &*too_many.resource), (None, "slots"));
    drop(permits);
    assert_eq!(slots.in_use(), 0);
    assert_eq!(limits.resources().map(Resource::id).collect::<Vec<_>>(), ["slots", "tokens"]);
}

#[tokio::test(start_paused = true)]
async fn amounts_are_settled_charged_and_refunded_by_limit() {
    let (client, tokens, slots) = open().await;
    let limits = client.limits([tokens.of(100), slots.of(1)]);
    let reserved = limits.reserve().await.expect("available");
    assert_eq!((reserved.reserved().collect::<Vec<_>>(), slots.in_use()), (vec![100, 1], 1));
    reserved.settle(&[30, 1]).expect("less than reserved");
    assert_eq!((tokens.available(), slots.in_use()), (70, 0));
    limits.charge(&[20, 0]).expect("available");
    limits.refund(&[5, 0]);
    assert_eq!(tokens.available(), 55);
    let reserved = limits.with_permits(&[5, 1]).try_reserve().expect("available");
    let error = reserved.settle(&[200, 1]).expect_err("50 and a debt of 100");
    assert_eq!((error.index, error.error.uncharged, slots.in_use()), (0, 45, 0));
    assert!(error.to_string().starts_with("`tokens`: maximum debt of 100 exceeded"));
    assert_eq!(limits.charge(&[1, 1]).expect_err("the maximum").error.uncharged, 1);
}

#[tokio::test(start_paused = true)]
async fn permits_keep_their_resources_open() {
    let (client, tokens, slots) = open().await;
    let limits = client.limits([tokens.of(1), slots.of(1)]);
    let permits = limits.acquire().await.expect("open");
    drop((limits, tokens, slots));
    let again = client.resource("slots").gauge().expect("open");
    assert_eq!(again.in_use(), 1);
    drop((permits, again));
    let reopened = client.resource("slots").gauge().expect("open");
    assert_eq!(reopened.in_use(), 0);
    assert!(reopened.try_acquire(1).is_err(), "it was closed meanwhile");
}

#[tokio::test(start_paused = true)]
async fn closing_the_client_ends_waits() {
    let (client, tokens, slots) = open().await;
    let limits = client.limits([tokens.of(500), slots.of(1)]);
    let waiting = tokio::spawn(async move { limits.acquire().await.map(drop) });
    tokio::task::yield_now().await;
    client.abandon();
    assert_eq!(waiting.await.expect("no panic"), Err(Closed));
}

#[test]
fn threads_wait_for_several_limits() {
    let client = builder().build_blocking().expect("a thread");
    let tokens = client.resource("tokens").wants(1_000.0).rate().expect("open");
    let slots = client.resource("slots").wants(2.0).gauge().expect("open");
    let limits = client.limits([tokens.of(2), slots.of(2)]);
    let permits = limits.blocking_acquire().expect("open");
    assert!(limits.try_acquire().is_err());
    std::thread::scope(|scope| {
        let waiting = scope.spawn(|| limits.blocking_reserve().expect("open").settle(&[1, 0]));
        drop(permits);
        waiting.join().expect("no panic").expect("less than reserved");
    });
    assert_eq!(slots.in_use(), 0);
    client.limits([]).blocking_acquire().map(drop).expect("nothing to wait for");
}
