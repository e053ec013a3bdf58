//! The pages at `/`. The server renders them completely, so they work without a script. The script applies live
//! updates: a page consists of [`Parts`], and changed parts are sent to the browser ([`live`]).

mod burn_down;
mod changes;
mod cluster;
pub(crate) mod live;
mod overview;
mod plan;
mod plot;
mod resources;
pub(crate) mod text;
pub(crate) mod view;
mod why;

use std::{
    collections::BTreeMap,
    hash::{DefaultHasher, Hash as _, Hasher as _},
    sync::{Arc, OnceLock},
};

use axum::{
    Router,
    extract::{Path, Query, RawQuery, State},
    http::{HeaderMap, HeaderName, HeaderValue, StatusCode, Uri, header},
    response::{Html, IntoResponse, Response},
    routing::get,
};
use leaseway_core::types::escaped;
use maud::{DOCTYPE, Markup, PreEscaped, Render, html};
use metrics_exporter_prometheus::PrometheusHandle;
use ring::digest;
use serde::de::DeserializeOwned;
use tokio::sync::Semaphore;

pub(crate) use self::plan::PASTED_BYTES;
use self::{
    changes::ChangesQuery,
    live::LivePages,
    view::{
        node::{MasterSeen, MasterView, WhyQuery},
        resources::{HolderQuery, ResourceCache, ResourceQuery},
    },
};
use crate::{
    api::status::{HealthSources, history::History, survey::Surveyor},
    node::{NodeHandle, addresses::ServerInfo},
};

/// Maximum number of concurrent reads of all holders of a resource.
const MAX_HOLDER_READS: usize = 2;

/// Allows only resources of this server, and nothing inline.
const POLICY: &str = "default-src 'none'; style-src 'self'; script-src 'self'; img-src 'self'; connect-src 'self'; \
                      form-action 'self'; base-uri 'none'; frame-ancestors 'none'";

pub(crate) fn routes() -> Router<Pages> {
    Router::new()
        .route("/", get(show))
        .route("/resources", get(show))
        .route("/resource", get(show))
        .route("/why", get(show))
        .route("/changes", get(show))
        .route("/plan", get(plan::form).post(plan::answer))
        .route("/assets/{name}", get(serve_asset))
}

/// The data sources of all pages.
#[derive(Clone)]
pub(crate) struct Pages {
    pub(crate) node: NodeHandle,
    pub(crate) info: ServerInfo,
    pub(crate) prometheus: PrometheusHandle,
    pub(crate) health: HealthSources,
    /// Serializes scrapes.
    pub(crate) scrapes: Arc<Semaphore>,
    /// Maximum number of resources with metric series.
    pub(crate) metrics_resources: usize,
    pub(crate) history: Arc<History>,
    pub(crate) surveyor: Arc<Surveyor>,
    pub(crate) live: Arc<LivePages>,
    pub(crate) snapshots: Snapshots,
}

/// Snapshots shared by all pages, so that many open pages cost little more than one.
#[derive(Clone)]
pub(crate) struct Snapshots {
    pub(crate) resources: Arc<ResourceCache>,
    holder_reads: Arc<Semaphore>,
}

impl Default for Snapshots {
    fn default() -> Snapshots {
        Snapshots { resources: Arc::default(), holder_reads: Arc::new(Semaphore::new(MAX_HOLDER_READS)) }
    }
}

/// A page and its query.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) enum Showing {
    Overview,
    Resources(ResourceQuery),
    Resource(HolderQuery),
    Why(WhyQuery),
    Changes(ChangesQuery),
}

impl Showing {
    /// Parses a path and its query. Errors are messages for the page.
    pub(super) fn of(path: &str, query: &str) -> Result<Showing, String> {
        Ok(match path {
            "/" => Showing::Overview,
            "/resources" => Showing::Resources(parsed(query, RESOURCES_TAKES)?),
            "/resource" => Showing::Resource(parsed(query, RESOURCE_TAKES)?),
            "/why" => Showing::Why(parsed(query, "resource, holder, kind (client or node)")?),
            "/changes" => Showing::Changes(parsed(query, "kind")?),
            _ => return Err("There is no such page.".to_owned()),
        })
    }

    pub(super) async fn parts(&self, pages: &Pages) -> Parts {
        let mut parts = match self {
            Showing::Overview => overview::parts(pages).await,
            Showing::Resources(query) => resources::parts(pages, query).await,
            Showing::Resource(query) => resources::resource_parts(pages, query).await,
            Showing::Why(query) => why::parts(pages, query).await,
            Showing::Changes(query) => changes::parts(pages, query),
        };
        parts.put("notice", &notice(&MasterSeen::of(pages), &self.path()));
        parts
    }

