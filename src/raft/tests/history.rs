//! The message that is no part of consensus.

use super::harness::cluster::{Cluster, until};

#[tokio::test]
async fn a_follower_asks_the_master_for_its_history_and_the_master_asks_nobody() {
    let cluster = Cluster::three().await;
    let (master, _) = cluster.master().await;
    let follower = cluster.others(&master).swap_remove(0);
    until("the follower follows", || cluster.peer(&follower).gets_heartbeats()).await;
    assert_eq!(cluster.peer(&follower).ask_history(vec![1]).await, None, "the master cannot answer yet");
    for (name, peer) in cluster.running() {
        let name = name.clone();
        peer.answer_history(move |request| [name.as_bytes(), request].concat());
    }
    let answer = cluster.peer(&follower).ask_history(vec![1, 2]).await;
    assert_eq!(answer, Some([master.as_bytes(), &[1, 2]].concat()));
    assert_eq!(cluster.peer(&master).ask_history(vec![1]).await, None);
    cluster.isolate(&master, true);
    assert_eq!(cluster.peer(&follower).ask_history(vec![1]).await, None, "it is not reached");
}
