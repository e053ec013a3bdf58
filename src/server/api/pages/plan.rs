//! A dry run of a configuration that is pasted into a form. Nothing is stored.

use std::time::Duration;

use axum::{
    body::{Body, to_bytes},
    extract::State,
    http::{HeaderMap, StatusCode},
    response::Response,
};
use leaseway_core::{
    policy::settings::AlgorithmKind,
    resource::report::forecast::{DueChange, ForecastReport},
    types::{Amount, HolderKind, escaped, escaped_lines},
};
use maud::{Markup, html};
use tokio::time::timeout;

use super::{
    Column::{Number, Text},
    Parts, page, table,
};
use crate::{
    api::pages::{Pages, text},
    node::Parent,
    node::plan::{self, Plan, PlanRequest, ResourcePlan, Unplanned},
};

/// Maximum length of a pasted configuration. `leaseway config plan` accepts longer ones.
pub(crate) const PASTED_BYTES: usize = 1 << 20;
/// Time for the form to arrive.
const TIMEOUT: Duration = Duration::from_secs(10);
/// The name of the file in messages.
const SOURCE: &str = "pasted";
/// Maximum number of resources shown, and maximum number of holders shown of each.
const MAX_RESOURCES: usize = 20;
const MAX_HOLDERS: usize = 5;

pub(super) async fn form(State(pages): State<Pages>) -> Response {
    let config = pages.node.config();
    let message = html! {
        @if config.text.len() > PASTED_BYTES {
            p.notice { "The configuration in force is longer than 1 MiB: use " code { "leaseway config plan FILE" } "." }
        } @else if let Some(parent) = pages.node.parent() {
            p.notice { "This node takes its templates from the parent at " (escaped(&addresses(parent))) ": use its page." }
        } @else if !config.text.is_empty() {
            p { "This is version " (config.version) ", which is in force. Change it to see who would gain and lose." }
        }
    };
    let text = if config.text.len() > PASTED_BYTES { "" } else { &*config.text };
    show(&pages, StatusCode::OK, text, &message)
}

/// The plan for a pasted configuration, and the form.
pub(super) async fn answer(State(pages): State<Pages>, headers: HeaderMap, body: Body) -> Response {
    let refuse = |status, why: &str| show(&pages, status, "", &html! { p.notice { (why) } });
    if headers.get("sec-fetch-site").is_some_and(|site| site != "same-origin" && site != "none") {
        return refuse(StatusCode::FORBIDDEN, "This form was sent from another site: paste the configuration here.");
    }
    let too_large =
        "The configuration is larger than 1 MiB, or did not arrive within 10 s: use `leaseway config plan FILE`.";
    let Ok(Ok(bytes)) = timeout(TIMEOUT, to_bytes(body, PASTED_BYTES)).await else {
        return refuse(StatusCode::PAYLOAD_TOO_LARGE, too_large);
    };
    let Ok(body) = std::str::from_utf8(&bytes) else {
        return refuse(StatusCode::BAD_REQUEST, "The text is not UTF-8: paste the text of a configuration.");
    };
    // A text/plain form sends its field verbatim.
    let pasted = body.strip_prefix("text=").unwrap_or(body).trim_end();
    let request = PlanRequest {
        text: pasted.to_owned(),
        source: SOURCE.to_owned(),
        resource: String::new(),
        holders: MAX_HOLDERS,
    };
    // All callers of pages may read everything.
    let message = match plan::plan(&pages.node, &request, |_| true).await {
        Ok(plan) => planned(&plan),
        Err(Unplanned::NotMaster(_)) => {
            html! { p.notice { "Only the master knows the demand of clients: use its page." } }
        }
        Err(Unplanned::HasParent(addresses)) => html! {
            p.notice { "This node takes its templates from the parent at " (escaped(&addresses.join(", "))) ": use its page." }
        },
    };
    show(&pages, StatusCode::OK, pasted, &message)
}

fn addresses(parent: &Parent) -> String {
    parent.addresses.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ")
}

fn show(pages: &Pages, status: StatusCode, pasted: &str, message: &Markup) -> Response {
    let frame = html! {
        h1 { "What if?" }
        (message)
        form.paste method="post" action="/plan" enctype="text/plain" {
            label for="text" { "Configuration" }
            // A parser drops a line break at the beginning.
            textarea #text name="text" rows="16" required spellcheck="false" aria-describedby="nothing" { "\n" (pasted) }
            button { "Plan" }
            span #nothing { " A dry run: it compares this text with the configuration in force for the current \
                             clients, and changes nothing." }
        }
    };
    page(pages, "What if", Some(("/plan", "")), &Parts { status, ..Parts::default() }.framed(frame))
}

