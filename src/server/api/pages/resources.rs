//! The list of resources, and the page of one resource with its history and holders.

use std::{
    cmp::Reverse,
    time::{Duration, SystemTime, UNIX_EPOCH},
};

use axum::http::StatusCode;
use leaseway_core::{
    resource::budget::report::{BudgetForecast, BudgetReport},
    types::{Amount, Glob, escaped},
};
use maud::{Markup, html};

use super::{
    Column::{Number, Text},
    Parts,
    burn_down::BurnDown,
    plot::{self, Plot},
    table,
};
use crate::{
    api::{
        pages::{
            Pages, text,
            view::{
                node::MasterSeen,
                resources::{
                    self as view, HolderPage, HolderQuery, HolderRow, HolderSort, PAGE_ROWS, ResourceDetail,
                    ResourceQuery, ResourceRow, ResourceSort, TopHolders,
                },
            },
        },
        status::history::Span,
    },
    observe::changes::{Change, ChangeKind},
};

const RESOURCE_COLUMNS: [(ResourceSort, &str); 7] = [
    (ResourceSort::Resource, "Resource"),
    (ResourceSort::Capacity, "Capacity, units"),
    (ResourceSort::Wants, "Wants, units"),
    (ResourceSort::Granted, "Granted, units"),
    (ResourceSort::Held, "Held, units"),
    (ResourceSort::Pressure, "Wants ÷ capacity"),
    (ResourceSort::Clients, "Clients"),
];

pub(super) async fn parts(pages: &Pages, query: &ResourceQuery) -> Parts {
    let all = pages.snapshots.resources.get(pages).await;
    let (rows, matching) = all.page(query);
    let mut parts = Parts::default();
    let count = match MasterSeen::of(pages) {
        MasterSeen::Here => resource_count(matching, all.rows.len(), all.left_out),
        _ => "Not known here: only the master knows the resources.".to_owned(),
    };
    parts.put("count", &html! { (count) });
    parts.put(
        "paging",
        &paging(matching.div_ceil(PAGE_ROWS), query.page.max(1), |page| resources_link(query, query.sort, page)),
    );
    parts.put_rows("rows", rows.into_iter().map(resource_row));
    let frame = html! {
        h1 { "Resources" }
        form.search action="/resources" role="search" {
            label for="search" { "Part of the id" }
            input #search name="search" type="search" value=(escaped(&query.search)) maxlength="256";
            input type="hidden" name="sort" value=(query.sort.name());
            button { "Search" }
        }
        (Parts::marker("count"))
        div.scroll tabindex="0" role="group" aria-label="Resources" { table {
            thead { tr {
                @for (sort, name) in RESOURCE_COLUMNS {
                    th.n[sort != ResourceSort::Resource] scope="col" aria-sort=[sorted(sort == query.sort, sort == ResourceSort::Resource)] {
                        a href=(resources_link(query, sort, 1)) { (name) }
                    }
                }
                th scope="col" { "Algorithm" }
                th scope="col" { "Template" }
            } }
            (Parts::rows_marker("rows"))
        } }
        (Parts::marker("paging"))
    };
    parts.framed(frame)
}

fn resource_count(matching: usize, all: usize, left_out: usize) -> String {
    let count = match all {
        0 => "No resources yet: the first request for one creates it.".to_owned(),
        1 if matching == 1 => "1 resource.".to_owned(),
        _ if matching == all => format!("{} resources.", text::count(all)),
        _ => format!("{} of {} resources.", text::count(matching), text::count(all)),
    };
    match left_out {
        0 => count,
        _ => format!(
            "{count} These are under the most pressure; {} others are not listed, `leaseway status ID` shows them.",
            text::count(left_out)
        ),
    }
}

fn resources_link(query: &ResourceQuery, sort: ResourceSort, page: usize) -> String {
    format!("/resources?search={}&sort={}&page={page}", text::encoded(&query.search), sort.name())
}

