//! Renewing leases by a stream.

use std::{collections::BTreeSet, time::Instant};

use leaseway_proto::{doorman::Lease, session::RenewResponse};
use tokio::time::{Duration, sleep, sleep_until};
use tonic::Code;

use super::{Kit, Outcome, RESOURCE, check, eventually, message_since, renewing, request_since, usable};
use crate::{
    common::driver::Driver,
    conform::server::{Grant, Message, Received, Renewal, Script, ScriptedServer},
};

/// The first resource beside [`RESOURCE`].
const OTHER: &str = "r1";
/// A message may be on its way when the client is told something.
const ON_ITS_WAY: Duration = Duration::from_millis(100);

/// A lease that the client keeps over a pause of a few seconds.
fn lasting() -> Grant {
    Grant::of(40.0).length(8)
}

fn is_named(has: Option<Lease>, capacity: f64) -> bool {
    has.is_some_and(|has| has.capacity() == capacity && has.token.is_some())
}

/// Whether the message states the resource with a lease of this capacity.
fn states(message: &Message, capacity: f64) -> bool {
    message.stated(RESOURCE).is_some_and(|entry| is_named(entry.has, capacity))
}

/// Whether the request names the resource with a lease of this capacity.
fn names(received: &Received, capacity: f64) -> bool {
    received.entry(RESOURCE).is_some_and(|entry| is_named(entry.has, capacity))
}

/// Waits until the resource is named with its lease, by GetCapacity or in a message on another stream than this.
async fn named_again(server: &ScriptedServer, since: Instant, stream: u64, capacity: f64) -> Outcome {
    eventually("all is stated on another stream, or asked for by GetCapacity", async || {
        let stated = |message: &Message| message.stream != stream && states(message, capacity);
        let is_stated = server.messages_since(since).iter().any(stated);
        let is_asked = server.received_since(since).iter().any(|received| names(received, capacity));
        Ok((is_stated || is_asked).then_some(()))
    })
    .await
}

/// Checks for some time that the client uses its lease of this capacity.
async fn keeps(client: &mut Driver, capacity: f64, time: Duration) -> Outcome {
    let begin = Instant::now();
    while begin.elapsed() < time {
        let seen = client.usable(RESOURCE).await?;
        check(seen.capacity == capacity && seen.basis == "lease", || {
            format!("the client should keep its lease of {capacity}, and uses {seen:?}")
        })?;
        sleep(Duration::from_millis(50)).await;
    }
    Ok(())
}

pub(super) async fn a_stream_is_opened_only_where_it_is_offered(kit: Kit) -> Outcome {
    let begin = Instant::now();
    let server = ScriptedServer::start(Script::Grant(lasting())).await?;
    let mut client = kit.client(&[&server], "safe").await?;
    kit.open_many(&mut client).await?;
    usable(&mut client, 40.0, "lease").await?;
    let since = Instant::now();
    request_since(&server, since, "three refreshes", |_| server.received_since(since).len() >= 3).await?;
    server.check_streams()?;
    check(server.attempts_since(begin) == 0, || "a stream was opened, and none was offered".to_owned())?;
    let (server, _client) = kit.streamed(lasting()).await?;
    let since = Instant::now();
    message_since(&server, since, "three messages", |_| server.messages_since(since).len() >= 3).await?;
    let asked = server.received_since(since).len();
    check(asked == 0, || format!("{asked} GetCapacity requests beside the stream"))?;
    server.check_streams()
}

pub(super) async fn leases_are_renewed_by_their_indexes(kit: Kit) -> Outcome {
    let grant = Grant::of(40.0).length(4);
    let (server, mut client) = kit.streamed(grant).await?;
    let since = Instant::now();
    // Longer than the leases.
    keeps(&mut client, 40.0, Duration::from_secs(6)).await?;
    let messages = server.messages_since(since);
    let stated = messages.iter().map(|message| message.request.entry.len()).sum::<usize>();
    check(stated == 0, || format!("{stated} resources are stated, and none has changed"))?;
    let asked = server.received_since(since).len();
    check(asked == 0, || format!("{asked} GetCapacity requests beside the stream"))?;
    let renewed: BTreeSet<&String> = messages.iter().flat_map(|message| &message.renewed).collect();
    let all = client.streams().await?.max(1) + 1;
    check(renewed.len() == all, || format!("{} of {all} leases are renewed", renewed.len()))?;
    server.check_streams()
}

