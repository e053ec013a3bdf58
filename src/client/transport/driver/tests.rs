//! A driver and an asker that records its calls. There is no server: the test decides how requests end.

use std::collections::VecDeque;

use leaseway_core::types::Millis;
use tokio::sync::mpsc;

use super::*;
use crate::{
    session::{GrantedLease, Mode, Session, Settings, Wants},
    transport::{Hints, Listener},
};

/// How a call ends.
enum CallEnd {
    Replies(Reply<Vec<GrantedLease>>),
    Fails,
    Hangs,
}

struct Script {
    session: Session<Wants>,
    begun: Instant,
    ends: VecDeque<CallEnd>,
    reports: mpsc::UnboundedSender<String>,
}

impl Script {
    fn now(&self) -> Millis {
        Millis(self.begun.elapsed().as_millis() as u64)
    }
}

impl Asker for Script {
    type Demand = Wants;
    type Answer = Vec<GrantedLease>;

    async fn step(&mut self) -> Option<Step<Wants>> {
        let now = self.now();
        let outgoing = self.session.poll(now);
        if self.ends.is_empty() && outgoing.is_none() && self.session.in_flight().is_none() {
            return None;
        }
        let wake = self.session.wake(now).map(|at| self.begun + Duration::from_millis(at.0));
        Some(Step { outgoing, in_flight: self.session.in_flight(), wake })
    }

    fn call(&mut self, channel: Result<Channel, Status>, _: Body<Wants>) -> Call<Vec<GrantedLease>> {
        let end = self.ends.pop_front().unwrap_or(CallEnd::Fails);
        Box::pin(async move {
            channel?;
            match end {
                CallEnd::Replies(reply) => Ok(reply),
                CallEnd::Fails => Err(Status::unavailable("unavailable")),
                CallEnd::Hangs => std::future::pending().await,
            }
        })
    }

    fn ended(&mut self, ended: Ended<'_, Vec<GrantedLease>>) {
        let (now, number) = (self.now(), ended.number);
        let connected = if ended.connection.is_some() { "" } else { ", distrusted" };
        let how = match ended.outcome {
            Outcome::Replied(Reply::Master(given)) => {
                self.session.answered(now, number, given);
                "answered".to_owned()
            }
            Outcome::Replied(Reply::Redirect(master)) => {
                self.session.redirected(now, number, master.as_deref());
                format!("redirected {master:?}")
            }
            Outcome::Failed(status) => {
                self.session.failed(now, number);
                format!("failed {:?}", status.code())
            }
            Outcome::Late => "late".to_owned(),
        };
        let _ = self.reports.send(format!("{number} {}: {how}{connected}", ended.server));
    }

    fn hinted(&mut self, _: Option<Vec<String>>) {}

    async fn changed(&mut self) {
        std::future::pending().await
    }
}

/// Runs until all calls have ended in these ways. Returns what was reported to the asker.
async fn reports(endpoints: &[&str], ends: impl IntoIterator<Item = CallEnd>) -> Vec<String> {
    let endpoints = endpoints.iter().map(|endpoint| (*endpoint).into()).collect();
    let settings = Settings { endpoints, pace: crate::session::Pace::default(), resources_per_request: 10, seed: 1 };
    let mut session = Session::new(settings);
    session.want(Millis(0), &"r".into(), Wants { amount: 1.0, ..Wants::default() }, Mode::Safe);
    let (reports, mut received) = mpsc::unbounded_channel();
    let script = Script { session, begun: Instant::now(), ends: ends.into_iter().collect(), reports };
    Driver::new(script, Transport::new(), Some(Hints::new(Listener::Client("me".into())))).run().await;
    let mut all = Vec::new();
    while let Some(one) = received.recv().await {
        all.push(one);
    }
    all
}

#[tokio::test(start_paused = true)]
async fn redirects_are_followed_at_once_and_failures_after_a_pause() {
    let begun = Instant::now();
    let redirect = CallEnd::Replies(Reply::Redirect(Some("127.0.0.1:2".into())));
    let followed = reports(&["127.0.0.1:1"], [redirect, CallEnd::Replies(Reply::Master(Vec::new()))]).await;
    assert_eq!(followed, ["1 127.0.0.1:1: redirected Some(\"127.0.0.1:2\")", "2 127.0.0.1:2: answered"]);
    assert_eq!(begun.elapsed(), Duration::ZERO);
    let failed = reports(&["127.0.0.1:1"], [CallEnd::Fails, CallEnd::Replies(Reply::Master(Vec::new()))]).await;
    assert_eq!(failed, ["1 127.0.0.1:1: failed Unavailable", "2 127.0.0.1:1: answered"]);
    assert!(begun.elapsed() >= Duration::from_millis(50));
}

#[tokio::test(start_paused = true)]
async fn a_hanging_call_is_abandoned_with_its_connection() {
    let begun = Instant::now();
    let late = reports(&["127.0.0.1:1"], [CallEnd::Hangs, CallEnd::Replies(Reply::Master(Vec::new()))]).await;
    assert_eq!(late, ["1 127.0.0.1:1: late, distrusted", "2 127.0.0.1:1: answered"]);
    assert!(begun.elapsed() >= Duration::from_secs(3), "its deadline");
}

#[tokio::test(start_paused = true)]
async fn an_invalid_address_is_a_failure() {
    let redirect = CallEnd::Replies(Reply::Redirect(Some("no address".into())));
    let failed = reports(&["127.0.0.1:1"], [redirect, CallEnd::Hangs]).await;
    assert_eq!(failed[1], "2 no address: failed InvalidArgument, distrusted");
}
