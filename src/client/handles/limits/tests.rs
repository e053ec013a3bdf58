//! Handles of a client without a server, in a mode in which it may use what it wants.

use std::time::Duration;

use leaseway_core::{policy::period::Span, resource::BudgetLease, types::Millis};

use super::*;
use crate::{
    Builder, Client, SpendError,
    handles::open_resource::Limiter,
    limiter::Burst,
    session::{Capacity, Lease, Mode, Wire},
};

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
    assert_eq!((reserved.reserved().collect::<Vec<_>>(), slots.in_use()), (vec![100.0, 1.0], 1));
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

/// A budget with an allowance.
fn open_budget(client: &Client, id: &str, allowance: f64) -> Budget {
    let budget = client.budget(id).expect("open");
    allow(&budget, 1, allowance);
    budget
}

/// Gives a budget a lease as a server would.
fn allow(budget: &Budget, token: u64, allowance: f64) {
    let Limiter::Budget(spender) = &budget.resource().opened().limiter else { panic!("a budget") };
    let lease = Lease {
        capacity: Capacity::of(allowance),
        end: Millis(1_000_000),
        refresh: Millis(2_000),
        token: Some(token),
        wire: Wire { expiry_time: 10, refresh_interval: 2, capacity: allowance },
        budget: Some(BudgetLease { period: Span { start: 1000, end: 2000 }, starts_over: false }),
    };
    spender.take(budget.resource().now(), &lease);
}

#[tokio::test(start_paused = true)]
async fn amounts_and_permits_are_taken_together_or_not_at_all() {
    let (client, tokens, slots) = open().await;
    let (cents, dollars) = (open_budget(&client, "cents", 10.0), open_budget(&client, "dollars", 5.0));
    let limits = client.limits([slots.of(1), cents.of(2.5), tokens.of(60), dollars.of(0.0)]);
    drop(limits.try_acquire().expect("available"));
    assert_eq!((cents.left(), tokens.available(), slots.in_use()), (7.5, 40, 0), "the amount is spent");
    let refusal = limits.try_acquire().expect_err("40 tokens");
    assert_eq!((refusal.index, &*refusal.resource, refusal.retry_after()), (2, "tokens", Some(Duration::from_secs(2))));
    let refusal = limits.with_permits(&[1.0, 2.5, 40.0, 5.5]).try_reserve().expect_err("5 dollars");
    assert_eq!((refusal.index, &*refusal.resource, refusal.retry_after()), (3, "dollars", None));
    assert_eq!((cents.left(), dollars.left(), tokens.available(), slots.in_use()), (7.5, 5.0, 40, 0));
    client.abandon();
    assert_eq!(limits.try_acquire().expect_err("closed").error, TryError::Closed);
    assert_eq!(limits.acquire().await.map(drop), Err(Closed));
}

#[tokio::test(start_paused = true)]
async fn amounts_of_budgets_are_settled_charged_and_refunded() {
    let (client, tokens, slots) = open().await;
    let cents = open_budget(&client, "cents", 10.0);
    let limits = client.limits([cents.of(4.5), tokens.of(60), cents.of(1.0), slots.of(1)]);
    let reserved = limits.reserve().await.expect("available");
    assert_eq!(reserved.reserved().collect::<Vec<_>>(), [4.5, 60.0, 1.0, 1.0]);
    assert_eq!(cents.left(), 4.5);
    reserved.settle(&[0.5, 10.0, 1.5, 1.0]).expect("less than reserved");
    assert_eq!((cents.left(), cents.spent(), tokens.available(), slots.in_use()), (8.0, 2.0, 90, 0));
    limits.charge(&[9.0, 20.0, 0.0, 0.0]).expect("no debt");
    assert_eq!((cents.left(), cents.owed(), tokens.available()), (0.0, 1.0, 70));
    limits.refund(&[1.0, 5.0, 2.0, 0.0]);
    assert_eq!((cents.left(), cents.owed(), tokens.available()), (0.0, 1.0, 75), "amounts stay spent");
    let nothing = limits.with_permits(&[0, 1, 0, 0]).try_reserve().expect("no amount is needed");
    nothing.settle(&[0, 0, 3, 0]).expect("no debt");
    assert_eq!(cents.owed(), 4.0);
}

