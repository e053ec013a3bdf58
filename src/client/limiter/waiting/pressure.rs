//! When to tell the owner of a limiter that there is not enough.

/// Says so when a caller has to wait or the limiter owes and neither was so, and after that each time twice as many
/// permits are pending.
#[derive(Debug, Default)]
pub(super) struct Pressure {
    /// How many were pending when it was last said; none if there were none since.
    notified_at: u64,
}

impl Pressure {
    /// So many permits are waited for or owed now, more than before. Whether that has to be said.
    pub(super) fn update(&mut self, pending: u64) -> bool {
        let notify = pending >= self.notified_at.saturating_mul(2).max(1);
        if notify {
            self.notified_at = pending;
        }
        notify
    }

    /// None is pending any more.
    pub(super) fn reset(&mut self) {
        self.notified_at = 0;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_is_said_at_first_and_then_once_per_doubling() {
        let mut pressure = Pressure::default();
        let notified_at = |pressure: &mut Pressure| (1..=20).filter(|&n| pressure.update(n)).collect::<Vec<_>>();
        assert_eq!(notified_at(&mut pressure), [1, 2, 4, 8, 16]);
        pressure.reset();
        assert_eq!(notified_at(&mut pressure), [1, 2, 4, 8, 16]);
    }

    #[test]
    fn going_up_and_down_is_not_said_again() {
        let mut pressure = Pressure::default();
        assert!(pressure.update(10));
        assert!([3, 9, 19].into_iter().all(|n| !pressure.update(n)));
        assert!(pressure.update(20));
    }
}
