//! What a run is asked to keep, what it measures, and what is said of a promise that was not kept.

use leaseway_core::{Millis, invariant::Violation};
use serde::Serialize;

use crate::{
    accounting::{UsageFigures, pool::PoolFigures},
    oracle::Deviation,
};

/// What a run is to keep besides what it measures.
#[derive(Debug, Clone, Copy, Default)]
pub struct RunOptions {
    /// What was wanted and had, second by second.
    pub curve: bool,
    /// What led to a violation.
    pub trace: bool,
    /// Goes on after violations, to see how bad it gets.
    pub continue_after_violation: bool,
}

/// What was measured of one seed.
#[derive(Debug, Clone, Serialize)]
pub struct Figures {
    /// It gives the same figures again, but for `took_s`.
    pub seed: u64,
    /// By the clients' own books.
    #[serde(flatten)]
    pub usage: UsageFigures,
    /// From what one server that knew all clients would give: every half minute, their average.
    pub apart_mean: f64,
    /// At the end.
    pub apart_at_end: Deviation,
    /// After the last fault, until all had what they were due, for good: in seconds.
    pub settled_s: Option<f64>,
    /// The same in refresh intervals of the root.
    pub settled_refreshes: Option<f64>,
    /// Clients that came without a lease while those of earlier masters might still be in use: how long they waited for
    /// nine tenths of what they were due, in seconds. Their median.
    pub newcomers_median_s: Option<f64>,
    /// The one that waited longest.
    pub newcomers_worst_s: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pool: Option<PoolFigures>,
    /// Requests, answers and hints, also those that were lost, by virtual time.
    pub messages_per_s: f64,
    /// So much happened.
    pub events: u64,
    pub took_s: f64,
    /// The same for the same seed, or something is wrong.
    pub digest: String,
    /// If it was to be kept.
    #[serde(skip)]
    pub curve: Vec<Point>,
}

/// What clients wanted and had, together.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Point {
    /// When that was.
    pub at: Millis,
    pub wants: f64,
    /// What they might use.
    pub had: f64,
    pub pool: Option<PoolPoint>,
}

/// How a pool stood at the time.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct PoolPoint {
    /// Really in use.
    pub used: f64,
    /// What might be connected.
    pub total: f64,
    /// Since the run began.
    pub kicked_out: u64,
}

/// A promise that was not kept.
#[derive(Debug, Clone)]
pub struct RunFailure {
    /// It breaks the same promise again.
    pub seed: u64,
    /// When that was.
    pub at: Millis,
    /// Which promise, and by how much.
    pub violation: Violation,
    /// What happened before, and how every node stood then, if that was asked for.
    pub trace: Vec<String>,
}
