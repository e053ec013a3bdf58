//! What a supervisor is told that asked to be (`NOTIFY_SOCKET`, as systemd sets it for `Type=notify`); others are told
//! nothing.

use sd_notify::NotifyState;

/// Connections are accepted.
pub(crate) fn ready() {
    tell(NotifyState::Ready);
}

/// The node has just answered. A supervisor with a watchdog (`WatchdogSec=`) restarts a server that says so no more.
pub(crate) fn alive() {
    tell(NotifyState::Watchdog);
}

/// No more connections are accepted; leases are handed over.
pub(crate) fn stopping() {
    tell(NotifyState::Stopping);
}

fn tell(state: NotifyState<'_>) {
    if let Err(error) = sd_notify::notify(&[state]) {
        tracing::debug!(%error, "the supervisor cannot be told");
    }
}
