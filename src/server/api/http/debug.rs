//! `/debug/status` and `/debug/resources`: plain tables at Doorman's paths.

use axum::{
    extract::{Query, State},
    response::Html,
};
use leaseway_core::{
    allocation::division::Terms,
    policy::settings::SafeCapacity,
    pool::PoolReport,
    types::{Millis, escaped, escaped_lines},
};
use maud::{DOCTYPE, Markup, html};

use crate::{
    api::pages::{Pages, asset_path, text::encoded, view::resources::kind_name},
    node::{ConfigInForce, NotMaster, Status},
};

/// Maximum number of rows of a page. A resource answers no requests while its holders are read.
const MAX_ROWS: usize = 1000;

fn page(title: &str, body: &Markup) -> Html<String> {
    let page = html! {
        (DOCTYPE)
        html lang="en" {
            head { meta charset="utf-8"; title { "Leaseway: " (escaped(title)) } link rel="stylesheet" href=(asset_path("debug.css")); }
            body {
                p { a href="/debug/status" { "status" } " · " a href="/debug/resources" { "resources" } " · " a href="/metrics" { "metrics" } }
                h1 { (escaped(title)) }
                (body)
            }
        }
    };
    Html(page.into_string())
}

pub(super) async fn status(State(pages): State<Pages>) -> Html<String> {
    let config = pages.node.config();
    let (statuses, next) = pages.node.statuses("", MAX_ROWS).await;
    let body = html! {
        table {
            tr { th { "server" } td { (escaped(&pages.info.id)) } }
            tr { th { "version" } td { (env!("CARGO_PKG_VERSION")) } }
            tr { th { "uptime" } td { (pages.node.clock.at().0 / 1000) " s" } }
            tr { th { "mastership" } td { (mastership(&pages)) } }
            @if let Some(ineligible) = pages.node.ineligible() {
                tr { th { "ineligible" } td.bad { (ineligible) } }
            }
            @if !pages.node.authorizer().in_words().is_empty() {
                tr { th { "access" } td { (pages.node.authorizer().in_words()) } }
            }
            tr { th { "configuration" } td { (escaped(&config.source)) ", version " (config.version) } }
            @if let Some(parent) = pages.node.parent() {
                tr { th { "node" } td { (escaped(&parent.node)) } }
                tr { th { "parent" } td { (escaped(&parent.addresses.join(", "))) } }
                (uplink_rows(&pages))
            }
            @if let Some(why) = &config.rejected {
                tr {
                    th { "refused" }
                    td.bad { "The newest configuration was refused; the previous one is in force: " pre { (escaped_lines(why)) } }
                }
            }
        }
        (resource_table(&statuses))
        (more_resources(&statuses, next.as_deref(), pages.node.resources()))
        @if pages.node.parent().is_none() {
            h2 { "Configuration in force" }
            (config_table(&config))
        }
    };
    page("status", &body)
}

fn uplink_rows(pages: &Pages) -> Markup {
    let ago = |at: Millis| format!("{} s ago", pages.node.clock.at().since(at).0 / 1000);
    let Some(uplink) = pages.node.uplink() else {
        return html! { tr { th { "uplink" } td { "The master of this node asks the parent." } } };
    };
    html! {
        tr { th { "parent's master" } td { (escaped(&uplink.master)) } }
        tr { th { "uplink started" } td { (ago(uplink.since)) } }
        tr { th { "parent answered" } td { @match uplink.answered { Some(at) => (ago(at)), None => span.bad { "never" } } } }
        tr { th { "failures in a row" } td { (uplink.failures) } }
        @if let Some(error) = &uplink.last_error {
            tr { th { "last failure" } td.bad[uplink.failures > 0] { (escaped(error)) } }
        }
    }
}

/// Uses Doorman's wording where possible.
fn mastership(pages: &Pages) -> String {
    let here = &pages.info.advertise;
    match (pages.node.check(), pages.health.stored.is_some()) {
        (Ok(()), false) => format!("This is the master (no election, acting as the master), reachable at {here}."),
        (Ok(()), true) => format!("This is the master, reachable at {here}."),
        (Err(NotMaster { master: Some(master) }), _) => {
            format!("This is not the master; {} is.", escaped(&master.grpc))
        }
        (Err(NotMaster { master: None }), _) => "This is not the master, and none is known at the moment.".to_owned(),
    }
}

#[derive(serde::Deserialize)]
pub(super) struct ResourcesQuery {
    #[serde(default)]
    resource: String,
    #[serde(default)]
    from: usize,
    /// The last resource of the previous page.
    #[serde(default)]
    after: String,
}

pub(super) async fn resources(State(pages): State<Pages>, Query(which): Query<ResourcesQuery>) -> Html<String> {
    if which.resource.is_empty() {
        let (statuses, next) = pages.node.statuses(&which.after, MAX_ROWS).await;
        let body = html! {
            (resource_table(&statuses))
            (more_resources(&statuses, next.as_deref(), pages.node.resources()))
        };
        return page("resources", &body);
    }
    let status = pages.node.resource_status(&which.resource, which.from, MAX_ROWS).await;
    let Some(status) = status else {
        let body = html! { p { "There is no such resource. It is created by the first request for it." } };
        return page(&which.resource, &body);
    };
    let body = html! {
        (resource_table(std::slice::from_ref(&status)))
        @if let Some(overridden) = &status.report.overridden { p { (overridden.sentence(status.at)) } }
        (supply_table(&status))
        @if let Some(pool) = &status.pool { (pool_table(pool)) }
        (holder_table(&status))
        @if let Some(next) = status.next {
            p { a href={ "/debug/resources?resource=" (encoded(&which.resource)) "&from=" (next) } { "more clients" } }
        }
    };
    page(&which.resource, &body)
}

