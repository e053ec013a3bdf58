//! Elections, and what a new master knows.

use crate::{
    election::master_lease::Mastership,
    handle::{peer::StateOrigin, start},
    log::command::ProposeError,
    membership::change_error::ChangeError,
    settings::Settings,
    tests::world::{World, configuration, known, said, until},
};

#[tokio::test]
async fn three_peers_elect_a_master_that_replicates_and_is_succeeded_by_one_that_knows_everything() {
    let mut world = World::new(&["a", "b", "c"]).await;
    world.bootstrap().await;
    let (first, lease) = world.master().await;
    for text in ["one", "two", "three"] {
        world.peer(&first).propose(&lease, vec![said(text)]).await.expect("it is master");
    }
    until("all know", || world.running().all(|(_, peer)| known(peer) == ["one", "two", "three"])).await;
    world.kill(&first);
    until("the lease is over", || !lease.holds(world.now())).await;
    let (second, successor) = world.master().await;
    assert_ne!(first, second);
    assert!(successor.term() > lease.term());
    assert_eq!(known(world.peer(&second)), ["one", "two", "three"], "before it decides anything");
    world.start(&first).await;
    until("the first is back", || known(world.peer(&first)) == ["one", "two", "three"]).await;
    assert_eq!(world.peer(&first).origin(), StateOrigin::Resumed);
}

#[tokio::test]
async fn a_lone_peer_is_master_at_once_and_remembers() {
    let world = World::new(&[]).await;
    let settings = || Settings {
        first_configuration: Some(configuration("first")),
        ..Settings::new("alone", world.data("alone"), world.clock())
    };
    let mut numbers = Vec::new();
    for round in 0..3 {
        let peer = start(Settings { bootstrap: round == 0, ..settings() }).await.expect("it starts");
        assert_eq!(peer.origin(), if round == 0 { StateOrigin::Bootstrapped } else { StateOrigin::Resumed });
        let mut mastership = peer.mastership();
        let mastership = mastership.wait_for(|mastership| matches!(mastership, Mastership::Master(_))).await;
        let Mastership::Master(lease) = mastership.expect("it lives").clone() else { unreachable!() };
        assert_eq!(known(&peer).first().map(String::as_str), Some("first"));
        peer.propose(&lease, vec![said(format!("round {round}"))]).await.expect("it is master");
        numbers.push(lease.term());
        drop(peer);
    }
    assert!(numbers.is_sorted_by(|one, next| one < next), "{numbers:?}");
    let peer = start(settings()).await.expect("it starts");
    assert_eq!(peer.add("b", "127.0.0.1:1").await, Err(ChangeError::Lone { name: "alone".into() }));
    until("it has read its log", || known(&peer) == ["first", "round 0", "round 1", "round 2"]).await;
}

#[tokio::test]
async fn a_master_that_leaves_hands_over() {
    let mut world = World::new(&["a", "b", "c"]).await;
    world.bootstrap().await;
    let (first, lease) = world.master().await;
    world.propose(said("one")).await;
    let leaving = world.peer(&first).clone();
    leaving.shutdown().await;
    assert!(!lease.holds(world.now()));
    assert!(matches!(*leaving.mastership().borrow(), Mastership::Unknown));
    assert_eq!(leaving.propose(&lease, vec![said("late")]).await, Err(ProposeError::Deposed));
    world.kill(&first);
    let (second, _) = world.master().await;
    assert_ne!(first, second);
    assert_eq!(known(world.peer(&second)), ["one"]);
}

#[tokio::test]
async fn mastership_moves_to_the_peer_that_is_named_and_back() {
    let mut world = World::new(&["a", "b", "c"]).await;
    world.bootstrap().await;
    let (first, lease) = world.master().await;
    let others: Vec<String> = world.names.iter().filter(|name| **name != first).cloned().collect();
    let second = others[0].as_str();
    world.propose(said("one")).await;
    assert_eq!(world.peer(&first).transfer(Some(second)).await.map(|moved| moved.master.name).as_deref(), Ok(second));
    assert!(!lease.holds(world.now()));
    assert_eq!(world.peer(&first).propose(&lease, vec![said("late")]).await, Err(ProposeError::Deposed));
    let (master, successor) = world.master().await;
    assert!(master == second && successor.term() > lease.term());
    assert_eq!(known(world.peer(second)), ["one"]);
    world.propose(said("two")).await;
    let (not_master, master) = (world.peer(&first).transfer(None).await, Some(second.to_owned()));
    assert_eq!(not_master, Err(ChangeError::NotMaster { master }));
    let back = world.peer(second).transfer(Some(&first)).await.map(|moved| moved.master.name);
    assert_eq!(back.as_ref(), Ok(&first), "it may be master again");
    assert_eq!(world.master().await.0, first);
    let chosen = world.peer(&first).transfer(None).await.expect("there are others");
    assert_ne!(chosen.master.name, first);
    until("all know", || world.running().all(|(_, peer)| known(peer) == ["one", "two"])).await;
    let (last, _) = world.master().await;
    let named = world.peer(&last).transfer(Some(&last)).await;
    assert_eq!(named, Err(ChangeError::IsMasterAlready { name: last.clone() }));
    let stranger = world.peer(&last).transfer(Some("x")).await;
    assert_eq!(stranger, Err(ChangeError::Unknown { name: "x".into(), known: "a, b, c".into() }));
}

#[tokio::test]
async fn mastership_stays_where_the_peer_that_is_named_is_away() {
    let mut world = World::new(&["a", "b", "c"]).await;
    world.bootstrap().await;
    let (first, _) = world.master().await;
    let away = world.names.iter().find(|name| **name != first).cloned().expect("there are others");
    until("it is known", || world.peer(&first).peers().iter().any(|peer| peer.name == away)).await;
    world.isolate(&away, true);
    let silent = ChangeError::Silent { name: away.clone() };
    let mut said = world.peer(&first).transfer(Some(&away)).await;
    // Until it counts as away it is waited for, and mastership stays.
    while said != Err(silent.clone()) {
        assert!(matches!(said, Err(ChangeError::Behind { .. } | ChangeError::NotTaken { .. })), "{said:?}");
        said = world.peer(&first).transfer(Some(&away)).await;
    }
    let (master, _) = world.master().await;
    assert_eq!(master, first);
}
