//! Opening a resource as a rate, as a gauge, or without a limiter.

use std::sync::Arc;

use crate::{
    error::{OpenError, check_id, check_wants},
    handles::{
        budget::Budget,
        gauge::Gauge,
        open_resource::{Limiter, OpenResource},
        rate::Rate,
        resource::Resource,
        shared::CloseGuard,
        spender::Spender,
    },
    limiter::{Burst, GaugeLimiter, RateLimiter, Window},
    session::Mode,
};

/// Builder of a resource handle, returned by [`Client::resource`](crate::Client::resource).
#[must_use = "a resource is not opened before `rate`, `gauge`, `budget` or `open` is called"]
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

    /// Sets the capacity to ask for. By default it is estimated from the permits that callers take or wait for.
    pub fn wants(mut self, wants: f64) -> ResourceBuilder {
        self.wants = Some(wants);
        self
    }

    /// Sets the priority that this client claims (default 0). Its meaning depends on the resource. The server may count
    /// the client at another priority, see [`Resource::priority`].
    pub fn priority(mut self, priority: i64) -> ResourceBuilder {
        self.priority = priority;
        self
    }

    /// Sets the capacity to use after the lease has expired without a refresh. Defaults to the mode of the client.
    pub fn mode(mut self, mode: Mode) -> ResourceBuilder {
        self.mode = mode;
        self
    }

    /// Sets the initial amount in use, see [`Resource::hold`]. For handles without a limiter.
    pub fn in_use(mut self, in_use: f64) -> ResourceBuilder {
        self.in_use = in_use;
        self
    }

    /// Rates: sets the burst, the number of permits that may pass at once after a pause. In a pool the server bounds
    /// it, see [`Burst`].
    pub fn burst(mut self, burst: Burst) -> ResourceBuilder {
        self.burst = burst;
        self
    }

    /// Rates: limits per window, see [`Window`]. Overrides [`burst`](Self::burst).
    pub fn window(mut self, window: Window) -> ResourceBuilder {
        self.window = Some(window);
        self
    }

    /// Rates: sets the maximum debt due to charges (default 1,000,000), see [`Rate::charge`].
    pub fn max_debt(mut self, permits: u64) -> ResourceBuilder {
        self.max_debt = Some(permits);
        self
    }

    /// Opens the resource as a rate: permits per second.
    pub fn rate(self) -> Result<Rate, OpenError> {
        let (burst, window, max_debt) = (self.burst, self.window, self.max_debt);
        let handle = self.open_as("rate", |wakeup| {
            let limiter = match window {
                Some(Window { length, slides: true, .. }) => RateLimiter::sliding(length, Arc::clone(wakeup)),
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

    /// Opens the resource as a gauge: permits in use at the same time.
    pub fn gauge(self) -> Result<Gauge, OpenError> {
        let handle = self.open_as("gauge", |wakeup| Limiter::Gauge(GaugeLimiter::with_pressure(Arc::clone(wakeup))))?;
        Gauge::new(handle)
    }

    /// Opens the resource as a budget: an amount that may be spent in each period.
    pub fn budget(self) -> Result<Budget, OpenError> {
        let handle = self.open_as("budget", |wakeup| Limiter::Budget(Arc::new(Spender::new(Arc::clone(wakeup)))))?;
        Budget::new(handle)
    }

    /// Opens the resource without a limiter. The caller has to respect [`Resource::capacity`], and may report its usage
    /// ([`Resource::report_use`]). Wants have to be set.
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
