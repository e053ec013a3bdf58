//! Helpers that keep the log short.

/// Whether a count has doubled: what happens a million times makes twenty lines of log, not a million.
pub(crate) fn worth_logging(before: u64, now: u64) -> bool {
    now.checked_ilog2() != before.checked_ilog2()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_happens_often_is_logged_rarely() {
        let logged: Vec<u64> = (1..=1000).filter(|now| worth_logging(now - 1, *now)).collect();
        assert_eq!(logged, [1, 2, 4, 8, 16, 32, 64, 128, 256, 512]);
        assert!(!worth_logging(5, 5));
    }
}
