//! A resource whose capacity is a rate: so many per second.

use crate::{
    error::OpenError,
    limiter::{Closed, RateLimiter, Standing, TryError},
    opened::Limiter,
    resource::Resource,
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

    /// What could be had now.
    pub fn standing(&self) -> Standing {
        self.limiter.standing()
    }

    /// Gives back `many` that were let pass and did not. What is beyond the burst is lost.
    pub fn refund(&self, many: u64) {
        self.limiter.refund(many);
    }

    /// What does not depend on its being a rate: capacity, lease, wants.
    pub fn resource(&self) -> &Resource {
        &self.resource
    }
}
