//! Permits of resources whose lease this gateway holds.

use std::{collections::BTreeSet, pin::pin, sync::Arc, time::Duration};

use axum::http::{HeaderMap, StatusCode};
use leaseway_client::{
    Basis, Reservation, Window,
    limiter::{AnyLimiter, Claim, Closed, DebtExceeded, JointLimiter, JointReservation, TryError, joint},
};
use leaseway_core::types::{Glob, escaped};
use leaseway_server::HttpCaller;
use serde_json::{Value, json};
use tokio::time::Instant;

use super::{
    HttpAnswer, HttpGateway,
    admission::{FIRST_WAIT, WHILE_UNKNOWN, not_opened, patience_of, wait_for},
    budgets::{self, ReservedAmounts, TakenAmounts, WantedAmount},
    closing,
    fields::Fields,
    pages::basis,
    problem::{Problem, ProblemKind},
    rate_limit_fields::{self, Quota},
};
use crate::lease_table::LeaseEntry;

/// The default: unused permits are saved for a second, and the wants are 100 per second until there is an estimate.
const WINDOW: Window = Window { length: Duration::from_secs(1), rate: 100.0, slides: false };

/// Resources with a limit per window.
#[derive(Debug, Clone)]
pub struct LongWindow {
    pub resources: Glob,
    /// Its rate is also the maximum of the wants.
    pub window: Window,
}

fn window_of(windows: &[LongWindow], resource: &str) -> Window {
    windows.iter().find(|long| long.resources.matches(resource)).map_or(WINDOW, |long| long.window)
}

/// The time in which a share grows, if the cluster has capacity left, once callers wait for permits.
const GROWS_WITHIN: Duration = Duration::from_secs(2);

/// The maximum factor by which a share may still grow after [`GROWS_WITHIN`].
const GROWTH: u32 = 16;

pub(super) async fn acquire(
    gateway: &HttpGateway,
    caller: &HttpCaller,
    resource: &str,
    fields: &Fields,
) -> Result<HttpAnswer, Problem> {
    let entry = open(gateway, caller, resource, fields).await?;
    let permits = fields.number("permits") as u32;
    if entry.has_capacity() && entry.rate().try_acquire(permits).is_err() {
        wait_for_permits(gateway, &entry, permits, fields, entry.rate().wait_many(permits)).await?;
    }
    let headers = rate_limit_fields::fields(resource, quota(&entry));
    Ok(HttpAnswer::of(StatusCode::OK, taken(&entry, permits)).with(headers))
}

fn taken(entry: &LeaseEntry, permits: u32) -> Value {
    let quota = quota(entry);
    json!({
        "resource": entry.id(),
        "permits": permits,
        "remaining": or_null(quota.remaining),
        "capacity": or_null(quota.per_second),
    })
}

/// A limit of a request for permits of several.
struct Wanted {
    entry: Arc<LeaseEntry>,
    permits: u32,
}

/// What a request takes of a limit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Unit {
    Permits,
    /// An amount of a budget.
    Amount,
}

/// The limits of a request.
struct AllWanted {
    permits: Vec<Wanted>,
    amounts: Vec<WantedAmount>,
    /// The unit of each limit.
    order: Vec<Unit>,
}

/// Merges what belongs to limits with permits and to budgets into the order of the request.
fn in_order<T>(
    order: &[Unit],
    permits: impl IntoIterator<Item = T>,
    amounts: impl IntoIterator<Item = T>,
) -> impl Iterator<Item = T> {
    let (mut permits, mut amounts) = (permits.into_iter(), amounts.into_iter());
    order.iter().filter_map(move |unit| match unit {
        Unit::Permits => permits.next(),
        Unit::Amount => amounts.next(),
    })
}

