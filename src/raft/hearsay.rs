//! What other peers say, as long as this one hears from no master itself.

use std::sync::{Mutex, MutexGuard, PoisonError};

use crate::{absence::Absence, master_lease::PeerAddress};

/// What the others say about the master, and about the place of this peer.
#[derive(Debug, Default)]
pub(crate) struct Hearsay(Mutex<HearsayState>);

#[derive(Debug, Default)]
struct HearsayState {
    master: Option<PeerAddress>,
    absence: Option<Absence>,
    /// This peer hears from the master, or is it.
    has_heard_itself: bool,
}

impl Hearsay {
    fn lock(&self) -> MutexGuard<'_, HearsayState> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn master(&self) -> Option<PeerAddress> {
        self.lock().master.clone()
    }

    pub(crate) fn set_master(&self, master: Option<PeerAddress>) {
        self.lock().master = master;
    }

    pub(crate) fn absence(&self) -> Option<Absence> {
        self.lock().absence.clone()
    }

    pub(crate) fn has_heard_itself(&self) -> bool {
        self.lock().has_heard_itself
    }

    pub(crate) fn set_heard_itself(&self, heard: bool) {
        self.lock().has_heard_itself = heard;
    }

    /// Logs what has changed.
    pub(crate) fn set_absence(&self, absence: Option<Absence>) {
        let before = std::mem::replace(&mut self.lock().absence, absence.clone());
        match absence {
            Some(absence) if before.as_ref().map(Absence::reason) != Some(absence.reason()) => {
                tracing::error!(reason = absence.reason(), "{absence}");
            }
            None if before.is_some() => tracing::info!("this peer takes part again"),
            _ => {}
        }
    }
}
