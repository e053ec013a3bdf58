//! Decides whether a request passes, by the rules and the leases of the gateway. No function here waits.
//!
//! A request passes if all of its descriptors allow it. Permits of all of them are taken at the same moment, so that a
//! request that one limit refuses takes nothing from the others.

use std::{cell::RefCell, sync::Arc};

use leaseway_client::{Window, limiter::Claim};
use leaseway_core::types::Principal;
use leaseway_proto::envoy::ratelimit::{RateLimitDescriptor, RateLimitRequest, RateLimitResponse};
use leaseway_server::GrpcCaller;
use metrics::counter;
use smallvec::SmallVec;
use tonic::Status;

use super::{
    answer::{Answer, Descriptor},
    rules::{Domain, Limit, Matched, Rule, Rules, Unit, Verdict},
};
use crate::{
    lease_table::{LeaseEntry, LeaseTable},
    resource_id,
};

#[derive(Debug)]
pub enum Decision {
    Answered(RateLimitResponse),
    /// Decide again when these have their first lease, or after a timeout.
    Awaits(Vec<Arc<LeaseEntry>>),
}

/// The usual maximum number of descriptors in a request. More are allocated on the heap.
const FEW: usize = 4;

/// The maximum number of descriptors in a request. Each is compared with all others.
const MAX_DESCRIPTORS: usize = 100;

/// Larger numbers of hits are reduced to this, the largest limit that a rule can have.
const MAX_HITS: u64 = u32::MAX as u64;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Hits {
    Take(u32),
    /// 0 hits: only checks whether a permit is available.
    Check,
    /// Hits that are given back, even if the request is refused.
    Refund(u32),
    /// Hits that were used already. They are always charged; the answer is that of [`Check`](Hits::Check).
    Charge(u32),
}

impl Hits {
    fn of(request: &RateLimitRequest, descriptor: &RateLimitDescriptor) -> Hits {
        let hits = descriptor.hits_addend.unwrap_or_else(|| u64::from(request.hits_addend.max(1)));
        match u32::try_from(hits.min(MAX_HITS)).unwrap_or(u32::MAX) {
            0 => Hits::Check,
            hits if descriptor.is_negative_hits => Hits::Refund(hits),
            hits => Hits::Take(hits),
        }
    }

    /// The claim on the limit. `None` if any limit lets the request pass.
    fn claim(self) -> Option<Claim> {
        match self {
            Hits::Take(hits) => Some(Claim::of(hits)),
            Hits::Check | Hits::Charge(_) => Some(Claim { takes: 0, ..Claim::of(1) }),
            Hits::Refund(_) => None,
        }
    }
}

/// What the limit of a descriptor says.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Taken {
    Yes,
    /// Too few are available now.
    No,
    /// There is no lease, and no fallback.
    NoLease,
}

struct Limited<'r> {
    /// The index of the descriptor in the request.
    place: usize,
    rule: &'r Rule,
    requests: u32,
    unit: Unit,
    hits: Hits,
    /// None: the limit is 0, or no more resources may be opened.
    entry: Option<Arc<LeaseEntry>>,
    /// Whether the entry has a lease or a fallback.
    has_capacity: bool,
    verdict: Verdict,
    /// Whether this descriptor lets the request pass.
    passes: bool,
}

thread_local! {
    /// Reused for ids, to save allocations.
    static ID: RefCell<String> = const { RefCell::new(String::new()) };
}

