//! Leadership transfers whose messages arrive late.

use std::time::Duration;

use crate::{
    tests::{
        cluster::{Cluster, set_text, until},
        delays::hold_next,
        lease_watcher::LeaseWatcher,
    },
    transport::Method,
};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_request_to_take_over_that_arrives_in_a_later_term_makes_no_second_master() {
    let mut cluster = Cluster::new(&["a", "b", "c"]).await;
    let (watcher, watching) = LeaseWatcher::start(&cluster);
    cluster.bootstrap().await;
    cluster.running().for_each(|(_, peer)| watcher.watch(peer));
    cluster.propose(set_text("one")).await;
    let (master, lease) = cluster.master().await;
    let others: Vec<String> = cluster.names.iter().filter(|name| **name != master).cloned().collect();
    let [next, third] = others.as_slice() else { panic!("there are three") };
    let held = hold_next(&cluster.address(&master, next), Some(Method::Stand));
    let peer = cluster.peer(&master).clone();
    let transfer = {
        let next = next.clone();
        tokio::spawn(async move { peer.transfer(Some(&next)).await })
    };
    held.caught().await;
    let _ = transfer.await.expect("nothing panics");
    until("there is a later lease", || cluster.masters().iter().any(|(_, later)| later.term() > lease.term())).await;
    // The master is confirmed by the peer that the message is on its way to, and loses the third one.
    let (again, _) = cluster.master().await;
    cluster.cut(&again, if again == *third { next } else { third }, true);
    tokio::time::sleep(Duration::from_millis(600)).await;
    held.deliver().await;
    cluster.isolate(&again, true);
    tokio::time::sleep(Duration::from_millis(600)).await;
    cluster.isolate(&again, false);
    cluster.propose(set_text("two")).await;
    watcher.stop(watching);
}
