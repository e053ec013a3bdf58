//! A node's peers as real processes, real clients on them, and what must hold in any case: clients together never use
//! more than there is, and soon there is a master that answers again.
//!
//! Books are the clients' own, so no server can talk its way out. Times count from the moment before a signal is sent,
//! and are taken by an [observer](observer) that asks all peers all the time. Deliberately absent: any knowledge of how
//! peers agree. What is done to them is done from outside, by signals and by links that carry bytes.

use std::time::{Duration, Instant};

use indicatif::ProgressBar;
use leaseway_client::{LeaseChange, LeaseTrace};

mod args;
mod count;
mod crowd;
mod fault;
mod node_set;
mod observer;
mod originals;
mod random;
mod raw_client;
mod report;
mod round;

pub(crate) use self::{
    args::ChaosArgs,
    report::{ChaosFile, ChaosReport, MEASURES, Measure},
};
use self::{
    args::PATIENCE,
    count::Counters,
    round::{ChaosRun, Round},
};
use crate::{
    book::{self, MachineClock},
    error::Error,
    output::{print, progress, write_json},
    signal::Interrupt,
};

/// `chaos`, and `chaos random`.
#[derive(clap::Args)]
#[command(args_conflicts_with_subcommands = true)]
pub(crate) struct ChaosLine {
    #[command(subcommand)]
    random: Option<ChaosCommand>,
    #[command(flatten)]
    pub(crate) rounds: ChaosArgs,
}

#[derive(clap::Subcommand)]
enum ChaosCommand {
    Random(random::RandomArgs),
}

pub(crate) fn main(line: &ChaosLine) -> Result<(), Error> {
    match &line.random {
        Some(ChaosCommand::Random(args)) => random::main(args),
        None => rounds(&line.rounds),
    }
}

/// One fault after the other, and how long each hurts.
fn rounds(args: &ChaosArgs) -> Result<(), Error> {
    args.check()?;
    let interrupt = Interrupt::watch()?;
    let (counters, book, clock) = (Counters::install()?, LeaseTrace::new(), MachineClock::read());
    let bar = progress(args.rounds.into(), "{bar:40} {pos}/{len} {elapsed} {msg}");
    bar.enable_steady_tick(Duration::from_millis(100));

    let run = ChaosRun::begin(args, &interrupt, &counters, &book, |what| bar.set_message(what));
    let mut run = run.inspect_err(|_| bar.finish_and_clear())?;
    let mut rounds = Vec::new();
    let outcome = strike(&mut run, &mut rounds, &bar);
    let measured = run.started..Instant::now();
    bar.set_message("all clients leave");
    let entries = disband(run);
    bar.finish_and_clear();

    let lines = clock.lines(book.take().into_iter().chain(entries).collect());
    if let Some(path) = &args.book {
        book::write(&lines, path)?;
    }
    let report = ChaosReport::new(args, rounds, &lines, clock.us(measured.start)..clock.us(measured.end));
    // What was measured is worth something even if something has gone wrong since.
    print(&report.text())?;
    let file = ChaosFile { report };
    write_json(args.json.as_deref(), &file)?;
    outcome.and(judge(args, &file.report))
}

/// Ends everything: the clients while servers answer, then the servers, and the books when no client writes any more.
fn disband(run: ChaosRun<'_>) -> Vec<LeaseChange> {
    let ChaosRun { mut entries, observer, crowd, originals, set, runtime, .. } = run;
    entries.extend(observer.finish());
    runtime.block_on(crowd.leave());
    entries.extend(runtime.block_on(originals.leave()));
    drop(set);
    entries
}

fn strike(run: &mut ChaosRun<'_>, rounds: &mut Vec<Round>, bar: &ProgressBar) -> Result<(), Error> {
    for round in 1..=run.args.rounds {
        let fault = run.args.fault.pick(run.args.peers.get(), &mut run.random);
        bar.set_message(fault.name());
        rounds.push(run.strike(round, fault)?);
        run.settle()?;
        bar.inc(1);
    }
    Ok(())
}

/// What makes a run fail that was measured to its end.
fn judge(args: &ChaosArgs, report: &ChaosReport) -> Result<(), Error> {
    match (report.over(), report.headless()) {
        (0, 0) => Ok(()),
        (0, rounds) => Err(Error::Headless { rounds, patience: PATIENCE.as_secs_f64() }),
        (over, _) => Err(Error::OverCapacity { over, capacity: args.audited_capacity() }),
    }
}