pub(super) async fn a_renewed_lease_counts_from_its_message(kit: Kit) -> Outcome {
    let grant = Grant::of(40.0).length(6).safe(7.0);
    let (server, mut client) = kit.streamed(grant).await?;
    let since = Instant::now();
    // Less than the timeout of requests.
    server.renew(Renewal::Late(Duration::from_millis(2_500), grant));
    let last = message_since(&server, since, "a renewal that is answered late", |message| message.renews(RESOURCE));
    let last = last.await?;
    server.renew(Renewal::Silent);
    server.play(Script::Silent);
    // Counted from the answer it would last until 8.5 s after the message.
    sleep_until((last.at + Duration::from_secs(7)).into()).await;
    let seen = client.usable(RESOURCE).await?;
    check(seen.basis == "fallback", || format!("7 s after the renewal of a lease of 6 s the client uses {seen:?}"))?;
    server.check_streams()
}

pub(super) async fn a_renewal_covers_only_what_is_held(kit: Kit) -> Outcome {
    let (server, mut client) = kit.streamed(lasting()).await?;
    // The second change waits for the refresh.
    for wants in [50.0, 51.0] {
        client.expect_ok(&format!("wants {RESOURCE} {wants}")).await?;
        let since = Instant::now();
        let stated = message_since(&server, since, "the changed wants are stated", |message| {
            message.stated(RESOURCE).is_some_and(|entry| entry.wants() == wants)
        });
        let stated = stated.await?;
        check(states(&stated, 40.0), || format!("it names {:?}", stated.stated(RESOURCE)))?;
        let before = server.messages_since(since + ON_ITS_WAY);
        let renews = before.iter().find(|message| message.at < stated.at && message.renews(RESOURCE));
        check(renews.is_none(), || format!("a renewal with changed wants: {renews:?}"))?;
    }
    client.expect_ok(&format!("close {OTHER}")).await?;
    eventually("a release", async || {
        Ok(server.released().iter().any(|release| release.resource_id == [OTHER]).then_some(()))
    })
    .await?;
    client.expect_ok(&format!("rate {RESOURCE}-new 100")).await?;
    let since = Instant::now() + ON_ITS_WAY;
    renewing(&server, since).await?;
    renewing(&server, Instant::now()).await?;
    let messages = server.messages_since(since);
    check(messages.iter().all(|message| !message.renews(OTHER)), || "a released lease is renewed".to_owned())?;
    server.check_streams()
}

pub(super) async fn a_grant_that_was_not_asked_for_is_ignored(kit: Kit) -> Outcome {
    // The refreshes are so far apart that changed wants are sent alone.
    let grant = lasting().refresh(3);
    let (server, mut client) = kit.streamed(grant).await?;
    let concerns = |message: &Message| message.stated(RESOURCE).is_some() || message.renews(RESOURCE);
    server.renew(Renewal::altered(grant, move |message, mut answer| {
        if !concerns(message) {
            message.grant(&mut answer, RESOURCE, &Grant::of(90.0), 1_000_000);
        }
        answer
    }));
    renewing(&server, Instant::now()).await?;
    let since = Instant::now();
    client.expect_ok(&format!("wants {OTHER} 50")).await?;
    message_since(&server, since, "a message with the changed wants alone", |message| {
        message.stated(OTHER).is_some() && !concerns(message)
    })
    .await?;
    keeps(&mut client, 40.0, Duration::from_secs(1)).await?;
    server.renew(Renewal::Grant(grant));
    message_since(&server, Instant::now(), "a refresh", concerns).await?;
    // Longer than the lease.
    keeps(&mut client, 40.0, Duration::from_secs(9)).await?;
    server.check_streams()
}

pub(super) async fn a_resource_that_was_left_out_is_stated_again(kit: Kit) -> Outcome {
    let (server, mut client) = kit.streamed(lasting()).await?;
    let since = Instant::now();
    server.renew(Renewal::altered(lasting(), |message, mut answer| {
        if message.renews(RESOURCE) {
            answer.left_out.extend(message.index(RESOURCE));
        }
        answer
    }));
    message_since(&server, since, "the resource is stated again", |message| states(message, 40.0)).await?;
    server.renew(Renewal::Grant(lasting()));
    keeps(&mut client, 40.0, Duration::from_secs(1)).await?;
    renewing(&server, Instant::now()).await?;
    server.check_streams()
}

pub(super) async fn a_smaller_lease_is_stated_before_it_is_renewed(kit: Kit) -> Outcome {
    let (server, mut client) = kit.streamed(lasting()).await?;
    let cut = Grant { capacity: 10.0, ..lasting() };
    let since = Instant::now();
    server.renew(Renewal::altered(lasting(), move |message, mut answer| {
        if message.renews(RESOURCE) || message.stated(RESOURCE).is_some() {
            message.grant(&mut answer, RESOURCE, &cut, 1_000_000);
        }
        answer
    }));
    let stated = message_since(&server, since, "the smaller lease is stated", |message| states(message, 10.0)).await?;
    let token = stated.stated(RESOURCE).and_then(|entry| entry.has).and_then(|has| has.token);
    check(token == Some(1_000_000), || format!("it names lease {token:?}"))?;
    let all = server.messages_since(since);
    // The first of them is the one that was answered with the smaller lease.
    let renewals = all.iter().filter(|message| message.at < stated.at && message.renews(RESOURCE)).count();
    check(renewals == 1, || format!("{renewals} renewals before the smaller lease was stated"))?;
    usable(&mut client, 10.0, "lease").await?;
    server.check_streams()
}

