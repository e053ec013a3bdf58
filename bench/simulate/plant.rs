//! Can the simulation fail? Leaves out one rule of the protocol after the other, and looks for a run that shows it.

use std::ops::Range;

use leaseway_core::planted::{self, Fault};

use super::{
    args::Case,
    world::{Broken, Keep},
};
use crate::{
    error::Error,
    flags::{Handover, word},
    output::print,
    signal::Interrupt,
    table,
};

/// What is tried: everything that goes wrong, with a new master that knows and with one that listens, and with leases
/// that change their lengths.
const TRIED: [(&str, Handover); 3] =
    [("random", Handover::Promises), ("random", Handover::Learning), ("lease_cut", Handover::Promises)];

/// A fault that was found.
struct Found<'c> {
    case: &'c Case,
    broken: Broken,
    /// How much clients had at the most if that is let run on, in per cent of the capacity.
    peak: f64,
}

pub(super) fn search(name: &str, seeds: Range<u64>, interrupt: &Interrupt) -> Result<(), Error> {
    let faults: Vec<Fault> = Fault::ALL.into_iter().filter(|fault| name == "all" || fault.name() == name).collect();
    if faults.is_empty() {
        let known: Vec<_> = Fault::ALL.iter().map(|fault| fault.name()).collect();
        return Err(Error::Usage(format!("there is no fault `{name}`; known: all, {}", known.join(", "))));
    }
    let cases =
        TRIED.into_iter().map(|(name, handover)| Case::built_in(name, handover)).collect::<Result<Vec<_>, _>>()?;
    let mut rows = Vec::new();
    let mut missed = 0;
    for fault in faults {
        let found = find(fault, &cases, seeds.clone(), interrupt);
        interrupt.check()?;
        missed += usize::from(found.is_none());
        rows.push(row(fault, found.as_ref()));
    }
    let head = ["left out", "rule", "found by", "handover", "what", "seed", "after s", "peak %"];
    print(&table::render(&head, 5, &rows))?;
    if missed == 0 { Ok(()) } else { Err(Error::NotFound { faults: missed }) }
}

/// Seed by seed in each of the cases: which shows it is not known before. A run that fails without the fault shows
/// nothing.
fn find<'c>(fault: Fault, cases: &'c [Case], seeds: Range<u64>, interrupt: &Interrupt) -> Option<Found<'c>> {
    let run = |planted, case: &Case, seed, keep| {
        planted::plant(planted);
        let outcome = case.plan.run(seed, keep);
        planted::plant(None);
        outcome
    };
    for seed in seeds {
        for case in cases {
            if interrupt.check().is_err() {
                return None;
            }
            if let Err(broken) = run(Some(fault), case, seed, Keep::default())
                && run(None, case, seed, Keep::default()).is_ok()
            {
                let on = run(Some(fault), case, seed, Keep { on_after_violations: true, ..Keep::default() });
                let peak = on.map_or(0.0, |figures| figures.usage.over_most);
                return Some(Found { case, broken, peak });
            }
        }
    }
    None
}

fn row(fault: Fault, found: Option<&Found<'_>>) -> [String; 8] {
    let (name, rule) = (fault.name().to_owned(), fault.rule().to_owned());
    let nothing = || "-".to_owned();
    let Some(Found { case, broken, peak }) = found else {
        return [name, rule, "not found".into(), nothing(), nothing(), nothing(), nothing(), nothing()];
    };
    [
        name,
        rule,
        case.scenario.clone(),
        word(&case.handover),
        broken.violation.invariant.to_owned(),
        broken.seed.to_string(),
        format!("{:.1}", broken.at.0 as f64 / 1000.0),
        if *peak > 0.0 { format!("{peak:.2}") } else { nothing() },
    ]
}
