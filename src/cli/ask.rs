//! `leaseway get` and `leaseway release`.

use clap::Args;
use leaseway_core::Amount;
use leaseway_proto::doorman::{
    GetCapacityRequest, GetCapacityResponse, ReleaseCapacityRequest, ResourceRequest, ResourceResponse,
    capacity_client::CapacityClient,
};
use serde_json::json;

use crate::{
    Outcome,
    connect::{Target, block_on},
    error::CliError,
    output::{number, say},
};

/// Asks for capacity once. The lease stays until it ends; `leaseway release` gives it back.
#[derive(Args)]
pub(crate) struct Get {
    /// Who asks: an id that no other client uses
    client: String,
    /// What for
    resource: String,
    /// How much it would like
    #[arg(value_parser = parse_amount, allow_negative_numbers = true)]
    wants: Amount,
    /// Its priority; the template says whether that counts, and may cap it
    #[arg(long, default_value_t = 0, allow_negative_numbers = true)]
    priority: i64,
    /// Prints the answer as JSON
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    target: Target,
}

fn parse_amount(text: &str) -> Result<Amount, String> {
    let number: f64 = text.parse().map_err(|_| "expected a number, like 40 or 0.5".to_owned())?;
    Amount::new(number).map_err(|error| error.to_string())
}

impl Get {
    pub(crate) fn run(self) -> Outcome {
        let GetCapacityResponse { response, problem, .. } = block_on(self.ask())?;
        let found = response.into_iter().find(|answer| answer.resource_id.as_deref() == Some(self.resource.as_str()));
        let Some(answer) = found else {
            if let Some(problem) = problem.iter().find(|problem| problem.reason() != "too_soon") {
                let why = problem.message();
                return Err(CliError::Client(format!("the server gave no lease for `{}`: {why}", self.resource)));
            }
            return Err(CliError::TooSoon { resource: self.resource, client: self.client });
        };
        if self.json { say(self.as_json(&answer)) } else { say(self.as_text(&answer)) }
    }

    async fn ask(&self) -> Result<GetCapacityResponse, CliError> {
        let entry = ResourceRequest {
            resource_id: Some(self.resource.clone()),
            priority: Some(self.priority),
            has: None,
            wants: Some(self.wants.get()),
            usage: None,
            outstanding: None,
        };
        let request = GetCapacityRequest { client_id: Some(self.client.clone()), resource: vec![entry] };
        let ask = |channel| {
            let request = request.clone();
            async move { Ok(CapacityClient::new(channel).get_capacity(request).await?.into_inner()) }
        };
        self.target.ask_master(ask, |answer| answer.mastership.as_ref()).await
    }

    fn as_text(&self, answer: &ResourceResponse) -> String {
        let lease = answer.gets.unwrap_or_default();
        let seconds = lease.remaining_ms.unwrap_or_default() / 1000;
        let safe = match answer.safe_capacity {
            Some(safe) if safe < 0.0 => "no limit".to_owned(),
            safe => number(safe.unwrap_or_default()),
        };
        format!(
            "{} may use {} of `{}` (wanted {}) for {seconds} s; ask again in {} s; if the server is gone by then: {safe}",
            self.client,
            number(lease.capacity.unwrap_or_default()),
            self.resource,
            number(self.wants.get()),
            lease.refresh_interval.unwrap_or_default(),
        )
    }

    fn as_json(&self, answer: &ResourceResponse) -> String {
        let lease = answer.gets.unwrap_or_default();
        let value = json!({
            "client": self.client,
            "resource": self.resource,
            "wants": self.wants.get(),
            "capacity": lease.capacity,
            "expiry_time": lease.expiry_time,
            "refresh_interval": lease.refresh_interval,
            "remaining_ms": lease.remaining_ms,
            "token": lease.token,
            "safe_capacity": answer.safe_capacity,
            "priority": answer.priority,
        });
        value.to_string()
    }
}

/// Gives back everything a client has of the resources named.
#[derive(Args)]
pub(crate) struct Release {
    /// Whose
    client: String,
    /// Which resources
    #[arg(required = true)]
    resources: Vec<String>,
    #[command(flatten)]
    target: Target,
}

impl Release {
    pub(crate) fn run(self) -> Outcome {
        let request = ReleaseCapacityRequest {
            client_id: Some(self.client.clone()),
            resource_id: self.resources.clone(),
            token: Vec::new(),
            is_server: None,
        };
        let ask = |channel| {
            let request = request.clone();
            async move { Ok(CapacityClient::new(channel).release_capacity(request).await?.into_inner()) }
        };
        block_on(self.target.ask_master(ask, |answer| answer.mastership.as_ref()))?;
        say(format_args!("{} gave back {}", self.client, self.resources.join(", ")))
    }
}
