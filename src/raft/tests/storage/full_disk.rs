//! A full disk, simulated by the kernel's limit of file sizes in a process of its own.

use std::process;

use crate::{
    handle::start,
    log::command::{Command, ProposeError},
    settings::Settings,
    tests::harness::cluster::{Cluster, assigned, lone_master, until},
};

const DATA: &str = "LEASEWAY_RAFT_TEST_DATA";

fn command(number: usize) -> Command {
    assigned(&format!("{number}-{}", "x".repeat(4000)), 1.0)
}

#[tokio::test]
async fn a_full_disk_ends_mastership_and_keeps_acknowledged_commands() {
    let cluster = Cluster::new(&[]).await;
    let data = cluster.data("alone");
    // Writing beyond the limit raises a signal that kills. If it is ignored, the write fails.
    let child = process::Command::new("sh")
        .args([
            "-c",
            "trap '' XFSZ; ulimit -f 400; exec \"$0\" --exact tests::storage::full_disk::child --ignored --nocapture",
        ])
        .arg(std::env::current_exe().expect("the path of this test"))
        .env(DATA, &data)
        .output()
        .expect("there is a shell");
    let output = String::from_utf8_lossy(&child.stdout).into_owned();
    assert!(child.status.success(), "{output}{}", String::from_utf8_lossy(&child.stderr));
    let acknowledged: usize = output
        .lines()
        .find_map(|line| line.split("acknowledged ").nth(1))
        .and_then(|count| count.trim().parse().ok())
        .expect("the child prints the count");
    assert!(acknowledged > 10);

    let peer = start(Settings::new("alone", data, cluster.clock())).await.expect("the disk has space again");
    let mut kept = Vec::new();
    lone_master(&peer).await;
    peer.read(|state| kept.extend(state.assignments("r").map(|(_, client, _)| client.to_string())));
    for number in 0..acknowledged {
        assert!(kept.iter().any(|client| client.starts_with(&format!("{number}-"))), "{number} is lost");
    }
}

#[tokio::test]
#[allow(clippy::print_stdout)] // read by the parent process
#[ignore = "run by the test above, with a limit of file sizes"]
async fn child() {
    let cluster = Cluster::new(&[]).await;
    let data = std::env::var_os(DATA).expect("run by the test above");
    let settings = Settings { bootstrap: true, ..Settings::new("alone", data, cluster.clock()) };
    let peer = start(settings).await.expect("it starts");
    let lease = lone_master(&peer).await;
    let mut acknowledged = 0;
    let error = loop {
        match peer.propose(&lease, vec![command(acknowledged)]).await {
            Ok(()) => acknowledged += 1,
            Err(error) => break error,
        }
    };
    assert_eq!(error, ProposeError::Uncertain);
    until("it reports the failure", || peer.failure().borrow().is_some()).await;
    until("the lease is over", || !lease.holds(cluster.now())).await;
    assert_eq!(peer.propose(&lease, vec![command(0)]).await, Err(ProposeError::Deposed));
    let failure = peer.failure().borrow().clone().expect("it has failed");
    assert!(failure.to_string().contains("cannot append to"), "{failure}");
    println!("acknowledged {acknowledged}");
}
