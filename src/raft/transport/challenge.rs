//! The challenge of a connection: it prevents that messages are replayed, on another connection or on the same one.

use std::sync::{Mutex, PoisonError};

const NONCE_BYTES: usize = 16;

pub(crate) type Nonce = [u8; NONCE_BYTES];

pub(crate) fn nonce() -> Nonce {
    let mut nonce = [0; NONCE_BYTES];
    getrandom::fill(&mut nonce).expect("the system has random bytes");
    nonce
}

/// The number of requests that may overtake a request on its connection.
const WINDOW: usize = 1024;

#[derive(Debug)]
pub(crate) struct Challenge {
    nonce: Nonce,
    seen: Mutex<Window>,
}

impl Challenge {
    pub(crate) fn new() -> Challenge {
        Challenge { nonce: nonce(), seen: Mutex::default() }
    }

    pub(crate) fn bytes(&self) -> &[u8] {
        &self.nonce
    }

    /// Whether this counter is new. False if it is too old to know.
    pub(crate) fn admits(&self, counter: u64) -> bool {
        self.seen.lock().unwrap_or_else(PoisonError::into_inner).admits(counter)
    }
}

/// The counters that were seen.
#[derive(Debug, Default)]
struct Window {
    /// The highest counter plus one; zero if there was none.
    next: u64,
    /// One bit for each of the last [`WINDOW`] counters, at the counter modulo [`WINDOW`].
    seen: [u64; WINDOW / 64],
}

impl Window {
    fn admits(&mut self, counter: u64) -> bool {
        let Some(after) = counter.checked_add(1) else { return false };
        if after > self.next {
            // The counters that were skipped have not been seen.
            for skipped in self.next.max(after.saturating_sub(WINDOW as u64))..after {
                self.bit(skipped, |word, bit| *word &= !bit);
            }
            self.next = after;
        } else if self.next - after >= WINDOW as u64 {
            return false;
        }
        let mut is_new = false;
        self.bit(counter, |word, bit| {
            is_new = *word & bit == 0;
            *word |= bit;
        });
        is_new
    }

    fn bit(&mut self, counter: u64, change: impl FnOnce(&mut u64, u64)) {
        let place = (counter % WINDOW as u64) as usize;
        change(&mut self.seen[place / 64], 1 << (place % 64));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counters_may_overtake_each_other_within_the_window() {
        let mut window = Window::default();
        let most = WINDOW as u64;
        for counter in [5, 3, 4, 0, most, 1] {
            assert!(window.admits(counter), "{counter}");
            assert!(!window.admits(counter), "{counter} again");
        }
        assert!(window.admits(2 * most), "far ahead");
        for (counter, is_new) in [(most, false), (most + 1, true), (most + 1, false), (2 * most, false), (0, false)] {
            assert_eq!(window.admits(counter), is_new, "{counter}");
        }
        assert!(window.admits(1_000 * most) && !window.admits(2 * most), "all before is too old");
        assert!(!window.admits(u64::MAX), "there would be none after it");
    }
}
