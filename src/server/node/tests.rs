//! Rounds, failures and limits of the actors.

use std::{sync::Arc, task::Poll, time::Duration};

use actix::{Arbiter, System};
use leaseway_core::{
    lease::{holder::ShownLease, promises::Changes},
    policy::template::Repository,
    resource::{Answer, Ask, Request},
    types::{Amount, Claim, Claims, ClusterTime, Epoch, Glob, HolderKind, Millis},
};
use leaseway_raft::{Command, Mastership, Timing};

use super::{Handover, Membership, NodeHandle, NodeStart, RequestError};
use crate::{
    auth::Authorizer,
    config::{self, initial_config::InitialConfiguration, limits::Limits},
    node::streams::hints::{PendingHints, Watch},
    runtime::clock::Clock,
};

fn ask(client: &str, wants: f64) -> Request {
    Request::Ask(Ask {
        claims: Claims::from_slice(&[Claim::of_client(Amount::clamped(wants), 0)]),
        ..Ask::of_nothing(client.into())
    })
}

fn granted(answer: Answer) -> f64 {
    match answer {
        Answer::Granted(lease) => lease.capacity.get(),
        other => panic!("no lease: {other:?}"),
    }
}

/// Runs `test` against a node with the development configuration: a capacity of 100, and no learning mode at the start.
fn with_node<F: Future<Output = ()>>(limits: Limits, test: impl FnOnce(NodeHandle, Arc<str>) -> F) {
    with_member(limits, async |_| None, test);
}

/// The same, as a peer.
fn with_member<F: Future<Output = ()>>(
    limits: Limits,
    join: impl AsyncFnOnce(Clock) -> Option<Membership>,
    test: impl FnOnce(NodeHandle, Arc<str>) -> F,
) {
    System::new().block_on(async {
        let arbiters: Vec<Arbiter> = (0..2).map(|_| Arbiter::new()).collect();
        let clock = Clock::start();
        let node = NodeHandle::start(
            NodeStart {
                repository: config::development().repository,
                access: None,
                authorizer: Arc::new(Authorizer::open()),
                source: "test".into(),
                text: "".into(),
                limits: Arc::new(limits),
                clock,
                arbiters: arbiters.iter().map(Arbiter::handle).collect(),
                seed: 1,
                membership: join(clock).await,
                parent: None,
                accounts: Arc::default(),
            },
            || {},
        );
        test(node, "r".into()).await;
        for arbiter in arbiters {
            arbiter.stop();
            arbiter.join().expect("the arbiter's thread ends");
        }
    });
}

#[test]
fn a_resource_that_panics_restarts_in_learning_mode() {
    with_node(Limits::default(), |node, r| async move {
        assert_eq!(granted(node.submit(&r, ask("a", 70.0)).await.expect("an answer")), 70.0);
        node.plant_panic(&r);
        // Its leases are lost, so `b` may have one: nothing is granted for a lease length.
        let answer = node.submit(&r, ask("b", 70.0)).await.expect("the resource is back");
        assert_eq!(granted(answer), 0.0);
        let status = node.resource_status(&r, 0, 10).await.expect("alive");
        assert!(status.report.learning.0 > 50_000, "{:?}", status.report);
    });
}

/// The failed incarnation may have granted leases long after the master started.
#[test]
fn a_restarted_resource_waits_for_leases_granted_just_before_it_failed() {
    let data = tempfile::tempdir().expect("a directory");
    let alone = async |clock: Clock| {
        let initial = Arc::new(InitialConfiguration::read(None, true).expect("there is no file"));
        let settings = leaseway_raft::Settings {
            bootstrap: true,
            first_configuration: initial.configuration(clock, "alone"),
            ..leaseway_raft::Settings::new("alone", data.path(), Arc::new(move || clock.at()))
        };
        let raft = leaseway_raft::start(settings).await.expect("a quorum of one");
        Some(Membership { raft, handover: Handover::Promises, initial })
    };
    with_member(Limits::default(), alone, |node, r| async move {
        let began = async {
            while node.submit(&r, ask("a", 70.0)).await.is_err() {
                tokio::time::sleep(Duration::from_millis(1)).await;
            }
        };
        soon(began).await;
        tokio::time::sleep(Duration::from_millis(20)).await;
        let given = node.clock.at();
        assert_eq!(granted(node.submit(&r, ask("a", 70.0)).await.expect("an answer")), 70.0);
        node.plant_panic(&r);
        assert!(granted(node.submit(&r, ask("b", 70.0)).await.expect("the resource is back")) <= 30.0);
        let promises = node.resource_status(&r, 0, 0).await.and_then(|status| status.promises);
        let until = promises.expect("promises are kept").inherited_until;
        // Leases last for 60 s, and expire everywhere 1 s and 0.1 % later.
        assert!(until >= given.plus(Millis(61_060)), "{given:?} {until:?}");
    });
}

