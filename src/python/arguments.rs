//! Checks of arguments: a number out of range is a ValueError that names the argument and the range.

use std::time::Duration;

use leaseway_client::Mode;
use pyo3::{exceptions::PyValueError, prelude::*};

/// Longer timeouts are cut to this, so that they can be added to any time.
const MAX_DURATION: Duration = Duration::from_secs(100 * 365 * 86_400);

/// A number of permits.
pub(crate) fn permits(n: i64) -> PyResult<u32> {
    let wrong = |_| PyValueError::new_err(format!("n={n}: expected a whole number from 0 to {}", u32::MAX));
    u32::try_from(n).map_err(wrong)
}

/// A number of units used.
pub(crate) fn units(name: &str, n: i64) -> PyResult<u64> {
    u64::try_from(n).map_err(|_| PyValueError::new_err(format!("{name}={n}: expected a whole number, 0 or more")))
}

/// As `units`, for a number that may be a float: it has to be whole.
pub(crate) fn whole(name: &str, n: f64) -> PyResult<()> {
    let wrong = || PyValueError::new_err(format!("{name}={n}: expected a whole number, 0 or more"));
    if n >= 0.0 && n.fract() == 0.0 { Ok(()) } else { Err(wrong()) }
}

/// An amount of a budget.
pub(crate) fn amount(name: &str, amount: f64) -> PyResult<()> {
    let wrong = || PyValueError::new_err(format!("{name}={amount}: expected a number from 0 to 1e15"));
    if (0.0..=1e15).contains(&amount) { Ok(()) } else { Err(wrong()) }
}

/// A duration in seconds.
pub(crate) fn seconds(name: &str, seconds: f64) -> PyResult<Duration> {
    if seconds.is_nan() || seconds < 0.0 {
        return Err(PyValueError::new_err(format!("{name}={seconds}: expected seconds, 0 or more")));
    }
    Ok(Duration::try_from_secs_f64(seconds).unwrap_or(MAX_DURATION).min(MAX_DURATION))
}

/// As `seconds`, for an optional argument.
pub(crate) fn maybe_seconds(name: &str, given: Option<f64>) -> PyResult<Option<Duration>> {
    given.map(|given| seconds(name, given)).transpose()
}

/// A mode by its name.
pub(crate) fn mode(name: &str) -> PyResult<Mode> {
    match name {
        "safe" => Ok(Mode::Safe),
        "pessimistic" => Ok(Mode::Pessimistic),
        "optimistic" => Ok(Mode::Optimistic),
        _ => Err(PyValueError::new_err(format!("mode={name:?}: expected \"safe\", \"pessimistic\" or \"optimistic\""))),
    }
}
