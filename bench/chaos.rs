//! A node's peers as real processes, real clients on them, and what must hold whatever happens: clients together never
//! use more than there is, and soon somebody answers again.
//!
//! Books are the clients' own, so no server can talk its way out. Times count from the moment before a signal is sent,
//! and are taken by an [observer](observer) that asks all peers all the time. Deliberately absent: any knowledge of how
//! peers agree. What is done to them is done from outside, by signals and by links that carry bytes.

use std::time::{Duration, Instant};

use indicatif::{ProgressBar, ProgressStyle};
use leaseway_client::{Book, Entry};

mod args;
mod count;
mod crowd;
mod departed;
mod hand;
mod newcomer;
mod node_set;
mod observer;
mod pages;
mod plan;
mod report;
mod round;
mod sight;

pub(crate) use args::Args;

use crate::{
    book::{self, MachineClock},
    error::Error,
    output::print,
    signal::Interrupt,
};
use count::Count;
use report::Report;
use round::{Field, Measured};

pub(crate) fn main(args: &Args) -> Result<(), Error> {
    args.check()?;
    let interrupt = Interrupt::watch()?;
    let (count, book, clock) = (Count::install()?, Book::new(), MachineClock::read());
    let bar = ProgressBar::new(u64::from(args.rounds));
    bar.set_style(
        ProgressStyle::with_template("{bar:40} {pos}/{len} {elapsed} {msg}").expect("the template is a constant"),
    );
    bar.enable_steady_tick(Duration::from_millis(100));

    let field = Field::gather(args, &interrupt, &count, &book, |what| bar.set_message(what));
    let mut field = field.inspect_err(|_| bar.finish_and_clear())?;
    let (mut rounds, mut sightings) = (Vec::new(), Vec::new());
    let outcome = match args.gone {
        true => departed::run(&mut field, &mut rounds, &mut sightings, &bar),
        false => run(&mut field, &mut rounds, &bar),
    };
    let (measured, counters) = (field.started..Instant::now(), field.pages.paces());
    bar.set_message("everybody leaves");
    let entries = disband(field);
    bar.finish_and_clear();

    let lines = clock.lines(book.take().into_iter().chain(entries).collect());
    if let Some(path) = &args.book {
        book::write(&lines, path)?;
    }
    let report = Report::new(args, rounds, counters, &lines, clock.us(measured.start)..clock.us(measured.end));
    // What was measured is worth something even if something has gone wrong since.
    if !sightings.is_empty() {
        print(&departed::text(&sightings))?;
        print("")?;
    }
    print(&report.text())?;
    if let Some(path) = &args.json {
        let json = serde_json::json!({ "report": report, "departed": sightings });
        let json = serde_json::to_string_pretty(&json).expect("a report has string keys only");
        std::fs::write(path, json + "\n").map_err(Error::io(format!("write {}", path.display())))?;
    }
    outcome.and(judge(args, &report))
}

/// Ends everything, in an order in which nobody misses anybody: the clients while servers answer, and the books when
/// nobody writes any more.
fn disband(field: Field<'_>) -> Vec<Entry> {
    let Field { mut entries, observer, crowd, set, runtime, .. } = field;
    entries.extend(observer.finish());
    runtime.block_on(crowd.leave());
    drop(set);
    entries
}

fn run(field: &mut Field<'_>, rounds: &mut Vec<Measured>, bar: &ProgressBar) -> Result<(), Error> {
    for round in 1..=field.args.rounds {
        let blows = field.args.fault.blows(field.args.peers.get(), &mut field.random);
        for blow in blows {
            bar.set_message(blow.kind.name());
            rounds.push(field.strike(round, &blow)?);
            field.settle()?;
        }
        bar.inc(1);
    }
    Ok(())
}

/// What makes a run fail that was measured to its end.
fn judge(args: &Args, report: &Report) -> Result<(), Error> {
    match (report.over(), report.headless()) {
        (0, 0) => Ok(()),
        (0, rounds) => Err(Error::Headless { rounds, patience: args.patience.as_secs_f64() }),
        (over, _) => Err(Error::OverCapacity { over, capacity: args.audited_capacity() }),
    }
}
