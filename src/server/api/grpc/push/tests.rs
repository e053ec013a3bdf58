//! The messages of a stream and their timing, on a clock that only advances while all tasks wait.

use std::sync::Arc;

use futures_util::StreamExt as _;
use leaseway_core::{HolderKind, Principal, PrincipalShare, Why};
use tonic::Code;

use super::*;
use crate::{auth::Authorizer, node::watchers::Watchers};

/// A listener on a server that may stop.
struct Fixture {
    watchers: Arc<Watchers>,
    stop: watch::Sender<bool>,
}

type Messages = std::pin::Pin<Box<dyn Stream<Item = Result<Hint, Status>>>>;

impl Fixture {
    fn new() -> Fixture {
        Fixture { watchers: Arc::new(Watchers::new(10, PrincipalShare::ALL)), stop: watch::Sender::new(false) }
    }

    fn listens(&self) -> Messages {
        let watch = self.watchers.start(HolderKind::Client, "a".into(), Principal::NONE).expect("there is room");
        Box::pin(messages(watch, self.stop.subscribe(), Admitted::unknown(&Arc::new(Authorizer::open()))))
    }

    fn hint(&self, resource: &str) {
        let hint = leaseway_core::Hint { kind: HolderKind::Client, id: "a".into(), why: Why::Shrink };
        self.watchers.hint(&resource.into(), &mut vec![hint]);
    }
}

async fn next(messages: &mut Messages) -> Result<Hint, Status> {
    within_a_minute(messages).await.expect("the stream goes on")
}

async fn within_a_minute(messages: &mut Messages) -> Option<Result<Hint, Status>> {
    tokio::time::timeout(Duration::from_secs(60), messages.next()).await.expect("something happens")
}

fn names(hint: Result<Hint, Status>) -> Vec<String> {
    hint.expect("a hint").resource_id
}

#[tokio::test(start_paused = true)]
async fn the_first_hint_is_empty_and_comes_at_once() {
    let fixture = Fixture::new();
    let mut messages = fixture.listens();
    fixture.hint("r");
    let start = Instant::now();
    assert_eq!(next(&mut messages).await.expect("a hint"), Hint::default());
    assert_eq!(start.elapsed(), Duration::ZERO);
    assert_eq!(names(next(&mut messages).await), ["r"]);
}

#[tokio::test(start_paused = true)]
async fn messages_are_50_ms_apart_and_what_comes_meanwhile_goes_with_the_next() {
    let fixture = Fixture::new();
    let mut messages = fixture.listens();
    next(&mut messages).await.expect("the first");
    tokio::time::sleep(Duration::from_secs(1)).await;
    fixture.hint("r1");
    let start = Instant::now();
    assert_eq!(names(next(&mut messages).await), ["r1"]);
    assert_eq!(start.elapsed(), Duration::ZERO, "it has rested long enough");
    fixture.hint("r2");
    let (second, ()) = tokio::join!(next(&mut messages), async {
        tokio::time::sleep(Duration::from_millis(49)).await;
        fixture.hint("r3");
    });
    assert_eq!(names(second), ["r2", "r3"]);
    assert_eq!(start.elapsed(), PACE);
}

#[tokio::test(start_paused = true)]
async fn a_stream_whose_place_is_taken_says_so_and_ends() {
    let fixture = Fixture::new();
    let mut older = fixture.listens();
    next(&mut older).await.expect("the first");
    let mut newer = fixture.listens();
    assert_eq!(next(&mut older).await.expect_err("its end").code(), Code::Aborted);
    assert!(within_a_minute(&mut older).await.is_none());
    fixture.hint("r");
    next(&mut newer).await.expect("the first");
    assert_eq!(names(next(&mut newer).await), ["r"]);
}

#[tokio::test(start_paused = true)]
async fn streams_end_at_once_when_the_server_stops() {
    let fixture = Fixture::new();
    let mut messages = fixture.listens();
    next(&mut messages).await.expect("the first");
    let start = Instant::now();
    fixture.hint("r");
    fixture.stop.send_replace(true);
    assert_eq!(next(&mut messages).await.expect_err("its end").code(), Code::Unavailable);
    assert_eq!(start.elapsed(), Duration::ZERO);
    assert!(within_a_minute(&mut messages).await.is_none());
}

#[tokio::test(start_paused = true)]
async fn a_stream_that_is_dropped_ends_the_watch() {
    let fixture = Fixture::new();
    let mut messages = fixture.listens();
    next(&mut messages).await.expect("the first");
    // In the middle of waiting, as when a client goes away.
    let waiting = tokio::time::timeout(Duration::from_secs(1), messages.next());
    waiting.await.expect_err("there is nothing to tell");
    assert_eq!(fixture.watchers.count(), 1);
    drop(messages);
    assert_eq!(fixture.watchers.count(), 0);
}
