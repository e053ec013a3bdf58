//! Options and results of a run.

use leaseway_core::{resource::invariant::Violation, types::Millis};
use serde::Serialize;

use crate::accounting::{UsageFigures, oracle::Deviation, pool::PoolFigures};

#[derive(Debug, Clone, Copy, Default)]
pub struct RunOptions {
    /// Record wants and usage every second.
    pub curve: bool,
    /// Record the events before a violation.
    pub trace: bool,
    /// Continue after violations, to measure their extent.
    pub continue_after_violation: bool,
}

#[derive(Debug, Clone, Serialize)]
pub struct Figures {
    pub seed: u64,
    /// Usage, as measured at the clients.
    #[serde(flatten)]
    pub usage: UsageFigures,
    /// Mean deviation of clients from their dues according to the oracle, in percent, sampled every half minute.
    pub apart_mean: f64,
    pub apart_at_end: Deviation,
    /// Seconds from the end of faults until all clients had their due and kept it.
    pub settled_s: Option<f64>,
    /// `settled_s` in refresh intervals of the root.
    pub settled_refreshes: Option<f64>,
    /// Median waiting time of newcomers: seconds until a client that arrived without a lease, while leases of an
    /// earlier master were live, had nine tenths of its due.
    pub newcomers_median_s: Option<f64>,
    pub newcomers_worst_s: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pool: Option<PoolFigures>,
    /// Requests, answers and hints per virtual second, including lost ones.
    pub messages_per_s: f64,
    pub events: u64,
    /// Leases that were renewed by streams without a round.
    pub renewals: u64,
    /// Wall-clock duration of the run.
    pub took_s: f64,
    /// A hash of the run, which depends on the scenario and the seed only.
    pub digest: String,
    #[serde(skip)]
    pub curve: Vec<Point>,
}

/// Sums over all clients at one time.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Point {
    pub at: Millis,
    pub wants: f64,
    pub had: f64,
    pub pool: Option<PoolPoint>,
}

/// The state of a pool at one time.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct PoolPoint {
    pub used: f64,
    /// The total capacity of the clients that may be connected.
    pub total: f64,
    pub kicked_out: u64,
}

/// A run that violated an invariant.
#[derive(Debug, Clone)]
pub struct RunFailure {
    pub seed: u64,
    pub at: Millis,
    pub violation: Violation,
    /// The events before the violation and the state of every node, if recorded.
    pub trace: Vec<String>,
}
