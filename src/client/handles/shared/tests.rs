//! Handles and the driver, whose part the tests play.

use std::sync::{
    Weak,
    atomic::{AtomicUsize, Ordering},
};

use super::*;
use crate::{
    handles::open_resource::Limiter,
    limiter::{Burst, GaugeLimiter, RateLimiter, TryError},
    session::{Body, Given, Mode, Pace, Settings, Wire},
};

fn shared() -> Arc<Shared> {
    let settings =
        Settings { endpoints: vec!["a:1".into()], pace: Pace::default(), resources_per_request: 1_000, seed: 1 };
    Arc::new(Shared::new("me".into(), Session::new(settings), None))
}

fn open_with(
    shared: &Shared,
    id: &str,
    wants: Option<f64>,
    limiter: impl FnOnce(&Arc<Notify>) -> Limiter,
) -> Result<Arc<OpenResource>, OpenError> {
    let id: Arc<str> = id.into();
    shared.open(&id, |wakeup| OpenResource::new(Arc::clone(&id), Mode::Safe, 0, limiter(wakeup), wants), |_| Ok(()))
}

fn open(shared: &Shared, id: &str) -> Arc<OpenResource> {
    open_with(shared, id, Some(100.0), |_| Limiter::None).expect("not closed")
}

fn open_rate(shared: &Shared, wants: Option<f64>) -> (Arc<OpenResource>, RateLimiter) {
    let make = |wakeup: &Arc<Notify>| Limiter::Rate(RateLimiter::with_pressure(Burst::default(), Arc::clone(wakeup)));
    let opened = open_with(shared, "r", wants, make).expect("not closed");
    let Limiter::Rate(rate) = &opened.limiter else { panic!("it was opened as a rate") };
    let rate = rate.clone();
    (opened, rate)
}

fn open_gauge(shared: &Shared) -> (Arc<OpenResource>, GaugeLimiter) {
    let make = |wakeup: &Arc<Notify>| Limiter::Gauge(GaugeLimiter::with_pressure(Arc::clone(wakeup)));
    let opened = open_with(shared, "r", Some(100.0), make).expect("not closed");
    let Limiter::Gauge(gauge) = &opened.limiter else { panic!("it was opened as a gauge") };
    let gauge = gauge.clone();
    (opened, gauge)
}

fn given(id: &str, capacity: f64) -> Given {
    Given {
        id: id.into(),
        length: Millis(60_000),
        refresh: Millis(5_000),
        token: Some(1),
        wire: Wire { expiry_time: 60, refresh_interval: 5, capacity },
        safe: Some(1.5),
    }
}

fn asked(outgoing: &Outgoing<Wants>) -> Vec<Wants> {
    match &outgoing.body {
        Body::Ask(asks) => asks.iter().map(|ask| ask.demand).collect(),
        Body::Release(_) => panic!("it gives back"),
    }
}

fn gives_back(step: &NextStep) -> Vec<String> {
    match step.outgoing.as_ref().map(|outgoing| &outgoing.body) {
        Some(Body::Release(releases)) => releases.iter().map(|release| release.id.to_string()).collect(),
        Some(Body::Ask(_)) => panic!("it asks"),
        None => Vec::new(),
    }
}

fn answer(shared: &Shared, capacity: f64) -> Outgoing<Wants> {
    let outgoing = shared.step().outgoing.expect("something to send");
    let given = match &outgoing.body {
        Body::Ask(asks) => asks.iter().map(|ask| given(&ask.id, capacity)).collect(),
        Body::Release(_) => Vec::new(),
    };
    shared.finish_request(|session, now| _ = session.answered(now, outgoing.number, given), None);
    outgoing
}

fn fail(shared: &Shared, why: &str) {
    let number = shared.step().outgoing.expect("something to send").number;
    shared.finish_request(|session, now| _ = session.failed(now, number), Some(why.to_owned()));
}

async fn pass(ms: u64) {
    tokio::time::advance(Duration::from_millis(ms)).await;
}

async fn is_nudged(shared: &Shared) -> bool {
    tokio::time::timeout(Duration::from_millis(1), shared.wakeup.notified()).await.is_ok()
}

fn held(opened: &OpenResource) -> f64 {
    opened.usable().capacity.get()
}

