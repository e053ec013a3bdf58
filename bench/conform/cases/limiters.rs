//! What rates and gauges admit.

use std::time::Instant;

use tokio::time::{Duration, sleep};

use super::{Kit, Outcome, RESOURCE, check, eventually, request_since, usable};
use crate::conform::server::{Grant, Script, ScriptedServer};

/// Seconds that permits are counted for.
const SPAN: u32 = 4;
/// Permits that a rate may admit beyond its capacity: one, and 20 ms of the capacity, at the beginning and, as the
/// span is measured from outside, at the end.
const BURST: f64 = 4.0;

pub(super) async fn nothing_passes_before_the_first_lease(kit: Kit) -> Outcome {
    let (server, mut client) = kit.rate(Script::Silent, 100.0, "safe").await?;
    eventually("a request", async || Ok((!server.received().is_empty()).then_some(()))).await?;
    check(!client.allow(RESOURCE, 1).await?, || "a permit without a lease".to_owned())?;
    let usable = client.usable(RESOURCE).await?;
    check(usable.capacity == 0.0 && usable.basis != "lease", || format!("the client uses {usable:?} before an answer"))
}

pub(super) async fn a_rate_admits_its_capacity_and_no_more(kit: Kit) -> Outcome {
    let (_server, mut client) = kit.rate(Script::Grant(Grant::of(20.0)), 100.0, "safe").await?;
    usable(&mut client, 20.0, "lease").await?;
    let begin = Instant::now();
    let admitted = f64::from(client.count(RESOURCE, SPAN).await?);
    let max = 20.0 * begin.elapsed().as_secs_f64() + BURST;
    check(admitted <= max, || format!("{admitted} permits, more than {max:.1}"))?;
    check(admitted >= 20.0, || format!("{admitted} permits in {SPAN} s at 20 per second"))
}

pub(super) async fn a_rate_follows_a_smaller_lease(kit: Kit) -> Outcome {
    let (server, mut client) = kit.rate(Script::Grant(Grant::of(200.0)), 500.0, "safe").await?;
    usable(&mut client, 200.0, "lease").await?;
    server.grant(Grant::of(10.0));
    usable(&mut client, 10.0, "lease").await?;
    let begin = Instant::now();
    let admitted = f64::from(client.count(RESOURCE, SPAN).await?);
    let max = 10.0 * begin.elapsed().as_secs_f64() + BURST;
    check(admitted <= max, || format!("{admitted} permits after the cut to 10 per second, more than {max:.1}"))
}

/// Doorman's servers may grant less than nothing.
pub(super) async fn a_rate_of_zero_or_less_admits_nothing(kit: Kit) -> Outcome {
    for capacity in [0.0, -5.0] {
        let (_server, mut client) = kit.rate(Script::Grant(Grant::of(capacity)), 100.0, "safe").await?;
        usable(&mut client, 0.0, "lease").await?;
        let admitted = client.count(RESOURCE, 1).await?;
        check(admitted == 0, || format!("{admitted} permits of a lease of {capacity}"))?;
    }
    Ok(())
}

pub(super) async fn a_rate_admits_nothing_after_the_expiry(kit: Kit) -> Outcome {
    let script = Script::Grant(Grant::of(40.0).length(3));
    let (server, mut client) = kit.rate(script, 100.0, "pessimistic").await?;
    usable(&mut client, 40.0, "lease").await?;
    server.play(Script::Silent);
    usable(&mut client, 0.0, "fallback").await?;
    let admitted = client.count(RESOURCE, 1).await?;
    check(admitted == 0, || format!("{admitted} permits after the expiry"))
}

async fn gauge(kit: &Kit, capacity: f64) -> Result<(ScriptedServer, crate::common::driver::Driver), String> {
    let server = ScriptedServer::start(Script::Grant(Grant::of(capacity))).await?;
    let mut client = kit.client(&[&server], "safe").await?;
    client.expect_ok(&format!("gauge {RESOURCE} 10")).await?;
    usable(&mut client, capacity, "lease").await?;
    Ok((server, client))
}

pub(super) async fn a_gauge_admits_as_many_as_its_capacity(kit: Kit) -> Outcome {
    let (_server, mut client) = gauge(&kit, 2.0).await?;
    for (admits, what) in [(true, "the first"), (true, "the second"), (false, "a third")] {
        check(client.allow(RESOURCE, 1).await? == admits, || format!("{what} permit of a capacity of 2"))?;
    }
    client.expect_ok(&format!("release {RESOURCE} 1")).await?;
    check(client.allow(RESOURCE, 1).await?, || "a permit that was returned cannot be taken".to_owned())?;
    check(!client.allow(RESOURCE, 1).await?, || "a third permit after a return".to_owned())
}

pub(super) async fn a_gauge_reports_permits_beyond_a_smaller_lease(kit: Kit) -> Outcome {
    let (server, mut client) = gauge(&kit, 3.0).await?;
    for _ in 0..3 {
        check(client.allow(RESOURCE, 1).await?, || "three permits of a capacity of 3".to_owned())?;
    }
    let since = Instant::now();
    server.grant(Grant::of(1.0));
    let reported = request_since(&server, since, "a request with `outstanding` of 2", |received| {
        received.entry(RESOURCE).is_some_and(|entry| entry.outstanding == Some(2.0))
    });
    reported.await?;
    client.expect_ok(&format!("release {RESOURCE} 1")).await?;
    client.expect_ok(&format!("release {RESOURCE} 1")).await?;
    check(!client.allow(RESOURCE, 1).await?, || "a permit beside the one in use, at a capacity of 1".to_owned())
}

pub(super) async fn a_closed_gauge_keeps_its_lease_while_permits_are_in_use(kit: Kit) -> Outcome {
    let (server, mut client) = gauge(&kit, 2.0).await?;
    check(client.allow(RESOURCE, 1).await?, || "the first permit of a capacity of 2".to_owned())?;
    client.expect_ok(&format!("close {RESOURCE}")).await?;
    sleep(Duration::from_secs(2)).await;
    check(server.released().is_empty(), || "the lease is released while a permit is in use".to_owned())?;
    client.expect_ok(&format!("release {RESOURCE} 1")).await?;
    eventually("a release", async || Ok(server.released().first().map(drop))).await
}
