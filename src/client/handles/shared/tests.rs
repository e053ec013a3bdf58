//! Handles with a session. The tests play the part of the driver.

use std::task::{Context, Wake, Waker};

use leaseway_core::{policy::period::Span, resource::BudgetLease, types::Amount};

use super::*;
use crate::{
    handles::{open_resource::Limiter, spender::Spender},
    limiter::{Burst, Closed, GaugeLimiter, RateLimiter, TryError},
    session::{Body, GrantedLease, Mode, Pace, Settings, StreamReply, Wire},
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

fn open_budget(shared: &Shared) -> (Arc<OpenResource>, Arc<Spender>) {
    let make = |wakeup: &Arc<Notify>| Limiter::Budget(Arc::new(Spender::new(Arc::clone(wakeup))));
    let opened = open_with(shared, "r", None, make).expect("not closed");
    let Limiter::Budget(spender) = &opened.limiter else { panic!("it was opened as a budget") };
    let spender = Arc::clone(spender);
    (opened, spender)
}

fn amount(value: f64) -> Amount {
    Amount::new(value).expect("valid")
}

fn given(id: &str, capacity: f64) -> GrantedLease {
    GrantedLease {
        id: id.into(),
        length: Millis(60_000),
        refresh: Millis(5_000),
        token: Some(1),
        wire: Wire { expiry_time: 60, refresh_interval: 5, capacity },
        safe: Some(1.5),
        budget: None,
    }
}

fn asked(outgoing: &Outgoing<Wants>) -> Vec<Wants> {
    match &outgoing.body {
        Body::Ask(asks) => asks.iter().map(|ask| ask.demand).collect(),
        Body::Release(_) | Body::Stream(_) => panic!("no request for capacity"),
    }
}

fn released(step: &NextStep) -> Vec<String> {
    match step.outgoing.as_ref().map(|outgoing| &outgoing.body) {
        Some(Body::Release(releases)) => releases.iter().map(|release| release.id.to_string()).collect(),
        Some(Body::Ask(_) | Body::Stream(_)) => panic!("a request for capacity"),
        None => Vec::new(),
    }
}

fn answer(shared: &Shared, capacity: f64) -> Outgoing<Wants> {
    let outgoing = shared.step().outgoing.expect("something to send");
    let given = match &outgoing.body {
        Body::Ask(asks) => asks.iter().map(|ask| given(&ask.id, capacity)).collect(),
        Body::Release(_) | Body::Stream(_) => Vec::new(),
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

async fn is_woken(shared: &Shared) -> bool {
    tokio::time::timeout(Duration::from_millis(1), shared.wakeup.notified()).await.is_ok()
}

fn held(opened: &OpenResource) -> f64 {
    opened.usable().capacity.get()
}

#[tokio::test(start_paused = true)]
async fn the_last_handle_releases_the_lease() {
    let shared = shared();
    let id: Arc<str> = "r".into();
    let opened = open(&shared, "r");
    answer(&shared, 40.0);
    let again = open(&shared, "r");
    assert!(Arc::ptr_eq(&opened, &again), "one resource, one limiter");
    shared.reopen(&id);
    for _ in 0..2 {
        shared.close_handle(&id);
        assert_eq!((held(&opened), released(&shared.step())), (40.0, vec![]));
    }
    assert!(is_woken(&shared).await, "by the first handle");
    shared.close_handle(&id);
    assert!(is_woken(&shared).await, "by the last");
    assert_eq!((held(&opened), released(&shared.step())), (0.0, vec!["r".to_owned()]));
    shared.close_handle(&id);
}

#[tokio::test(start_paused = true)]
async fn a_resource_reopened_before_its_release_keeps_its_lease() {
    let shared = shared();
    let (_, before) = open_rate(&shared, Some(100.0));
    answer(&shared, 40.0);
    shared.close_handle(&"r".into());
    let (opened, rate) = open_rate(&shared, Some(100.0));
    shared.step();
    assert_eq!((held(&opened), rate.capacity().get()), (40.0, 40.0));
    assert!(matches!(before.try_acquire(1), Err(TryError::Closed)), "the old limiter stays closed");
}

#[tokio::test(start_paused = true)]
async fn new_resources_and_changed_wants_are_sent_at_once() {
    let shared = shared();
    let opened = open(&shared, "r");
    assert!(is_woken(&shared).await);
    answer(&shared, 40.0);
    pass(1_000).await;
    assert!(!is_woken(&shared).await);
    opened.set_fixed_wants(200.0);
    shared.demand_changed(&opened.id);
    assert!(is_woken(&shared).await);
    assert_eq!(asked(&shared.step().outgoing.expect("a request is due"))[0].amount, 200.0);
    shared.demand_changed(&"unknown".into());
}

/// The demand for "r", if this message on a stream states it.
fn stated(outgoing: &Outgoing<Wants>) -> Option<Wants> {
    let Body::Stream(request) = &outgoing.body else { panic!("not on a stream") };
    request.stated.iter().find_map(|(_, ask)| (&*ask.id == "r").then_some(ask.demand))
}

fn answer_on_stream(shared: &Shared, number: u64, granted: Vec<(u32, GrantedLease)>) {
    let reply = StreamReply { granted, left_out: Vec::new(), unix: 0, restart: false };
    shared.finish_request(|session, now| assert!(session.stream_answered(now, number, reply)), None);
}

#[tokio::test(start_paused = true)]
async fn the_first_message_after_a_cut_reports_what_is_in_use_beyond_the_lease() {
    let shared = shared();
    shared.discovered(&"a:1".into(), Vec::new(), Some(1));
    let (_, gauge) = open_gauge(&shared);
    let first = shared.step().outgoing.expect("something to send");
    answer_on_stream(&shared, first.number, vec![(0, given("r", 4.0))]);
    pass(5_000).await;
    let renewal = shared.step().outgoing.expect("a renewal is due");
    assert_eq!(stated(&renewal), None, "nothing has changed");
    let _permits = gauge.try_acquire(4).expect("the lease allows it");
    let cut = GrantedLease { token: Some(2), ..given("r", 1.0) };
    answer_on_stream(&shared, renewal.number, vec![(0, cut)]);
    pass(150).await;
    let next = shared.step().outgoing.expect("the cut is confirmed at once");
    assert_eq!(stated(&next).map(|demand| demand.outstanding), Some(4.0));
}

#[tokio::test(start_paused = true)]
async fn capacities_reach_limiters_and_watchers() {
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
async fn a_lease_that_expires_before_it_is_applied_admits_nobody() {
    let shared = shared();
    let (opened, gauge) = open_gauge(&shared);
    let number = shared.step().outgoing.expect("something to send").number;
    let changes = {
        let mut state = shared.lock();
        let now = shared.clock.now();
        assert!(state.session.answered(now, number, vec![given("r", 40.0)]));
        state.changes(now)
    };
    let waiting = tokio::spawn(async move { gauge.acquire_many(2).await.is_ok() });
    tokio::task::yield_now().await;
    pass(60_000).await;
    shared.apply_changes(changes);
    assert_eq!((held(&opened), opened.usable().basis), (1.5, Basis::Fallback));
    tokio::task::yield_now().await;
    assert!(!waiting.is_finished());
    waiting.abort();
}

#[tokio::test(start_paused = true)]
async fn permits_in_use_beyond_a_cut_are_reported_until_returned() {
    let shared = shared();
    let (_opened, gauge) = open_gauge(&shared);
    answer(&shared, 10.0);
    let permit = gauge.try_acquire(10).expect("within the lease");
    let hint = || shared.hinted(Some(&["r".to_owned()]));
    pass(1_000).await;
    hint();
    answer(&shared, 4.0);
    // Confirms the cut, and reports what is still in use. No permit is returned yet.
    pass(100).await;
    let confirm = answer(&shared, 4.0);
    assert_eq!(asked(&confirm)[0].outstanding, 10.0);
    drop(permit);
    // It samples again soon without being notified.
    let wake = shared.step().wake.expect("a sample");
    assert!(wake <= Instant::now() + Duration::from_millis(100));
    pass(100).await;
    let after = answer(&shared, 4.0);
    assert_eq!(asked(&after)[0].outstanding, 0.0);
    let wake = shared.step().wake.expect("a refresh");
    assert!(wake > Instant::now() + Duration::from_secs(1), "no further samples");
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
    panic!("demands do not settle");
}

#[tokio::test(start_paused = true)]
async fn pressure_causes_at_most_ten_estimates_a_second() {
    let shared = shared();
    let (_opened, rate) = open_rate(&shared, None);
    assert!(shared.step().outgoing.is_none(), "delayed for the first caller");
    pass(5).await;
    answer(&shared, 0.0);
    pass(10).await;
    assert!(shared.step().watches_pressure);
    let waiting = tokio::spawn(async move { rate.wait_many(20).await });
    shared.pressure.notified().await;
    shared.note_pressure();
    let step = shared.step();
    assert!(step.outgoing.is_none() && !step.watches_pressure, "the last estimate was 10 ms ago");
    assert_eq!(step.wake, Some(Instant::now() + Duration::from_millis(90)));
    pass(90).await;
    let step = shared.step();
    assert!(asked(&step.outgoing.expect("waiting callers are demand"))[0].amount > 0.0);
    assert!(!step.watches_pressure, "changing demand is estimated again soon");
    let number = step.in_flight.expect("the request");
    shared.finish_request(|session, now| _ = session.answered(now, number, vec![given("r", 0.0)]), None);
    settle(&shared, 0.0).await;
    // With a larger capacity that still does not suffice, more may be wanted.
    shared.hinted(None);
    pass(1_000).await;
    answer(&shared, 0.001);
    assert!(!shared.step().watches_pressure);
    shared.close();
    assert!(waiting.await.expect("no panic").is_err());
}

#[tokio::test(start_paused = true)]
async fn debt_causes_pressure_and_is_wanted_and_reported() {
    let shared = shared();
    let (opened, rate) = open_rate(&shared, None);
    shared.step();
    pass(5).await;
    answer(&shared, 10.0);
    assert_eq!((shared.health().debts, opened.changed_debt()), (vec![], None));
    pass(100).await;
    rate.charge(500).expect("below the maximum debt");
    shared.pressure.notified().await;
    assert!(opened.is_under_pressure());
    shared.note_pressure();
    let owed = rate.debt();
    assert_eq!(shared.health().debts, [("r".to_owned(), owed)]);
    pass(1_000).await;
    let asks = asked(&shared.step().outgoing.expect("debt is demand"));
    assert!(asks[0].amount >= rate.debt() as f64, "{} of {}", asks[0].amount, rate.debt());
    assert_eq!(opened.changed_debt(), None, "the step has reported it");
    opened.set_fixed_wants(1.0);
    assert!(!opened.is_under_pressure(), "its wants are fixed");
    pass(60_000).await;
    assert_eq!((shared.health().debts, opened.changed_debt()), (vec![], Some(0)));
}

#[tokio::test(start_paused = true)]
async fn hints_name_resources_or_all_of_them() {
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
async fn closing_releases_all_leases_and_rejects_new_resources() {
    let shared = shared();
    let (opened, rate) = open_rate(&shared, Some(100.0));
    answer(&shared, 40.0);
    is_woken(&shared).await;
    shared.close();
    assert!(shared.is_closing() && is_woken(&shared).await);
    assert_eq!((held(&opened), rate.try_acquire(1)), (0.0, Err(TryError::Closed)));
    assert!(matches!(open_with(&shared, "s", Some(1.0), |_| Limiter::None), Err(OpenError::Closed)));
    let step = shared.step();
    assert_eq!((released(&step), step.finished), (vec!["r".to_owned()], false));
    let number = step.in_flight.expect("the release");
    shared.finish_request(|session, now| _ = session.answered(now, number, vec![]), None);
    assert!(shared.step().finished);
    shared.close_handle(&opened.id);
    shared.reopen(&opened.id);
    // A release that fails does not prevent the end, and an abandoned client does not release.
    for abandons in [false, true] {
        let shared = self::shared();
        open(&shared, "r");
        answer(&shared, 40.0);
        if abandons {
            shared.abandon();
        } else {
            shared.close();
            fail(&shared, "gone");
        }
        let step = shared.step();
        assert!(step.finished && step.outgoing.is_none());
    }
}

/// Answers with an allowance.
fn allow(shared: &Shared, capacity: f64) {
    let outgoing = shared.step().outgoing.expect("something to send");
    let budget = Some(BudgetLease { period: Span { start: 0, end: 3_600 }, starts_over: false });
    let allowance = GrantedLease { budget, ..given("r", capacity) };
    shared.finish_request(|session, now| _ = session.answered(now, outgoing.number, vec![allowance]), None);
}

/// What a step reports as spent with the release of a budget.
fn reported(step: &NextStep) -> Option<f64> {
    let Some(Body::Release(releases)) = step.outgoing.as_ref().map(|outgoing| &outgoing.body) else { return None };
    releases.first().and_then(|release| release.spent).map(|spent| spent.spent)
}

struct OnWake(Box<dyn Fn() + Send + Sync>);

impl Wake for OnWake {
    fn wake(self: Arc<Self>) {
        (self.0)();
    }
}

/// Closes the client, and takes a step, while a budget of which 7 were spent is being closed. The first is what that
/// step reports as spent with a release, the second what the next step does.
fn close_within(shared: &Arc<Shared>, close: impl FnOnce(&Shared)) -> [Option<f64>; 2] {
    let (opened, spender) = open_budget(shared);
    allow(shared, 10.0);
    spender.try_spend(shared.now(), amount(7.0), false).expect("the allowance covers it");
    let mut watch = opened.watch();
    watch.mark_unchanged();
    let within = Arc::new(Mutex::new(None));
    let waker = {
        let (shared, within) = (Arc::clone(shared), Arc::clone(&within));
        // The same as another thread that closes the client at this moment.
        let closes = move || {
            shared.close();
            *within.lock().expect("not poisoned") = Some(reported(&shared.step()));
        };
        Waker::from(Arc::new(OnWake(Box::new(closes))))
    };
    {
        let mut closed = std::pin::pin!(watch.changed());
        assert!(closed.as_mut().poll(&mut Context::from_waker(&waker)).is_pending());
        close(shared);
    }
    let within = within.lock().expect("not poisoned").take().expect("the waker was called");
    [within, reported(&shared.step())]
}

#[tokio::test(start_paused = true)]
async fn concurrent_closes_release_a_budget_with_its_last_report() {
    assert_eq!(close_within(&shared(), Shared::close), [None, Some(7.0)]);
    assert_eq!(close_within(&shared(), |shared| shared.close_handle(&"r".into())), [None, Some(7.0)]);
}

#[tokio::test(start_paused = true)]
async fn the_last_report_of_a_budget_does_not_change() {
    let shared = shared();
    let (_opened, spender) = open_budget(&shared);
    allow(&shared, 10.0);
    let now = shared.now();
    let spent_in = spender.try_spend(now, amount(7.0), false).expect("the allowance covers it");
    spender.charge(now, amount(1.0)).expect("it is open");
    shared.close();
    assert_eq!(spender.charge(now, amount(1.0)), Err(Closed));
    assert_eq!(spender.settle(now, amount(7.0), amount(9.0), spent_in), Err(Closed), "2 are not charged");
    assert_eq!(spender.settle(now, amount(7.0), amount(2.0), spent_in), Ok(()), "5 stay spent");
    assert_eq!((reported(&shared.step()), spender.spent().get()), (Some(8.0), 8.0));
}

#[tokio::test(start_paused = true)]
async fn a_refresh_that_fails_during_a_close_does_not_prevent_the_release() {
    let shared = shared();
    open(&shared, "r");
    answer(&shared, 40.0);
    pass(5_000).await;
    let refresh = shared.step().outgoing.expect("a refresh is due").number;
    shared.close();
    shared.finish_request(|session, now| _ = session.failed(now, refresh), Some("gone".to_owned()));
    assert!(!shared.step().finished);
    pass(100).await;
    assert_eq!(released(&shared.step()), ["r"]);
}

#[tokio::test(start_paused = true)]
async fn ready_ends_when_a_resource_or_the_client_is_closed() {
    const TIMEOUT: Duration = Duration::from_secs(3_600);
    let ready = async |closes: fn(&Shared), only: Option<&str>| {
        let (shared, only) = (shared(), only.map(Arc::<str>::from));
        open(&shared, "r");
        open(&shared, "s");
        let begun = Instant::now();
        let (ready, ()) = tokio::join!(shared.ready(only.as_ref(), TIMEOUT), async {
            tokio::task::yield_now().await;
            closes(&shared);
        });
        assert_eq!(begun.elapsed(), Duration::ZERO);
        ready.map_err(|not| not.to_string())
    };
    let both = |shared: &Shared| ["r", "s"].iter().for_each(|id| shared.close_handle(&(*id).into()));
    assert_eq!(ready(both, None).await, Ok(()), "closed resources do not count");
    let closed = |which: &str| Err(format!("no lease yet for {which}: the client was closed"));
    assert_eq!(ready(Shared::close, None).await, closed("`r`, `s`"));
    assert_eq!(ready(Shared::close, Some("r")).await, closed("`r`"));
    let shared = shared();
    open(&shared, "r");
    answer(&shared, 40.0);
    shared.close();
    let id: Arc<str> = "r".into();
    let ready = async |only| shared.ready(only, TIMEOUT).await.map_err(|not| not.to_string());
    assert_eq!(ready(Some(&id)).await, closed("`r`"), "it was closed before");
    assert_eq!(ready(None).await, closed("any resource"));
}

#[tokio::test(start_paused = true)]
async fn closed_waits_for_the_end_of_the_driver() {
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
    assert_eq!((held(&opened), rate.try_acquire(1)), (0.0, Err(TryError::Closed)), "closed with the driver");
    shared.driver_ended();
    early.await.expect("no panic");
    shared.closed().await;
}

#[tokio::test(start_paused = true)]
async fn health_keeps_the_error_of_the_last_failure() {
    let shared = shared();
    open(&shared, "r");
    fail(&shared, "refused");
    pass(100).await;
    assert_eq!((shared.health().failures, shared.health().last_error.as_deref()), (1, Some("refused")));
    answer(&shared, 40.0);
    assert_eq!((shared.health().failures, shared.health().last_error.as_deref()), (0, Some("refused")));
}

#[tokio::test(start_paused = true)]
async fn expired_leases_are_counted_and_logged_once_a_minute() {
    let shared = shared();
    for id in ["r", "s", "t"] {
        open(&shared, id);
    }
    answer(&shared, 40.0);
    let logged = |shared: &Shared| !std::mem::take(&mut shared.lock().expiry_log).passes();
    assert!(!logged(&shared));
    pass(60_000).await;
    fail(&shared, "gone");
    assert!(logged(&shared), "the lease has expired");
    assert_eq!(shared.lock().expired, 0);
    shared.lock().expiry_log.passes();
    shared.log_expired(&["r".into(), "s".into()]);
    shared.log_expired(&["t".into()]);
    assert_eq!(shared.lock().expired, 3, "less than a minute later");
}

#[tokio::test(start_paused = true)]
async fn the_clock_rounds_down_to_milliseconds() {
    let clock = Clock::start();
    tokio::time::advance(Duration::from_micros(1_999)).await;
    assert_eq!(clock.now(), Millis(1), "rounded down");
    assert!(clock.instant(Millis(2)) > Instant::now());
    let _ = clock.instant(Millis(u64::MAX));
}

#[tokio::test(start_paused = true)]
async fn held_amounts_beyond_the_lease_are_reported() {
    let shared = shared();
    let opened = open(&shared, "r");
    answer(&shared, 40.0);
    opened.hold(40.0);
    shared.demand_changed(&"r".into());
    pass(5_000).await;
    assert_eq!(asked(&answer(&shared, 10.0))[0].outstanding, 0.0, "within the lease");
    pass(5_000).await;
    assert_eq!(asked(&answer(&shared, 10.0))[0].outstanding, 40.0);
    opened.hold(10.0);
    shared.demand_changed(&"r".into());
    pass(100).await;
    assert_eq!(asked(&answer(&shared, 10.0))[0].outstanding, 0.0, "reported at once: another client may wait for it");
}