#[tokio::test(start_paused = true)]
async fn every_handle_counts_and_the_last_gives_back() {
    let shared = shared();
    let id: Arc<str> = "r".into();
    let opened = open(&shared, "r");
    answer(&shared, 40.0);
    let again = open(&shared, "r");
    assert!(Arc::ptr_eq(&opened, &again), "one resource, one limiter");
    shared.reopen(&id);
    for _ in 0..2 {
        shared.close_handle(&id);
        assert_eq!((held(&opened), gives_back(&shared.step())), (40.0, vec![]));
    }
    assert!(is_nudged(&shared).await, "by the first handle");
    shared.close_handle(&id);
    assert!(is_nudged(&shared).await, "by the last");
    assert_eq!((held(&opened), gives_back(&shared.step())), (0.0, vec!["r".to_owned()]));
    shared.close_handle(&id);
}

#[tokio::test(start_paused = true)]
async fn what_is_opened_again_before_it_was_given_back_has_its_lease_at_once() {
    let shared = shared();
    let (_, before) = open_rate(&shared, Some(100.0));
    answer(&shared, 40.0);
    shared.close_handle(&"r".into());
    let (opened, rate) = open_rate(&shared, Some(100.0));
    shared.step();
    assert_eq!((held(&opened), rate.capacity().get()), (40.0, 40.0));
    assert!(matches!(before.try_acquire(1), Err(TryError::Closed)), "nothing brings the old one back");
}

#[tokio::test(start_paused = true)]
async fn opening_and_changed_wants_are_sent_at_once() {
    let shared = shared();
    let opened = open(&shared, "r");
    assert!(is_nudged(&shared).await);
    answer(&shared, 40.0);
    pass(1_000).await;
    assert!(!is_nudged(&shared).await);
    opened.set_fixed_wants(200.0);
    shared.demand_changed(&opened.id);
    assert!(is_nudged(&shared).await);
    assert_eq!(asked(&shared.step().outgoing.expect("it asks"))[0].amount, 200.0);
    shared.demand_changed(&"never heard of".into());
}

#[tokio::test(start_paused = true)]
async fn what_is_told_reaches_limiters_and_watchers() {
    let shared = shared();
    let (opened, rate) = open_rate(&shared, Some(100.0));
    let mut watch = opened.watch();
    watch.mark_unchanged();
    answer(&shared, 40.0);
    assert!(watch.has_changed().expect("it is open"));
    let usable = *watch.borrow_and_update();
    assert_eq!((usable.capacity.get(), usable.basis, rate.capacity().get()), (40.0, Basis::Lease, 40.0));
    shared.close_handle(&opened.id);
    assert!(watch.has_changed().expect("it is held"));
    assert_eq!((watch.borrow().basis, rate.try_acquire(1)), (Basis::Unknown, Err(TryError::Closed)));
}

#[tokio::test(start_paused = true)]
async fn gauges_are_told_too_and_say_what_is_out_until_it_came_back() {
    let shared = shared();
    let (_opened, gauge) = open_gauge(&shared);
    answer(&shared, 10.0);
    let permit = gauge.try_acquire(10).expect("as many as were given");
    let hint = || shared.hinted(Some(&["r".to_owned()]));
    pass(1_000).await;
    hint();
    answer(&shared, 4.0);
    // Confirms the cut, and reports what is still in use. No permit is returned yet.
    pass(100).await;
    let confirm = answer(&shared, 4.0);
    assert_eq!(asked(&confirm)[0].outstanding, 10.0);
    drop(permit);
    // It samples soon without being notified.
    let wake = shared.step().wake.expect("it looks again");
    assert!(wake <= Instant::now() + Duration::from_millis(100));
    pass(100).await;
    let after = answer(&shared, 4.0);
    assert_eq!(asked(&after)[0].outstanding, 0.0);
    let wake = shared.step().wake.expect("a refresh");
    assert!(wake > Instant::now() + Duration::from_secs(1), "and then no more");
}

/// Steps until demands settle.
async fn settle(shared: &Shared, capacity: f64) {
    for _ in 0..1_000 {
        let step = shared.step();
        if let Some(number) = step.in_flight {
            shared.finish_request(|session, now| _ = session.answered(now, number, vec![given("r", capacity)]), None);
        } else if step.watches_pressure {
            return;
        }
        pass(100).await;
    }
    panic!("it estimates for ever");
}

