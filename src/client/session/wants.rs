//! The demand of a client.

use crate::session::{messages::Demand, pool::Usage};

/// The demand of a client for one resource.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct Wants {
    /// The amount.
    pub amount: f64,
    /// The claimed priority; its meaning depends on the resource.
    pub priority: i64,
    /// Gauges: the amount in use, if that is more than the lease allows.
    pub outstanding: f64,
    /// Pools: usage of the lease that is echoed with this demand.
    pub usage: Option<Usage>,
}

/// A change by more than this fraction is sent at once.
const CHANGE_THRESHOLD: f64 = 0.1;

impl Demand for Wants {
    fn is_urgent(&self, asked: &Wants) -> bool {
        changed(self.amount, asked.amount)
            || changed(self.outstanding, asked.outstanding)
            || self.priority != asked.priority
    }

    fn amount(&self) -> f64 {
        self.amount
    }
}

fn changed(is: f64, was: f64) -> bool {
    (is - was).abs() > was * CHANGE_THRESHOLD
}

#[cfg(test)]
mod tests {
    use super::*;

    fn urgent(amount: f64, outstanding: f64) -> bool {
        let asked = Wants { amount: 10.0, outstanding: 5.0, ..Wants::default() };
        Wants { amount, outstanding, ..Wants::default() }.is_urgent(&asked)
    }

    #[test]
    fn a_change_by_more_than_a_tenth_is_urgent() {
        assert!(!urgent(11.0, 5.0) && !urgent(9.0, 5.0));
        assert!(urgent(11.1, 5.0) && urgent(8.9, 5.0) && urgent(0.0, 5.0));
        assert!(urgent(10.0, 4.0), "what others wait for has been given back");
        let asked = Wants { amount: 10.0, ..Wants::default() };
        assert!(Wants { priority: 1, ..asked }.is_urgent(&asked), "so is any change of priority");
    }

    #[test]
    fn from_nothing_everything_is_urgent() {
        assert!(Wants { amount: 1e-9, ..Wants::default() }.is_urgent(&Wants::default()));
        assert!(!Wants::default().is_urgent(&Wants::default()));
    }
}
