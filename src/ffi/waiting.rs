//! Calls that may have to wait, in the caller's thread.

use std::time::Duration;

use tokio::{runtime::Handle, time::timeout};

use crate::{
    fault::{Fault, LEASEWAY_TIMEOUT},
    settings,
};

/// What comes of a call, or that time is up: then it is given up, and has taken nothing.
pub(crate) fn wait<T, E: Into<Fault>>(
    runtime: &Handle,
    seconds: f64,
    call: impl Future<Output = Result<T, E>>,
) -> Result<T, Fault> {
    let limit = span(seconds)?;
    let done = runtime.block_on(async {
        match limit {
            Some(limit) => timeout(limit, call).await.ok(),
            None => Some(call.await),
        }
    });
    let message = || format!("time is up after {seconds} s");
    done.ok_or_else(|| Fault { code: LEASEWAY_TIMEOUT, message: message() })?.map_err(Into::into)
}

/// For how long to wait, if not as long as it takes.
fn span(seconds: f64) -> Result<Option<Duration>, Fault> {
    if seconds == f64::INFINITY {
        return Ok(None);
    }
    let wrong = || Fault::invalid(format!("timeout={seconds}: expected seconds, 0 or more, or INFINITY"));
    settings::seconds(seconds).ok_or_else(wrong).map(Some)
}
