//! Spending a budget, and reporting what was spent.

use std::{sync::Arc, time::Instant};

use leaseway_proto::doorman::{GetCapacityRequest, GetCapacityResponse, ResourceRequest, Spent};
use tokio::time::{Duration, sleep};

use super::{Kit, Outcome, RESOURCE, check, eventually, request_since, usable};
use crate::{
    common::driver::Driver,
    conform::server::{Grant, Received, Script, ScriptedServer},
};

/// The start of the period of most allowances, and of the next, in Unix seconds.
const PERIOD: i64 = 1_900_000_000;
const NEXT_PERIOD: i64 = PERIOD + 3600;

fn allowance(capacity: f64) -> Script {
    Script::Grant(Grant::allowance(capacity, PERIOD))
}

fn report(received: &Received) -> Option<&Spent> {
    received.entry(RESOURCE)?.spent.as_ref()
}

/// Waits until exactly this much may be spent.
async fn left(client: &mut Driver, amount: f64) -> Outcome {
    let mut seen = None;
    let found = eventually("", async || {
        let left = client.left(RESOURCE).await?;
        seen = Some(left);
        Ok((left == amount).then_some(()))
    });
    let found = found.await;
    found.map_err(|_| format!("{amount} should be left, and not {seen:?}"))
}

async fn spends(client: &mut Driver, amount: u32, expected: bool, when: &str) -> Outcome {
    let spent = client.spend(RESOURCE, amount, 0).await?;
    check(spent == expected, || format!("spending {amount} {when}: {spent}, not {expected}"))
}

/// Waits for a report of this amount in this period. Returns its incarnation.
async fn reported(server: &ScriptedServer, since: Instant, amount: f64, period: i64) -> Result<u64, String> {
    let what = format!("a report of {amount} in the period from {period}");
    let received = request_since(server, since, &what, |received| {
        report(received).is_some_and(|spent| spent.amount() == amount && spent.period() == period)
    });
    received.await.map(|received| report(&received).map_or(0, Spent::incarnation))
}

/// The incarnation of the first report.
fn first_incarnation(server: &ScriptedServer) -> Result<u64, String> {
    let received = server.received();
    received.iter().find_map(report).map(Spent::incarnation).ok_or_else(|| "no request has a report".to_owned())
}

/// Answers each entry with the allowance that this returns for it.
fn respond(decide: impl Fn(&ResourceRequest) -> Grant + Send + Sync + 'static) -> Script {
    Script::Respond(Arc::new(move |request: &GetCapacityRequest, token| GetCapacityResponse {
        response: request.resource.iter().map(|entry| decide(entry).response(entry.resource_id(), token)).collect(),
        ..GetCapacityResponse::default()
    }))
}

pub(super) async fn what_was_spent_is_reported_cumulatively(kit: Kit) -> Outcome {
    let (server, mut client) = kit.budget(allowance(10.0), "safe").await?;
    left(&mut client, 10.0).await?;
    let first = server.received()[0].clone();
    let begin = *report(&first).ok_or("the first request has no report")?;
    check(begin.amount() == 0.0 && begin.incarnation() != 0, || format!("the first report is {begin:?}"))?;
    for (spent, sum) in [(3, 3.0), (4, 7.0)] {
        let since = Instant::now();
        spends(&mut client, spent, true, "of an allowance of 10").await?;
        let incarnation = reported(&server, since, sum, PERIOD).await?;
        check(incarnation == begin.incarnation(), || "the incarnation has changed".to_owned())?;
    }
    Ok(())
}

pub(super) async fn an_allowance_is_never_exceeded(kit: Kit) -> Outcome {
    let (server, mut client) = kit.budget(allowance(10.0), "safe").await?;
    spends(&mut client, 11, false, "of an allowance of 10 at most").await?;
    left(&mut client, 10.0).await?;
    for (amount, expected) in [(7, true), (4, false), (3, true), (1, false)] {
        spends(&mut client, amount, expected, "of an allowance of 10").await?;
    }
    server.play(allowance(12.0));
    left(&mut client, 2.0).await?;
    spends(&mut client, 3, false, "with 2 left").await?;
    server.play(allowance(5.0));
    left(&mut client, 0.0).await?;
    spends(&mut client, 1, false, "of an allowance of 5, having spent 10").await?;
    server.play(allowance(11.0));
    left(&mut client, 1.0).await?;
    spends(&mut client, 1, true, "with 1 left").await?;
    spends(&mut client, 1, false, "with nothing left").await
}

