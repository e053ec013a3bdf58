//! What pages load besides themselves. The name of each has a hash of what is in it, so that browsers may keep it.

use std::sync::OnceLock;

use axum::{
    extract::Path,
    http::{StatusCode, header},
    response::{IntoResponse, Response},
};
use ring::digest;

struct Asset {
    name: &'static str,
    kind: &'static str,
    text: &'static str,
}

const ASSETS: [Asset; 4] = [
    Asset { name: "page.css", kind: "text/css; charset=utf-8", text: include_str!("../assets/page.css") },
    Asset { name: "debug.css", kind: "text/css; charset=utf-8", text: include_str!("../assets/debug.css") },
    Asset { name: "page.js", kind: "text/javascript; charset=utf-8", text: include_str!("../assets/page.js") },
    Asset { name: "icon.svg", kind: "image/svg+xml", text: include_str!("../assets/icon.svg") },
];

/// Their names with hashes, in the same order.
fn named() -> &'static [String; ASSETS.len()] {
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

/// Where an asset is.
pub(in super::super) fn path(name: &str) -> String {
    let place = ASSETS.iter().position(|asset| asset.name == name);
    place.map_or_else(String::new, |place| format!("/assets/{}", named()[place]))
}

pub(super) async fn serve(Path(name): Path<String>) -> Response {
    let place = named().iter().position(|known| *known == name);
    match place.map(|place| &ASSETS[place]) {
        None => (StatusCode::NOT_FOUND, "no such asset: reload the page, another version is running\n").into_response(),
        Some(asset) => {
            let headers =
                [(header::CONTENT_TYPE, asset.kind), (header::CACHE_CONTROL, "public, max-age=31536000, immutable")];
            (headers, asset.text).into_response()
        }
    }
}
