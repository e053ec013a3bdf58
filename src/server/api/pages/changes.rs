//! Recent changes of all kinds, on a time axis and as a table.

use std::time::{Duration, SystemTime};

use leaseway_core::types::escaped;
use maud::{Markup, html};
use serde::Deserialize;

use super::{
    Column::{Number, Text},
    Parts, table,
};
use crate::{
    api::pages::{Pages, text},
    observe::changes::{Change, ChangeKind},
};

#[derive(Debug, Clone, PartialEq, Eq, Hash, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct ChangesQuery {
    /// Empty for all kinds.
    kind: String,
}

/// Possible lengths of the axis in minutes. The page uses the shortest one that covers all changes.
const SPANS: [u64; 7] = [15, 60, 360, 1_440, 10_080, 43_200, 525_600];
/// The size of the axis, in units of its view box.
const WIDTH: f64 = 900.0;
const LEFT: f64 = 110.0;
const LANE: f64 = 24.0;

pub(super) fn parts(pages: &Pages, query: &ChangesQuery) -> Parts {
    let kind = ChangeKind::named(&query.kind);
    let all = pages.node.authorizer().audit().changes().list(kind);
    let mut parts = Parts::default();
    parts.put("axis", &axis(&all, kind, SystemTime::now()));
    parts.put("count", &html! { (count(&all)) });
    parts.put_rows("rows", all.iter().map(row));
    let frame = html! {
        h1 { "Changes" }
        nav.kinds aria-label="Kinds of changes" {
            a href="/changes" aria-current=[kind.is_none().then_some("true")] { "all" }
            @for one in ChangeKind::ALL {
                a href={ "/changes?kind=" (one.name()) } aria-current=[(kind == Some(one)).then_some("true")] { (one.name()) }
            }
        }
        (Parts::marker("axis"))
        (Parts::marker("count"))
        (table(
            "Changes",
            &[Text("Time, UTC"), Text("Kind"), Text("What"), Text("Who"), Number("Times")],
            &Parts::rows_marker("rows"),
        ))
    };
    parts.framed(frame)
}

fn count(all: &[Change]) -> String {
    match all.len() {
        0 => "Nothing has changed since this server started.".to_owned(),
        1 => "1 change since this server started.".to_owned(),
        number => format!(
            "{} changes since this server started. The newest 256 of each kind are kept; the audit log has all.",
            text::count(number)
        ),
    }
}

fn row(change: &Change) -> Markup {
    html! {
        td { time datetime=(text::moment(change.at)) { (text::moment(change.at).replace('T', " ").trim_end_matches('Z')) } }
        td { span.kind.(change.kind.name()) { (change.kind.name()) } }
        td.what {
            @if !change.resource.is_empty() {
                a href={ "/resource?resource=" (text::encoded(&change.resource)) } { (escaped(&change.resource)) } ": "
            }
            (escaped(&change.what))
            @if !change.outcome.is_empty() && change.outcome != "done" { " " span.outcome { (escaped(&change.outcome)) } }
        }
        td {
            (escaped(&change.who))
            @if let Some(address) = change.address { " at " (address) }
        }
        td.n { (text::count(change.times)) }
    }
}

/// A time axis with a lane for each kind, and the present at the right.
fn axis(all: &[Change], kind: Option<ChangeKind>, now: SystemTime) -> Markup {
    let lanes: Vec<ChangeKind> =
        ChangeKind::ALL.into_iter().filter(|one| kind.is_none_or(|kind| kind == *one)).collect();
    let ago = |change: &Change| now.duration_since(change.at).unwrap_or_default();
    let longest = all.iter().map(ago).max().unwrap_or_default();
    let span = SPANS.into_iter().map(|minutes| Duration::from_secs(minutes * 60)).find(|span| *span >= longest);
    let span = span.unwrap_or(longest);
    let x = |ago: Duration| LEFT + (WIDTH - LEFT - 10.0) * (1.0 - ago.as_secs_f64() / span.as_secs_f64());
    let height = LANE * lanes.len() as f64;
    let label =
        format!("Changes of the last {} by kind; the table below lists them.", text::length(span.as_millis() as u64));
    html! {
        div.scroll tabindex="0" role="group" aria-label="Time axis" {
            svg.axis viewBox={ "0 0 " (WIDTH) " " (height + 24.0) } role="img" aria-label=(label) {
                @for (number, lane) in lanes.iter().enumerate() {
                    @let y = LANE * (number as f64 + 0.5);
                    line.lane x1=(LEFT) x2=(WIDTH - 10.0) y1=(y) y2=(y) {}
                    text x="0" y=(y + 4.0) { (lane.name()) }
                    @for change in all.iter().filter(|change| change.kind == *lane) {
                        circle.dot.(lane.name()) cx=(format!("{:.0}", x(ago(change)))) cy=(y) r="5" {
                            title { (text::clock(change.at)) " " (escaped(&change.what)) }
                        }
                    }
                }
                @for third in 0..=3 {
                    @let back = span * third / 3;
                    line.tick x1=(format!("{:.0}", x(back))) x2=(format!("{:.0}", x(back))) y1="0" y2=(height) {}
                    text.time x=(format!("{:.0}", x(back))) y=(height + 16.0) text-anchor=(anchor(third)) {
                        @if third == 0 { "now" } @else { (text::length(back.as_millis() as u64)) " ago" }
                    }
                }
            }
        }
    }
}

fn anchor(third: u32) -> &'static str {
    match third {
        0 => "end",
        3 => "start",
        _ => "middle",
    }
}
