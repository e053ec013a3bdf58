//! Whole units rotate.

use std::{
    thread,
    time::{Duration, Instant},
};

use leaseway_client::Gauge;

use super::pools::{client, template};
use crate::harness::{
    server::Server,
    wait::{block_on, eventually, runtime},
};

/// Who has a unit at the moment, and since how many turns.
#[derive(Default)]
struct Turns {
    has: bool,
    turns: u32,
    held: Duration,
}

#[test]
fn three_units_go_round_among_ten_clients() {
    let rotation = [("whole_units", "true"), ("rotation_period", "3")];
    let server = Server::with_config(&template("slots", 3.0, "FAIR_SHARE", &rotation));
    let endpoints = [server.grpc().to_string()];
    let clients: Vec<_> = (0..10).map(|number| client(&endpoints, &format!("c{number}"))).collect();
    let gauges: Vec<Gauge> = {
        let _inside = runtime().enter();
        clients.iter().map(|client| client.resource("slots").wants(1.0).gauge().unwrap()).collect()
    };
    eventually("all are there", || (server.status(&[])["resources"][0]["subclients"] == 10).then_some(()));
    let has = |number: usize| gauges[number].resource().capacity().get();
    let mut turns: Vec<Turns> = (0..10).map(|number| Turns { has: has(number) == 1.0, ..Turns::default() }).collect();
    // Who came first had a unit for being alone: the first whole round is not counted, the ten after it are, however
    // long they take.
    let (mut began, mut looked, mut counts) = (Instant::now(), Instant::now(), false);
    loop {
        match turns.iter().map(|turns| turns.turns).sum::<u32>() {
            3.. if !counts => {
                counts = true;
                began = Instant::now();
                turns.iter_mut().for_each(|turn| (turn.turns, turn.held) = (0, Duration::ZERO));
            }
            30.. if counts => break,
            _ => {}
        }
        thread::sleep(Duration::from_millis(5));
        assert!(began.elapsed() < Duration::from_secs(120), "the units do not go round");
        let passed = std::mem::replace(&mut looked, Instant::now()).elapsed();
        for (number, turn) in turns.iter_mut().enumerate() {
            let has = has(number);
            assert!(has == 0.0 || has == 1.0, "c{number} has {has}");
            turn.turns += u32::from(has == 1.0 && !turn.has);
            turn.has = has == 1.0;
            turn.held += if turn.has { passed } else { Duration::ZERO };
        }
        let held = server.status(&["slots"])["resources"][0]["held"].as_f64().unwrap();
        assert!(held <= 3.0, "{held} are out");
    }
    let all: Vec<u32> = turns.iter().map(|turns| turns.turns).collect();
    assert!(all.iter().all(|turns| (2..=4).contains(turns)), "three of ten rounds each: {all:?}");
    let held: Duration = turns.iter().map(|turns| turns.held).sum();
    let utilisation = held.as_secs_f64() / began.elapsed().as_secs_f64() / 3.0;
    eprintln!("turns of each: {all:?}; {:.1} % of the units' time was used", utilisation * 100.0);
    for client in clients {
        block_on(client.close());
    }
}
