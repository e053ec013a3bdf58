//! A node with a scripted parent in the same process.

mod parent;

use std::{sync::Arc, time::Duration};

use actix::{Arbiter, System};
use leaseway_core::{
    lease::holder::ShownLease,
    policy::{settings::AlgorithmKind, template::Repository},
    resource::{Answer, Ask, Request},
    types::{Amount, Claim, Claims, HolderKind, Token},
};
use leaseway_proto::doorman as wire;
use leaseway_uplink::UplinkInput;

use self::parent::{Fake, Says};
use super::Parent;
use crate::{
    auth::Authorizer,
    config::limits::Limits,
    node::{NodeHandle, NodeStart, RequestError},
    runtime::clock::Clock,
};

/// A hint for a resource of this name makes the actor panic.
const PANIC: &str = "panic";

/// Whether these inputs make the actor panic.
pub(super) fn panics(inputs: &[UplinkInput]) -> bool {
    let planted = |ids: &Vec<String>| ids.iter().any(|id| id == PANIC);
    inputs.iter().any(|input| matches!(input, UplinkInput::Hinted(Some(ids)) if planted(ids)))
}

/// Only a hang takes longer.
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

/// Runs `test` against a node `leaf` without a data directory.
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
                text: "".into(),
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

async fn asks(node: &NodeHandle, client: &str, wants: f64, has: Option<&Answer>) -> Result<Answer, RequestError> {
    let has = has.and_then(Answer::lease).map(|lease| ShownLease {
        token: Some(lease.token),
        capacity: lease.capacity,
        expiry_time: lease.expiry_time,
    });
    asks_with(node, client, (wants, 0), has).await
}

async fn asks_with(
    node: &NodeHandle,
    client: &str,
    claim: (f64, i64),
    has: Option<ShownLease>,
) -> Result<Answer, RequestError> {
    let resource = "r".into();
    let answer = node.submit(&resource, request(client, claim, has));
    tokio::time::timeout(PATIENCE, answer).await.expect("an answer, even without one of the parent")
}

fn request(client: &str, claim: (f64, i64), has: Option<ShownLease>) -> Request {
    Request::Ask(Ask {
        claims: Claims::from_slice(&[Claim::of_client(Amount::clamped(claim.0), claim.1)]),
        has,
        ..Ask::of_nothing(client.into())
    })
}

fn granted(answer: &Result<Answer, RequestError>) -> f64 {
    answer.as_ref().ok().and_then(Answer::lease).unwrap_or_else(|| panic!("no lease: {answer:?}")).capacity.get()
}

