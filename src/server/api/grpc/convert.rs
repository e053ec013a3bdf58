//! Conversion and validation between wire and core types. Errors name the field.
//!
//! A missing required field fails the whole request. Any other invalid value affects only its entry, which is left out
//! of the answer, or answered from what is known about its holder (see [`super::problems`]).

use std::{
    hash::{BuildHasher as _, RandomState},
    iter::Enumerate,
    sync::Arc,
};

use leaseway_core::{
    allocation::division::Terms,
    lease::holder::ShownLease,
    policy::settings::Settings,
    pool::{PoolFields, PoolStanding, PoolState, Usage},
    resource::{Answer, Ask, BudgetLease, Lease, NodeInstance, Release, Request, Spent},
    types::{Amount, Claim, Claims, HolderKind, Millis, Token, clamp_priority},
};
use leaseway_proto::{doorman as wire, push::WatchRequest, session};

mod groups;

use super::problems::{Invalid, Problems, invalid, required};
use crate::{config::limits::Limits, observe::metrics::Reason};

pub(super) fn amount(value: f64, field: impl FnOnce() -> String) -> Result<Amount, Invalid> {
    Amount::new(value).map_err(|error| invalid(field(), format!("is {value}, {error}")))
}

pub(super) fn id(value: Option<String>, limits: &Limits, field: impl Fn() -> String) -> Result<String, Invalid> {
    allowed(required(value, &field)?, limits, field).map_err(|(_, why)| why)
}

/// The id if it is valid, else the id and the reason.
fn allowed(value: String, limits: &Limits, field: impl Fn() -> String) -> Result<String, (String, Invalid)> {
    let problem = match value.len() {
        0 => "must not be empty".to_owned(),
        bytes if bytes > limits.id_bytes => {
            format!("is {bytes} bytes long, at most {} are allowed", limits.id_bytes)
        }
        _ => return Ok(value),
    };
    Err((value, invalid(field(), problem)))
}

fn count(found: usize, most: usize, field: &str, flag: &'static str) -> Result<(), Invalid> {
    if found <= most { Ok(()) } else { Err(Invalid::TooMany { field: field.into(), count: found, most, flag }) }
}

/// The id of a resource, and a request to it.
pub(crate) type ForResource = (String, Request);

/// The valid entries of a request, and the problems of the others.
#[derive(Debug, Default)]
pub(crate) struct Parsed {
    pub(crate) requests: Vec<ForResource>,
    pub(crate) problems: Problems,
}

/// The fields of a request that apply to all entries.
#[derive(Clone)]
struct Sender {
    id: Arc<str>,
    drops_late: bool,
    is_gateway: bool,
    /// Set for child nodes.
    instance: Option<NodeInstance>,
}

pub(crate) fn get_capacity(request: wire::GetCapacityRequest, limits: &Limits) -> Result<Parsed, Invalid> {
    let mut reader = RequestReader::new(request, limits)?;
    reader.read(usize::MAX, limits)?;
    Ok(reader.finish(limits))
}

/// Reads the entries of a GetCapacity; large requests are read in chunks.
pub(super) struct RequestReader {
    sender: Sender,
    entries: Enumerate<std::vec::IntoIter<wire::ResourceRequest>>,
    parsed: Parsed,
}

impl RequestReader {
    pub(super) fn new(request: wire::GetCapacityRequest, limits: &Limits) -> Result<RequestReader, Invalid> {
        let (drops_late, is_gateway) = (request.drops_late(), request.is_gateway());
        let client = id(request.client_id, limits, || "client_id".into())?.into();
        let sender = Sender { id: client, drops_late, is_gateway, instance: None };
        let parsed = Parsed { requests: Vec::with_capacity(request.resource.len()), ..Parsed::default() };
        Ok(RequestReader { sender, entries: request.resource.into_iter().enumerate(), parsed })
    }

    /// Reads up to `most` entries. Returns whether there are more.
    pub(super) fn read(&mut self, most: usize, limits: &Limits) -> Result<bool, Invalid> {
        for (at, entry) in self.entries.by_ref().take(most) {
            self.parsed.requests.extend(client_ask(at, entry, &self.sender, limits, &mut self.parsed.problems)?);
        }
        Ok(self.entries.len() > 0)
    }

