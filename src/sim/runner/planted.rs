//! Mutation testing of the simulation: leaves out a rule of the protocol, and searches for a run that violates an
//! invariant.

use std::ops::Range;

pub use leaseway_core::planted::Fault;
use leaseway_core::planted::plant;

use crate::{
    accounting::figures::{Figures, RunFailure, RunOptions},
    runner::Observer,
    scenario::{Handover, Scenario, built_in, plan::Plan},
};

/// The scenarios to search, with the knowledge of new masters.
const CASES: [(&str, Handover); 24] = [
    ("cramped", Handover::Promises),
    ("cramped", Handover::Learning),
    ("cramped_mixed", Handover::Promises),
    ("cramped_plain", Handover::Promises),
    ("cramped_alike", Handover::Promises),
    ("cramped_tree", Handover::Promises),
    ("cramped_tree", Handover::Learning),
    ("cramped_groups", Handover::Promises),
    ("cramped_nodes", Handover::Promises),
    ("cramped_middle", Handover::Promises),
    ("cramped_overrides", Handover::Promises),
    ("cramped_overrides", Handover::Learning),
    ("cramped_streams", Handover::Promises),
    ("cramped_envoys", Handover::Promises),
    ("ended", Handover::Promises),
    ("ended_tree", Handover::Promises),
    ("random", Handover::Promises),
    ("random", Handover::Learning),
    ("random_overrides", Handover::Promises),
    ("lease_cut", Handover::Promises),
    ("handover", Handover::Promises),
    ("cramped_budget", Handover::Promises),
    ("cramped_budget_tree", Handover::Promises),
    ("ended_budget", Handover::Promises),
];

pub struct Found {
    pub scenario: String,
    /// The knowledge of new masters.
    pub handover: Handover,
    pub broken: RunFailure,
    /// Peak usage in percent of the capacity, if the run continues after the violation.
    pub peak: f64,
}

pub struct Search {
    cases: Vec<(String, Plan)>,
}

impl Search {
    pub fn new() -> Result<Search, String> {
        let case = |(name, handover)| {
            let text = built_in(name).ok_or_else(|| format!("there is no scenario `{name}`"))?;
            let scenario = Scenario { handover, ..Scenario::parse(name, text)? };
            Ok((name.to_owned(), Plan::new(scenario)?))
        };
        Ok(Search { cases: CASES.into_iter().map(case).collect::<Result<_, String>>()? })
    }

    pub fn among(cases: Vec<(String, Plan)>) -> Search {
        Search { cases }
    }

    /// Runs all scenarios with each seed, because it is unknown which scenario reveals the fault. A run that also fails
    /// without the fault does not count.
    pub fn find(&self, fault: Fault, seeds: Range<u64>, observer: &impl Observer) -> Option<Found> {
        for seed in seeds {
            for (scenario, plan) in &self.cases {
                if !observer.should_continue() {
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
                observer.run_ended();
            }
        }
        None
    }
}

fn run(planted: Option<Fault>, plan: &Plan, seed: u64, options: RunOptions) -> Result<Figures, RunFailure> {
    plant(planted);
    let outcome = plan.run(seed, options);
    plant(None);
    outcome
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The books of the clients show each of them, most within ten seeds.
    #[test]
    fn faults_of_budgets_are_found() {
        let mut search = Search::new().expect("the scenarios come with the simulator");
        search.cases.retain(|(name, _)| name.contains("budget"));
        for fault in [
            Fault::ReturnCountsTwice,
            Fault::ExpiryFrees,
            Fault::SlicesOutlastPeriods,
            Fault::BudgetBoundFollows,
            Fault::SharesIncarnations,
            Fault::CarriesWhatWasSpent,
        ] {
            let found = search.find(fault, 0..60, &|| true);
            assert!(found.is_some(), "{} is not found", fault.name());
        }
    }

    /// Faults of streams of renewals.
    #[test]
    fn faults_of_streams_are_found() {
        let scenario = Scenario::parse("cramped_streams", built_in("cramped_streams").expect("it is built in"));
        let plan = Plan::new(scenario.expect("it is valid")).expect("it is valid");
        let search = Search::among(vec![("cramped_streams".to_owned(), plan)]);
        for fault in [Fault::RenewsWhatItLacks, Fault::AppliesDeltaTwice, Fault::RenewsForOlderMaster] {
            let found = search.find(fault, 0..60, &|| true);
            assert!(found.is_some(), "{} is not found", fault.name());
        }
    }

    /// Faults of the cluster clock and of early expiry.
    #[test]
    fn a_fast_cluster_clock_is_found() {
        let search = Search::new().expect("the scenarios come with the simulator");
        for fault in [Fault::ClusterClockJumps, Fault::ClusterClockIsFast, Fault::PartIgnoresGrants] {
            let found = search.find(fault, 0..40, &|| true);
            assert!(found.is_some(), "{} is not found", fault.name());
        }
    }
}
