//! Getting, refreshing, losing and releasing leases.

use std::{sync::Arc, time::Instant};

use leaseway_proto::doorman::{GetCapacityResponse, ResourceResponse};
use tokio::time::{Duration, sleep};

use super::{Kit, Outcome, RESOURCE, check, eventually, request_since, usable};
use crate::conform::server::{Grant, Script, ScriptedServer};

/// Long enough that no refresh is due during a case.
const LONG: i64 = 600;

fn grant(grant: Grant) -> Script {
    Script::Grant(grant)
}

pub(super) async fn the_first_request_names_client_resource_and_wants(kit: Kit) -> Outcome {
    let (server, mut client) = kit.rate(grant(Grant::of(40.0)), 100.0, "safe").await?;
    usable(&mut client, 40.0, "lease").await?;
    let first = server.received()[0].clone();
    let entry = first.entry(RESOURCE).ok_or("the first request does not name the resource")?;
    check(first.request.client_id() == "client-1", || format!("client_id is {}", first.request.client_id()))?;
    check(entry.wants() == 100.0, || format!("wants is {}, not 100", entry.wants()))?;
    check(entry.priority.is_some(), || "priority is required by the protocol".to_owned())?;
    check(entry.has.is_none() && entry.had.is_none(), || "a lease is named before there was one".to_owned())
}

pub(super) async fn a_lease_is_refreshed_and_echoed(kit: Kit) -> Outcome {
    let begin = Instant::now();
    let (server, _client) = kit.rate(grant(Grant::of(40.0)), 100.0, "safe").await?;
    let refresh = request_since(&server, begin, "a request that echoes the lease", |received| {
        received.entry(RESOURCE).is_some_and(|entry| entry.has.is_some())
    });
    let has = refresh.await?.entry(RESOURCE).and_then(|entry| entry.has).expect("it was looked for");
    check(has.capacity() == 40.0 && has.token.is_some(), || format!("it echoes {has:?}"))?;
    let from = Instant::now();
    sleep(Duration::from_secs(4)).await;
    let refreshes = server.received_since(from).len();
    check((1..=8).contains(&refreshes), || format!("{refreshes} requests in 4 s with a refresh interval of 1 s"))
}

pub(super) async fn the_newest_token_is_echoed(kit: Kit) -> Outcome {
    let begin = Instant::now();
    let (server, _client) = kit.rate(grant(Grant::of(40.0)), 100.0, "safe").await?;
    eventually("four requests", async || Ok((server.received().len() >= 4).then_some(()))).await?;
    for (before, received) in server.received_since(begin).iter().enumerate() {
        let token = received.entry(RESOURCE).and_then(|entry| entry.has).and_then(|has| has.token);
        let newest = (before > 0).then_some(before as u64);
        check(token == newest, || format!("request {} echoes {token:?} and not {newest:?}", before + 1))?;
    }
    Ok(())
}

/// A lease of three seconds, and then a server that does not answer.
async fn expiry(
    kit: &Kit,
    lease: Grant,
    mode: &str,
) -> Result<(ScriptedServer, crate::common::driver::Driver), String> {
    let (server, mut client) = kit.rate(grant(lease.length(3)), 100.0, mode).await?;
    usable(&mut client, lease.capacity, "lease").await?;
    server.play(Script::Silent);
    Ok((server, client))
}

pub(super) async fn an_expired_lease_falls_back_to_the_safe_capacity(kit: Kit) -> Outcome {
    let (_server, mut client) = expiry(&kit, Grant::of(40.0).safe(7.0), "safe").await?;
    usable(&mut client, 7.0, "fallback").await
}

pub(super) async fn a_negative_safe_capacity_is_unlimited(kit: Kit) -> Outcome {
    let (_server, mut client) = expiry(&kit, Grant::of(40.0).safe(-1.0), "safe").await?;
    usable(&mut client, f64::INFINITY, "fallback").await
}

pub(super) async fn a_pessimistic_client_uses_nothing_after_the_expiry(kit: Kit) -> Outcome {
    let (_server, mut client) = expiry(&kit, Grant::of(40.0).safe(7.0), "pessimistic").await?;
    usable(&mut client, 0.0, "fallback").await
}

