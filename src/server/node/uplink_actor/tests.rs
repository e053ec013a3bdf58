//! What a node promises that has a parent, with a parent in the same process that says what it is told to say.

mod parent;

use std::{sync::Arc, time::Duration};

use actix::{Arbiter, System};
use futures_util::future::join_all;
use leaseway_core::{
    AlgorithmKind, Amount, Answer, Ask, Claim, Claims, Has, HolderKind, Millis, Principal, Repository, Request, Token,
};
use leaseway_proto::doorman as wire;
use leaseway_uplink::UplinkInput;

use self::parent::{Fake, Says};
use super::Parent;
use crate::{
    auth::Authorizer,
    config::limits::Limits,
    listen::accounts::RequestOrigin,
    node::{NodeHandle, NodeStart, Refused},
    runtime::clock::Clock,
};

/// A hint for a resource of this name makes the actor panic.
const PANIC: &str = "panic";

/// Whether these make the actor panic.
pub(super) fn panics(inputs: &[UplinkInput]) -> bool {
    let planted = |ids: &Vec<String>| ids.iter().any(|id| id == PANIC);
    inputs.iter().any(|input| matches!(input, UplinkInput::Hinted(Some(ids)) if planted(ids)))
}

/// Only a hang takes so long.
const PATIENCE: Duration = Duration::from_secs(30);