    /// The path and query of this page, for a link to the same page of another peer.
    fn path(&self) -> String {
        match self {
            Showing::Resource(HolderQuery { resource, .. }) => {
                format!("/resource?resource={}", text::encoded(resource))
            }
            Showing::Why(WhyQuery { resource, holder, kind }) => {
                let (resource, holder) = (text::encoded(resource), text::encoded(holder));
                format!("/why?resource={resource}&holder={holder}&kind={}", text::encoded(kind))
            }
            Showing::Resources(_) => "/resources".to_owned(),
            Showing::Overview | Showing::Changes(_) => "/".to_owned(),
        }
    }

    fn title(&self) -> String {
        match self {
            Showing::Overview => "Overview".to_owned(),
            Showing::Resources(_) => "Resources".to_owned(),
            Showing::Resource(query) => format!("Resource {}", escaped(&query.resource)),
            Showing::Why(query) if query.holder.is_empty() => "Why".to_owned(),
            Showing::Why(query) => format!("Why: {}", escaped(&query.holder)),
            Showing::Changes(_) => "Changes".to_owned(),
        }
    }
}

/// What the addresses of pages may have.
const RESOURCES_TAKES: &str =
    "search, sort (resource, capacity, wants, granted, held, clients, pressure or over), page (a number)";
const RESOURCE_TAKES: &str = "resource, search, sort (holder, wants, due, has, held, clients, priority or short), page \
                              (a number), span (15m, 6h or 7d)";

fn parsed<T: DeserializeOwned>(query: &str, takes: &str) -> Result<T, String> {
    let uri = format!("/?{query}").parse::<Uri>().ok();
    let parsed = uri.and_then(|uri| Query::try_from_uri(&uri).ok());
    parsed.map(|Query(parsed)| parsed).ok_or_else(|| format!("Invalid address: after `?`, this page takes {takes}."))
}

/// The parts of a page that may change, by the ids of their elements.
#[derive(Debug, Default, PartialEq)]
pub(super) struct Parts {
    /// The contents of elements.
    pub(super) whole: BTreeMap<&'static str, String>,
    /// The rows of tables.
    pub(super) rows: BTreeMap<&'static str, Vec<String>>,
    /// The page around the parts, with a [`MARK`] in place of each. When it changes, open pages reload, for example
    /// after a change of master.
    frame: String,
    status: StatusCode,
}

/// Marks the position of a part with a comment, which escaped text cannot contain.
const MARK: &str = "<!--";
const MARK_END: &str = "-->";

impl Parts {
    fn put(&mut self, id: &'static str, markup: &Markup) {
        self.whole.insert(id, markup.0.clone());
    }

    fn put_rows(&mut self, id: &'static str, rows: impl Iterator<Item = Markup>) {
        self.rows.insert(id, rows.map(|row| row.0).collect());
    }

    fn marker(id: &'static str) -> Markup {
        html! { div.part id=(id) { (PreEscaped(format!("{MARK}{id}{MARK_END}"))) } }
    }

    fn rows_marker(id: &'static str) -> Markup {
        html! { tbody id=(id) { (PreEscaped(format!("{MARK}{id}{MARK_END}"))) } }
    }

    /// The frame with all parts filled in.
    fn filled(&self) -> Markup {
        let mut pieces = self.frame.split(MARK);
        let mut page = pieces.next().unwrap_or_default().to_owned();
        for (id, rest) in pieces.filter_map(|piece| piece.split_once(MARK_END)) {
            page.push_str(self.whole.get(id).map_or("", String::as_str));
            for row in self.rows.get(id).into_iter().flatten() {
                page.extend(["<tr>", row, "</tr>"]);
            }
            page.push_str(rest);
        }
        PreEscaped(page)
    }

    /// A hash of the frame and the status.
    pub(super) fn frame_id(&self) -> String {
        let mut hasher = DefaultHasher::new();
        (&self.frame, self.status.as_u16()).hash(&mut hasher);
        format!("{:016x}", hasher.finish())
    }

    fn framed(mut self, frame: Markup) -> Parts {
        self.frame = frame.into_string();
        self
    }

    /// A page that consists of a title and one sentence.
    pub(super) fn sentence(status: StatusCode, title: &str, sentence: &str) -> Parts {
        let frame = html! { h1 { (escaped(title)) } p { (escaped(sentence)) } };
        Parts { status, ..Parts::default() }.framed(frame)
    }
}

