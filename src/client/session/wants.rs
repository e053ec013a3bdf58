//! What a client asks for, of one resource.

use crate::session::{messages::Demand, pool::Usage};

/// The demand of a client.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct Wants {
    /// How much it would like.
    pub amount: f64,
    /// How important that is; what it means is up to the resource.
    pub priority: i64,
    /// Gauges: everything in use, if that is more than the lease allows.
    pub outstanding: f64,
    /// Pools: what has been used of the lease that is echoed with this.
    pub usage: Option<Usage>,
}

/// Wants that have changed by more than this part are sent at once.
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
