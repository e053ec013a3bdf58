//! When to notify the owner of a limiter that callers have to wait.

/// Notifies when permits become pending (waited for or owed), and again each time their number has doubled.
#[derive(Debug, Default)]
pub(super) struct Pressure {
    /// The number pending at the last notification; 0 if there were none pending since.
    notified_at: u64,
}

impl Pressure {
    /// The number of pending permits has risen to `pending`. Returns whether to notify.
    pub(super) fn update(&mut self, pending: u64) -> bool {
        let notify = pending >= self.notified_at.saturating_mul(2).max(1);
        if notify {
            self.notified_at = pending;
        }
        notify
    }

    /// No permits are pending any more.
    pub(super) fn reset(&mut self) {
        self.notified_at = 0;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_notifies_at_first_and_then_once_per_doubling() {
        let mut pressure = Pressure::default();
        let notified_at = |pressure: &mut Pressure| (1..=20).filter(|&n| pressure.update(n)).collect::<Vec<_>>();
        assert_eq!(notified_at(&mut pressure), [1, 2, 4, 8, 16]);
        pressure.reset();
        assert_eq!(notified_at(&mut pressure), [1, 2, 4, 8, 16]);
    }

    #[test]
    fn going_up_and_down_does_not_notify_again() {
        let mut pressure = Pressure::default();
        assert!(pressure.update(10));
        assert!([3, 9, 19].into_iter().all(|n| !pressure.update(n)));
        assert!(pressure.update(20));
    }
}
