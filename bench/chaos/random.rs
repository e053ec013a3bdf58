//! The general one: what goes wrong is drawn from a seed, over each other, and a run that breaks a promise is made
//! small.
//!
//! A [schedule](schedule) is a pure function of seed, shape and length; what the mishaps under way make of links and
//! disks is one of them ([weather](weather)). Real processes, clocks and luck decide the rest: the same seed is the
//! same trouble, and not the same run.

mod args;
mod beside;
mod cluster;
mod envoys;
mod gateway;
mod hand_over;
mod holders;
mod layout;
mod limits;
mod masters;
mod operators;
mod outcome;
mod packets;
mod pairs;
mod passes;
mod planted;
mod python;
mod rls;
mod schedule;
mod shrink;
mod striker;
mod timing;
mod trial;
mod weather;

use std::{cell::RefCell, time::Duration};

pub(crate) use self::args::RandomArgs;
use self::{
    outcome::{RandomReport, TrialReport},
    schedule::{Strike, draw},
};
use crate::{
    book,
    error::Error,
    output::{arguments, note, print, progress, write, write_json},
    signal::Interrupt,
};

pub(crate) fn main(args: &RandomArgs) -> Result<(), Error> {
    args.check()?;
    if args.show {
        let lines = strikes(args, args.seed).iter().map(Strike::to_string).collect::<Vec<_>>();
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
    let mut report = RandomReport { arguments: arguments(), runs: Vec::new() };
    for seed in args.seeds() {
        let (run, lines) = trial::run(args, seed, &strikes(args, seed), &interrupt, &say)?;
        if let Some(path) = &args.book {
            book::write(&lines, path)?;
        }
        bar.inc(1);
        let is_broken = !run.violations.is_empty();
        if is_broken {
            bar.suspend(|| note(&run.complaint()));
        }
        report.runs.push(run);
        // After each, so that a run that is stopped has shown something.
        write_json(args.json.as_deref(), &report)?;
        args.html.as_ref().map_or(Ok(()), |path| write(path, &report.html()))?;
        if args.plant.is_some() && report.runs.last().is_some_and(TrialReport::shows_fault) {
            break;
        }
    }
    if let Some(broken) = report.runs.iter().find(|run| !run.violations.is_empty()).filter(|_| args.shrink > 0) {
        note(&make_small(args, broken, &interrupt, &say)?);
    }
    bar.finish_and_clear();
    print(&report.text())?;
    judge(args, &report)
}

/// A planted fault has to show in the books or in two masters at once; without one nothing may be wrong.
fn judge(args: &RandomArgs, report: &RandomReport) -> Result<(), Error> {
    let shows = report.runs.iter().find(|run| run.shows_fault());
    match (&args.plant, report.broken(), shows) {
        (None, 0, _) => Ok(()),
        (None, runs, _) => Err(Error::Broken { runs }),
        (Some(fault), _, None) => Err(Error::Unnoticed { fault: fault.clone(), seeds: args.seeds.get() }),
        (Some(fault), _, Some(run)) => {
            print(&format!("{fault}: found by seed {}; runs: {}", run.seed, report.runs.len()))
        }
    }
}

/// The first run in which clients could use more than there is, or two masters decided at once.
fn first_that_shows(
    args: &RandomArgs,
    interrupt: &Interrupt,
    say: &dyn Fn(String),
) -> Result<Option<TrialReport>, Error> {
    for seed in args.seeds() {
        let (run, _) = trial::run(args, seed, &strikes(args, seed), interrupt, say)?;
        if run.shows_fault() {
            return Ok(Some(run));
        }
    }
    Ok(None)
}

/// What a seed gives, or those of it that were asked for.
fn strikes(args: &RandomArgs, seed: u64) -> Vec<Strike> {
    let mut all = draw(args.plan(seed), seed);
    if let Some(kept) = &args.keep_strikes {
        all.retain(|strike| kept.contains(&strike.number));
    }
    all
}

/// Repeats a run with fewer and fewer mishaps. The command for the last that failed.
fn make_small(
    args: &RandomArgs,
    broken: &TrialReport,
    interrupt: &Interrupt,
    say: &dyn Fn(String),
) -> Result<String, Error> {
    let trouble: RefCell<Option<Error>> = RefCell::new(None);
    let fails = |some: &[Strike]| {
        let run = trial::run(args, broken.seed, some, interrupt, say);
        run.is_ok_and(|(run, _)| !run.violations.is_empty())
    };
    let small = shrink::shrink(&strikes(args, broken.seed), args.shrink, |some| {
        interrupt.check().map_err(|error| trouble.replace(Some(error))).is_ok() && fails(some)
    });
    trouble.into_inner().map_or(Ok(()), Err)?;
    let numbers: Vec<usize> = small.iter().map(|strike| strike.number).collect();
    let lines: Vec<String> = small.iter().map(Strike::to_string).collect();
    Ok(format!(
        "it also fails with these alone:\n{}\n  {}",
        lines.join("\n"),
        args.command(broken.seed, Some(&numbers))
    ))
}
