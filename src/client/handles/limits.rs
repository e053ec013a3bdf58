//! Several limits at once: all of their permits and amounts, or none.

mod budgets;

use std::{sync::Arc, time::Duration};

use leaseway_core::types::Amount;
use tokio::runtime;

use self::budgets::{BudgetAmounts, RefusedBy, TakenAmounts};
use crate::{
    handles::{
        budget::{self, Budget, BudgetReservation},
        gauge::Gauge,
        rate::{self, Rate},
        resource::Resource,
    },
    limiter::{AnyLimiter, Closed, DebtExceeded, JointLimiter, JointPermit, JointRefusal, JointReservation, TryError},
};

/// What an operation costs at one limit: made by [`Rate::of`], [`Gauge::of`] and [`Budget::of`].
#[derive(Debug, Clone)]
#[must_use = "a cost takes nothing: give it to `Client::limits`"]
pub struct Cost {
    limit: AnyHandle,
    number: f64,
}

#[derive(Debug, Clone)]
enum AnyHandle {
    Rate(Rate),
    Gauge(Gauge),
    Budget(Budget),
}

/// A number of permits, or an amount of a budget. Integers above 2⁵³ are rounded.
pub trait Quantity: Copy {
    /// The number as a float.
    fn to_f64(self) -> f64;
}

macro_rules! numbers {
    ($($number:ty),*) => {$(
        impl Quantity for $number {
            fn to_f64(self) -> f64 {
                self as f64
            }
        }
    )*};
}

numbers! { u32, u64, usize, i32, i64, f64 }

/// Several limits that an operation needs permits of, made by [`Client::limits`](crate::Client::limits).
///
/// A caller takes the permits of all rates and gauges at the same moment, or nothing. While it waits it holds none. At
/// each limit it is served first come, first served, together with callers that need that limit alone, so a caller that
/// needs much is not starved, and no order of the limits leads to a deadlock: see [`JointLimiter`].
///
/// Amounts of budgets are reserved first, before it waits for rates and gauges, and given back if that wait is
/// cancelled. It waits for one budget at a time and holds nothing meanwhile.
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
    budgets: BudgetAmounts,
    /// The rates and gauges, in order.
    joint: JointLimiter,
    runtime: runtime::Handle,
}

/// Permits of several limits. Dropping the value returns the permits of gauges; those of rates are used up, and amounts
/// of budgets are spent.
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
/// permits of rates count as used, and all amounts of budgets are spent. Permits of gauges are returned either way.
///
/// It keeps its resources open, like [`Reservation`](crate::Reservation).
#[derive(Debug)]
#[must_use = "a reservation that is dropped counts as used in full: settle it"]
pub struct Reservations {
    // Dropped before the handles, which may release the leases.
    reserved: JointReservation,
    budgets: Vec<BudgetReservation>,
    limits: Arc<[AnyHandle]>,
}

/// A limit refuses a request for permits of several. Nothing was taken from any of them.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
#[error("`{resource}`: {error}")]
#[non_exhaustive]
pub struct Refusal {
    /// The index of the limit: the first budget that refuses; otherwise the limit whose permits will be available last.
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
        Cost { limit: AnyHandle::Rate(self.clone()), number: n.into() }
    }
}

impl Gauge {
    /// `n` permits of this gauge, for [`Client::limits`](crate::Client::limits).
    pub fn of(&self, n: u32) -> Cost {
        Cost { limit: AnyHandle::Gauge(self.clone()), number: n.into() }
    }
}

impl Budget {
    /// An amount of this budget, for [`Client::limits`](crate::Client::limits), which panics if it is not a number from 0
    /// to 1e15.
    pub fn of(&self, amount: f64) -> Cost {
        Cost { limit: AnyHandle::Budget(self.clone()), number: amount }
    }
}

impl AnyHandle {
    /// The limiter of a rate or a gauge.
    fn limiter(&self) -> Option<AnyLimiter> {
        match self {
            AnyHandle::Rate(rate) => Some(AnyLimiter::Rate(rate.limiter().clone())),
            AnyHandle::Gauge(gauge) => Some(AnyLimiter::Gauge(gauge.limiter().clone())),
            AnyHandle::Budget(_) => None,
        }
    }

    fn as_budget(&self) -> Option<&Budget> {
        if let AnyHandle::Budget(budget) = self { Some(budget) } else { None }
    }

    fn resource(&self) -> &Resource {
        match self {
            AnyHandle::Rate(rate) => rate.resource(),
            AnyHandle::Gauge(gauge) => gauge.resource(),
            AnyHandle::Budget(budget) => budget.resource(),
        }
    }

    fn amount(&self, number: f64) -> Amount {
        budget::amount_of(number).unwrap_or_else(|error| panic!("{number} of `{}`: {error}", self.resource().id()))
    }

