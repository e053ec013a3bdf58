//! Blocking calls.

use std::time::Duration;

use tokio::{runtime::Handle, time::timeout};

use crate::{
    error::{CallError, LEASEWAY_TIMEOUT},
    settings,
};

/// Blocks on a call. After the timeout the call is cancelled and has taken nothing.
pub(crate) fn wait<T, E: Into<CallError>>(
    runtime: &Handle,
    seconds: f64,
    call: impl Future<Output = Result<T, E>>,
) -> Result<T, CallError> {
    let limit = span(seconds)?;
    let done = runtime.block_on(async {
        match limit {
            Some(limit) => timeout(limit, call).await.ok(),
            None => Some(call.await),
        }
    });
    let message = || format!("timed out after {seconds} s");
    done.ok_or_else(|| CallError { code: LEASEWAY_TIMEOUT, message: message() })?.map_err(Into::into)
}

/// The timeout; `None` if it is infinite.
fn span(seconds: f64) -> Result<Option<Duration>, CallError> {
    if seconds == f64::INFINITY {
        return Ok(None);
    }
    let wrong = || CallError::invalid(format!("timeout={seconds}: expected seconds, 0 or more, or INFINITY"));
    settings::seconds(seconds).ok_or_else(wrong).map(Some)
}
