//! A resource whose capacity is a rate: so many per second.

use crate::{
    error::OpenError,
    handles::{metrics, open_resource::Limiter, resource::Resource},
    limiter::{self, Burst, Closed, DebtExceeded, RateLimiter, Standing, TryError, Window},
};

/// A handle of a rate. Clones share the lease and the limiter, as do all handles of the same resource of a client.
///
/// Over any time T it lets pass at most capacity·T and the burst. Callers that wait are served first come, first
/// served; a wait that is given up takes nothing with it.
///
/// ```no_run
/// # async fn example(client: leaseway_client::Client) -> Result<(), Box<dyn std::error::Error>> {
/// let searches = client.resource("searches").rate()?;
/// searches.wait().await?;               // one
/// searches.wait_many(20).await?;        // a batch
/// if searches.try_acquire(1).is_ok() {} // only if it is free now
/// # Ok(())
/// # }
/// ```
#[derive(Debug, Clone)]
pub struct Rate {
    resource: Resource,
    limiter: RateLimiter,
}

/// Permits of a rate for something of which only its end will show what it takes. Dropped without being settled it
/// keeps what it took. It is a handle of its rate as well: the lease is not given back before it is gone, unless the
/// client is closed.
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
/// reservation.settle(used)?; // what was not used comes back; what was used beyond it is owed
/// # Ok(())
/// # }
/// ```
#[derive(Debug)]
#[must_use = "what was reserved is to be settled; dropped, all of it counts as used"]
pub struct Reservation {
    // Settled before the handle goes, which may give the lease back.
    reserved: limiter::RateReservation,
    rate: Resource,
}

impl Reservation {
    /// How much was taken.
    pub fn reserved(&self) -> u32 {
        self.reserved.reserved()
    }

    /// So much was used. The rest comes back, as much of it as there would be now if it had never been taken: see
    /// [`RateLimiter::reserve`]. What was used beyond it is [charged](Rate::charge).
    pub fn settle(self, used: u64) -> Result<(), DebtExceeded> {
        count_uncharged(&self.rate, self.reserved.settle(used))
    }
}

fn count_uncharged(rate: &Resource, charged: Result<(), DebtExceeded>) -> Result<(), DebtExceeded> {
    charged.inspect_err(|exceeded| metrics::uncharged(rate.id(), exceeded.uncharged))
}

impl Rate {
    pub(crate) fn new(resource: Resource) -> Result<Rate, OpenError> {
        match &resource.opened().limiter {
            Limiter::Rate(limiter) => Ok(Rate { limiter: limiter.clone(), resource }),
            other => Err(OpenError::OtherKind { id: resource.id().to_owned(), is: other.kind(), asked: "rate" }),
        }
    }

    /// Waits until one may pass.
    pub async fn wait(&self) -> Result<(), Closed> {
        self.limiter.wait().await
    }

    /// Waits until `many` may pass together.
    pub async fn wait_many(&self, many: u32) -> Result<(), Closed> {
        self.limiter.wait_many(many).await
    }

    /// Lets `many` pass if that is possible now.
    pub fn try_acquire(&self, many: u32) -> Result<(), TryError> {
        self.limiter.try_acquire(many)
    }

    /// Waits until `many` may pass, for something of which only its end will show what it takes. See [`Reservation`].
    pub async fn reserve(&self, many: u32) -> Result<Reservation, Closed> {
        self.limiter.reserve(many).await.map(|reserved| self.keep(reserved))
    }

    /// Reserves `many` if they may pass now.
    pub fn try_reserve(&self, many: u32) -> Result<Reservation, TryError> {
        self.limiter.try_reserve(many).map(|reserved| self.keep(reserved))
    }

    fn keep(&self, reserved: limiter::RateReservation) -> Reservation {
        Reservation { reserved, rate: self.resource.clone() }
    }

    /// So many have been used already. What is not there is owed, and paid back from the lease before anything else
    /// passes; where wants are estimated they rise by it. Of what goes beyond
    /// [`max_debt`](crate::ResourceBuilder::max_debt) nothing is remembered; the error says how much.
    ///
    /// What is owed is forgotten with the last handle.
    pub fn charge(&self, many: u64) -> Result<(), DebtExceeded> {
        count_uncharged(&self.resource, self.limiter.charge(many))
    }

    /// So many have passed and were not used: those that passed last. As many come back as there would be now if they
    /// had never passed, which may be none: see [`RateLimiter::refund`].
    pub fn refund(&self, many: u64) {
        self.limiter.refund(many);
    }

    /// How much is owed now.
    pub fn debt(&self) -> u64 {
        self.limiter.debt()
    }

    /// How many could pass now without waiting; none while a caller waits.
    pub fn available(&self) -> u64 {
        self.limiter.available()
    }

    /// Another window from now on, of a rate that was opened with one. What is saved stays, as far as the new one has
    /// room for it; all of the new limit is wanted at first.
    pub fn set_window(&self, window: Window) {
        self.limiter.set_burst(Burst::Window(window.length));
        self.resource.set_window(window);
    }

    /// Permits asked for, ever: see [`RateLimiter::arrived`].
    pub fn arrived(&self) -> u64 {
        self.limiter.arrived()
    }

    /// What could be had now.
    pub fn standing(&self) -> Standing {
        self.limiter.standing()
    }

    /// What does not depend on its being a rate: capacity, lease, wants.
    pub fn resource(&self) -> &Resource {
        &self.resource
    }
}
