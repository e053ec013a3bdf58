//! Wire to core and back: the only place. What passes here is valid; what does not is named by its field.
//!
//! A missing required field is an error, not a silent zero; numbers are finite, not negative and not absurd; ids are neither
//! empty nor long. Nothing of a request is carried out if any of it is wrong.

use std::sync::Arc;

use leaseway_core::{
    Amount, Answer, Ask, Claim, Claims, Has, HolderKind, Lease, Millis, News, PoolStanding, PoolState, Release,
    Request, Settings, Terms, Token, Usage, clamp_priority,
};
use leaseway_proto::{doorman as wire, push::WatchRequest};
use tonic::Status;

use crate::limits::Limits;

/// What is wrong with a request.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(crate) enum Invalid {
    #[error("{field}: {problem}")]
    Field { field: String, problem: String },
    #[error("{field}: {count} entries, this server takes at most {most} ({flag} raises that)")]
    TooMany { field: String, count: usize, most: usize, flag: &'static str },
}

impl From<Invalid> for Status {
    fn from(invalid: Invalid) -> Status {
        match invalid {
            Invalid::Field { .. } => Status::invalid_argument(invalid.to_string()),
            Invalid::TooMany { .. } => Status::resource_exhausted(invalid.to_string()),
        }
    }
}

pub(super) fn invalid(field: impl Into<String>, problem: impl Into<String>) -> Invalid {
    Invalid::Field { field: field.into(), problem: problem.into() }
}

pub(super) fn required<T>(value: Option<T>, field: impl FnOnce() -> String) -> Result<T, Invalid> {
    value.ok_or_else(|| invalid(field(), "required field is missing"))
}

pub(super) fn amount(value: f64, field: impl FnOnce() -> String) -> Result<Amount, Invalid> {
    Amount::new(value).map_err(|error| invalid(field(), format!("is {value}, {error}")))
}

pub(super) fn id(value: Option<String>, limits: &Limits, field: impl Fn() -> String) -> Result<String, Invalid> {
    let value = required(value, &field)?;
    if value.is_empty() {
        return Err(invalid(field(), "must not be empty"));
    }
    if value.len() > limits.id_bytes {
        let problem = format!("is {} bytes long, at most {} are allowed", value.len(), limits.id_bytes);
        return Err(invalid(field(), problem));
    }
    Ok(value)
}

fn count(found: usize, most: usize, field: &str, flag: &'static str) -> Result<(), Invalid> {
    if found <= most { Ok(()) } else { Err(Invalid::TooMany { field: field.into(), count: found, most, flag }) }
}

/// A resource and what to ask it.
pub(crate) type ForResource = (String, Request);

pub(crate) fn get_capacity(request: wire::GetCapacityRequest, limits: &Limits) -> Result<Vec<ForResource>, Invalid> {
    let client: Arc<str> = id(request.client_id, limits, || "client_id".into())?.into();
    count(request.resource.len(), limits.resources_per_request, "resource", "--max-resources-per-request")?;
    let entries = request.resource.into_iter().enumerate();
    entries.map(|(at, entry)| client_ask(at, entry, &client, limits)).collect()
}

fn client_ask(
    at: usize,
    entry: wire::ResourceRequest,
    client: &Arc<str>,
    limits: &Limits,
) -> Result<ForResource, Invalid> {
    let field = |name: &str| format!("resource[{at}].{name}");
    let resource = id(entry.resource_id, limits, || field("resource_id"))?;
    let priority = required(entry.priority, || field("priority"))?;
    let wants = amount(required(entry.wants, || field("wants"))?, || field("wants"))?;
    let has = has(entry.has, || field("has"))?;
    let beyond = amount(entry.outstanding.unwrap_or_default(), || field("outstanding"))?;
    let outstanding =
        (beyond > Amount::ZERO).then(|| has.map_or(Amount::ZERO, |has| has.capacity).saturating_add(beyond));
    let news = usage(entry.usage, at)?;
    let claims = Claims::from_slice(&[Claim::of_client(wants, priority)]);
    let id = Arc::clone(client);
    let ask = Ask { kind: HolderKind::Client, id, claims, has, outstanding, learning: false, news };
    Ok((resource, Request::Ask(ask)))
}

/// What a resource is told of use with the entry at this place.
fn usage(usage: Option<wire::Usage>, at: usize) -> Result<Option<Box<News>>, Invalid> {
    let Some(usage) = usage else { return Ok(None) };
    let usage = read_usage(&usage, |name| format!("resource[{at}].usage.{name}"))?;
    Ok(Some(Box::new(News { key: None, usage: Some(usage) })))
}

