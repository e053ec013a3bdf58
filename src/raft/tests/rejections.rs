//! Rejected messages and their answers.

use leaseway_proto::peer::{PeerInfo, PeerRequest};
use tonic::Code;

use crate::{
    election::vote::StandRequest,
    handle::{open::StartError, start},
    log::{
        LogId, Vote,
        codec::{self, FORMAT},
    },
    settings::{Settings, timing::Timing},
    tests::harness::{
        cluster::{Cluster, SECRET},
        log_id,
        requests::{ask, ask_for_vote, identity, peer_info},
    },
    transport::Method,
};

#[tokio::test]
async fn messages_of_other_clusters_formats_and_secrets_are_rejected_with_the_reason() {
    let cluster = Cluster::three().await;
    cluster.master().await;
    let good = peer_info(&cluster, "b", identity(&cluster, "b").peer);
    let me = identity(&cluster, "a").peer;
    let format = format!("format {FORMAT}");
    type Tamper = fn(&mut PeerInfo);
    let cases: [(Tamper, &str); 5] = [
        (|other| other.format += 1, &format),
        (|other| other.cluster[0] ^= 1, "another cluster"),
        (|other| other.cluster.clear(), "no cluster"),
        (|other| other.election_timeout_ms = 401, "401"),
        (|other| other.name = "a".into(), "\"a\""),
    ];
    let vote = || openraft::raft::VoteRequest::new(Vote::new(0, 1), None);
    for (change, says) in cases {
        let mut other = good.clone();
        change(&mut other);
        let status = ask_for_vote(&cluster, "a", me, other, vote()).await.expect_err("it is rejected");
        assert_eq!(status.code(), Code::FailedPrecondition, "{status}");
        assert!(status.message().contains(says), "{status}");
    }
    for secret in ["another", "", "of this test!"] {
        let hello = PeerRequest { from: Some(good.clone()), ..PeerRequest::default() };
        let status = ask(&cluster, "a", secret, Method::Hello, hello).await.expect_err("it is rejected");
        assert_eq!(status.code(), Code::Unauthenticated, "{status}");
        assert!(status.message().contains("secret"), "{status}");
    }
    let status = ask_for_vote(&cluster, "a", me ^ 2, good.clone(), vote()).await.expect_err("meant for another");
    assert_eq!(status.code(), Code::NotFound);
    let status = ask_for_vote(&cluster, "a", 0, good.clone(), vote()).await.expect_err("it has no addressee");
    assert_eq!(status.code(), Code::InvalidArgument);
    ask_for_vote(&cluster, "a", me, good.clone(), vote()).await.expect("it is accepted");

    // A greeting of another cluster is rejected as well. One without a cluster is accepted, because it may join.
    let hello = async |from: PeerInfo| {
        let request = PeerRequest { from: Some(from), ..PeerRequest::default() };
        ask(&cluster, "a", SECRET, Method::Hello, request).await.map(|_| ())
    };
    let elsewhere = PeerInfo { cluster: vec![1; 16], ..good.clone() };
    assert_eq!(hello(elsewhere).await.expect_err("it is rejected").code(), Code::FailedPrecondition);
    let nowhere = PeerInfo { cluster: Vec::new(), ..good };
    hello(nowhere).await.expect("it may become one of them");
}

#[tokio::test]
async fn a_master_votes_for_no_other_peer_while_its_lease_may_hold() {
    let cluster = Cluster::three().await;
    let (master, lease) = cluster.master().await;
    // Longer than any vote lease that the master may have given when it was elected.
    tokio::time::sleep(std::time::Duration::from_millis(900)).await;
    assert!(lease.holds(cluster.now()), "nothing has disturbed it");
    let other = cluster.others(&master).swap_remove(0);
    let candidate = identity(&cluster, &other).peer;
    let ahead = log_id(900, 1_000_000);
    let vote = openraft::raft::VoteRequest::new(Vote::new(1000, candidate), Some(ahead));
    let from = peer_info(&cluster, &other, candidate);
    let me = identity(&cluster, &master).peer;
    let answer = ask_for_vote(&cluster, &master, me, from.clone(), vote.clone()).await.expect("it answers");
    assert!(!answer.vote_granted);
    assert!(lease.holds(cluster.now()));
    // Its followers do not vote either.
    let follower =
        cluster.names.iter().find(|name| **name != master && **name != other).expect("there are three").clone();
    let to = identity(&cluster, &follower).peer;
    let answer = ask_for_vote(&cluster, &follower, to, from, vote).await.expect("it answers");
    assert!(!answer.vote_granted);
    assert!(lease.holds(cluster.now()));
}

#[tokio::test]
async fn a_request_to_stand_from_a_former_master_has_no_effect() {
    let cluster = Cluster::three().await;
    let (master, lease) = cluster.master().await;
    let follower = cluster.others(&master).swap_remove(0);
    let (from, to) = (identity(&cluster, &master).peer, identity(&cluster, &follower).peer);
    let now = cluster.peer(&master).raft().metrics().borrow().clone();
    let log = cluster.peer(&master).raft().data_metrics().borrow().last_log;
    let stands = async |master_vote: Vote, last: Option<LogId>| {
        let from = Some(peer_info(&cluster, &master, from));
        let request = StandRequest { master: master_vote, last };
        let request = PeerRequest { from, to, payload: codec::encode(&request), proof: None };
        let answer = ask(&cluster, &follower, SECRET, Method::Stand, request).await.expect("it answers");
        codec::decode::<bool>(&answer.payload).expect("it decodes")
    };
    for former in [Vote::new_committed(0, from), Vote::new_committed(1, to), Vote::new(1, from)] {
        assert!(!stands(former, log).await);
    }
    // The same master, in an earlier term.
    assert!(!stands(now.vote, log.map(|id| LogId::new(id.leader_id, id.index - 1))).await);
    tokio::time::sleep(std::time::Duration::from_millis(500)).await;
    assert!(lease.holds(cluster.now()), "nothing has happened");
}

#[tokio::test]
async fn invalid_settings_are_refused_with_the_reason() {
    let mut cluster = Cluster::new(&["a", "b"]).await;
    let refused =
        async |settings: Settings| start(settings).await.map(|_| ()).expect_err("the settings are invalid").to_string();
    let listen = Some("0.0.0.0:0".parse().expect("an address"));
    let open = start(Settings { listen, secret: None, ..cluster.settings("a") }).await.map(|_| ());
    assert!(matches!(open, Err(StartError::NoSecret(_))), "{open:?}");
    assert!(refused(Settings { listen: None, ..cluster.settings("a") }).await.contains("listen"));
    assert!(refused(Settings { name: "z".into(), ..cluster.settings("a") }).await.contains("a, b"));
    let twice = [cluster.settings("a").peers, cluster.settings("a").peers].concat();
    assert!(refused(Settings { peers: twice, ..cluster.settings("a") }).await.contains("two peers"));
    let taken = cluster.start("a").await.local_addr();
    assert!(refused(Settings { listen: taken, ..cluster.settings("b") }).await.contains("cannot listen"));
    assert!(
        Timing::new(5, 100, 200).is_err() && Timing::new(50, 99, 200).is_err() && Timing::new(50, 100, 120).is_err()
    );
}
