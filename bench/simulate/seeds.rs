//! Many runs at the same time. They share nothing, so it does not matter which thread runs which.

use std::{
    ops::Range,
    sync::{
        Mutex,
        atomic::{AtomicUsize, Ordering},
    },
    thread,
    time::Duration,
};

use indicatif::ProgressBar;

use super::{
    args::Case,
    world::{Broken, Figures, Keep},
};
use crate::{error::Error, output, signal::Interrupt};

/// What became of each run of a case, in the order of the seeds.
pub(super) type Outcomes = Vec<Result<Figures, Box<Broken>>>;

/// Runs every case with every seed; `curve`: keeps the curve of each case's first.
pub(super) fn run(
    cases: &[Case],
    seeds: Range<u64>,
    curve: bool,
    interrupt: &Interrupt,
) -> Result<Vec<Outcomes>, Error> {
    let seeds: Vec<u64> = seeds.collect();
    let runs = cases.len() * seeds.len();
    let bar = progress(runs);
    let (next, done) = (AtomicUsize::new(0), Mutex::new(Vec::with_capacity(runs)));
    let work = || {
        while interrupt.check().is_ok() {
            let run = next.fetch_add(1, Ordering::Relaxed);
            if run >= runs {
                return;
            }
            let (case, seed) = (run / seeds.len(), seeds[run % seeds.len()]);
            let outcome = one(&cases[case], seed, curve && seed == seeds[0]);
            done.lock().expect("no thread panics while holding the list").push((run, outcome));
            bar.inc(1);
        }
    };
    let cores = thread::available_parallelism().map_or(1, usize::from);
    thread::scope(|scope| {
        for _ in 0..cores.min(runs) {
            scope.spawn(work);
        }
    });
    bar.finish_and_clear();
    interrupt.check()?;
    let mut done = done.into_inner().expect("no thread panics while holding the list");
    done.sort_by_key(|(run, _)| *run);
    let mut outcomes = done.into_iter().map(|(_, outcome)| outcome);
    Ok(cases.iter().map(|_| outcomes.by_ref().take(seeds.len()).collect()).collect())
}

/// A run that breaks a promise is run again: it does the same again, and this time what led to it is written down.
fn one(case: &Case, seed: u64, curve: bool) -> Result<Figures, Box<Broken>> {
    let outcome = case.plan.run(seed, Keep { curve, ..Keep::default() });
    outcome.map_err(|broken| {
        let again = case.plan.run(seed, Keep { trace: true, ..Keep::default() });
        Box::new(again.err().unwrap_or(broken))
    })
}

fn progress(runs: usize) -> ProgressBar {
    if runs < 2 {
        return ProgressBar::hidden();
    }
    let bar = output::progress(runs as u64, "{bar:40} {pos}/{len} runs, {elapsed}, {eta} left");
    bar.enable_steady_tick(Duration::from_millis(200));
    bar
}
