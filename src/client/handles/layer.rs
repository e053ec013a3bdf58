//! Limiters as `tower` middleware, for tonic, hyper, axum and reqwest.
//!
//! Requests wait in the future returned by `call`, not in `poll_ready`: a service that is ready may never be called,
//! and would hold a permit meanwhile.

use std::{
    future::Future,
    pin::Pin,
    task::{Context, Poll},
};

use tower_layer::Layer;
use tower_service::Service;

use crate::{
    handles::{
        gauge::{Gauge, Permit},
        limits::{Limits, Permits},
        rate::Rate,
    },
    limiter::Closed,
};

/// The error of a limited service: [`Closed`] if the client was closed, or the error of the inner service.
pub type BoxError = Box<dyn std::error::Error + Send + Sync>;

/// A limit for requests: a [`Rate`], a [`Gauge`], or several [`Limits`].
pub trait Limit: Clone + Send + 'static {
    /// Held until the response arrives or the request fails.
    type Permit: Send;

    /// Waits until a request may be sent.
    fn admit(&self) -> impl Future<Output = Result<Self::Permit, Closed>> + Send;
}

impl Limit for Rate {
    type Permit = ();

    async fn admit(&self) -> Result<(), Closed> {
        self.wait().await
    }
}

/// The permit is held until the response arrives. A response body that is streamed afterwards does not count.
impl Limit for Gauge {
    type Permit = Permit;

    async fn admit(&self) -> Result<Permit, Closed> {
        self.acquire().await
    }
}

/// The permits of gauges are held until the response arrives, as with [`Gauge`].
impl Limit for Limits {
    type Permit = Permits;

    async fn admit(&self) -> Result<Permits, Closed> {
        self.acquire().await
    }
}

/// Applies a limit to a service. Returned by [`Rate::layer`], [`Gauge::layer`] and [`Limits::layer`].
#[derive(Debug, Clone)]
pub struct LimitLayer<L> {
    limit: L,
}

/// A service with a limit.
#[derive(Debug, Clone)]
pub struct Limited<L, S> {
    limit: L,
    inner: S,
}

impl Gauge {
    /// Middleware that holds a permit during each request.
    pub fn layer(&self) -> LimitLayer<Gauge> {
        LimitLayer { limit: self.clone() }
    }
}

impl Limits {
    /// Middleware that makes each request wait for permits of all limits, and holds those of gauges during the request.
    pub fn layer(&self) -> LimitLayer<Limits> {
        LimitLayer { limit: self.clone() }
    }
}

impl Rate {
    /// Middleware that makes each request wait for a permit.
    pub fn layer(&self) -> LimitLayer<Rate> {
        LimitLayer { limit: self.clone() }
    }
}

impl<L: Clone, S> Layer<S> for LimitLayer<L> {
    type Service = Limited<L, S>;

    fn layer(&self, inner: S) -> Limited<L, S> {
        Limited { limit: self.limit.clone(), inner }
    }
}

impl<L, S, R> Service<R> for Limited<L, S>
where
    L: Limit,
    S: Service<R> + Clone + Send + 'static,
    S::Error: Into<BoxError>,
    S::Future: Send,
    R: Send + 'static,
{
    type Response = S::Response;
    type Error = BoxError;
    type Future = Pin<Box<dyn Future<Output = Result<S::Response, BoxError>> + Send>>;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), BoxError>> {
        self.inner.poll_ready(context).map_err(Into::into)
    }

    fn call(&mut self, request: R) -> Self::Future {
        let limit = self.limit.clone();
        // Take the service that was polled ready, and leave a clone that was not.
        let clone = self.inner.clone();
        let mut inner = std::mem::replace(&mut self.inner, clone);
        Box::pin(async move {
            let permit = limit.admit().await?;
            let response = inner.call(request).await.map_err(Into::into);
            drop(permit);
            response
        })
    }
}