fn resource_row(row: &ResourceRow) -> Markup {
    html! {
        th.id scope="row" {
            a href={ "/resource?resource=" (text::encoded(&row.resource)) } { (escaped(&row.resource)) }
            @if row.learning_ms > 0 { " " span.tag { "learning" } }
        }
        td.n { @if row.is_divided { (text::number(row.capacity)) } @else { "not divided" } }
        td.n { (text::number(row.wants)) }
        td.n { (text::number(row.granted)) }
        td.n.bad[row.over() > row.capacity * 1e-9] { (text::number(row.held)) }
        td.n {
            @if row.pressure() == f64::MAX { "no capacity" } @else if row.is_divided { (text::number(row.pressure())) " ×" } @else { "–" }
        }
        td.n { (text::count(row.clients)) }
        td { (row.algorithm) }
        td {
            @match &row.template {
                Some(glob) => code { (escaped(glob)) },
                None => span.warn { "none" },
            }
        }
    }
}

const HOLDER_COLUMNS: [(HolderSort, &str); 7] = [
    (HolderSort::Holder, "Holder"),
    (HolderSort::Wants, "Wants, units"),
    (HolderSort::Due, "Due, units"),
    (HolderSort::Has, "Has, units"),
    (HolderSort::Held, "Held, units"),
    (HolderSort::Priority, "Priority"),
    (HolderSort::Clients, "Clients"),
];

/// Maximum number of rows about refusals.
const MAX_REFUSED: usize = 10;

pub(super) async fn resource_parts(pages: &Pages, query: &HolderQuery) -> Parts {
    let Some(detail) = view::resource(pages, &query.resource).await else { return without_holders(pages, query) };
    let page = view::holders(pages, query).await.unwrap_or_default();
    let mut parts = Parts::default();
    parts.put("figures", &figures(&detail));
    parts.put("plot", &html! { (plot(pages, query)) (burn_down(pages, &detail)) });
    parts.put("top", &top(&page.top, &detail));
    parts.put("refused", &refused(pages, &detail));
    parts.put("groups", &groups(&detail, query));
    parts.put("more", &more(&detail));
    parts.put("changes", &changes(pages, &query.resource));
    parts.put("count", &html! { (holder_count(&page, &detail)) });
    parts.put("paging", &paging(page.pages, query.page.max(1), |page| holders_link(query, query.sort, page)));
    parts.put_rows("rows", page.rows.iter().map(|holder| holder_row(holder, &query.resource)));
    let frame = html! {
        h1 { "Resource " (escaped(&query.resource)) }
        (Parts::marker("figures"))
        (plot_section(query))
        (Parts::marker("top"))
        (Parts::marker("refused"))
        (Parts::marker("groups"))
        (Parts::marker("more"))
        section {
            h2 { "Holders" }
            form.search action="/resource" role="search" {
                input type="hidden" name="resource" value=(query.resource);
                input type="hidden" name="sort" value=(query.sort.name());
                input type="hidden" name="span" value=(query.span.name());
                @if !query.group.is_empty() { input type="hidden" name="group" value=(escaped(&query.group)); }
                label for="search" { "Part of the id" }
                input #search name="search" type="search" value=(escaped(&query.search)) maxlength="256";
                button { "Search" }
            }
            (Parts::marker("count"))
            div.scroll tabindex="0" role="group" aria-label="Holders" { table {
                thead { tr {
                    @for (sort, name) in HOLDER_COLUMNS {
                        th.n[sort != HolderSort::Holder] scope="col" aria-sort=[sorted(sort == query.sort, sort == HolderSort::Holder)] {
                            a href=(holders_link(query, sort, 1)) { (name) }
                        }
                    }
                    th.n scope="col" { "Lease left" }
                    th scope="col" { "Why" }
                } }
                (Parts::rows_marker("rows"))
            } }
            (Parts::marker("paging"))
        }
        (Parts::marker("changes"))
    };
    parts.framed(frame)
}

fn plot_section(query: &HolderQuery) -> Markup {
    html! {
        section {
            h2 { "The last " (query.span.in_words()) }
            (plot::spans(query.span, |span| holders_link(&HolderQuery { span, ..query.clone() }, query.sort, query.page.max(1))))
            (Parts::marker("plot"))
        }
    }
}

