//! Notifies systemd, or another supervisor that sets `NOTIFY_SOCKET`.

use sd_notify::NotifyState;

/// Connections are accepted.
pub(crate) fn ready() {
    tell(NotifyState::Ready);
}

/// The node makes progress. A watchdog (`WatchdogSec=`) restarts a server that stops reporting this.
pub(crate) fn alive() {
    tell(NotifyState::Watchdog);
}

/// The server is stopping.
pub(crate) fn stopping() {
    tell(NotifyState::Stopping);
}

fn tell(state: NotifyState<'_>) {
    if let Err(error) = sd_notify::notify(&[state]) {
        tracing::debug!(%error, "the supervisor cannot be told");
    }
}
