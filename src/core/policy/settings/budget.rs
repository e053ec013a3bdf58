//! Settings of BUDGET.

use std::sync::Arc;

use crate::policy::period::{PeriodLength, Periods};

/// A budget: an amount that may be spent in each period. The amount is the capacity of the resource.
#[derive(Debug, Clone, PartialEq)]
pub struct BudgetSettings {
    pub periods: Periods,
    /// The most that one holder gets in advance, as a fraction of what is left. A holder that crashes loses no more.
    pub slice_share: f64,
    /// Whether the amount is spread evenly over the period and divided fairly, instead of first come, first served.
    pub pace: bool,
}

impl Default for BudgetSettings {
    fn default() -> BudgetSettings {
        BudgetSettings { periods: Periods::default(), slice_share: BudgetSettings::DEFAULT_SLICE_SHARE, pace: false }
    }
}

impl BudgetSettings {
    pub const DEFAULT_SLICE_SHARE: f64 = 0.05;

    pub(crate) fn set_timezone(&mut self, name: &str) -> Option<()> {
        Periods::knows_zone(name).then(|| self.periods.timezone = Arc::from(name))
    }

    pub(crate) fn set_length(&mut self, text: &str) -> Option<()> {
        self.periods.length = PeriodLength::read(text)?;
        Some(())
    }
}
