//! What other peers say, as long as this one hears from no master itself.

use std::sync::{Mutex, MutexGuard, PoisonError};

use crate::{ineligible::Ineligible, master_lease::PeerAddress};

/// What the others say about the master, and about the place of this peer.
#[derive(Debug, Default)]
pub(crate) struct Discovered(Mutex<DiscoveredState>);

#[derive(Debug, Default)]
struct DiscoveredState {
    master: Option<PeerAddress>,
    ineligible: Option<Ineligible>,
    /// This peer hears from the master, or is it.
    hears_master: bool,
}

impl Discovered {
    fn lock(&self) -> MutexGuard<'_, DiscoveredState> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn master(&self) -> Option<PeerAddress> {
        self.lock().master.clone()
    }

    pub(crate) fn set_master(&self, master: Option<PeerAddress>) {
        self.lock().master = master;
    }

    pub(crate) fn ineligible(&self) -> Option<Ineligible> {
        self.lock().ineligible.clone()
    }

    pub(crate) fn hears_master(&self) -> bool {
        self.lock().hears_master
    }

    pub(crate) fn set_hears_master(&self, heard: bool) {
        self.lock().hears_master = heard;
    }

    /// Logs what has changed.
    pub(crate) fn set_ineligible(&self, ineligible: Option<Ineligible>) {
        let before = std::mem::replace(&mut self.lock().ineligible, ineligible.clone());
        match ineligible {
            Some(ineligible) if before.as_ref().map(Ineligible::reason) != Some(ineligible.reason()) => {
                tracing::error!(reason = ineligible.reason(), "{ineligible}");
            }
            None if before.is_some() => tracing::info!("this peer takes part again"),
            _ => {}
        }
    }
}