#[tokio::test(start_paused = true)]
async fn pressure_makes_it_estimate_but_no_more_than_ten_times_a_second() {
    let shared = shared();
    let (_opened, rate) = open_rate(&shared, None);
    assert!(shared.step().outgoing.is_none(), "the first caller may come at once");
    pass(5).await;
    answer(&shared, 0.0);
    pass(10).await;
    assert!(shared.step().watches_pressure);
    let waiting = tokio::spawn(async move { rate.wait_many(20).await });
    shared.pressure.notified().await;
    shared.note_pressure();
    let step = shared.step();
    assert!(step.outgoing.is_none() && !step.watches_pressure, "it was estimated 10 ms ago");
    assert_eq!(step.wake, Some(Instant::now() + Duration::from_millis(90)));
    pass(90).await;
    let step = shared.step();
    assert!(asked(&step.outgoing.expect("what waits is asked for"))[0].amount > 0.0);
    assert!(!step.watches_pressure, "what changes is estimated again");
    let number = step.in_flight.expect("the request");
    shared.finish_request(|session, now| _ = session.answered(now, number, vec![given("r", 0.0)]), None);
    settle(&shared, 0.0).await;
    // A larger capacity that is still not enough: more may be wanted then.
    shared.hinted(None);
    pass(1_000).await;
    answer(&shared, 0.001);
    assert!(!shared.step().watches_pressure);
    shared.close();
    assert!(waiting.await.expect("no panic").is_err());
}

#[tokio::test(start_paused = true)]
async fn what_is_owed_presses_is_asked_for_and_is_told() {
    let shared = shared();
    let (opened, rate) = open_rate(&shared, None);
    shared.step();
    pass(5).await;
    answer(&shared, 10.0);
    assert_eq!((shared.health().debts, opened.changed_debt()), (vec![], None));
    pass(100).await;
    rate.charge(500).expect("it may be owed");
    shared.pressure.notified().await;
    assert!(opened.is_under_pressure());
    shared.note_pressure();
    let owed = rate.debt();
    assert_eq!(shared.health().debts, [("r".to_owned(), owed)]);
    pass(1_000).await;
    let asks = asked(&shared.step().outgoing.expect("what is owed is asked for"));
    assert!(asks[0].amount >= rate.debt() as f64, "{} of {}", asks[0].amount, rate.debt());
    assert_eq!(opened.changed_debt(), None, "the step has told it");
    opened.set_fixed_wants(1.0);
    assert!(!opened.is_under_pressure(), "it is told what to ask for");
    pass(60_000).await;
    assert_eq!((shared.health().debts, opened.changed_debt()), (vec![], Some(0)));
}

#[tokio::test(start_paused = true)]
async fn demands_are_brought_up_to_date_before_a_refresh() {
    let shared = shared();
    let opened = open(&shared, "r");
    answer(&shared, 40.0);
    opened.set_fixed_wants(101.0);
    pass(5_000).await;
    assert_eq!(asked(&shared.step().outgoing.expect("a refresh"))[0].amount, 101.0);
}

#[tokio::test(start_paused = true)]
async fn hints_are_followed_by_name_and_for_all() {
    let shared = shared();
    open(&shared, "r");
    answer(&shared, 40.0);
    pass(1_000).await;
    shared.hinted(Some(&[]));
    shared.hinted(Some(&["another".to_owned()]));
    assert!(shared.step().outgoing.is_none());
    shared.hinted(Some(&["r".to_owned()]));
    answer(&shared, 40.0);
    pass(1_000).await;
    shared.hinted(None);
    answer(&shared, 40.0);
}

#[tokio::test(start_paused = true)]
async fn closing_gives_everything_back_and_nothing_opens_any_more() {
    let shared = shared();
    let (opened, rate) = open_rate(&shared, Some(100.0));
    answer(&shared, 40.0);
    is_nudged(&shared).await;
    shared.close();
    assert!(shared.is_closing() && is_nudged(&shared).await);
    assert_eq!((held(&opened), rate.try_acquire(1)), (0.0, Err(TryError::Closed)));
    assert!(matches!(open_with(&shared, "s", Some(1.0), |_| Limiter::None), Err(OpenError::Closed)));
    let step = shared.step();
    assert_eq!((gives_back(&step), step.finished), (vec!["r".to_owned()], false));
    let number = step.in_flight.expect("the release");
    shared.finish_request(|session, now| _ = session.answered(now, number, vec![]), None);
    assert!(shared.step().finished);
    shared.close_handle(&opened.id);
    shared.reopen(&opened.id);
}

#[tokio::test(start_paused = true)]
async fn what_cannot_be_given_back_does_not_keep_a_client_from_closing() {
    let shared = shared();
    open(&shared, "r");
    answer(&shared, 40.0);
    shared.close();
    fail(&shared, "gone");
    assert!(shared.step().finished);
}

#[tokio::test(start_paused = true)]
async fn closing_waits_for_the_driver_in_either_order() {
    let shared = shared();
    let early = tokio::spawn({
        let shared = Arc::clone(&shared);
        async move { shared.closed().await }
    });
    shared.close();
    pass(60_000).await;
    assert!(!early.is_finished(), "the driver has not ended");
    let (opened, rate) = {
        let other = self::shared();
        let made = open_rate(&other, None);
        other.driver_ended();
        made
    };
    assert_eq!((held(&opened), rate.try_acquire(1)), (0.0, Err(TryError::Closed)), "however it ended");
    shared.driver_ended();
    early.await.expect("told");
    shared.closed().await;
}

