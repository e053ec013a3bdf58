//! Handles of resources.

use std::{sync::Arc, time::Duration};

use tokio::{runtime::Handle, sync::watch};

use crate::{
    error::{NotReady, OpenError, check_wants},
    handles::{open_resource::OpenResource, shared::CloseGuard},
    limiter::{Closed, Window},
    session::{Basis, Capacity, Usable, pool::PoolState},
};

/// A handle of a resource. All handles of a resource of one client share one lease and one limiter. The lease is
/// released with the last handle.
pub struct Resource {
    guard: Arc<CloseGuard>,
    opened: Arc<OpenResource>,
}

impl Resource {
    pub(crate) fn new(guard: Arc<CloseGuard>, opened: Arc<OpenResource>) -> Resource {
        Resource { guard, opened }
    }

    pub(crate) fn opened(&self) -> &OpenResource {
        &self.opened
    }

    /// The runtime that the client runs on, for blocking on it from other threads.
    pub fn runtime(&self) -> &Handle {
        &self.guard.runtime
    }

    /// The time on the clock of the client's leases.
    pub(crate) fn now(&self) -> leaseway_core::types::Millis {
        self.guard.shared.now()
    }

    pub(crate) fn estimates_wants(&self) -> bool {
        self.opened.estimates_wants()
    }

    /// Fails if the client was closed.
    pub(crate) fn check_open(&self) -> Result<(), Closed> {
        if self.guard.shared.is_closing() { Err(Closed) } else { Ok(()) }
    }

    /// Waits until the client has ended.
    pub(crate) async fn client_ended(&self) {
        self.guard.shared.closed().await;
    }

    /// The name of the resource.
    pub fn id(&self) -> &str {
        &self.opened.id
    }

    /// The capacity that may be used now.
    pub fn capacity(&self) -> Capacity {
        self.opened.usable().capacity
    }

    /// The capacity that may be used now, and where it comes from.
    pub fn usable(&self) -> Usable {
        self.opened.usable()
    }

    /// The capacity of the live lease, and the time until it expires.
    pub fn lease(&self) -> Option<(Capacity, Duration)> {
        self.guard.shared.lease(&self.opened.id).map(|(lease, left)| (lease.capacity, left))
    }

    /// The state of this client in the pool, if the resource is one (PRIORITY_POOL) and the server has answered.
    pub fn pool(&self) -> Option<PoolState> {
        self.opened.pool()
    }

    /// Reports usage since the last call: the units used, and the time in which the capacity was in use.
    ///
    /// For handles without a limiter ([`open`](crate::ResourceBuilder::open)); limiters count their usage themselves.
    /// In a pool (PRIORITY_POOL) the server bills the units, and takes the busy fraction of the time as the fraction of
    /// the capacity in use. It assumes that a client that never reports uses everything. Outside of pools nothing is
    /// sent.
    ///
    /// ```no_run
    /// # async fn work() -> std::time::Duration { std::time::Duration::from_millis(40) }
    /// # async fn f(client: leaseway_client::Client) -> Result<(), leaseway_client::OpenError> {
    /// let searches = client.resource("searches").wants(10.0).open()?;
    /// loop {
    ///     // This program has to respect `searches.capacity()`.
    ///     let busy = work().await;
    ///     searches.report_use(1, busy)?;
    /// }
    /// # }
    /// ```
    pub fn report_use(&self, units: u64, busy: Duration) -> Result<(), OpenError> {
        if self.opened.report_use(units, busy) { Ok(()) } else { Err(OpenError::HasLimiter(self.id().to_owned())) }
    }

    /// Sets the amount that may be in use. While it exceeds the lease, the client reports it, and the server does not
    /// give it to others. [`f64::INFINITY`] stands for all capacity that the server holds for this client, which may be
    /// more than the client knows.
    ///
    /// For handles without a limiter ([`open`](crate::ResourceBuilder::open)) whose owner forwards its leases and
    /// cannot revoke them. Returns the lease that a request will confirm together with this report, or after it.
    pub fn hold(&self, in_use: f64) -> Option<(Capacity, Duration)> {
        if self.opened.hold(in_use) {
            self.guard.shared.demand_changed(&self.opened.id);
        }
        self.lease()
    }

    /// The priority at which the server counts this client, from the last answer; before that the claimed priority. The
    /// client always claims the same priority, so it recovers when a cap at the server is lifted.
    pub fn priority(&self) -> i64 {
        self.opened.effective_priority()
    }

    /// Whether the server said in its last answer that nothing limits this resource: no template matches its name, or its
    /// template has NO_ALGORITHM. Then every request is granted, so a typing error in a name is not a limit of zero. False
    /// before the first answer, and with servers that do not say it.
    pub fn is_unlimited(&self) -> bool {
        self.opened.is_unlimited()
    }

    /// Watches the capacity that may be used.
    pub fn watch(&self) -> watch::Receiver<Usable> {
        self.opened.watch()
    }

    /// Waits for the first lease, or until a request has failed and the mode decides.
    pub async fn answered(&self) -> Result<Usable, Closed> {
        let mut watch = self.opened.watch();
        tokio::select! {
            usable = watch.wait_for(|usable| usable.basis != Basis::Unknown) => {
                usable.map(|usable| *usable).map_err(|_| Closed)
            }
            () = self.guard.shared.closed() => Err(Closed),
        }
    }

    /// Waits for a lease. The error says why there is none. Fails if the client is closed.
    pub async fn ready(&self, timeout: Duration) -> Result<(), NotReady> {
        self.guard.shared.ready(Some(&self.opened.id), timeout).await
    }

    /// Sets the wants. A change by more than a tenth is sent immediately, a smaller one with the next refresh.
    pub fn set_wants(&self, wants: f64) -> Result<(), OpenError> {
        self.opened.set_fixed_wants(check_wants(wants)?);
        self.guard.shared.demand_changed(&self.opened.id);
        Ok(())
    }

    /// Estimates the wants now instead of with the next refresh. Useful after a refusal: refused callers do not wait,
    /// so the client would not notice them before the refresh. A change by more than a tenth is sent immediately.
    pub fn reestimate_wants(&self) {
        self.guard.shared.demand_changed(&self.opened.id);
    }

    pub(crate) fn set_window(&self, window: Window) {
        self.opened.set_window(window);
        self.guard.shared.demand_changed(&self.opened.id);
    }

    /// Estimates the wants from now on, from the permits that callers take or wait for. Fixed wants do not count any
    /// more. Wants that are estimated already do not change.
    pub fn estimate_wants(&self) -> Result<(), OpenError> {
        if !self.opened.estimate_wants() {
            return Err(OpenError::NoWants(self.id().to_owned()));
        }
        self.guard.shared.demand_changed(&self.opened.id);
        Ok(())
    }
}

impl Clone for Resource {
    fn clone(&self) -> Resource {
        self.guard.shared.reopen(&self.opened.id);
        Resource { guard: Arc::clone(&self.guard), opened: Arc::clone(&self.opened) }
    }
}

impl Drop for Resource {
    fn drop(&mut self) {
        self.guard.shared.close_handle(&self.opened.id);
    }
}

impl std::fmt::Debug for Resource {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Resource").field("id", &self.id()).field("usable", &self.usable()).finish_non_exhaustive()
    }
}