pub(super) async fn a_refused_spend_takes_nothing(kit: Kit) -> Outcome {
    let (server, mut client) = kit.budget(allowance(10.0), "safe").await?;
    left(&mut client, 10.0).await?;
    spends(&mut client, 11, false, "of an allowance of 10").await?;
    check(!client.spend(RESOURCE, 11, 2).await?, || "11 of an allowance of 10, after a wait".to_owned())?;
    left(&mut client, 10.0).await?;
    let since = Instant::now();
    reported(&server, since, 0.0, PERIOD).await?;
    spends(&mut client, 10, true, "of an allowance of 10").await
}

pub(super) async fn nothing_is_spent_after_the_expiry(kit: Kit) -> Outcome {
    let script = Grant::allowance(10.0, PERIOD).length(3).safe(-1.0);
    let (server, mut client) = kit.budget(Script::Grant(script), "optimistic").await?;
    left(&mut client, 10.0).await?;
    spends(&mut client, 4, true, "of an allowance of 10").await?;
    server.play(Script::Silent);
    let expired = eventually("the lease expires", async || {
        let usable = client.usable(RESOURCE).await?;
        Ok((usable.basis == "fallback").then_some(()))
    });
    expired.await?;
    spends(&mut client, 1, false, "after the expiry").await?;
    check(client.left(RESOURCE).await? == 0.0, || "something is left after the expiry".to_owned())?;
    server.play(allowance(10.0));
    left(&mut client, 6.0).await
}

pub(super) async fn the_lease_of_an_allowance_is_named_even_if_it_has_expired(kit: Kit) -> Outcome {
    let script = Grant::allowance(10.0, PERIOD).length(3);
    let (server, mut client) = kit.budget(Script::Grant(script), "safe").await?;
    left(&mut client, 10.0).await?;
    spends(&mut client, 8, true, "of an allowance of 10").await?;
    server.play(Script::Silent);
    usable(&mut client, 0.0, "fallback").await?;
    let token = server.last_token();
    let received = request_since(&server, Instant::now(), "a request after the expiry", |_| true).await?;
    let entry = received.entry(RESOURCE).ok_or("the request does not name the resource")?;
    let named = entry.has.map(|has| (has.token(), has.capacity()));
    check(named == Some((token, 10.0)), || format!("`has` is {named:?}, not lease {token} of 10"))?;
    check(entry.had.is_none(), || format!("`had` is {:?}", entry.had))?;
    server.play(allowance(5.0));
    left(&mut client, 0.0).await?;
    let claim =
        request_since(&server, Instant::now(), "`has` with 8 that were spent, of an allowance of 5", |received| {
            received.entry(RESOURCE).and_then(|entry| entry.has).is_some_and(|has| has.capacity() == 8.0)
        });
    claim.await.map(drop)
}

pub(super) async fn an_allowance_is_of_one_period(kit: Kit) -> Outcome {
    let (server, mut client) = kit.budget(allowance(10.0), "safe").await?;
    left(&mut client, 10.0).await?;
    spends(&mut client, 7, true, "of an allowance of 10").await?;
    let since = Instant::now();
    server.play(Script::Grant(Grant::allowance(4.0, NEXT_PERIOD)));
    left(&mut client, 4.0).await?;
    reported(&server, since, 0.0, NEXT_PERIOD).await?;
    spends(&mut client, 5, false, "of an allowance of 4 in another period").await?;
    spends(&mut client, 4, true, "of an allowance of 4 in another period").await?;
    reported(&server, since, 4.0, NEXT_PERIOD).await.map(drop)
}

pub(super) async fn a_client_that_starts_over_is_another_incarnation(kit: Kit) -> Outcome {
    let (server, mut client) = kit.budget(allowance(10.0), "safe").await?;
    left(&mut client, 10.0).await?;
    spends(&mut client, 7, true, "of an allowance of 10").await?;
    let old = first_incarnation(&server)?;
    let since = Instant::now();
    let is_old = move |entry: &ResourceRequest| entry.spent.is_none_or(|spent| spent.incarnation() == old);
    server.play(respond(move |entry| {
        // The new incarnation gets something once it has asked again.
        if is_old(entry) { Grant::starts_over(PERIOD).refresh(600).length(900) } else { Grant::allowance(5.0, PERIOD) }
    }));
    let fresh = request_since(&server, since, "a prompt request of another incarnation", |received| {
        received.entry(RESOURCE).is_some_and(|entry| !is_old(entry))
    });
    let fresh = fresh.await?;
    let entry = fresh.entry(RESOURCE).ok_or("the request does not name the resource")?;
    check(report(&fresh).is_some_and(|spent| spent.amount() == 0.0), || format!("its report is {:?}", entry.spent))?;
    check(entry.has.is_none() && entry.had.is_none(), || format!("it names {:?} and {:?}", entry.has, entry.had))?;
    left(&mut client, 5.0).await
}