pub(super) async fn an_optimistic_client_uses_its_wants_after_the_expiry(kit: Kit) -> Outcome {
    let (_server, mut client) = expiry(&kit, Grant::of(40.0).safe(7.0), "optimistic").await?;
    usable(&mut client, 100.0, "fallback").await
}

pub(super) async fn an_expired_lease_is_reported_as_had(kit: Kit) -> Outcome {
    let (server, mut client) = expiry(&kit, Grant::of(40.0).safe(7.0), "safe").await?;
    usable(&mut client, 7.0, "fallback").await?;
    let token = server.last_token();
    let later = Instant::now();
    let received = request_since(&server, later, "a request after the expiry", |received| {
        received.entry(RESOURCE).is_some_and(|entry| entry.had.is_some())
    });
    let received = received.await?;
    let entry = received.entry(RESOURCE).expect("it was looked for");
    check(entry.has.is_none(), || format!("the expired lease is named as the current one: {:?}", entry.has))?;
    check(entry.had.and_then(|had| had.token) == Some(token), || format!("`had` is {:?}, not {token}", entry.had))
}

pub(super) async fn remaining_ms_takes_precedence_over_the_wall_clock(kit: Kit) -> Outcome {
    // A clock that is a day behind the server's.
    let ahead = Grant { expiry_error: 86_400, ..Grant::of(40.0).safe(7.0) };
    let (_server, mut client) = expiry(&kit, ahead, "safe").await?;
    usable(&mut client, 7.0, "fallback").await?;
    // A clock that is a day ahead.
    let behind = Grant { expiry_error: -86_400, ..Grant::of(40.0) };
    let (_server, mut client) = kit.rate(grant(behind), 100.0, "safe").await?;
    usable(&mut client, 40.0, "lease").await
}

pub(super) async fn the_leases_of_doorman_servers_end_at_their_expiry(kit: Kit) -> Outcome {
    let doorman = Grant { has_remaining: false, ..Grant::of(40.0).safe(7.0) };
    let (_server, mut client) = expiry(&kit, doorman, "safe").await?;
    usable(&mut client, 7.0, "fallback").await
}

pub(super) async fn a_smaller_lease_applies_and_is_confirmed_promptly(kit: Kit) -> Outcome {
    let begin = Instant::now();
    let (server, mut client) = kit.rate(grant(Grant::of(40.0)), 100.0, "safe").await?;
    usable(&mut client, 40.0, "lease").await?;
    server.grant(Grant::of(10.0).refresh(LONG).length(900));
    usable(&mut client, 10.0, "lease").await?;
    let confirmed = request_since(&server, begin, "a request that echoes the smaller lease", |received| {
        received.entry(RESOURCE).and_then(|entry| entry.has).is_some_and(|has| has.capacity() == 10.0)
    });
    confirmed.await.map(drop)
}

pub(super) async fn an_answer_that_arrives_after_the_expiry_is_dropped(kit: Kit) -> Outcome {
    let begin = Instant::now();
    let (server, mut client) = kit.rate(grant(Grant::of(40.0)), 100.0, "safe").await?;
    // A program that starts slowly may get its first lease when that has almost expired.
    let refreshed = request_since(&server, begin, "a refresh", |received| {
        received.entry(RESOURCE).is_some_and(|entry| entry.has.is_some())
    });
    refreshed.await?;
    server.grant(Grant::of(41.0).length(3).safe(7.0));
    usable(&mut client, 41.0, "lease").await?;
    // Less than the timeout of requests, and more than what is left of the lease at the refresh.
    server.play(Script::Late(Duration::from_millis(2_600), Grant::of(90.0).safe(7.0)));
    let since = Instant::now();
    let late = request_since(&server, since, "a request that is answered late", |received| {
        received.entry(RESOURCE).is_some_and(|entry| entry.has.is_some())
    });
    late.await?;
    server.play(Script::Silent);
    usable(&mut client, 7.0, "fallback").await?;
    // By now the late answer has arrived.
    sleep(Duration::from_secs(5)).await;
    usable(&mut client, 7.0, "fallback").await
}

