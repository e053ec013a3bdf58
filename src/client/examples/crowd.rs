//! One of many processes that share a rate, with a varying number of waiting callers. Start a server first.
//!
//! `crowd SERVERS RESOURCE SECONDS [WINDOW]`
//!
//! Its burst is WINDOW seconds of capacity, or the smooth default. At the end it prints a line `lease` for each change
//! of leased capacity, with the time on the machine's monotonic clock; a line `passed` with the number of permits for
//! each second of that clock; and `end`.
#![allow(clippy::print_stdout, reason = "an example shows what it does")]

use std::{collections::BTreeMap, env, error::Error, time::Duration};

use leaseway_client::{Client, LeaseTrace, limiter::Burst};
use rustix::time::{ClockId, clock_gettime};
use tokio::time::{Instant, sleep, timeout_at};

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let usage = "crowd SERVERS RESOURCE SECONDS [WINDOW]";
    let mut arguments = env::args().skip(1);
    let servers = arguments.next().ok_or(usage)?;
    let resource = arguments.next().ok_or(usage)?;
    let until = Instant::now() + Duration::from_secs_f64(arguments.next().ok_or(usage)?.parse()?);
    let burst = match arguments.next() {
        Some(window) => Burst::Window(Duration::from_secs_f64(window.parse()?)),
        None => Burst::Smooth,
    };

    let (begun, clock) = (Instant::now(), clock_gettime(ClockId::Monotonic));
    let at = |at: Instant| clock.tv_sec as f64 + clock.tv_nsec as f64 / 1e9 + (at - begun).as_secs_f64();
    let trace = LeaseTrace::new();
    let client = Client::builder().endpoints(servers.split(',')).lease_trace(&trace).build()?;
    let rate = client.resource(resource.as_str()).burst(burst).rate()?;
    let mut passed = BTreeMap::new();
    while Instant::now() < until {
        // A period of high demand, and a shorter idle period.
        let hungry = until.min(Instant::now() + Duration::from_secs_f64(2.0 + 4.0 * fastrand::f64()));
        while let Ok(waited) = timeout_at(hungry, rate.wait()).await {
            waited?;
            *passed.entry(at(Instant::now()) as u64).or_insert(0) += 1;
        }
        sleep(Duration::from_secs_f64(fastrand::f64())).await;
    }
    client.close().await;
    for entry in trace.take() {
        println!("lease {} {}", at(entry.at), entry.capacity);
    }
    for (second, count) in passed {
        println!("passed {second} {count}");
    }
    println!("end");
    Ok(())
}
