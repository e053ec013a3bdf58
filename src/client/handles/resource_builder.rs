//! Opening a resource as a rate, as a gauge, or without a limiter.

use std::sync::Arc;

use crate::{
    error::{OpenError, check_id, check_wants},
    handles::{
        budget::Budget,
        gauge::Gauge,
        open_resource::{Limiter, OpenOptions, OpenResource},
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
    options: OpenOptions,
    window: Option<Window>,
    in_use: f64,
}

impl ResourceBuilder {
    pub(crate) fn new(guard: Arc<CloseGuard>, id: Arc<str>) -> ResourceBuilder {
        ResourceBuilder { guard, id, options: OpenOptions::default(), window: None, in_use: 0.0 }
    }

    /// Sets the capacity to ask for. By default it is estimated from the permits that callers take or wait for.
    pub fn wants(mut self, wants: f64) -> ResourceBuilder {
        self.options.wants = Some(wants);
        self
    }

    /// Sets the priority that this client claims (default 0). Its meaning depends on the resource. The server may count
    /// the client at another priority, see [`Resource::priority`].
    pub fn priority(mut self, priority: i64) -> ResourceBuilder {
        self.options.priority = Some(priority);
        self
    }

    /// Sets the capacity to use after the lease has expired without a refresh. Defaults to the mode of the client.
    pub fn mode(mut self, mode: Mode) -> ResourceBuilder {
        self.options.mode = Some(mode);
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
        self.options.burst = Some(burst);
        self
    }

    /// Rates: limits per window, see [`Window`]. Overrides [`burst`](Self::burst). If the rate is open already, it keeps
    /// its window: [`Rate::set_window`] changes it.
    pub fn window(mut self, window: Window) -> ResourceBuilder {
        self.window = Some(window);
        self
    }

    /// Rates: sets the maximum debt due to charges (default 1,000,000), see [`Rate::charge`].
    pub fn max_debt(mut self, permits: u64) -> ResourceBuilder {
        self.options.max_debt = Some(permits);
        self
    }

    /// Opens the resource as a rate: permits per second.
    pub fn rate(self) -> Result<Rate, OpenError> {
        let (OpenOptions { burst, max_debt, .. }, window) = (self.options, self.window);
        let handle = self.open_as("rate", |wakeup| {
            let limiter = match window {
                Some(Window { length, slides: true, .. }) => RateLimiter::sliding(length, Arc::clone(wakeup)),
                Some(window) => RateLimiter::full(Burst::Window(window.length), Arc::clone(wakeup)),
                None => RateLimiter::with_pressure(burst.unwrap_or_default(), Arc::clone(wakeup)),
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
        if self.options.wants.is_none() {
            return Err(OpenError::NoWants(self.id.to_string()));
        }
        self.open_as("resource without a limiter", |_| Limiter::None)
    }

    fn open_as(
        self,
        kind: &'static str,
        limiter: impl FnOnce(&Arc<tokio::sync::Notify>) -> Limiter,
    ) -> Result<Resource, OpenError> {
        let ResourceBuilder { guard, id, options, window, in_use } = self;
        check_id(&id).map_err(OpenError::BadId)?;
        let OpenOptions { wants, priority, mode, .. } = options;
        let wants = wants.map(check_wants).transpose()?;
        let make = |wakeup: &_| {
            let mode = mode.unwrap_or(guard.mode);
            let opened = OpenResource::new(Arc::clone(&id), mode, priority.unwrap_or_default(), limiter(wakeup), wants);
            opened.hold(in_use);
            opened.with_options(options).with_window(window)
        };
        let fits = |opened: &OpenResource| {
            let is = opened.limiter.kind();
            if is != kind {
                return Err(OpenError::OtherKind { id: id.to_string(), is, asked: kind });
            }
            options
                .conflict(&opened.options, guard.mode)
                .map_or(Ok(()), |option| Err(OpenError::OtherOption { id: id.to_string(), option }))
        };
        let opened = guard.shared.open(&id, make, fits)?;
        Ok(Resource::new(guard, opened))
    }
}