/// Decides a request. With `may_wait`, a request whose first lease may still arrive is not decided yet
/// ([`Decision::Awaits`]).
pub fn decide(
    rules: &Rules,
    lease_table: &LeaseTable,
    caller: &GrpcCaller,
    request: &RateLimitRequest,
    may_wait: bool,
) -> Result<Decision, Status> {
    if request.domain.is_empty() {
        return Err(Status::invalid_argument("`domain` is empty: set the domain of a rule file"));
    }
    if request.descriptors.is_empty() {
        return Err(Status::invalid_argument("`descriptors` is empty: send at least one"));
    }
    if request.descriptors.len() > MAX_DESCRIPTORS {
        let many = request.descriptors.len();
        let why = format!("`descriptors` has {many} elements; the maximum is {MAX_DESCRIPTORS}");
        return Err(Status::invalid_argument(why));
    }
    let Some(domain) = rules.domain(&request.domain) else {
        counter!("leaseway_rls_unknown_domains_total").increment(1);
        return Ok(Decision::Answered(Answer::of(request, |_| Descriptor::Free).message()));
    };
    let matched: SmallVec<[Option<Matched<'_>>; FEW]> =
        request.descriptors.iter().map(|descriptor| domain.rule(entries(descriptor))).collect();
    let mut limited = limits(domain, lease_table, caller, request, &matched)?;
    if may_wait {
        let awaited: Vec<_> = limited.iter().filter_map(Limited::awaits_lease).collect();
        if !awaited.is_empty() {
            return Ok(Decision::Awaits(awaited));
        }
    }
    let passes = settle(lease_table, &mut limited);
    for limited in &limited {
        match (&limited.entry, limited.hits) {
            (Some(entry), Hits::Charge(hits)) => entry.charge(hits),
            (Some(entry), Hits::Refund(hits)) => entry.rate().refund(hits.into()),
            _ => {}
        }
        limited.rule.meters.count_of_rule(&limited.rule.path, limited.verdict);
    }
    let is_over = |limited: &Limited<'_>| limited.verdict == Verdict::OverLimit;
    domain.meters.count_of_domain(
        &domain.name,
        match passes {
            true => Verdict::Ok,
            false if limited.iter().any(is_over) => Verdict::OverLimit,
            false => Verdict::NoLease,
        },
    );
    let mut next = limited.iter().peekable();
    let answer = Answer::of(request, |place| match next.next_if(|limited| limited.place == place) {
        Some(limited) => limited.describe(),
        None => match matched[place].map(|matched| matched.rule.limit) {
            Some(Limit::Unlimited) => Descriptor::Unlimited,
            _ => Descriptor::Free,
        },
    });
    Ok(Decision::Answered(answer.message()))
}

fn entries(descriptor: &RateLimitDescriptor) -> impl Iterator<Item = (&str, &str)> {
    descriptor.entries.iter().map(|entry| (entry.key.as_str(), entry.value.as_str()))
}

/// The descriptors that have a limit, with their resources.
fn limits<'r>(
    domain: &'r Domain,
    lease_table: &LeaseTable,
    caller: &GrpcCaller,
    request: &RateLimitRequest,
    matched: &[Option<Matched<'r>>],
) -> Result<SmallVec<[Limited<'r>; FEW]>, Status> {
    let rules = matched.iter().map(|matched| matched.map(|matched| &**matched.rule));
    let mut limited = SmallVec::new();
    for (place, (descriptor, matched)) in request.descriptors.iter().zip(matched).enumerate() {
        let Some(Matched { rule, shares }) = *matched else { continue };
        let Limit::PerUnit { requests, unit } = rule.limit else { continue };
        if Rule::replaced(rules.clone(), rule.name.as_deref()) {
            continue;
        }
        let entry = match requests {
            0 => None,
            _ => ID.with_borrow_mut(|id| {
                match shares {
                    true => resource_id::write(id, &domain.name, domain.shared(entries(descriptor))),
                    false => resource_id::write(id, &domain.name, entries(descriptor)),
                }
                caller.may_ask(id)?;
                Ok::<_, Status>(open(lease_table, id, requests, unit, caller.principal()))
            })?,
        };
        let hits = match Hits::of(request, descriptor) {
            Hits::Take(hits) if entry.as_ref().is_some_and(|entry| entry.is_charged()) => Hits::Charge(hits),
            hits => hits,
        };
        let has_capacity = entry.as_ref().is_some_and(|entry| entry.has_capacity());
        let (verdict, passes) = (Verdict::Ok, true);
        limited.push(Limited { place, rule, requests, unit, hits, entry, has_capacity, verdict, passes });
    }
    Ok(limited)
}

fn open(lease_table: &LeaseTable, id: &str, requests: u32, unit: Unit, caller: Principal) -> Option<Arc<LeaseEntry>> {
    let length = unit.length();
    let window = Window { length, rate: f64::from(requests) / length.as_secs_f64() };
    if let Some(entry) = lease_table.find(id) {
        entry.set_window(window);
        return Some(entry);
    }
    let opened = lease_table.open(id, window, caller);
    opened.inspect_err(|why| tracing::debug!(resource = id, "resource not opened: {why}")).ok()
}

/// Takes permits from all, or from none. Returns whether the request passes.
fn settle(lease_table: &LeaseTable, limited: &mut [Limited<'_>]) -> bool {
    for limited in limited.iter_mut().filter(|limited| limited.entry.is_none()) {
        limited.conclude(lease_table, limited.taken_without_entry());
    }
    let is_vetoed = limited.iter().any(|limited| !limited.passes);
    let claimed = limited.iter().filter_map(|limited| limited.claim(lease_table));
    let (entries, mut claims): (SmallVec<[_; FEW]>, SmallVec<[_; FEW]>) = claimed.unzip();
    let passes = lease_table.try_take_all(&entries, &mut claims, is_vetoed);
    drop(entries);
    let mut claims = claims.iter();
    for limited in limited.iter_mut().filter(|limited| limited.claim(lease_table).is_some()) {
        match claims.next().map(|claim| claim.outcome) {
            Some(Ok(())) | None => {}
            Some(Err(_)) if limited.has_capacity => limited.conclude(lease_table, Taken::No),
            Some(Err(_)) => limited.conclude(lease_table, Taken::NoLease),
        }
    }
    passes
}

impl Limited<'_> {
    /// The entry to wait for, if the first lease may still arrive.
    fn awaits_lease(&self) -> Option<Arc<LeaseEntry>> {
        self.entry.as_ref().filter(|entry| entry.awaits_first_lease()).map(|entry| {
            // So that the first request to the cluster asks for enough.
            if let Hits::Take(hits) | Hits::Charge(hits) = self.hits {
                entry.add_wants(hits);
            }
            Arc::clone(entry)
        })
    }

    /// What the request claims of the entry, if there is one and the hits claim anything.
    fn claim(&self, lease_table: &LeaseTable) -> Option<(&Arc<LeaseEntry>, Claim)> {
        let entry = self.entry.as_ref()?;
        let passes_anyway = self.rule.shadow || (lease_table.passes_without_lease() && !self.has_capacity);
        self.hits.claim().map(|claim| (entry, Claim { is_binding: !passes_anyway, ..claim }))
    }

    fn taken_without_entry(&self) -> Taken {
        match self.hits {
            Hits::Refund(_) => Taken::Yes,
            _ if self.requests == 0 => Taken::No,
            _ => Taken::NoLease,
        }
    }

    /// Notes what the limit says.
    fn conclude(&mut self, lease_table: &LeaseTable, taken: Taken) {
        let is_enough = match taken {
            Taken::Yes => true,
            Taken::No => false,
            Taken::NoLease => lease_table.passes_without_lease(),
        };
        self.verdict = match taken {
            Taken::NoLease => Verdict::NoLease,
            Taken::Yes => Verdict::Ok,
            Taken::No if self.rule.shadow => Verdict::Shadow,
            Taken::No => Verdict::OverLimit,
        };
        self.passes = is_enough || self.rule.shadow;
    }

    fn describe(&self) -> Descriptor<'_> {
        Descriptor::Limited {
            is_over: !self.passes,
            requests: self.requests,
            unit: self.unit,
            name: self.rule.name.as_deref(),
            standing: self.entry.as_ref().map(|entry| entry.standing()),
        }
    }
}