/// If the second master counted the leases of the first from its own start, both could grant 200 of 100.
#[test]
fn a_new_master_counts_earlier_leases_from_the_end_of_earlier_terms() {
    for (timing, overlap) in [("one-site", 250), ("several-sites", 1250), ("1000,3000,5000", 5000)] {
        let data = tempfile::tempdir().expect("a directory");
        let began = Arc::new(std::sync::OnceLock::new());
        let of_join = Arc::clone(&began);
        let former = async |clock: Clock| {
            let initial = Arc::new(InitialConfiguration::read(None, true).expect("there is no file"));
            let settings = leaseway_raft::Settings {
                bootstrap: true,
                first_configuration: initial.configuration(clock, "alone"),
                listen: Some("127.0.0.1:0".parse().expect("an address")),
                peers: vec![("alone".into(), "127.0.0.1:1".into())],
                timing: match timing {
                    "one-site" => Timing::ONE_SITE,
                    "several-sites" => Timing::SEVERAL_SITES,
                    _ => Timing::new(1000, 3000, 5000).expect("a good timing"),
                },
                ..leaseway_raft::Settings::new("alone", data.path(), Arc::new(move || clock.at()))
            };
            let raft = leaseway_raft::start(settings).await.expect("a quorum of one");
            let mut mastership = raft.mastership();
            let is_master = mastership.wait_for(|now| matches!(now, Mastership::Master(_))).await.expect("it runs");
            let Mastership::Master(lease) = is_master.clone() else { unreachable!("just seen") };
            drop(is_master);
            let changes = Changes {
                epoch: Epoch(1),
                number: 1,
                total: Amount::clamped(70.0),
                horizon: Some(ClusterTime(3_600_000)),
                lease: Some(Millis(60_000)),
                high_water_mark: None,
                wants: None,
                parts: Vec::new(),
                period: None,
            };
            let promised = Command::Promises { resource: "r".into(), changes };
            raft.propose(&lease, vec![promised]).await.expect("it is stored");
            of_join.set(clock.at()).expect("once");
            Some(Membership { raft, handover: Handover::Promises, initial })
        };
        with_member(Limits::default(), former, |node, _| async move {
            let r: Arc<str> = "r".into();
            let asked = async {
                while node.submit(&r, ask("b", 70.0)).await.is_err() {
                    tokio::time::sleep(Duration::from_millis(1)).await;
                }
            };
            soon(asked).await;
            let promises = node.resource_status(&r, 0, 0).await.and_then(|status| status.promises);
            let until = promises.expect("promises are kept").inherited_until;
            let began = *began.get().expect("it has joined");
            assert!(until >= began.plus(Millis(overlap + 61_060)), "{timing}: {began:?} {until:?}");
        });
    }
}

#[test]
fn a_dropped_leader_of_a_batch_leaves_no_request_waiting() {
    with_node(Limits::default(), |node, r| async move {
        node.submit(&r, ask("a", 1.0)).await.expect("the resource comes to life");
        // A starting actor would run the round by itself.
        node.resource_status(&r, 0, 0).await.expect("alive");
        let mut first = Box::pin(node.submit(&r, ask("b", 1.0)));
        let mut second = Box::pin(node.submit(&r, ask("c", 1.0)));
        for asking in [&mut first, &mut second] {
            let waits = std::future::poll_fn(|task| Poll::Ready(asking.as_mut().poll(task).is_pending())).await;
            assert!(waits, "others on this thread have not run yet");
        }
        drop(first);
        assert_eq!(granted(soon(second).await.expect("an answer")), 1.0);
    });
}

