//! Live pages: the changes of a page as server-sent events, about once a second.
//!
//! One task renders each view for all open pages that show it. It pauses in proportion to its work and output, so the
//! cost is bounded by the number of different views. Each page has a stream that holds one message at a time; a slow
//! reader skips frames and then gets the whole view.

use std::{
    collections::{BTreeMap, HashMap},
    sync::{
        Arc, Mutex, MutexGuard, OnceLock, PoisonError,
        atomic::{AtomicUsize, Ordering},
    },
    time::{Duration, Instant},
};

use axum::{
    Router,
    body::Body,
    extract::{Extension, Query, RawQuery, State},
    http::{StatusCode, header},
    response::{IntoResponse, Response},
    routing::get,
};
use bytes::Bytes;
use futures_util::stream;
use leaseway_core::policy::access::{AccessRequest, Action};
use serde::Deserialize;
use serde_json::{Map, Value, json};
use tokio::sync::watch;

use super::{Pages, Parts, Showing};
use crate::{auth::Admitted, observe::metrics::CallKind};

/// Minimum interval between renderings of a view.
const MIN_INTERVAL: Duration = Duration::from_secs(1);
/// Minimum interval as a multiple of the duration of a rendering.
const REST: u32 = 20;
/// Maximum output of a view: a longer change delays the next rendering.
const BYTES_PER_SECOND: usize = 64 << 10;
/// Keep-alive interval of an idle stream.
pub(crate) const KEEP_ALIVE: Duration = Duration::from_secs(5);

pub(crate) fn routes() -> Router<Pages> {
    Router::new().route("/live", get(follow))
}

/// The open pages and their views.
pub(crate) struct LivePages {
    most: usize,
    open: AtomicUsize,
    views: Mutex<HashMap<Showing, watch::Receiver<Option<Arc<Frame>>>>>,
    stopped: watch::Receiver<bool>,
}

/// The maximum number of live pages is open.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error(
    "too many live pages and event streams ({0}): close some, or raise --max-live-pages; a page that does not update \
     can be reloaded"
)]
pub(crate) struct TooManyPages(usize);

/// Counts an open page.
pub(crate) struct OpenPage(Arc<LivePages>);

impl Drop for OpenPage {
    fn drop(&mut self) {
        self.0.open.fetch_sub(1, Ordering::Relaxed);
    }
}

/// A rendered view, and its change since the previous frame.
struct Frame {
    number: u64,
    parts: Parts,
    change: Bytes,
    /// The whole view as a message, made on demand.
    whole: OnceLock<Bytes>,
}

impl LivePages {
    /// Open streams end when `stopped` becomes true.
    pub(crate) fn new(most: usize, stopped: watch::Receiver<bool>) -> LivePages {
        LivePages { most, open: AtomicUsize::new(0), views: Mutex::default(), stopped }
    }

    /// Becomes true when the server stops.
    pub(crate) fn stopped(&self) -> watch::Receiver<bool> {
        self.stopped.clone()
    }

    /// Number of open pages.
    pub(super) fn open(&self) -> usize {
        self.open.load(Ordering::Relaxed)
    }

    fn views(&self) -> MutexGuard<'_, HashMap<Showing, watch::Receiver<Option<Arc<Frame>>>>> {
        self.views.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn open_page(self: &Arc<Self>) -> Result<OpenPage, TooManyPages> {
        let more = |open: usize| (open < self.most).then_some(open + 1);
        match self.open.fetch_update(Ordering::Relaxed, Ordering::Relaxed, more) {
            Ok(_) => Ok(OpenPage(Arc::clone(self))),
            Err(_) => Err(TooManyPages(self.most)),
        }
    }

    /// The frames of a view. Starts its task if it is new.
    fn frames(self: &Arc<Self>, pages: &Pages, showing: Showing) -> watch::Receiver<Option<Arc<Frame>>> {
        let mut views = self.views();
        if let Some(view) = views.get(&showing) {
            return view.clone();
        }
        let (frames, view) = watch::channel(None);
        views.insert(showing.clone(), view.clone());
        tokio::spawn(render(pages.clone(), showing, frames));
        view
    }

