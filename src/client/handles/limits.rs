//! Several limits at once: all of their permits, or none.

use std::{sync::Arc, time::Duration};

use tokio::runtime;

use crate::{
    handles::{
        gauge::Gauge,
        rate::{self, Rate},
        resource::Resource,
    },
    limiter::{AnyLimiter, Closed, DebtExceeded, JointLimiter, JointPermit, JointRefusal, JointReservation, TryError},
};

/// What an operation costs at one limit: made by [`Rate::of`] and [`Gauge::of`].
#[derive(Debug, Clone)]
#[must_use = "a cost takes nothing: give it to `Client::limits`"]
pub struct Cost {
    limit: AnyHandle,
    permits: u32,
}

#[derive(Debug, Clone)]
enum AnyHandle {
    Rate(Rate),
    Gauge(Gauge),
}

/// Several limits that an operation needs permits of, made by [`Client::limits`](crate::Client::limits).
///
/// A caller takes the permits of all limits at the same moment, or nothing. While it waits it holds nothing. At each
/// limit it is served first come, first served, together with callers that need that limit alone, so a caller that
/// needs much is not starved, and no order of the limits leads to a deadlock: see [`JointLimiter`].
///
/// ```no_run
/// # async fn ask() -> u64 { 700 }
/// # async fn example(client: leaseway_client::Client) -> Result<(), Box<dyn std::error::Error>> {
/// let tokens = client.resource("tokens").rate()?;
/// let requests = client.resource("requests").rate()?;
/// let connections = client.resource("connections").gauge()?;
/// let limits = client.limits([tokens.of(900), requests.of(1), connections.of(1)]);
///
/// let permits = limits.acquire().await?;
/// // … the request …
/// drop(permits); // returns the connection
///
/// match limits.try_acquire() {
///     Ok(permits) => drop(permits),
///     Err(refusal) => println!("{refusal}; retry after {:?}", refusal.retry_after()),
/// }
///
/// let reservation = limits.with_permits(&[2_000, 1, 1]).reserve().await?;
/// let used = ask().await;
/// reservation.settle(&[used, 1, 1])?;
/// # Ok(())
/// # }
/// ```
///
/// To stop waiting after a time, use [`tokio::time::timeout`].
#[derive(Debug, Clone)]
pub struct Limits {
    limits: Arc<[AnyHandle]>,
    joint: JointLimiter,
    runtime: runtime::Handle,
}

/// Permits of several limits. Dropping the value returns the permits of gauges; those of rates are used up.
///
/// It keeps its resources open, like [`Permit`](crate::Permit).
#[derive(Debug)]
#[must_use = "a permit that is dropped is returned"]
pub struct Permits {
    // Dropped before the handles, which may release the leases.
    _permit: JointPermit,
    _limits: Arc<[AnyHandle]>,
}

/// Permits of several limits for work whose cost is known only at its end. If it is dropped without being settled, all
/// permits of rates count as used. Permits of gauges are returned either way.
///
/// It keeps its resources open, like [`Reservation`](crate::Reservation).
#[derive(Debug)]
#[must_use = "a reservation that is dropped counts as used in full: settle it"]
pub struct Reservations {
    // Dropped before the handles, which may release the leases.
    reserved: JointReservation,
    limits: Arc<[AnyHandle]>,
}

/// A limit refuses a request for permits of several. Nothing was taken from any of them.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
#[error("`{resource}`: {error}")]
#[non_exhaustive]
pub struct Refusal {
    /// The index of the limit. If several refuse, it is the one whose permits will be available last.
    pub index: usize,
    /// Its resource.
    pub resource: String,
    /// Why it refuses.
    pub error: TryError,
}

/// A charge exceeded the maximum debt of a rate. The other rates were charged in full.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("`{resource}`: {error}")]
#[non_exhaustive]
pub struct Uncharged {
    /// The index of the rate, the first one if there are several.
    pub index: usize,
    /// Its resource.
    pub resource: String,
    /// The permits that were not charged.
    pub error: DebtExceeded,
}

impl Refusal {
    /// When to try again: the permits of all limits will be available after this time, if nothing changes. `None` if
    /// that is unknown, or never at the current capacity.
    pub fn retry_after(&self) -> Option<Duration> {
        match self.error {
            TryError::NotNow { retry_after } => retry_after,
            TryError::TooMany { .. } | TryError::Closed => None,
        }
    }
}

impl Rate {
    /// `n` permits of this rate, for [`Client::limits`](crate::Client::limits).
    pub fn of(&self, n: u32) -> Cost {
        Cost { limit: AnyHandle::Rate(self.clone()), permits: n }
    }
}

impl Gauge {
    /// `n` permits of this gauge, for [`Client::limits`](crate::Client::limits).
    pub fn of(&self, n: u32) -> Cost {
        Cost { limit: AnyHandle::Gauge(self.clone()), permits: n }
    }
}

impl AnyHandle {
    fn limiter(&self) -> AnyLimiter {
        match self {
            AnyHandle::Rate(rate) => AnyLimiter::Rate(rate.limiter().clone()),
            AnyHandle::Gauge(gauge) => AnyLimiter::Gauge(gauge.limiter().clone()),
        }
    }

    fn resource(&self) -> &Resource {
        match self {
            AnyHandle::Rate(rate) => rate.resource(),
            AnyHandle::Gauge(gauge) => gauge.resource(),
        }
    }
}

impl Limits {
    pub(crate) fn new(costs: impl IntoIterator<Item = Cost>, runtime: runtime::Handle) -> Limits {
        let (limits, permits): (Vec<_>, Vec<_>) =
            costs.into_iter().map(|Cost { limit, permits }| (limit, permits)).unzip();
        Limits { joint: joint(&limits, &permits), limits: limits.into(), runtime }
    }