    pub(super) fn finish(self, limits: &Limits) -> Parsed {
        let Parsed { requests, mut problems } = self.parsed;
        Parsed { requests: at_most(requests, limits, &self.sender.id, &mut problems), problems }
    }
}

/// An entry of a stream of renewals. Without a request if it is invalid.
pub(super) struct Stated {
    pub(super) index: u32,
    pub(super) resource: String,
    pub(super) request: Option<Request>,
}

/// Reads the entries that a client states on a stream of renewals.
pub(super) fn stated(
    entries: Vec<session::Entry>,
    client: &Arc<str>,
    is_gateway: bool,
    limits: &Limits,
    problems: &mut Problems,
) -> Result<Vec<Stated>, Invalid> {
    count(entries.len(), limits.resources_per_request, "entry", "--max-resources-per-request")?;
    let sender = Sender { id: Arc::clone(client), drops_late: true, is_gateway, instance: None };
    let mut stated = Vec::with_capacity(entries.len());
    for (at, session::Entry { index, request }) in entries.into_iter().enumerate() {
        let entry = required(request, || format!("entry[{at}].request"))?;
        let id = entry.resource_id.clone().unwrap_or_default();
        let read = client_ask(at, entry, &sender, limits, problems)?;
        let (resource, request) = read.map_or((id, None), |(resource, request)| (resource, Some(request)));
        stated.push(Stated { index, resource, request });
    }
    Ok(stated)
}

fn client_ask(
    at: usize,
    entry: wire::ResourceRequest,
    sender: &Sender,
    limits: &Limits,
    problems: &mut Problems,
) -> Result<Option<ForResource>, Invalid> {
    let field = |name: &str| format!("resource[{at}].{name}");
    let resource = required(entry.resource_id, || field("resource_id"))?;
    let priority = required(entry.priority, || field("priority"))?;
    let wants = required(entry.wants, || field("wants"))?;
    let (has, had) = (has(entry.has, || field("has")), has(entry.had, || field("had")));
    let beyond = amount(entry.outstanding.unwrap_or_default(), || field("outstanding"));
    let resource = match allowed(resource, limits, || field("resource_id")) {
        Ok(resource) => resource,
        Err((resource, why)) => {
            has?;
            problems.note(Reason::BadId, &sender.id, &resource, &why.to_string());
            return Ok(None);
        }
    };
    let mut entry_reader = EntryReader { client: &sender.id, resource: &resource, problems };
    let wants = entry_reader.value(amount(wants, || field("wants")))?;
    let (has, beyond) = entry_reader.known(has, beyond)?;
    let had = entry_reader.value(had)?.flatten();
    let beyond = beyond.unwrap_or_default();
    let outstanding =
        (beyond > Amount::ZERO).then(|| has.map_or(Amount::ZERO, |has| has.capacity).saturating_add(beyond));
    let pool_fields = entry_reader.value(usage(entry.usage, at))?.flatten();
    let spent = entry_reader.value(spent(entry.spent, at))?.flatten();
    let goes_by = wants.unwrap_or_else(|| has.map_or(Amount::ZERO, |has| has.capacity));
    let claims = Claims::from_slice(&[Claim::of_client(goes_by, priority)]);
    let Sender { id, drops_late, is_gateway, instance } = sender.clone();
    let rest = Ask::of_nothing(id);
    let ask = Ask { claims, has, had, outstanding, drops_late, is_gateway, instance, pool_fields, spent, ..rest };
    Ok(Some((resource, if wants.is_some() { Request::Ask(ask) } else { Request::Renew(ask) })))
}

/// Records the problems of one entry.
struct EntryReader<'a> {
    client: &'a str,
    resource: &'a str,
    problems: &'a mut Problems,
}

impl EntryReader<'_> {
    #[inline]
    fn value<T>(&mut self, read: Result<T, Invalid>) -> Result<Option<T>, Invalid> {
        self.problems.check(Reason::BadValue, self.client, self.resource, read)
    }

    /// Reads both parts of a holder's report about its leases. If either is invalid, the entry confirms no lease, but
    /// is still answered with a new one.
    #[inline]
    fn known<T>(
        &mut self,
        has: Result<Option<ShownLease>, Invalid>,
        in_use: Result<T, Invalid>,
    ) -> Result<(Option<ShownLease>, Option<T>), Invalid> {
        let (has, in_use) = (self.value(has)?, self.value(in_use)?);
        Ok((has.flatten().filter(|_| in_use.is_some()), in_use))
    }
}