    /// Removes a view if no page shows it. Returns whether it was removed.
    fn remove_unused(&self, showing: &Showing, frames: &watch::Sender<Option<Arc<Frame>>>) -> bool {
        let mut views = self.views();
        // One receiver is in `views`.
        let is_unused = frames.receiver_count() <= 1 || *self.stopped.borrow();
        if is_unused {
            views.remove(showing);
        }
        is_unused
    }
}

/// Renders a view while any page shows it.
async fn render(pages: Pages, showing: Showing, frames: watch::Sender<Option<Arc<Frame>>>) {
    while !pages.live.remove_unused(&showing, &frames) {
        let began = Instant::now();
        let parts = showing.parts(&pages).await;
        let last = frames.borrow().clone();
        let mut rest = MIN_INTERVAL.max(began.elapsed() * REST);
        let change = last.as_ref().map_or_else(Map::new, |last| difference(&last.parts, &parts));
        if last.is_none() || !change.is_empty() {
            let change = message(&Value::Object(change));
            rest = rest.max(Duration::from_secs_f64(change.len() as f64 / BYTES_PER_SECOND as f64));
            let number = last.map_or(0, |last| last.number + 1);
            frames.send_replace(Some(Arc::new(Frame { number, parts, change, whole: OnceLock::new() })));
        }
        tokio::time::sleep(rest).await;
    }
}

/// The parts and rows that differ, in the format of the script.
fn difference(before: &Parts, now: &Parts) -> Map<String, Value> {
    let mut change = Map::new();
    if now.frame_id() != before.frame_id() {
        change.insert("frame".to_owned(), json!(now.frame_id()));
    }
    for (id, part) in now.whole.iter().filter(|(id, part)| before.whole.get(*id) != Some(part)) {
        change.insert((*id).to_owned(), json!(part));
    }
    for (id, rows) in &now.rows {
        let old = before.rows.get(id).map(Vec::as_slice).unwrap_or_default();
        let differs = |(index, row): &(usize, &String)| old.get(*index) != Some(*row);
        let rows_now: BTreeMap<usize, &String> = rows.iter().enumerate().filter(differs).collect();
        if !rows_now.is_empty() || rows.len() != old.len() {
            change.insert((*id).to_owned(), json!({ "count": rows.len(), "rows": rows_now }));
        }
    }
    change
}

impl Frame {
    fn whole(&self) -> Bytes {
        let made = || message(&Value::Object(difference(&Parts::default(), &self.parts)));
        self.whole.get_or_init(made).clone()
    }
}

/// A server-sent event. Serialized JSON has no line breaks.
fn message(value: &Value) -> Bytes {
    format!("data: {value}\n\n").into()
}

/// Marks a response with a stream as its body.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Streamed;

#[derive(Deserialize)]
struct ViewQuery {
    view: String,
}

async fn follow(
    State(pages): State<Pages>,
    Extension(admitted): Extension<Admitted>,
    RawQuery(query): RawQuery,
    Query(ViewQuery { view }): Query<ViewQuery>,
) -> Response {
    let query = query.unwrap_or_default();
    let rest: Vec<&str> = query.split('&').filter(|pair| !pair.starts_with("view=")).collect();
    let showing = match Showing::of(&view, &rest.join("&")) {
        Ok(showing) => showing,
        Err(why) => return (StatusCode::BAD_REQUEST, format!("{why}\n")).into_response(),
    };
    let open = match pages.live.open_page() {
        Ok(open) => open,
        Err(why) => return (StatusCode::SERVICE_UNAVAILABLE, format!("{why}\n")).into_response(),
    };
    let frames = pages.live.frames(&pages, showing);
    let stopped = pages.live.stopped();
    let page = LivePage { frames, admitted, stopped, seen: None, _open: open };
    let body = Body::from_stream(stream::unfold(page, LivePage::next));
    let headers = [(header::CONTENT_TYPE, "text/event-stream"), (header::CACHE_CONTROL, "no-store")];
    (headers, Extension(Streamed), body).into_response()
}

