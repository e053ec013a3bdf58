//! Reigns, and proposals of reigns that are over.

use std::sync::{
    Arc,
    atomic::{AtomicU64, Ordering},
};

use leaseway_core::{Amount, Assigned, Changes, ClusterTime, Epoch, HolderKind, Load, Millis, Promises, Refused};

use crate::{
    Clock, Fact, Facts, Mastership, ProposeError, Reign, Settings,
    tests::world::{World, assigned, known, said, until},
};

#[test]
fn a_reign_that_was_seen_to_lapse_is_over_for_ever() {
    let reign = Reign::new(7, Millis(10), Millis(100), ClusterTime(0));
    assert!(reign.holds(Millis(99)) && reign.extend(Millis(99), Millis(200)));
    assert!(reign.holds(Millis(199)) && !reign.holds(Millis(200)));
    assert!(!reign.holds(Millis(150)), "also for a caller that read the clock before it ended");
    assert!(!reign.extend(Millis(150), Millis(300)) && !reign.holds(Millis(150)) && reign.is_over());
}

#[test]
fn a_reign_is_not_extended_after_it_has_lapsed_even_if_no_caller_looked() {
    let reign = Reign::new(7, Millis(10), Millis(100), ClusterTime(0));
    assert!(!reign.extend(Millis(100), Millis(200)));
    assert!(!reign.holds(Millis(50)));
}

#[test]
fn a_shorter_confirmation_takes_nothing_back() {
    let reign = Reign::new(7, Millis(10), Millis(100), ClusterTime(0));
    assert!(reign.extend(Millis(20), Millis(60)) && reign.holds(Millis(99)));
}

fn promises(epoch: u64, number: u64, total: f64) -> Fact {
    let (epoch, total, horizon) = (Epoch(epoch), Amount::clamped(total), Some(ClusterTime(1000)));
    Fact::Promises {
        resource: "r".into(),
        changes: Changes {
            epoch,
            number,
            total,
            horizon,
            lease: None,
            counted_from: None,
            wants: None,
            parts: Vec::new(),
        },
    }
}

fn refused(why: Refused) -> ProposeError {
    ProposeError::Refused { resource: "r".into(), why }
}

#[test]
fn a_proposal_is_applied_as_a_whole_or_not_at_all() {
    let mut facts = Facts::default();
    let reign = facts.begin_reign();
    let mut apply = |of: u64, proposal: &[Fact]| {
        let before = facts.record(Millis(0));
        let result = facts.apply(of, proposal, Millis(5));
        assert!(result.is_ok() || facts.record(Millis(0)) == before, "a refused proposal has changed something");
        (result, facts.record(Millis(0)))
    };
    apply(reign, &[promises(4, 1, 1.0), promises(4, 2, 1.0)]).0.expect("in order");
    let gap = refused(Refused::Gap { epoch: Epoch(4), expected: 4, got: 5 });
    assert_eq!(apply(reign, &[assigned("x", 1.0), promises(4, 3, 2.0), promises(4, 5, 2.0)]).0, Err(gap));
    let first =
        ProposeError::Refused { resource: "s".into(), why: Refused::Gap { epoch: Epoch(4), expected: 1, got: 2 } };
    let Fact::Promises { changes, .. } = promises(4, 2, 1.0) else { unreachable!("it is one") };
    assert_eq!(
        apply(reign, &[Fact::Promises { resource: "s".into(), changes }]).0,
        Err(first),
        "a resource of its own"
    );
    let older = refused(Refused::OlderEpoch { newest: Epoch(4), got: Epoch(3) });
    assert_eq!(apply(reign, &[said("text"), promises(3, 1, 2.0)]).0, Err(older));
    assert_eq!(apply(reign - 1, &[said("text")]).0, Err(ProposeError::Deposed));
    assert_eq!(apply(reign + 1, &[said("text")]).0, Err(ProposeError::Deposed));
    // A resource that is forgotten begins anew, within a proposal too; promises of a later epoch stay.
    let forget = |epoch| Fact::ForgetPromises { resource: "r".into(), epoch: Epoch(epoch) };
    apply(reign, &[forget(3), promises(4, 3, 2.0)]).0.expect("it stayed");
    apply(reign, &[forget(4), promises(2, 1, 2.0)]).0.expect("it was forgotten");
    let vouched = |kind, assigned| Fact::Assignment { resource: "r".into(), kind, holder: "y".into(), assigned };
    let node = vouched(HolderKind::Node, Some(Assigned::Share(0.25)));
    let (result, record) = apply(reign, &[assigned("x", 2.0), assigned("x", 0.0), assigned("y", 3.0), node]);
    result.expect("nothing to refuse");
    let load = |load| Fact::Load { resource: "r".into(), load };
    let (result, loaded) = apply(reign, &[load(Some(Load::Factor(0.5)))]);
    result.expect("nothing to refuse");
    let restored = Facts::restore(loaded.clone(), Millis(9));
    assert_eq!(restored.record(Millis(0)), loaded);
    let holders: Vec<_> = restored.assignments("r").map(|(kind, id, assigned)| (kind, &**id, assigned)).collect();
    let three = Assigned::Capacity(Amount::clamped(3.0));
    assert_eq!(holders, [(HolderKind::Client, "y", three), (HolderKind::Node, "y", Assigned::Share(0.25))]);
    assert_eq!(restored.load("r"), Some(Load::Factor(0.5)));
    let (result, unloaded) = apply(reign, &[load(None)]);
    result.expect("nothing to refuse");
    assert_eq!(unloaded, record, "the template counts again");
    assert_eq!(restored.promises("r").map(Promises::total), Some(Amount::clamped(2.0)));
}

