//! Permits and amounts that are taken by one request and settled by a later one. A reservation that is not settled in
//! time expires, and all of it counts as used.

use std::{
    collections::{BTreeSet, HashMap},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use axum::http::{HeaderMap, HeaderValue, StatusCode, header};
use leaseway_client::{BudgetReservation, Reservation};
use leaseway_core::types::{Principal, PrincipalShare, readable};
use leaseway_server::HttpCaller;
use serde_json::{Value, json};
use tokio::time::Instant;

use super::{
    HttpAnswer, HttpGateway, admission, budgets,
    fields::Fields,
    operation::MAX_PERMITS,
    permits::{self, AllReserved, Unit},
    problem::{Problem, ProblemKind},
};
use crate::lease_table::{
    BudgetEntry,
    caller_shares::{CallerShares, SharePermit},
};

/// Random, so that no caller can guess the name of another's reservation.
type Name = u128;

/// Unsettled reservations.
pub(super) struct Reservations<P = Held> {
    max: usize,
    /// Counts pending and unsettled reservations.
    shares: CallerShares,
    table: Mutex<ReservationTable<P>>,
}

/// What a reservation has taken.
pub(super) enum Held {
    One(Reservation),
    Amount {
        reservation: BudgetReservation,
        /// Keeps the lease.
        entry: Arc<BudgetEntry>,
    },
    Several(AllReserved),
}

struct ReservationTable<P> {
    by_name: HashMap<Name, Reserved<P>>,
    by_end: BTreeSet<(Instant, Name)>,
    by_resource: HashMap<String, usize>,
}

struct Reserved<P> {
    /// The resources, and the units reserved of them.
    resources: Vec<(String, Unit)>,
    ends: Instant,
    permits: P,
    _share: SharePermit,
}

impl<P> Default for ReservationTable<P> {
    fn default() -> ReservationTable<P> {
        ReservationTable { by_name: HashMap::new(), by_end: BTreeSet::new(), by_resource: HashMap::new() }
    }
}

impl<P> ReservationTable<P> {
    fn remove(&mut self, name: Name) -> Option<Reserved<P>> {
        let reserved = self.by_name.remove(&name)?;
        self.by_end.remove(&(reserved.ends, name));
        for (resource, _) in &reserved.resources {
            if let Some(count) = self.by_resource.get_mut(resource) {
                *count -= 1;
                if *count == 0 {
                    self.by_resource.remove(resource);
                }
            }
        }
        Some(reserved)
    }

    fn remove_expired(&mut self, now: Instant) {
        while let Some((ends, name)) = self.by_end.first().copied()
            && ends <= now
        {
            // The permits of a dropped reservation stay taken.
            self.remove(name);
        }
    }
}

impl<P> Reservations<P> {
    pub(super) fn new(max: usize) -> Reservations<P> {
        Reservations { max, shares: CallerShares::new(max, PrincipalShare::default()), table: Mutex::default() }
    }

    fn table(&self) -> MutexGuard<'_, ReservationTable<P>> {
        self.table.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn remove_expired(&self) {
        self.table().remove_expired(Instant::now());
    }

    pub(super) fn count(&self) -> usize {
        self.table().by_name.len()
    }

    /// The number of reservations of a resource.
    pub(super) fn of(&self, resource: &str) -> usize {
        self.table().by_resource.get(resource).copied().unwrap_or_default()
    }

    /// Admits a reservation, unless the caller has its share of the table. It counts while it waits for permits, too.
    fn admit(&self, principal: Principal) -> Result<SharePermit, Problem> {
        self.remove_expired();
        self.shares.admit(principal).map_err(|_| {
            let why = format!(
                "too many unsettled reservations (each identity or address may use only a share of --max-reservations \
                 {}): settle some first",
                self.max
            );
            Problem::new(ProblemKind::NoRoom, why).in_word("too_many_reservations").retry_after(Duration::from_secs(1))
        })
    }

    fn add(&self, name: Name, reserved: Reserved<P>) {
        let mut table = self.table();
        table.by_end.insert((reserved.ends, name));
        for (resource, _) in &reserved.resources {
            *table.by_resource.entry(resource.clone()).or_default() += 1;
        }
        table.by_name.insert(name, reserved);
    }

    fn resources(&self, name: Name) -> Option<Vec<(String, Unit)>> {
        self.table().by_name.get(&name).map(|reserved| reserved.resources.clone())
    }

    /// The reservation that a request names, and its resources.
    pub(super) fn named(&self, name: &str) -> Result<(Name, Vec<(String, Unit)>), Problem> {
        let name = Some(name).filter(|name| name.len() == 32).and_then(|name| Name::from_str_radix(name, 16).ok());
        let name = name.ok_or_else(unknown)?;
        Ok((name, self.resources(name).ok_or_else(unknown)?))
    }

    /// Removes a reservation, unless it has expired.
    fn take(&self, name: Name) -> Option<Reserved<P>> {
        let mut table = self.table();
        table.remove_expired(Instant::now());
        table.remove(name)
    }
}

/// Takes permits or an amount, and adds a reservation.
pub(super) async fn reserve(
    gateway: &HttpGateway,
    caller: &HttpCaller,
    resource: &str,
    fields: &Fields,
) -> Result<HttpAnswer, Problem> {
    let share = gateway.reservations.admit(caller.principal())?;
    if let Some(amount) = fields.number_if_given("amount") {
        let entry = budgets::open(gateway, caller, resource, admission::patience_of(fields)).await?;
        let reservation = budgets::reserve(gateway, &entry, amount, fields).await?;
        let mut json = budgets::taken(entry.budget(), amount);
        let (name, lasts) = (new_name()?, lasts(fields));
        let resources = vec![(resource.to_owned(), Unit::Amount)];
        let permits = Held::Amount { reservation, entry };
        gateway.reservations.add(name, Reserved { resources, ends: Instant::now() + lasts, permits, _share: share });
        json["reservation"] = format!("{name:032x}").into();
        json["expires_in"] = lasts.as_secs_f64().into();
        let headers = located(HeaderMap::new(), &format!("{name:032x}/settle"));
        return Ok(HttpAnswer::of(StatusCode::CREATED, json).with(headers));
    }
    let entry = permits::open(gateway, caller, resource, fields).await?;
    let permits = permits::reserve(gateway, &entry, fields).await?;
    let (name, lasts) = (new_name()?, lasts(fields));
    let reserved = permits.reserved();
    let resources = vec![(resource.to_owned(), Unit::Permits)];
    let permits = Held::One(permits);
    gateway.reservations.add(name, Reserved { resources, ends: Instant::now() + lasts, permits, _share: share });
    let quota = permits::quota(&entry);
    let json = json!({
        "reservation": format!("{name:032x}"),
        "resource": resource,
        "permits": reserved,
        "expires_in": lasts.as_secs_f64(),
        "remaining": permits::or_null(quota.remaining),
        "capacity": permits::or_null(quota.per_second),
    });
    let headers = super::rate_limit_fields::fields(resource, quota);
    Ok(HttpAnswer::of(StatusCode::CREATED, json).with(located(headers, &format!("{name:032x}/settle"))))
}

/// Takes permits and amounts of several limits, or none, and adds a reservation.
pub(super) async fn reserve_all(
    gateway: &HttpGateway,
    caller: &HttpCaller,
    fields: &Fields,
) -> Result<HttpAnswer, Problem> {
    let share = gateway.reservations.admit(caller.principal())?;
    let permits = permits::reserve_all(gateway, caller, fields).await?;
    let (name, lasts, (limits, headers)) = (new_name()?, lasts(fields), permits.to_response());
    let resources = permits.resources().map(|(resource, unit)| (resource.to_owned(), unit)).collect();
    let permits = Held::Several(permits);
    gateway.reservations.add(name, Reserved { resources, ends: Instant::now() + lasts, permits, _share: share });
    let json = json!({
        "reservation": format!("{name:032x}"),
        "limits": limits,
        "expires_in": lasts.as_secs_f64(),
    });
    Ok(HttpAnswer::of(StatusCode::CREATED, json).with(located(headers, &format!("{name:032x}/settle_all"))))
}

fn new_name() -> Result<Name, Problem> {
    let mut bytes = [0; 16];
    getrandom::fill(&mut bytes).map_err(|_| {
        Problem::new(ProblemKind::NoRoom, "the operating system of this gateway provides no random bytes; retry")
    })?;
    Ok(Name::from_le_bytes(bytes))
}

fn lasts(fields: &Fields) -> Duration {
    Duration::from_secs_f64(fields.number("expires_in"))
}

/// Adds the path below `/v1/reservations` that settles the reservation.
fn located(mut headers: HeaderMap, path: &str) -> HeaderMap {
    if let Ok(location) = HeaderValue::try_from(format!("/v1/reservations/{path}")) {
        headers.insert(header::LOCATION, location);
    }
    headers
}

/// Settles a reservation.
pub(super) fn settle(gateway: &HttpGateway, name: &str, fields: &Fields) -> Result<HttpAnswer, Problem> {
    let (name, resources) = gateway.reservations.named(name)?;
    let [(resource, unit)] = &resources[..] else {
        return Err(of_other_kind(
            "reservation",
            &format!("covers {} limits; settle it with `settle_all`", resources.len()),
        ));
    };
    let used = fields.number("used");
    check_used(*unit, "used", used)?;
    let permits = gateway.reservations.take(name).ok_or_else(unknown)?.permits;
    let settled = permits.settle(gateway, resource, &[used])?;
    Ok(HttpAnswer::of(StatusCode::OK, settled[0].clone()))
}

impl Held {
    /// Settles each limit, and describes it. `used` has one number for each; `first` is the first resource.
    fn settle(self, gateway: &HttpGateway, first: &str, used: &[f64]) -> Result<Value, Problem> {
        match self {
            Held::Several(permits) => permits.settle(used),
            Held::One(permits) => {
                let (reserved, used) = (permits.reserved(), used[0] as u64);
                permits::check_debt(first, permits.settle(used))?;
                let debt = permits::debt(gateway, first);
                Ok(json!([{ "resource": first, "reserved": reserved, "used": used, "debt": debt }]))
            }
            Held::Amount { reservation, entry } => {
                let reserved = reservation.reserved();
                reservation.settle(used[0]).map_err(|_| super::closing())?;
                Ok(json!([budgets::settled(entry.budget(), reserved, used[0])]))
            }
        }
    }
}

/// Settles a reservation of several limits.
pub(super) fn settle_all(gateway: &HttpGateway, name: &str, fields: &Fields) -> Result<HttpAnswer, Problem> {
    let used: Vec<f64> = fields.list("limits").iter().map(|limit| limit.number("used")).collect();
    let (name, resources) = gateway.reservations.named(name)?;
    if resources.len() != used.len() {
        return Err(of_other_kind(
            "reservation",
            &format!(
                "covers {} limits, but `limits` has {}; give one element for each limit",
                resources.len(),
                used.len()
            ),
        ));
    }
    for (at, ((_, unit), used)) in resources.iter().zip(&used).enumerate() {
        check_used(*unit, &format!("limits[{at}].used"), *used)?;
    }
    let permits = gateway.reservations.take(name).ok_or_else(unknown)?.permits;
    let settled = permits.settle(gateway, &resources[0].0, &used)?;
    Ok(HttpAnswer::of(StatusCode::OK, json!({ "limits": settled })))
}

/// Checks a number of the field `name`: permits are whole. A number that suits another reservation is a conflict.
fn check_used(unit: Unit, name: &str, used: f64) -> Result<(), Problem> {
    if unit == Unit::Amount || (used.fract() == 0.0 && used <= MAX_PERMITS as f64) {
        return Ok(());
    }
    let why =
        format!("is {}, but permits were reserved; expected a whole number from 0 to {MAX_PERMITS}", readable(used));
    Err(of_other_kind(name, &why))
}

fn unknown() -> Problem {
    let why = "no such reservation at this gateway: it was settled, it has expired, or it was made at another gateway";
    Problem::new(ProblemKind::NoSuchReservation, why)
}

fn of_other_kind(field: &str, why: &str) -> Problem {
    Problem::of_field(ProblemKind::Conflict, field, why).in_word("other_reservation")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn reserve(reservations: &Reservations<()>, name: Name, principal: u32, lasts: Duration) -> Result<(), Problem> {
        let share = reservations.admit(Principal(principal))?;
        let (resources, ends) = (vec![(format!("r{principal}"), Unit::Permits)], Instant::now() + lasts);
        reservations.add(name, Reserved { resources, ends, permits: (), _share: share });
        Ok(())
    }

    #[tokio::test(start_paused = true)]
    async fn unsettled_reservations_expire() {
        let reservations = Reservations::new(10);
        for (name, secs) in [(1, 3), (2, 1), (3, 2)] {
            assert!(reserve(&reservations, name, 1, Duration::from_secs(secs)).is_ok());
        }
        tokio::time::advance(Duration::from_secs(2)).await;
        assert!(reservations.take(3).is_none(), "it has expired");
        assert_eq!((reservations.count(), reservations.of("r1")), (1, 1));
        assert!(reservations.take(1).is_some());
        assert!(reservations.take(1).is_none(), "it is settled");
        let table = reservations.table();
        assert!(table.by_end.is_empty() && table.by_resource.is_empty());
        assert_eq!(reservations.shares.used(), 0);
    }

    #[tokio::test(start_paused = true)]
    async fn one_address_leaves_room_for_others_and_the_table_is_bounded() {
        let reservations = Reservations::new(8);
        let mut name = 0;
        let mut add = |principal: u32| {
            name += 1;
            reserve(&reservations, name, principal, Duration::from_secs(10))
        };
        assert_eq!((0..20).filter(|_| add(1).is_ok()).count(), 7);
        assert!(add(2).is_ok());
        assert!(add(3).is_err_and(|problem| problem.kind == ProblemKind::NoRoom));
        tokio::time::advance(Duration::from_secs(10)).await;
        assert!(add(3).is_ok(), "the earlier ones have expired");
    }

    #[tokio::test]
    async fn reservations_that_wait_for_permits_count() {
        let reservations = Reservations::<()>::new(8);
        let waiting: Vec<SharePermit> = (0..20).filter_map(|_| reservations.admit(Principal(1)).ok()).collect();
        assert_eq!((waiting.len(), reservations.count()), (7, 0));
        assert!(reservations.admit(Principal(2)).is_ok());
        drop(waiting);
        assert!(reservations.admit(Principal(1)).is_ok());
    }
}
