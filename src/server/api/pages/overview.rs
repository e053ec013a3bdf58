//! The overview page: verdict, findings, the most contended resources, peers, tree and limits.

use leaseway_core::types::{escaped, escaped_lines};
use leaseway_proto::status::LimitUse;
use maud::{Markup, html};

use super::{
    Column::{Number, Text},
    Parts,
    cluster::{self, Cluster},
    table,
};
use crate::api::{
    pages::{
        Pages, text,
        view::{
            self,
            node::{self, ChildRow, NodeView, ParentRow, PeerRow},
            resources::{OverrideRow, ResourceRow},
        },
    },
    status::checkup::{Check, Severity},
};

/// Maximum number of rows in each table of resources.
const MAX_WORST: usize = 8;

pub(super) async fn parts(pages: &Pages) -> Parts {
    let view = node::node(pages).await;
    let rows = pages.snapshots.resources.get(pages).await;
    let mut parts = Parts::default();
    let drawn = &view.children[..view.children.len().min(cluster::MAX_CHILDREN)];
    let children = view::children::children(pages, drawn, &rows.rows).await;
    let most_used = cluster::most_used(&rows.rows).filter(|_| view.is_master);
    parts.put("cluster", &cluster::picture(&Cluster { view: &view, most_used, children: &children }));
    parts.put("verdict", &verdict(&view));
    parts.put("findings", &problems(&view.checks));
    parts.put("figures", &figures(&view));
    parts.put("overrides", &overrides(&view.overrides));
    let worst = |which| if view.is_master { worst(&rows.rows, which) } else { not_known() };
    parts.put("over", &worst(Worst::Over));
    parts.put("contended", &worst(Worst::Contended));
    parts.put("peers", &peers(&view.peers));
    parts.put("tree", &tree(&view));
    parts.put("limits", &limits(&view.limits));
    let frame = html! {
        h1.unseen { "Overview" }
        (Parts::marker("verdict"))
        (Parts::marker("findings"))
        (Parts::marker("figures"))
        section { h2 { "Cluster" } (Parts::marker("cluster")) }
        (Parts::marker("overrides"))
        div.columns {
            section { h2 { "Most contended" } (Parts::marker("contended")) }
            section { h2 { "Over capacity" } (Parts::marker("over")) }
        }
        div.columns {
            section { h2 { "Peers" } (Parts::marker("peers")) }
            section { h2 { "Tree" } (Parts::marker("tree")) }
        }
        section { h2 { "Limits of this server" } (Parts::marker("limits")) }
    };
    parts.framed(frame)
}

fn verdict(view: &NodeView) -> Markup {
    let (severity, text) = node::verdict(view);
    let class = if severity == Severity::Ok { "fine" } else { severity.name() };
    html! { p.verdict.(class) role="status" { (text) } }
}

fn problems(checks: &[Check]) -> Markup {
    html! {
        @if !checks.is_empty() {
            ul.findings {
                @for check in checks {
                    li.(check.severity.name()) {
                        span.severity { @if check.severity == Severity::Bad { "fault" } @else { "warning" } }
                        div {
                            p { strong { (check.subject) } ": " (escaped_lines(&check.message)) }
                            p.advice { (check.remedy) }
                        }
                    }
                }
            }
        }
    }
}

fn figures(view: &NodeView) -> Markup {
    html! {
        dl.figures {
            div { dt { "Role" } dd { (role(view)) } }
            div { dt { "Up for" } dd { (text::length(view.uptime_ms / 10_000 * 10_000)) } }
            @if let Some(resources) = view.resources {
                div { dt { "Resources" } dd { a href="/resources" { (text::count(resources)) } } }
            }
            @if let Some(holders) = view.holders { div { dt { "Holders" } dd { (text::count(holders)) } } }
            @if let Some(clients) = view.clients { div { dt { "Clients" } dd { (text::count(clients)) } } }
            div { dt { "Configuration" } dd { a href="/changes?kind=configuration" { "version " (view.config_version) } } }
            @if let Some(left) = view.certificate_ends_secs {
                div { dt { "Certificate expires in" } dd { (text::length(left.max(0) as u64 / 3600 * 3_600_000)) } }
            }
            @if let Some(free) = view.free_bytes {
                div { dt { "Disk free" } dd { (text::number((free >> 20) as f64 / 1024.0)) " GiB" } }
            }
        }
    }
}

fn overrides(overrides: &[OverrideRow]) -> Markup {
    let rows = html! {
        tbody { @for one in overrides { tr {
            th.id scope="row" {
                a href={ "/resources?search=" (text::encoded(literal(&one.pattern))) } { (escaped(&one.pattern)) }
                @if let Some(group) = &one.group { ", group " (escaped(group)) }
            }
            td.n { (one.set_to) }
            td.n { (text::ago(one.remaining_ms.div_ceil(5_000) * 5_000)) }
            td { (escaped(&one.by)) }
            td { (escaped(&one.why)) }
        } } }
    };
    html! {
        @if !overrides.is_empty() {
            section {
                h2 { "Overrides" }
                (table("Overrides", &[Text("Resources"), Number("Set to, units"), Number("Expires in"), Text("By"), Text("Why")], &rows))
            }
        }
    }
}

/// The longest literal part of a pattern, to search for.
fn literal(pattern: &str) -> &str {
    pattern.split(['*', '?', '[', ']', '\\']).max_by_key(|part| part.len()).unwrap_or_default()
}

fn role(view: &NodeView) -> &'static str {
    match (view.is_master, view.peers.is_empty()) {
        _ if view.ineligible.is_some() => "ineligible",
        (true, true) => "master, without peers",
        (true, false) => "master",
        (false, _) => "follower",
    }
}

