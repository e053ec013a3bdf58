//! A resource whose capacity is a number of things at the same time: connections, transactions, jobs.

use crate::{
    error::OpenError,
    handles::{open_resource::Limiter, resource::Resource},
    limiter::{self, Closed, GaugeLimiter, TryError},
};

/// A handle of a gauge. Clones share the lease and the permits, as do all handles of the same resource of a client.
///
/// No more permits are out than the capacity allows, whole ones. When the capacity is cut, those that are out stay
/// valid: nothing new is let in until enough came back, and meanwhile the server is told what is still in use, so that
/// it gives it to no other client.
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

/// Permits in use; dropping it returns them. It is a handle of its gauge as well: the lease is not given back while
/// something is in use, unless the client is closed.
#[derive(Debug)]
#[must_use = "a permit that is dropped is returned"]
pub struct Permit {
    // Returned before the handle goes, which may give the lease back.
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

    /// Waits for a permit. It is given back when it is dropped.
    pub async fn acquire(&self) -> Result<Permit, Closed> {
        self.acquire_many(1).await
    }

    /// Waits for `many` at once.
    pub async fn acquire_many(&self, many: u32) -> Result<Permit, Closed> {
        self.limiter.acquire_many(many).await.map(|permit| self.keep(permit))
    }

    /// `many`, if they are free now.
    pub fn try_acquire(&self, many: u32) -> Result<Permit, TryError> {
        self.limiter.try_acquire(many).map(|permit| self.keep(permit))
    }

    fn keep(&self, permit: limiter::GaugePermit) -> Permit {
        Permit { _permit: permit, _gauge: self.resource.clone() }
    }

    /// Permits that are out.
    pub fn in_use(&self) -> u64 {
        self.limiter.in_use()
    }

    /// What does not depend on its being a gauge: capacity, lease, wants.
    pub fn resource(&self) -> &Resource {
        &self.resource
    }
}