pub(super) async fn a_budget_that_is_opened_again_is_another_incarnation(kit: Kit) -> Outcome {
    let (server, mut client) = kit.budget(allowance(10.0), "safe").await?;
    left(&mut client, 10.0).await?;
    spends(&mut client, 7, true, "of an allowance of 10").await?;
    let mut known = vec![first_incarnation(&server)?];
    for restarts in [false, true] {
        let since = Instant::now();
        if restarts {
            // The same client in another process.
            client = kit.client(&[&server], "safe").await?;
        } else {
            client.expect_ok(&format!("close {RESOURCE}")).await?;
        }
        client.open_budget(RESOURCE).await?;
        let fresh = request_since(&server, since, "a request of another incarnation", |received| {
            report(received).is_some_and(|spent| !known.contains(&spent.incarnation()))
        });
        let spent = *report(&fresh.await?).expect("it was looked for");
        check(spent.amount() == 0.0, || format!("the new incarnation reports {spent:?}"))?;
        known.push(spent.incarnation());
        left(&mut client, 10.0).await?;
    }
    Ok(())
}

pub(super) async fn an_answer_to_another_incarnation_is_dropped(kit: Kit) -> Outcome {
    let late = Script::Late(Duration::from_secs(2), Grant::allowance(10.0, PERIOD));
    let (server, mut client) = kit.budget(late, "safe").await?;
    eventually("a request", async || Ok((!server.received().is_empty()).then_some(()))).await?;
    server.play(Script::Silent);
    client.expect_ok(&format!("close {RESOURCE}")).await?;
    client.open_budget(RESOURCE).await?;
    // By then the late answer has arrived.
    sleep(Duration::from_secs(4)).await;
    spends(&mut client, 1, false, "of the allowance of an earlier incarnation").await
}

pub(super) async fn a_release_reports_what_was_spent(kit: Kit) -> Outcome {
    for end in [&format!("close {RESOURCE}"), "exit"] {
        let (server, mut client) = kit.budget(allowance(10.0), "safe").await?;
        left(&mut client, 10.0).await?;
        spends(&mut client, 3, true, "of an allowance of 10").await?;
        client.expect_ok(end).await?;
        let released = eventually("a release", async || Ok(server.released().first().cloned())).await?;
        check(released.resource_id == [RESOURCE], || format!("it releases {:?}", released.resource_id))?;
        let spent = released.spent.first().copied().unwrap_or_default();
        let is_right =
            spent.amount() == 3.0 && spent.period() == PERIOD && spent.incarnation() == first_incarnation(&server)?;
        check(is_right, || format!("`{end}`: 3 were spent, and the last report is {spent:?}"))?;
    }
    Ok(())
}

pub(super) async fn missing_amounts_are_reported_promptly(kit: Kit) -> Outcome {
    let script = respond(|entry| {
        let spent = entry.spent.unwrap_or_default();
        Grant::allowance(f64::max(10.0, spent.amount() + spent.need()), PERIOD).refresh(600).length(900)
    });
    let (server, mut client) = kit.budget(script, "safe").await?;
    left(&mut client, 10.0).await?;
    let since = Instant::now();
    check(client.spend(RESOURCE, 25, 20).await?, || "a caller that waits for 25 is not served".to_owned())?;
    let asked = request_since(&server, since, "a request with `need` of 25", |received| {
        report(received).is_some_and(|spent| spent.need() == 25.0)
    });
    let wants = asked.await?.entry(RESOURCE).map_or(0.0, ResourceRequest::wants);
    check(wants >= 25.0, || format!("the client wants {wants} while a caller waits for 25"))?;
    spends(&mut client, 40, false, "with nothing left").await?;
    left(&mut client, 40.0).await?;
    spends(&mut client, 40, true, "that was refused before").await
}
