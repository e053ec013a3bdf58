//! Limits the number of tests that run servers at the same time. The test runner starts one test per core; on a large
//! machine these would run too many processes.

use std::{
    cell::Cell,
    sync::{Condvar, Mutex, PoisonError},
};

const MAX_TESTS: usize = 8;

static FREE: Mutex<usize> = Mutex::new(MAX_TESTS);
static RETURNED: Condvar = Condvar::new();

thread_local! {
    /// Number of servers of this test's thread. Only the first takes a slot, so a test that holds one never waits.
    static MINE: Cell<usize> = const { Cell::new(0) };
}

/// A permit that a test's thread holds while its servers run. Shared servers take none.
pub(crate) struct ServerSlot(());

impl ServerSlot {
    pub(crate) fn take() -> ServerSlot {
        if MINE.get() == 0 {
            let free = FREE.lock().unwrap_or_else(PoisonError::into_inner);
            let mut free = RETURNED.wait_while(free, |free| *free == 0).unwrap_or_else(PoisonError::into_inner);
            *free -= 1;
        }
        MINE.set(MINE.get() + 1);
        ServerSlot(())
    }
}

impl Drop for ServerSlot {
    fn drop(&mut self) {
        MINE.set(MINE.get() - 1);
        if MINE.get() == 0 {
            *FREE.lock().unwrap_or_else(PoisonError::into_inner) += 1;
            RETURNED.notify_one();
        }
    }
}
