//! What an operator has set in place of the template's capacity. See [`crate::policy::overrides`].

use std::sync::Arc;

use super::Resource;
use crate::{
    planted::{self, Fault},
    policy::overrides::Override,
    types::{amount::Amount, time::Millis},
};

/// An override, as a resource sees it.
#[derive(Debug, Clone, PartialEq)]
pub struct Overridden {
    pub by: Arc<Override>,
    /// What there is by it.
    pub capacity: Amount,
    /// What there would be: what the template says, or the parent lends.
    pub template: Amount,
}

impl Overridden {
    /// In a sentence.
    pub fn sentence(&self, now: Millis) -> String {
        self.by.sentence(self.capacity, self.template, now)
    }
}

impl Resource {
    /// Puts what an operator has set in force, or the template again. As with other settings leases stay, and what is
    /// cut is free when they end.
    pub fn set_override(&mut self, now: Millis, overridden: Option<Arc<Override>>) {
        if self.capacity_inputs.overridden == overridden {
            return;
        }
        self.capacity_inputs.overridden = overridden;
        let before = self.settings.capacity;
        self.measure();
        if planted::is(Fault::CutLowersEstate) {
            self.cap_unclaimed();
        }
        if self.has_inherited() && self.is_learning(now) && !planted::is(Fault::RaiseIsFree) {
            // Earlier masters may have given out what there is more now.
            self.raise_unclaimed(before);
        }
    }

    /// What is in force in place of the template's capacity.
    pub fn overridden(&self) -> Option<Overridden> {
        let by = Arc::clone(self.capacity_inputs.overridden.as_ref()?);
        Some(Overridden { by, capacity: self.available(), template: self.capacity_inputs.template })
    }

    /// What there is to divide. What a parent lends is never raised.
    pub(super) fn available(&self) -> Amount {
        match self.has_parent() {
            true if planted::is(Fault::OverrideRaisesLent) => self.capacity_inputs.base(),
            true => self.capacity_inputs.base().min(self.capacity_inputs.template),
            false => self.capacity_inputs.capacity(&self.settings),
        }
    }
}
