//! The signals that stop the process.

use std::io;

use tokio::{
    signal::unix::{Signal, SignalKind, signal},
    sync::watch,
};

/// SIGTERM and Ctrl-C.
#[derive(Debug)]
pub struct StopSignals {
    terminate: Signal,
    interrupt: Signal,
}

impl StopSignals {
    /// Installs the handlers. From now on the signals do not end the process by themselves.
    pub fn new() -> io::Result<StopSignals> {
        Ok(StopSignals { terminate: signal(SignalKind::terminate())?, interrupt: signal(SignalKind::interrupt())? })
    }

    /// Waits for either signal.
    pub async fn received(&mut self) {
        tokio::select! {
            _ = self.terminate.recv() => {}
            _ = self.interrupt.recv() => {}
        }
    }
}

/// Waits until the server is stopped.
pub(crate) async fn until(mut stopped: watch::Receiver<bool>) {
    // An error means that the sender is gone, which counts as a stop.
    let _ = stopped.wait_for(|stop| *stop).await;
}
