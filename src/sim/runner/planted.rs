//! Can the simulation fail? Leaves a rule of the protocol out, and looks for a run that shows it.

use std::ops::Range;

pub use leaseway_core::planted::Fault;
use leaseway_core::planted::plant;

use crate::{
    accounting::figures::{Figures, RunFailure, RunOptions},
    runner::Observer,
    scenario::{Handover, Scenario, built_in, plan::Plan},
};

/// What is tried: everything that goes wrong, with a new master that knows and with one that listens, with few holders
/// and with many, with leases that change their lengths, and with one that lies.
const CASES: [(&str, Handover); 19] = [
    ("cramped", Handover::Promises),
    ("cramped", Handover::Learning),
    ("cramped_mixed", Handover::Promises),
    ("cramped_plain", Handover::Promises),
    ("cramped_alike", Handover::Promises),
    ("cramped_tree", Handover::Promises),
    ("cramped_tree", Handover::Learning),
    ("cramped_nodes", Handover::Promises),
    ("cramped_middle", Handover::Promises),
    ("cramped_overrides", Handover::Promises),
    ("cramped_overrides", Handover::Learning),
    ("cramped_envoys", Handover::Promises),
    ("ended", Handover::Promises),
    ("ended_tree", Handover::Promises),
    ("random", Handover::Promises),
    ("random", Handover::Learning),
    ("random_overrides", Handover::Promises),
    ("lease_cut", Handover::Promises),
    ("handover", Handover::Promises),
];

/// A fault that was found.
pub struct Found {
    pub scenario: String,
    /// What new masters knew in it.
    pub handover: Handover,
    /// The promise that it broke.
    pub broken: RunFailure,
    /// How much clients had at the most if that is let run on, in per cent of the capacity.
    pub peak: f64,
}

/// Looks for each fault in the same cases.
pub struct Search {
    cases: Vec<(String, Plan)>,
}

impl Search {
    /// The cases are scenarios that come with the simulator.
    pub fn new() -> Result<Search, String> {
        let case = |(name, handover)| {
            let text = built_in(name).ok_or_else(|| format!("there is no scenario `{name}`"))?;
            let scenario = Scenario { handover, ..Scenario::parse(name, text)? };
            Ok((name.to_owned(), Plan::new(scenario)?))
        };
        Ok(Search { cases: CASES.into_iter().map(case).collect::<Result<_, String>>()? })
    }

    /// The cases are these, each with its name.
    pub fn among(cases: Vec<(String, Plan)>) -> Search {
        Search { cases }
    }

    /// Seed by seed in each of the cases: which shows it is not known before. A run that fails without the fault shows
    /// nothing.
    pub fn find(&self, fault: Fault, seeds: Range<u64>, observer: &impl Observer) -> Option<Found> {
        for seed in seeds {
            for (scenario, plan) in &self.cases {
                if !observer.goes_on() {
                    return None;
                }
                if let Err(broken) = run(Some(fault), plan, seed, RunOptions::default())
                    && run(None, plan, seed, RunOptions::default()).is_ok()
                {
                    let on = run(
                        Some(fault),
                        plan,
                        seed,
                        RunOptions { continue_after_violation: true, ..RunOptions::default() },
                    );
                    let peak = on.map_or(0.0, |figures| figures.usage.over_most);
                    return Some(Found { scenario: scenario.clone(), handover: plan.scenario.handover, broken, peak });
                }
                observer.ran();
            }
        }
        None
    }
}

fn run(planted: Option<Fault>, plan: &Plan, seed: u64, keep: RunOptions) -> Result<Figures, RunFailure> {
    plant(planted);
    let outcome = plan.run(seed, keep);
    plant(None);
    outcome
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Faults of the clock of the cluster, and of what ends by it before the rest.
    #[test]
    fn a_clock_of_the_cluster_that_is_early_is_found() {
        let search = Search::new().expect("the scenarios come with the simulator");
        for fault in [Fault::ClusterClockJumps, Fault::ClusterClockIsFast, Fault::PartIgnoresGrants] {
            let found = search.find(fault, 0..40, &|| true);
            let found = found.unwrap_or_else(|| panic!("{} is not found", fault.name()));
            println!("{}: {} in {}", fault.name(), found.broken.violation.invariant, found.scenario);
        }
    }
}