#[tokio::test(start_paused = true)]
async fn health_keeps_why_the_last_one_failed() {
    let shared = shared();
    open(&shared, "r");
    fail(&shared, "as told");
    pass(100).await;
    assert_eq!((shared.health().failures, shared.health().last_error.as_deref()), (1, Some("as told")));
    answer(&shared, 40.0);
    assert_eq!((shared.health().failures, shared.health().last_error.as_deref()), (0, Some("as told")));
}

#[tokio::test(start_paused = true)]
async fn a_lease_counts_in_whole_milliseconds_that_have_passed() {
    let clock = Clock::start();
    tokio::time::advance(Duration::from_micros(1_999)).await;
    assert_eq!(clock.now(), Millis(1), "never later than it is");
    assert!(clock.instant(Millis(2)) > Instant::now());
    let _ = clock.instant(Millis(u64::MAX));
}

/// A recorder that calls the client whenever a lease has expired.
struct Curious {
    shared: Weak<Shared>,
    ended: Arc<AtomicUsize>,
}

impl ::metrics::CounterFn for Curious {
    fn increment(&self, by: u64) {
        let shared = self.shared.upgrade().expect("alive");
        assert!(shared.state.try_lock().is_ok(), "it would wait for itself for ever");
        self.ended.fetch_add(by as usize, Ordering::Relaxed);
    }

    fn absolute(&self, _: u64) {}
}

impl ::metrics::Recorder for Curious {
    fn describe_counter(&self, _: ::metrics::KeyName, _: Option<::metrics::Unit>, _: ::metrics::SharedString) {}
    fn describe_gauge(&self, _: ::metrics::KeyName, _: Option<::metrics::Unit>, _: ::metrics::SharedString) {}
    fn describe_histogram(&self, _: ::metrics::KeyName, _: Option<::metrics::Unit>, _: ::metrics::SharedString) {}

    fn register_counter(&self, key: &::metrics::Key, _: &::metrics::Metadata<'_>) -> ::metrics::Counter {
        if key.name() != "leaseway_client_leases_ended_total" {
            return ::metrics::Counter::noop();
        }
        let (shared, ended) = (Weak::clone(&self.shared), Arc::clone(&self.ended));
        ::metrics::Counter::from_arc(Arc::new(Curious { shared, ended }))
    }

    fn register_gauge(&self, _: &::metrics::Key, _: &::metrics::Metadata<'_>) -> ::metrics::Gauge {
        ::metrics::Gauge::noop()
    }

    fn register_histogram(&self, _: &::metrics::Key, _: &::metrics::Metadata<'_>) -> ::metrics::Histogram {
        ::metrics::Histogram::noop()
    }
}

#[tokio::test(start_paused = true)]
async fn a_recorder_that_counts_ended_leases_may_ask_the_client_something() {
    let shared = shared();
    let opened = open(&shared, "r");
    answer(&shared, 40.0);
    pass(60_000).await;
    let ended = Arc::new(AtomicUsize::new(0));
    let curious = Curious { shared: Arc::downgrade(&shared), ended: Arc::clone(&ended) };
    ::metrics::with_local_recorder(&curious, || {
        shared.step();
        shared.step();
    });
    assert_eq!((ended.load(Ordering::Relaxed), held(&opened)), (1, 1.5), "counted once");
}

#[tokio::test(start_paused = true)]
async fn what_is_passed_on_is_told_as_long_as_it_is_more_than_the_lease() {
    let shared = shared();
    let opened = open(&shared, "r");
    answer(&shared, 40.0);
    opened.hold(40.0);
    shared.demand_changed(&"r".into());
    pass(5_000).await;
    assert_eq!(asked(&answer(&shared, 10.0))[0].outstanding, 0.0, "it is within the lease");
    pass(5_000).await;
    assert_eq!(asked(&answer(&shared, 10.0))[0].outstanding, 40.0);
    opened.hold(10.0);
    shared.demand_changed(&"r".into());
    pass(100).await;
    assert_eq!(asked(&answer(&shared, 10.0))[0].outstanding, 0.0, "told at once: another may wait for it");
}

#[tokio::test(start_paused = true)]
async fn a_client_that_is_abandoned_gives_nothing_back() {
    let shared = shared();
    open(&shared, "r");
    answer(&shared, 40.0);
    shared.abandon();
    let step = shared.step();
    assert!(step.finished && step.outgoing.is_none());
}
