//! The page that explains why a holder has its present capacity.

use axum::http::StatusCode;
use leaseway_core::types::escaped;
use maud::{Markup, html};

use super::Parts;
use crate::api::pages::{
    Pages, text,
    view::node::{self, Explained, MasterSeen, ParentRow, WhyQuery},
};

pub(super) async fn parts(pages: &Pages, query: &WhyQuery) -> Parts {
    if query.resource.is_empty() || query.holder.is_empty() {
        let frame = html! {
            h1 { "Explain a lease" }
            (form(query))
            p.none { "A holder is a client or a child node. Enter the ids of the resource and of the holder as they \
                      are in the holder's requests." }
        };
        return Parts::default().framed(frame);
    }
    let Some(explained) = node::explain(pages, query).await else { return not_known(pages, query) };
    let mut parts = Parts::default();
    parts.put("figures", &figures(&explained));
    parts.put("bar", &bar(&explained));
    parts.put(
        "sentences",
        &html! { ol.sentences { @for sentence in explained.explanation.sentences() { li { (sentence) } } } },
    );
    parts.put("parent", &explained.parent.as_ref().map(|parent| above(parent, &query.resource)).unwrap_or_default());
    let frame = html! {
        h1 { "Why " (escaped(&query.holder)) " has this capacity" }
        p.of { "Resource " a href={ "/resource?resource=" (text::encoded(&query.resource)) } { (escaped(&query.resource)) } }
        (Parts::marker("figures"))
        (Parts::marker("bar"))
        (Parts::marker("sentences"))
        (Parts::marker("parent"))
        section { h2 { "Another holder" } (form(query)) }
    };
    parts.framed(frame)
}

fn not_known(pages: &Pages, query: &WhyQuery) -> Parts {
    let frame = html! {
        h1 { "Explain a lease" }
        @if MasterSeen::of(pages) != MasterSeen::Here {
            p { "Not known here: only the master knows who holds " strong { (escaped(&query.resource)) } "." }
        } @else { p { "There is no holder " strong { (escaped(&query.holder)) } " of " strong { (escaped(&query.resource)) } " here. A holder is known from its first request until its lease expires." } }
        (form(query))
    };
    Parts { status: StatusCode::NOT_FOUND, ..Parts::default() }.framed(frame)
}

fn form(query: &WhyQuery) -> Markup {
    html! {
        form.search action="/why" {
            label for="resource" { "Resource" }
            input #resource name="resource" required value=(escaped(&query.resource)) maxlength="1024";
            label for="holder" { "Holder" }
            input #holder name="holder" required value=(escaped(&query.holder)) maxlength="1024";
            button { "Explain" }
        }
    }
}

fn figures(explained: &Explained) -> Markup {
    let Explained { holder, explanation, .. } = explained;
    let blocks: Vec<_> = explanation.blocks.iter().map(leaseway_core::resource::report::explain::Block::name).collect();
    html! {
        dl.figures {
            div { dt { "Wants" } dd { (text::units(holder.wants)) } }
            div { dt { "Due" } dd { (text::units(holder.due)) } }
            div { dt { "Has" } dd { (text::units(holder.has)) } }
            div { dt { "Held" } dd { (text::units(holder.held)) } }
            div { dt { "Rule" } dd { (explanation.rule.name()) } }
            @if !blocks.is_empty() { div { dt { "Waits for" } dd { (blocks.join(", ")) } } }
            @if let Some(asks) = explained.asks_ms() { div { dt { "Asks again in" } dd { (text::ago(asks)) } } }
            @if let Some(latest) = explained.latest_ms() { div { dt { "Has its due within" } dd { (text::ago(latest)) } } }
        }
    }
}

/// A bar with the fractions of the capacity held by this holder, held by others, and free.
fn bar(explained: &Explained) -> Markup {
    let (capacity, free) = (explained.explanation.capacity.get(), explained.explanation.free.get());
    if capacity <= 0.0 {
        return html! {};
    }
    let part = |value: f64| (100.0 * value / capacity).clamp(0.0, 100.0);
    let own = part(explained.holder.held);
    let others = part(capacity - free.max(0.0) - explained.holder.held);
    let free = 100.0 - own - others;
    let caption =
        format!("Of {}: this holder {own:.1} %, others {others:.1} %, free {free:.1} %.", text::units(capacity));
    html! {
        svg.bar viewBox="0 0 1000 24" preserveAspectRatio="none" role="img" aria-label=(caption) {
            rect.free x="0" y="0" width="1000" height="24" {}
            rect.others x=(format!("{:.1}", own * 10.0)) y="0" width=(format!("{:.1}", others * 10.0)) height="24" {}
            rect.own x="0" y="0" width=(format!("{:.1}", own * 10.0)) height="24" {}
        }
        p.caption { (caption) }
    }
}

/// The command that explains this node's own lease at the parent.
fn above(parent: &ParentRow, resource: &str) -> Markup {
    let command = format!(
        "leaseway explain {} {} --node --server {}",
        escaped(&parent.node),
        escaped(resource),
        if parent.master.is_empty() { parent.addresses.join(",") } else { parent.master.clone() }
    );
    html! {
        section {
            h2 { "At the parent" }
            p {
                "The capacity here is a lease of the parent at " (escaped(&parent.addresses.join(", ")))
                ", which knows this node as "
                strong { (escaped(&parent.node)) } ". To explain that lease:"
            }
            pre { code { (escaped(&command)) } }
        }
    }
}
