//! The whole of it in virtual time: real resources, real sessions, and a tree of them, on one seeded heap of events.
//!
//! A run is the same to the bit for the same scenario and seed, so what goes wrong in one of ten thousand can be
//! looked at again; the command for that is printed. Every promise is checked at every step. What is measured is what
//! clients' own books say, and what one server that knew all of them would have given them.
//!
//! Deliberately absent: sockets, threads inside a run, disks, and how peers elect a master. Those are the business of
//! `chaos` and of the end-to-end tests.

mod args;
mod books;
mod client;
mod clients;
mod curve;
mod faults;
mod mail;
mod network;
mod node;
mod nodes;
mod oracle;
#[cfg(feature = "planted")]
mod plant;
mod pools;
mod queue;
mod report;
mod scenario;
mod seeds;
mod sets;
mod sweep;
mod tree;
mod units;
mod uplinks;
mod uses;
mod world;

pub(crate) use self::{
    args::SimulateArgs,
    report::{SimulateReport, SimulatedCase, SimulatedTable},
};

use crate::{
    error::Error,
    output::{note, print, write, write_json},
    signal::Interrupt,
    table,
};
use report::Simulated;

#[cfg(feature = "planted")]
fn plant(name: &str, args: &SimulateArgs) -> Result<(), Error> {
    plant::search(name, args.seeds(), &Interrupt::watch()?)
}

/// Servers do not even contain the code that would leave a rule out, and neither does this build.
#[cfg(not(feature = "planted"))]
fn plant(name: &str, args: &SimulateArgs) -> Result<(), Error> {
    let seeds = args.seeds();
    let seeds = seeds.end - seeds.start;
    Err(Error::Usage(format!(
        "--plant {name}: this build cannot leave rules out, it lacks the feature `planted`; run\n  cargo run --release -p \
         leaseway-bench --features planted -- simulate --plant {name} --seeds {seeds}"
    )))
}

pub(crate) fn main(args: &SimulateArgs) -> Result<(), Error> {
    if args.list {
        return print(&list());
    }
    if args.show {
        return args.scenarios.iter().try_for_each(|name| print(scenario::text(name)?.trim_end()));
    }
    if let Some(name) = &args.plant {
        return plant(name, args);
    }
    let cases = args.cases()?;
    let interrupt = Interrupt::watch()?;
    let outcomes = seeds::run(&cases, args.seeds(), args.svg.is_some(), &interrupt)?;
    let simulated: Vec<_> = cases.iter().zip(outcomes).map(|(case, outcomes)| Simulated::of(case, outcomes)).collect();
    if let Some(path) = &args.svg {
        write(path, &sweep::draw(&simulated).unwrap_or_else(|| curve::draw(&simulated, args.seed)))?;
    }
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

fn list() -> String {
    let about = |(name, text)| {
        let about = scenario::parse(name, text).map_or_else(|error| error.to_string(), |scenario| scenario.about);
        [name.to_owned(), about]
    };
    let rows: Vec<_> = scenario::built_in().map(about).collect();
    table::render(&["scenario", "what it is about"], 2, &rows)
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
