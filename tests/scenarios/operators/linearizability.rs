//! Linearizable reads of pool assignments.

use std::{thread, time::Duration};

use leaseway_proto::pools::{
    Assigned, GetClientCapacityRequest, Holder, SetClientCapacityRequest, assigned::Amount, pools_client::PoolsClient,
};
use rustix::process::Signal;

use super::pools::template;
use crate::harness::{
    peers::{Peers, channel},
    wait::{block_on, eventually},
};

#[test]
fn an_assignment_is_not_read_before_a_quorum_stores_it() {
    let peers = Peers::start(3, template("searches", 100.0, "PRIORITY_POOL", &[("min_capacity", "1")]), &[]);
    let holder = || Some(Holder { id: "acme".into(), ..Holder::default() });
    let set = move |amount: f64| SetClientCapacityRequest {
        resource_id: "searches".into(),
        holder: holder(),
        assigned: Some(Assigned { amount: Some(Amount::Capacity(amount)) }),
    };
    let master = peers.master();
    let pools = PoolsClient::new(channel(peers.admin(master)));
    eventually("the first assignment is stored", || block_on(pools.clone().set_client_capacity(set(10.0))).ok());
    let others: Vec<usize> = peers.all().filter(|peer| *peer != master).collect();
    others.iter().for_each(|peer| peers.signal(*peer, Signal::STOP));
    let (mut writer, mut reader) = (pools.clone(), pools);
    let writing = thread::spawn(move || block_on(writer.set_client_capacity(set(20.0))).is_ok());
    // Reads succeed until the master notices that it has no quorum.
    let mut read = 0;
    let get = || GetClientCapacityRequest { resource_id: "searches".into(), holder: holder() };
    while let Ok(found) = block_on(reader.get_client_capacity(get())) {
        let found = found.into_inner().assigned.and_then(|assigned| assigned.amount);
        assert_eq!(found, Some(Amount::Capacity(10.0)), "20 is not stored, and may never be");
        read += 1;
        thread::sleep(Duration::from_millis(20));
    }
    others.iter().for_each(|peer| peers.signal(*peer, Signal::CONT));
    let stored = writing.join().unwrap();
    eprintln!("{read} reads before the second assignment; stored later: {stored}");
}
