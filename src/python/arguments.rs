//! What Python's callers pass, checked: a number out of its bounds is a ValueError that says which, and what is
//! expected.

use std::time::Duration;

use leaseway_client::Mode;
use pyo3::{exceptions::PyValueError, prelude::*};

/// Longer makes no difference to any caller, and adds up with any moment.
const LONGEST: Duration = Duration::from_secs(100 * 365 * 86_400);

/// Permits that are asked for.
pub(crate) fn permits(n: i64) -> PyResult<u32> {
    let wrong = |_| PyValueError::new_err(format!("n={n}: expected a whole number from 0 to {}", u32::MAX));
    u32::try_from(n).map_err(wrong)
}

/// Units that were used.
pub(crate) fn units(name: &str, n: i64) -> PyResult<u64> {
    u64::try_from(n).map_err(|_| PyValueError::new_err(format!("{name}={n}: expected a whole number, 0 or more")))
}

/// A span of time.
pub(crate) fn seconds(name: &str, seconds: f64) -> PyResult<Duration> {
    if seconds.is_nan() || seconds < 0.0 {
        return Err(PyValueError::new_err(format!("{name}={seconds}: expected seconds, 0 or more")));
    }
    Ok(Duration::try_from_secs_f64(seconds).unwrap_or(LONGEST).min(LONGEST))
}

/// As `seconds`, of what may be left out.
pub(crate) fn maybe_seconds(name: &str, given: Option<f64>) -> PyResult<Option<Duration>> {
    given.map(|given| seconds(name, given)).transpose()
}

/// What is used when leases have ended.
pub(crate) fn mode(name: &str) -> PyResult<Mode> {
    match name {
        "safe" => Ok(Mode::Safe),
        "pessimistic" => Ok(Mode::Pessimistic),
        "optimistic" => Ok(Mode::Optimistic),
        _ => Err(PyValueError::new_err(format!("mode={name:?}: expected \"safe\", \"pessimistic\" or \"optimistic\""))),
    }
}