/// The limits of a request. Waits for their first leases.
async fn wanted(gateway: &HttpGateway, caller: &HttpCaller, fields: &Fields) -> Result<AllWanted, Problem> {
    let limits = fields.list("limits");
    let mut wanted = AllWanted { permits: Vec::new(), amounts: Vec::new(), order: Vec::new() };
    for limit in &limits {
        let resource = limit.id("resource");
        if let Some(amount) = limit.number_if_given("amount") {
            wanted.amounts.push(WantedAmount { entry: budgets::find(gateway, caller, resource)?, amount });
            wanted.order.push(Unit::Amount);
        } else {
            let entry = find(gateway, caller, resource)?;
            wanted.permits.push(Wanted { entry, permits: limit.number("permits") as u32 });
            wanted.order.push(Unit::Permits);
        }
    }
    let deadline = first_lease_deadline(fields);
    for Wanted { entry, .. } in &wanted.permits {
        first_lease(gateway, entry, deadline).await?;
    }
    for amount in &wanted.amounts {
        amount.first_lease(gateway, deadline.saturating_duration_since(Instant::now())).await?;
    }
    Ok(wanted)
}

/// Takes the amounts of budgets. Returns them and the time that is left to wait for permits.
async fn take_amounts(
    gateway: &HttpGateway,
    wanted: Vec<WantedAmount>,
    fields: &Fields,
) -> Result<(TakenAmounts, Duration), Problem> {
    let (begun, wait) = (Instant::now(), patience_of(fields));
    let taken = budgets::take_all(gateway, wanted, wait).await?;
    Ok((taken, wait.saturating_sub(begun.elapsed())))
}

/// Acquires permits of several limits, or none.
pub(super) async fn acquire_all(
    gateway: &HttpGateway,
    caller: &HttpCaller,
    fields: &Fields,
) -> Result<HttpAnswer, Problem> {
    let AllWanted { permits: wanted, amounts, order } = wanted(gateway, caller, fields).await?;
    let (amounts, wait) = take_amounts(gateway, amounts, fields).await?;
    // Without a lease others pass, or the request would have failed.
    let limited: Vec<&Wanted> = wanted.iter().filter(|wanted| wanted.entry.has_capacity()).collect();
    take_all(gateway, &limited, wait).await?;
    // They are not settled, so they are spent.
    let spent: Vec<Value> = amounts.keep().iter().flat_map(ReservedAmounts::to_json).collect();
    let taken = wanted.iter().map(|wanted| taken(&wanted.entry, wanted.permits));
    let taken: Vec<Value> = in_order(&order, taken, spent).collect();
    let headers = quotas(&wanted.iter().collect::<Vec<_>>(), |wanted| quota(&wanted.entry));
    Ok(HttpAnswer::of(StatusCode::OK, json!({ "limits": taken })).with(headers))
}

/// Takes the permits of all limits, at the same moment.
async fn take_all(gateway: &HttpGateway, limited: &[&Wanted], wait: Duration) -> Result<(), Problem> {
    let entries: Vec<&Arc<LeaseEntry>> = limited.iter().map(|wanted| &wanted.entry).collect();
    let mut claims: Vec<Claim> = limited.iter().map(|wanted| Claim::of(wanted.permits)).collect();
    if gateway.lease_table.try_take_all(&entries, &mut claims, false) {
        return Ok(());
    }
    if !wait.is_zero() {
        let limiter = |wanted: &&Wanted| AnyLimiter::Rate(wanted.entry.rate().limiter().clone());
        let joint = JointLimiter::new(limited.iter().map(|wanted| (limiter(wanted), wanted.permits)));
        let needed = || limited.iter().map(|wanted| needed(&wanted.entry, wanted.permits)).max().unwrap_or_default();
        match wait_in_queue(gateway, needed, wait, joint.acquire()).await? {
            Some(taken) => return taken.map(drop).map_err(|Closed| closing()),
            // Other limits may refuse now. The permits were counted as demand already.
            None => {
                claims.iter_mut().for_each(|claim| claim.takes = 0);
                gateway.lease_table.try_take_all(&entries, &mut claims, true);
            }
        }
    }
    Err(over_limits(limited, &claims))
}