/// Answers every entry with this response.
fn respond(response: impl Fn(&str, u64) -> Vec<ResourceResponse> + Send + Sync + 'static) -> Script {
    Script::Respond(Arc::new(move |request, token| GetCapacityResponse {
        response: request.resource.iter().flat_map(|entry| response(entry.resource_id(), token)).collect(),
        ..GetCapacityResponse::default()
    }))
}

pub(super) async fn invalid_leases_are_ignored(kit: Kit) -> Outcome {
    for capacity in [f64::NAN, f64::INFINITY] {
        let (server, mut client) = kit.rate(grant(Grant::of(40.0)), 100.0, "safe").await?;
        usable(&mut client, 40.0, "lease").await?;
        let since = Instant::now();
        server.play(respond(move |resource, token| vec![Grant::of(capacity).response(resource, token)]));
        request_since(&server, since, "two requests", |_| server.received_since(since).len() >= 2).await?;
        let seen = client.usable(RESOURCE).await?;
        check(seen.capacity == 40.0, || format!("after a lease of {capacity} the client uses {seen:?}"))?;
    }
    let (server, mut client) = kit.rate(grant(Grant::of(40.0)), 100.0, "safe").await?;
    usable(&mut client, 40.0, "lease").await?;
    let since = Instant::now();
    server.play(respond(|_, token| vec![Grant::of(90.0).response("another", token)]));
    request_since(&server, since, "two requests", |_| server.received_since(since).len() >= 2).await?;
    let seen = client.usable(RESOURCE).await?;
    check(seen.capacity == 40.0, || format!("after a lease of another resource the client uses {seen:?}"))
}

pub(super) async fn a_resource_without_an_answer_keeps_its_lease(kit: Kit) -> Outcome {
    let (server, mut client) = kit.rate(grant(Grant::of(40.0)), 100.0, "safe").await?;
    usable(&mut client, 40.0, "lease").await?;
    let since = Instant::now();
    server.play(respond(|_, _| Vec::new()));
    request_since(&server, since, "two requests", |_| server.received_since(since).len() >= 2).await?;
    let seen = client.usable(RESOURCE).await?;
    check(seen.capacity == 40.0 && seen.basis == "lease", || format!("the client uses {seen:?}"))?;
    let from = Instant::now();
    sleep(Duration::from_secs(3)).await;
    let requests = server.received_since(from).len();
    check(requests <= 10, || format!("{requests} requests in 3 s for a resource that is left out"))
}

pub(super) async fn only_one_request_is_in_flight(kit: Kit) -> Outcome {
    let (server, mut client) = kit.rate(grant(Grant::of(40.0).refresh(LONG).length(900)), 100.0, "safe").await?;
    // A program that starts slowly may lose its first request to the timeout.
    usable(&mut client, 40.0, "lease").await?;
    let (pause, since) = (Duration::from_secs(1), Instant::now());
    server.play(Script::Late(pause, Grant::of(40.0)));
    for wants in [200, 300, 400, 50] {
        client.expect_ok(&format!("wants {RESOURCE} {wants}")).await?;
        sleep(Duration::from_millis(150)).await;
    }
    let second = eventually("a second request", async || Ok(server.received_since(since).get(1).cloned())).await?;
    check(server.max_in_flight() == 1, || format!("{} requests at the same time", server.max_in_flight()))?;
    // Nor is a request cancelled in favour of another.
    let apart = second.at - server.received_since(since)[0].at;
    check(apart >= pause, || format!("the second request follows after {apart:?}, before the answer to the first"))
}

pub(super) async fn requests_are_batched(kit: Kit) -> Outcome {
    let begin = Instant::now();
    let (server, mut client) = kit.rate(grant(Grant::of(40.0)), 100.0, "safe").await?;
    client.expect_ok("rate other 50").await?;
    let both = request_since(&server, begin, "a request for both resources", |received| {
        received.entry(RESOURCE).is_some() && received.entry("other").is_some()
    });
    both.await.map(drop)
}

