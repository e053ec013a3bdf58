//! What is told of clients and limiters, as values.

use std::collections::BTreeMap;

use pyo3::prelude::*;

/// How a client gets on with its servers.
#[pyclass(frozen, get_all, module = "leaseway._native")]
pub(crate) struct Health {
    /// The server it asks at present: the master, as far as is known.
    server: String,
    /// The servers it tries when that one does not answer.
    endpoints: Vec<String>,
    /// Requests that have failed since one was answered.
    failures: u32,
    /// Why the last one that failed did so.
    last_error: Option<String>,
    /// The rates that owe something, and how much.
    debts: BTreeMap<String, u64>,
}

impl From<leaseway_client::Health> for Health {
    fn from(health: leaseway_client::Health) -> Health {
        let leaseway_client::Health { server, endpoints, failures, last_error, debts, .. } = health;
        Health { server, endpoints, failures, last_error, debts: debts.into_iter().collect() }
    }
}

#[pymethods]
impl Health {
    fn __repr__(&self) -> String {
        let Health { server, endpoints, failures, last_error, debts } = self;
        format!(
            "Health(server={server:?}, endpoints={endpoints:?}, failures={failures}, last_error={}, debts={debts:?})",
            last_error.as_ref().map_or_else(|| "None".to_owned(), |error| format!("{error:?}"))
        )
    }
}

/// What could be had at a rate.
#[pyclass(frozen, get_all, module = "leaseway._native")]
pub(crate) struct Standing {
    /// Permits that are there now, also if others wait for them; below zero so much is owed.
    available: f64,
    /// The most that there can be at once.
    burst: f64,
    /// Permits per second.
    capacity: f64,
}

impl From<leaseway_client::limiter::Standing> for Standing {
    fn from(standing: leaseway_client::limiter::Standing) -> Standing {
        let leaseway_client::limiter::Standing { available, burst, capacity } = standing;
        Standing { available, burst, capacity: capacity.get() }
    }
}

#[pymethods]
impl Standing {
    /// Seconds until so many could be had if no other caller takes any: 0.0 if they are there, None if that never
    /// comes.
    #[pyo3(signature = (n = 1))]
    fn ready_in(&self, n: i64) -> PyResult<Option<f64>> {
        let missing = f64::from(crate::arguments::permits(n)?) - self.available;
        Ok(match missing {
            missing if missing <= 0.0 => Some(0.0),
            missing if self.capacity > 0.0 => Some(missing / self.capacity),
            _ => None,
        })
    }

    fn __repr__(&self) -> String {
        let Standing { available, burst, capacity } = self;
        format!("Standing(available={available}, burst={burst}, capacity={capacity})")
    }
}