/// Permits and amounts of several limits, which are settled later.
pub(super) struct AllReserved {
    reserved: JointReservation,
    limits: Vec<ReservedLimit>,
    amounts: Option<ReservedAmounts>,
    /// The unit of each limit, in the order of the request.
    order: Vec<Unit>,
}

struct ReservedLimit {
    /// Keeps the lease.
    entry: Arc<LeaseEntry>,
    permits: u32,
    /// Its index in the reservation. `None` if it had no lease, and let the request pass.
    index: Option<usize>,
}

impl AllReserved {
    /// The resources and units, in order.
    pub(super) fn resources(&self) -> impl Iterator<Item = (&str, Unit)> {
        let permits = self.limits.iter().map(|limit| limit.entry.id());
        let amounts = self.amounts.iter().flat_map(ReservedAmounts::resources);
        in_order(&self.order, permits, amounts).zip(self.order.iter().copied())
    }

    /// The reserved limits as in the answer, and the RateLimit fields.
    pub(super) fn to_response(&self) -> (Value, HeaderMap) {
        let taken = self.limits.iter().map(|limit| taken(&limit.entry, limit.permits));
        let amounts = self.amounts.iter().flat_map(ReservedAmounts::to_json);
        let taken: Vec<Value> = in_order(&self.order, taken, amounts).collect();
        let mut named = BTreeSet::new();
        let distinct = self.limits.iter().filter(|limit| named.insert(limit.entry.id()));
        let headers = rate_limit_fields::fields_of_all(distinct.map(|limit| (limit.entry.id(), quota(&limit.entry))));
        (taken.into(), headers)
    }

    /// Settles each limit, and describes it. `used` has one number for each.
    pub(super) fn settle(self, used: &[f64]) -> Result<Value, Problem> {
        let used_of = |unit| self.order.iter().zip(used).filter(move |(of, _)| **of == unit).map(|(_, used)| *used);
        let amounts: Vec<f64> = used_of(Unit::Amount).collect();
        let used: Vec<u64> = used_of(Unit::Permits).map(|used| used as u64).collect();
        let amounts = self.amounts.map(|reserved| reserved.settle(&amounts)).unwrap_or_default();
        let mut by_index = vec![0; self.limits.iter().filter(|limit| limit.index.is_some()).count()];
        let indexes = self.limits.iter().zip(&used).filter_map(|(limit, used)| Some((limit.index?, *used)));
        indexes.for_each(|(index, used)| by_index[index] = used);
        let settled = self.reserved.settle(&by_index);
        let one = |(limit, used): (&ReservedLimit, &u64)| {
            if let Some(index) = limit.index {
                check_debt(limit.entry.id(), settled[index])?;
            }
            Ok(json!({
                "resource": limit.entry.id(), "reserved": limit.permits, "used": used, "debt": limit.entry.rate().debt(),
            }))
        };
        let permits = self.limits.iter().zip(&used).map(one).collect::<Result<Vec<_>, Problem>>()?;
        Ok(in_order(&self.order, permits, amounts).collect())
    }
}

/// Reserves permits of several limits, or none.
pub(super) async fn reserve_all(
    gateway: &HttpGateway,
    caller: &HttpCaller,
    fields: &Fields,
) -> Result<AllReserved, Problem> {
    let AllWanted { permits: wanted, amounts, order } = wanted(gateway, caller, fields).await?;
    let (amounts, wait) = take_amounts(gateway, amounts, fields).await?;
    // Without a lease others pass, or the request would have failed.
    let mut next = 0..;
    let indexes: Vec<Option<usize>> =
        wanted.iter().map(|wanted| if wanted.entry.has_capacity() { next.next() } else { None }).collect();
    let limited: Vec<&Wanted> =
        wanted.iter().zip(&indexes).filter(|(_, index)| index.is_some()).map(|(wanted, _)| wanted).collect();
    let reserved = reserve_limited(gateway, &limited, wait).await?;
    let limits = wanted.into_iter().zip(indexes).map(|(Wanted { entry, permits }, index)| ReservedLimit {
        entry,
        permits,
        index,
    });
    Ok(AllReserved { reserved, limits: limits.collect(), amounts: amounts.keep(), order })
}