fn not_known() -> Markup {
    html! { p.none { "Not known here: only the master knows the resources." } }
}

#[derive(Clone, Copy, PartialEq)]
enum Worst {
    Over,
    Contended,
}

fn worst(rows: &[ResourceRow], which: Worst) -> Markup {
    let key = |row: &ResourceRow| match which {
        Worst::Over => row.over(),
        Worst::Contended => row.pressure(),
    };
    let is_in = |row: &&ResourceRow| match which {
        Worst::Over => row.over() > row.capacity * 1e-9,
        Worst::Contended => row.pressure() > 1.0,
    };
    let mut found: Vec<&ResourceRow> = rows.iter().filter(is_in).collect();
    let all = found.len();
    found.sort_by(|one, other| key(other).total_cmp(&key(one)));
    found.truncate(MAX_WORST);
    let (title, none, link) = match which {
        Worst::Over => ("Over capacity", "No resource is over its capacity.", "/resources?sort=over"),
        Worst::Contended => {
            ("Most contended", "No resource is contended: wants are within every capacity.", "/resources?sort=pressure")
        }
    };
    let columns = match which {
        Worst::Over => ["Held, units", "Excess, units"],
        Worst::Contended => ["Wants, units", "Wants ÷ capacity"],
    };
    let columns = [Text("Resource"), Number("Capacity, units"), Number(columns[0]), Number(columns[1])];
    let rows = html! {
        tbody { @for row in &found { tr {
            th.id scope="row" { (link_to(&row.resource)) }
            td.n { (text::number(row.capacity)) }
            @if which == Worst::Over {
                td.n { (text::number(row.held)) }
                td.n.bad { (text::number(row.over())) }
            } @else {
                td.n { (text::number(row.wants)) }
                td.n { @if row.capacity > 0.0 { (text::number(row.pressure())) " ×" } @else { "no capacity" } }
            }
        } } }
    };
    html! {
        @if found.is_empty() { p.none { (none) } } @else {
            (table(title, &columns, &rows))
            @if all > found.len() { p.more { a href=(link) { "All " (text::count(all)) } } }
        }
    }
}

fn link_to(resource: &str) -> Markup {
    html! { a href={ "/resource?resource=" (text::encoded(resource)) } { (escaped(resource)) } }
}

fn peers(peers: &[PeerRow]) -> Markup {
    let columns = [Text("Peer"), Text("Role"), Number("Lag, entries"), Number("Last contact"), Text("Address")];
    let rows = html! { tbody { @for peer in peers { (peer_row(peer)) } } };
    html! {
        @if peers.is_empty() { p.none { "This server has no data directory: its state is lost at a restart." } } @else {
            (table("Peers", &columns, &rows))
        }
    }
}

fn peer_row(peer: &PeerRow) -> Markup {
    html! {
        tr {
            th.id scope="row" {
                @if peer.is_here || peer.http.is_empty() || peer.role == "unreachable" { (escaped(&peer.peer)) } @else {
                    a href={ "//" (peer.http) "/" } { (escaped(&peer.peer)) }
                }
                @if peer.is_here { span.here { " (this one)" } }
            }
            td.warn[peer.role == "unreachable"] { (peer.role) }
            td.n { @if let Some(lag) = peer.lag { (text::count(lag)) } @else { "–" } }
            td.n {
                @match peer.last_contact_ms {
                    _ if peer.is_here => "–",
                    Some(ago) if ago < 1000 => "now",
                    Some(ago) => { (text::ago(ago)) " ago" },
                    None => "never",
                }
            }
            td { (escaped(&peer.grpc)) }
        }
    }
}

fn tree(view: &NodeView) -> Markup {
    html! {
        @match &view.parent {
            Some(parent) => (parent_line(parent, view.is_master)),
            None => p { "This node is a root: the configuration sets the capacities." },
        }
        @if !view.is_master {
            p.none { "Not known here: only the master knows the child nodes." }
        } @else if view.children.is_empty() { p.none { "No child node has asked in the last 15 minutes." } } @else {
            (children(&view.children))
        }
    }
}

fn parent_line(parent: &ParentRow, is_master: bool) -> Markup {
    html! {
        p {
            "Child " strong { (escaped(&parent.node)) } " of " (escaped(&parent.addresses.join(", "))) ". "
            @if let Some(page) = &parent.http { a href={ "//" (page) "/" } { "The parent's page" } ". " }
            @match parent.answered_ms {
                _ if !is_master => "The master of this node asks the parent.",
                Some(ago) => { "It answered " (text::ago(ago)) " ago, for " (text::count(parent.resources)) " resources." },
                None => span.bad { "It has not answered yet." },
            }
        }
    }
}

fn children(children: &[ChildRow]) -> Markup {
    let rows = html! {
        tbody { @for child in children { tr {
            th.id scope="row" { (escaped(&child.node)) }
            td.n { (text::count(child.resources)) }
            td.n { (text::ago(child.asked_ms)) " ago" }
        } } }
    };
    table("Child nodes", &[Text("Child node"), Number("Resources"), Number("Last request")], &rows)
}

fn limits(limits: &[LimitUse]) -> Markup {
    let rows = html! {
        tbody { @for limit in limits {
            @let part = if limit.most == 0 { 0.0 } else { 100.0 * limit.used as f64 / limit.most as f64 };
            tr {
                th scope="row" { (limit.what) }
                td.n { (text::count(limit.used)) }
                td.n { (text::count(limit.most)) }
                td.n.bad[part >= 80.0 && !limit.soft] { (format!("{part:.1} %")) }
                td { code { (limit.flag) } }
            }
        } }
    };
    table("Limits", &[Text("Limit on"), Number("Used"), Number("Maximum"), Number("Part used"), Text("Flag")], &rows)
}