fn read_usage(usage: &wire::Usage, field: impl Fn(&str) -> String) -> Result<Usage, Invalid> {
    let name = "recharging_fraction";
    // A report that does not say counts as one that is not there.
    let recharging = usage.recharging_fraction.unwrap_or(1.0);
    if !(0.0..=1.0).contains(&recharging) {
        return Err(invalid(field(name), format!("is {recharging}, expected a part from 0 to 1")));
    }
    let request_cost = amount(usage.request_cost.unwrap_or_default(), || field("request_cost"))?;
    let interval = usage.interval_ms.map(|ms| {
        let ms = u64::try_from(ms).map_err(|_| invalid(field("interval_ms"), format!("is {ms}, must not be negative")));
        ms.map(Millis)
    });
    Ok(Usage { recharging, request_cost, interval: interval.transpose()? })
}

fn has(lease: Option<wire::Lease>, field: impl Fn() -> String) -> Result<Option<Has>, Invalid> {
    let Some(lease) = lease else { return Ok(None) };
    let expiry_time = required(lease.expiry_time, || format!("{}.expiry_time", field()))?;
    required(lease.refresh_interval, || format!("{}.refresh_interval", field()))?;
    let capacity = required(lease.capacity, || format!("{}.capacity", field()))?;
    let capacity = amount(capacity, || format!("{}.capacity", field()))?;
    Ok(Some(Has { token: lease.token.and_then(Token::new), capacity, expiry_time }))
}

pub(crate) fn get_server_capacity(
    request: wire::GetServerCapacityRequest,
    limits: &Limits,
) -> Result<Vec<ForResource>, Invalid> {
    let node: Arc<str> = id(request.server_id, limits, || "server_id".into())?.into();
    count(request.resource.len(), limits.resources_per_request, "resource", "--max-resources-per-request")?;
    let entries = request.resource.into_iter().enumerate();
    entries.map(|(at, entry)| node_ask(at, entry, &node, limits)).collect()
}

fn node_ask(
    at: usize,
    entry: wire::ServerCapacityResourceRequest,
    node: &Arc<str>,
    limits: &Limits,
) -> Result<ForResource, Invalid> {
    let field = |name: &str| format!("resource[{at}].{name}");
    let resource = id(entry.resource_id, limits, || field("resource_id"))?;
    count(entry.wants.len(), limits.bands, &field("wants"), "--max-bands")?;
    let bands = entry.wants.into_iter().enumerate();
    let claims = bands.map(|(n, band)| claim(band, |name| format!("resource[{at}].wants[{n}].{name}")));
    let ask = Ask {
        kind: HolderKind::Node,
        id: Arc::clone(node),
        claims: claims.collect::<Result<Claims, Invalid>>()?,
        has: has(entry.has, || field("has"))?,
        outstanding: entry.outstanding.map(|held| amount(held, || field("outstanding"))).transpose()?,
        learning: entry.learning.unwrap_or_default(),
        news: usage(entry.usage, at)?,
    };
    Ok((resource, Request::Ask(ask)))
}

/// Doorman's child nodes ask for nothing of `*` while they have no clients, to have something to ask for. No resource comes to
/// life for that: left out of the answer, they ask again a little later.
pub(crate) fn asks_for_nothing((resource, request): &ForResource) -> bool {
    let nothing = |ask: &Ask| ask.has.is_none() && ask.claims.iter().all(|claim| claim.wants == Amount::ZERO);
    resource == "*" && matches!(request, Request::Ask(ask) if ask.kind == HolderKind::Node && nothing(ask))
}

fn claim(band: wire::PriorityBandAggregate, field: impl Fn(&str) -> String) -> Result<Claim, Invalid> {
    let priority = clamp_priority(required(band.priority, || field("priority"))?);
    let clients = required(band.num_clients, || field("num_clients"))?;
    let wants = amount(required(band.wants, || field("wants"))?, || field("wants"))?;
    let subclients = u32::try_from(clients).ok().filter(|n| (1..=Claim::MAX_SUBCLIENTS).contains(n));
    let subclients = subclients.ok_or_else(|| {
        let problem = format!("is {clients}, subclients should be > 0 and at most {}", Claim::MAX_SUBCLIENTS);
        invalid(field("num_clients"), problem)
    })?;
    Ok(Claim { wants, subclients, priority })
}