async fn reserve_limited(
    gateway: &HttpGateway,
    limited: &[&Wanted],
    wait: Duration,
) -> Result<JointReservation, Problem> {
    let limiter = |wanted: &&Wanted| AnyLimiter::Rate(wanted.entry.rate().limiter().clone());
    let joint = JointLimiter::new(limited.iter().map(|wanted| (limiter(wanted), wanted.permits)));
    if let Ok(reserved) = joint.try_reserve() {
        return Ok(reserved);
    }
    if !wait.is_zero() {
        limited.iter().for_each(|wanted| gateway.lease_table.refused(&wanted.entry));
        let needed = || limited.iter().map(|wanted| needed(&wanted.entry, wanted.permits)).max().unwrap_or_default();
        if let Some(reserved) = wait_in_queue(gateway, needed, wait, joint.reserve()).await? {
            return reserved.map_err(|Closed| closing());
        }
    }
    // Names the limits that refuse. The permits were counted as demand already.
    let entries: Vec<&Arc<LeaseEntry>> = limited.iter().map(|wanted| &wanted.entry).collect();
    let mut claims: Vec<Claim> = limited.iter().map(|wanted| Claim { takes: 0, ..Claim::of(wanted.permits) }).collect();
    gateway.lease_table.try_take_all(&entries, &mut claims, true);
    Err(over_limits(limited, &claims))
}

/// The RateLimit fields of several limits, each once.
fn quotas<'w>(wanted: &[&'w Wanted], quota: impl Fn(&'w Wanted) -> Quota) -> HeaderMap {
    let mut named = BTreeSet::new();
    let distinct = wanted.iter().filter(|wanted| named.insert(wanted.entry.id()));
    rate_limit_fields::fields_of_all(distinct.map(|wanted| (wanted.entry.id(), quota(wanted))))
}

/// Names the limit whose permits will be available last. `claims[i]` is of `limited[i]`.
fn over_limits(limited: &[&Wanted], claims: &[Claim]) -> Problem {
    let until = |wanted: &Wanted, outcome: Result<(), TryError>| {
        let known = if let Err(TryError::NotNow { retry_after }) = outcome { retry_after } else { None };
        known.unwrap_or_else(|| needed(&wanted.entry, wanted.permits)).max(Duration::from_millis(1))
    };
    let (at, _) = joint::refusal(claims).unwrap_or((0, TryError::NotNow { retry_after: None }));
    let Wanted { entry, permits } = limited[at];
    let needed = until(limited[at], claims[at].outcome);
    let refusing: Vec<&Wanted> =
        limited.iter().zip(claims).filter(|(_, claim)| claim.outcome.is_err()).map(|(wanted, _)| *wanted).collect();
    let names: BTreeSet<&str> = refusing.iter().map(|wanted| wanted.entry.id()).collect();
    let headers = quotas(limited, |wanted| {
        let refused = limited
            .iter()
            .zip(claims)
            .find(|(one, claim)| one.entry.id() == wanted.entry.id() && claim.outcome.is_err());
        let more_in = refused.map(|(wanted, claim)| until(wanted, claim.outcome));
        Quota { more_in, ..quota(&wanted.entry) }
    });
    let problem = Problem::new(ProblemKind::OverLimit, shortage(entry, *permits, needed));
    problem.beyond(&names.into_iter().collect::<Vec<_>>(), headers).retry_after(needed)
}

/// Reserves permits. Unused ones can be returned later.
pub(super) async fn reserve(
    gateway: &HttpGateway,
    entry: &Arc<LeaseEntry>,
    fields: &Fields,
) -> Result<Reservation, Problem> {
    let permits = fields.number("permits") as u32;
    if let Ok(reserved) = entry.rate().try_reserve(permits) {
        return Ok(reserved);
    }
    wait_for_permits(gateway, entry, permits, fields, entry.rate().reserve(permits)).await
}

