//! Limiters as middleware: `tower` layers, so that tonic, hyper, axum and reqwest users get them in one line.
//!
//! A request waits in the future that `call` returns, not in `poll_ready`: readiness can be asked for and never used, and
//! would keep a permit from others meanwhile.

use std::{
    future::Future,
    pin::Pin,
    task::{Context, Poll},
};

use tower_layer::Layer;
use tower_service::Service;

use crate::{gauge::Gauge, rate::Rate};

/// What a limited service fails with: [`Closed`](crate::limiter::Closed) when the client was closed, or what the inner
/// service failed with.
pub type BoxError = Box<dyn std::error::Error + Send + Sync>;

/// Lets every request wait for its turn at a [`Rate`].
#[derive(Debug, Clone)]
pub struct RateLayer {
    rate: Rate,
}

/// Holds a permit of a [`Gauge`] from before a request is sent until its response is there, or it has failed. What is
/// streamed after that, a body for example, is no longer counted.
#[derive(Debug, Clone)]
pub struct GaugeLayer {
    gauge: Gauge,
}

/// A service behind a [`Rate`].
#[derive(Debug, Clone)]
pub struct Rated<S> {
    rate: Rate,
    inner: S,
}

/// A service behind a [`Gauge`].
#[derive(Debug, Clone)]
pub struct Gauged<S> {
    gauge: Gauge,
    inner: S,
}

impl RateLayer {
    pub(crate) fn new(rate: Rate) -> RateLayer {
        RateLayer { rate }
    }
}

impl GaugeLayer {
    pub(crate) fn new(gauge: Gauge) -> GaugeLayer {
        GaugeLayer { gauge }
    }
}

impl<S> Layer<S> for RateLayer {
    type Service = Rated<S>;

    fn layer(&self, inner: S) -> Rated<S> {
        Rated { rate: self.rate.clone(), inner }
    }
}

impl<S> Layer<S> for GaugeLayer {
    type Service = Gauged<S>;

    fn layer(&self, inner: S) -> Gauged<S> {
        Gauged { gauge: self.gauge.clone(), inner }
    }
}

type Answer<T> = Pin<Box<dyn Future<Output = Result<T, BoxError>> + Send>>;

impl<S, R> Service<R> for Rated<S>
where
    S: Service<R> + Clone + Send + 'static,
    S::Error: Into<BoxError>,
    S::Future: Send,
    R: Send + 'static,
{
    type Response = S::Response;
    type Error = BoxError;
    type Future = Answer<S::Response>;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), BoxError>> {
        self.inner.poll_ready(context).map_err(Into::into)
    }

    fn call(&mut self, request: R) -> Answer<S::Response> {
        let rate = self.rate.clone();
        let mut inner = ready(&mut self.inner);
        Box::pin(async move {
            rate.wait().await?;
            inner.call(request).await.map_err(Into::into)
        })
    }
}

impl<S, R> Service<R> for Gauged<S>
where
    S: Service<R> + Clone + Send + 'static,
    S::Error: Into<BoxError>,
    S::Future: Send,
    R: Send + 'static,
{
    type Response = S::Response;
    type Error = BoxError;
    type Future = Answer<S::Response>;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), BoxError>> {
        self.inner.poll_ready(context).map_err(Into::into)
    }

    fn call(&mut self, request: R) -> Answer<S::Response> {
        let gauge = self.gauge.clone();
        let mut inner = ready(&mut self.inner);
        Box::pin(async move {
            let _permit = gauge.acquire().await?;
            inner.call(request).await.map_err(Into::into)
        })
    }
}

/// The service that has been polled ready; what stays behind is a clone that has not.
fn ready<S: Clone>(inner: &mut S) -> S {
    let clone = inner.clone();
    std::mem::replace(inner, clone)
}