#[test]
fn concurrent_requests_from_many_threads_are_all_answered() {
    with_node(Limits { queue: 100_000, ..Limits::default() }, |node, r| async move {
        let asking = (0..4).map(|thread| {
            let (node, r) = (node.clone(), Arc::clone(&r));
            std::thread::spawn(move || {
                let runtime = tokio::runtime::Builder::new_current_thread().build().expect("a runtime");
                runtime.block_on(async {
                    for n in 0..2_000 {
                        let (one, other) = (format!("c{thread}-{n}"), format!("d{thread}-{n}"));
                        let asks = [node.submit(&r, ask(&one, 1.0)), node.submit(&r, ask(&other, 1.0))];
                        for answer in futures_util::future::join_all(asks).await {
                            granted(answer.expect("an answer"));
                        }
                    }
                });
            })
        });
        let asking: Vec<_> = asking.collect();
        let done = async {
            while !asking.iter().all(std::thread::JoinHandle::is_finished) {
                tokio::time::sleep(Duration::from_millis(1)).await;
            }
        };
        soon(done).await;
        asking.into_iter().for_each(|thread| thread.join().expect("all were answered"));
        let status = node.resource_status(&r, 0, 0).await.expect("alive");
        assert_eq!(status.report.sums.subclients, 16_000);
    });
}

#[test]
fn answers_for_several_resources_keep_the_order_of_the_requests() {
    with_node(Limits::default(), |node, r| async move {
        node.submit(&r, ask("a", 90.0)).await.expect("the resource comes to life");
        let asks = [("new", 3.0), ("r", 20.0), ("newer", 4.0), ("r", 5.0)];
        let asks = asks.map(|(resource, wants)| (resource.to_owned(), ask("b", wants)));
        let answers = node.submit_all(&asks, None).await;
        let granted: Vec<f64> = answers.into_iter().map(|answer| granted(answer.expect("an answer"))).collect();
        assert_eq!(granted, [3.0, 10.0, 4.0, 5.0]);
    });
}

/// Fails after a minute, which only a hang takes.
async fn soon<T>(happens: impl Future<Output = T>) -> T {
    tokio::time::timeout(Duration::from_secs(60), happens).await.expect("nothing hangs")
}

#[test]
fn a_full_queue_refuses_requests() {
    let limits = Limits { queue: 4, ..Limits::default() };
    with_node(limits, |node, r| async move {
        node.submit(&r, ask("a", 1.0)).await.expect("the resource comes to life");
        let asks = (0..1000).map(|n| {
            let (node, r) = (node.clone(), Arc::clone(&r));
            async move { node.submit(&r, ask(&format!("c{n}"), 1.0)).await }
        });
        let answers = futures_util::future::join_all(asks).await;
        let busy = answers.iter().filter(|answer| matches!(answer, Err(RequestError::Busy(_)))).count();
        assert!(busy > 0, "a thousand requests at once fitted a queue of four");
        assert!(busy < 1000, "some are answered all the same");
    });
}

