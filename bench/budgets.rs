//! One amount spent by several workers: a budget of Leaseway, and counters in Redis.
//!
//! All systems get the same calls at the same times. A call has a known maximum cost, and a real cost that is known only
//! when it ends, as calls of LLMs have. The amount runs out before the calls do.

mod ledger;
mod trace;

use std::{cell::RefCell, fs, num::NonZeroU32, rc::Rc, time::Duration};

use hdrhistogram::Histogram;
use leaseway_process::usage;
use tokio::{
    task::{LocalSet, spawn_local},
    time::{Instant, sleep, sleep_until},
};

use self::{
    ledger::{Admission, Ledger, Store, System},
    trace::{Call, amount, trace},
};
use crate::{
    common::{
        current_thread,
        error::Error,
        output::{Machine, Spread, print, render},
        percent, seconds,
        server::Interrupt,
    },
    load::measurement::histogram,
};

/// Compare a budget with counters in Redis: what workers spend of one amount that runs out, the latency that this adds to
/// their calls, and the requests at the store.
///
/// Starts a server and a Redis without persistence for each run, on free loopback ports. Needs redis-server.
#[derive(clap::Args)]
pub(crate) struct BudgetsArgs {
    /// The number of workers. The last one makes as many times more calls than the first.
    #[arg(long, default_value = "8", value_name = "N")]
    workers: NonZeroU32,
    /// Calls per second of all workers together.
    #[arg(long, default_value = "100", value_name = "N")]
    rate: NonZeroU32,
    /// The time in which calls begin, in seconds.
    #[arg(long, default_value = "60", value_name = "S", value_parser = seconds)]
    seconds: Duration,
    /// The amount, in percent of the cost of all calls.
    #[arg(long, default_value = "60", value_name = "P", value_parser = percent)]
    amount: f64,
    /// The time that a call waits for an allowance of a budget, in seconds. Then it is refused.
    #[arg(long, default_value = "1", value_name = "S", value_parser = seconds)]
    wait: Duration,
    /// The number of runs of each system, each with another trace.
    #[arg(long, default_value = "3", value_name = "N")]
    reps: NonZeroU32,
    /// The Redis server program.
    #[arg(long, default_value = "redis-server", value_name = "PROGRAM")]
    redis: String,
    /// The command of the server, up to `serve`. [default: `leaseway` beside this program, or in PATH]
    #[arg(long, value_name = "COMMAND")]
    server: Option<String>,
}

/// The result of a run.
struct Outcome {
    /// The real cost of all calls that began, in percent of the amount.
    spent: f64,
    admitted: f64,
    refused: f64,
    /// The time that a call waits before it may begin, while more than a tenth of the amount is left, and later.
    early: Phase,
    late: Phase,
    /// CPU time of the store, in percent of a core.
    cpu: f64,
}

struct Phase {
    p50_us: f64,
    p99_us: f64,
    /// Requests per second at the store, according to its own counters.
    requests: f64,
}

/// A phase ends when this fraction of the amount is spent.
const EARLY: f64 = 0.9;

struct Tally {
    early_until: u64,
    early_us: Histogram<u64>,
    late_us: Histogram<u64>,
    spent: u64,
    refused: u64,
}

pub(crate) fn main(args: &BudgetsArgs) -> Result<(), Error> {
    let interrupt = Interrupt::watch()?;
    let mut outcomes: Vec<Vec<Outcome>> = System::ALL.iter().map(|_| Vec::new()).collect();
    for seed in 1..=args.reps.get() {
        let calls = trace(args.workers.get(), args.rate.get(), args.seconds, seed.into());
        for (system, outcomes) in System::ALL.iter().zip(&mut outcomes) {
            outcomes.push(measure(*system, args, &calls, &interrupt)?);
        }
    }
    let mut head = vec!["what"];
    head.extend(System::ALL.iter().map(|system| system.name()));
    let row = |name: &str, digits: usize, of: fn(&Outcome) -> f64| {
        let cell = |outcomes: &Vec<Outcome>| Spread::show(Spread::of(outcomes.iter().map(of)), digits);
        [name.to_owned()].into_iter().chain(outcomes.iter().map(cell)).collect::<Vec<_>>()
    };
    let rows = [
        row("spent, % of the amount", 2, |outcome| outcome.spent),
        row("calls that began", 0, |outcome| outcome.admitted),
        row("calls that were refused", 0, |outcome| outcome.refused),
        row("until 90 % is spent: added latency, p50 µs", 0, |outcome| outcome.early.p50_us),
        row("… p99 µs", 0, |outcome| outcome.early.p99_us),
        row("… requests/s at the store", 1, |outcome| outcome.early.requests),
        row("afterwards: added latency, p50 µs", 0, |outcome| outcome.late.p50_us),
        row("… p99 µs", 0, |outcome| outcome.late.p99_us),
        row("… requests/s at the store", 1, |outcome| outcome.late.requests),
        row("CPU of the store, % of a core", 2, |outcome| outcome.cpu),
    ];
    print(&format!("{}\n{}", render(&head, 1, &rows), Machine::read().text()))
}

