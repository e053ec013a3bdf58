//! Handles of resources: opened as a rate, a gauge, or as they are.

use std::{sync::Arc, time::Duration};

use leaseway_session::{Basis, Capacity, Mode, Usable, pool::PoolState};
use tokio::{runtime::Handle, sync::watch};

use crate::{
    client::Keeper,
    error::{NotReady, OpenError, check_id, check_wants},
    gauge::Gauge,
    limiter::{Burst, Closed, GaugeLimiter, RateLimiter},
    opened::{Limiter, Opened},
    rate::Rate,
};

/// A resource to be opened. What is not said has a default that is good to begin with.
#[must_use = "nothing is asked for until it is opened with `rate`, `gauge` or `open`"]
pub struct ResourceBuilder {
    keeper: Arc<Keeper>,
    id: Arc<str>,
    wants: Option<f64>,
    priority: i64,
    mode: Mode,
    burst: Burst,
}

impl ResourceBuilder {
    pub(crate) fn new(keeper: Arc<Keeper>, id: Arc<str>) -> ResourceBuilder {
        let mode = keeper.mode;
        ResourceBuilder { keeper, id, wants: None, priority: 0, mode, burst: Burst::default() }
    }

    /// How much to ask for. Without this it is estimated from what passes the limiter and what waits there.
    pub fn wants(mut self, wants: f64) -> ResourceBuilder {
        self.wants = Some(wants);
        self
    }

    /// How important this client claims to be; what that means is up to the resource (default 0). The server may count
    /// it at another: see [`Resource::priority`].
    pub fn priority(mut self, priority: i64) -> ResourceBuilder {
        self.priority = priority;
        self
    }

    /// What to use when the lease has ended unrenewed; by default as the client says.
    pub fn mode(mut self, mode: Mode) -> ResourceBuilder {
        self.mode = mode;
        self
    }

    /// How much may pass at once after a pause; for rates. In a pool the server says how much at most, see [`Burst`].
    pub fn burst(mut self, burst: Burst) -> ResourceBuilder {
        self.burst = burst;
        self
    }

    /// Opens it as a rate: so many per second.
    pub fn rate(self) -> Result<Rate, OpenError> {
        let burst = self.burst;
        let handle =
            self.open_as("rate", |nudge| Limiter::Rate(RateLimiter::with_pressure(burst, Arc::clone(nudge))))?;
        Rate::new(handle)
    }

    /// Opens it as a gauge: so many at the same time.
    pub fn gauge(self) -> Result<Gauge, OpenError> {
        let handle = self.open_as("gauge", |nudge| Limiter::Gauge(GaugeLimiter::with_pressure(Arc::clone(nudge))))?;
        Gauge::new(handle)
    }

    /// Opens it without a limiter: the caller keeps to [`Resource::capacity`], and can say what it has used
    /// ([`Resource::report_use`]). Wants must be said.
    pub fn open(self) -> Result<Resource, OpenError> {
        if self.wants.is_none() {
            return Err(OpenError::NoWants(self.id.to_string()));
        }
        self.open_as("resource without a limiter", |_| Limiter::None)
    }

    fn open_as(
        self,
        kind: &'static str,
        limiter: impl FnOnce(&Arc<tokio::sync::Notify>) -> Limiter,
    ) -> Result<Resource, OpenError> {
        let ResourceBuilder { keeper, id, wants, priority, mode, .. } = self;
        check_id(&id).map_err(OpenError::BadId)?;
        let wants = wants.map(check_wants).transpose()?;
        let make = |nudge: &_| Opened::new(Arc::clone(&id), mode, priority, limiter(nudge), wants);
        let opened = keeper.shared.open(&id, make, |opened| match opened.limiter.kind() {
            is if is == kind => Ok(()),
            is => Err(OpenError::OtherKind { id: id.to_string(), is, asked: kind }),
        })?;
        Ok(Resource { keeper, opened })
    }
}

/// A handle of a resource. All handles of one resource, however they were made, share one lease and one limiter; with
/// the last the lease is given back.
pub struct Resource {
    keeper: Arc<Keeper>,
    opened: Arc<Opened>,
}

impl Resource {
    pub(crate) fn opened(&self) -> &Opened {
        &self.opened
    }

    pub(crate) fn runtime(&self) -> &Handle {
        &self.keeper.runtime
    }

    pub(crate) fn estimates_wants(&self) -> bool {
        self.opened.estimates_wants()
    }

    /// Whether the client has not been closed.
    pub(crate) fn still_open(&self) -> Result<(), Closed> {
        if self.keeper.shared.is_closing() { Err(Closed) } else { Ok(()) }
    }

    /// Waits until nobody keeps leases alive any more.
    pub(crate) async fn client_ended(&self) {
        self.keeper.shared.closed().await;
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
        self.keeper.shared.lease(&self.opened.id).map(|(lease, left)| (lease.capacity, left))
    }

    /// Where it stands, if the resource is a pool (PRIORITY_POOL) and the server has answered.
    pub fn pool(&self) -> Option<PoolState> {
        self.opened.pool()
    }

    /// Says what was used since this was last said: so many units, and for how long of that time the capacity was in
    /// use. For a handle without a limiter ([`open`](ResourceBuilder::open)); the others count by themselves. In a pool
    /// (PRIORITY_POOL) the server bills the units, and takes one that is busy for a part of the time to use that part
    /// of its capacity. One that never says anything is taken to use all it has; elsewhere nothing is sent.
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

    /// At what priority the server counts this client: as the last answer named it, and as claimed until one does. The
    /// claim stays what it is, so that a cap that is lifted is not kept up by the client itself.
    pub fn priority(&self) -> i64 {
        self.opened.counted_at()
    }

    /// Follows what may be used.
    pub fn watch(&self) -> watch::Receiver<Usable> {
        self.opened.watch()
    }

    /// Waits for the first lease, or for whatever the mode says once a request has failed.
    pub async fn answered(&self) -> Result<Usable, Closed> {
        let mut watch = self.opened.watch();
        tokio::select! {
            usable = watch.wait_for(|usable| usable.basis != Basis::Unknown) => {
                usable.map(|usable| *usable).map_err(|_| Closed)
            }
            () = self.keeper.shared.closed() => Err(Closed),
        }
    }

    /// Waits until it has a lease, or says why it has none.
    pub async fn ready(&self, timeout: Duration) -> Result<(), NotReady> {
        self.keeper.shared.ready(Some(&self.opened.id), timeout).await
    }

    /// Asks for so much from now on: at once if that differs by more than a tenth, else with the next refresh.
    pub fn set_wants(&self, wants: f64) -> Result<(), OpenError> {
        self.opened.fix_wants(check_wants(wants)?);
        self.keeper.shared.demand_changed(&self.opened.id);
        Ok(())
    }

    /// Estimates from now on what is wanted, from what passes the limiter and what waits there.
    pub fn estimate_wants(&self) -> Result<(), OpenError> {
        if !self.opened.estimate_wants() {
            return Err(OpenError::NoWants(self.id().to_owned()));
        }
        self.keeper.shared.demand_changed(&self.opened.id);
        Ok(())
    }
}

impl Clone for Resource {
    fn clone(&self) -> Resource {
        self.keeper.shared.reopen(&self.opened.id);
        Resource { keeper: Arc::clone(&self.keeper), opened: Arc::clone(&self.opened) }
    }
}

impl Drop for Resource {
    fn drop(&mut self) {
        self.keeper.shared.close_handle(&self.opened.id);
    }
}

impl std::fmt::Debug for Resource {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Resource").field("id", &self.id()).field("usable", &self.usable()).finish_non_exhaustive()
    }
}
