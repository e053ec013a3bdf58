//! Limiters as middleware: `tower` layers, so that tonic, hyper, axum and reqwest users get them in one line.
//!
//! A request waits in the future that `call` returns, not in `poll_ready`: readiness can be asked for and never used,
//! and would keep a permit from others meanwhile.

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
        rate::Rate,
    },
    limiter::Closed,
};

/// What a limited service fails with: [`Closed`] when the client was closed, or what the inner
/// service failed with.
pub type BoxError = Box<dyn std::error::Error + Send + Sync>;

/// What requests wait at: a [`Rate`] or a [`Gauge`].
pub trait Limit: Clone + Send + 'static {
    /// Held until the response is there, or the request has failed.
    type Permit: Send;

    /// Waits until a request may go.
    fn admit(&self) -> impl Future<Output = Result<Self::Permit, Closed>> + Send;
}

impl Limit for Rate {
    type Permit = ();

    async fn admit(&self) -> Result<(), Closed> {
        self.wait().await
    }
}

/// The permit is held until the response is there. What is streamed after that, a body for example, is no longer
/// counted.
impl Limit for Gauge {
    type Permit = Permit;

    async fn admit(&self) -> Result<Permit, Closed> {
        self.acquire().await
    }
}

/// Puts services behind a limit. Made by [`Rate::layer`] and [`Gauge::layer`].
#[derive(Debug, Clone)]
pub struct LimitLayer<L> {
    limit: L,
}

/// A service behind a limit.
#[derive(Debug, Clone)]
pub struct Limited<L, S> {
    limit: L,
    inner: S,
}

impl Gauge {
    /// Middleware that holds a permit for as long as a request is under way.
    pub fn layer(&self) -> LimitLayer<Gauge> {
        LimitLayer { limit: self.clone() }
    }
}

impl Rate {
    /// Middleware that lets every request wait here first.
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
        // What goes along has been polled ready; what stays is a clone that has not.
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
