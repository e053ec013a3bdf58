//! Leases that belong to callers. The gateway forwards requests to the cluster under the caller's client id, and keeps
//! no state.

use std::time::Duration;

use axum::http::StatusCode;
use leaseway_core::{
    policy::access::{AccessRequest, Action},
    types::escaped,
};
use leaseway_proto::doorman::{
    GetCapacityRequest, GetCapacityResponse, Problem as EntryProblem, ReleaseCapacityRequest, ResourceRequest,
    ResourceResponse,
};
use leaseway_server::HttpCaller;
use serde_json::{Value, json};

use super::{
    HttpAnswer,
    cluster::Cluster,
    fields::Fields,
    lease_token::LeaseToken,
    problem::{Problem, ProblemKind},
};

/// Asks for a lease, or renews the lease that the caller names.
pub(super) async fn get(cluster: &Cluster, caller: &HttpCaller, fields: &Fields) -> Result<HttpAnswer, Problem> {
    let (client, resource) = (fields.id("client"), fields.id("resource"));
    // The table of fields limits priorities to `i16`.
    let priority = fields.number("priority") as i16;
    caller.check(&AccessRequest { priority: Some(priority), ..as_client(client, resource) })?;
    let entry = ResourceRequest {
        resource_id: Some(resource.to_owned()),
        priority: Some(priority.into()),
        has: fields.lease("token").map(LeaseToken::echo),
        spent: None,
        had: None,
        wants: Some(fields.number("wants")),
        usage: None,
        outstanding: None,
    };
    // `drops_late` is unset, because the gateway does not know whether the caller drops late answers.
    let request = GetCapacityRequest {
        client_id: Some(client.to_owned()),
        resource: vec![entry],
        drops_late: None,
        is_gateway: None,
    };
    let answer = cluster.get_capacity(&request).await?;
    Ok(HttpAnswer::of(StatusCode::OK, lease(client, resource, &answer)?))
}

pub(super) async fn release(cluster: &Cluster, caller: &HttpCaller, fields: &Fields) -> Result<HttpAnswer, Problem> {
    let (client, resource) = (fields.id("client"), fields.id("resource"));
    caller.check(&as_client(client, resource))?;
    let token = fields.lease("token").and_then(LeaseToken::number);
    let request = ReleaseCapacityRequest {
        client_id: Some(client.to_owned()),
        resource_id: vec![resource.to_owned()],
        token: token.into_iter().collect(),
        ..ReleaseCapacityRequest::default()
    };
    let answer = cluster.release_capacity(&request).await?;
    match answer.problem.first() {
        Some(problem) => Err(of_entry(problem)),
        None => Ok(HttpAnswer::empty()),
    }
}

fn as_client<'a>(client: &'a str, resource: &'a str) -> AccessRequest<'a> {
    AccessRequest { holder: Some(client), ..AccessRequest::on(Action::Ask, resource) }
}

fn lease(client: &str, resource: &str, answer: &GetCapacityResponse) -> Result<Value, Problem> {
    let found = answer.response.iter().find(|response| response.resource_id.as_deref() == Some(resource));
    let Some(response) = found else {
        return Err(answer.problem.first().map_or_else(suppressed, of_entry));
    };
    let nonsense = || Problem::new(ProblemKind::BadCluster, "the cluster answered with an invalid lease");
    let gets = response.gets.as_ref().ok_or_else(nonsense)?;
    let token = LeaseToken::of(gets).ok_or_else(nonsense)?;
    Ok(json!({
        "client": client,
        "resource": resource,
        "capacity": gets.capacity,
        "expires_in": expires_in(gets.remaining_ms, gets.expiry_time),
        "expires_at": gets.expiry_time,
        "refresh_in": gets.refresh_interval.unwrap_or_default() as f64,
        "safe_capacity": safe_capacity(response),
        "priority": response.priority.unwrap_or_default(),
        "unlimited": response.unlimited(),
        "token": token.to_string(),
    }))
}