/// The link to the next page.
fn more_resources(statuses: &[Status], next: Option<&str>, total: usize) -> Markup {
    html! {
        @if statuses.len() < total { p { (statuses.len()) " of " (total) " resources shown." } }
        @if let Some(next) = next {
            p { a href={ "/debug/resources?after=" (encoded(next)) } { "more resources" } }
        }
    }
}

fn headings(names: &[&str]) -> Markup {
    html! { tr { @for name in names { th { (name) } } } }
}

fn resource_table(statuses: &[Status]) -> Markup {
    html! {
        table {
            (headings(&["ID", "Capacity", "SumHas", "SumWants", "Held", "Clients", "Holders", "Learning", "Algorithm", "Template"]))
            @for status in statuses {
                @let report = &status.report;
                tr {
                    td { a href={ "/debug/resources?resource=" (encoded(&status.id)) } { (escaped(&status.id)) } }
                    td.n {
                        (report.settings.capacity)
                        @if let Some(overridden) = &report.overridden { " (overridden: " (overridden.template) ")" }
                    }
                    td.n { (report.sums.granted.get()) }
                    td.n { (report.sums.wants.get()) }
                    td.n { (report.sums.held.get()) }
                    td.n { (report.sums.subclients) }
                    td.n { (report.holders) }
                    td { @if report.learning.0 > 0 { (report.learning.0 / 1000) " s left" } @else { "no" } }
                    td { (report.settings.kind.name()) }
                    td {
                        @match &status.template {
                            Some(glob) => (escaped(glob)),
                            None => span.bad { "none: every request is granted" },
                        }
                    }
                }
            }
        }
    }
}

/// Empty at a root.
fn supply_table(status: &Status) -> Markup {
    html! {
        @if let Some(supply) = &status.report.supply {
            table {
                (headings(&["Lease", "Expires in", "Outstanding", "Version", "Terms"]))
                tr {
                    td.n { @if supply.version == 0 { "none yet" } @else { (status.report.settings.capacity) } }
                    td.n { (supply.remaining.0 / 1000) " s" }
                    td.n { @if let Some(outstanding) = supply.outstanding { (outstanding) } }
                    td.n { (supply.version) }
                    td { @for (priority, terms) in &supply.terms { (priority) ": " (terms_text(terms)) br; } }
                }
            }
        }
    }
}

fn terms_text(terms: &Terms) -> String {
    match terms {
        Terms::Wants => "every client gets its wants".into(),
        Terms::Each(most) => format!("{most} per client"),
        Terms::Level(level) => format!("level {level} per client"),
        Terms::Share { equal, top_up } => format!("equal share {equal}, top-up {top_up}"),
        Terms::Minimums(level) => format!("minimums only, at most {level} per client"),
    }
}

fn pool_table(pool: &PoolReport) -> Markup {
    html! {
        table {
            (headings(&["Total", "Base", "Maximum", "Connected", "Priority", "Assigned", "Used", "Overloads", "Waiting", "Revoking"]))
            tr {
                td.n { (pool.total) }
                td.n { (pool.base) }
                td.n { (pool.max) }
                td.n { (pool.connected.get()) }
                td.n { (pool.priority_connected.get()) }
                td.n { (pool.priority_assigned.get()) }
                td.n { (pool.used.get()) }
                td.n { (pool.overloads) }
                td.n { (pool.free_waiting) " free, " (pool.priority_waiting) " priority" }
                td.n { (pool.revoking) }
            }
        }
    }
}

fn holder_table(status: &Status) -> Markup {
    html! {
        table {
            (headings(&["Client ID", "Kind", "Priority", "Clients", "Wants", "Due", "Has", "Held", "Held for"]))
            @for holder in &status.holders {
                tr {
                    td { (escaped(&holder.id)) }
                    td { (kind_name(holder)) }
                    td.n { (holder.priority) }
                    td.n { (holder.subclients) }
                    td.n { (holder.wants) }
                    td.n { (holder.due) }
                    td.n { (holder.granted) }
                    td.n { (holder.held) }
                    td.n { (holder.end.since(status.at).0 / 1000) " s" }
                }
            }
        }
    }
}

fn config_table(config: &ConfigInForce) -> Markup {
    html! {
        table {
            (headings(&["Template", "Capacity", "Algorithm", "Lease", "Refresh", "Learning", "Safe capacity", "Parameters", "Clients", "Description"]))
            @for template in config.repository.templates() {
                @let settings = &template.settings;
                tr {
                    td { (escaped(&template.identifier_glob.to_string())) }
                    td.n { (settings.capacity) }
                    td { (settings.kind.name()) }
                    td.n { (settings.lease.0 / 1000) " s" }
                    td.n { (settings.refresh.0 / 1000) " s" }
                    td.n { (settings.learning_length().0 / 1000) " s" }
                    td { (safe_capacity(settings.safe_capacity)) }
                    td {
                        @for parameter in &template.parameters {
                            (escaped(&parameter.name)) "=" (escaped(parameter.value.as_deref().unwrap_or_default())) " "
                        }
                    }
                    td { @for rule in settings.clients.iter() { (escaped(&rule.in_words())) br; } }
                    td { (escaped(template.description.as_deref().unwrap_or_default())) }
                }
            }
        }
    }
}

fn safe_capacity(safe: SafeCapacity) -> String {
    match safe {
        SafeCapacity::Dynamic => "capacity / clients".into(),
        SafeCapacity::Fixed(amount) => amount.to_string(),
        SafeCapacity::Unlimited => "unlimited".into(),
    }
}