/// Keeps the maximum number of entries: first those without a lease, then those whose leases expire first, so that
/// repeated requests reach all entries. Ties are broken at random.
fn at_most(mut requests: Vec<ForResource>, limits: &Limits, client: &str, problems: &mut Problems) -> Vec<ForResource> {
    let (count, most) = (requests.len(), limits.resources_per_request);
    if count <= most {
        return requests;
    }
    let random = RandomState::new();
    let key = |(at, (_, request)): (usize, &ForResource)| {
        let ends = match request {
            Request::Ask(ask) | Request::Renew(ask) => ask.has.map(|has| has.expiry_time),
            Request::Release(_) => None,
        };
        (ends, random.hash_one(at), at)
    };
    let mut keys: Vec<_> = requests.iter().enumerate().map(key).collect();
    keys.select_nth_unstable(most);
    let mut answered = vec![false; count];
    keys[..most].iter().for_each(|(_, _, at)| answered[*at] = true);
    let turn = format!(
        "resource: {count} entries, but this server answers only {most} at a time, first those whose leases expire \
         soonest; send the other entries again, or raise the server's --max-resources-per-request"
    );
    let mut answered = answered.into_iter();
    requests.retain(|(resource, _)| {
        let is_kept = answered.next().unwrap_or_default();
        if !is_kept {
            problems.note(Reason::TooManyInRequest, client, resource, &turn);
        }
        is_kept
    });
    requests
}

/// The usage reported with the entry at this index.
fn usage(usage: Option<wire::Usage>, at: usize) -> Result<Option<Box<PoolFields>>, Invalid> {
    let Some(usage) = usage else { return Ok(None) };
    let usage = read_usage(&usage, |name| format!("resource[{at}].usage.{name}"))?;
    Ok(Some(Box::new(PoolFields { key: None, usage: Some(usage) })))
}

/// What was spent of a budget, as reported with the entry at this index.
fn spent(spent: Option<wire::Spent>, at: usize) -> Result<Option<Box<Spent>>, Invalid> {
    let Some(spent) = spent else { return Ok(None) };
    let field = |name: &str| format!("resource[{at}].spent.{name}");
    Ok(Some(Box::new(Spent {
        amount: amount(spent.amount.unwrap_or_default(), || field("amount"))?,
        period: spent.period.unwrap_or_default(),
        incarnation: spent.incarnation.unwrap_or_default(),
        need: amount(spent.need.unwrap_or_default(), || field("need"))?,
    })))
}

fn read_usage(usage: &wire::Usage, field: impl Fn(&str) -> String) -> Result<Usage, Invalid> {
    let name = "recharging_fraction";
    let recharging = usage.recharging_fraction.unwrap_or(1.0);
    if !(0.0..=1.0).contains(&recharging) {
        return Err(invalid(field(name), format!("is {recharging}, expected a fraction from 0 to 1")));
    }
    let request_cost = amount(usage.request_cost.unwrap_or_default(), || field("request_cost"))?;
    let interval = usage.interval_ms.map(|ms| {
        let ms = u64::try_from(ms).map_err(|_| {
            invalid(field("interval_ms"), format!("is {ms}, expected milliseconds that are not negative"))
        });
        ms.map(Millis)
    });
    Ok(Usage { recharging, request_cost, interval: interval.transpose()? })
}

fn has(lease: Option<wire::Lease>, field: impl Fn() -> String) -> Result<Option<ShownLease>, Invalid> {
    let Some(lease) = lease else { return Ok(None) };
    let expiry_time = required(lease.expiry_time, || format!("{}.expiry_time", field()))?;
    required(lease.refresh_interval, || format!("{}.refresh_interval", field()))?;
    let capacity = required(lease.capacity, || format!("{}.capacity", field()))?;
    let capacity = amount(capacity, || format!("{}.capacity", field()))?;
    Ok(Some(ShownLease { token: lease.token.and_then(Token::new), capacity, expiry_time }))
}