#[test]
fn resources_are_limited_and_idle_ones_make_room() {
    let limits = Limits { resources: 1, idle_secs: 0, ..Limits::default() };
    with_node(limits, |node, r| async move {
        node.submit(&r, ask("a", 1.0)).await.expect("the first fits");
        let other: Arc<str> = "other".into();
        let refused = node.submit(&other, ask("a", 1.0)).await.expect_err("the second does not");
        assert_eq!(refused, RequestError::TooManyResources(1));
        let release = leaseway_core::resource::Release {
            kind: HolderKind::Client,
            id: "a".into(),
            token: None,
            instance: None,
            spent: None,
        };
        node.submit(&r, Request::Release(release)).await.expect("released");
        while node.resources() > 0 {
            node.tick().await.expect("the node is there");
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
        node.submit(&other, ask("a", 1.0)).await.expect("there is room again");
    });
}

/// A resource may have retired before the node is notified. That is no failure, so the next incarnation does not learn.
#[test]
fn a_request_that_meets_a_retiring_resource_is_served_by_the_next() {
    with_node(Limits::default(), |node, r| async move {
        node.submit(&r, ask("a", 70.0)).await.expect("an answer");
        let retired = node.lookup(&r).expect("alive");
        retired.pretend_to_have_retired();
        node.open(&r, Some(retired.generation()), None).await.expect("the next incarnation");
        assert_eq!(granted(node.submit(&r, ask("b", 70.0)).await.expect("an answer")), 70.0);
    });
}

#[test]
fn clients_of_all_resources_together_are_limited() {
    let limits = Limits { clients: 2, ..Limits::default() };
    with_node(limits, |node, r| async move {
        let other: Arc<str> = "other".into();
        node.submit(&r, ask("a", 1.0)).await.expect("an answer");
        node.submit(&other, ask("b", 1.0)).await.expect("an answer");
        assert_eq!(node.submit(&r, ask("c", 1.0)).await, Ok(Answer::Full));
        assert!(granted(node.submit(&r, ask("a", 1.0)).await.expect("an answer")) > 0.0, "known clients are served");
    });
}

/// The next request of the same client, which reports its lease.
fn again(client: &str, wants: f64, before: &Answer) -> Request {
    match (ask(client, wants), before) {
        (Request::Ask(ask), Answer::Granted(lease)) => {
            let (token, capacity, expiry_time) = (Some(lease.token), lease.capacity, lease.expiry_time);
            Request::Ask(Ask { has: Some(ShownLease { token, capacity, expiry_time }), ..ask })
        }
        (_, before) => panic!("no lease: {before:?}"),
    }
}

/// The next hints. Fails after 30 s, which only a hang takes.
async fn told(watch: &Watch) -> PendingHints {
    let waiting = tokio::time::timeout(Duration::from_secs(30), watch.pending());
    waiting.await.expect("a hint comes").expect("no other stream has taken its place")
}

const CLIENT: HolderKind = HolderKind::Client;

#[test]
fn watchers_are_hinted_whether_they_watch_before_or_after_they_ask() {
    with_node(Limits::default(), |node, r| async move {
        let early = node.watch(CLIENT, "early".into(), None).expect("there is room");
        let had = node.submit(&r, ask("early", 100.0)).await.expect("an answer");
        node.submit(&r, ask("late", 100.0)).await.expect("an answer");
        let hinted = told(&early).await;
        assert_eq!((hinted.resources, hinted.everything), (vec![Arc::clone(&r)], false));
        // Without a tick, the resource learns of the watcher with the next round.
        let late = node.watch(CLIENT, "late".into(), None).expect("there is room");
        let had = node.submit(&r, again("early", 100.0, &had)).await.expect("told to come, so not too soon");
        assert_eq!(granted(had.clone()), 50.0);
        // The first client is hinted again if its lease still limits the other.
        told(&early).await;
        node.submit(&r, again("early", 100.0, &had)).await.expect("an answer");
        told(&late).await;
        assert_eq!(granted(node.submit(&r, ask("late", 100.0)).await.expect("an answer")), 50.0);
    });
}

#[test]
fn a_resource_learns_of_a_new_watcher_with_the_next_tick() {
    with_node(Limits::default(), |node, r| async move {
        node.submit(&r, ask("a", 100.0)).await.expect("an answer");
        node.submit(&r, ask("b", 100.0)).await.expect("an answer");
        let watch = node.watch(CLIENT, "a".into(), None).expect("there is room");
        node.tick().await.expect("the node is there");
        assert_eq!(told(&watch).await.resources, [r]);
    });
}

#[test]
fn a_new_configuration_hints_watchers_immediately() {
    with_node(Limits::default(), |node, r| async move {
        let watch = node.watch(CLIENT, "a".into(), None).expect("there is room");
        node.submit(&r, ask("a", 1000.0)).await.expect("an answer");
        let mut template = config::development().repository.find(&r).expect("everything matches").clone();
        Arc::make_mut(&mut template.settings).capacity = Amount::clamped(500.0);
        let glob = Glob::new(&template.identifier_glob).expect("it was one before");
        node.configure(config::Loaded::of(Repository::new(vec![(template, glob)]))).await.expect("the node is there");
        assert_eq!(told(&watch).await.resources, [r]);
    });
}

#[test]
fn a_new_incarnation_hints_returning_watchers() {
    with_node(Limits::default(), |node, r| async move {
        let watch = node.watch(CLIENT, "a".into(), None).expect("there is room");
        node.submit(&r, ask("a", 1.0)).await.expect("an answer");
        let retired = node.lookup(&r).expect("alive");
        retired.pretend_to_have_retired();
        node.open(&r, Some(retired.generation()), None).await.expect("the next incarnation");
        node.submit(&r, ask("a", 100.0)).await.expect("an answer");
        node.submit(&r, ask("b", 100.0)).await.expect("an answer");
        assert_eq!(told(&watch).await.resources, [r]);
    });
}