/// The page of a resource whose holders are not known here. A peer that is not the master has a copy of its history.
fn without_holders(pages: &Pages, query: &HolderQuery) -> Parts {
    let now = SystemTime::now();
    let is_known = Span::ALL.into_iter().any(|span| !pages.history.of(&query.resource, span, now).is_empty());
    if MasterSeen::of(pages) == MasterSeen::Here || !is_known {
        return not_known(pages, query);
    }
    let mut parts = Parts::default();
    parts.put("plot", &plot(pages, query));
    parts.put("changes", &changes(pages, &query.resource));
    let frame = html! {
        h1 { "Resource " (escaped(&query.resource)) }
        p { "The plot is this peer's copy of the history that the master keeps, a few seconds behind." }
        (plot_section(query))
        (Parts::marker("changes"))
    };
    parts.framed(frame)
}

fn plot(pages: &Pages, query: &HolderQuery) -> Markup {
    let (span, now) = (query.span, SystemTime::now());
    let (points, events) = (pages.history.of(&query.resource, span, now), events(pages, &query.resource));
    Plot { span, points: &points, events: &events, now, kept: pages.history.most() }.draw()
}

/// What is left of a budget, from the shortest history that covers its period. Nothing for other resources.
fn burn_down(pages: &Pages, detail: &ResourceDetail) -> Markup {
    let report = &detail.status.report;
    let Some(budget) = &report.budget else { return html! {} };
    let covers = |span: &Span| span.length().as_secs() as i64 >= budget.period.seconds();
    let (span, now) = (Span::ALL.into_iter().find(covers).unwrap_or(Span::Days7), SystemTime::now());
    let points = pages.history.of(&detail.row.resource, span, now);
    BurnDown { budget, amount: report.settings.capacity.get(), points: &points, now }.draw()
}

/// The changes that took effect and may show on a plot, the newest first.
fn events(pages: &Pages, resource: &str) -> Vec<Change> {
    let all = pages.node.authorizer().audit().changes();
    let kinds = [ChangeKind::Configuration, ChangeKind::Election, ChangeKind::Override, ChangeKind::Limit];
    let mut events: Vec<Change> = kinds.into_iter().flat_map(|kind| all.list(Some(kind))).collect();
    events.retain(|event| event.took_effect() && (!event.is_of_one_resource() || concerns(event, resource)));
    events.sort_by_key(|event| Reverse(event.at));
    events
}

/// Whether a change names the resource, or a pattern that matches it.
fn concerns(change: &Change, resource: &str) -> bool {
    change.resource == resource || Glob::new(&change.resource).is_ok_and(|glob| glob.matches(resource))
}

/// The largest holders, and those that lack the most.
fn top(top: &TopHolders, detail: &ResourceDetail) -> Markup {
    let resource = &detail.row.resource;
    let held = html! {
        tbody { @for holder in &top.held { tr {
            (holder_heading(holder, resource))
            td.n { (text::number(holder.held)) }
            td.n { @if detail.row.capacity > 0.0 && detail.row.is_divided { (text::percent(holder.held / detail.row.capacity)) } @else { "–" } }
        } } }
    };
    let lacking = html! {
        tbody { @for holder in &top.lacking { tr {
            (holder_heading(holder, resource))
            td.n { (text::number(holder.wants)) }
            td.n { (text::number(holder.has)) }
            td.n.short { (text::number(holder.lacks())) }
        } } }
    };
    html! {
        @if !top.held.is_empty() {
            div.columns {
                section {
                    h2 { "Top consumers" }
                    (table("Top consumers", &[Text("Holder"), Number("Held, units"), Number("Share of the capacity")], &held))
                }
                section {
                    h2 { "Most unmet demand" }
                    @if top.lacking.is_empty() { p.none { "Every holder has what it wants." } } @else {
                        (table(
                            "Most unmet demand",
                            &[Text("Holder"), Number("Wants, units"), Number("Has, units"), Number("Lacks, units")],
                            &lacking,
                        ))
                    }
                }
            }
        }
    }
}

