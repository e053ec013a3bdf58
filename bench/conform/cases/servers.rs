//! Servers that redirect, fail, hang and come back.

use std::time::Instant;

use tokio::time::{Duration, sleep};
use tonic::Code;

use super::{Kit, Outcome, RESOURCE, check, eventually, request_since, usable};
use crate::{
    common::driver::Driver,
    conform::server::{Grant, Script, ScriptedServer},
};

/// Two servers with these scripts, and a client of both that opens a rate.
async fn two(kit: &Kit, first: Script, second: Script) -> Result<(ScriptedServer, ScriptedServer, Driver), String> {
    let (first, second) = (ScriptedServer::start(first).await?, ScriptedServer::start(second).await?);
    let mut client = kit.client(&[&first, &second], "safe").await?;
    client.expect_ok(&format!("rate {RESOURCE} 100")).await?;
    Ok((first, second, client))
}

pub(super) async fn a_redirect_is_followed_and_remembered(kit: Kit) -> Outcome {
    let master = ScriptedServer::start(Script::Grant(Grant::of(40.0))).await?;
    let redirect = Script::Redirect(Some(master.address()));
    let (follower, mut client) = kit.rate(redirect, 100.0, "safe").await?;
    usable(&mut client, 40.0, "lease").await?;
    let since = Instant::now();
    request_since(&master, since, "two refreshes at the master", |_| master.received_since(since).len() >= 2).await?;
    let at_the_follower = follower.received_since(since).len();
    check(at_the_follower == 0, || format!("{at_the_follower} refreshes at the follower"))
}

pub(super) async fn an_invalid_redirect_is_ignored(kit: Kit) -> Outcome {
    let redirect = |master: &str| Script::Redirect(Some(master.to_owned()));
    // One client for all, because a program may take long to start on a busy machine.
    let (server, mut client) = kit.rate(redirect(""), 100.0, "safe").await?;
    for master in ["", "no port", "127.0.0.1:99999", "http://\u{7f}"] {
        server.play(redirect(master));
        let since = Instant::now();
        let what = format!("two requests with redirects to `{master}`");
        request_since(&server, since, &what, |_| server.received_since(since).len() >= 2).await?;
    }
    server.grant(Grant::of(40.0));
    usable(&mut client, 40.0, "lease").await
}

pub(super) async fn redirect_loops_are_bounded(kit: Kit) -> Outcome {
    let (first, second, mut client) = two(&kit, Script::Silent, Script::Silent).await?;
    first.play(Script::Redirect(Some(second.address())));
    second.play(Script::Redirect(Some(first.address())));
    eventually("a request", async || Ok((!second.received().is_empty()).then_some(()))).await?;
    let since = Instant::now();
    sleep(Duration::from_secs(3)).await;
    let requests = first.received_since(since).len() + second.received_since(since).len();
    check(requests <= 60, || format!("{requests} requests in 3 s"))?;
    first.grant(Grant::of(40.0));
    usable(&mut client, 40.0, "lease").await
}

pub(super) async fn another_server_is_asked_if_one_knows_no_master(kit: Kit) -> Outcome {
    let (_first, _second, mut client) = two(&kit, Script::Redirect(None), Script::Grant(Grant::of(40.0))).await?;
    usable(&mut client, 40.0, "lease").await
}

pub(super) async fn another_server_is_asked_if_one_fails(kit: Kit) -> Outcome {
    for code in [Code::Unavailable, Code::Internal, Code::ResourceExhausted] {
        let (_first, _second, mut client) = two(&kit, Script::Fail(code), Script::Grant(Grant::of(40.0))).await?;
        usable(&mut client, 40.0, "lease").await.map_err(|why| format!("{code:?}: {why}"))?;
    }
    Ok(())
}

pub(super) async fn another_server_is_asked_if_one_hangs(kit: Kit) -> Outcome {
    let (_first, _second, mut client) = two(&kit, Script::Silent, Script::Grant(Grant::of(40.0))).await?;
    usable(&mut client, 40.0, "lease").await
}

pub(super) async fn peers_are_discovered_from_the_master(kit: Kit) -> Outcome {
    let other = ScriptedServer::start(Script::Grant(Grant::of(60.0))).await?;
    let named = ScriptedServer::start(Script::Grant(Grant::of(40.0))).await?;
    named.name_endpoints(vec![named.address(), other.address()]);
    let mut client = kit.client(&[&named], "safe").await?;
    client.expect_ok(&format!("rate {RESOURCE} 100")).await?;
    usable(&mut client, 40.0, "lease").await?;
    // Discovery may follow the first lease.
    sleep(Duration::from_secs(3)).await;
    named.play(Script::Fail(Code::Unavailable));
    usable(&mut client, 60.0, "lease").await
}

pub(super) async fn requests_back_off_after_failures(kit: Kit) -> Outcome {
    let (server, _client) = kit.rate(Script::Fail(Code::Unavailable), 100.0, "safe").await?;
    eventually("a request", async || Ok((!server.received().is_empty()).then_some(()))).await?;
    let since = Instant::now();
    sleep(Duration::from_secs(6)).await;
    let requests = server.received_since(since).len();
    check((1..=40).contains(&requests), || format!("{requests} requests in 6 s to a server that fails"))
}

pub(super) async fn a_server_that_comes_back_is_asked_again(kit: Kit) -> Outcome {
    let (server, mut client) = kit.rate(Script::Grant(Grant::of(40.0).length(3).safe(7.0)), 100.0, "safe").await?;
    usable(&mut client, 40.0, "lease").await?;
    server.play(Script::Fail(Code::Unavailable));
    usable(&mut client, 7.0, "fallback").await?;
    server.grant(Grant::of(50.0));
    usable(&mut client, 50.0, "lease").await
}
