//! What an operation costs at one limit.

use std::sync::Arc;

use leaseway_client::{Budget, Gauge, Rate};
use pyo3::prelude::*;

use crate::{
    arguments::{amount, permits, whole},
    error::ClientError,
    handle::Handle,
};

/// What an operation costs at one limit: made by `Rate.of`, `Gauge.of` and `Budget.of`.
#[pyclass(frozen, module = "leaseway._native")]
pub(crate) struct Cost {
    limit: AnyLimit,
    number: f64,
}

/// A rate, a gauge or a budget, which a forked process opens anew.
#[derive(Clone)]
pub(crate) enum AnyLimit {
    Rate(Arc<Handle<Rate>>),
    Gauge(Arc<Handle<Gauge>>),
    Budget(Arc<Handle<Budget>>),
}

/// The numbers that a limit takes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum LimitKind {
    /// A rate or a gauge: whole numbers.
    Permits,
    Budget,
}

impl LimitKind {
    /// Checks a number of used units.
    pub(crate) fn check(self, name: &str, number: f64) -> PyResult<()> {
        match self {
            LimitKind::Permits => whole(name, number),
            LimitKind::Budget => amount(name, number),
        }
    }
}

impl Cost {
    pub(crate) fn new(limit: AnyLimit, number: f64) -> PyResult<Cost> {
        let cost = Cost { limit, number };
        match cost.kind() {
            // Larger integers are rounded, but stay out of range.
            LimitKind::Permits => permits(number as i64).map(drop)?,
            LimitKind::Budget => amount("amount", number)?,
        }
        Ok(cost)
    }

    pub(crate) fn of(limit: AnyLimit, n: i64) -> PyResult<Cost> {
        Ok(Cost { limit, number: permits(n)?.into() })
    }

    pub(crate) fn open(&self) -> Result<leaseway_client::Cost, ClientError> {
        Ok(match &self.limit {
            AnyLimit::Rate(rate) => rate.limiter()?.of(self.number as u32),
            AnyLimit::Gauge(gauge) => gauge.limiter()?.of(self.number as u32),
            AnyLimit::Budget(budget) => budget.limiter()?.of(self.number),
        })
    }

    pub(crate) fn id(&self) -> &str {
        match &self.limit {
            AnyLimit::Rate(rate) => rate.id(),
            AnyLimit::Gauge(gauge) => gauge.id(),
            AnyLimit::Budget(budget) => budget.id(),
        }
    }

    pub(crate) fn limit(&self) -> AnyLimit {
        self.limit.clone()
    }

    pub(crate) fn kind(&self) -> LimitKind {
        match &self.limit {
            AnyLimit::Rate(_) | AnyLimit::Gauge(_) => LimitKind::Permits,
            AnyLimit::Budget(_) => LimitKind::Budget,
        }
    }

    pub(crate) fn number(&self) -> f64 {
        self.number
    }
}

#[pymethods]
impl Cost {
    fn __repr__(&self) -> String {
        format!("Cost({:?}, {})", self.id(), self.number)
    }
}