/// The clients whose requests for this resource were refused most often. What a client's own limiter refuses is not
/// known to the server.
fn refused(pages: &Pages, detail: &ResourceDetail) -> Markup {
    let all = pages.node.authorizer().audit().refusals().of(&detail.row.resource);
    let rows = html! {
        tbody { @for refusal in all.iter().take(MAX_REFUSED) { tr {
            th.id scope="row" { (escaped(&refusal.client)) }
            td { code { (refusal.reason) } }
            td.n { (text::count(refusal.times)) }
            td.n { (text::ago(refusal.ago.as_millis() as u64)) " ago" }
        } } }
    };
    html! {
        @if !all.is_empty() {
            section {
                h2 { "Refused requests of the last hour" }
                (table("Refused requests", &[Text("Client"), Text("Reason"), Number("Times"), Number("Last")], &rows))
                @if all.len() > MAX_REFUSED { p.more { "And " (text::count(all.len() - MAX_REFUSED)) " more." } }
            }
        }
    }
}

fn holder_heading(holder: &HolderRow, resource: &str) -> Markup {
    html! { th.id scope="row" { a href=(why_link(holder, resource)) { (escaped(&holder.holder)) } } }
}

fn why_link(holder: &HolderRow, resource: &str) -> String {
    let kind = if holder.kind == "node" { "node" } else { "client" };
    let (resource, holder) = (text::encoded(resource), text::encoded(&holder.holder));
    format!("/why?resource={resource}&holder={holder}&kind={kind}")
}

fn not_known(pages: &Pages, query: &HolderQuery) -> Parts {
    let sentence = match MasterSeen::of(pages) {
        MasterSeen::Here => "No such resource. The first request for it creates it.",
        _ => "Not known here: only the master knows the resources.",
    };
    Parts::sentence(StatusCode::NOT_FOUND, &query.resource, sentence)
}

/// The `aria-sort` of a column.
fn sorted(is_sorted: bool, is_ascending: bool) -> Option<&'static str> {
    is_sorted.then_some(if is_ascending { "ascending" } else { "descending" })
}

fn holders_link(query: &HolderQuery, sort: HolderSort, page: usize) -> String {
    let (resource, search) = (text::encoded(&query.resource), text::encoded(&query.search));
    let span = query.span.name();
    let group = if query.group.is_empty() { String::new() } else { format!("&group={}", text::encoded(&query.group)) };
    format!("/resource?resource={resource}&search={search}&sort={}&page={page}&span={span}{group}", sort.name())
}

/// The groups directly in the one that the query names, each with a link to those in it.
fn groups(detail: &ResourceDetail, query: &HolderQuery) -> Markup {
    let report = &detail.status.report;
    let rows = detail.groups_in(&query.group);
    let link = |path: &str| holders_link(&HolderQuery { group: path.to_owned(), ..query.clone() }, query.sort, 1);
    let has_groups = |path: &str| !detail.groups_in(path).is_empty();
    let body = html! {
        tbody { @for group in &rows { tr {
            th.id scope="row" {
                @if has_groups(&group.path) { a href=(link(&group.path)) { (escaped(&group.path)) } }
                @else { (escaped(&group.path)) }
            }
            td.n { (text::number(group.wants.get())) }
            td.n.short[group.share.get() < group.wants.get()] { (text::number(group.share.get())) }
            td.n { (text::number(group.held.get())) }
            td.n { (group.weight) }
            td.n {
                @if group.minimum.get() > 0.0 {
                    (text::number(group.minimum.get())) @if !group.lends { " " span.tag { "kept" } }
                } @else { "–" }
            }
            td.n { @match group.maximum { Some(most) => (text::number(most.get())), None => "–" } }
            td.n { (text::count(group.members)) }
        } } }
    };
    let columns = [
        Text("Group"),
        Number("Wants, units"),
        Number("Due, units"),
        Number("Held, units"),
        Number("Weight"),
        Number("Minimum"),
        Number("Maximum"),
        Number("Members"),
    ];
    html! {
        @if report.group_count > 0 {
            section {
                h2 { "Groups" @if !query.group.is_empty() { " in " (escaped(&query.group)) } }
                @if !query.group.is_empty() {
                    p { a href=(link(query.group.rsplit_once('/').map_or("", |(above, _)| above))) { "One level up" } }
                }
                @if rows.is_empty() { p.none { "No groups at this level." } } @else { (table("Groups", &columns, &body)) }
                @if report.groups.len() < report.group_count {
                    p { (text::count(report.groups.len())) " of " (text::count(report.group_count))
                        " groups are listed, those with the largest wants." }
                }
            }
        }
    }
}