pub(super) async fn large_changes_of_wants_are_sent_promptly(kit: Kit) -> Outcome {
    let (server, mut client) = kit.rate(grant(Grant::of(40.0).refresh(LONG).length(900)), 100.0, "safe").await?;
    usable(&mut client, 40.0, "lease").await?;
    let since = Instant::now();
    client.expect_ok(&format!("wants {RESOURCE} 500")).await?;
    let sent = request_since(&server, since, "a request with the new wants", |received| {
        received.entry(RESOURCE).is_some_and(|entry| entry.wants() == 500.0)
    });
    sent.await.map(drop)
}

pub(super) async fn small_changes_of_wants_wait_for_the_refresh(kit: Kit) -> Outcome {
    let (server, mut client) = kit.rate(grant(Grant::of(40.0).refresh(LONG).length(900)), 100.0, "safe").await?;
    usable(&mut client, 40.0, "lease").await?;
    sleep(Duration::from_secs(1)).await;
    let since = Instant::now();
    client.expect_ok(&format!("wants {RESOURCE} 101")).await?;
    sleep(Duration::from_secs(3)).await;
    let requests = server.received_since(since).len();
    check(requests == 0, || format!("{requests} requests after a change of the wants by one per cent"))
}

pub(super) async fn a_closed_resource_is_released_by_its_newest_token(kit: Kit) -> Outcome {
    let (server, mut client) = kit.rate(grant(Grant::of(40.0)), 100.0, "safe").await?;
    usable(&mut client, 40.0, "lease").await?;
    client.expect_ok(&format!("close {RESOURCE}")).await?;
    let released = eventually("a release", async || Ok(server.released().first().cloned())).await?;
    check(released.client_id() == "client-1", || format!("client_id is {}", released.client_id()))?;
    check(released.resource_id == [RESOURCE], || format!("it releases {:?}", released.resource_id))?;
    let token = server.last_token();
    check(released.token == [token], || format!("it names {:?} and not {token}", released.token))
}

pub(super) async fn all_leases_are_released_when_the_client_closes(kit: Kit) -> Outcome {
    let (server, mut client) = kit.rate(grant(Grant::of(40.0)), 100.0, "safe").await?;
    client.expect_ok("rate other 50").await?;
    usable(&mut client, 40.0, "lease").await?;
    let both =
        |received: &crate::conform::server::Received| received.entry("other").is_some_and(|one| one.has.is_some());
    request_since(&server, Instant::now(), "both have leases", both).await?;
    client.expect_ok("exit").await?;
    let released = async || {
        let all = server.released();
        let mut names: Vec<&str> = all.iter().flat_map(|one| &one.resource_id).map(String::as_str).collect();
        names.sort_unstable();
        Ok((names == ["other", RESOURCE]).then_some(()))
    };
    eventually("both are released", released).await
}

pub(super) async fn without_a_lease_nothing_is_released(kit: Kit) -> Outcome {
    let (server, mut client) = kit.rate(Script::Silent, 100.0, "safe").await?;
    eventually("a request", async || Ok((!server.received().is_empty()).then_some(()))).await?;
    client.expect_ok(&format!("close {RESOURCE}")).await?;
    // Longer than the timeout of the request in flight.
    sleep(Duration::from_secs(6)).await;
    let released = server.released();
    check(released.is_empty(), || format!("{released:?} may free a lease that is granted later"))
}

pub(super) async fn a_hint_causes_a_prompt_request(kit: Kit) -> Outcome {
    let (server, mut client) = kit.rate(grant(Grant::of(40.0).refresh(LONG).length(900)), 100.0, "safe").await?;
    usable(&mut client, 40.0, "lease").await?;
    eventually("the client watches for hints", async || Ok((server.watchers() > 0).then_some(()))).await?;
    server.grant(Grant::of(60.0).refresh(LONG).length(900));
    server.hint(RESOURCE);
    usable(&mut client, 60.0, "lease").await
}
