//! What an operation costs at one limit.

use std::sync::Arc;

use leaseway_client::{Gauge, Rate};
use pyo3::prelude::*;

use crate::{arguments::permits, error::ClientError, handle::Handle};

/// What an operation costs at one limit: made by `Rate.of` and `Gauge.of`.
#[pyclass(frozen, module = "leaseway._native")]
pub(crate) struct Cost {
    limit: AnyLimit,
    permits: u32,
}

/// A rate or a gauge, which a forked process opens anew.
#[derive(Clone)]
pub(crate) enum AnyLimit {
    Rate(Arc<Handle<Rate>>),
    Gauge(Arc<Handle<Gauge>>),
}

impl Cost {
    pub(crate) fn of(limit: AnyLimit, n: i64) -> PyResult<Cost> {
        Ok(Cost { limit, permits: permits(n)? })
    }

    pub(crate) fn open(&self) -> Result<leaseway_client::Cost, ClientError> {
        Ok(match &self.limit {
            AnyLimit::Rate(rate) => rate.limiter()?.of(self.permits),
            AnyLimit::Gauge(gauge) => gauge.limiter()?.of(self.permits),
        })
    }

    pub(crate) fn id(&self) -> &str {
        match &self.limit {
            AnyLimit::Rate(rate) => rate.id(),
            AnyLimit::Gauge(gauge) => gauge.id(),
        }
    }

    pub(crate) fn limit(&self) -> AnyLimit {
        self.limit.clone()
    }

    pub(crate) fn permits(&self) -> u32 {
        self.permits
    }
}

#[pymethods]
impl Cost {
    fn __repr__(&self) -> String {
        format!("Cost({:?}, {})", self.id(), self.permits)
    }
}
