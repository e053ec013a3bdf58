//! Gauges: resources with a number of permits in use at the same time, such as connections, transactions or jobs.

use crate::{
    error::OpenError,
    handles::{open_resource::Limiter, resource::Resource},
    limiter::{self, Closed, GaugeLimiter, TryError},
};

/// A handle of a gauge. All handles of a resource of one client share the lease and the permits.
///
/// The number of permits in use is at most the capacity, rounded down. When the capacity is cut, permits in use stay
/// valid. The gauge grants no new ones until enough were returned, and the client reports the permits still in use, so
/// that the server does not give their capacity to others.
///
/// ```no_run
/// # async fn example(client: leaseway_client::Client) -> Result<(), Box<dyn std::error::Error>> {
/// let transactions = client.resource("transactions").gauge()?;
/// let permit = transactions.acquire().await?;
/// // … the transaction …
/// drop(permit);
/// # Ok(())
/// # }
/// ```
#[derive(Debug, Clone)]
pub struct Gauge {
    resource: Resource,
    limiter: GaugeLimiter,
}

/// Permits in use. Dropping the value returns them.
///
/// It keeps its gauge open: the lease is not released while permits are in use, unless the client is closed.
#[derive(Debug)]
#[must_use = "a permit that is dropped is returned"]
pub struct Permit {
    // Dropped before the handle, which may release the lease.
    _permit: limiter::GaugePermit,
    _gauge: Resource,
}

impl Gauge {
    pub(crate) fn new(resource: Resource) -> Result<Gauge, OpenError> {
        match &resource.opened().limiter {
            Limiter::Gauge(limiter) => Ok(Gauge { limiter: limiter.clone(), resource }),
            other => Err(OpenError::OtherKind { id: resource.id().to_owned(), is: other.kind(), asked: "gauge" }),
        }
    }

    /// Waits for a permit.
    pub async fn acquire(&self) -> Result<Permit, Closed> {
        self.acquire_many(1).await
    }

    /// Waits for `n` permits and takes them together.
    pub async fn acquire_many(&self, n: u32) -> Result<Permit, Closed> {
        self.limiter.acquire_many(n).await.map(|permit| self.keep(permit))
    }

    /// Takes `n` permits if they are free now.
    pub fn try_acquire(&self, n: u32) -> Result<Permit, TryError> {
        self.limiter.try_acquire(n).map(|permit| self.keep(permit))
    }

    fn keep(&self, permit: limiter::GaugePermit) -> Permit {
        Permit { _permit: permit, _gauge: self.resource.clone() }
    }

    /// Permits in use.
    pub fn in_use(&self) -> u64 {
        self.limiter.in_use()
    }

    /// The limiter that enforces the lease.
    pub fn limiter(&self) -> &GaugeLimiter {
        &self.limiter
    }

    /// The resource: its capacity, lease and wants.
    pub fn resource(&self) -> &Resource {
        &self.resource
    }
}
