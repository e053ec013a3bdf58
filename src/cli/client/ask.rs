//! `leaseway get` and `leaseway release`.

use std::collections::BTreeMap;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use clap::Args;
use leaseway_core::types::{Amount, escaped};
use leaseway_proto::doorman::capacity_client::CapacityClient;
use leaseway_proto::doorman::{
    GetCapacityRequest, GetCapacityResponse, Lease, ReleaseCapacityRequest, ResourceRequest, ResourceResponse,
};
use leaseway_proto::status::{ExplainRequest, GetStatusRequest, status_client::StatusClient};
use serde_json::{Value, json};
use tonic::Code;

use crate::Outcome;
use crate::connect::{Observed, Target, block_on};
use crate::error::CliError;
use crate::output::{Output, number, utc};

#[derive(Args)]
pub(crate) struct Get {
    /// Unique id of the client
    client: String,
    /// Resource id
    resource: String,
    /// Requested capacity
    #[arg(value_parser = parse_amount, allow_negative_numbers = true)]
    wants: Amount,
    /// Priority, -32768 to 32767. The template decides whether it counts, and may cap it
    #[arg(long, default_value_t = 0, allow_negative_numbers = true)]
    priority: i64,
    #[command(flatten)]
    output: Output,
    #[command(flatten)]
    target: Target,
}

/// How to limit a resource that has no limit.
const NO_LIMIT: &str = "to limit the resource, add a template for it to the configuration";

fn parse_amount(text: &str) -> Result<Amount, String> {
    let number: f64 = text.parse().map_err(|_| "expected a number, like 40 or 0.5".to_owned())?;
    Amount::new(number).map_err(|error| error.to_string())
}

impl Get {
    pub(crate) fn run(self) -> Outcome {
        let (GetCapacityResponse { response, problem, .. }, learning) = block_on(self.ask_and_look())?;
        let found = response.into_iter().find(|answer| answer.resource_id.as_deref() == Some(self.resource.as_str()));
        let Some(answer) = found else {
            if let Some(problem) = problem.iter().find(|problem| problem.reason() != "too_soon") {
                let why = problem.message();
                return Err(CliError::Client(format!("no lease for `{}`: {why}", self.resource)));
            }
            return Err(CliError::TooSoon { resource: self.resource, client: self.client });
        };
        self.output.print(|| self.as_text(&answer, learning), || self.as_json(&answer, learning))
    }

    /// The answer, and the remaining learning time in milliseconds if the client got less than it wants.
    async fn ask_and_look(&self) -> Result<(GetCapacityResponse, u64), CliError> {
        let answer = self.ask().await?;
        let capacity = |given: &ResourceResponse| given.gets.and_then(|lease| lease.capacity).unwrap_or_default();
        if answer.response.iter().all(|given| capacity(given) >= self.wants.get()) {
            return Ok((answer, 0));
        }
        let of_resource = GetStatusRequest { resource_id: self.resource.clone(), page_size: 1, ..Default::default() };
        // Optional: a Doorman server has no status service, and a policy may deny it to this caller.
        let seen = self.target.observe(&of_resource, false).await.ok();
        let learning = seen.and_then(|seen| seen.status.resources.first().map(|resource| resource.learning_ms));
        Ok((answer, learning.unwrap_or_default()))
    }

    async fn ask(&self) -> Result<GetCapacityResponse, CliError> {
        let entry = ResourceRequest {
            resource_id: Some(self.resource.clone()),
            priority: Some(self.priority),
            has: None,
            had: None,
            spent: None,
            wants: Some(self.wants.get()),
            usage: None,
            outstanding: None,
        };
        // `drops_late` is unset because another process may use the same client id.
        let request = GetCapacityRequest {
            client_id: Some(self.client.clone()),
            resource: vec![entry],
            drops_late: None,
            is_gateway: None,
        };
        let ask = |channel| {
            let request = request.clone();
            async move { Ok(CapacityClient::new(channel).get_capacity(request).await?.into_inner()) }
        };
        self.target.ask_master(ask, |answer| answer.mastership.as_ref()).await
    }

    fn as_text(&self, answer: &ResourceResponse, learning_ms: u64) -> String {
        let lease = answer.gets.unwrap_or_default();
        let safe = match answer.safe_capacity {
            Some(safe) if safe < 0.0 => "no limit".to_owned(),
            safe => number(safe.unwrap_or_default()),
        };
        let capacity = lease.capacity.unwrap_or_default();
        let (client, resource) = (escaped(&self.client), escaped(&self.resource));
        if learning_ms > 0 {
            let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
            let until = utc((now + Duration::from_millis(learning_ms)).as_secs() as i64);
            let got = if capacity > 0.0 { format!("only {} of", number(capacity)) } else { "nothing of".to_owned() };
            return format!(
                "{client} has {got} `{resource}` so far (wanted {}): the resource is in learning mode until {until} \
                 ({} s), because leases from before the server started may still be in use; refresh in {} s; fallback \
                 without a server: {safe}",
                number(self.wants.get()),
                learning_ms.div_ceil(1000),
                lease.refresh_interval.unwrap_or_default(),
            );
        }
        if answer.unlimited() {
            return format!(
                "{client} may use {} of `{resource}` {}: this resource has no limit, and every request is granted; \
                 {NO_LIMIT}",
                number(capacity),
                how_long(&lease, SystemTime::now()),
            );
        }
        format!(
            "{} may use {} of `{}` (wanted {}) {}; refresh in {} s; fallback without a server: {safe}",
            client,
            number(capacity),
            resource,
            number(self.wants.get()),
            how_long(&lease, SystemTime::now()),
            lease.refresh_interval.unwrap_or_default(),
        )
    }