pub(super) async fn a_renewal_that_arrives_after_the_expiry_is_dropped(kit: Kit) -> Outcome {
    // It is renewed after two seconds, when it has 1.6 s left.
    let grant = Grant { length: Duration::from_millis(3_600), ..Grant::of(40.0).refresh(2).safe(7.0) };
    let (server, mut client) = kit.streamed(grant).await?;
    let since = Instant::now();
    // Less than the timeout of requests. If it counted, the lease would last for another 1.4 s.
    server.renew(Renewal::Late(Duration::from_millis(2_200), grant));
    message_since(&server, since, "a renewal that is answered late", |message| message.renews(RESOURCE)).await?;
    server.renew(Renewal::Silent);
    server.play(Script::Silent);
    usable(&mut client, 7.0, "fallback").await?;
    let begin = Instant::now();
    while begin.elapsed() < Duration::from_secs(4) {
        let seen = client.usable(RESOURCE).await?;
        check(seen.basis == "fallback", || format!("after the expiry a late answer counts: {seen:?}"))?;
        sleep(Duration::from_millis(20)).await;
    }
    server.check_streams()
}

pub(super) async fn after_a_lost_stream_leases_stay_and_another_is_opened(kit: Kit) -> Outcome {
    let (server, mut client) = kit.streamed(lasting()).await?;
    let since = Instant::now();
    server.renew(Renewal::Fail(Code::Unavailable));
    server.break_streams(Code::Unavailable);
    request_since(&server, since, "GetCapacity with the lease", |received| names(received, 40.0)).await?;
    // Longer than the leases.
    keeps(&mut client, 40.0, Duration::from_secs(10)).await?;
    let since = Instant::now();
    server.renew(Renewal::Grant(lasting()));
    message_since(&server, since, "all is stated on another stream", |message| states(message, 40.0)).await?;
    renewing(&server, since).await?;
    keeps(&mut client, 40.0, Duration::from_secs(1)).await?;
    server.check_streams()
}

pub(super) async fn without_the_service_leases_are_renewed_by_get_capacity(kit: Kit) -> Outcome {
    let begin = Instant::now();
    let server = ScriptedServer::start(Script::Grant(lasting())).await?;
    // As by a proxy that does not know the service.
    server.renew(Renewal::Fail(Code::Unimplemented));
    let mut client = kit.client(&[&server], "safe").await?;
    kit.open_many(&mut client).await?;
    eventually("a stream is tried", async || Ok((server.attempts_since(begin) > 0).then_some(()))).await?;
    let since = Instant::now();
    request_since(&server, since, "GetCapacity with the lease", |received| names(received, 40.0)).await?;
    keeps(&mut client, 40.0, Duration::from_secs(6)).await?;
    let requests = server.received_since(since).len();
    check(requests >= 3, || format!("{requests} GetCapacity requests in 6 s at a refresh interval of 1 s"))?;
    let attempts = server.attempts_since(begin);
    check(attempts == 1, || format!("{attempts} streams within 6 s, the first of which was refused"))
}

pub(super) async fn a_redirect_on_a_stream_is_followed(kit: Kit) -> Outcome {
    let (server, mut client) = kit.streamed(lasting()).await?;
    let (master, since) = (ScriptedServer::start(Script::Grant(Grant::of(50.0))).await?, Instant::now());
    master.renew(Renewal::Grant(Grant::of(50.0)));
    server.play(Script::Redirect(Some(master.address())));
    server.renew(Renewal::Redirect(master.address()));
    named_again(&master, since, 0, 40.0).await?;
    usable(&mut client, 50.0, "lease").await?;
    let since = Instant::now() + ON_ITS_WAY;
    renewing(&master, since).await?;
    let at_the_follower = server.messages_since(since).len() + server.received_since(since).len();
    check(at_the_follower == 0, || format!("{at_the_follower} refreshes at the follower"))?;
    check(server.open_streams() == 0, || "the stream to the follower is open".to_owned())?;
    server.check_streams()?;
    master.check_streams()
}

