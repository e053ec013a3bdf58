//! Whether a flow of requests has become less, from how many come in each second. One that becomes more shows by what
//! is refused.

/// Between counts of the same flow there are differences of so many times the root of their sum by chance: not one in
/// three hundred seconds is further off.
const NOISE_DEVIATIONS: f64 = 3.0;

/// How many had arrived at the last sweeps, newest first.
#[derive(Debug, Default)]
pub struct Arrivals([u64; 3]);

impl Arrivals {
    /// So many have arrived by now. Whether fewer came in the last second than in those before, of which the one may
    /// have seen only a part of the fall.
    pub fn have_fallen(&mut self, arrived: u64) -> bool {
        let [last, before, oldest] = self.0;
        self.0 = [arrived, last, before];
        let latest = arrived.saturating_sub(last);
        let most = last.saturating_sub(before).max(before.saturating_sub(oldest));
        most.saturating_sub(latest) as f64 > 1.0 + NOISE_DEVIATIONS * ((most + latest) as f64).sqrt()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn falls(per_second: &[u64]) -> Vec<bool> {
        let (mut arrivals, mut arrived) = (Arrivals::default(), 0);
        let seen = per_second.iter().map(|many| {
            arrived += many;
            arrivals.have_fallen(arrived)
        });
        seen.collect()
    }

    #[test]
    fn a_flow_that_ends_is_seen_until_a_whole_second_was_without_it() {
        assert_eq!(falls(&[400, 400, 400, 150, 0, 0, 0]), [false, false, false, true, true, true, false]);
    }

    #[test]
    fn what_differs_by_chance_is_no_fall_and_neither_is_more() {
        assert_eq!(falls(&[0, 3, 1, 5, 0, 4]), [false; 6]);
        assert_eq!(falls(&[100, 100, 100, 110, 92, 104, 81, 400]), [false; 8]);
    }
}