    fn as_json(&self, answer: &ResourceResponse, learning_ms: u64) -> Value {
        let lease = answer.gets.unwrap_or_default();
        json!({
            "client": self.client,
            "resource": self.resource,
            "wants": self.wants.get(),
            "capacity": lease.capacity,
            "expiry_time": lease.expiry_time,
            "refresh_interval": lease.refresh_interval,
            "remaining_ms": lease.remaining_ms,
            // Always a string, because tokens exceed 2^53.
            "token": lease.token.map(|token| token.to_string()),
            "safe_capacity": answer.safe_capacity,
            "priority": answer.priority,
            "unlimited": answer.unlimited(),
            "learning_ms": learning_ms,
        })
    }
}

/// The remaining time of a lease. A Doorman server sends only an expiry time, by its own clock.
fn how_long(lease: &Lease, now: SystemTime) -> String {
    if let Some(ms) = lease.remaining_ms {
        return format!("for {} s", ms / 1000);
    }
    let Some(end) = lease.expiry_time else { return "for an unknown time".to_owned() };
    let now = now.duration_since(UNIX_EPOCH).unwrap_or_default().as_secs() as i64;
    match end.saturating_sub(now) {
        left @ 1.. => format!("until {}, {left} s from now by this machine's clock", utc(end)),
        _ => format!("until {}, which has passed by this machine's clock", utc(end)),
    }
}

#[derive(Args)]
pub(crate) struct Release {
    /// Id of the client
    client: String,
    /// Ids of the resources to release
    #[arg(required = true)]
    resources: Vec<String>,
    #[command(flatten)]
    output: Output,
    #[command(flatten)]
    target: Target,
}

impl Release {
    pub(crate) fn run(self) -> Outcome {
        let request = ReleaseCapacityRequest {
            client_id: Some(self.client.clone()),
            resource_id: self.resources.clone(),
            ..ReleaseCapacityRequest::default()
        };
        let ask = |channel| {
            let request = request.clone();
            async move { Ok(CapacityClient::new(channel).release_capacity(request).await?.into_inner()) }
        };
        let (held, nothing): (Vec<&String>, Vec<&String>) = block_on(async {
            let known = self.known().await;
            self.target.ask_master(ask, |answer| answer.mastership.as_ref()).await?;
            Ok(self.resources.iter().partition(|resource| known.get(*resource) != Some(&false)))
        })?;
        let in_words =
            |resources: &[&String]| resources.iter().map(|resource| escaped(resource)).collect::<Vec<_>>().join(", ");
        if !held.is_empty() {
            let text = || format!("{} released {}", escaped(&self.client), in_words(&held));
            self.output.print(text, || json!({ "client": self.client, "resources": held }))?;
        }
        match nothing.is_empty() {
            true => Ok(()),
            false => Err(CliError::NothingHeld { client: self.client.clone(), resources: in_words(&nothing) }),
        }
    }

    /// Whether this client is a holder of each resource, asked from the master because the answer to a release does not
    /// say. A resource has no entry if the master has no status service (Doorman) or a policy denies the call.
    async fn known(&self) -> BTreeMap<String, bool> {
        let mut known = BTreeMap::new();
        for resource in &self.resources {
            let of_resource = GetStatusRequest { resource_id: resource.clone(), page_size: 1, ..Default::default() };
            let Ok(Observed { channel, .. }) = self.target.observe(&of_resource, false).await else { break };
            let (resource_id, holder_id) = (resource.clone(), self.client.clone());
            let request = ExplainRequest { resource_id, holder_id, is_server: false };
            match StatusClient::new(channel).explain(request).await {
                Ok(answer) => known.insert(resource.clone(), answer.into_inner().holder.is_some()),
                Err(status) if status.code() == Code::NotFound => known.insert(resource.clone(), false),
                Err(_) => break,
            };
        }
        known
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_lease_without_a_length_is_shown_with_its_end() {
        let now = UNIX_EPOCH + Duration::from_secs(1_700_000_000);
        let lease = |remaining_ms, expiry_time| Lease { remaining_ms, expiry_time, ..Lease::default() };
        assert_eq!(how_long(&lease(Some(59_999), Some(1_700_000_060)), now), "for 59 s");
        let old = how_long(&lease(None, Some(1_700_000_060)), now);
        assert_eq!(old, "until 2023-11-14T22:14:20Z, 60 s from now by this machine's clock");
        assert!(how_long(&lease(None, Some(i64::MIN)), now).ends_with("has passed by this machine's clock"));
        assert!(how_long(&lease(None, None), now).contains("unknown time"));
    }
}
