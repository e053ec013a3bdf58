//! Reservations of the client library, on their way to a caller and until they are settled.

use std::sync::{Mutex, PoisonError};

use leaseway_client::{BudgetReservation, Reservation, Reservations};
use pyo3::{exceptions::PyRuntimeError, prelude::*};

use crate::{error::ClientError, fork::PidGuarded};

/// A reservation of the client library.
pub(crate) trait GiveBack {
    /// Ends the reservation, because nothing was used.
    fn give_back(self);
}

// Settling for 0 cannot exceed the maximum debt, and 0 is an amount.

impl GiveBack for Reservation {
    fn give_back(self) {
        let _ = self.settle(0);
    }
}

impl GiveBack for BudgetReservation {
    fn give_back(self) {
        let _ = self.settle(0.0);
    }
}

impl GiveBack for Reservations {
    fn give_back(self) {
        let nothing = vec![0; self.reserved().len()];
        let _ = self.settle(&nothing);
    }
}

/// A reservation on its way to the caller. If the caller is gone, it is given back.
pub(crate) struct Undelivered<R: GiveBack>(Option<R>);

impl<R: GiveBack> Undelivered<R> {
    pub(crate) fn new(reserved: R) -> Undelivered<R> {
        Undelivered(Some(reserved))
    }

    pub(crate) fn delivered(mut self) -> PyResult<R> {
        self.0.take().ok_or_else(|| PyRuntimeError::new_err("delivered already"))
    }
}

impl<R: GiveBack> Drop for Undelivered<R> {
    fn drop(&mut self) {
        if let Some(reserved) = self.0.take() {
            reserved.give_back();
        }
    }
}

/// A reservation that the process that made it can settle once.
pub(crate) struct Unsettled<R>(Mutex<Option<PidGuarded<R>>>);

impl<R> Unsettled<R> {
    pub(crate) fn new(reserved: R) -> Unsettled<R> {
        Unsettled(Mutex::new(Some(PidGuarded::new(reserved))))
    }

    fn lock_and_take(&self) -> Option<PidGuarded<R>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).take()
    }

    /// The reservation, to settle it.
    pub(crate) fn take(&self) -> PyResult<R> {
        let reserved = self.lock_and_take();
        let reserved = reserved.ok_or_else(|| PyRuntimeError::new_err("this reservation is already settled"))?;
        let reserved = reserved.take().ok_or_else(|| {
            ClientError::Forked("the reservation belongs to the process that this one was forked from".to_owned())
        })?;
        Ok(reserved)
    }

    /// Ends a reservation that was not settled: all of it counts as used.
    pub(crate) fn end(&self) {
        drop(self.lock_and_take());
    }
}
