//! Taking permits and amounts of several limits at once.

use std::{sync::Arc, time::Instant};

use leaseway_proto::doorman::GetCapacityResponse;
use tokio::time::{Duration, sleep};

use super::{Kit, Outcome, check, eventually, request_since};
use crate::{
    common::driver::Driver,
    conform::server::{Grant, Script, ScriptedServer},
};

/// The start of the period of allowances, in Unix seconds.
const PERIOD: i64 = 1_900_000_000;

/// The capacities of resources. The first letter of a name is its kind: rate, gauge or budget.
type Capacities<'a> = &'a [(&'static str, f64)];

fn script(capacities: Capacities<'_>) -> Script {
    let capacities = capacities.to_vec();
    Script::Respond(Arc::new(move |request, token| {
        let known = request.resource.iter().filter_map(|entry| {
            let (name, capacity) = capacities.iter().find(|(name, _)| *name == entry.resource_id())?;
            let is_budget = name.starts_with('b');
            let grant = if is_budget { Grant::allowance(*capacity, PERIOD) } else { Grant::of(*capacity) };
            Some(grant.response(name, token))
        });
        GetCapacityResponse { response: known.collect(), ..GetCapacityResponse::default() }
    }))
}

/// A client with these limits, once it has their leases.
async fn limits(kit: &Kit, capacities: Capacities<'_>) -> Result<(ScriptedServer, Driver), String> {
    let server = ScriptedServer::start(script(capacities)).await?;
    let mut client = kit.client(&[&server], "safe").await?;
    for (name, _) in capacities {
        match name.as_bytes()[0] {
            b'b' => client.open_budget(name).await?,
            b'g' => client.expect_ok(&format!("gauge {name} 10")).await?,
            _ => client.expect_ok(&format!("rate {name} 10")).await?,
        }
    }
    for (name, capacity) in capacities {
        eventually("the leases", async || {
            let seen = client.usable(name).await?;
            Ok((seen.capacity == *capacity && seen.basis == "lease").then_some(()))
        })
        .await?;
    }
    Ok((server, client))
}

async fn takes(client: &mut Driver, limits: &str) -> Outcome {
    let refusing = client.try_all(limits).await?;
    check(refusing.is_none(), || format!("{limits} is refused by {refusing:?}"))
}

async fn refused(client: &mut Driver, limits: &str, by: &str) -> Outcome {
    let refusing = client.try_all(limits).await?;
    check(refusing.as_deref() == Some(by), || format!("{limits} should be refused by {by}, and not {refusing:?}"))
}

async fn allows(client: &mut Driver, limit: &str, permits: u32, when: &str) -> Outcome {
    check(client.allow(limit, permits).await?, || format!("{permits} permits of {limit} are not there {when}"))
}

/// Waits for the permits: a library may end a wait in the background.
async fn allows_soon(client: &mut Driver, limit: &str, permits: u32, when: &str) -> Outcome {
    let what = format!("{permits} permits of {limit} {when}");
    eventually(&what, async || Ok(client.allow(limit, permits).await?.then_some(()))).await
}

async fn left_soon(client: &mut Driver, budget: &str, amount: f64, when: &str) -> Outcome {
    let what = format!("{amount} of {budget} is left {when}");
    eventually(&what, async || Ok((client.left(budget).await? == amount).then_some(()))).await
}

async fn left(client: &mut Driver, budget: &str, amount: f64, when: &str) -> Outcome {
    let left = client.left(budget).await?;
    check(left == amount, || format!("{amount} of {budget} should be left {when}, and not {left}"))
}

pub(super) async fn several_limits_are_taken_together_or_not_at_all(kit: Kit) -> Outcome {
    let (_server, mut client) =
        limits(&kit, &[("rate", 1.0), ("r-none", 0.0), ("gauge", 2.0), ("g-other", 1.0)]).await?;
    // A permit of the rate has been saved up by then.
    sleep(Duration::from_millis(1_500)).await;
    refused(&mut client, "rate=1,gauge=3", "gauge").await?;
    allows(&mut client, "rate", 1, "after the gauge has refused").await?;
    refused(&mut client, "g-other=1,gauge=2,r-none=1", "r-none").await?;
    takes(&mut client, "g-other=1,gauge=2").await?;
    check(!client.allow("gauge", 1).await?, || "a third permit of a gauge of 2".to_owned())?;
    check(!client.allow("g-other", 1).await?, || "a second permit of a gauge of 1".to_owned())?;
    client.expect_ok("return").await?;
    allows(&mut client, "gauge", 2, "after all were returned").await?;
    allows(&mut client, "g-other", 1, "after all were returned").await
}

pub(super) async fn the_limit_that_refuses_is_named(kit: Kit) -> Outcome {
    let (_server, mut client) = limits(&kit, &[("rate", 100.0), ("r-none", 0.0), ("gauge", 2.0)]).await?;
    for limits in ["gauge=1,r-none=1", "r-none=1,gauge=1", "rate=1,r-none=1,gauge=1"] {
        refused(&mut client, limits, "r-none").await?;
    }
    allows(&mut client, "gauge", 2, "at first").await?;
    for limits in ["rate=1,gauge=1", "gauge=1,rate=1"] {
        refused(&mut client, limits, "gauge").await?;
    }
    Ok(())
}

pub(super) async fn a_caller_is_served_when_the_last_limit_has_room(kit: Kit) -> Outcome {
    let (server, mut client) = limits(&kit, &[("rate", 100.0), ("gauge", 2.0), ("g-other", 1.0)]).await?;
    allows(&mut client, "gauge", 2, "at first").await?;
    let more = async {
        sleep(Duration::from_secs(1)).await;
        server.play(script(&[("rate", 100.0), ("gauge", 3.0), ("g-other", 1.0)]));
    };
    let begin = Instant::now();
    let (is_served, ()) = tokio::join!(client.all("rate=1,gauge=1,g-other=1", 20), more);
    let is_prompt = begin.elapsed() < Duration::from_secs(15);
    check(is_served? && is_prompt, || "a caller is not served although all limits have room".to_owned())?;
    for gauge in ["gauge", "g-other"] {
        check(!client.allow(gauge, 1).await?, || format!("a permit of {gauge} that the caller holds"))?;
    }
    client.expect_ok("return").await?;
    for gauge in ["gauge", "g-other"] {
        allows(&mut client, gauge, 1, "after it was returned").await?;
    }
    Ok(())
}

pub(super) async fn callers_in_opposite_orders_are_served(kit: Kit) -> Outcome {
    let (_server, mut client) = limits(&kit, &[("gauge", 1.0), ("g-other", 1.0), ("rate", 1e6)]).await?;
    for limits in [["gauge", "g-other"], ["gauge", "rate"]] {
        let served = client.opposite(limits, 1, 3).await?;
        check(served.iter().all(|times| *times >= 5), || format!("{limits:?} serve callers {served:?} times in 3 s"))?;
    }
    allows(&mut client, "gauge", 1, "after all callers have ended").await?;
    allows(&mut client, "g-other", 1, "after all callers have ended").await
}

/// Waits for a gauge that is in use and one that is free, with a command that ends after a second.
async fn ends_with_nothing(kit: &Kit, is_cancelled: bool) -> Outcome {
    let (_server, mut client) = limits(kit, &[("gauge", 2.0), ("g-free", 1.0), ("rate", 100.0)]).await?;
    allows(&mut client, "gauge", 2, "at first").await?;
    let wanted = "g-free=1,gauge=1,rate=1";
    let is_served = if is_cancelled { client.cancelled(wanted, 1).await? } else { client.all(wanted, 1).await? };
    check(!is_served, || "a caller is served by a gauge that is in use".to_owned())?;
    allows_soon(&mut client, "g-free", 1, "after the wait").await?;
    client.expect_ok("release gauge 2").await?;
    allows_soon(&mut client, "gauge", 2, "after the wait").await?;
    check(client.count("rate", 1).await? > 0, || "the rate admits nobody after the wait".to_owned())
}

pub(super) async fn a_wait_that_times_out_keeps_nothing(kit: Kit) -> Outcome {
    ends_with_nothing(&kit, false).await
}

pub(super) async fn a_cancelled_wait_keeps_nothing(kit: Kit) -> Outcome {
    ends_with_nothing(&kit, true).await
}

/// Waits until the server is told that this much was spent.
async fn reported(server: &ScriptedServer, amount: f64) -> Outcome {
    // The report of an earlier amount may be on its way.
    let since = Instant::now() + Duration::from_millis(100);
    let what = format!("a report of {amount}");
    let received = request_since(server, since, &what, |received| {
        received.entry("budget").and_then(|entry| entry.spent).is_some_and(|spent| spent.amount() == amount)
    });
    received.await.map(drop)
}

pub(super) async fn a_refusal_keeps_no_amount_and_an_amount_no_permit(kit: Kit) -> Outcome {
    let (server, mut client) = limits(&kit, &[("budget", 10.0), ("gauge", 2.0), ("r-none", 0.0)]).await?;
    for limits in ["budget=4,r-none=1,gauge=1", "r-none=1,gauge=1,budget=4"] {
        refused(&mut client, limits, "r-none").await?;
        left(&mut client, "budget", 10.0, "after the rate has refused").await?;
    }
    reported(&server, 0.0).await?;
    for limits in ["budget=11,gauge=1", "gauge=1,budget=11"] {
        refused(&mut client, limits, "budget").await?;
    }
    allows(&mut client, "gauge", 2, "after the budget has refused").await?;
    client.expect_ok("release gauge 2").await?;
    takes(&mut client, "gauge=2,budget=4").await?;
    left(&mut client, "budget", 6.0, "after 4 of 10 were spent").await?;
    check(!client.allow("gauge", 1).await?, || "a permit that is in use".to_owned())?;
    client.expect_ok("return").await?;
    reported(&server, 4.0).await?;
    allows(&mut client, "gauge", 2, "after all were returned").await
}

pub(super) async fn a_wait_that_ends_gives_the_amount_back(kit: Kit) -> Outcome {
    let (server, mut client) = limits(&kit, &[("gauge", 1.0), ("budget", 10.0), ("g-free", 1.0)]).await?;
    allows(&mut client, "gauge", 1, "at first").await?;
    for is_cancelled in [false, true] {
        let wanted = "budget=4,gauge=1,g-free=1";
        let is_served = if is_cancelled { client.cancelled(wanted, 1).await? } else { client.all(wanted, 1).await? };
        check(!is_served, || "a caller is served by a gauge that is in use".to_owned())?;
        left_soon(&mut client, "budget", 10.0, "after the wait").await?;
        reported(&server, 0.0).await?;
    }
    // It waits for the budget.
    check(!client.all("budget=11,g-free=1", 1).await?, || "11 of an allowance of 10".to_owned())?;
    allows_soon(&mut client, "g-free", 1, "after the wait").await?;
    left_soon(&mut client, "budget", 10.0, "after the wait").await
}

pub(super) async fn budgets_in_opposite_orders_do_not_block_each_other(kit: Kit) -> Outcome {
    let (server, mut client) = limits(&kit, &[("budget", 0.0), ("b-other", 0.0)]).await?;
    let more = async {
        sleep(Duration::from_secs(1)).await;
        server.play(script(&[("budget", 10.0), ("b-other", 10.0)]));
    };
    // Both wait, and there is enough for one of them.
    let (served, ()) = tokio::join!(client.opposite(["budget", "b-other"], 8, 8), more);
    let served = served?;
    check(served.iter().sum::<u32>() == 1, || {
        format!("callers are served {served:?} times, and not one of them once")
    })?;
    for budget in ["budget", "b-other"] {
        left_soon(&mut client, budget, 2.0, "after one caller was served").await?;
    }
    Ok(())
}
