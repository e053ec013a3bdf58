//! Detects that a flow of requests has fallen, from counts per second. A flow that rises shows in refusals.

/// Counts of a constant flow differ by chance. A difference of more than this many standard deviations occurs less than
/// once in three hundred seconds.
const NOISE_DEVIATIONS: f64 = 3.0;

/// The number of arrivals at the last three sweeps, newest first.
#[derive(Debug, Default)]
pub struct Arrivals([u64; 3]);

impl Arrivals {
    /// Takes the number of arrivals so far. Returns whether fewer arrived in the last second than in either of the two
    /// before; the latter of those may contain a part of the fall.
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
