//! One resource: its last quarter of an hour, and its holders.

use axum::http::StatusCode;
use leaseway_core::escaped;
use maud::{Markup, html};

use super::{
    super::{
        Pages,
        view::{self, HolderPage, HolderQuery, HolderRow, HolderSort, MasterSeen, ResourceDetail},
    },
    Parts, plot, text,
};
use crate::observe::changes::ChangeKind;

const COLUMNS: [(HolderSort, &str); 7] = [
    (HolderSort::Holder, "Holder"),
    (HolderSort::Wants, "Wants"),
    (HolderSort::Due, "Due"),
    (HolderSort::Has, "Has"),
    (HolderSort::Held, "Held"),
    (HolderSort::Priority, "Priority"),
    (HolderSort::Clients, "Clients"),
];

pub(super) async fn parts(pages: &Pages, query: &HolderQuery) -> Parts {
    let Some(detail) = view::resource(pages, &query.resource).await else { return not_known(pages, query) };
    let page = view::holders(pages, query).await.unwrap_or_default();
    let mut parts = Parts::default();
    parts.put("figures", &figures(&detail));
    parts.put("plot", &plot::plot(&pages.history.of(&query.resource), pages.history.most()));
    parts.put("more", &more(&detail));
    parts.put("changes", &changes(pages, &query.resource));
    parts.put("count", &html! { (said(&page, &detail)) });
    parts.put("paging", &paging(page.pages, query.page.max(1), |page| href(query, query.sort, page)));
    parts.put_rows("rows", page.rows.iter().map(|holder| row(holder, &query.resource)));
    let frame = html! {
        h1 { (escaped(&query.resource)) }
        (Parts::place("figures"))
        section { h2 { "The last 15 minutes" } (Parts::place("plot")) }
        (Parts::place("more"))
        (Parts::place("changes"))
        section {
            h2 { "Holders" }
            form.search action="/resource" role="search" {
                input type="hidden" name="resource" value=(query.resource);
                input type="hidden" name="sort" value=(query.sort.name());
                label for="search" { "Part of the id" }
                input #search name="search" type="search" value=(escaped(&query.search)) maxlength="256";
                button { "Search" }
            }
            (Parts::place("count"))
            div.scroll tabindex="0" role="group" aria-label="Holders" { table {
                thead { tr {
                    @for (sort, name) in COLUMNS {
                        th.n[sort != HolderSort::Holder] scope="col" aria-sort=[sorted(sort == query.sort, sort == HolderSort::Holder)] {
                            a href=(href(query, sort, 1)) { (name) }
                        }
                    }
                    th.n scope="col" { "Lease left" }
                    th scope="col" { "Why" }
                } }
                (Parts::place_rows("rows"))
            } }
            (Parts::place("paging"))
        }
    };
    parts.framed(frame)
}

fn not_known(pages: &Pages, query: &HolderQuery) -> Parts {
    let sentence = match MasterSeen::of(pages) {
        MasterSeen::Here => "There is no such resource. The first request for one creates it.",
        _ => "Not known here: only the master knows the resources.",
    };
    Parts::sentence(StatusCode::NOT_FOUND, &query.resource, sentence)
}

/// What a heading of a column says about the order.
pub(super) fn sorted(is_by_this: bool, rises: bool) -> Option<&'static str> {
    is_by_this.then_some(if rises { "ascending" } else { "descending" })
}

fn href(query: &HolderQuery, sort: HolderSort, page: usize) -> String {
    let (resource, search) = (text::encoded(&query.resource), text::encoded(&query.search));
    format!("/resource?resource={resource}&search={search}&sort={}&page={page}", sort.name())
}

/// Links to other pages; nothing if there is one only.
pub(super) fn paging(pages: usize, page: usize, href: impl Fn(usize) -> String) -> Markup {
    html! {
        @if pages > 1 {
            nav.paging aria-label="Pages" {
                @if page > 1 { a href=(href(1)) { "First" } a rel="prev" href=(href(page - 1)) { "Previous" } }
                span { "Page " (page) " of " (pages) }
                @if page < pages { a rel="next" href=(href(page + 1)) { "Next" } a href=(href(pages)) { "Last" } }
            }
        }
    }
}

fn said(page: &HolderPage, detail: &ResourceDetail) -> String {
    match (page.matching, detail.row.holders) {
        (_, 0) => "No client holds anything of it.".to_owned(),
        (0, _) => "No holder has that in its id.".to_owned(),
        (1, 1) => "1 holder.".to_owned(),
        (matching, all) if matching >= all => format!("{} holders.", text::count(matching)),
        (matching, all) => format!("{} of {} holders.", text::count(matching), text::count(all)),
    }
}

