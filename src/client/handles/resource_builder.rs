//! Opening a resource, as a rate, a gauge, or as it is.

use std::sync::Arc;

use crate::{
    error::{OpenError, check_id, check_wants},
    handles::{
        client::CloseGuard,
        gauge::Gauge,
        open_resource::{Limiter, OpenResource},
        rate::Rate,
        resource::Resource,
    },
    limiter::{Burst, GaugeLimiter, RateLimiter, Window},
    session::Mode,
};

/// A resource to be opened. What is not said has a default that is good to begin with.
#[must_use = "nothing is asked for until it is opened with `rate`, `gauge` or `open`"]
pub struct ResourceBuilder {
    guard: Arc<CloseGuard>,
    id: Arc<str>,
    wants: Option<f64>,
    priority: i64,
    mode: Mode,
    burst: Burst,
    window: Option<Window>,
    max_debt: Option<u64>,
    in_use: f64,
}

impl ResourceBuilder {
    pub(crate) fn new(guard: Arc<CloseGuard>, id: Arc<str>) -> ResourceBuilder {
        let mode = guard.mode;
        let (burst, in_use) = (Burst::default(), 0.0);
        ResourceBuilder { guard, id, wants: None, priority: 0, mode, burst, window: None, max_debt: None, in_use }
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

    /// So much may be in use from the beginning, as [`Resource::hold`] says it later. For a handle without a limiter.
    pub fn in_use(mut self, in_use: f64) -> ResourceBuilder {
        self.in_use = in_use;
        self
    }

    /// How much may pass at once after a pause; for rates. In a pool the server says how much at most, see [`Burst`].
    pub fn burst(mut self, burst: Burst) -> ResourceBuilder {
        self.burst = burst;
        self
    }

    /// What is limited is what passes within a window: what is not used is saved up for as long as that is, and at
    /// first all of it is there. For rates; it takes the place of [`burst`](Self::burst).
    pub fn window(mut self, window: Window) -> ResourceBuilder {
        self.window = Some(window);
        self
    }

    /// How much may be owed at most because of what is charged; for rates (1,000,000). What is charged beyond it counts
    /// for nothing, and is told as an error: see [`Rate::charge`].
    pub fn max_debt(mut self, permits: u64) -> ResourceBuilder {
        self.max_debt = Some(permits);
        self
    }

    /// Opens it as a rate: so many per second.
    pub fn rate(self) -> Result<Rate, OpenError> {
        let (burst, window, max_debt) = (self.burst, self.window, self.max_debt);
        let handle = self.open_as("rate", |wakeup| {
            let limiter = match window {
                Some(window) => RateLimiter::full(Burst::Window(window.length), Arc::clone(wakeup)),
                None => RateLimiter::with_pressure(burst, Arc::clone(wakeup)),
            };
            if let Some(permits) = max_debt {
                limiter.set_max_debt(permits);
            }
            Limiter::Rate(limiter)
        })?;
        Rate::new(handle)
    }

    /// Opens it as a gauge: so many at the same time.
    pub fn gauge(self) -> Result<Gauge, OpenError> {
        let handle = self.open_as("gauge", |wakeup| Limiter::Gauge(GaugeLimiter::with_pressure(Arc::clone(wakeup))))?;
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
        let ResourceBuilder { guard, id, wants, priority, mode, window, in_use, .. } = self;
        check_id(&id).map_err(OpenError::BadId)?;
        let wants = wants.map(check_wants).transpose()?;
        let make = |wakeup: &_| {
            let opened = OpenResource::new(Arc::clone(&id), mode, priority, limiter(wakeup), wants);
            opened.hold(in_use);
            opened.with_window(window)
        };
        let opened = guard.shared.open(&id, make, |opened| match opened.limiter.kind() {
            is if is == kind => Ok(()),
            is => Err(OpenError::OtherKind { id: id.to_string(), is, asked: kind }),
        })?;
        Ok(Resource::new(guard, opened))
    }
}