/// The stream of a page, between two messages.
struct LivePage {
    frames: watch::Receiver<Option<Arc<Frame>>>,
    admitted: Admitted,
    stopped: watch::Receiver<bool>,
    /// The last frame sent.
    seen: Option<u64>,
    _open: OpenPage,
}

impl LivePage {
    async fn next(mut self) -> Option<(Result<Bytes, std::convert::Infallible>, LivePage)> {
        let message = self.wait().await?;
        Some((Ok(message), self))
    }

    /// The next message, or none at the end of the stream.
    async fn wait(&mut self) -> Option<Bytes> {
        loop {
            let changed = async {
                let seen = self.seen;
                let is_new =
                    |frame: &Option<Arc<Frame>>| frame.as_ref().is_some_and(|frame| Some(frame.number) != seen);
                self.frames.wait_for(is_new).await.ok().and_then(|frame| frame.clone())
            };
            tokio::select! {
                biased;
                _ = self.stopped.wait_for(|stop| *stop) => return None,
                () = self.admitted.until_outdated() => {}
                frame = changed => {
                    let frame = frame?;
                    let follows = self.seen.is_some_and(|seen| seen + 1 == frame.number);
                    self.seen = Some(frame.number);
                    return Some(if follows { frame.change.clone() } else { frame.whole() });
                }
                () = tokio::time::sleep(KEEP_ALIVE) => return Some(Bytes::from_static(b"event: alive\ndata:\n\n")),
            }
            check_again(&mut self.admitted)?;
        }
    }
}

/// `None` if the caller has lost its permission. It gets the error when it connects again.
pub(crate) fn check_again(admitted: &mut Admitted) -> Option<()> {
    admitted.check_again(CallKind::Http, &[AccessRequest::to(Action::Read)]).ok()?;
    admitted.check_reads_everything(CallKind::Http).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parts(whole: &str, rows: &[&str]) -> Parts {
        let mut parts = Parts::default();
        parts.whole.insert("a", whole.to_owned());
        parts.rows.insert("b", rows.iter().map(|row| (*row).to_owned()).collect());
        parts
    }

    #[test]
    fn a_changed_frame_is_announced() {
        let of = |title| Parts::sentence(StatusCode::OK, title, "A sentence.");
        let change = difference(&of("a"), &of("b"));
        assert_eq!(change.into_iter().collect::<Vec<_>>(), [("frame".to_owned(), json!(of("b").frame_id()))]);
        assert!(difference(&of("a"), &of("a")).is_empty());
        let lost = Parts::sentence(StatusCode::NOT_FOUND, "a", "A sentence.");
        assert_ne!(lost.frame_id(), of("a").frame_id());
    }

    #[test]
    fn only_differences_are_sent() {
        let before = parts("x", &["1", "2", "3"]);
        assert!(difference(&before, &parts("x", &["1", "2", "3"])).is_empty());
        let change = Value::Object(difference(&before, &parts("x", &["1", "two"])));
        assert_eq!(change, json!({ "b": { "count": 2, "rows": { "1": "two" } } }));
        let change = Value::Object(difference(&before, &parts("y\n", &["1", "2", "3"])));
        assert_eq!(message(&change), "data: {\"a\":\"y\\n\"}\n\n");
    }

    #[test]
    fn the_number_of_open_pages_is_limited() {
        let live = Arc::new(LivePages::new(2, watch::channel(false).1));
        let first = live.open_page();
        let _second = live.open_page();
        assert_eq!(live.open_page().err(), Some(TooManyPages(2)));
        drop(first);
        assert!(live.open_page().is_ok());
    }
}
