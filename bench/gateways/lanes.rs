//! A closed loop: each lane sends a request, waits for the answer, and sends the next.

use std::{
    cell::{Cell, RefCell},
    collections::BTreeMap,
    rc::Rc,
    time::{Duration, Instant},
};

use hdrhistogram::Histogram;
use leaseway_process::usage;
use serde::Serialize;
use tokio::{
    task::{LocalSet, spawn_local},
    time::sleep,
};

use crate::{
    common::{current_thread, error::Error, signal::Interrupt},
    gateways::{
        AskArgs, Served,
        wire::{GatewayAsker, Line},
    },
    load::connection::Failure,
};

/// The result of a run.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Heard {
    pub(crate) per_second: f64,
    pub(crate) p50_us: u64,
    pub(crate) p99_us: u64,
    /// CPU time of the measured process per request.
    pub(crate) cpu_us: f64,
    pub(crate) refused: u64,
    pub(crate) errors: BTreeMap<String, u64>,
}

struct Ears {
    is_counting: Cell<bool>,
    latency_us: RefCell<Histogram<u64>>,
    refused: Cell<u64>,
    errors: RefCell<BTreeMap<String, u64>>,
    descriptors: u32,
    next: Cell<u32>,
}

impl Ears {
    fn new(descriptors: u32) -> Ears {
        let latency_us = Histogram::new_with_bounds(1, 60_000_000, 3).expect("the bounds are constants in order");
        Ears {
            is_counting: Cell::new(false),
            latency_us: RefCell::new(latency_us),
            refused: Cell::new(0),
            errors: RefCell::default(),
            descriptors,
            next: Cell::new(0),
        }
    }

    /// Visits all descriptors, in steps that are far apart in any table.
    fn descriptor(&self) -> u32 {
        let next = self.next.get();
        self.next.set((next + 1) % self.descriptors);
        next
    }

    async fn lane(self: Rc<Self>, mut asker: GatewayAsker) {
        loop {
            let descriptor = self.descriptor();
            let began = Instant::now();
            let answer = asker.passes(descriptor).await;
            let took = began.elapsed();
            if self.is_counting.get() {
                match &answer {
                    Ok(passed) => {
                        self.latency_us.borrow_mut().saturating_record(took.as_micros() as u64);
                        self.refused.set(self.refused.get() + u64::from(!passed));
                    }
                    Err(failure) => *self.errors.borrow_mut().entry(failure.kind()).or_default() += 1,
                }
            }
            if matches!(answer, Err(Failure::Connection(_))) {
                return;
            }
        }
    }
}

/// Runs the load that `args` describe.
pub(crate) fn listen(served: Served, args: &AskArgs, descriptors: u32, interrupt: &Interrupt) -> Result<Heard, Error> {
    let ears = Rc::new(Ears::new(descriptors));
    let runtime = current_thread().map_err(Error::io("start a runtime"))?;
    let cpu_time = || usage::cpu_time(served.pid).map_err(Error::process(served.pid));
    let (cpu, elapsed) = LocalSet::new().block_on(&runtime, async {
        for _ in 0..args.connections.get() {
            let line = Line::open(served).await;
            let line = line.map_err(|reason| Error::Unreachable { target: served.address, reason })?;
            for asker in (0..args.in_flight.get()).filter_map(|_| line.asker()) {
                spawn_local(Rc::clone(&ears).lane(asker));
            }
        }
        pause(args.warmup, interrupt).await?;
        let (began, before) = (Instant::now(), cpu_time()?);
        ears.is_counting.set(true);
        pause(args.seconds, interrupt).await?;
        ears.is_counting.set(false);
        Ok::<_, Error>((cpu_time()?.saturating_sub(before), began.elapsed()))
    })?;
    let latency = ears.latency_us.borrow();
    let requests = latency.len() as f64;
    Ok(Heard {
        per_second: requests / elapsed.as_secs_f64(),
        p50_us: latency.value_at_quantile(0.5),
        p99_us: latency.value_at_quantile(0.99),
        cpu_us: cpu.as_secs_f64() * 1e6 / requests.max(1.0),
        refused: ears.refused.get(),
        errors: ears.errors.borrow().clone(),
    })
}

/// Asks for each of these descriptors once. Returns those that were denied.
pub(crate) async fn ask_all(served: Served, args: &AskArgs, descriptors: Vec<u32>) -> Result<Vec<u32>, Error> {
    let unreachable = |reason| Error::Unreachable { target: served.address, reason };
    let (left, refused) = (Rc::new(RefCell::new(descriptors)), Rc::<RefCell<Vec<u32>>>::default());
    let mut lanes = Vec::new();
    for _ in 0..args.connections.get() {
        let line = Line::open(served).await.map_err(unreachable)?;
        for mut asker in (0..args.in_flight.get()).filter_map(|_| line.asker()) {
            let (left, refused) = (Rc::clone(&left), Rc::clone(&refused));
            let next = move || left.borrow_mut().pop();
            lanes.push(spawn_local(async move {
                while let Some(descriptor) = next() {
                    if !asker.passes(descriptor).await.map_err(Failure::reason)? {
                        refused.borrow_mut().push(descriptor);
                    }
                }
                Ok(())
            }));
        }
    }
    for lane in lanes {
        lane.await.expect("lanes do not panic").map_err(unreachable)?;
    }
    Ok(refused.take())
}

/// Sleeps, unless interrupted.
pub(crate) async fn pause(span: Duration, interrupt: &Interrupt) -> Result<(), Error> {
    let until = Instant::now() + span;
    while Instant::now() < until {
        interrupt.check()?;
        sleep(Duration::from_millis(50).min(until.saturating_duration_since(Instant::now()))).await;
    }
    Ok(())
}
