//! The command line of the simulator ([`leaseway_sim`]), and its output.
//!
//! The same scenario and seed repeat a run exactly, so a failure is printed with the command that repeats it.

pub(crate) mod args;
#[cfg(feature = "planted")]
pub(crate) mod plant;
pub(crate) mod report;

use std::time::Duration;

use indicatif::ProgressBar;
use leaseway_sim::{
    runner::{Observer, Outcomes, run_all},
    scenario::{BUILT_IN, Scenario, plan::Plan},
};

use crate::{
    common::{
        error::Error,
        output::{self, note, print, write_json},
        server::Interrupt,
    },
    simulate::{
        args::{Case, SimulateArgs, scenario_text},
        report::{SimulateReport, Simulated},
    },
};

#[cfg(feature = "planted")]
fn plant(name: &str, args: &SimulateArgs) -> Result<(), Error> {
    plant::search(name, args, &Interrupt::watch()?)
}

/// This build lacks the feature `planted`, so it cannot plant faults.
#[cfg(not(feature = "planted"))]
fn plant(name: &str, args: &SimulateArgs) -> Result<(), Error> {
    let seeds = args.seeds();
    let seeds = seeds.end - seeds.start;
    Err(Error::Usage(format!(
        "--plant {name}: this build cannot plant faults, because it lacks the feature `planted`; run\n  cargo run --release -p \
         leaseway-bench --features planted -- simulate --plant {name} --seeds {seeds}"
    )))
}

pub(crate) fn main(args: &SimulateArgs) -> Result<(), Error> {
    if args.list {
        return print(&list());
    }
    if args.show {
        return args.scenarios.iter().try_for_each(|name| print(scenario_text(name)?.trim_end()));
    }
    if let Some(name) = &args.plant {
        return plant(name, args);
    }
    let cases = args.cases()?;
    let outcomes = run(&cases, args)?;
    let simulated: Vec<_> = cases.iter().zip(outcomes).map(|(case, outcomes)| Simulated::of(case, outcomes)).collect();
    let report = SimulateReport::new(&simulated);
    write_json(args.json.as_deref(), &report)?;
    print(&report.table(args.wide))?;
    for complaint in simulated.iter().filter_map(Simulated::complaint) {
        note(&complaint);
    }
    match simulated.iter().map(|simulated| simulated.broken.len()).sum() {
        0 => Ok(()),
        runs => Err(Error::Broken { runs }),
    }
}

struct Progress {
    bar: ProgressBar,
    interrupt: Interrupt,
}

impl Observer for Progress {
    fn should_continue(&self) -> bool {
        self.interrupt.check().is_ok()
    }

    fn run_ended(&self) {
        self.bar.inc(1);
    }
}

fn run(cases: &[Case], args: &SimulateArgs) -> Result<Vec<Outcomes>, Error> {
    let seeds = args.seeds();
    let runs = cases.len() as u64 * (seeds.end - seeds.start);
    let progress = Progress { bar: bar(runs), interrupt: Interrupt::watch()? };
    let plans: Vec<&Plan> = cases.iter().map(|case| &case.plan).collect();
    let outcomes = run_all(&plans, seeds, &progress);
    progress.bar.finish_and_clear();
    outcomes.ok_or(Error::Interrupted)
}

fn bar(runs: u64) -> ProgressBar {
    if runs < 2 {
        return ProgressBar::hidden();
    }
    let bar = output::progress(runs, "{bar:40} {pos}/{len} runs, {elapsed}, {eta} left");
    bar.enable_steady_tick(Duration::from_millis(200));
    bar
}

fn list() -> String {
    let about = |(name, text): (&str, &str)| {
        [name.to_owned(), Scenario::parse(name, text).map_or_else(|error| error, |scenario| scenario.about)]
    };
    let rows = BUILT_IN.map(about);
    output::render(&["scenario", "description"], 2, &rows)
}

#[cfg(all(test, not(feature = "planted")))]
mod tests {
    use super::*;

    #[test]
    fn a_build_that_cannot_leave_rules_out_says_which_can() {
        let args = SimulateArgs::parse(&["simulate", "--plant", "all", "--seeds", "40"]).expect("valid");
        let error = main(&args).expect_err("every rule is kept").to_string();
        let command = "cargo run --release -p leaseway-bench --features planted -- simulate --plant all --seeds 40";
        assert!(error.contains("--plant all") && error.contains(command), "{error}");
    }
}