fn planned(plan: &Plan) -> Markup {
    if !plan.mistakes.is_empty() {
        return html! {
            p.verdict.bad role="status" { "The configuration would be refused." }
            pre { code { (escaped_lines(&plan.mistakes.join("\n"))) } }
        };
    }
    let changed = plan.resources.len() + plan.left_out;
    let of = changed + plan.unchanged;
    let sum = |count: fn(&ForecastReport) -> usize| {
        plan.resources.iter().filter_map(|resource| resource.forecast.as_ref()).map(count).sum::<usize>()
    };
    let (gain, lose) = (sum(|forecast| forecast.gains.holders), sum(|forecast| forecast.losses.holders));
    html! {
        p.verdict.(if lose > 0 { "warn" } else { "fine" }) role="status" {
            (text::count(changed)) " of " (text::count(of)) " resources would change; "
            (text::count(gain)) " clients would gain, " (text::count(lose)) " would lose."
        }
        p { "Compared with version " (plan.in_force) ", the one in force." }
        @if !plan.warnings.is_empty() { pre { code { (escaped_lines(&plan.warnings.join("\n"))) } } }
        @if changed > 0 { (resources(plan)) }
        @for resource in plan.resources.iter().take(MAX_RESOURCES) { (one(resource)) }
        @if changed > MAX_RESOURCES {
            p.none { (text::count(changed - MAX_RESOURCES)) " more would change; " code { "leaseway config plan" } " shows them." }
        }
    }
}

fn resources(plan: &Plan) -> Markup {
    let numbers = [
        "Capacity, units",
        "New capacity",
        "Due, units",
        "New due",
        "Clients",
        "Gains, units",
        "Losses, units",
        "To expire first, units",
    ]
    .map(Number);
    let columns: Vec<_> = std::iter::once(Text("Resource")).chain(numbers).collect();
    let rows = html! {
        tbody { @for resource in plan.resources.iter().take(MAX_RESOURCES) { tr {
            th.id scope="row" {
                a href={ "/resource?resource=" (text::encoded(&resource.id)) } { (escaped(&resource.id)) }
            }
            @if let Some(forecast) = &resource.forecast { (figures(forecast, resource.algorithm)) } @else { td colspan="8" {} }
        } } }
    };
    table("Resources that would change", &columns, &rows)
}

fn figures(forecast: &ForecastReport, algorithm: (AlgorithmKind, AlgorithmKind)) -> Markup {
    let (capacity, due) = (forecast.capacity, forecast.due);
    let text = |kind: AlgorithmKind, capacity: Amount| match kind {
        AlgorithmKind::NoAlgorithm => "unlimited".to_owned(),
        _ => text::number(capacity.get()),
    };
    html! {
        td.n { (text(algorithm.0, capacity.0)) }
        td.n { (text(algorithm.1, capacity.1)) }
        td.n { (text::number(due.0.get())) }
        td.n { @match due.1 { Some(then) => (text::number(then.get())), None => "unknown" } }
        td.n { (text::count(forecast.subclients)) }
        td.n { (text::number(forecast.gains.amount.get())) }
        td.n { (text::number(forecast.losses.amount.get())) }
        td.n { (text::number(forecast.over_due.get() + forecast.unclaimed.get())) }
    }
}

/// The changes of a resource and its holders.
fn one(resource: &ResourcePlan) -> Markup {
    let template = |template: &Option<String>| template.clone().unwrap_or_else(|| "none".to_owned());
    let (before, after) = (template(&resource.template.0), template(&resource.template.1));
    html! {
        section {
            h2 { (escaped(&resource.id)) }
            ul.plain {
                @if before != after { li { "template: " (escaped(&before)) " → " (escaped(&after)) } }
                @for change in &resource.changes {
                    li { (change.field) ": " (escaped(&change.from)) " → " (escaped(&change.to)) }
                }
            }
            @if let Some(forecast) = &resource.forecast {
                @for sentence in forecast.sentences() { p { (sentence) "." } }
                (groups(forecast))
                (holders(forecast))
            }
        }
    }
}

fn groups(forecast: &ForecastReport) -> Markup {
    let columns = [Text("Group"), Number("Wants, units"), Number("Due, units"), Number("New due, units")];
    let share = |share: Option<Amount>| share.map_or_else(|| "–".to_owned(), |share| text::number(share.get()));
    let rows = html! {
        tbody { @for group in &forecast.groups { tr {
            th.id scope="row" { (escaped(&group.path)) }
            td.n { (text::number(group.wants.get())) }
            td.n { (share(group.before)) }
            td.n { (share(group.after)) }
        } } }
    };
    html! { @if !forecast.groups.is_empty() { (table("Groups", &columns, &rows)) } }
}

fn holders(forecast: &ForecastReport) -> Markup {
    let more = (forecast.gains.holders + forecast.losses.holders).saturating_sub(forecast.changes.len());
    let columns =
        [Text("Holder"), Number("Wants, units"), Number("Held, units"), Number("Due, units"), Number("New due, units")];
    let rows = html! { tbody { @for change in &forecast.changes { (holder(change)) } } };
    html! {
        @if !forecast.changes.is_empty() { (table("Holders whose due would change", &columns, &rows)) }
        @if more > 0 { p.none { "And " (text::count(more)) " more." } }
    }
}

fn holder(change: &DueChange) -> Markup {
    html! {
        tr {
            th.id scope="row" {
                (escaped(&change.id)) @if change.kind == HolderKind::Node { " " span.tag { "node" } }
            }
            @for amount in [change.wants, change.held, change.before, change.after] {
                td.n { (text::number(amount.get())) }
            }
        }
    }
}
