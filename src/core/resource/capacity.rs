//! The capacity of a resource: the template or the supply of a parent, an operator's override, and load reports of the
//! protected resource.

use std::sync::Arc;

use crate::{
    planted::{self, Fault},
    policy::{
        overrides::{Load, Override},
        settings::Settings,
    },
    pool::MOVES_PER_REQUEST,
    resource::Resource,
    types::{Amount, Millis},
};

/// A report of the protected resource about the load that it can serve now.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct LoadReport {
    /// An amount, or a part of the template's capacity.
    pub load: Load,
    /// When the report expires; absent: with the next one. After that the template counts again.
    pub until: Option<Millis>,
}

/// Why a report of load is refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum LoadError {
    #[error(
        "the capacity may not be moved by reports; the parameters `capacity_floor` and `capacity_ceiling` allow it"
    )]
    NotAllowed,
    #[error("the capacity of this resource is lent by a parent; report its load where the tree begins")]
    HasParent,
    #[error("the factor must be finite and not negative")]
    BadFactor,
}

#[derive(Debug, Clone, PartialEq)]
pub(super) struct CapacityInputs {
    /// Below a parent: what it lends.
    pub(super) template: Amount,
    pub(super) overridden: Option<Arc<Override>>,
    report: Option<LoadReport>,
}

impl CapacityInputs {
    pub(super) fn new(template: Amount) -> CapacityInputs {
        CapacityInputs { template, overridden: None, report: None }
    }

    /// The template's capacity, or what was set in its place.
    pub(super) fn base(&self) -> Amount {
        self.overridden.as_ref().map_or(self.template, |overridden| overridden.instead_of(self.template))
    }

    /// The capacity after the override and the report of load.
    pub(super) fn capacity(&self, settings: &Settings) -> Amount {
        let base = self.base();
        let Some(report) = self.report else { return base };
        let reported = match report.load {
            Load::Capacity(capacity) => capacity,
            Load::Factor(factor) => Amount::clamped(base.get() * factor),
        };
        let (floor, ceiling) = self.bounds(settings);
        reported.max(floor).min(ceiling)
    }

    fn bounds(&self, settings: &Settings) -> (Amount, Amount) {
        let base = self.base();
        // A report does not raise what an override has lowered.
        let most = if base < self.template { base } else { Amount::MAX };
        let (floor, ceiling) = settings.load_bounds;
        (floor.unwrap_or(base).min(most), ceiling.unwrap_or(base).min(most))
    }
}

/// An override, as a resource sees it.
#[derive(Debug, Clone, PartialEq)]
pub struct Overridden {
    pub by: Arc<Override>,
    pub capacity: Amount,
    /// The capacity without it: what the template says or the parent lends.
    pub template: Amount,
}

impl Overridden {
    pub fn sentence(&self, now: Millis) -> String {
        self.by.sentence(self.capacity, self.template, now)
    }
}

impl Resource {
    /// Applies a report of load. Returns the capacity in force now, which lies within the bounds of the template. The
    /// report is forgotten with this master.
    pub fn report_load(&mut self, now: Millis, report: LoadReport) -> Result<Amount, LoadError> {
        if self.has_parent() {
            return Err(LoadError::HasParent);
        }
        if self.settings.load_bounds == (None, None) {
            return Err(LoadError::NotAllowed);
        }
        if matches!(report.load, Load::Factor(factor) if !factor.is_finite() || factor < 0.0) {
            return Err(LoadError::BadFactor);
        }
        self.step_pool(now, MOVES_PER_REQUEST);
        self.capacity_inputs.report = Some(report);
        self.update_capacity();
        self.balance_pool(now, 1);
        Ok(self.settings.capacity)
    }

    /// The capacity by the report in force, and when that expires.
    pub fn reported_load(&self) -> Option<(Amount, Option<Millis>)> {
        // A report of exactly the template's capacity takes an earlier one back.
        let report = self.capacity_inputs.report.filter(|report| report.load != Load::Factor(1.0))?;
        Some((self.settings.capacity, report.until))
    }

    /// The least and the most that a report of load may make of the capacity.
    pub fn load_bounds(&self) -> (Amount, Amount) {
        self.capacity_inputs.bounds(&self.settings)
    }

    pub(super) fn update_capacity(&mut self) {
        let capacity = self.available();
        if capacity != self.settings.capacity {
            self.set_capacity(capacity);
        }
    }

    /// Applies the report in force to new settings.
    pub(super) fn apply_template(&mut self, settings: &mut Settings) {
        self.capacity_inputs.template = settings.capacity;
        settings.capacity = self.capacity_inputs.capacity(settings);
    }

    pub(super) fn expire_report(&mut self, now: Millis) {
        if self.load_reported_until().is_some_and(|until| until <= now) {
            self.capacity_inputs.report = None;
            self.update_capacity();
        }
    }

    pub(super) fn load_reported_until(&self) -> Option<Millis> {
        self.capacity_inputs.report.and_then(|report| report.until)
    }

    /// Sets or removes an override. As with other settings leases stay, and what is cut comes free when they end.
    pub fn set_override(&mut self, now: Millis, overridden: Option<Arc<Override>>) {
        if self.capacity_inputs.overridden == overridden {
            return;
        }
        self.capacity_inputs.overridden = overridden;
        let before = self.settings.capacity;
        self.update_capacity();
        if planted::is(Fault::CutLowersUnclaimed) {
            let change = self.book.cap_unclaimed(self.settings.capacity);
            self.apply_change(change);
        }
        if self.book.has_inherited() && self.is_learning(now) && !planted::is(Fault::RaiseIsFree) {
            // Earlier masters may have given out the difference.
            self.raise_unclaimed(before);
        }
    }

    pub fn overridden(&self) -> Option<Overridden> {
        let by = Arc::clone(self.capacity_inputs.overridden.as_ref()?);
        Some(Overridden { by, capacity: self.available(), template: self.capacity_inputs.template })
    }

    /// The capacity to divide. An override never raises what a parent lends.
    pub(super) fn available(&self) -> Amount {
        match self.has_parent() {
            true if planted::is(Fault::OverrideRaisesLent) => self.capacity_inputs.base(),
            true => self.capacity_inputs.base().min(self.capacity_inputs.template),
            false => self.capacity_inputs.capacity(&self.settings),
        }
    }
}
