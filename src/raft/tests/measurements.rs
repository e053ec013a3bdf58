//! Measurements without assertions: `cargo test --release -p leaseway-raft measure -- --ignored --nocapture`.

#![allow(clippy::print_stdout)] // the figures are the output

use std::time::{Duration, Instant};

use crate::{
    log::command::Command,
    settings::timing::Timing,
    tests::cluster::{Cluster, assigned},
};

fn command(number: usize) -> Command {
    assigned(&number.to_string(), 1.0)
}

fn quantiles(mut of: Vec<Duration>) -> String {
    of.sort_unstable();
    let at = |part: f64| of[((of.len() - 1) as f64 * part) as usize];
    format!("p50 {:?}, p90 {:?}, max {:?}", at(0.5), at(0.9), at(1.0))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "measures, and asserts nothing"]
async fn measure_the_time_without_a_master() {
    for leaves in [false, true] {
        let mut cluster = Cluster::with(&["a", "b", "c"], Timing::ONE_SITE).await;
        cluster.bootstrap().await;
        let mut took = Vec::new();
        for _ in 0..30 {
            let (name, lease) = cluster.master().await;
            tokio::time::sleep(Duration::from_millis(700)).await;
            let peer = cluster.peer(&name).clone();
            let began = Instant::now();
            let leaving = leaves.then(|| tokio::spawn(async move { peer.shutdown().await }));
            if !leaves {
                cluster.kill(&name);
            }
            while !cluster.masters().iter().any(|(_, next)| next.term() > lease.term()) {
                tokio::time::sleep(Duration::from_millis(1)).await;
            }
            took.push(began.elapsed());
            if let Some(leaving) = leaving {
                leaving.await.expect("it leaves");
                cluster.kill(&name);
            }
            cluster.start(&name).await;
        }
        println!("{}: {}", if leaves { "the master leaves" } else { "the master dies" }, quantiles(took));
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "measures, and asserts nothing"]
async fn measure_proposals() {
    for names in [&["a"][..], &["a", "b", "c"]] {
        let mut cluster = Cluster::with(names, Timing::SEVERAL_SITES).await;
        cluster.bootstrap().await;
        let (name, lease) = cluster.master().await;
        let peer = cluster.peer(&name).clone();
        let mut one_by_one = Vec::new();
        for number in 0..300 {
            let began = Instant::now();
            peer.propose(&lease, vec![command(number)]).await.expect("it is master");
            one_by_one.push(began.elapsed());
        }
        println!("{} peers, one at a time: {}", names.len(), quantiles(one_by_one));
        let began = Instant::now();
        let callers: Vec<_> = (0..200)
            .map(|caller| {
                let (peer, lease) = (peer.clone(), lease.clone());
                tokio::spawn(async move {
                    for number in 0..50 {
                        peer.propose(&lease, vec![command(caller * 50 + number)]).await.expect("it is master");
                    }
                })
            })
            .collect();
        for caller in callers {
            caller.await.expect("it is done");
        }
        let took = began.elapsed();
        println!("{} peers, 10,000 proposals by 200 callers: {took:?}, {:.0}/s", names.len(), 1e4 / took.as_secs_f64());
    }
}
