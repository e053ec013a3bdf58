//! Handles of resources.

use std::{sync::Arc, time::Duration};

use tokio::{runtime::Handle, sync::watch};

use crate::{
    error::{NotReady, OpenError, check_wants},
    handles::{client::CloseGuard, open_resource::OpenResource},
    limiter::{Closed, Window},
    session::{Basis, Capacity, Usable, pool::PoolState},
};

/// A handle of a resource. All handles of one resource, however they were made, share one lease and one limiter; with
/// the last the lease is given back.
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

    /// The runtime that keeps its leases: for waiting in other threads than tokio's own.
    pub fn runtime(&self) -> &Handle {
        &self.guard.runtime
    }

    pub(crate) fn estimates_wants(&self) -> bool {
        self.opened.estimates_wants()
    }

    /// Whether the client has not been closed.
    pub(crate) fn still_open(&self) -> Result<(), Closed> {
        if self.guard.shared.is_closing() { Err(Closed) } else { Ok(()) }
    }

    /// Waits until leases are kept alive no more.
    pub(crate) async fn client_ended(&self) {
        self.guard.shared.closed().await;
    }

    /// Which.
    pub fn id(&self) -> &str {
        &self.opened.id
    }

    /// How much may be used now.
    pub fn capacity(&self) -> Capacity {
        self.opened.usable().capacity
    }

    /// How much may be used now, and why.
    pub fn usable(&self) -> Usable {
        self.opened.usable()
    }

    /// The lease it has now, and how much longer.
    pub fn lease(&self) -> Option<(Capacity, Duration)> {
        self.guard.shared.lease(&self.opened.id).map(|(lease, left)| (lease.capacity, left))
    }

    /// Where it stands, if the resource is a pool (PRIORITY_POOL) and the server has answered.
    pub fn pool(&self) -> Option<PoolState> {
        self.opened.pool()
    }

    /// Says what was used since this was last said: so many units, and for how long of that time the capacity was in
    /// use. For a handle without a limiter ([`open`](crate::ResourceBuilder::open)); the others count by themselves. In
    /// a pool (PRIORITY_POOL) the server bills the units, and takes one that is busy for a part of the time to use that
    /// part of its capacity. One that never says anything is taken to use all it has; elsewhere nothing is sent.
    ///
    /// ```no_run
    /// # async fn work() -> std::time::Duration { std::time::Duration::from_millis(40) }
    /// # async fn f(client: leaseway_client::Client) -> Result<(), leaseway_client::OpenError> {
    /// let searches = client.resource("searches").wants(10.0).open()?;
    /// loop {
    ///     // What keeps to `searches.capacity()` is up to this program.
    ///     let busy = work().await;
    ///     searches.report_use(1, busy)?;
    /// }
    /// # }
    /// ```
    pub fn report_use(&self, units: u64, busy: Duration) -> Result<(), OpenError> {
        if self.opened.report_use(units, busy) { Ok(()) } else { Err(OpenError::HasLimiter(self.id().to_owned())) }
    }

    /// Says how much may be in use from now on: as long as that is more than the lease allows, the server is told so,
    /// and gives it to no other client. [`f64::INFINITY`] stands for all that is held for this client, of which it may
    /// know only a part. For a handle without a limiter ([`open`](crate::ResourceBuilder::open)) whose user passes on
    /// what it is leased, and cannot take it back. Returns the lease that the server will be told of together with
    /// this, or after it.
    pub fn hold(&self, in_use: f64) -> Option<(Capacity, Duration)> {
        if self.opened.hold(in_use) {
            self.guard.shared.demand_changed(&self.opened.id);
        }
        self.lease()
    }

    /// At what priority the server counts this client: as the last answer named it, and as claimed until one does. The
    /// claim stays what it is, so that a cap that is lifted is not kept up by the client itself.
    pub fn priority(&self) -> i64 {
        self.opened.effective_priority()
    }

    /// Follows what may be used.
    pub fn watch(&self) -> watch::Receiver<Usable> {
        self.opened.watch()
    }

    /// Waits for the first lease, or for what the mode says once a request has failed.
    pub async fn answered(&self) -> Result<Usable, Closed> {
        let mut watch = self.opened.watch();
        tokio::select! {
            usable = watch.wait_for(|usable| usable.basis != Basis::Unknown) => {
                usable.map(|usable| *usable).map_err(|_| Closed)
            }
            () = self.guard.shared.closed() => Err(Closed),
        }
    }

    /// Waits until it has a lease, or says why it has none.
    pub async fn ready(&self, timeout: Duration) -> Result<(), NotReady> {
        self.guard.shared.ready(Some(&self.opened.id), timeout).await
    }

    /// Asks for so much from now on: at once if that differs by more than a tenth, else with the next refresh.
    pub fn set_wants(&self, wants: f64) -> Result<(), OpenError> {
        self.opened.set_fixed_wants(check_wants(wants)?);
        self.guard.shared.demand_changed(&self.opened.id);
        Ok(())
    }

    /// Looks now at what is wanted, rather than with the next refresh: callers that were refused do not wait, and would
    /// not be noticed before. Asks at once if wants have changed by more than a tenth.
    pub fn reestimate_wants(&self) {
        self.guard.shared.demand_changed(&self.opened.id);
    }

    pub(crate) fn set_window(&self, window: Window) {
        self.opened.set_window(window);
        self.guard.shared.demand_changed(&self.opened.id);
    }

    /// Estimates from now on what is wanted, from what passes the limiter and what waits there.
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
