//! All resources: searched, sorted, a thousand a page.

use leaseway_core::escaped;
use maud::{Markup, html};

use super::{
    super::{
        Pages,
        view::{MasterSeen, PAGE_ROWS, ResourceQuery, ResourceRow, ResourceSort},
    },
    Parts, text,
};

const COLUMNS: [(ResourceSort, &str); 7] = [
    (ResourceSort::Resource, "Resource"),
    (ResourceSort::Capacity, "Capacity"),
    (ResourceSort::Wants, "Wants"),
    (ResourceSort::Granted, "Granted"),
    (ResourceSort::Held, "Held"),
    (ResourceSort::Pressure, "Wants / capacity"),
    (ResourceSort::Clients, "Clients"),
];

pub(super) async fn parts(pages: &Pages, query: &ResourceQuery) -> Parts {
    let all = pages.snapshots.resources.get(pages).await;
    let (rows, matching) = all.page(query);
    let mut parts = Parts::default();
    let count = match MasterSeen::of(pages) {
        MasterSeen::Here => said(matching, all.rows.len()),
        _ => "Not known here: only the master knows the resources.".to_owned(),
    };
    parts.put("count", &html! { (count) });
    parts.put("paging", &paging(matching.div_ceil(PAGE_ROWS), query));
    parts.put_rows("rows", rows.into_iter().map(row));
    let frame = html! {
        h1 { "Resources" }
        form.search action="/resources" role="search" {
            label for="search" { "Part of the id" }
            input #search name="search" type="search" value=(escaped(&query.search)) maxlength="256";
            input type="hidden" name="sort" value=(query.sort.name());
            button { "Search" }
        }
        (Parts::place("count"))
        div.scroll tabindex="0" role="group" aria-label="Resources" { table {
            thead { tr {
                @for (sort, name) in COLUMNS {
                    th.n[sort != ResourceSort::Resource] scope="col" aria-sort=[super::resource::sorted(sort == query.sort, sort == ResourceSort::Resource)] {
                        a href=(href(query, sort, 1)) { (name) }
                    }
                }
                th scope="col" { "Algorithm" }
                th scope="col" { "Template" }
            } }
            (Parts::place_rows("rows"))
        } }
        (Parts::place("paging"))
    };
    parts.framed(frame)
}

fn said(matching: usize, all: usize) -> String {
    match all {
        0 => "No resource is known: the first request for one creates it.".to_owned(),
        1 if matching == 1 => "1 resource.".to_owned(),
        _ if matching == all => format!("{} resources.", text::count(all)),
        _ => format!("{} of {} resources.", text::count(matching), text::count(all)),
    }
}

fn href(query: &ResourceQuery, sort: ResourceSort, page: usize) -> String {
    format!("/resources?search={}&sort={}&page={page}", text::encoded(&query.search), sort.name())
}

fn paging(pages: usize, query: &ResourceQuery) -> Markup {
    super::resource::paging(pages, query.page.max(1), |page| href(query, query.sort, page))
}

fn row(row: &ResourceRow) -> Markup {
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