/// Empty resource ids are skipped: Doorman's Go client sends one for each resource it closes.
pub(crate) fn release_capacity(
    request: wire::ReleaseCapacityRequest,
    limits: &Limits,
) -> Result<Vec<ForResource>, Invalid> {
    let client: Arc<str> = id(request.client_id, limits, || "client_id".into())?.into();
    // The Go client's empty ids come on top of as many real ones.
    count(request.resource_id.len(), limits.resources_per_request * 2, "resource_id", "--max-resources-per-request")?;
    let kind = if request.is_server.unwrap_or_default() { HolderKind::Node } else { HolderKind::Client };
    let tokens = request.token;
    let named = request.resource_id.into_iter().enumerate().filter(|(_, resource)| !resource.is_empty());
    named
        .map(|(at, resource)| {
            let resource = id(Some(resource), limits, || format!("resource_id[{at}]"))?;
            let token = tokens.get(at).copied().and_then(Token::new);
            let release = Release { kind, id: Arc::clone(&client), token };
            Ok((resource, Request::Release(release)))
        })
        .collect()
}

/// Whose leases are to be watched.
pub(crate) fn watch(request: WatchRequest, limits: &Limits) -> Result<(HolderKind, Arc<str>), Invalid> {
    let (kind, value, field) = match (request.client_id, request.server_id) {
        (Some(_), Some(_)) => return Err(invalid("server_id", "must not be given together with client_id")),
        (None, None) => return Err(invalid("client_id", "is missing, and so is server_id: one of them is required")),
        (None, node) => (HolderKind::Node, node, "server_id"),
        (client, None) => (HolderKind::Client, client, "client_id"),
    };
    Ok((kind, id(value, limits, || field.into())?.into()))
}

fn lease(lease: &Lease) -> wire::Lease {
    wire::Lease {
        expiry_time: Some(lease.expiry_time),
        refresh_interval: Some((lease.refresh.0 / 1000) as i64),
        capacity: Some(lease.capacity.get()),
        token: Some(lease.token.get()),
        remaining_ms: Some(lease.length.0 as i64),
    }
}

pub(crate) fn resource_response(resource: String, answer: &Answer) -> Option<wire::ResourceResponse> {
    let granted = answer.lease()?;
    Some(wire::ResourceResponse {
        resource_id: Some(resource),
        gets: Some(lease(granted)),
        safe_capacity: Some(granted.safe_capacity),
        priority: Some(granted.priority.into()),
        pool: granted.pool.as_ref().map(pool_state),
    })
}

fn pool_state(state: &PoolState) -> wire::PoolState {
    use wire::pool_state::State;
    let standing = match state.standing {
        PoolStanding::Waiting => State::Waiting,
        PoolStanding::Free => State::Free,
        PoolStanding::Priority => State::Priority,
        PoolStanding::Revoking => State::Revoking,
    };
    wire::PoolState {
        state: Some(standing.into()),
        assigned: (state.assigned > Amount::ZERO).then(|| state.assigned.get()),
        min_capacity: Some(state.min_capacity.get()),
        reason: state.reason.map(|reason| reason.name().to_owned()),
        burst_seconds: Some(state.burst.0 as f64 / 1000.0),
    }
}

pub(crate) fn server_response(resource: String, answer: &Answer) -> Option<wire::ServerCapacityResourceResponse> {
    let Answer::Supplied(supplied) = answer else { return None };
    Some(wire::ServerCapacityResourceResponse {
        resource_id: Some(resource),
        gets: Some(lease(&supplied.lease)),
        algorithm: Some(algorithm(&supplied.settings)),
        safe_capacity: Some(supplied.lease.safe_capacity),
        terms: supplied.terms.iter().map(|(priority, terms)| wire_terms(*priority, terms)).collect(),
    })
}

fn wire_terms(priority: i16, terms: &Terms) -> wire::Terms {
    let mut wire = wire::Terms { priority: Some(priority.into()), ..wire::Terms::default() };
    match *terms {
        Terms::Wants => {}
        Terms::Each(most) => wire.each = Some(most.get()),
        Terms::Level(level) => wire.level = Some(level),
        Terms::Share { equal, top_up } => (wire.equal_share, wire.top_up) = (Some(equal), Some(top_up)),
    }
    wire
}

/// How a resource is run, as child nodes are told it.
fn algorithm(settings: &Settings) -> wire::Algorithm {
    wire::Algorithm {
        kind: Some(settings.kind.number()),
        lease_length: Some((settings.lease.0 / 1000) as i64),
        refresh_interval: Some((settings.refresh.0 / 1000) as i64),
        parameters: settings
            .parameters()
            .into_iter()
            .map(|parameter| wire::NamedParameter { name: Some(parameter.name), value: parameter.value })
            .collect(),
        learning_mode_duration: settings.learning.map(|learning| (learning.0 / 1000) as i64),
    }
}

#[cfg(test)]
mod tests;
