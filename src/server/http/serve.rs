//! The listener of pages: connections that send their request in time, and take their page.

use std::{
    convert::Infallible,
    pin::{Pin, pin},
    sync::Arc,
    task::{Context, Poll},
    time::Duration,
};

use axum::{
    Router,
    body::to_bytes,
    extract::Request,
    http::{Response, StatusCode},
};
use hyper::{
    body::{Body, Frame, Incoming, SizeHint},
    server::conn::http1,
    service::service_fn,
};
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::{
    net::{TcpListener, TcpStream},
    sync::watch,
};
use tower_service::Service as _;

use crate::{
    budget::{BeyondBudget, Charge, ChargedBytes, REQUEST},
    grpc::connections::accept,
    open_connections::{Ending, OpenConnection, OpenConnections, Place},
    signals::until,
};

/// The most headers of a request, and the most bytes that they may have.
const HEADERS: usize = 64;
const HEADER_BYTES: usize = 16 << 10;

/// Serves until `stop`. A request has to come within `patience`; so has the next one on the same connection.
pub(crate) async fn serve(
    listener: TcpListener,
    router: Router,
    open: OpenConnections,
    patience: Duration,
    stop: watch::Receiver<bool>,
) {
    let mut http1 = http1::Builder::new();
    http1.timer(TokioTimer::new()).header_read_timeout(patience).max_headers(HEADERS).max_buf_size(HEADER_BYTES);
    let http1 = Arc::new(http1);
    let mut stopped = pin!(until(stop));
    loop {
        tokio::select! {
            () = &mut stopped => return,
            (stream, place) = accept(&listener, &open) => {
                tokio::spawn(attend(Arc::clone(&http1), stream, place, router.clone()));
            }
        }
    }
}

async fn attend(http1: Arc<http1::Builder>, stream: TcpStream, place: Place, router: Router) {
    let connection = &place.connection;
    let service = service_fn(|request: axum::http::Request<Incoming>| {
        connection.greeted();
        answer(router.clone(), Arc::clone(connection), request.map(axum::body::Body::new))
    });
    let mut served = pin!(http1.serve_connection(TokioIo::new(stream), service));
    let ended = tokio::select! {
        ended = &mut served => ended,
        how = connection.told_to_end() => match how {
            Ending::Now | Ending::Soon => return,
            Ending::WhenDone => {
                served.as_mut().graceful_shutdown();
                served.await
            }
        },
    };
    if let Err(error) = ended {
        tracing::debug!(%error, "HTTP connection broken");
    }
}

async fn answer(
    mut router: Router,
    connection: Arc<OpenConnection>,
    request: Request,
) -> Result<Response<Page>, Infallible> {
    let under_way = match Charge::request(&connection.budget, REQUEST) {
        Ok(under_way) => under_way,
        Err(why) => return Ok(refusal(why)),
    };
    let (head, body) = router.call(request).await?.into_parts();
    // All pages are made whole in memory, so that this neither waits nor fails.
    let bytes = to_bytes(body, usize::MAX).await.unwrap_or_default();
    Ok(match under_way.answered(bytes.len()) {
        Ok(charge) => Response::from_parts(head, Page(Some(ChargedBytes { bytes, charge: Some(charge) }))),
        Err(why) => refusal(why),
    })
}

fn refusal(why: BeyondBudget) -> Response<Page> {
    let bytes = format!("{why}\n").into();
    let mut response = Response::new(Page(Some(ChargedBytes { bytes, charge: None })));
    *response.status_mut() = StatusCode::SERVICE_UNAVAILABLE;
    response
}

/// A page that is to be sent.
struct Page(Option<ChargedBytes>);

impl Body for Page {
    type Data = ChargedBytes;
    type Error = Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        _: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<ChargedBytes>, Infallible>>> {
        Poll::Ready(self.0.take().map(|page| Ok(Frame::data(page))))
    }

    fn is_end_stream(&self) -> bool {
        self.0.as_ref().is_none_or(|page| page.bytes.is_empty())
    }

    fn size_hint(&self) -> SizeHint {
        SizeHint::with_exact(self.0.as_ref().map_or(0, |page| page.bytes.len() as u64))
    }
}
