//! An open loop on several gateways, and when requests passed.

use std::{
    cell::RefCell,
    rc::Rc,
    time::{Duration, Instant},
};

use hdrhistogram::Histogram;
use tokio::{
    task::spawn_local,
    time::{MissedTickBehavior, interval},
};

use crate::{
    common::{error::Error, signal::Interrupt},
    gateways::{Served, wire::Line},
};

/// The granularity of traffic.
const TICK: Duration = Duration::from_millis(2);

/// The requests that passed at any gateway, and the latency of answers.
pub(crate) struct Poured {
    /// Milliseconds since the beginning, in order.
    pub(crate) passed_ms: Vec<u32>,
    pub(crate) latency_us: Histogram<u64>,
    pub(crate) failed: u64,
}

struct Basin {
    began: Instant,
    poured: RefCell<Poured>,
}

/// `phases` are the rates at each gateway. All requests have the same descriptor.
pub(crate) async fn pour(
    gateways: &[Served],
    phases: &[Vec<f64>],
    phase: Duration,
    interrupt: &Interrupt,
) -> Result<Poured, Error> {
    let mut lines = Vec::new();
    for served in gateways {
        let line = Line::open(*served).await;
        lines.push(line.map_err(|reason| Error::Unreachable { target: served.address, reason })?);
    }
    let latency_us = Histogram::new_with_bounds(1, 60_000_000, 3).expect("the bounds are constants in order");
    let poured = RefCell::new(Poured { passed_ms: Vec::new(), latency_us, failed: 0 });
    let basin = Rc::new(Basin { began: Instant::now(), poured });
    let mut ticks = interval(TICK);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Burst);
    for (nth, rates) in phases.iter().enumerate() {
        let start = phase * nth as u32;
        let mut sent = vec![0_u64; lines.len()];
        loop {
            ticks.tick().await;
            interrupt.check()?;
            let elapsed = basin.began.elapsed().saturating_sub(start);
            for ((line, rate), sent) in lines.iter().zip(rates).zip(&mut sent) {
                let due = (elapsed.min(phase).as_secs_f64() * rate) as u64;
                for _ in *sent..due {
                    ask(line, &basin);
                }
                *sent = due;
            }
            if elapsed >= phase {
                break;
            }
        }
    }
    tokio::time::sleep(Duration::from_millis(500)).await;
    let mut poured = basin.poured.borrow_mut();
    poured.passed_ms.sort_unstable();
    Ok(Poured {
        passed_ms: std::mem::take(&mut poured.passed_ms),
        latency_us: poured.latency_us.clone(),
        failed: poured.failed,
    })
}

fn ask(line: &Line, basin: &Rc<Basin>) {
    let Some(mut asker) = line.asker() else { return };
    let basin = Rc::clone(basin);
    spawn_local(async move {
        let sent = Instant::now();
        let answer = asker.passes(0).await;
        let mut poured = basin.poured.borrow_mut();
        poured.latency_us.saturating_record(sent.elapsed().as_micros() as u64);
        match answer {
            Ok(true) => poured.passed_ms.push(basin.began.elapsed().as_millis() as u32),
            Ok(false) => {}
            Err(_) => poured.failed += 1,
        }
    });
}

impl Poured {
    /// The most that passed in any second.
    pub(crate) fn most_in_a_second(&self) -> usize {
        let passed = &self.passed_ms;
        let mut first = 0;
        let windows = passed.iter().enumerate().map(|(at, end)| {
            while passed[first] + 1_000 <= *end {
                first += 1;
            }
            at + 1 - first
        });
        windows.max().unwrap_or_default()
    }

    /// The requests that passed in this span.
    pub(crate) fn passed(&self, from: Duration, to: Duration) -> usize {
        let at = |moment: Duration| self.passed_ms.partition_point(|ms| u128::from(*ms) < moment.as_millis());
        at(to) - at(from)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_worst_second_is_found_wherever_it_begins() {
        let latency_us = Histogram::new(3).unwrap();
        let poured = Poured { passed_ms: vec![0, 600, 900, 1_000, 1_599, 1_600, 5_000], latency_us, failed: 0 };
        assert_eq!(poured.most_in_a_second(), 4);
        assert_eq!(poured.passed(Duration::from_millis(900), Duration::from_millis(1_600)), 3);
    }
}