#[test]
fn only_the_last_configurations_are_remembered_but_all_are_counted() {
    let mut facts = Facts::default();
    let reign = facts.begin_reign();
    for round in 0..40 {
        facts.apply(reign, &[said(format!("{round}"))], Millis(0)).expect("nothing to refuse");
    }
    let versions: Vec<u64> = facts.configurations().map(|configuration| configuration.version).collect();
    assert_eq!(versions, (9..=40).collect::<Vec<_>>());
    assert_eq!(Facts::restore(facts.record(Millis(0)), Millis(0)).configuration(), facts.configuration());
}

#[tokio::test]
async fn a_late_proposal_of_an_earlier_reign_changes_nothing() {
    let mut world = World::new(&["a", "b", "c"]).await;
    world.bootstrap().await;
    let (first, _) = world.master().await;
    world.isolate(&first, true);
    until("another one reigns", || world.masters().iter().any(|(name, _)| *name != first)).await;
    world.isolate(&first, false);
    let (name, reign) = world.master().await;
    // As if it had been under way all the time: this reign never learned that it is over.
    let former = Reign::new(reign.number() - 1, Millis(0), Millis(u64::MAX), ClusterTime(0));
    let peer = world.peer(&name).clone();
    let (late, now) = tokio::join!(peer.propose(&former, vec![said("late")]), peer.propose(&reign, vec![said("now")]),);
    assert_eq!((late, now), (Err(ProposeError::Deposed), Ok(())));
    assert_eq!(known(&peer), ["now"]);
}

#[tokio::test]
async fn proposals_of_one_entry_are_told_apart_and_keep_their_order() {
    let mut world = World::new(&["a", "b", "c"]).await;
    world.bootstrap().await;
    let (name, reign) = world.master().await;
    let peer = world.peer(&name).clone();
    let (told, mut results) = tokio::sync::mpsc::unbounded_channel();
    let proposals = [promises(7, 1, 1.0), promises(7, 3, 9.0), said("text"), promises(7, 2, 2.0)];
    for (place, proposal) in proposals.into_iter().enumerate() {
        let told = told.clone();
        peer.submit(&reign, vec![proposal], move |result| told.send((place, result)).expect("the test waits"));
    }
    let gap = refused(Refused::Gap { epoch: Epoch(7), expected: 2, got: 3 });
    for expected in [(0, Ok(())), (1, Err(gap)), (2, Ok(())), (3, Ok(()))] {
        assert_eq!(results.recv().await, Some(expected));
    }
    assert_eq!(known(&peer), ["text"]);
    let newest = peer.read(|facts| facts.promises("r").map(|promises| (promises.newest(), promises.total())));
    assert_eq!(newest, Some((Some((Epoch(7), 2)), Amount::clamped(2.0))));
    let former = Reign::new(reign.number() - 1, Millis(0), Millis(0), ClusterTime(0));
    assert!(!former.holds(Millis(1)));
    peer.submit(&former, vec![said("late")], move |result| told.send((4, result)).expect("the test waits"));
    assert_eq!(results.recv().await, Some((4, Err(ProposeError::Deposed))));
    assert_eq!(known(&peer), ["text"]);
}

#[tokio::test]
async fn a_master_that_was_kept_from_running_has_lost_its_reign_before_it_notices() {
    let mut world = World::new(&["a", "b", "c"]).await;
    let slept = Arc::new(AtomicU64::new(0));
    for name in ["a", "b", "c"] {
        let (clock, slept) = (world.clock(), Arc::clone(&slept));
        let clock: Clock = Arc::new(move || clock().plus(Millis(slept.load(Ordering::SeqCst))));
        let settings = Settings { bootstrap: true, clock, ..world.settings(name) };
        world.start_with(settings).await.expect("it starts");
    }
    let (_, reign) = world.master().await;
    slept.store(10_000, Ordering::SeqCst);
    assert!(!reign.holds(world.now().plus(Millis(10_000))));
    // On this peer or another there is a master again, under another reign.
    let later =
        |mastership: &Mastership| matches!(mastership, Mastership::Master(next) if next.number() > reign.number());
    until("there is a master again", || world.running().any(|(_, peer)| later(&peer.mastership().borrow()))).await;
    assert!(!reign.holds(world.now()), "it does not come back");
}

#[tokio::test]
async fn a_proposal_that_is_too_large_is_refused_at_once() {
    let mut world = World::new(&["a"]).await;
    world.bootstrap().await;
    let (name, reign) = world.master().await;
    let text: Arc<str> = "x".repeat(5 << 20).into();
    let result = world.peer(&name).propose(&reign, vec![said(text)]).await;
    assert!(matches!(result, Err(ProposeError::TooLarge { .. })), "{result:?}");
    assert!(known(world.peer(&name)).is_empty());
}

#[tokio::test]
async fn a_master_that_is_cut_off_stops_by_itself_and_its_callers_learn_that_the_outcome_is_unknown() {
    let mut world = World::new(&["a", "b", "c"]).await;
    world.bootstrap().await;
    let (first, reign) = world.master().await;
    let peer = world.peer(&first).clone();
    world.isolate(&first, true);
    assert_eq!(peer.propose(&reign, vec![said("lost")]).await, Err(ProposeError::Uncertain));
    assert!(!reign.holds(world.now()));
    assert_eq!(peer.propose(&reign, vec![said("never")]).await, Err(ProposeError::Deposed));
    world.isolate(&first, false);
    world.propose(said("after")).await;
    until("all agree", || world.running().all(|(_, peer)| known(peer).last().map(String::as_str) == Some("after")))
        .await;
    let of_all: Vec<_> = world.running().map(|(_, peer)| known(peer)).collect();
    assert!(of_all.iter().all(|of_one| *of_one == of_all[0] && !of_one.contains(&"never".to_owned())), "{of_all:?}");
}
