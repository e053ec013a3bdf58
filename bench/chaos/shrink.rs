//! Shrinking: leaves out parts of a failing schedule as long as it still fails.

/// Leaves out halves, then quarters, and so on down to single items, as long as the rest still `fails`, which is called
/// at most `tries` times. Failures of real processes need luck, so an item that seems necessary may not be: the result
/// is small, but not minimal.
pub(crate) fn shrink<T: Clone>(whole: &[T], tries: usize, mut fails: impl FnMut(&[T]) -> bool) -> Vec<T> {
    let mut left = whole.to_vec();
    let mut tries = tries;
    let mut part = left.len().div_ceil(2);
    while part > 0 && left.len() > 1 && tries > 0 {
        let mut at = 0;
        while at < left.len() && tries > 0 && left.len() > 1 {
            let end = (at + part).min(left.len());
            if end - at == left.len() {
                break;
            }
            let without: Vec<T> = left[..at].iter().chain(&left[end..]).cloned().collect();
            tries -= 1;
            if fails(&without) {
                left = without;
            } else {
                at = end;
            }
        }
        part = if part == 1 { 0 } else { part.div_ceil(2) };
    }
    left
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_needed_is_found_among_what_is_not() {
        let whole: Vec<u32> = (0..40).collect();
        let needed = [3, 17, 31];
        let mut asked = 0;
        let small = shrink(&whole, 1000, |some| {
            asked += 1;
            needed.iter().all(|one| some.contains(one))
        });
        assert_eq!(small, needed);
        assert!(asked < 100, "{asked} runs");
    }

    #[test]
    fn tries_are_bounded_and_a_failure_is_never_made_of_nothing() {
        let whole: Vec<u32> = (0..40).collect();
        let mut asked = 0;
        let small = shrink(&whole, 5, |_| {
            asked += 1;
            true
        });
        assert!(asked == 5 && small.len() < 10, "{small:?} after {asked}");
        assert_eq!(shrink(&whole, 1000, |_| false), whole);
        assert_eq!(shrink(&[1], 1000, |_| true), [1]);
    }
}
