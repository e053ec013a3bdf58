//! What clients ask for by themselves, of a real server: as much as is offered, not more.

use std::{
    thread,
    time::{Duration, Instant},
};

use leaseway_client::{Client, Rate};
use tokio::time::MissedTickBehavior;

use crate::harness::{
    config::{ConfigFile, Template},
    server::Server,
    wait::{eventually, runtime},
};

/// Leases are refreshed so often, in seconds.
const REFRESH: u64 = 5;

fn client_of(server: &Server, id: &str) -> Client {
    let _inside = runtime().enter();
    Client::builder().endpoint(server.grpc().to_string()).id(id).build().unwrap()
}

/// An open loop: each caller comes at its time, regardless of those before.
fn offer(rate: &Rate, per_second: f64) {
    let rate = rate.clone();
    runtime().spawn(async move {
        let mut times = tokio::time::interval(Duration::from_secs_f64(1.0 / per_second));
        times.set_missed_tick_behavior(MissedTickBehavior::Burst);
        loop {
            times.tick().await;
            let rate = rate.clone();
            tokio::spawn(async move { rate.wait().await });
        }
    });
}

/// Workers that come again when they have done what they came for.
fn work(rate: &Rate, workers: u32, service: Duration) {
    for _ in 0..workers {
        let rate = rate.clone();
        runtime().spawn(async move {
            while rate.wait().await.is_ok() {
                tokio::time::sleep(service).await;
            }
        });
    }
}

/// What the server says that this client wants.
fn wants(server: &Server, resource: &str, client: &str) -> Option<f64> {
    let status = server.status(&[resource]);
    let holders = status["resources"][0]["holder"].as_array()?.clone();
    holders.iter().find(|holder| holder["id"] == client)?["wants"].as_f64()
}

#[test]
fn after_one_refresh_as_much_is_wanted_as_is_offered() {
    let file = ConfigFile::of(&[Template { lease: 60, refresh: REFRESH, ..Template::fair("*", 1e6) }]);
    let server = Server::with_config(&file);
    let offered: Vec<(String, f64)> = [0.5, 5.0, 50.0, 500.0, 5_000.0]
        .into_iter()
        .flat_map(|rate| [(format!("open {rate}"), rate), (format!("closed {rate}"), rate)])
        .collect();
    let begun = Instant::now();
    let open: Vec<(Client, Rate)> = offered
        .iter()
        .map(|(name, per_second)| {
            let client = client_of(&server, name);
            let rate = client.resource(name.as_str()).rate().unwrap();
            if name.starts_with("open") {
                offer(&rate, *per_second);
            } else {
                // Timers are a millisecond late: what one worker does in two is done by ten in twenty.
                let workers = if *per_second > 50.0 { (per_second / 50.0) as u32 } else { 1 };
                work(&rate, workers, Duration::from_secs_f64(f64::from(workers) / per_second));
            }
            (client, rate)
        })
        .collect();
    let all =
        || offered.iter().map(|(name, per_second)| (name, wants(&server, name, name).unwrap_or(0.0) / per_second));
    let show = || all().map(|(name, part)| format!("{name}: {part:.2}")).collect::<Vec<_>>().join("  ");
    for second in [1, 2, 4] {
        thread::sleep(Duration::from_secs(second).saturating_sub(begun.elapsed()));
        eprintln!("{second} s  {}", show());
    }
    // Those who wait at the moment of a refresh are wanted besides: not each moment has to do.
    for (name, per_second) in &offered {
        eventually("as much is wanted as is offered, a fifth more or less", || {
            begun.elapsed().checked_sub(Duration::from_secs(REFRESH))?;
            let part = wants(&server, name, name)? / per_second;
            (0.8..=1.2).contains(&part).then_some(())
        });
        eprintln!("{:.1} s  {name} is within a fifth", begun.elapsed().as_secs_f64());
    }
    eprintln!("{:.1} s  {}", begun.elapsed().as_secs_f64(), show());
    drop(open);
}

#[test]
fn what_a_new_client_does_not_need_is_used_by_others() {
    let file = ConfigFile::of(&[Template { lease: 60, refresh: 16, ..Template::fair("*", 100.0) }]);
    let server = Server::with_config(&file);
    let greedy = client_of(&server, "greedy");
    let has = greedy.resource("r").wants(1_000.0).open().unwrap();
    eventually("one has it all", || (has.capacity().get() == 100.0).then_some(()));
    let newcomer = client_of(&server, "newcomer");
    let rate = newcomer.resource("r").rate().unwrap();
    offer(&rate, 5.0);
    let (begun, mut used, mut last) = (Instant::now(), 0.0, 0.0);
    while begun.elapsed() < Duration::from_secs(16) {
        thread::sleep(Duration::from_millis(20));
        let now = begun.elapsed().as_secs_f64();
        used += (has.capacity().get() + rate.resource().capacity().get().min(5.0)) * (now - last);
        last = now;
    }
    let utilisation = used / last / 100.0;
    eprintln!("utilisation over the first {last:.1} s: {:.1} %", utilisation * 100.0);
    assert!(utilisation > 0.9, "{utilisation}");
}
