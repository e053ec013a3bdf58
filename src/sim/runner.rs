//! Runs plans: one run, or many in parallel. Runs share no state. Only this module uses threads and a real clock, to
//! measure how long a run takes.

#[cfg(feature = "planted")]
pub mod planted;

use std::{
    ops::Range,
    sync::{
        Mutex,
        atomic::{AtomicUsize, Ordering},
    },
    thread,
    time::Instant,
};

use crate::{
    accounting::figures::{Figures, RunFailure, RunOptions},
    scenario::plan::Plan,
    simulation,
};

/// The results of the runs of a plan, in the order of the seeds.
pub type Outcomes = Vec<Result<Figures, Box<RunFailure>>>;

/// Observes the progress of many runs, from all of their threads.
pub trait Observer: Sync {
    fn should_continue(&self) -> bool;

    fn run_ended(&self) {}
}

impl<F: Fn() -> bool + Sync> Observer for F {
    fn should_continue(&self) -> bool {
        self()
    }
}

impl Plan {
    pub fn run(&self, seed: u64, options: RunOptions) -> Result<Figures, RunFailure> {
        let began = Instant::now();
        let figures = match self.drawn(seed) {
            Some(drawn) => simulation::run(&drawn, seed, options).map_err(|broken| {
                let drawn = options.trace.then(|| format!("{:?}", drawn.scenario));
                RunFailure { trace: drawn.into_iter().chain(broken.trace).collect(), ..broken }
            })?,
            None => simulation::run(self, seed, options)?,
        };
        Ok(Figures { took_s: began.elapsed().as_secs_f64(), ..figures })
    }

    /// Runs the plan once. A run with a violation is repeated with a trace.
    fn run_and_explain(&self, seed: u64) -> Result<Figures, Box<RunFailure>> {
        let outcome = self.run(seed, RunOptions::default());
        outcome.map_err(|broken| {
            let again = self.run(seed, RunOptions { trace: true, ..RunOptions::default() });
            Box::new(again.err().unwrap_or(broken))
        })
    }
}

/// Runs every plan with every seed. `None` if the observer stopped the runs.
pub fn run_all(plans: &[&Plan], seeds: Range<u64>, observer: &impl Observer) -> Option<Vec<Outcomes>> {
    let seeds: Vec<u64> = seeds.collect();
    let runs = plans.len() * seeds.len();
    let (next, done) = (AtomicUsize::new(0), Mutex::new(Vec::with_capacity(runs)));
    let work = || {
        while observer.should_continue() {
            let run = next.fetch_add(1, Ordering::Relaxed);
            if run >= runs {
                return;
            }
            let (plan, seed) = (plans[run / seeds.len()], seeds[run % seeds.len()]);
            let outcome = plan.run_and_explain(seed);
            done.lock().expect("no thread panics while holding the list").push((run, outcome));
            observer.run_ended();
        }
    };
    let cores = thread::available_parallelism().map_or(1, usize::from);
    thread::scope(|scope| {
        for _ in 0..cores.min(runs) {
            scope.spawn(work);
        }
    });
    let mut done = done.into_inner().expect("no thread panics while holding the list");
    if done.len() < runs {
        return None;
    }
    done.sort_by_key(|(run, _)| *run);
    let mut outcomes = done.into_iter().map(|(_, outcome)| outcome);
    Some(plans.iter().map(|_| outcomes.by_ref().take(seeds.len()).collect()).collect())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        scenario::{Scenario, built_in},
        units::Span,
    };

    fn short(name: &str) -> Plan {
        let text = built_in(name).expect("it is built in");
        let mut scenario = Scenario::parse(name, text).expect("it is valid");
        scenario.length = Span::millis(60_000);
        Plan::new(scenario).expect("it is valid")
    }

    #[test]
    fn outcomes_are_in_the_order_of_plans_and_seeds() {
        let (one, five) = (short("one"), short("five"));
        let all = run_all(&[&five, &one], 3..6, &|| true).expect("it is not interrupted");
        for (plan, outcomes) in [&five, &one].into_iter().zip(&all) {
            let got: Vec<_> = outcomes.iter().map(|outcome| outcome.as_ref().expect("no violation")).collect();
            assert_eq!(got.iter().map(|figures| figures.seed).collect::<Vec<_>>(), [3, 4, 5]);
            let alone = plan.run(4, RunOptions::default()).expect("no violation");
            assert_eq!((&got[1].digest, got[1].events), (&alone.digest, alone.events));
        }
    }

    #[test]
    fn an_interrupted_run_has_no_outcomes() {
        let begun = AtomicUsize::new(0);
        let only_two = || begun.fetch_add(1, Ordering::Relaxed) < 2;
        assert!(run_all(&[&short("one")], 1..4, &only_two).is_none());
    }
}