#[test]
fn the_first_request_of_a_resource_is_granted_from_the_lease_of_the_parent() {
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
fn without_an_answer_of_the_parent_requests_wait_and_get_no_lease() {
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
fn requests_that_wait_for_the_parent_count_in_the_queue() {
    let limits = Limits { queue: 2, ..Limits::default() };
    with_parent(Says { silent: true, ..Says::sharing(70.0) }, limits, |node, _fake| async move {
        let (first, second, third) =
            tokio::join!(asks(&node, "a", 1.0, None), asks(&node, "b", 1.0, None), asks(&node, "c", 1.0, None));
        let count = |expected| [&first, &second, &third].into_iter().filter(|answer| **answer == expected).count();
        assert_eq!((count(Ok(Answer::NotYet)), count(Err(RequestError::Busy("r".into())))), (2, 1));
        assert_eq!(asks(&node, "c", 1.0, None).await, Ok(Answer::NotYet), "answered requests make room");
    });
}

#[test]
fn a_resource_has_the_settings_and_terms_of_the_parent() {
    let mut says = Says::sharing(90.0);
    says.algorithm.kind = Some(AlgorithmKind::ProportionalShare as i32);
    says.terms =
        vec![wire::Terms { priority: Some(0), equal_share: Some(25.0), top_up: Some(0.5), ..wire::Terms::default() }];
    below(says, |node, _fake| async move {
        granted(&asks(&node, "a", 100.0, None).await);
        let report = node.resource_status("r", 0, 0).await.expect("alive").report;
        assert_eq!((report.settings.kind, report.settings.capacity.get()), (AlgorithmKind::ProportionalShare, 90.0));
        let supply = report.supply.expect("it has a parent");
        assert_eq!((supply.version, supply.terms.len(), supply.outstanding.map(Amount::get)), (1, 1, Some(0.0)));
    });
}

/// Priorities are reported even if the algorithm ignores them, because the parent interprets them.
#[test]
fn the_demand_of_each_priority_is_reported_to_the_parent() {
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
fn the_parent_is_asked_early_if_the_demand_changes_enough() {
    below(Says::sharing(1_000.0), |node, fake| async move {
        let had = asks(&node, "a", 100.0, None).await.expect("an answer");
        let settled =
            async |number| eventually("the parent is asked", || (fake.asked().len() >= number).then_some(())).await;
        // The held amount has changed as well, but the parent does not wait for that.
        let had = asks(&node, "a", 100.4, Some(&had)).await.expect("an answer");
        tokio::time::sleep(Duration::from_millis(300)).await;
        assert_eq!(fake.asked().len(), 1, "the change is too small");
        asks(&node, "a", 150.0, Some(&had)).await.expect("an answer");
        settled(2).await;
        let told = &fake.asked_for("r")[1];
        assert_eq!(told.has.as_ref().and_then(|has| has.token), Some(1), "it confirms its lease");
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
fn a_restarted_uplink_confirms_no_lease() {
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
        assert_eq!((entry.has, entry.outstanding), (None, Some(70.0)), "the resource knows what is held");
        assert_eq!(granted(&asks(&node, "a", 100.0, Some(&had)).await), 70.0, "holders keep their leases");
    });
}

#[test]
fn redirects_are_followed() {
    below(Says::sharing(70.0), |node, first| async move {
        let second = Fake::start(Says::sharing(50.0)).await;
        let to = second.0.address.clone();
        first.now_says(|says| says.redirect = Some(to.clone()));
        assert_eq!(granted(&asks(&node, "a", 100.0, None).await), 50.0);
        assert_eq!(first.asked().len(), 1);
        assert_eq!(node.uplink().map(|report| report.master.to_string()), Some(to));
    });
}

#[test]
fn a_retired_resource_releases_its_lease_at_the_parent() {
    let limits = Limits { idle_secs: 0, ..Limits::default() };
    with_parent(Says::sharing(70.0), limits, |node, fake| async move {
        granted(&asks(&node, "a", 100.0, None).await);
        let release = leaseway_core::resource::Release {
            kind: HolderKind::Client,
            id: "a".into(),
            token: None,
            instance: None,
            spent: None,
        };
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
        assert_eq!(granted(&asks(&node, "a", 100.0, None).await), 70.0, "it is available again");
        assert_eq!(fake.asked_for("r").last().expect("asked").has, None, "a new lease");
    });
}

#[test]
fn a_node_without_stored_state_learns_for_the_learning_duration_of_the_parent() {
    let mut says = Says::sharing(70.0);
    says.algorithm.learning_mode_duration = None;
    below(says, |node, _fake| async move {
        assert_eq!(granted(&asks(&node, "a", 100.0, None).await), 0.0, "others may have leases");
        let learning = node.resource_status("r", 0, 0).await.expect("alive").report.learning;
        assert!(learning.0 > 500_000, "a lease of the parent's length: {learning:?}");
    });
}

#[test]
fn an_unknown_lease_starts_learning_for_a_lease_length_of_the_parent() {
    below(Says::sharing(70.0), |node, _fake| async move {
        let expiry_time = node.clock.now().unix + 500;
        let stranger = ShownLease { token: Token::new(12345), capacity: Amount::clamped(30.0), expiry_time };
        assert_eq!(granted(&asks_with(&node, "a", (100.0, 0), Some(stranger)).await), 30.0, "it keeps what it has");
        assert_eq!(granted(&asks(&node, "b", 100.0, None).await), 0.0);
        let learning = node.resource_status("r", 0, 0).await.expect("alive").report.learning;
        assert!(learning.0 > 500_000, "{learning:?}");
    });
}

#[test]
fn a_restarted_resource_confirms_no_lease_and_learns() {
    below(Says::sharing(70.0), |node, fake| async move {
        granted(&asks(&node, "a", 100.0, None).await);
        node.plant_panic("r");
        assert_eq!(granted(&asks(&node, "b", 100.0, None).await), 0.0, "its leases are lost");
        let entry = fake.asked_for("r").pop().expect("asked");
        assert_eq!(entry.has, None, "the new incarnation has no supply");
    });
}

#[test]
fn the_uplink_report_has_the_last_answer_and_failures() {
    below(Says::sharing(70.0), |node, fake| async move {
        granted(&asks(&node, "a", 100.0, None).await);
        let report = eventually("the report is written", || node.uplink().filter(|report| report.resources == 1)).await;
        assert_eq!((&*report.master, report.failures, report.last_error), (&*fake.0.address, 0, None));
        assert!(report.answered.is_some());
        fake.now_says(|says| says.redirect = Some(String::new()));
        fake.hint("r").await;
        let report = eventually("a failure is told", || node.uplink().filter(|report| report.failures > 0)).await;
        assert!(report.last_error.expect("a failure").contains("knows no master"));
    });
}
