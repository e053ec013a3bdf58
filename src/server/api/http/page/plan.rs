//! What if: a configuration that is pasted, and what it would change. It is planned, and forgotten.

use std::time::Duration;

use axum::{
    body::{Body, to_bytes},
    extract::State,
    http::{HeaderMap, StatusCode},
    response::Response,
};
use leaseway_core::{AlgorithmKind, Amount, DueChange, Foreseen, HolderKind, escaped, escaped_lines};
use maud::{Markup, html};
use tokio::time::timeout;

use super::{super::Pages, Parts, page, text};
use crate::node::plan::{self, Plan, PlanRequest, ResourcePlan, Unplanned};

/// The most that can be pasted; `leaseway config plan` takes more.
pub(crate) const PASTED_BYTES: usize = 1 << 20;
/// For it to come.
const TIMEOUT: Duration = Duration::from_secs(10);
/// What complaints call it.
const SOURCE: &str = "pasted";
/// Resources that are shown, and holders of each.
const SHOWN: usize = 20;
const HOLDERS: usize = 5;

pub(super) async fn form(State(pages): State<Pages>) -> Response {
    show(&pages, StatusCode::OK, "", &html! {})
}

/// The form with what was pasted, and the plan.
pub(super) async fn answer(State(pages): State<Pages>, headers: HeaderMap, body: Body) -> Response {
    let refuse = |status, why: &str| show(&pages, status, "", &html! { p.notice { (why) } });
    if headers.get("sec-fetch-site").is_some_and(|site| site != "same-origin" && site != "none") {
        return refuse(StatusCode::FORBIDDEN, "Another site has sent this form: paste the configuration here.");
    }
    let too_large = "That is more than 1 MiB, or did not come within 10 s: use `leaseway config plan FILE`.";
    let Ok(Ok(bytes)) = timeout(TIMEOUT, to_bytes(body, PASTED_BYTES)).await else {
        return refuse(StatusCode::PAYLOAD_TOO_LARGE, too_large);
    };
    let Ok(body) = std::str::from_utf8(&bytes) else {
        return refuse(StatusCode::BAD_REQUEST, "That is not UTF-8: paste the text of a configuration.");
    };
    // One field as text/plain: what was pasted is sent as it is.
    let pasted = body.strip_prefix("text=").unwrap_or(body).trim_end();
    let request =
        PlanRequest { text: pasted.to_owned(), source: SOURCE.to_owned(), resource: String::new(), holders: HOLDERS };
    // Callers of pages may read everything.
    let said = match plan::plan(&pages.node, &request, |_| true).await {
        Ok(plan) => planned(&plan),
        Err(Unplanned::NotMaster(_)) => {
            html! { p.notice { "Only the master knows what clients want: ask its page." } }
        }
        Err(Unplanned::HasParent(addresses)) => html! {
            p.notice { "The templates are those of the parent at " (escaped(&addresses.join(", "))) ": ask its page." }
        },
    };
    show(&pages, StatusCode::OK, pasted, &said)
}

fn show(pages: &Pages, status: StatusCode, pasted: &str, said: &Markup) -> Response {
    let frame = html! {
        h1 { "What if?" }
        (said)
        form.paste method="post" action="/plan" enctype="text/plain" {
            label for="text" { "A configuration" }
            textarea #text name="text" rows="16" required spellcheck="false" aria-describedby="nothing" { (pasted) }
            button { "Plan" }
            span #nothing { " Nothing is changed: it is compared with the one in force, for the clients that are there." }
        }
    };
    page(pages, "What if", Some(("/plan", "")), &Parts { status, ..Parts::default() }.framed(frame))
}

fn planned(plan: &Plan) -> Markup {
    if !plan.mistakes.is_empty() {
        return html! {
            p.verdict.bad role="status" { "It would be refused." }
            pre { code { (escaped_lines(&plan.mistakes.join("\n"))) } }
        };
    }
    let changed = plan.resources.len() + plan.left_out;
    let of = changed + plan.unchanged;
    let sum = |count: fn(&Foreseen) -> usize| {
        plan.resources.iter().filter_map(|resource| resource.foreseen.as_ref()).map(count).sum::<usize>()
    };
    let (gain, lose) = (sum(|foreseen| foreseen.gains.holders), sum(|foreseen| foreseen.losses.holders));
    html! {
        p.verdict.(if lose > 0 { "warn" } else { "fine" }) role="status" {
            (text::count(changed)) " of " (text::count(of)) " resources would change; "
            (text::count(gain)) " clients would gain, " (text::count(lose)) " would lose."
        }
        p { "Compared with version " (plan.in_force) ", which is in force." }
        @if !plan.warnings.is_empty() { pre { code { (escaped_lines(&plan.warnings.join("\n"))) } } }
        @if changed > 0 { (table(plan)) }
        @for resource in plan.resources.iter().take(SHOWN) { (one(resource)) }
        @if changed > SHOWN {
            p.none { (text::count(changed - SHOWN)) " more would change; " code { "leaseway config plan" } " shows them." }
        }
    }
}

fn table(plan: &Plan) -> Markup {
    html! {
        div.scroll tabindex="0" role="group" aria-label="Resources that would change" { table {
            thead { tr {
                th scope="col" { "Resource" }
                @for name in ["Capacity", "Then", "Due", "Then", "Clients", "Gain", "Lose", "To end first"] {
                    th.n scope="col" { (name) }
                }
            } }
            tbody { @for resource in plan.resources.iter().take(SHOWN) {
                tr {
                    th.id scope="row" {
                        a href={ "/resource?resource=" (text::encoded(&resource.id)) } { (escaped(&resource.id)) }
                    }
                    @if let Some(foreseen) = &resource.foreseen { (figures(foreseen, resource.algorithm)) } @else { td colspan="8" {} }
                }
            } }
        } }
    }
}

fn figures(foreseen: &Foreseen, algorithm: (AlgorithmKind, AlgorithmKind)) -> Markup {
    let (capacity, due) = (foreseen.capacity, foreseen.due);
    let said = |kind: AlgorithmKind, capacity: Amount| match kind {
        AlgorithmKind::NoAlgorithm => "unlimited".to_owned(),
        _ => text::number(capacity.get()),
    };
    html! {
        td.n { (said(algorithm.0, capacity.0)) }
        td.n { (said(algorithm.1, capacity.1)) }
        td.n { (text::number(due.0.get())) }
        td.n { @match due.1 { Some(then) => (text::number(then.get())), None => "not foreseen" } }
        td.n { (text::count(foreseen.subclients)) }
        td.n { (text::number(foreseen.gains.amount.get())) }
        td.n { (text::number(foreseen.losses.amount.get())) }
        td.n { (text::number(foreseen.beyond.get() + foreseen.unnamed.get())) }
    }
}

/// What would be otherwise about a resource, and for whom.
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
            @if let Some(foreseen) = &resource.foreseen {
                @for sentence in foreseen.sentences() { p { (sentence) "." } }
                (holders(foreseen))
            }
        }
    }
}

fn holders(foreseen: &Foreseen) -> Markup {
    let more = (foreseen.gains.holders + foreseen.losses.holders).saturating_sub(foreseen.changes.len());
    html! {
        @if !foreseen.changes.is_empty() {
            div.scroll tabindex="0" role="group" aria-label="Holders whose due would change" { table {
                thead { tr {
                    th scope="col" { "Holder" }
                    @for name in ["Wants", "Held", "Due now", "Due then"] { th.n scope="col" { (name) } }
                } }
                tbody { @for change in &foreseen.changes { (holder(change)) } }
            } }
        }
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