    /// A number of permits.
    fn whole(&self, number: f64) -> u64 {
        let is_whole = number >= 0.0 && number.fract() == 0.0;
        assert!(is_whole, "{number} permits of `{}`: expected a whole number, 0 or more", self.resource().id());
        number as u64
    }
}

impl Limits {
    pub(crate) fn new(costs: impl IntoIterator<Item = Cost>, runtime: runtime::Handle) -> Limits {
        let (limits, numbers): (Vec<_>, Vec<_>) =
            costs.into_iter().map(|Cost { limit, number }| (limit, number)).unzip();
        Limits::of(limits.into(), &numbers, runtime)
    }

    fn of(limits: Arc<[AnyHandle]>, numbers: &[impl Quantity], runtime: runtime::Handle) -> Limits {
        let permits = |(limit, number): (&AnyHandle, f64)| {
            let limiter = limit.limiter()?;
            let n = u32::try_from(limit.whole(number)).unwrap_or_else(|_| {
                panic!("{number} permits of `{}`: expected at most {}", limit.resource().id(), u32::MAX)
            });
            Some((limiter, n))
        };
        let amount = |(limit, number): (&'_ AnyHandle, f64)| limit.as_budget().map(|_| limit.amount(number));
        let joint = JointLimiter::new(pairs(&limits, numbers).filter_map(permits));
        let amounts: Vec<Amount> = pairs(&limits, numbers).filter_map(amount).collect();
        let budgets = BudgetAmounts::new(limits.iter().filter_map(AnyHandle::as_budget).zip(amounts));
        Limits { limits, budgets, joint, runtime }
    }

    /// The same limits with other numbers of permits. Cheaper than [`Client::limits`](crate::Client::limits).
    ///
    /// # Panics
    ///
    /// Panics if there is not one number for each limit, or if one is invalid: rates and gauges need whole numbers that
    /// fit into a `u32`, budgets numbers from 0 to 1e15.
    pub fn with_permits(&self, permits: &[impl Quantity]) -> Limits {
        Limits::of(Arc::clone(&self.limits), permits, self.runtime.clone())
    }

    /// Waits for the permits of all limits, and takes them together. A limit of which 0 permits are needed is not
    /// waited for.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future takes nothing.
    pub async fn acquire(&self) -> Result<Permits, Closed> {
        let amounts = self.budgets.take().await?;
        let permit = self.joint.acquire().await?;
        Ok(self.keep(permit, amounts))
    }

    /// Takes the permits of all limits if they are available now. If one refuses, nothing is taken from the others.
    pub fn try_acquire(&self) -> Result<Permits, Refusal> {
        let (permit, amounts) = self.try_take(JointLimiter::try_acquire)?;
        Ok(self.keep(permit, amounts))
    }

    /// Waits for the permits of all limits, for work whose cost is known only at its end.
    pub async fn reserve(&self) -> Result<Reservations, Closed> {
        let amounts = self.budgets.take().await?;
        let reserved = self.joint.reserve().await?;
        Ok(self.keep_reserved(reserved, amounts))
    }

    /// Reserves the permits of all limits if they are available now.
    pub fn try_reserve(&self) -> Result<Reservations, Refusal> {
        let (reserved, amounts) = self.try_take(JointLimiter::try_reserve)?;
        Ok(self.keep_reserved(reserved, amounts))
    }

    /// Takes the amounts of budgets and the permits of the others, or nothing.
    fn try_take<T>(
        &self,
        take: impl FnOnce(&JointLimiter) -> Result<T, JointRefusal>,
    ) -> Result<(T, TakenAmounts), Refusal> {
        let amounts = self.budgets.try_take().map_err(|RefusedBy { cost, is_closed }| {
            let error = if is_closed { TryError::Closed } else { TryError::NotNow { retry_after: None } };
            self.name(cost, error, |limit| limit.as_budget().is_some())
        })?;
        match take(&self.joint) {
            Ok(taken) => Ok((taken, amounts)),
            Err(JointRefusal { index, error }) => {
                amounts.give_back_and_want();
                Err(self.name(index, error, |limit| limit.as_budget().is_none()))
            }
        }
    }

    fn keep(&self, permit: JointPermit, amounts: TakenAmounts) -> Permits {
        // They are spent.
        drop(self.budgets.keep(amounts));
        Permits { _permit: permit, _limits: Arc::clone(&self.limits) }
    }

    fn keep_reserved(&self, reserved: JointReservation, amounts: TakenAmounts) -> Reservations {
        Reservations { reserved, budgets: self.budgets.keep(amounts), limits: Arc::clone(&self.limits) }
    }

    /// A refusal by one of the limits of a kind. `place` is its index among these.
    fn name(&self, place: usize, error: TryError, is_of_kind: impl Fn(&AnyHandle) -> bool) -> Refusal {
        let mut of_kind = self.limits.iter().enumerate().filter(|(_, limit)| is_of_kind(limit));
        let (index, limit) = of_kind.nth(place).expect("a limit of this request");
        Refusal { index, resource: limit.resource().id().to_owned(), error }
    }

    /// Charges each rate and budget for permits that were already used, see [`Rate::charge`] and [`Budget::charge`]. The
    /// numbers of gauges are ignored. After the client was closed nothing is charged.
    ///
    /// # Errors
    ///
    /// The part beyond the maximum debt of a rate is dropped; the error says how much.
    ///
    /// # Panics
    ///
    /// Panics if there is not one number for each limit, or if one is invalid: rates need whole numbers, budgets numbers
    /// from 0 to 1e15.
    pub fn charge(&self, permits: &[impl Quantity]) -> Result<(), Uncharged> {
        let used = checked(&self.limits, permits);
        let charged = self.limits.iter().zip(used).map(|(limit, used)| match (limit, used) {
            (AnyHandle::Rate(rate), Used::Permits(n)) => rate.charge(n),
            (AnyHandle::Budget(budget), Used::Amount(amount)) => {
                // After the close nothing is charged.
                let _ = budget.charge_amount(amount);
                Ok(())
            }
            _ => Ok(()),
        });
        first_uncharged(&self.limits, charged)
    }

    /// Returns to each rate the permits taken last, because they were not used, see [`Rate::refund`]. The numbers of
    /// gauges and budgets are ignored: drop the permits, and settle reservations of amounts.
    ///
    /// # Panics
    ///
    /// As [`charge`](Self::charge).
    pub fn refund(&self, permits: &[impl Quantity]) {
        for (limit, unused) in self.limits.iter().zip(checked(&self.limits, permits)) {
            if let (AnyHandle::Rate(rate), Used::Permits(n)) = (limit, unused) {
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
    /// The number of permits, or the amount, taken of each limit.
    pub fn reserved(&self) -> impl ExactSizeIterator<Item = f64> {
        let (mut permits, mut amounts) = (self.reserved.reserved(), self.budgets.iter());
        self.limits.iter().map(move |limit| match limit {
            AnyHandle::Rate(_) | AnyHandle::Gauge(_) => permits.next().map_or(0.0, f64::from),
            AnyHandle::Budget(_) => amounts.next().map_or(0.0, BudgetReservation::reserved),
        })
    }

    /// Ends the reservation: `used[i]` permits of limit i were used. Rates and budgets get the unused ones back, or are
    /// charged for the excess, see [`Reservation::settle`](crate::Reservation::settle) and
    /// [`BudgetReservation::settle`]. The permits of gauges are returned; their numbers are ignored.
    ///
    /// # Errors
    ///
    /// The part beyond the maximum debt of a rate is dropped; the error says how much. All limits are settled.
    ///
    /// # Panics
    ///
    /// As [`Limits::charge`].
    pub fn settle(self, used: &[impl Quantity]) -> Result<(), Uncharged> {
        let used = checked(&self.limits, used);
        let permits = used.iter().filter_map(|used| if let Used::Permits(n) = used { Some(*n) } else { None });
        let mut settled = self.reserved.settle(&permits.collect::<Vec<_>>()).into_iter();
        let mut budgets = self.budgets.into_iter();
        let limits = &*self.limits;
        let counted = limits.iter().zip(used).map(|(limit, used)| match used {
            Used::Permits(_) => rate::count_uncharged(limit.resource(), settled.next().unwrap_or(Ok(()))),
            Used::Amount(amount) => {
                // After the close the reservation stays spent.
                let _ = budgets.next().map(|reservation| reservation.settle_amount(amount));
                Ok(())
            }
        });
        first_uncharged(limits, counted)
    }
}

/// What was used of a limit.
#[derive(Debug, Clone, Copy)]
enum Used {
    /// Permits of a rate, or 0 of a gauge.
    Permits(u64),
    Amount(Amount),
}

/// Checks one number for each limit, before any of them is changed.
fn checked(limits: &[AnyHandle], numbers: &[impl Quantity]) -> Vec<Used> {
    let one = |(limit, number): (&AnyHandle, f64)| match limit {
        AnyHandle::Rate(_) => Used::Permits(limit.whole(number)),
        AnyHandle::Gauge(_) => Used::Permits(0),
        AnyHandle::Budget(_) => Used::Amount(limit.amount(number)),
    };
    pairs(limits, numbers).map(one).collect()
}

fn pairs<'a>(limits: &'a [AnyHandle], numbers: &'a [impl Quantity]) -> impl Iterator<Item = (&'a AnyHandle, f64)> {
    assert_eq!(numbers.len(), limits.len(), "one number for each limit");
    limits.iter().zip(numbers.iter().map(|number| number.to_f64()))
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
