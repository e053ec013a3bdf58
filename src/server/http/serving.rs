//! Serves pages on connections.

use std::{pin::pin, time::Duration};

use axum::{
    Router,
    extract::{Request, State},
    http::StatusCode,
    middleware::Next,
    response::{IntoResponse, Response},
};
use hyper::service::service_fn;
use hyper_util::{
    rt::{TokioExecutor, TokioIo, TokioTimer},
    server::conn::auto,
};
use tokio::sync::watch;
use tonic::codegen::Service as _;

use crate::{
    listen::{Accepted, Caller, Listener},
    signals::until,
};

/// The head of a request has to come within so long, counted from the end of the one before: an idle connection ends.
const HEAD: Duration = Duration::from_secs(30);

/// Whether the process is alive and ready: probes that ask have no certificate.
const FOR_ALL: [&str; 2] = ["/healthz", "/readyz"];

/// Serves until `stop`; requests under way are still answered.
pub(crate) async fn serve(listener: Listener, pages: Router, stop: watch::Receiver<bool>) {
    let mut http = auto::Builder::new(TokioExecutor::new());
    http.http1().timer(TokioTimer::new()).header_read_timeout(HEAD);
    http.http2().timer(TokioTimer::new()).keep_alive_interval(HEAD);
    let mut stopped = pin!(until(stop.clone()));
    loop {
        let accepted = tokio::select! {
            () = &mut stopped => return,
            accepted = listener.accept() => accepted,
        };
        tokio::spawn(attend(accepted, http.clone(), pages.clone(), stop.clone()));
    }
}

async fn attend(accepted: Accepted, http: auto::Builder<TokioExecutor>, pages: Router, stop: watch::Receiver<bool>) {
    let Some(connection) = Box::pin(accepted.open()).await else { return };
    let caller = connection.caller().clone();
    let service = service_fn(move |mut request: http::Request<hyper::body::Incoming>| {
        request.extensions_mut().insert(caller.clone());
        pages.clone().call(request)
    });
    let mut served = pin!(http.serve_connection(TokioIo::new(connection), service));
    let ended = tokio::select! {
        ended = &mut served => ended,
        () = until(stop) => {
            served.as_mut().graceful_shutdown();
            served.await
        }
    };
    if let Err(error) = ended {
        tracing::debug!(%error, "connection broken");
    }
}

/// Where clients have to show certificates, pages are for those that do.
pub(crate) async fn certified(State(required): State<bool>, request: Request, next: Next) -> Response {
    let is_known = request.extensions().get::<Caller>().is_some_and(|caller| caller.names.is_some());
    if !required || is_known || FOR_ALL.contains(&request.uri().path()) {
        return next.run(request).await;
    }
    let why = "this page is for clients with a certificate of the CA that this server trusts (--tls-ca, \
               --tls-client-auth); /healthz and /readyz are for all\n";
    (StatusCode::UNAUTHORIZED, why).into_response()
}
