//! When to tell the owner of a limiter that there is not enough.

/// Says so when a caller has to wait or the limiter owes and neither was so, and after that each time twice as many
/// permits are pending.
#[derive(Debug, Default)]
pub(super) struct Pressure {
    /// How many were pending when it was last said; none if there were none since.
    said: u64,
}

impl Pressure {
    /// So many permits are waited for or owed now, more than before. Whether that has to be said.
    pub(super) fn rises_to(&mut self, pending: u64) -> bool {
        let say = pending >= self.said.saturating_mul(2).max(1);
        if say {
            self.said = pending;
        }
        say
    }

    /// None is pending any more.
    pub(super) fn is_over(&mut self) {
        self.said = 0;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_is_said_at_first_and_then_once_per_doubling() {
        let mut pressure = Pressure::default();
        let said = |pressure: &mut Pressure| (1..=20).filter(|&n| pressure.rises_to(n)).collect::<Vec<_>>();
        assert_eq!(said(&mut pressure), [1, 2, 4, 8, 16]);
        pressure.is_over();
        assert_eq!(said(&mut pressure), [1, 2, 4, 8, 16]);
    }

    #[test]
    fn going_up_and_down_is_not_said_again() {
        let mut pressure = Pressure::default();
        assert!(pressure.rises_to(10));
        assert!([3, 9, 19].into_iter().all(|n| !pressure.rises_to(n)));
        assert!(pressure.rises_to(20));
    }
}