pub(super) async fn after_a_restart_everything_is_stated_on_another_stream(kit: Kit) -> Outcome {
    let (server, mut client) = kit.streamed(lasting()).await?;
    let since = Instant::now();
    let stream = renewing(&server, since).await?.stream;
    server.renew(Renewal::altered(lasting(), move |message, answer| {
        if message.stream != stream {
            return answer;
        }
        let restart = Some("a scripted restart".to_owned());
        RenewResponse { sequence: message.request.sequence, restart, ..RenewResponse::default() }
    }));
    let since = Instant::now();
    named_again(&server, since, stream, 40.0).await?;
    keeps(&mut client, 40.0, Duration::from_secs(1)).await?;
    message_since(&server, since, "renewals on another stream", |message| {
        message.stream != stream && message.renews(RESOURCE)
    })
    .await?;
    let messages = server.messages_since(since);
    let later = messages.iter().filter(|message| message.stream == stream).count();
    check(later <= 1, || format!("{} messages on a stream after its restart", later - 1))?;
    server.check_streams()?;
    a_restart_renews_nothing(&kit).await
}

async fn a_restart_renews_nothing(kit: &Kit) -> Outcome {
    // It is renewed after four seconds, when it has five left.
    let grant = Grant::of(40.0).length(9).refresh(4).safe(7.0);
    let (server, mut client) = kit.streamed(grant).await?;
    let since = Instant::now();
    server.play(Script::Silent);
    server.renew(Renewal::altered(grant, |message, _| {
        let restart = Some("a scripted restart".to_owned());
        RenewResponse { sequence: message.request.sequence, restart, ..RenewResponse::default() }
    }));
    let restarted = message_since(&server, since, "a renewal", |message| message.renews(RESOURCE)).await?;
    sleep_until((restarted.at + Duration::from_millis(7_200)).into()).await;
    let seen = client.usable(RESOURCE).await?;
    check(seen.basis == "fallback", || format!("a lease is renewed by a restart: the client uses {seen:?}"))
}

pub(super) async fn an_answer_to_another_message_is_not_believed(kit: Kit) -> Outcome {
    let (server, mut client) = kit.streamed(lasting()).await?;
    let stream = renewing(&server, Instant::now()).await?.stream;
    let since = Instant::now();
    server.renew(Renewal::altered(lasting(), move |message, mut answer| {
        if message.stream == stream {
            // As if the answer before came again.
            answer.sequence -= 1;
            message.grant(&mut answer, RESOURCE, &Grant::of(90.0), 1_000_000);
        }
        answer
    }));
    named_again(&server, since, stream, 40.0).await?;
    keeps(&mut client, 40.0, Duration::from_secs(2)).await?;
    server.check_streams()
}

pub(super) async fn an_unanswered_message_closes_its_stream(kit: Kit) -> Outcome {
    let (server, mut client) = kit.streamed(lasting()).await?;
    let since = Instant::now();
    server.renew(Renewal::Silent);
    let unanswered = message_since(&server, since, "a message", |_| true).await?;
    named_again(&server, since, unanswered.stream, 40.0).await?;
    // A late answer, if the stream were still open.
    let mut late = RenewResponse { sequence: unanswered.request.sequence, ..RenewResponse::default() };
    unanswered.grant(&mut late, RESOURCE, &Grant::of(90.0), 1_000_000);
    server.push(unanswered.stream, late);
    keeps(&mut client, 40.0, Duration::from_secs(2)).await?;
    let closed = async || {
        let sent = server.messages_since(since);
        Ok(sent.iter().all(|message| message.stream != unanswered.stream || message.at == unanswered.at).then_some(()))
    };
    eventually("no further message on the stream", closed).await?;
    server.check_streams()
}

pub(super) async fn the_stream_of_an_earlier_master_is_not_used(kit: Kit) -> Outcome {
    let (server, mut client) = kit.streamed(lasting()).await?;
    let later = ScriptedServer::start(Script::Grant(Grant::of(50.0))).await?;
    later.renew(Renewal::Grant(Grant::of(50.0)));
    server.play(Script::Redirect(Some(later.address())));
    server.renew(Renewal::Redirect(later.address()));
    usable(&mut client, 50.0, "lease").await?;
    let last = renewing(&later, Instant::now()).await?;
    // Back to the first, which the client learns while its stream is open: from the answer to a release.
    server.renew(Renewal::Grant(Grant::of(60.0)));
    server.grant(Grant::of(60.0));
    later.play(Script::Redirect(Some(server.address())));
    let since = Instant::now();
    client.expect_ok(&format!("close {OTHER}")).await?;
    usable(&mut client, 60.0, "lease").await?;
    named_again(&server, since, 0, 50.0).await?;
    let mut stale = RenewResponse { sequence: last.request.sequence, ..RenewResponse::default() };
    last.grant(&mut stale, RESOURCE, &Grant::of(90.0), 1_000_000);
    later.push(last.stream, stale);
    let since = Instant::now();
    keeps(&mut client, 60.0, Duration::from_secs(2)).await?;
    renewing(&server, since).await?;
    let at_the_other = later.messages_since(since).len();
    check(at_the_other == 0, || format!("{at_the_other} messages to an earlier master"))?;
    later.check_streams()?;
    server.check_streams()
}
