use futures_util::FutureExt as _;
use leaseway_core::{
    pool::PoolClient,
    types::{Amount, HolderKind, Sum},
};

use super::*;

fn event(seq: u64, kind: PoolEventKind, total: f64) -> PoolEvent {
    PoolEvent {
        seq,
        at: Millis(seq),
        kind,
        total: Amount::clamped(total),
        connected: Sum::ZERO,
        priority_connected: Sum::ZERO,
        client: None,
        cause: None,
        deadline: (kind == PoolEventKind::Underrun).then_some(Millis(900)),
    }
}

fn about_a_free_client(seq: u64) -> PoolEvent {
    let client = PoolClient {
        kind: HolderKind::Client,
        id: "stranger".into(),
        capacity: Amount::clamped(1.0),
        is_priority: false,
        time_cost: 0.0,
        request_cost: 0.0,
    };
    PoolEvent { client: Some(client), ..event(seq, PoolEventKind::Connected, 10.0) }
}

/// The next queued event, if there is one.
fn next(subscription: &Subscription) -> Option<Result<QueuedEvent, Dismissed>> {
    subscription.next().now_or_never()
}

fn all(subscription: &Subscription) -> Vec<QueuedEvent> {
    std::iter::from_fn(|| next(subscription)?.ok()).collect()
}

fn one() -> (Arc<Subscribers>, Subscription) {
    let subscribers = Arc::<Subscribers>::default();
    let subscription = subscribers.start(&"pool".into(), PoolEventFilter::default()).expect("there is room");
    (subscribers, subscription)
}

#[test]
fn a_subscriber_gets_the_events_of_its_pool_only() {
    let (subscribers, subscription) = one();
    assert_eq!(next(&subscription), None);
    subscribers.tell("other", &[event(1, PoolEventKind::Total, 5.0)]);
    assert_eq!(next(&subscription), None);
    subscribers.tell("pool", &[event(1, PoolEventKind::Total, 5.0), event(2, PoolEventKind::Total, 6.0)]);
    let seqs: Vec<_> = all(&subscription).iter().map(|told| told.event.seq).collect();
    assert_eq!(seqs, [1, 2]);
}

#[test]
fn each_subscriber_has_a_filter() {
    let (subscribers, everything) = one();
    let filter = PoolEventFilter { priority_only: true, ..PoolEventFilter::default() };
    let choosy = subscribers.start(&"pool".into(), filter).expect("there is room");
    assert_eq!((subscribers.count(), subscribers.count_of("pool"), subscribers.count_of("other")), (2, 2, 0));
    subscribers.tell("pool", &[about_a_free_client(1), event(2, PoolEventKind::Total, 5.0)]);
    assert_eq!((all(&everything).len(), all(&choosy).len()), (2, 1));
}

#[test]
fn a_slow_subscriber_gets_a_gap_with_the_present_totals_and_goes_on() {
    let (subscribers, subscription) = one();
    for seq in 1..=QUEUE as u64 {
        subscribers.tell("pool", &[event(seq, PoolEventKind::Update, 5.0)]);
    }
    subscribers.tell("pool", &[about_a_free_client(5000)]);
    subscribers.tell("pool", &[event(5001, PoolEventKind::Total, 7.0)]);
    let told = all(&subscription);
    let kinds: Vec<_> = told.iter().map(|told| told.event.kind).collect();
    assert_eq!(kinds, [PoolEventKind::Gap, PoolEventKind::Total]);
    assert_eq!(told[0].event.total, Amount::clamped(10.0), "the present total");
    assert_eq!(told[0].event.client, None);
}

#[test]
fn a_deadline_survives_a_gap_and_a_filter() {
    let subscribers = Arc::<Subscribers>::default();
    let filter = PoolEventFilter { kinds: vec![PoolEventKind::Update], ..PoolEventFilter::default() };
    let subscription = subscribers.start(&"pool".into(), filter).expect("there is room");
    subscribers.tell("pool", &[event(1, PoolEventKind::Underrun, 5.0)]);
    for seq in 2..=QUEUE as u64 + 2 {
        subscribers.tell("pool", &[event(seq, PoolEventKind::Update, 5.0)]);
    }
    let told = all(&subscription);
    assert_eq!((told.len(), told[0].event.kind, told[0].deadline), (1, PoolEventKind::Gap, Some(Millis(900))));
    subscribers.tell("pool", &[event(9000, PoolEventKind::Relieved, 5.0), event(9001, PoolEventKind::Update, 5.0)]);
    assert_eq!(all(&subscription)[0].deadline, None);
}

#[test]
fn a_gap_of_the_pool_sets_the_deadline() {
    let (subscribers, subscription) = one();
    let gap = |seq, deadline| PoolEvent { deadline, ..event(seq, PoolEventKind::Gap, 5.0) };
    subscribers.tell("pool", &[gap(1, Some(Millis(900))), event(2, PoolEventKind::Update, 5.0)]);
    let deadlines = |told: Vec<QueuedEvent>| told.iter().map(|told| told.deadline).collect::<Vec<_>>();
    assert_eq!(deadlines(all(&subscription)), [Some(Millis(900)); 2]);
    subscribers.tell("pool", &[gap(3, None), event(4, PoolEventKind::Update, 5.0)]);
    assert_eq!(deadlines(all(&subscription)), [None; 2]);
}

#[test]
fn the_initial_deadline_does_not_replace_a_newer_one() {
    let (subscribers, subscription) = one();
    subscription.expect(Some(Millis(500)));
    subscribers.tell("pool", &[event(1, PoolEventKind::Total, 5.0)]);
    assert_eq!(all(&subscription)[0].deadline, Some(Millis(500)));
    let (subscribers, subscription) = one();
    subscribers.tell("pool", &[event(1, PoolEventKind::Relieved, 5.0)]);
    subscription.expect(Some(Millis(500)));
    assert_eq!(all(&subscription)[0].deadline, None);
}

#[test]
fn a_dismissed_subscriber_gets_the_queued_events_first() {
    let (subscribers, subscription) = one();
    subscribers.tell("pool", &[event(1, PoolEventKind::Total, 5.0)]);
    subscribers.dismiss();
    assert_eq!(all(&subscription).len(), 1);
    assert_eq!(next(&subscription), Some(Err(Dismissed)));
}

#[test]
fn a_dropped_subscription_makes_room() {
    let subscribers = Arc::<Subscribers>::default();
    let start = || subscribers.start(&"pool".into(), PoolEventFilter::default());
    let mut there: Vec<_> = (0..MAX_SUBSCRIBERS).map(|_| start().expect("there is room")).collect();
    assert!(matches!(start(), Err(TooManySubscribers)));
    there.pop();
    assert!(start().is_ok());
    there.clear();
    assert_eq!((subscribers.count(), subscribers.listening().len()), (0, 0));
}