    /// The same limits with other numbers of permits. Cheaper than [`Client::limits`](crate::Client::limits).
    ///
    /// # Panics
    ///
    /// Panics if there is not one number for each limit.
    pub fn with_permits(&self, permits: &[u32]) -> Limits {
        let (limits, runtime) = (Arc::clone(&self.limits), self.runtime.clone());
        Limits { joint: joint(&limits, permits), limits, runtime }
    }

    /// Waits for the permits of all limits, and takes them together. A limit of which 0 permits are needed is not
    /// waited for.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future takes nothing.
    pub async fn acquire(&self) -> Result<Permits, Closed> {
        self.joint.acquire().await.map(|permit| self.keep(permit))
    }

    /// Takes the permits of all limits if they are available now. If one refuses, nothing is taken from the others.
    pub fn try_acquire(&self) -> Result<Permits, Refusal> {
        self.joint.try_acquire().map(|permit| self.keep(permit)).map_err(|refusal| self.name(refusal))
    }

    /// Waits for the permits of all limits, for work whose cost is known only at its end.
    pub async fn reserve(&self) -> Result<Reservations, Closed> {
        self.joint.reserve().await.map(|reserved| self.keep_reserved(reserved))
    }

    /// Reserves the permits of all limits if they are available now.
    pub fn try_reserve(&self) -> Result<Reservations, Refusal> {
        self.joint.try_reserve().map(|reserved| self.keep_reserved(reserved)).map_err(|refusal| self.name(refusal))
    }

    fn keep(&self, permit: JointPermit) -> Permits {
        Permits { _permit: permit, _limits: Arc::clone(&self.limits) }
    }

    fn keep_reserved(&self, reserved: JointReservation) -> Reservations {
        Reservations { reserved, limits: Arc::clone(&self.limits) }
    }

    fn name(&self, JointRefusal { index, error }: JointRefusal) -> Refusal {
        Refusal { index, resource: self.limits[index].resource().id().to_owned(), error }
    }

    /// Charges each rate for permits that were already used, see [`Rate::charge`]. The numbers of gauges are ignored.
    ///
    /// # Errors
    ///
    /// The part beyond the maximum debt of a rate is dropped; the error says how much.
    ///
    /// # Panics
    ///
    /// Panics if there is not one number for each limit.
    pub fn charge(&self, permits: &[u64]) -> Result<(), Uncharged> {
        let charged = pairs(&self.limits, permits).map(|(limit, &n)| match limit {
            AnyHandle::Rate(rate) => rate.charge(n),
            AnyHandle::Gauge(_) => Ok(()),
        });
        first_uncharged(&self.limits, charged)
    }

    /// Returns to each rate the permits taken last, because they were not used, see [`Rate::refund`]. The numbers of
    /// gauges are ignored: drop their permits.
    ///
    /// # Panics
    ///
    /// Panics if there is not one number for each limit.
    pub fn refund(&self, permits: &[u64]) {
        for (limit, &n) in pairs(&self.limits, permits) {
            if let AnyHandle::Rate(rate) = limit {
                rate.refund(n);
            }
        }
    }

    /// The resources of the limits, in order.
    pub fn resources(&self) -> impl ExactSizeIterator<Item = &Resource> {
        self.limits.iter().map(AnyHandle::resource)
    }

    /// The runtime that the client runs on, for blocking on it from other threads.
    pub fn runtime(&self) -> &runtime::Handle {
        &self.runtime
    }
}

impl Reservations {
    /// The number of permits taken of each limit.
    pub fn reserved(&self) -> impl ExactSizeIterator<Item = u32> {
        self.reserved.reserved()
    }

    /// Ends the reservation: `used[i]` permits of limit i were used. Rates get their unused permits back, or are
    /// charged for the excess, see [`Reservation::settle`](crate::Reservation::settle). The permits of gauges are
    /// returned; their numbers are ignored.
    ///
    /// # Errors
    ///
    /// The part beyond the maximum debt of a rate is dropped; the error says how much. All rates are settled.
    ///
    /// # Panics
    ///
    /// Panics if there is not one number for each limit.
    pub fn settle(self, used: &[u64]) -> Result<(), Uncharged> {
        let settled = self.reserved.settle(used);
        let limits = &*self.limits;
        let counted =
            settled.into_iter().zip(limits).map(|(settled, limit)| rate::count_uncharged(limit.resource(), settled));
        first_uncharged(limits, counted)
    }
}

fn joint(limits: &[AnyHandle], permits: &[u32]) -> JointLimiter {
    JointLimiter::new(pairs(limits, permits).map(|(limit, &n)| (limit.limiter(), n)))
}

fn pairs<'a, T>(limits: &'a [AnyHandle], numbers: &'a [T]) -> impl Iterator<Item = (&'a AnyHandle, &'a T)> {
    assert_eq!(numbers.len(), limits.len(), "one number for each limit");
    limits.iter().zip(numbers)
}

/// Charges all limits, and returns the first failure.
fn first_uncharged(
    limits: &[AnyHandle],
    charged: impl Iterator<Item = Result<(), DebtExceeded>>,
) -> Result<(), Uncharged> {
    let named = limits.iter().zip(charged).enumerate().map(|(index, (limit, charged))| {
        charged.map_err(|error| Uncharged { index, resource: limit.resource().id().to_owned(), error })
    });
    // Not `try_for_each`, which would charge no limit behind the first failure.
    let all: Vec<_> = named.collect();
    all.into_iter().collect()
}

#[cfg(test)]
mod tests;
