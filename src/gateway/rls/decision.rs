//! Whether a request may pass, by the rules and by what the gateway holds. Nothing here waits.
//!
//! A request passes if it may by each of its descriptors. All are looked at before anything is taken from any, and a
//! request that is refused takes nothing: what one limit refuses costs nothing of the others.

use std::{cell::RefCell, sync::Arc};

use leaseway_client::Window;
use leaseway_core::Principal;
use leaseway_proto::envoy::ratelimit::{RateLimitDescriptor, RateLimitRequest, RateLimitResponse};
use smallvec::SmallVec;
use tonic::Status;

use super::{
    answer::{Answer, Descriptor},
    meters::Verdict,
    rules::{Domain, Limit, Matched, Rule, Rules},
    unit::Unit,
};
use crate::{
    lease_table::{LeaseEntry, LeaseTable, Taken},
    metrics, resource_id,
};

/// What a caller may ask for, and to whom what it opens is counted.
pub trait Asking {
    /// Whether it may ask for a resource.
    fn may_ask(&self, resource: &str) -> Result<(), Status>;
    /// To whom what it leaves behind is counted.
    fn principal(&self) -> Principal;
}

/// What becomes of a request.
#[derive(Debug)]
pub enum Decision {
    /// This is the answer.
    Answered(RateLimitResponse),
    /// To be decided again when these have their first lease, or have waited long enough for it.
    Awaits(Vec<Arc<LeaseEntry>>),
}

/// As many descriptors as requests commonly have.
const FEW: usize = 4;

/// In one request. Each is compared with all others.
const MAX_DESCRIPTORS: usize = 100;

/// More than this is as good as this: no limit is as large.
const MAX_HITS: u64 = u32::MAX as u64;

/// What a descriptor asks of a limit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Hits {
    Take(u32),
    /// Of nothing: whether there is anything.
    Look,
    GiveBack(u32),
    /// They were used already, and count in any case; the answer is as to [`Look`](Hits::Look).
    Charge(u32),
}

impl Hits {
    fn of(request: &RateLimitRequest, descriptor: &RateLimitDescriptor) -> Hits {
        let hits = descriptor.hits_addend.unwrap_or_else(|| u64::from(request.hits_addend.max(1)));
        match u32::try_from(hits.min(MAX_HITS)).unwrap_or(u32::MAX) {
            0 => Hits::Look,
            hits if descriptor.is_negative_hits => Hits::GiveBack(hits),
            hits => Hits::Take(hits),
        }
    }

    /// What has to be there.
    fn needed(self) -> f64 {
        match self {
            Hits::Take(hits) => hits.into(),
            Hits::Look | Hits::Charge(_) => 1.0,
            Hits::GiveBack(_) => f64::NEG_INFINITY,
        }
    }
}

/// A descriptor that is under a limit.
struct Limited<'r> {
    /// Its place in the request.
    place: usize,
    rule: &'r Rule,
    requests: u32,
    unit: Unit,
    hits: Hits,
    /// None: nothing passes, or there is no room for another resource.
    entry: Option<Arc<LeaseEntry>>,
    verdict: Verdict,
    /// Whether the request may pass, as far as this is concerned.
    passes: bool,
    /// Something was taken.
    has_taken: bool,
}

thread_local! {
    /// The id that is looked up: its memory is used again.
    static ID: RefCell<String> = const { RefCell::new(String::new()) };
}

