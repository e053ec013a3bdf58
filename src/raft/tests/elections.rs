//! Elections, transfers, and the state of a new master.

use crate::{
    election::master_lease::Mastership,
    handle::{peer::StateOrigin, start},
    log::command::ProposeError,
    membership::change_error::ChangeError,
    settings::Settings,
    tests::cluster::{Cluster, configuration, set_text, texts, until},
};

#[tokio::test]
async fn three_peers_elect_a_master_that_replicates_and_is_succeeded_by_one_that_knows_everything() {
    let mut cluster = Cluster::new(&["a", "b", "c"]).await;
    cluster.bootstrap().await;
    let (first, lease) = cluster.master().await;
    for text in ["one", "two", "three"] {
        cluster.peer(&first).propose(&lease, vec![set_text(text)]).await.expect("it is master");
    }
    until("all know", || cluster.running().all(|(_, peer)| texts(peer) == ["one", "two", "three"])).await;
    cluster.kill(&first);
    until("the lease is over", || !lease.holds(cluster.now())).await;
    let (second, successor) = cluster.master().await;
    assert_ne!(first, second);
    assert!(successor.term() > lease.term());
    assert_eq!(texts(cluster.peer(&second)), ["one", "two", "three"], "before it decides anything");
    cluster.start(&first).await;
    until("the first is back", || texts(cluster.peer(&first)) == ["one", "two", "three"]).await;
    assert_eq!(cluster.peer(&first).origin(), StateOrigin::Resumed);
}

#[tokio::test]
async fn a_lone_peer_is_master_at_once_and_remembers() {
    let cluster = Cluster::new(&[]).await;
    let settings = || Settings {
        first_configuration: Some(configuration("first")),
        ..Settings::new("alone", cluster.data("alone"), cluster.clock())
    };
    let mut numbers = Vec::new();
    for round in 0..3 {
        let peer = start(Settings { bootstrap: round == 0, ..settings() }).await.expect("it starts");
        assert_eq!(peer.origin(), if round == 0 { StateOrigin::Bootstrapped } else { StateOrigin::Resumed });
        let mut mastership = peer.mastership();
        let mastership = mastership.wait_for(|mastership| matches!(mastership, Mastership::Master(_))).await;
        let Mastership::Master(lease) = mastership.expect("it lives").clone() else { unreachable!() };
        assert_eq!(texts(&peer).first().map(String::as_str), Some("first"));
        peer.propose(&lease, vec![set_text(format!("round {round}"))]).await.expect("it is master");
        numbers.push(lease.term());
        drop(peer);
    }
    assert!(numbers.is_sorted_by(|one, next| one < next), "{numbers:?}");
    let peer = start(settings()).await.expect("it starts");
    assert_eq!(peer.add("b", "127.0.0.1:1").await, Err(ChangeError::Lone { name: "alone".into() }));
    until("it has read its log", || texts(&peer) == ["first", "round 0", "round 1", "round 2"]).await;
}

#[tokio::test]
async fn a_master_that_leaves_hands_over() {
    let mut cluster = Cluster::new(&["a", "b", "c"]).await;
    cluster.bootstrap().await;
    let (first, lease) = cluster.master().await;
    cluster.propose(set_text("one")).await;
    let leaving = cluster.peer(&first).clone();
    leaving.shutdown().await;
    assert!(!lease.holds(cluster.now()));
    assert!(matches!(*leaving.mastership().borrow(), Mastership::Unknown));
    assert_eq!(leaving.propose(&lease, vec![set_text("late")]).await, Err(ProposeError::Deposed));
    cluster.kill(&first);
    let (second, _) = cluster.master().await;
    assert_ne!(first, second);
    assert_eq!(texts(cluster.peer(&second)), ["one"]);
}

#[tokio::test]
async fn mastership_moves_to_the_peer_that_is_named_and_back() {
    let mut cluster = Cluster::new(&["a", "b", "c"]).await;
    cluster.bootstrap().await;
    let (first, lease) = cluster.master().await;
    let others: Vec<String> = cluster.names.iter().filter(|name| **name != first).cloned().collect();
    let second = others[0].as_str();
    cluster.propose(set_text("one")).await;
    assert_eq!(cluster.peer(&first).transfer(Some(second)).await.map(|moved| moved.master.name).as_deref(), Ok(second));
    assert!(!lease.holds(cluster.now()));
    assert_eq!(cluster.peer(&first).propose(&lease, vec![set_text("late")]).await, Err(ProposeError::Deposed));
    let (master, successor) = cluster.master().await;
    assert!(master == second && successor.term() > lease.term());
    assert_eq!(texts(cluster.peer(second)), ["one"]);
    cluster.propose(set_text("two")).await;
    let (not_master, master) = (cluster.peer(&first).transfer(None).await, Some(second.to_owned()));
    assert_eq!(not_master, Err(ChangeError::NotMaster { master }));
    let back = cluster.peer(second).transfer(Some(&first)).await.map(|moved| moved.master.name);
    assert_eq!(back.as_ref(), Ok(&first), "it may be master again");
    assert_eq!(cluster.master().await.0, first);
    let chosen = cluster.peer(&first).transfer(None).await.expect("there are others");
    assert_ne!(chosen.master.name, first);
    until("all know", || cluster.running().all(|(_, peer)| texts(peer) == ["one", "two"])).await;
    let (last, _) = cluster.master().await;
    let named = cluster.peer(&last).transfer(Some(&last)).await;
    assert_eq!(named, Err(ChangeError::IsMasterAlready { name: last.clone() }));
    let stranger = cluster.peer(&last).transfer(Some("x")).await;
    assert_eq!(stranger, Err(ChangeError::Unknown { name: "x".into(), known: "a, b, c".into() }));
}

#[tokio::test]
async fn mastership_stays_where_the_peer_that_is_named_is_away() {
    let mut cluster = Cluster::new(&["a", "b", "c"]).await;
    cluster.bootstrap().await;
    let (first, _) = cluster.master().await;
    let away = cluster.names.iter().find(|name| **name != first).cloned().expect("there are others");
    until("it is known", || cluster.peer(&first).peers().iter().any(|peer| peer.name == away)).await;
    cluster.isolate(&away, true);
    let silent = ChangeError::Silent { name: away.clone() };
    let mut said = cluster.peer(&first).transfer(Some(&away)).await;
    // Until the peer counts as silent, the transfer waits for it and fails.
    while said != Err(silent.clone()) {
        assert!(matches!(said, Err(ChangeError::Behind { .. } | ChangeError::NotTaken { .. })), "{said:?}");
        said = cluster.peer(&first).transfer(Some(&away)).await;
    }
    let (master, _) = cluster.master().await;
    assert_eq!(master, first);
}
