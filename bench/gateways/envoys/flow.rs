//! Evenly spaced requests to each Envoy over a few connections, whether or not they are denied.

use std::{
    cell::RefCell,
    net::SocketAddr,
    rc::Rc,
    time::{Duration, Instant},
};

use hdrhistogram::Histogram;
use tokio::{
    task::spawn_local,
    time::{sleep, sleep_until},
};

use crate::{
    common::{error::Error, signal::Interrupt},
    gateways::{envoys::backend::Backend, pour::Poured, wire::HttpLane},
};

/// Connections to each Envoy, which share its requests.
const LANES: u32 = 4;

/// The rate at each Envoy, by phase.
pub(crate) struct Flow {
    pub(crate) phases: Vec<Vec<f64>>,
    pub(crate) phase: Duration,
}

/// Runs all phases, and `event` in parallel.
pub(crate) async fn pour_over(
    envoys: &[SocketAddr],
    flow: &Flow,
    backend: &Backend,
    event: impl Future<Output = Result<(), Error>>,
    interrupt: &Interrupt,
) -> Result<Poured, Error> {
    let latency_us = Histogram::new_with_bounds(1, 60_000_000, 3).expect("the bounds are constants in order");
    let poured = Rc::new(RefCell::new(Poured { passed_ms: Vec::new(), latency_us, failed: 0 }));
    let began = Instant::now();
    for (nth, envoy) in envoys.iter().enumerate() {
        for lane in 0..LANES {
            let open = HttpLane::open(*envoy).await;
            let http = open.map_err(|reason| Error::Unreachable { target: *envoy, reason })?;
            let rates: Vec<f64> = flow.phases.iter().map(|rates| rates[nth] / f64::from(LANES)).collect();
            let offset = f64::from(lane) / f64::from(LANES);
            spawn_local(ask(http, rates, flow.phase, offset, began, Rc::clone(&poured)));
        }
    }
    let end = flow.phase * flow.phases.len() as u32;
    let pouring = async {
        while began.elapsed() < end {
            interrupt.check()?;
            sleep(Duration::from_millis(50)).await;
        }
        Ok(())
    };
    tokio::try_join!(pouring, event)?;
    let poured = poured.borrow();
    Ok(Poured { passed_ms: backend.came(began), latency_us: poured.latency_us.clone(), failed: poured.failed })
}

/// The requests of one connection. A late request is sent at once.
async fn ask(
    mut http: HttpLane,
    rates: Vec<f64>,
    phase: Duration,
    offset: f64,
    began: Instant,
    poured: Rc<RefCell<Poured>>,
) {
    for (nth, rate) in rates.iter().enumerate() {
        let start = began + phase * nth as u32;
        let all = (rate * phase.as_secs_f64()) as u32;
        for request in 0..all {
            let due = start + Duration::from_secs_f64((f64::from(request) + offset) / rate);
            sleep_until(due.into()).await;
            let sent = Instant::now();
            let status = http.status("/").await;
            let mut poured = poured.borrow_mut();
            match status {
                Ok(200) => poured.latency_us.saturating_record(sent.elapsed().as_micros() as u64),
                Ok(429) => {}
                Ok(_) => poured.failed += 1,
                Err(_) => {
                    poured.failed += u64::from(all - request);
                    return;
                }
            }
        }
    }
}