#[tokio::test(start_paused = true)]
async fn a_cancelled_wait_for_permits_gives_amounts_back() {
    let (client, tokens, slots) = open().await;
    let cents = open_budget(&client, "cents", 10.0);
    let limits = client.limits([cents.of(4.0), tokens.of(1), slots.of(2)]);
    let slot = slots.try_acquire(1).expect("free");
    let waiting = tokio::time::timeout(Duration::from_secs(5), limits.acquire()).await;
    assert!(waiting.is_err());
    assert_eq!((cents.left(), tokens.available(), slots.in_use()), (10.0, 100, 1));
    let (acquired, ()) = tokio::join!(limits.acquire(), async {
        tokio::task::yield_now().await;
        assert_eq!((cents.left(), slots.in_use()), (6.0, 1), "reserved first");
        drop(slot);
    });
    drop(acquired.expect("open"));
    assert_eq!((cents.left(), tokens.available(), slots.in_use()), (6.0, 99, 0));
}

#[tokio::test(start_paused = true)]
async fn a_caller_waits_for_one_budget_and_holds_nothing() {
    let (client, _tokens, _slots) = open().await;
    let (cents, dollars) = (open_budget(&client, "cents", 10.0), open_budget(&client, "dollars", 1.0));
    let limits = client.limits([cents.of(6.0), dollars.of(5.0)]);
    let waiting = tokio::spawn(async move { limits.acquire().await.map(drop) });
    tokio::time::sleep(Duration::from_secs(3)).await;
    assert_eq!((cents.left(), dollars.left()), (10.0, 1.0), "it waits for dollars");
    cents.try_spend(8.0).expect("nobody holds them");
    allow(&dollars, 2, 7.0);
    tokio::time::sleep(Duration::from_secs(3)).await;
    assert_eq!((cents.left(), dollars.left()), (2.0, 7.0), "it waits for cents");
    assert_eq!(cents.try_spend(1.0), Err(SpendError::Behind));
    dollars.try_spend(1.0).expect("nobody waits for them");
    allow(&cents, 2, 15.0);
    waiting.await.expect("no panic").expect("open");
    assert_eq!((cents.left(), dollars.left()), (1.0, 1.0));
}

#[tokio::test(start_paused = true)]
async fn amounts_that_were_given_back_stay_in_the_demand() {
    let (client, _tokens, _slots) = open().await;
    let (cents, dollars) = (open_budget(&client, "cents", 10.0), open_budget(&client, "dollars", 0.0));
    let limits = client.limits([cents.of(6.0), dollars.of(5.0)]);
    let wants = |budget: &Budget| {
        let Limiter::Budget(spender) = &budget.resource().opened().limiter else { panic!("a budget") };
        let (wants, reported) = spender.wants(budget.resource().now());
        (wants, reported.need)
    };
    let waited = tokio::time::timeout(Duration::from_secs(1), limits.acquire()).await;
    assert!(waited.is_err());
    assert_eq!((wants(&cents), wants(&dollars)), ((6.0, 6.0), (0.0, 0.0)), "without it the next lease may be smaller");
    drop(limits.try_acquire().expect_err("no dollars"));
    assert_eq!((wants(&cents), wants(&dollars)), ((6.0, 6.0), (5.0, 5.0)));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn callers_that_need_the_same_budgets_in_any_order_spend_all_of_them() {
    let client = builder().build().expect("a valid endpoint");
    let budgets: Vec<Budget> = ["a", "b", "c"].map(|id| open_budget(&client, id, 0.0)).into();
    let callers = (0..12).map(|caller| {
        let costs = (0..3).map(|place| budgets[(place * (1 + caller % 2) + caller) % 3].of(1.0));
        let limits = client.limits(costs);
        tokio::spawn(async move {
            for turn in 0..100 {
                let reserved = limits.reserve().await.expect("open");
                reserved.settle(&[turn % 2; 3]).expect("less than reserved");
            }
        })
    });
    let callers: Vec<_> = callers.collect();
    for step in 1..=60 {
        budgets.iter().for_each(|budget| allow(budget, step + 1, step as f64 * 10.0));
        tokio::time::sleep(Duration::from_millis(2)).await;
    }
    for caller in callers {
        tokio::time::timeout(Duration::from_secs(30), caller).await.expect("no deadlock").expect("no panic");
    }
    assert!(budgets.iter().all(|budget| (budget.spent(), budget.left()) == (600.0, 0.0)));
}

#[tokio::test(start_paused = true)]
async fn invalid_numbers_panic_before_anything_is_changed() {
    let (client, tokens, _slots) = open().await;
    let cents = open_budget(&client, "cents", 10.0);
    let limits = client.limits([cents.of(1.0), tokens.of(1)]);
    let refuses = |numbers: [f64; 2]| {
        std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| limits.charge(&numbers))).is_err()
            && std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| limits.with_permits(&numbers))).is_err()
    };
    assert!(refuses([1.0, 0.5]) && refuses([1.0, -1.0]) && refuses([f64::NAN, 1.0]) && refuses([1e16, 1.0]));
    assert_eq!((cents.left(), tokens.available()), (10.0, 100));
}