async fn eventually<T>(what: &str, mut probe: impl FnMut() -> Option<T>) -> T {
    let found = async {
        loop {
            if let Some(found) = probe() {
                return found;
            }
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    };
    tokio::time::timeout(PATIENCE, found).await.unwrap_or_else(|_| panic!("waited in vain: {what}"))
}

/// Runs `test` against a node called `leaf`, without memory, whose parent says this.
fn with_parent<F: Future<Output = ()>>(says: Says, limits: Limits, test: impl FnOnce(NodeHandle, Fake) -> F) {
    System::new().block_on(async {
        let fake = Fake::start(says).await;
        let arbiters: Vec<Arbiter> = (0..2).map(|_| Arbiter::new()).collect();
        let node = NodeHandle::start(
            NodeStart {
                repository: Repository::default(),
                access: None,
                authorizer: Arc::new(Authorizer::open()),
                source: "the parent".into(),
                limits: Arc::new(limits),
                clock: Clock::start(),
                arbiters: arbiters.iter().map(Arbiter::handle).collect(),
                seed: 1,
                membership: None,
                accounts: Arc::default(),
                parent: Some(Parent {
                    node: "leaf".into(),
                    addresses: vec![fake.0.address.as_str().into()],
                    tls: None,
                    token: None,
                }),
            },
            || {},
        );
        test(node, fake).await;
        for arbiter in arbiters {
            arbiter.stop();
            arbiter.join().expect("the arbiter's thread ends");
        }
    });
}

fn below<F: Future<Output = ()>>(says: Says, test: impl FnOnce(NodeHandle, Fake) -> F) {
    with_parent(says, Limits::default(), test);
}

async fn asks(node: &NodeHandle, client: &str, wants: f64, has: Option<&Answer>) -> Result<Answer, Refused> {
    let has = has.and_then(Answer::lease).map(|lease| Has {
        token: Some(lease.token),
        capacity: lease.capacity,
        expiry_time: lease.expiry_time,
    });
    asks_with(node, client, (wants, 0), has).await
}

async fn asks_with(node: &NodeHandle, client: &str, claim: (f64, i64), has: Option<Has>) -> Result<Answer, Refused> {
    let resource = "r".into();
    let answer = node.submit(&resource, request(client, claim, has));
    tokio::time::timeout(PATIENCE, answer).await.expect("an answer, even if the parent gives none")
}

fn request(client: &str, claim: (f64, i64), has: Option<Has>) -> Request {
    Request::Ask(Ask {
        kind: HolderKind::Client,
        id: client.into(),
        claims: Claims::from_slice(&[Claim::of_client(Amount::clamped(claim.0), claim.1)]),
        has,
        had: None,
        outstanding: None,
        learning: false,
        drops_late: true,
        is_gateway: false,
        instance: None,
        news: None,
        charged_to: leaseway_core::ChargedTo::default(),
    })
}

fn granted(answer: &Result<Answer, Refused>) -> f64 {
    answer.as_ref().ok().and_then(Answer::lease).unwrap_or_else(|| panic!("no lease: {answer:?}")).capacity.get()
}

#[test]
fn the_very_first_request_of_a_resource_is_granted_what_the_parent_lends_for_it() {
    below(Says::sharing(70.0), |node, fake| async move {
        assert_eq!(granted(&asks(&node, "a", 100.0, None).await), 70.0);
        let asked = fake.asked();
        assert_eq!((asked.len(), asked[0].server_id.as_deref()), (1, Some("leaf")));
        assert!(asked[0].drops_late());
        let entry = &asked[0].resource[0];
        assert_eq!((entry.has, entry.wants[0].wants, entry.outstanding), (None, Some(100.0), Some(0.0)));
    });
}

#[test]
fn while_the_parent_says_nothing_requests_wait_for_a_while_and_then_go_without() {
    below(Says { silent: true, ..Says::sharing(70.0) }, |node, _fake| async move {
        let began = node.clock.at();
        let asked = async {
            let answer = asks(&node, "a", 100.0, None).await;
            (answer, node.clock.at().since(began))
        };
        let ticks = async {
            while node.resource_status("r", 0, 0).await.is_none_or(|status| status.report.holders == 0) {
                tokio::task::yield_now().await;
            }
            node.tick().await.expect("the node is there");
        };
        let ((answer, waited), ()) = tokio::join!(asked, ticks);
        assert_eq!(answer, Ok(Answer::NotYet));
        assert!(waited.0 >= 1_000, "it might have come: {waited:?}");
    });
}

#[test]
fn requests_that_wait_for_the_parent_count_as_waiting() {
    let limits = Limits { queue: 2, ..Limits::default() };
    with_parent(Says { silent: true, ..Says::sharing(70.0) }, limits, |node, _fake| async move {
        let (first, second, third) =
            tokio::join!(asks(&node, "a", 1.0, None), asks(&node, "b", 1.0, None), asks(&node, "c", 1.0, None));
        let count = |expected| [&first, &second, &third].into_iter().filter(|answer| **answer == expected).count();
        assert_eq!((count(Ok(Answer::NotYet)), count(Err(Refused::Busy("r".into())))), (2, 1));
        assert_eq!(asks(&node, "c", 1.0, None).await, Ok(Answer::NotYet), "those who went made room");
    });
}

#[test]
fn one_principal_does_not_fill_the_queue_of_a_resource() {
    let limits = Limits { queue: 20, ..Limits::default() };
    with_parent(Says { silent: true, ..Says::sharing(70.0) }, limits, |node, _fake| async move {
        let origin = |last: u32| RequestOrigin { address: [10, 0, 0, last as u8].into(), principal: Principal(last) };
        let ask = |last: u32, n: usize| {
            let (node, request) = (node.clone(), request(&format!("{last}-{n}"), (1.0, 0), None));
            async move { node.submit_from("r", &request, Some(origin(last))).await }
        };
        let (stranger, other) = tokio::join!(join_all((0..40).map(|n| ask(1, n))), async {
            // Beside the stranger's, not before them.
            tokio::task::yield_now().await;
            ask(2, 0).await
        });
        let waited = stranger.iter().filter(|answer| **answer == Ok(Answer::NotYet)).count();
        let refused = stranger.iter().filter(|answer| **answer == Err(Refused::QueueShare("r".into()))).count();
        // Half of the places, and its share of the others: one less where the other came between.
        assert!((17..=18).contains(&waited), "{waited}");
        assert_eq!(waited + refused, 40);
        assert_eq!(other, Ok(Answer::NotYet), "there is room for another");
    });
}

#[test]
fn what_the_parent_says_is_what_a_resource_is_run_by() {
    let mut says = Says::sharing(90.0);
    says.algorithm.kind = Some(AlgorithmKind::ProportionalShare as i32);
    says.terms =
        vec![wire::Terms { priority: Some(0), equal_share: Some(25.0), top_up: Some(0.5), ..wire::Terms::default() }];
    below(says, |node, _fake| async move {
        granted(&asks(&node, "a", 100.0, None).await);
        let report = node.resource_status("r", 0, 0).await.expect("alive").report;
        assert_eq!((report.settings.kind, report.settings.capacity.get()), (AlgorithmKind::ProportionalShare, 90.0));
        let supply = report.supply.expect("it has a parent");
        assert_eq!((supply.version, supply.terms.len(), supply.told.map(Amount::get)), (1, 1, Some(0.0)));
    });
}

/// Also where the algorithm here does not look at them: what they mean is for the parent to say.
#[test]
fn the_parent_is_told_of_each_priority() {
    below(Says::sharing(70.0), |node, fake| async move {
        for (client, claim) in [("a", (10.0, 0)), ("b", (20.0, 3)), ("c", (30.0, 3))] {
            asks_with(&node, client, claim, None).await.expect("it is granted something");
        }
        let told = || {
            let bands = fake.asked_for("r").pop()?.wants;
            let told: Vec<_> = bands.iter().map(|band| (band.priority(), band.num_clients(), band.wants())).collect();
            let all: f64 = told.iter().map(|(_, _, wants)| wants).sum();
            (all == 60.0).then_some(told)
        };
        assert_eq!(eventually("all are told of", told).await, [(0, 1, 10.0), (3, 1, 20.0), (3, 1, 30.0)]);
    });
}

#[test]
fn holders_ask_twice_as_often_as_the_node_itself() {
    below(Says::sharing(70.0), |node, _fake| async move {
        let answer = asks(&node, "a", 10.0, None).await.expect("it is granted something");
        assert_eq!(answer.lease().expect("a lease").refresh, Millis::from_secs(150), "half of 300 s");
    });
}

#[test]
fn an_algorithm_that_cannot_be_run_gives_all_what_they_want_within_the_lease() {
    let mut says = Says::sharing(90.0);
    says.algorithm.kind = Some(99);
    below(says, |node, _fake| async move {
        assert_eq!(granted(&asks(&node, "a", 60.0, None).await), 60.0);
        assert_eq!(granted(&asks(&node, "b", 60.0, None).await), 30.0);
        let report = node.resource_status("r", 0, 0).await.expect("alive").report;
        assert_eq!(report.settings.kind, AlgorithmKind::NoAlgorithm);
    });
}

#[test]
fn the_parent_hears_early_of_what_has_changed_and_only_then() {
    below(Says::sharing(1_000.0), |node, fake| async move {
        let had = asks(&node, "a", 100.0, None).await.expect("an answer");
        let settled =
            async |number| eventually("the parent is asked", || (fake.asked().len() >= number).then_some(())).await;
        // What is held was nothing when the parent was told: nothing that it waits for.
        let had = asks(&node, "a", 100.4, Some(&had)).await.expect("an answer");
        tokio::time::sleep(Duration::from_millis(300)).await;
        assert_eq!(fake.asked().len(), 1, "that is less than matters");
        asks(&node, "a", 150.0, Some(&had)).await.expect("an answer");
        settled(2).await;
        let told = &fake.asked_for("r")[1];
        assert_eq!(told.has.as_ref().and_then(|has| has.token), Some(1), "it confirms what it knows");
        assert_eq!((told.wants[0].wants, told.outstanding), (Some(150.0), Some(150.0)));
    });
}

#[test]
fn a_hint_of_the_parent_makes_the_node_ask() {
    below(Says::sharing(70.0), |node, fake| async move {
        granted(&asks(&node, "a", 100.0, None).await);
        fake.now_says(|says| says.capacity = 90.0);
        fake.hint("r").await;
        eventually("the parent is asked again", || (fake.asked().len() == 2).then_some(())).await;
        let lent = async {
            while node.resource_status("r", 0, 0).await.expect("alive").report.settings.capacity.get() != 90.0 {
                tokio::task::yield_now().await;
            }
        };
        tokio::time::timeout(PATIENCE, lent).await.expect("what is lent comes to the resource");
    });
}

#[test]
fn an_uplink_that_fails_is_built_anew_and_confirms_nothing_that_it_does_not_know() {
    below(Says::sharing(70.0), |node, fake| async move {
        let had = asks(&node, "a", 100.0, None).await.expect("an answer");
        fake.hint(PANIC).await;
        let ticking = {
            let node = node.clone();
            actix_rt::spawn(async move {
                while node.tick().await.is_ok() {
                    tokio::time::sleep(Duration::from_millis(10)).await;
                }
            })
        };
        eventually("the parent is asked again", || (fake.asked().len() == 2).then_some(())).await;
        ticking.abort();
        let entry = &fake.asked_for("r")[1];
        assert_eq!((entry.has, entry.outstanding), (None, Some(70.0)), "what is held below is known all the same");
        assert_eq!(granted(&asks(&node, "a", 100.0, Some(&had)).await), 70.0, "no holder below has lost anything");
    });
}

#[test]
fn redirects_are_followed() {
    below(Says::sharing(70.0), |node, first| async move {
        let second = Fake::start(Says::sharing(50.0)).await;
        let to = second.0.address.clone();
        first.now_says(|says| says.elsewhere = Some(to.clone()));
        assert_eq!(granted(&asks(&node, "a", 100.0, None).await), 50.0);
        assert_eq!(first.asked().len(), 1);
        assert_eq!(node.uplink().map(|report| report.master.to_string()), Some(to));
    });
}

#[test]
fn what_is_needed_no_more_is_given_back_by_name() {
    let limits = Limits { idle_secs: 0, ..Limits::default() };
    with_parent(Says::sharing(70.0), limits, |node, fake| async move {
        granted(&asks(&node, "a", 100.0, None).await);
        let release = leaseway_core::Release { kind: HolderKind::Client, id: "a".into(), token: None, instance: None };
        node.submit(&"r".into(), Request::Release(release)).await.expect("released");
        while node.resources() > 0 {
            node.tick().await.expect("the node is there");
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
        let released =
            eventually("it is given back", || fake.0.released.lock().expect("no panic").first().cloned()).await;
        let newest = fake.asked().len() as u64;
        assert_eq!((released.client_id.as_deref(), released.is_server), (Some("leaf"), Some(true)));
        assert_eq!((released.resource_id, released.token), (vec!["r".to_owned()], vec![newest]));
        assert_eq!(granted(&asks(&node, "a", 100.0, None).await), 70.0, "and can be had again");
        assert_eq!(fake.asked_for("r").last().expect("asked").has, None, "which is a new lease");
    });
}

#[test]
fn a_node_without_memory_listens_for_as_long_as_the_parent_says() {
    let mut says = Says::sharing(70.0);
    says.algorithm.learning_mode_duration = None;
    below(says, |node, _fake| async move {
        assert_eq!(granted(&asks(&node, "a", 100.0, None).await), 0.0, "others may have had it all");
        let learning = node.resource_status("r", 0, 0).await.expect("alive").report.learning;
        assert!(learning.0 > 500_000, "a lease of the parent's length: {learning:?}");
    });
}

#[test]
fn a_lease_that_is_not_known_here_makes_it_listen_for_a_lease_length_of_the_parents() {
    below(Says::sharing(70.0), |node, _fake| async move {
        let expiry_time = node.clock.now().unix + 500;
        let stranger = Has { token: Token::new(12345), capacity: Amount::clamped(30.0), expiry_time };
        assert_eq!(granted(&asks_with(&node, "a", (100.0, 0), Some(stranger)).await), 30.0, "it keeps what it has");
        assert_eq!(granted(&asks(&node, "b", 100.0, None).await), 0.0);
        let learning = node.resource_status("r", 0, 0).await.expect("alive").report.learning;
        assert!(learning.0 > 500_000, "{learning:?}");
    });
}

#[test]
fn a_resource_that_fails_confirms_nothing_and_listens() {
    below(Says::sharing(70.0), |node, fake| async move {
        granted(&asks(&node, "a", 100.0, None).await);
        node.plant_panic("r");
        assert_eq!(granted(&asks(&node, "b", 100.0, None).await), 0.0, "its books are lost");
        let entry = fake.asked_for("r").pop().expect("asked");
        assert_eq!(entry.has, None, "the next life knows nothing of what was lent");
    });
}

#[test]
fn a_parent_that_knows_only_the_original_protocol_is_told_of_a_client_even_if_there_is_none() {
    below(Says { original: true, refresh: 1, ..Says::sharing(70.0) }, |node, fake| async move {
        granted(&asks(&node, "a", 100.0, None).await);
        let release = leaseway_core::Release { kind: HolderKind::Client, id: "a".into(), token: None, instance: None };
        node.submit(&"r".into(), Request::Release(release)).await.expect("released");
        let entry = eventually("it is asked for without clients", || {
            fake.asked_for("r").into_iter().find(|entry| entry.wants[0].wants == Some(0.0))
        });
        assert_eq!(entry.await.wants[0].num_clients, Some(1), "it divides by the number of clients");
    });
}

#[test]
fn how_it_gets_on_with_the_parent_is_told() {
    below(Says::sharing(70.0), |node, fake| async move {
        granted(&asks(&node, "a", 100.0, None).await);
        let report = eventually("the report is written", || node.uplink().filter(|report| report.resources == 1)).await;
        assert_eq!((&*report.master, report.failures, report.last_error), (&*fake.0.address, 0, None));
        assert!(report.answered.is_some());
        fake.now_says(|says| says.elsewhere = Some(String::new()));
        fake.hint("r").await;
        let report = eventually("a failure is told", || node.uplink().filter(|report| report.failures > 0)).await;
        assert!(report.last_error.expect("a failure").contains("knows none"));
    });
}
