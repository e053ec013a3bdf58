//! How many tests may have servers at the same time. The test runner starts as many tests as there are cores, which on
//! a large machine means more processes than is useful.

use std::{
    cell::Cell,
    sync::{Condvar, Mutex, PoisonError},
};

const SEATS: usize = 8;

static FREE: Mutex<usize> = Mutex::new(SEATS);
static GIVEN_BACK: Condvar = Condvar::new();

thread_local! {
    /// Servers of this test. Only the first needs a seat: a test never waits while others wait for it.
    static MINE: Cell<usize> = const { Cell::new(0) };
}

/// Held for as long as a server lives, by the thread of the test that started it.
pub(crate) struct Seat(std::marker::PhantomData<*const ()>);

impl Seat {
    pub(crate) fn take() -> Seat {
        if MINE.get() == 0 {
            let free = FREE.lock().unwrap_or_else(PoisonError::into_inner);
            let mut free = GIVEN_BACK.wait_while(free, |free| *free == 0).unwrap_or_else(PoisonError::into_inner);
            *free -= 1;
        }
        MINE.set(MINE.get() + 1);
        Seat(std::marker::PhantomData)
    }
}

impl Drop for Seat {
    fn drop(&mut self) {
        MINE.set(MINE.get() - 1);
        if MINE.get() == 0 {
            *FREE.lock().unwrap_or_else(PoisonError::into_inner) += 1;
            GIVEN_BACK.notify_one();
        }
    }
}
