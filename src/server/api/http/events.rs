//! Changes as server-sent events, from the moment of the request.

use std::{convert::Infallible, sync::Arc};

use axum::{
    Router,
    body::Body,
    extract::{Extension, State},
    http::{StatusCode, header},
    response::{IntoResponse, Response},
    routing::get,
};
use bytes::Bytes;
use futures_util::stream;
use serde::Deserialize;
use tokio::sync::{broadcast, watch};

use super::json::{ApiError, Parameters, change, change_kind};
use crate::{
    api::pages::{
        Pages,
        live::{self, KEEP_ALIVE, OpenPage, Streamed},
    },
    auth::Admitted,
    observe::changes::{Change, ChangeKind},
};

pub(super) fn routes() -> Router<Pages> {
    Router::new().route("/api/v1/events", get(events))
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct EventParameters {
    #[serde(default)]
    kind: String,
    #[serde(default)]
    resource: String,
}

async fn events(
    State(pages): State<Pages>,
    Extension(admitted): Extension<Admitted>,
    parameters: Parameters<EventParameters>,
) -> Result<Response, ApiError> {
    let axum::extract::Query(EventParameters { kind, resource }) = parameters?;
    let kind = change_kind(&kind)?;
    let open = pages.live.open_page().map_err(|why| ApiError(StatusCode::SERVICE_UNAVAILABLE, why.to_string()))?;
    let changes = pages.node.authorizer().audit().changes().follow();
    let stopped = pages.live.stopped();
    let events = EventStream { changes, admitted, stopped, kind, resource, has_begun: false, _open: open };
    let body = Body::from_stream(stream::unfold(events, EventStream::next));
    let headers = [(header::CONTENT_TYPE, "text/event-stream"), (header::CACHE_CONTROL, "no-store")];
    Ok((headers, Extension(Streamed), body).into_response())
}

struct EventStream {
    changes: broadcast::Receiver<Arc<Change>>,
    admitted: Admitted,
    stopped: watch::Receiver<bool>,
    kind: Option<ChangeKind>,
    /// Empty: all.
    resource: String,
    has_begun: bool,
    _open: OpenPage,
}

impl EventStream {
    async fn next(mut self) -> Option<(Result<Bytes, Infallible>, EventStream)> {
        let message = self.wait().await?;
        Some((Ok(message), self))
    }

    /// The next message, or none at the end of the stream.
    async fn wait(&mut self) -> Option<Bytes> {
        if !std::mem::replace(&mut self.has_begun, true) {
            return Some(Bytes::from_static(b": changes of this server from now on\n\n"));
        }
        loop {
            let changed = tokio::select! {
                biased;
                _ = self.stopped.wait_for(|stop| *stop) => return None,
                () = self.admitted.until_outdated() => {
                    live::check_again(&mut self.admitted)?;
                    continue;
                }
                changed = self.changes.recv() => changed,
                () = tokio::time::sleep(KEEP_ALIVE) => return Some(Bytes::from_static(b": alive\n\n")),
            };
            match changed {
                Ok(changed) if self.is_wanted(&changed) => {
                    return Some(format!("event: {}\ndata: {}\n\n", changed.kind.name(), change(&changed)).into());
                }
                Ok(_) => {}
                Err(broadcast::error::RecvError::Lagged(missed)) => {
                    return Some(format!("event: missed\ndata: {{\"missed\": {missed}}}\n\n").into());
                }
                Err(broadcast::error::RecvError::Closed) => return None,
            }
        }
    }

    fn is_wanted(&self, change: &Change) -> bool {
        self.kind.is_none_or(|kind| kind == change.kind)
            && (self.resource.is_empty() || self.resource == change.resource)
    }
}
