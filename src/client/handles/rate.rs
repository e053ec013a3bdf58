//! Rates: resources with a capacity in permits per second.

use crate::{
    error::OpenError,
    handles::{metrics, open_resource::Limiter, resource::Resource},
    limiter::{self, Closed, DebtExceeded, RateLimiter, Standing, TryError, Window},
};

/// A handle of a rate. All handles of a resource of one client share the lease and the limiter.
///
/// In any period T it admits at most capacity·T plus the burst. Waiting callers are served first come, first served,
/// and a cancelled wait takes nothing.
///
/// ```no_run
/// # async fn example(client: leaseway_client::Client) -> Result<(), Box<dyn std::error::Error>> {
/// let searches = client.resource("searches").rate()?;
/// searches.wait().await?;               // one
/// searches.wait_many(20).await?;        // a batch
/// if searches.try_acquire(1).is_ok() {} // only if it is available now
/// # Ok(())
/// # }
/// ```
#[derive(Debug, Clone)]
pub struct Rate {
    resource: Resource,
    limiter: RateLimiter,
}

/// Permits of a rate for work whose cost is known only at its end. If it is dropped without being settled, all of them
/// count as used.
///
/// It keeps its rate open: the lease is not released before the reservation is dropped, unless the client is closed.
///
/// ```no_run
/// # async fn answer() -> u64 { 700 }
/// # async fn example(client: leaseway_client::Client) -> Result<(), Box<dyn std::error::Error>> {
/// use leaseway_client::limiter::Burst;
///
/// let minute = Burst::Window(std::time::Duration::from_secs(60));
/// let tokens = client.resource("tokens").burst(minute).rate()?;
/// let reservation = tokens.reserve(4_000).await?;
/// let used = answer().await;
/// reservation.settle(used)?; // returns unused permits; usage beyond the reservation becomes debt
/// # Ok(())
/// # }
/// ```
#[derive(Debug)]
#[must_use = "a reservation that is dropped counts as used in full: settle it"]
pub struct Reservation {
    // Dropped before the handle, which may release the lease.
    reserved: limiter::RateReservation,
    rate: Resource,
}

impl Reservation {
    /// The number of permits taken.
    pub fn reserved(&self) -> u32 {
        self.reserved.reserved()
    }

    /// Ends the reservation: `used` permits were used. Returns the unused ones, up to the credit that the rate would
    /// have if they had never been taken: see [`RateLimiter::reserve`]. [Charges](Rate::charge) usage beyond the
    /// reservation.
    pub fn settle(self, used: u64) -> Result<(), DebtExceeded> {
        count_uncharged(&self.rate, self.reserved.settle(used))
    }
}

pub(crate) fn count_uncharged(rate: &Resource, charged: Result<(), DebtExceeded>) -> Result<(), DebtExceeded> {
    charged.inspect_err(|exceeded| metrics::uncharged(rate.id(), exceeded.uncharged))
}

impl Rate {
    pub(crate) fn new(resource: Resource) -> Result<Rate, OpenError> {
        match &resource.opened().limiter {
            Limiter::Rate(limiter) => Ok(Rate { limiter: limiter.clone(), resource }),
            other => Err(OpenError::OtherKind { id: resource.id().to_owned(), is: other.kind(), asked: "rate" }),
        }
    }

    /// Waits for a permit.
    pub async fn wait(&self) -> Result<(), Closed> {
        self.limiter.wait().await
    }

    /// Waits for `n` permits and takes them together.
    pub async fn wait_many(&self, n: u32) -> Result<(), Closed> {
        self.limiter.wait_many(n).await
    }

    /// Takes `n` permits if they are available now.
    pub fn try_acquire(&self, n: u32) -> Result<(), TryError> {
        self.limiter.try_acquire(n)
    }

    /// Waits for `n` permits, for work whose cost is known only at its end. See [`Reservation`].
    pub async fn reserve(&self, n: u32) -> Result<Reservation, Closed> {
        self.limiter.reserve(n).await.map(|reserved| self.keep(reserved))
    }

    /// Reserves `n` permits if they are available now.
    pub fn try_reserve(&self, n: u32) -> Result<Reservation, TryError> {
        self.limiter.try_reserve(n).map(|reserved| self.keep(reserved))
    }

    fn keep(&self, reserved: limiter::RateReservation) -> Reservation {
        Reservation { reserved, rate: self.resource.clone() }
    }

    /// Charges `n` permits that were already used. Missing permits become debt. The lease pays the debt before any
    /// other caller is admitted. Debt raises estimated wants. Closing the last handle or the client drops the debt.
    ///
    /// # Errors
    ///
    /// The part beyond [`max_debt`](crate::ResourceBuilder::max_debt) is dropped; the error says how much.
    pub fn charge(&self, n: u64) -> Result<(), DebtExceeded> {
        count_uncharged(&self.resource, self.limiter.charge(n))
    }

    /// Returns the `n` permits taken last, because they were not used. Then the rate has the credit that it would have
    /// if they had never been taken, so a late refund may restore nothing. See [`RateLimiter::refund`].
    pub fn refund(&self, n: u64) {
        self.limiter.refund(n);
    }

    /// The current debt in permits.
    pub fn debt(&self) -> u64 {
        self.limiter.debt()
    }

    /// Permits available without waiting; 0 while a caller waits.
    pub fn available(&self) -> u64 {
        self.limiter.available()
    }

    /// Changes the length and the limit of the window of a rate that was opened with one. Saved permits stay, up to the
    /// size of the new window. At first the wants are the whole new limit.
    pub fn set_window(&self, window: Window) {
        self.limiter.set_window(window.length);
        self.resource.set_window(window);
    }

    /// The time until `n` permits are available, if nobody else takes any. `None` if that does not depend on time.
    pub fn ready_in(&self, n: u32) -> Option<std::time::Duration> {
        self.limiter.ready_in(n)
    }

    /// Whether permits are in use that were taken in the current window, if it slides.
    pub fn is_in_use(&self) -> bool {
        self.limiter.used() > 0.0
    }

    /// Permits requested so far: see [`RateLimiter::arrived`].
    pub fn arrived(&self) -> u64 {
        self.limiter.arrived()
    }

    /// The current state.
    pub fn standing(&self) -> Standing {
        self.limiter.standing()
    }

    /// The limiter that enforces the lease.
    pub fn limiter(&self) -> &RateLimiter {
        &self.limiter
    }

    /// The resource: its capacity, lease and wants.
    pub fn resource(&self) -> &Resource {
        &self.resource
    }
}