fn figures(detail: &ResourceDetail) -> Markup {
    let row = &detail.row;
    html! {
        dl.figures {
            div { dt { "Capacity" } dd { @if row.is_divided { (text::number(row.capacity)) } @else { "not divided" } } }
            div { dt { "Wants" } dd { (text::number(row.wants)) } }
            div { dt { "Granted" } dd { (text::number(row.granted)) } }
            div { dt { "Held" } dd.bad[row.over() > row.capacity * 1e-9] { (text::number(row.held)) } }
            @if row.is_divided { div { dt { "Free" } dd { (text::number(detail.free)) } } }
            div { dt { "Clients" } dd { (text::count(row.clients)) } }
            @if row.gateways > 0 {
                div { dt { "Gateways" } dd { (text::count(row.gateways)) ", holding " (text::number(row.held_by_gateways)) } }
            }
            div { dt { "Algorithm" } dd { (row.algorithm) } }
            div { dt { "Template" } dd { @match &row.template { Some(glob) => code { (escaped(glob)) }, None => span.warn { "none: honoured as asked" } } } }
            div { dt { "Lease, refresh" } dd { (text::length(detail.lease_ms)) ", " (text::length(detail.refresh_ms)) } }
            @if row.learning_ms > 0 { div { dt { "Learning" } dd.warn { (text::ago(row.learning_ms)) " more" } } }
        }
    }
}

/// What not every resource has.
fn more(detail: &ResourceDetail) -> Markup {
    html! {
        @if let Some(overridden) = &detail.overridden { p { strong { "Overridden. " } (overridden.sentence) } }
        @if let Some(lent) = &detail.lent {
            p {
                @match (lent.edition, lent.remaining_ms) {
                    (0, _) => "The parent has lent nothing yet.",
                    (_, 0) => span.bad { "What the parent lent has ended." },
                    (_, left) => { "Lent by the parent for another " (text::ago(left)) "." },
                }
                @if let Some(told) = lent.outstanding { " It was told that " (text::number(told)) " is outstanding." }
                @for terms in &lent.terms { " It divides " (terms) "." }
            }
        }
        @if let Some(promised) = &detail.promised {
            p {
                "Promised " (text::number(promised.total)) " in all: what the next master would hold back."
                @if promised.estate > 0.0 {
                    " Earlier masters promised " (text::number(promised.estate)) " that no holder has named yet; it ends in "
                    (text::ago(promised.estate_ms)) " at most."
                }
            }
        }
        @if let Some(pool) = &detail.pool {
            p {
                "Pool: " (text::number(pool.connected)) " of " (text::number(pool.total)) " connected, "
                (text::number(pool.priority_connected)) " of it by priority clients; assigned " (text::number(pool.assigned))
                ", used " (text::number(pool.recharging)) ", waiting " (text::count(pool.waiting)) ", overloads "
                (text::count(pool.overloads)) "."
            }
        }
    }
}

/// What has changed about this resource alone.
fn changes(pages: &Pages, resource: &str) -> Markup {
    let all = pages.node.authorizer().audit().changes();
    let kinds = [ChangeKind::Override, ChangeKind::Pool, ChangeKind::Operator];
    let list: Vec<_> = kinds.into_iter().flat_map(|kind| all.list(Some(kind))).collect();
    let list: Vec<_> = list.into_iter().filter(|change| change.resource == resource).take(5).collect();
    html! {
        @if !list.is_empty() {
            section {
                h2 { "Changes" }
                ul.plain { @for change in &list {
                    li { time datetime=(text::moment(change.at)) { (text::clock(change.at)) } " " (escaped(&change.what)) }
                } }
            }
        }
    }
}

fn row(holder: &HolderRow, resource: &str) -> Markup {
    let why = format!(
        "/why?resource={}&holder={}&kind={}",
        text::encoded(resource),
        text::encoded(&holder.holder),
        if holder.kind == "node" { "node" } else { "client" }
    );
    html! {
        th.id scope="row" { (escaped(&holder.holder)) @if holder.kind != "client" { " " span.tag { (holder.kind) } } }
        td.n { (text::number(holder.wants)) }
        td.n { (text::number(holder.due)) }
        td.n.short[holder.has < holder.due * 0.99] { (text::number(holder.has)) }
        td.n { (text::number(holder.held)) }
        td.n { (holder.priority) }
        td.n { (text::count(holder.clients)) }
        td.n { @if holder.remaining_ms == 0 { "ended" } @else { (text::ago(holder.remaining_ms.div_ceil(5_000) * 5_000)) } }
        td { a href=(why) aria-label={ "Why " (escaped(&holder.holder)) " has that" } { "why" } }
    }
}
