//! Ctrl-C and SIGTERM. Long waits check here whether to stop, so that guards end child processes.

use std::{
    io,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    thread,
    time::{Duration, Instant},
};

use tokio::signal::unix::{Signal, SignalKind, signal};

use crate::common::error::Error;

/// How often waits look for an interrupt, and for what they wait for.
const POLL_INTERVAL: Duration = Duration::from_millis(25);

/// Set once a signal asks this process to stop.
#[derive(Clone, Default)]
pub(crate) struct Interrupt(Arc<AtomicBool>);

impl Interrupt {
    /// Watches for signals on a thread of its own, for callers that block.
    pub(crate) fn watch() -> Result<Interrupt, Error> {
        let interrupt = Interrupt::default();
        let flag = interrupt.clone();
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_io()
            .build()
            .map_err(Error::io("watch for signals"))?;
        let mut signals = runtime.block_on(async { Signals::new() }).map_err(Error::io("watch for signals"))?;
        thread::spawn(move || {
            runtime.block_on(signals.any());
            flag.0.store(true, Ordering::Relaxed);
        });
        Ok(interrupt)
    }

    pub(crate) fn check(&self) -> Result<(), Error> {
        if self.0.load(Ordering::Relaxed) { Err(Error::Interrupted) } else { Ok(()) }
    }

    /// Sleeps for one poll interval.
    pub(crate) fn poll(&self, meanwhile: impl FnMut()) -> Result<(), Error> {
        self.sleep_until(Instant::now() + POLL_INTERVAL, meanwhile)
    }

    /// Sleeps until `when` and calls `meanwhile` at every poll interval, unless interrupted.
    pub(crate) fn sleep_until(&self, when: Instant, mut meanwhile: impl FnMut()) -> Result<(), Error> {
        loop {
            self.check()?;
            meanwhile();
            let left = when.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Ok(());
            }
            thread::sleep(left.min(POLL_INTERVAL));
        }
    }
}

/// SIGINT or SIGTERM.
pub(crate) struct Signals {
    interrupt: Signal,
    terminate: Signal,
}

impl Signals {
    /// From now on these signals no longer end the process. Must be called inside a runtime.
    pub(crate) fn new() -> io::Result<Signals> {
        Ok(Signals { interrupt: signal(SignalKind::interrupt())?, terminate: signal(SignalKind::terminate())? })
    }

    pub(crate) async fn any(&mut self) {
        tokio::select! {
            _ = self.interrupt.recv() => {}
            _ = self.terminate.recv() => {}
        }
    }
}
