//! Notifies systemd, or another supervisor that sets `NOTIFY_SOCKET`.

use sd_notify::NotifyState;

/// Reports that connections are accepted.
pub(crate) fn ready() {
    tell(NotifyState::Ready);
}

/// Reports that the node makes progress. A watchdog (`WatchdogSec=`) restarts a server that stops reporting this.
pub(crate) fn alive() {
    tell(NotifyState::Watchdog);
}

/// Reports that the server is stopping.
pub(crate) fn stopping() {
    tell(NotifyState::Stopping);
}

fn tell(state: NotifyState<'_>) {
    if let Err(error) = sd_notify::notify(&[state]) {
        tracing::debug!(%error, "cannot notify the supervisor");
    }
}
