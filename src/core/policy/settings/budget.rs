//! Settings of BUDGET.

use std::{fmt, sync::Arc};

use crate::{
    policy::period::{PeriodLength, Periods},
    types::Amount,
};

/// A budget: an amount that may be spent in each period. The amount is the capacity of the resource.
#[derive(Debug, Clone, PartialEq)]
pub struct BudgetSettings {
    pub periods: Periods,
    /// The most that one holder gets in advance, as a fraction of what is left. A holder that crashes loses no more.
    pub slice_share: f64,
    /// Whether the amount is spread evenly over the period and divided fairly, instead of first come, first served.
    pub pace: bool,
    /// The most of what a period leaves over that is added to the amount of the next.
    pub carry_over: Amount,
    /// An event reports when so many percent of the amount are spent.
    pub thresholds: Thresholds,
}

/// Percentages from 1 to 100, in ascending order.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Thresholds(Vec<u8>);

impl Default for BudgetSettings {
    fn default() -> BudgetSettings {
        BudgetSettings {
            periods: Periods::default(),
            slice_share: BudgetSettings::DEFAULT_SLICE_SHARE,
            pace: false,
            carry_over: Amount::ZERO,
            thresholds: Thresholds::default(),
        }
    }
}

impl BudgetSettings {
    pub const DEFAULT_SLICE_SHARE: f64 = 0.05;

    pub(crate) fn set_timezone(&mut self, name: &str) -> Option<()> {
        Periods::knows_zone(name).then(|| self.periods.timezone = Arc::from(name))
    }

    pub(crate) fn set_thresholds(&mut self, text: &str) -> Option<()> {
        self.thresholds = Thresholds::read(text)?;
        Some(())
    }

    pub(crate) fn set_length(&mut self, text: &str) -> Option<()> {
        self.periods.length = PeriodLength::read(text)?;
        Some(())
    }
}

impl Default for Thresholds {
    fn default() -> Thresholds {
        Thresholds(vec![50, 80, 100])
    }
}

impl Thresholds {
    const MAX_THRESHOLDS: usize = 10;

    fn read(text: &str) -> Option<Thresholds> {
        if text == "none" {
            return Some(Thresholds(Vec::new()));
        }
        let read = |word: &str| word.trim().parse().ok().filter(|percent| (1..=100).contains(percent));
        let all = text.split(',').map(read).collect::<Option<Vec<u8>>>()?;
        (all.is_sorted_by(|a, b| a < b) && all.len() <= Self::MAX_THRESHOLDS).then_some(Thresholds(all))
    }

    /// Those that this fraction of the amount has reached.
    pub(crate) fn reached(&self, fraction: f64) -> &[u8] {
        let reached = self.0.iter().take_while(|percent| fraction * 100.0 >= f64::from(**percent)).count();
        &self.0[..reached]
    }
}

impl fmt::Display for Thresholds {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.0.is_empty() {
            return f.write_str("none");
        }
        let all: Vec<String> = self.0.iter().map(u8::to_string).collect();
        f.write_str(&all.join(", "))
    }
}