/// The heading of a column.
enum Column {
    Text(&'static str),
    Number(&'static str),
}

/// A table that scrolls horizontally. `label` describes it to screen readers.
fn table(label: &str, columns: &[Column], rows: &Markup) -> Markup {
    html! {
        div.scroll tabindex="0" role="group" aria-label=(label) { table {
            thead { tr { @for column in columns { (column) } } }
            (rows)
        } }
    }
}

impl Render for Column {
    fn render(&self) -> Markup {
        match self {
            Column::Text(name) => html! { th scope="col" { (name) } },
            Column::Number(name) => html! { th.n scope="col" { (name) } },
        }
    }
}

async fn show(State(pages): State<Pages>, uri: Uri, RawQuery(query): RawQuery) -> Response {
    let query = query.unwrap_or_default();
    match Showing::of(uri.path(), &query) {
        Ok(showing) => {
            let parts = showing.parts(&pages).await;
            page(&pages, &showing.title(), Some((uri.path(), &query)), &parts)
        }
        Err(why) => page(&pages, "Bad request", None, &Parts::sentence(StatusCode::BAD_REQUEST, "Bad request", &why)),
    }
}

/// `live`: the path and query for live updates.
fn page(pages: &Pages, title: &str, live: Option<(&str, &str)>, parts: &Parts) -> Response {
    let path = live.map_or("", |(path, _)| path);
    // Plans are not updated.
    let live = live.filter(|(path, _)| *path != "/plan").map(|(path, query)| match query {
        "" => format!("/live?view={}", text::encoded(path)),
        query => format!("/live?view={}&{query}", text::encoded(path)),
    });
    let known = parts.whole.get("notice").map(|notice| PreEscaped(notice.clone()));
    let notice = known.unwrap_or_else(|| notice(&MasterSeen::of(pages), if path.is_empty() { "/" } else { path }));
    let body = html! {
        (DOCTYPE)
        html lang="en" {
            head {
                meta charset="utf-8";
                meta name="viewport" content="width=device-width, initial-scale=1";
                meta name="color-scheme" content="light dark";
                title { (title) " · " (escaped(&pages.info.id)) " · Leaseway" }
                link rel="icon" type="image/svg+xml" href=(asset_path("icon.svg"));
                link rel="stylesheet" href=(asset_path("page.css"));
                script defer src=(asset_path("page.js")) {}
            }
            body data-live=[live] data-frame=(parts.frame_id()) {
                a.skip href="#main" { "Skip to content" }
                (head(pages, path))
                main #main tabindex="-1" {
                    p #lost .notice role="status" hidden {}
                    div.part #notice { (notice) }
                    (parts.filled())
                }
                (foot(pages))
            }
        }
    };
    (parts.status, Html(body.into_string())).into_response()
}

/// The main pages, with their names in the menu.
const VIEWS: [(&str, &str); 5] =
    [("/", "Overview"), ("/resources", "Resources"), ("/why", "Why"), ("/changes", "Changes"), ("/plan", "What if")];

/// Other paths that people look for.
const OTHER_PATHS: [(&str, &str); 5] = [
    ("/api/v1/status", "the overview as JSON"),
    ("/api/v1/resources", "the resources as JSON"),
    ("/metrics", "metrics for Prometheus"),
    ("/healthz", "liveness probe"),
    ("/readyz", "readiness probe"),
];

/// The answer to an unknown path. It says nothing about this server, because the caller was not authorized.
pub(crate) async fn not_found(headers: HeaderMap, uri: Uri) -> Response {
    let what = format!("There is no page {} here.", escaped(uri.path()));
    let paths = VIEWS.iter().chain(&OTHER_PATHS);
    let accepts_html = headers.get(header::ACCEPT).is_some_and(|kinds| kinds.as_bytes().starts_with(b"text/html"));
    if !accepts_html {
        let paths: Vec<String> = paths.map(|(path, name)| format!("  {path}  {name}\n")).collect();
        return (StatusCode::NOT_FOUND, format!("{what} There are:\n{}", paths.concat())).into_response();
    }
    let page = html! {
        (DOCTYPE)
        html lang="en" {
            head {
                meta charset="utf-8";
                meta name="viewport" content="width=device-width, initial-scale=1";
                meta name="color-scheme" content="light dark";
                title { "Not found · Leaseway" }
                link rel="stylesheet" href=(asset_path("page.css"));
            }
            body { main {
                h1 { "Not found" }
                p { (what) " There are:" }
                ul { @for (path, name) in paths { li { a href=(path) { (path) } " " (name) } } }
            } }
        }
    };
    (StatusCode::NOT_FOUND, Html(page.into_string())).into_response()
}

/// Headers of all responses. Assets set their own `Cache-Control`.
const HEADERS: [(HeaderName, HeaderValue); 5] = [
    (header::CONTENT_SECURITY_POLICY, HeaderValue::from_static(POLICY)),
    (header::X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff")),
    (header::REFERRER_POLICY, HeaderValue::from_static("no-referrer")),
    (header::X_FRAME_OPTIONS, HeaderValue::from_static("DENY")),
    (header::CACHE_CONTROL, HeaderValue::from_static("no-store")),
];

pub(crate) async fn with_headers(mut response: Response) -> Response {
    for (name, value) in HEADERS {
        response.headers_mut().entry(name).or_insert(value);
    }
    response
}

fn head(pages: &Pages, path: &str) -> Markup {
    let current = if path == "/resource" { "/resources" } else { path };
    html! {
        header {
            a.name href="/" { "Leaseway" }
            nav aria-label="Views" {
                ul {
                    @for (view, name) in VIEWS {
                        li { a href=(view) aria-current=[(view == current).then_some("page")] { (name) } }
                    }
                }
            }
            span.where { (escaped(&pages.info.id)) }
            span #live .live hidden {
                span #live-said role="status" { "Live" }
                button #pause type="button" aria-pressed="false" { "Pause" }
            }
        }
    }
}

/// A notice on pages of a follower, which does not know the resources. `path`: of the same page at the master.
fn notice(master: &MasterSeen, path: &str) -> Markup {
    html! {
        @match master {
            MasterSeen::Here => {}
            MasterSeen::At(MasterView { grpc, http }) => p.notice {
                "This peer is not the master, and does not know the resources or their holders. See this page at the \
                 master, "
                @if http.is_empty() {
                    strong { (escaped(grpc)) } "."
                } @else {
                    a href={ "//" (http) (path) } { (escaped(http)) } "."
                }
            }
            MasterSeen::Silent(Some(ago)) => p.notice.warn {
                "This peer is not the master, and has not heard from the last known master for " (text::ago(*ago))
                ": it knows neither the resources nor the present master."
            }
            MasterSeen::Silent(None) | MasterSeen::Unknown => p.notice.warn {
                "This peer is not the master and knows no master, so it does not know the resources."
            }
        }
    }
}

fn foot(pages: &Pages) -> Markup {
    html! {
        footer {
            span { "leaseway " (env!("CARGO_PKG_VERSION")) }
            span { "as of " (text::clock(std::time::SystemTime::now())) " UTC" }
            @if !pages.node.authorizer().in_words().is_empty() { span { "access " (pages.node.authorizer().in_words()) } }
            a href="/metrics" { "Metrics" }
            a href="/api/v1/status" { "JSON" }
        }
    }
}

struct Asset {
    name: &'static str,
    kind: &'static str,
    text: &'static str,
}

const ASSETS: [Asset; 3] = [
    Asset { name: "page.css", kind: "text/css; charset=utf-8", text: include_str!("pages/assets/page.css") },
    Asset { name: "page.js", kind: "text/javascript; charset=utf-8", text: include_str!("pages/assets/page.js") },
    Asset { name: "icon.svg", kind: "image/svg+xml", text: include_str!("pages/assets/icon.svg") },
];

/// The names with hashes of the contents, so that browsers can cache assets forever.
fn asset_names() -> &'static [String; ASSETS.len()] {
    static NAMED: OnceLock<[String; ASSETS.len()]> = OnceLock::new();
    NAMED.get_or_init(|| {
        ASSETS.map(|asset| {
            let hash = digest::digest(&digest::SHA256, asset.text.as_bytes());
            let hash: String = hash.as_ref().iter().take(6).map(|byte| format!("{byte:02x}")).collect();
            let (stem, extension) = asset.name.split_once('.').unwrap_or((asset.name, ""));
            format!("{stem}.{hash}.{extension}")
        })
    })
}

pub(crate) fn asset_path(name: &str) -> String {
    let index = ASSETS.iter().position(|asset| asset.name == name);
    index.map_or_else(String::new, |index| format!("/assets/{}", asset_names()[index]))
}

async fn serve_asset(Path(name): Path<String>) -> Response {
    let index = asset_names().iter().position(|known| *known == name);
    match index.map(|index| &ASSETS[index]) {
        None => (StatusCode::NOT_FOUND, "no such asset: reload the page, another version is running\n").into_response(),
        Some(asset) => {
            let headers =
                [(header::CONTENT_TYPE, asset.kind), (header::CACHE_CONTROL, "public, max-age=31536000, immutable")];
            (headers, asset.text).into_response()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn equal_queries_are_equal_views() {
        let one = Showing::of("/resource", "resource=a%20b&page=2");
        assert_eq!(one, Showing::of("/resource", "page=2&resource=a+b"));
        assert!(Showing::of("/resource", "page=two").is_err());
        assert!(Showing::of("/resources", "sort=size").expect_err("no such").contains("sort (resource, capacity"));
        assert!(Showing::of("/resource", "span=8d").expect_err("no such").contains("15m, 6h or 7d"));
        assert!(Showing::of("/debug", "").is_err());
    }
}
