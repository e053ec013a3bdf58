//! What peers remember of pools.

use std::{
    thread,
    time::{Duration, Instant},
};

use leaseway_proto::pools::{
    Assigned, GetClientCapacityRequest, Holder, SetClientCapacityRequest, assigned::Amount, pools_client::PoolsClient,
};
use rustix::process::Signal;

use super::pools::{client, gets, json, number, rate, stands, template};
use crate::harness::{
    peers::{Peers, channel},
    process::Process,
    wait::{block_on, eventually},
};

/// What an event of `pool watch` says that a client has cost: `(priority, cost TIME + REQUESTS)`.
fn bill(watch: &Process, id: &str, why: &str) -> Option<(f64, f64)> {
    let said = watch.stdout();
    let line = said.lines().rev().find(|line| line.contains(&format!(" {id} has ")) && line.contains(why))?;
    let (_, cost) = line.split_once("cost ")?;
    let (time, rest) = cost.split_once(" + ")?;
    let (requests, _) = rest.split_once(')')?;
    Some((time.parse().unwrap(), requests.parse().unwrap()))
}

#[test]
fn balances_costs_and_the_total_outlive_a_master_that_is_killed() {
    let parameters = [("min_capacity", "10"), ("max_capacity", "80"), ("free_key", "client_id"), ("raise_tc_s", "10")];
    let mut peers = Peers::start(3, template("searches", 20.0, "PRIORITY_POOL", &parameters), &[]);
    let operator = peers.follower();
    let admin = peers.admin(operator).to_string();
    let watch = Process::start(&["pool", "watch", "searches", "--admin", &admin], &[]);
    let begins = |times: usize| {
        let begins = || watch.stdout().matches("from here on nothing is missing").count();
        eventually("it listens", || (begins() >= times).then_some(()));
    };
    begins(1);
    peers.operated(operator, &["pool", "set", "acme", "searches", "20"]);
    let endpoints = peers.endpoints();
    let (acme_client, tom) = (client(&endpoints, "acme"), client(&endpoints, "tom"));
    let acme = rate(&acme_client, "searches", 20.0);
    gets(&acme, 20.0);
    // One more fits only once the total has risen.
    let tom = rate(&tom, "searches", 10.0);
    gets(&tom, 10.0);
    for _ in 0..30 {
        acme.try_acquire(1).ok();
    }
    let shown = |peers: &Peers, at: usize| json(&peers.operated(at, &["pool", "show", "searches", "--json"]));
    // Long enough that nothing of it can have come about again when the next master is asked.
    let (before, of_tom, of_acme) = eventually("there is something to lose", || {
        let (tom, acme) = (stands(&peers, operator, "tom")?, stands(&peers, operator, "acme")?);
        let enough = number(&tom, "balance") > 12.0 && number(&acme, "time_cost") > 250.0;
        enough.then(|| (number(&shown(&peers, operator), "total"), tom, acme))
    });
    let used = number(&of_acme, "request_cost");
    assert!(before >= 30.0 && used > 0.0, "{before} {of_acme}");

    let master = peers.master();
    peers.kill(master);
    let killed = Instant::now();
    let operator = peers.follower();
    let (tom_after, acme_after) = eventually("the next master knows both", || {
        Some((stands(&peers, operator, "tom")?, stands(&peers, operator, "acme")?))
    });
    let after = number(&shown(&peers, operator), "total");
    let took = killed.elapsed().as_secs_f64();
    eprintln!("total {before} -> {after}; tom {of_tom} -> {tom_after}; acme {of_acme} -> {acme_after}; in {took:.1} s");
    assert!(after >= before * 0.98, "the total was {before} and is {after}");
    // What was decided within the last turns may be lost, and the time until the next master has begun.
    let lost = 4.0;
    assert!(number(&tom_after, "balance") >= number(&of_tom, "balance") * 15.0 / 16.0 - lost, "{tom_after}");
    assert!(number(&acme_after, "time_cost") >= number(&of_acme, "time_cost") - lost * 20.0, "{acme_after}");
    assert!(number(&acme_after, "request_cost") >= used * 15.0 / 16.0 - lost, "{acme_after}");
    begins(2);
    // Else its release names a lease that the new master does not know.
    let master = peers.master();
    eventually("all have asked the new master", || {
        (peers.status(master, &[])["resources"][0]["holders"] == 2).then_some(())
    });
    drop(acme);
    block_on(acme_client.close());
    let (time, requests) = eventually("the last bill", || bill(&watch, "acme", "released"));
    assert!(
        time >= number(&of_acme, "time_cost") - lost * 20.0 && requests >= used * 15.0 / 16.0 - lost,
        "{time} {requests}"
    );
}

#[test]
fn an_assignment_that_no_quorum_has_stored_is_not_read() {
    let peers = Peers::start(3, template("searches", 100.0, "PRIORITY_POOL", &[("min_capacity", "1")]), &[]);
    let holder = || Some(Holder { id: "acme".into(), ..Holder::default() });
    let set = move |amount: f64| SetClientCapacityRequest {
        resource_id: "searches".into(),
        holder: holder(),
        assigned: Some(Assigned { amount: Some(Amount::Capacity(amount)) }),
    };
    let master = peers.master();
    let pools = PoolsClient::new(channel(peers.admin(master)));
    eventually("it is stored", || block_on(pools.clone().set_client_capacity(set(10.0))).ok());
    let others: Vec<usize> = peers.all().filter(|peer| *peer != master).collect();
    others.iter().for_each(|peer| peers.signal(*peer, Signal::STOP));
    let (mut writer, mut reader) = (pools.clone(), pools);
    let writing = thread::spawn(move || block_on(writer.set_client_capacity(set(20.0))).is_ok());
    // Until the master knows that no quorum confirms it any more.
    let mut read = 0;
    let get = || GetClientCapacityRequest { resource_id: "searches".into(), holder: holder() };
    while let Ok(found) = block_on(reader.get_client_capacity(get())) {
        let found = found.into_inner().assigned.and_then(|assigned| assigned.amount);
        assert_eq!(found, Some(Amount::Capacity(10.0)), "20 may never be stored");
        read += 1;
        thread::sleep(Duration::from_millis(20));
    }
    others.iter().for_each(|peer| peers.signal(*peer, Signal::CONT));
    let stored = writing.join().unwrap();
    eprintln!("read {read} times while the second was under way; it was stored then: {stored}");
}