pub(crate) fn get_server_capacity(request: wire::GetServerCapacityRequest, limits: &Limits) -> Result<Parsed, Invalid> {
    let node = id(request.server_id, limits, || "server_id".into())?.into();
    let instance = NodeInstance::new(request.node.unwrap_or_default(), request.term.unwrap_or_default());
    let sender = Sender { id: node, drops_late: request.drops_late.unwrap_or_default(), is_gateway: false, instance };
    let mut problems = Problems::default();
    let mut requests = Vec::with_capacity(request.resource.len());
    for (at, entry) in request.resource.into_iter().enumerate() {
        requests.extend(node_ask(at, entry, &sender, limits, &mut problems)?);
    }
    Ok(Parsed { requests: at_most(requests, limits, &sender.id, &mut problems), problems })
}

fn node_ask(
    at: usize,
    entry: wire::ServerCapacityResourceRequest,
    sender: &Sender,
    limits: &Limits,
    problems: &mut Problems,
) -> Result<Option<ForResource>, Invalid> {
    let field = |name: &str| format!("resource[{at}].{name}");
    let resource = required(entry.resource_id, || field("resource_id"))?;
    let claims = claims_and_minimums(|name| field(name), entry.wants, entry.minimums, limits);
    let demand = claims.and_then(|claims| Ok((claims, groups::demands(at, entry.group, limits)?)));
    let (has, had) = (has(entry.has, || field("has")), has(entry.had, || field("had")));
    let resource = match allowed(resource, limits, || field("resource_id")) {
        Ok(resource) => resource,
        Err((resource, why)) => {
            problems.note(Reason::BadId, &sender.id, &resource, &why.to_string());
            return Ok(None);
        }
    };
    let bands = if matches!(demand, Err(Invalid::TooMany { .. })) { Reason::TooManyBands } else { Reason::BadValue };
    let demand = problems.check(bands, &sender.id, &resource, demand)?;
    let mut entry_reader = EntryReader { client: &sender.id, resource: &resource, problems };
    let knows_terms = entry.outstanding.is_some();
    let outstanding = entry.outstanding.map(|held| amount(held, || field("outstanding"))).transpose();
    let (has, outstanding) = entry_reader.known(has, outstanding)?;
    let had = entry_reader.value(had)?.flatten();
    let outstanding = outstanding.flatten().or(knows_terms.then_some(Amount::ZERO));
    let pool_fields = entry_reader.value(usage(entry.usage, at))?.flatten();
    let Sender { id, drops_late, is_gateway, instance } = sender.clone();
    let ask = |claims, groups| {
        let learning = entry.learning.unwrap_or_default();
        let kind = HolderKind::Node;
        // What the holders of a budget below may have spent is outstanding.
        let spent = outstanding.map(|amount| {
            let period = entry.period.unwrap_or_default();
            Box::new(Spent { amount, period, ..Spent::default() })
        });
        let rest = Ask { spent, ..Ask::of_nothing(id) };
        Ask {
            kind,
            claims,
            groups,
            has,
            had,
            outstanding,
            learning,
            drops_late,
            is_gateway,
            instance,
            pool_fields,
            ..rest
        }
    };
    let request = match demand {
        Some((claims, groups)) => Request::Ask(ask(claims, groups)),
        None => {
            let wants = has.map_or(Amount::ZERO, |has| has.capacity);
            Request::Renew(ask(Claims::from_slice(&[Claim::new(wants, 1, 0)]), Vec::new()))
        }
    };
    Ok(Some((resource, request)))
}

fn claims_and_minimums(
    field: impl Fn(&str) -> String,
    wants: Vec<wire::PriorityBandAggregate>,
    minimums: Vec<wire::PriorityBandAggregate>,
    limits: &Limits,
) -> Result<Claims, Invalid> {
    let minimums = claims(&field("minimums"), minimums, limits);
    let mut claims = claims(&field("wants"), wants, limits)?;
    claims.extend(minimums?.into_iter().map(Claim::as_minimum));
    Ok(claims)
}

/// The claims of a child node. Missing fields are checked first, because they fail the whole request.
fn claims(list: &str, bands: Vec<wire::PriorityBandAggregate>, limits: &Limits) -> Result<Claims, Invalid> {
    let field = |n: usize, name: &str| format!("{list}[{n}].{name}");
    for (n, band) in bands.iter().enumerate() {
        required(band.priority, || field(n, "priority"))?;
        required(band.num_clients, || field(n, "num_clients"))?;
        required(band.wants, || field(n, "wants"))?;
    }
    count(bands.len(), limits.bands, list, "--max-bands")?;
    bands.into_iter().enumerate().map(|(n, band)| claim(band, |name| field(n, name))).collect()
}