/// Charges permits, or an amount of a budget, that were used already.
pub(super) async fn charge(
    gateway: &HttpGateway,
    caller: &HttpCaller,
    resource: &str,
    fields: &Fields,
) -> Result<HttpAnswer, Problem> {
    if let Some(amount) = fields.number_if_given("amount") {
        return budgets::charge(gateway, caller, resource, amount).await;
    }
    let entry = open(gateway, caller, resource, fields).await?;
    let permits = fields.number("permits") as u64;
    check_debt(resource, entry.rate().charge(permits))?;
    let json = json!({ "resource": resource, "permits": permits, "debt": entry.rate().debt() });
    Ok(HttpAnswer::of(StatusCode::OK, json))
}

/// The permits of a resource at this gateway.
pub(super) fn standing(gateway: &HttpGateway, resource: &str) -> Result<HttpAnswer, Problem> {
    let Some(entry) = gateway.lease_table.look(resource) else {
        let why = "this gateway holds no lease of this resource; first request permits of the resource";
        return Err(Problem::new(ProblemKind::NotFound, why));
    };
    let (quota, opened) = (quota(&entry), entry.rate().resource());
    let json = json!({
        "resource": resource,
        "capacity": or_null(quota.per_second),
        "basis": basis(opened.usable().basis),
        "lease_expires_in": opened.lease().map(|(_, left)| left.as_secs_f64()),
        "remaining": or_null(quota.remaining),
        "debt": entry.rate().debt(),
        "reservations": gateway.reservations.of(resource),
    });
    Ok(HttpAnswer::of(StatusCode::OK, json).with(rate_limit_fields::fields(resource, quota)))
}

/// Opens a resource. The first request waits for a lease as long as it would for permits, and at least [`FIRST_WAIT`].
/// Without a lease or a fallback, `--without-lease` decides.
pub(super) async fn open(
    gateway: &HttpGateway,
    caller: &HttpCaller,
    resource: &str,
    fields: &Fields,
) -> Result<Arc<LeaseEntry>, Problem> {
    let entry = find(gateway, caller, resource)?;
    first_lease(gateway, &entry, first_lease_deadline(fields)).await?;
    Ok(entry)
}

fn find(gateway: &HttpGateway, caller: &HttpCaller, resource: &str) -> Result<Arc<LeaseEntry>, Problem> {
    let window = window_of(&gateway.windows, resource);
    gateway.lease_table.open(resource, window, caller.principal()).map_err(|why| not_opened(&why))
}

fn first_lease_deadline(fields: &Fields) -> Instant {
    Instant::now() + FIRST_WAIT.max(patience_of(fields))
}

/// Waits for the first lease. Fails without a lease or a fallback, unless the gateway admits requests without.
async fn first_lease(gateway: &HttpGateway, entry: &LeaseEntry, deadline: Instant) -> Result<(), Problem> {
    let opened = entry.rate().resource();
    if opened.usable().basis == Basis::Unknown {
        let wait = deadline.saturating_duration_since(Instant::now());
        // The outcome is checked below.
        let _ = wait_for(gateway, wait, opened.answered()).await?;
    }
    if opened.usable().basis == Basis::Lease || entry.has_capacity() || gateway.lease_table.passes_without_lease() {
        return Ok(());
    }
    let why = format!(
        "no lease of `{}`, because no master has answered this gateway; requests without a lease are denied (--without-lease)",
        escaped(entry.id())
    );
    Err(Problem::new(ProblemKind::NoLease, why).retry_after(WHILE_UNKNOWN))
}