/// The problem if the answer has neither the resource nor a reason. Servers of the original protocol give no reason;
/// they leave a resource out only if it was requested too soon.
fn suppressed() -> Problem {
    let why = "the client asked for this resource a moment ago and keeps its current lease";
    Problem::new(ProblemKind::TooSoon, why).retry_after(Duration::from_secs(1))
}

/// The remaining seconds of a lease. Servers of the original protocol send only an expiry time, by their own clock.
fn expires_in(remaining_ms: Option<i64>, expiry_time: Option<i64>) -> f64 {
    let now = || std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap_or_default().as_secs_f64();
    let seconds = match remaining_ms {
        Some(remaining) => remaining as f64 / 1000.0,
        None => expiry_time.unwrap_or_default() as f64 - now(),
    };
    seconds.max(0.0)
}

/// A negative safe capacity means no limit.
fn safe_capacity(response: &ResourceResponse) -> Option<f64> {
    Some(response.safe_capacity.unwrap_or_default()).filter(|safe| *safe >= 0.0)
}

/// The cluster's reason for leaving the resource out.
fn of_entry(problem: &EntryProblem) -> Problem {
    let reason = problem.reason();
    // The request has a single entry, so its index says nothing.
    let message = problem.message().replace("resource[0].", "");
    let message = escaped(&message);
    let soon = Duration::from_secs(1);
    let kind = match reason {
        "bad_value" | "bad_id" => ProblemKind::BadValue,
        "denied" => ProblemKind::Denied,
        "too_soon" => ProblemKind::TooSoon,
        "not_yet" => ProblemKind::NoLease,
        _ => ProblemKind::NoRoom,
    };
    let told = Problem::new(kind, message).in_word(reason);
    if kind.status().is_server_error() || kind == ProblemKind::TooSoon { told.retry_after(soon) } else { told }
}

#[cfg(test)]
mod tests {
    use leaseway_proto::doorman::Lease;

    use super::*;

    fn response(safe: Option<f64>) -> ResourceResponse {
        let gets = Lease {
            expiry_time: Some(1_800_000_000),
            refresh_interval: Some(5),
            capacity: Some(7.5),
            token: Some(9),
            remaining_ms: Some(59_500),
        };
        ResourceResponse {
            resource_id: Some("r".into()),
            gets: Some(gets),
            safe_capacity: safe,
            ..ResourceResponse::default()
        }
    }

    #[test]
    fn a_lease_has_all_that_a_client_needs() {
        let answer = |response| GetCapacityResponse { response: vec![response], ..GetCapacityResponse::default() };
        let told = lease("c", "r", &answer(response(Some(-1.0)))).expect("a lease");
        assert_eq!((told["capacity"].as_f64(), told["expires_in"].as_f64()), (Some(7.5), Some(59.5)));
        assert!(told["safe_capacity"].is_null());
        let token = told["token"].as_str().and_then(LeaseToken::parse).expect("a token");
        assert_eq!((token.number(), token.echo().capacity), (Some(9), Some(7.5)));
        let told = lease("c", "r", &answer(response(Some(3.0)))).expect("a lease");
        assert_eq!(told["safe_capacity"].as_f64(), Some(3.0));
        for (bad, kind) in [
            (ResourceResponse { gets: None, ..response(None) }, ProblemKind::BadCluster),
            (ResourceResponse::default(), ProblemKind::TooSoon),
        ] {
            assert_eq!(lease("c", "r", &answer(bad)).map_err(|problem| problem.kind), Err(kind));
        }
    }

    #[test]
    fn refusals_have_the_reason_of_the_cluster() {
        for (reason, status) in [
            ("bad_value", 400),
            ("bad_id", 400),
            ("denied", 403),
            ("too_soon", 429),
            ("not_yet", 503),
            ("too_many_clients", 503),
            ("busy", 503),
        ] {
            let problem = EntryProblem {
                resource_id: Some("r".into()),
                reason: Some(reason.into()),
                message: Some("resource[0].wants is NaN".into()),
            };
            let told = of_entry(&problem);
            assert_eq!(told.kind.status().as_u16(), status, "{reason}");
            let text = format!("{told:?}");
            assert!(text.contains(reason) && text.contains("\"wants is NaN\""), "{text}");
        }
    }
}