/// Runs all calls against one system.
fn measure(system: System, args: &BudgetsArgs, calls: &[Vec<Call>], interrupt: &Interrupt) -> Result<Outcome, Error> {
    let amount = amount(calls, args.amount);
    let directory = tempfile::tempdir().map_err(Error::io("make a directory"))?;
    let config = directory.path().join("budgets.yaml");
    let text = format!(
        "resources:\n- identifier_glob: \"*\"\n  capacity: {amount}\n  algorithm: {{kind: BUDGET, lease_length: 30, \
         refresh_interval: 5, parameters: {{period: none}}}}\n"
    );
    fs::write(&config, text).map_err(Error::io("write budgets.yaml"))?;
    let store = match system {
        System::Leaseway => Store::leaseway(args.server.as_deref(), directory.path(), interrupt)?,
        _ => Store::redis(&args.redis, interrupt)?,
    };
    let cpu = || usage::cpu_time(store.pid()).map_err(Error::process(store.pid()));
    let early_until = (amount as f64 * EARLY) as u64;
    let (early_us, late_us) = (histogram(), histogram());
    let tally = Rc::new(RefCell::new(Tally { early_until, early_us, late_us, spent: 0, refused: 0 }));
    let runtime = current_thread().map_err(Error::io("start a runtime"))?;
    let (requests, times, cpu) = LocalSet::new().block_on(&runtime, async {
        let mut ledgers = Vec::new();
        for worker in 0..calls.len() {
            ledgers.push(Ledger::open(system, &store, worker, amount, args.wait).await?);
        }
        // A worker that starts knows its allowance or the count before its first call.
        sleep(Duration::from_secs(1)).await;
        let (before, used, began) = (store.requests().await?, cpu()?, Instant::now());
        let worker = |(ledger, calls): (Ledger, &Vec<Call>)| {
            spawn_local(work(Rc::new(ledger), calls.clone(), began, Rc::clone(&tally), interrupt.clone()))
        };
        let workers: Vec<_> = ledgers.into_iter().zip(calls).map(worker).collect();
        while tally.borrow().is_early() && workers.iter().any(|worker| !worker.is_finished()) {
            sleep(Duration::from_millis(20)).await;
        }
        let (middle, early) = (store.requests().await?, began.elapsed());
        for worker in workers {
            worker.await.expect("workers do not panic")?;
        }
        let (after, elapsed) = (store.requests().await?, began.elapsed());
        Ok::<_, Error>(([middle - before, after - middle], [early, elapsed - early], cpu()?.saturating_sub(used)))
    })?;
    store.check()?;
    let tally = tally.borrow();
    let phase = |number: usize, latency_us: &Histogram<u64>| Phase {
        p50_us: latency_us.value_at_quantile(0.5) as f64,
        p99_us: latency_us.value_at_quantile(0.99) as f64,
        requests: requests[number] / times[number].as_secs_f64(),
    };
    Ok(Outcome {
        spent: tally.spent as f64 / amount as f64 * 100.0,
        admitted: (tally.early_us.len() + tally.late_us.len()) as f64,
        refused: tally.refused as f64,
        early: phase(0, &tally.early_us),
        late: phase(1, &tally.late_us),
        cpu: cpu.as_secs_f64() / times.iter().sum::<Duration>().as_secs_f64() * 100.0,
    })
}

impl Tally {
    fn is_early(&self) -> bool {
        self.spent < self.early_until
    }

    /// A call begins after it has waited for so long. From here on, its provider bills its real cost.
    fn begin(&mut self, waited: Duration, used: u32) {
        let latency_us = if self.is_early() { &mut self.early_us } else { &mut self.late_us };
        latency_us.saturating_record(waited.as_micros() as u64);
        self.spent += u64::from(used);
    }
}

/// Begins each call when it is due, whether or not earlier ones have ended, and waits for all of them.
async fn work(
    ledger: Rc<Ledger>,
    calls: Vec<Call>,
    began: Instant,
    tally: Rc<RefCell<Tally>>,
    interrupt: Interrupt,
) -> Result<(), Error> {
    let flushing = spawn_local(Rc::clone(&ledger).flush_every_second());
    let mut running = Vec::new();
    for call in calls {
        sleep_until(began + call.at).await;
        interrupt.check()?;
        running.push(spawn_local(one(Rc::clone(&ledger), call, Rc::clone(&tally))));
    }
    for call in running {
        call.await.expect("calls do not panic")?;
    }
    flushing.abort();
    Ok(())
}

async fn one(ledger: Rc<Ledger>, call: Call, tally: Rc<RefCell<Tally>>) -> Result<(), Error> {
    let due = Instant::now();
    let Admission::Begun(reservation) = ledger.begin(call.most).await? else {
        tally.borrow_mut().refused += 1;
        return Ok(());
    };
    tally.borrow_mut().begin(due.elapsed(), call.used);
    sleep(call.takes).await;
    ledger.end(reservation, call).await
}
