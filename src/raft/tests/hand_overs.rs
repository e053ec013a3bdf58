//! Hand-overs whose messages arrive late.

use std::time::Duration;

use crate::{
    tests::{
        delays::hold_next,
        watchman::Watchman,
        world::{World, said, until},
    },
    transport::Method,
};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_request_to_take_over_that_arrives_in_a_later_term_makes_no_second_master() {
    let mut world = World::new(&["a", "b", "c"]).await;
    let (watchman, watching) = Watchman::start(&world);
    world.bootstrap().await;
    world.running().for_each(|(_, peer)| watchman.watch(peer));
    world.propose(said("one")).await;
    let (master, lease) = world.master().await;
    let others: Vec<String> = world.names.iter().filter(|name| **name != master).cloned().collect();
    let [next, third] = others.as_slice() else { panic!("there are three") };
    let held = hold_next(&world.address(&master, next), Some(Method::Stand));
    let peer = world.peer(&master).clone();
    let transfer = {
        let next = next.clone();
        tokio::spawn(async move { peer.transfer(Some(&next)).await })
    };
    held.caught().await;
    let _ = transfer.await.expect("nothing panics");
    until("there is a later lease", || world.masters().iter().any(|(_, later)| later.term() > lease.term())).await;
    // The master keeps the confirmation of the peer that the message is on its way to, and loses the third one.
    let (again, _) = world.master().await;
    world.cut(&again, if again == *third { next } else { third }, true);
    tokio::time::sleep(Duration::from_millis(600)).await;
    held.deliver().await;
    world.isolate(&again, true);
    tokio::time::sleep(Duration::from_millis(600)).await;
    world.isolate(&again, false);
    world.propose(said("two")).await;
    watchman.leave(watching);
}