/// Waits for permits. The share grows when callers wait. If it does not grow enough soon, the request is refused early,
/// so that it does not block the queue in vain.
async fn wait_for_permits<T>(
    gateway: &HttpGateway,
    entry: &Arc<LeaseEntry>,
    permits: u32,
    fields: &Fields,
    turn: impl Future<Output = Result<T, Closed>>,
) -> Result<T, Problem> {
    gateway.lease_table.refused(entry);
    let wait = patience_of(fields);
    if wait.is_zero() {
        return Err(over_limit(entry, permits));
    }
    let taken = wait_in_queue(gateway, || needed(entry, permits), wait, turn).await?;
    taken.ok_or_else(|| over_limit(entry, permits))?.map_err(|Closed| closing())
}

/// `None` if there are not enough permits in time. The request then gives up its place in the queue and the permits
/// saved for it. `needed` is the time until there are enough, if nobody else takes any.
async fn wait_in_queue<T>(
    gateway: &HttpGateway,
    needed: impl Fn() -> Duration,
    wait: Duration,
    turn: impl Future<Output = T>,
) -> Result<Option<T>, Problem> {
    let mut turn = pin!(turn);
    let first = wait.min(GROWS_WITHIN);
    let taken = wait_for(gateway, first, &mut turn).await?;
    let rest = wait - first;
    if taken.is_some() || rest.is_zero() || needed() / GROWTH > rest {
        return Ok(taken);
    }
    wait_for(gateway, rest, turn).await
}

/// The time until this many permits are available, if nobody else takes any.
fn needed(entry: &LeaseEntry, permits: u32) -> Duration {
    if let Some(ready_in) = entry.rate().ready_in(permits) {
        return ready_in;
    }
    // A larger lease is needed.
    let standing = entry.standing();
    // `available` is negative if there is a debt.
    let missing = (f64::from(permits) - standing.available).max(0.0);
    // Without capacity the time is unknown.
    if standing.capacity.get() == 0.0 {
        return Duration::ZERO;
    }
    Duration::try_from_secs_f64(missing / standing.capacity.get()).unwrap_or(Duration::MAX)
}

fn over_limit(entry: &LeaseEntry, permits: u32) -> Problem {
    let resource = entry.id();
    let needed = needed(entry, permits).max(Duration::from_millis(1));
    let quota = Quota { more_in: Some(needed), ..quota(entry) };
    let problem = Problem::new(ProblemKind::OverLimit, shortage(entry, permits, needed));
    problem.beyond(&[resource], rate_limit_fields::fields(resource, quota)).retry_after(needed)
}

fn shortage(entry: &LeaseEntry, permits: u32, needed: Duration) -> String {
    let (name, most) = (escaped(entry.id()), entry.standing().burst.floor());
    if entry.standing().capacity.get() == 0.0 {
        format!("no permits of `{name}` now: the cluster grants this gateway no capacity")
    } else if f64::from(permits) > most {
        format!(
            "{permits} permits of `{name}` need a larger lease, because the present one provides at most {most} at \
             once; retry in {needed:.0?}"
        )
    } else {
        format!("{permits} permits of `{name}` will be available in {needed:.0?}")
    }
}

pub(super) fn quota(entry: &LeaseEntry) -> Quota {
    let standing = entry.standing();
    Quota {
        per_second: standing.capacity.get(),
        window: entry.window(),
        remaining: standing.available.floor().max(0.0),
        more_in: None,
    }
}

/// A number, or `null` for no limit.
pub(super) fn or_null(number: f64) -> Value {
    if number.is_finite() { number.into() } else { Value::Null }
}

/// Reports a debt that exceeds the maximum.
pub(super) fn check_debt(resource: &str, charged: Result<(), DebtExceeded>) -> Result<(), Problem> {
    charged.map_err(|exceeded| {
        let why = format!("`{}`: {exceeded}", escaped(resource));
        Problem::new(ProblemKind::OverLimit, why).in_word("debt_exceeded")
    })
}

/// The debt of a resource.
pub(super) fn debt(gateway: &HttpGateway, resource: &str) -> u64 {
    gateway.lease_table.look(resource).map_or(0, |entry| entry.rate().debt())
}