/// Links to the other pages. Empty if there is only one page.
fn paging(pages: usize, page: usize, href: impl Fn(usize) -> String) -> Markup {
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

fn holder_count(page: &HolderPage, detail: &ResourceDetail) -> String {
    match (page.matching, detail.row.holders) {
        (_, 0) => "It has no holders.".to_owned(),
        (0, _) => "No holder id contains this text.".to_owned(),
        (1, 1) => "1 holder.".to_owned(),
        (matching, all) if matching >= all => format!("{} holders.", text::count(matching)),
        (matching, all) => format!("{} of {} holders.", text::count(matching), text::count(all)),
    }
}

fn figures(detail: &ResourceDetail) -> Markup {
    let (row, settings) = (&detail.row, &detail.status.report.settings);
    html! {
        dl.figures {
            div { dt { "Capacity" } dd { @if row.is_divided { (text::units(row.capacity)) } @else { "not divided" } } }
            div { dt { "Wants" } dd { (text::units(row.wants)) } }
            div { dt { "Granted" } dd { (text::units(row.granted)) } }
            div { dt { "Held" } dd.bad[row.over() > row.capacity * 1e-9] { (text::units(row.held)) } }
            @if row.is_divided { div { dt { "Free" } dd { (text::units(detail.free())) } } }
            div { dt { "Clients" } dd { (text::count(row.clients)) } }
            @if row.gateways > 0 {
                div { dt { "Gateways" } dd { (text::count(row.gateways)) ", holding " (text::units(row.held_by_gateways)) } }
            }
            div { dt { "Algorithm" } dd { (row.algorithm) } }
            div { dt { "Template" } dd { @match &row.template { Some(glob) => code { (escaped(glob)) }, None => span.warn { "none: every request is granted" } } } }
            div { dt { "Lease length" } dd { (text::length(settings.lease.0)) } }
            div { dt { "Refresh interval" } dd { (text::length(settings.refresh.0)) } }
            @if row.learning_ms > 0 { div { dt { "Learning" } dd.warn { (text::ago(row.learning_ms)) " more" } } }
        }
    }
}

/// Properties that only some resources have: limit, override, parent's lease, promises, pool.
fn more(detail: &ResourceDetail) -> Markup {
    let status = &detail.status;
    html! {
        @if let Some(sentence) = status.declaration_sentence() { p { strong { "Declared. " } (sentence) } }
        @if let Some(sentence) = status.limit_sentence() { p { strong { "Limit. " } (sentence) } }
        @if let Some(overridden) = &status.report.overridden { p { strong { "Overridden. " } (overridden.sentence(status.at)) } }
        @for overridden in &status.report.overridden_groups { p { strong { "Overridden. " } (overridden.sentence(status.at)) } }
        @if let Some(supply) = &status.report.supply {
            p {
                @match (supply.version, supply.remaining.0) {
                    (0, _) => "The parent has granted no lease yet.",
                    (_, 0) => span.bad { "The parent's lease has expired." },
                    (_, left) => { "The parent's lease expires in " (text::ago(left)) "." },
                }
                @if let Some(outstanding) = supply.outstanding { " Reported to the parent as outstanding: " (text::units(outstanding.get())) "." }
                @for terms in detail.terms() { " The parent divides " (terms) "." }
            }
        }
        @if let Some(promises) = &status.promises {
            p {
                "Promised in total: " (text::units(promises.total.get())) ", which the next master would reserve."
                @if promises.unclaimed.get() > 0.0 {
                    " Promised by earlier masters and not yet claimed: " (text::units(promises.unclaimed.get())) ", which expires in "
                    (text::ago(promises.unclaimed_until.since(status.at).0)) " at most."
                }
            }
        }
        @if let Some(budget) = &status.report.budget { (spending(budget, status.report.settings.capacity.get())) }
        @if let Some(pool) = &status.pool {
            p {
                "Pool: " (text::number(pool.connected.get())) " of " (text::units(pool.total.get())) " connected, "
                (text::number(pool.priority_connected.get())) " of it by priority clients; assigned "
                (text::number(pool.priority_assigned.get())) ", used " (text::number(pool.used.get())) ", waiting "
                (text::count(pool.free_waiting + pool.priority_waiting)) ", overloads " (text::count(pool.overloads)) "."
            }
        }
    }
}

/// What was spent of a budget, and what will be at this rate.
fn spending(budget: &BudgetReport, amount: f64) -> Markup {
    let part = |spent: f64| text::percent(if amount > 0.0 { spent / amount } else { 0.0 });
    let unix = |seconds: i64| UNIX_EPOCH + Duration::from_secs(u64::try_from(seconds).unwrap_or_default());
    html! {
        p {
            "Budget: " (text::units(budget.spent.get())) " of " (text::units(amount)) " are spent ("
            (part(budget.spent.get())) "), " (text::units(budget.reserved.get())) " reserved for live holders, "
            (text::units(budget.left.get())) " left."
            @if budget.carried > Amount::ZERO {
                " The amount includes " (text::units(budget.carried.get())) " from the period before."
            }
            @if !budget.period.is_unending() { " The period ends at " (text::moment(unix(budget.period.end))) "." }
            @if let Some(pace) = budget.pace { " The pace allows " (text::units(pace)) " per second." }
            @match budget.forecast {
                Some(BudgetForecast { runs_out: Some(at), .. }) => {
                    " " span.bad { "If spending continues as in this period so far, all will be spent at " (text::moment(unix(at))) "." }
                }
                Some(BudgetForecast { spent, .. }) => { " If spending continues as in this period so far, " (part(spent)) " \
                                                                                                                           will \
                                                                                                                           be \
                                                                                                                           spent \
                                                                                                                           when \
                                                                                                                           it \
                                                                                                                           ends." }
                None => {}
            }
        }
    }
}

/// The latest changes of this resource.
fn changes(pages: &Pages, resource: &str) -> Markup {
    let all = pages.node.authorizer().audit().changes();
    let kinds = [ChangeKind::Override, ChangeKind::Limit, ChangeKind::Pool, ChangeKind::Budget, ChangeKind::Operator];
    let list: Vec<_> = kinds.into_iter().flat_map(|kind| all.list(Some(kind))).collect();
    let list: Vec<_> = list.into_iter().filter(|change| concerns(change, resource)).take(5).collect();
    html! {
        @if !list.is_empty() {
            section {
                h2 { "Latest changes" }
                ul.plain { @for change in &list {
                    li { time datetime=(text::moment(change.at)) { (text::clock(change.at)) } " " (escaped(&change.what)) }
                } }
            }
        }
    }
}

fn holder_row(holder: &HolderRow, resource: &str) -> Markup {
    let why = why_link(holder, resource);
    html! {
        th.id scope="row" { (escaped(&holder.holder)) @if holder.kind != "client" { " " span.tag { (holder.kind) } } }
        td.n { (text::number(holder.wants)) }
        td.n { (text::number(holder.due)) }
        td.n.short[holder.has < holder.due * 0.99] { (text::number(holder.has)) }
        td.n { (text::number(holder.held)) }
        td.n { (holder.priority) }
        td.n { (text::count(holder.clients)) }
        td.n { @if holder.remaining_ms == 0 { "expired" } @else { (text::ago(holder.remaining_ms.div_ceil(5_000) * 5_000)) } }
        td { a href=(why) aria-label={ "Why " (escaped(&holder.holder)) " has this capacity" } { "why" } }
    }
}
