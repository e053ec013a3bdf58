//! What a holder says about itself besides its kind. One byte, because records are full.

use super::{Holder, Ledger};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum HolderMode {
    Plain,
    /// A child node that knows terms.
    HeedsTerms,
    /// A client that limits others with its lease.
    Gateway,
}

impl Holder {
    pub(crate) fn heeds_terms(&self) -> bool {
        self.mode == HolderMode::HeedsTerms
    }

    pub(crate) fn mode(&self) -> HolderMode {
        self.mode
    }
}

impl Ledger {
    /// Sets the mode of a holder.
    pub(crate) fn set_mode(&mut self, slot: u32, mode: HolderMode) {
        let holder = &mut self.holders[slot];
        let before = std::mem::replace(&mut holder.mode, mode);
        match (before == HolderMode::Gateway, mode == HolderMode::Gateway) {
            (false, true) => {
                self.sums.gateways += 1;
                self.sums.held_by_gateways += holder.counted.held;
            }
            (true, false) => {
                self.sums.gateways -= 1;
                self.sums.held_by_gateways -= holder.counted.held;
            }
            _ => {}
        }
    }
}