/// Decides a request. `may_wait`: one that finds no lease is to come back when there may be one.
pub fn decide(
    rules: &Rules,
    lease_table: &LeaseTable,
    caller: &impl Asking,
    request: &RateLimitRequest,
    may_wait: bool,
) -> Result<Decision, Status> {
    if request.domain.is_empty() {
        return Err(Status::invalid_argument("`domain` is empty: it says which rules a request falls under"));
    }
    if request.descriptors.is_empty() {
        return Err(Status::invalid_argument("`descriptors` is empty: there is nothing to decide by"));
    }
    if request.descriptors.len() > MAX_DESCRIPTORS {
        let many = request.descriptors.len();
        let why = format!("`descriptors` has {many} elements, at most {MAX_DESCRIPTORS} are decided at once");
        return Err(Status::invalid_argument(why));
    }
    let Some(domain) = rules.domain(&request.domain) else {
        metrics::domain_unknown();
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
        if let (Some(entry), Hits::Charge(hits)) = (&limited.entry, limited.hits) {
            entry.charge(hits);
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
        Some(limited) => limited.told(),
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

/// The descriptors that are under a limit, with their resources.
fn limits<'r>(
    domain: &'r Domain,
    lease_table: &LeaseTable,
    caller: &impl Asking,
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
        let (verdict, passes, has_taken) = (Verdict::Ok, true, false);
        limited.push(Limited { place, rule, requests, unit, hits, entry, verdict, passes, has_taken });
    }
    Ok(limited)
}

fn open(lease_table: &LeaseTable, id: &str, requests: u32, unit: Unit, caller: Principal) -> Option<Arc<LeaseEntry>> {
    let length = unit.length();
    let window = Window { length, rate: f64::from(requests) / length.as_secs_f64() };
    if let Some(entry) = lease_table.find(id) {
        entry.keep_to(window);
        return Some(entry);
    }
    let opened = lease_table.open(id, window, caller);
    opened.inspect_err(|why| tracing::debug!(resource = id, "not opened: {why}")).ok()
}

/// Takes from all, or from none. Whether the request passes.
fn settle(lease_table: &LeaseTable, limited: &mut [Limited<'_>]) -> bool {
    // Alone, what is taken is looked at as well.
    let mut passes = limited.len() == 1;
    if !passes {
        let refusing = limited.iter_mut().filter_map(|limited| (!limited.look(lease_table)).then_some(()));
        passes = refusing.count() == 0;
    }
    for at in 0..limited.len() {
        if passes && !limited[at].take(lease_table) {
            // Another request was faster.
            passes = false;
            limited[..at].iter_mut().for_each(Limited::give_back);
        }
    }
    passes
}

impl Limited<'_> {
    /// What it has to wait for, if there is no lease and one may come.
    fn awaits_lease(&self) -> Option<Arc<LeaseEntry>> {
        self.entry.as_ref().filter(|entry| entry.awaits_first_lease()).map(|entry| {
            // So that it is asked for what comes.
            if let Hits::Take(hits) | Hits::Charge(hits) = self.hits {
                entry.press(hits);
            }
            Arc::clone(entry)
        })
    }

    /// Whether the request may pass, as far as this is concerned. Takes nothing.
    fn look(&mut self, lease_table: &LeaseTable) -> bool {
        let is_there = |entry: &Arc<LeaseEntry>| entry.standing().available >= self.hits.needed();
        match &self.entry {
            Some(entry) if is_there(entry) => true,
            // What is refused is wanted all the same: it counts where wants are estimated.
            _ => {
                let passes = self.take(lease_table);
                self.give_back();
                passes
            }
        }
    }

    /// Takes what it asks for. Whether the request may pass, as far as this is concerned.
    fn take(&mut self, lease_table: &LeaseTable) -> bool {
        let taken = match (&self.entry, self.hits) {
            (None, _) if self.requests == 0 => Taken::No,
            (None, _) => Taken::NoLease,
            (Some(entry), Hits::Take(hits)) => lease_table.try_take(entry, hits),
            (Some(entry), Hits::GiveBack(hits)) => {
                entry.rate().refund(hits.into());
                Taken::Yes
            }
            (Some(entry), Hits::Look | Hits::Charge(_)) => match entry.standing().available >= self.hits.needed() {
                true => Taken::Yes,
                false if entry.has_capacity() => Taken::No,
                false => Taken::NoLease,
            },
        };
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
        self.has_taken = taken == Taken::Yes && matches!(self.hits, Hits::Take(_));
        self.passes
    }

    fn give_back(&mut self) {
        if let (Some(entry), Hits::Take(hits)) = (&self.entry, self.hits)
            && std::mem::take(&mut self.has_taken)
        {
            entry.rate().refund(hits.into());
        }
    }

    fn told(&self) -> Descriptor<'_> {
        Descriptor::Limited {
            is_over: !self.passes,
            requests: self.requests,
            unit: self.unit,
            name: self.rule.name.as_deref(),
            standing: self.entry.as_ref().map(|entry| entry.standing()),
        }
    }
}