/// Whether an entry is a placeholder: Doorman's child nodes without clients ask for zero of the resource `*`. It must
/// not create a resource, so it is left out of the answer; the child asks again later.
pub(crate) fn asks_for_nothing((resource, request): &ForResource) -> bool {
    let nothing = |ask: &Ask| ask.has.is_none() && ask.claims.iter().all(|claim| claim.wants == Amount::ZERO);
    resource == "*"
        && matches!(request, Request::Ask(ask) | Request::Renew(ask) if ask.kind == HolderKind::Node && nothing(ask))
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
    Ok(Claim::new(wants, subclients, priority))
}

/// Skips empty resource ids: Doorman's Go client sends one for each resource it closes.
pub(crate) fn release_capacity(request: wire::ReleaseCapacityRequest, limits: &Limits) -> Result<Parsed, Invalid> {
    let client: Arc<str> = id(request.client_id, limits, || "client_id".into())?.into();
    let kind = if request.is_server.unwrap_or_default() { HolderKind::Node } else { HolderKind::Client };
    let instance = NodeInstance::new(request.node.unwrap_or_default(), request.term.unwrap_or_default());
    let tokens = request.token;
    let mut reports = request.spent.into_iter();
    let named = request.resource_id.into_iter().enumerate().filter(|(_, resource)| !resource.is_empty());
    let mut parsed = Parsed::default();
    let mut read = 0;
    for (at, resource) in named {
        let report = reports.nth(at - read).filter(|report| report.incarnation.is_some());
        read = at + 1;
        match allowed(resource, limits, || format!("resource_id[{at}]")) {
            Ok(resource) => {
                let token = tokens.get(at).copied().and_then(Token::new);
                // A release with an invalid report would free too much.
                let spent = match spent(report, at) {
                    Ok(spent) => spent,
                    Err(why) => {
                        parsed.problems.note(Reason::BadValue, &client, &resource, &why.to_string());
                        continue;
                    }
                };
                let release = Release { kind, id: Arc::clone(&client), token, instance, spent };
                parsed.requests.push((resource, Request::Release(release)));
            }
            Err((resource, why)) => parsed.problems.note(Reason::BadId, &client, &resource, &why.to_string()),
        }
    }
    let (count, most) = (parsed.requests.len(), limits.resources_per_request);
    for (resource, _) in parsed.requests.drain(most.min(count)..) {
        let late = Invalid::TooMany { field: "resource_id".into(), count, most, flag: "--max-resources-per-request" };
        parsed.problems.note(Reason::TooManyInRequest, &client, &resource, &late.to_string());
    }
    Ok(parsed)
}

/// The holder to watch.
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
        unlimited: granted.is_unlimited.then_some(true),
        pool: granted.pool.as_ref().map(pool_state),
        budget: granted.budget.as_ref().map(budget_lease),
    })
}

fn budget_lease(budget: &BudgetLease) -> wire::BudgetLease {
    wire::BudgetLease {
        period_start: Some(budget.period.start),
        period_end: (!budget.period.is_unending()).then_some(budget.period.end),
        starts_over: budget.starts_over.then_some(true),
    }
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
        budget: supplied.lease.budget.as_ref().map(budget_lease),
        terms: supplied.terms.iter().map(|(priority, terms)| wire_terms(*priority, terms)).collect(),
        group: supplied.groups.iter().map(groups::share).collect(),
    })
}

fn wire_terms(priority: i16, terms: &Terms) -> wire::Terms {
    let mut wire = wire::Terms { priority: Some(priority.into()), ..wire::Terms::default() };
    match *terms {
        Terms::Wants => {}
        Terms::Each(most) => wire.each = Some(most.get()),
        Terms::Level(level) => wire.level = Some(level),
        Terms::Share { equal, top_up } => (wire.equal_share, wire.top_up) = (Some(equal), Some(top_up)),
        Terms::Minimums(level) => wire.minimum = Some(level),
    }
    wire
}

/// The algorithm that child nodes must use, with its parameters.
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
