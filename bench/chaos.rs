//! Chaos: real servers and real clients, with faults drawn from a seed, and checks that hold whatever happens.
//!
//! A [schedule](schedule) is a pure function of seed, cluster shape and length. It determines the faults, their times
//! and their targets; faults may overlap. The [injector](faults) carries it out: it kills and stops processes, damages
//! their disks, and degrades the links between them. The [network state](faults::network) combines all active faults.
//! The injector acts only from outside, by signals, files and links, and knows nothing of the consensus between peers.
//!
//! Meanwhile [clients](clients) of several kinds record the capacity that they believe they may use. After the run the
//! [auditor](accounting) adds these records up. A run fails if
//!
//! - clients together could use more than the capacity at any time,
//! - a [gateway](gateway) let more requests pass than its limit allows,
//! - two [masters](masters) of one node decided at the same time,
//! - the answers to operators are not linearizable, or
//! - masters, peers and clients do not recover when the faults are over.
//!
//! The same seed gives the same schedule, but not the same run, which also depends on the timing of real processes. A
//! schedule that fails is [shrunk](schedule::shrink). To show that the checks work, [planted] servers leave out one
//! rule each.

pub(crate) mod accounting;
pub(crate) mod args;
pub(crate) mod clients;
pub(crate) mod cluster;
pub(crate) mod faults;
pub(crate) mod gateway;
pub(crate) mod layout;
pub(crate) mod masters;
pub(crate) mod planted;
pub(crate) mod report;
pub(crate) mod schedule;
pub(crate) mod trial;

use std::{cell::RefCell, time::Duration};

use crate::{
    chaos::{
        args::ChaosArgs,
        faults::packets,
        report::{ChaosReport, TrialReport},
        schedule::{ScheduledFault, draw, shrink},
    },
    common::{
        error::Error,
        output::{arguments, note, print, progress, write_json},
        server::Interrupt,
    },
};

pub(crate) fn main(args: &ChaosArgs) -> Result<(), Error> {
    args.check()?;
    if args.show {
        let lines = schedule(args, args.seed).iter().map(ScheduledFault::to_string).collect::<Vec<_>>();
        return print(&lines.join("\n"));
    }
    if args.namespace {
        packets::enter()?;
    }
    let interrupt = Interrupt::watch()?;
    let bar = progress(args.seeds.get(), "{bar:20} {pos}/{len} {elapsed} {msg}");
    bar.enable_steady_tick(Duration::from_millis(100));
    let say = |what: String| bar.set_message(what);
    if args.plant.as_deref() == Some("all") {
        return planted::table(args, &interrupt, &say);
    }
    let mut report = ChaosReport { arguments: arguments(), runs: Vec::new() };
    for seed in args.seeds() {
        let run = trial::run(args, seed, &schedule(args, seed), &interrupt, &say)?;
        bar.inc(1);
        if !run.violations.is_empty() {
            bar.suspend(|| note(&run.complaint()));
        }
        report.runs.push(run);
        // Write after each run, so that an interrupted command leaves a report of the earlier runs.
        write_json(args.json.as_deref(), &report)?;
        if args.plant.is_some() && report.runs.last().is_some_and(TrialReport::shows_planted_rule) {
            break;
        }
    }
    if let Some(broken) = report.runs.iter().find(|run| !run.violations.is_empty()).filter(|_| args.shrink > 0) {
        note(&smallest_failure(args, broken, &interrupt, &say)?);
    }
    bar.finish_and_clear();
    print(&report.text())?;
    judge(args, &report)
}

/// With --plant, at least one run must reveal the missing rule. Otherwise no run may violate a check.
fn judge(args: &ChaosArgs, report: &ChaosReport) -> Result<(), Error> {
    let shows = report.runs.iter().find(|run| run.shows_planted_rule());
    match (&args.plant, report.broken(), shows) {
        (None, 0, _) => Ok(()),
        (None, runs, _) => Err(Error::Broken { runs }),
        (Some(rule), _, None) => Err(Error::Unnoticed { rule: rule.clone(), seeds: args.seeds.get() }),
        (Some(rule), _, Some(run)) => {
            print(&format!("{rule}: found by seed {}; runs: {}", run.seed, report.runs.len()))
        }
    }
}

/// Runs seed after seed. Returns the first run that reveals the missing rule.
fn first_that_shows(
    args: &ChaosArgs,
    interrupt: &Interrupt,
    say: &dyn Fn(String),
) -> Result<Option<TrialReport>, Error> {
    for seed in args.seeds() {
        let run = trial::run(args, seed, &schedule(args, seed), interrupt, say)?;
        if run.shows_planted_rule() {
            return Ok(Some(run));
        }
    }
    Ok(None)
}

/// The faults of a seed. With `--keep-faults` only the named ones.
fn schedule(args: &ChaosArgs, seed: u64) -> Vec<ScheduledFault> {
    let mut all = draw(args.plan(seed), seed);
    if let Some(kept) = &args.keep_faults {
        all.retain(|fault| kept.contains(&fault.number));
    }
    all
}

/// Repeats a failed run with fewer and fewer faults. Describes the smallest schedule that failed, with its command.
fn smallest_failure(
    args: &ChaosArgs,
    broken: &TrialReport,
    interrupt: &Interrupt,
    say: &dyn Fn(String),
) -> Result<String, Error> {
    let interrupted: RefCell<Option<Error>> = RefCell::new(None);
    let fails = |some: &[ScheduledFault]| {
        let run = trial::run(args, broken.seed, some, interrupt, say);
        run.is_ok_and(|run| !run.violations.is_empty())
    };
    let small = shrink(&schedule(args, broken.seed), args.shrink, |some| {
        interrupt.check().map_err(|error| interrupted.replace(Some(error))).is_ok() && fails(some)
    });
    interrupted.into_inner().map_or(Ok(()), Err)?;
    let numbers: Vec<usize> = small.iter().map(|fault| fault.number).collect();
    let lines: Vec<String> = small.iter().map(ScheduledFault::to_string).collect();
    Ok(format!(
        "it also fails with these faults alone:\n{}\n  {}",
        lines.join("\n"),
        args.command(broken.seed, Some(&numbers))
    ))
}
