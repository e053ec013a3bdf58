//! Decides whether a request passes, by the rules and the leases of the gateway. No function here waits.
//!
//! A request passes if all of its descriptors allow it; of those with a quota, one is enough. Permits of all of them
//! are taken at the same moment, so that a request that one limit refuses takes nothing from the others.

use std::{cell::RefCell, sync::Arc};

use leaseway_client::{
    Window,
    limiter::{Binding, Claim},
};
use leaseway_proto::envoy::ratelimit::{RateLimitDescriptor, RateLimitRequest, RateLimitResponse};
use leaseway_server::GrpcCaller;
use metrics::counter;
use smallvec::SmallVec;
use tonic::Status;

use super::{
    answer::{AnswerOptions, Decided, Descriptor},
    current::{CurrentRules, NotedLimit},
    rules::{self, Domain, Limit, Matched, RequestLimit, Rule, Rules, Unit, Verdict},
    stats,
};
use crate::{
    lease_table::{LeaseEntry, LeaseTable, NoLease},
    resource_id,
};

#[derive(Debug)]
pub enum Decision {
    Answered(RateLimitResponse),
    /// Decide again when these have their first lease, or after a timeout.
    Awaits(Vec<Arc<LeaseEntry>>),
    /// Decide again when the cluster has templates for the limits that the request brings, or after a timeout.
    Undeclared,
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
    /// The end of a request that took `held` hits and used others. The difference is charged or given back.
    Settle {
        held: u32,
        used: u32,
    },
}

/// The key of the entry that makes a descriptor [settle](Hits::Settle). Its value is the number of hits that the
/// request has taken before. Rules and resources are found without this entry.
const SETTLE: &str = "leaseway.settle";

impl Hits {
    fn of(request: &RateLimitRequest, index: usize) -> Result<Hits, Status> {
        let descriptor = &request.descriptors[index];
        let hits = descriptor.hits_addend.unwrap_or_else(|| u64::from(request.hits_addend.max(1)));
        let hits = u32::try_from(hits.min(MAX_HITS)).unwrap_or(u32::MAX);
        let settles = descriptor.entries.iter().position(|entry| entry.key == SETTLE);
        Ok(match (settles, hits) {
            (Some(at), used) => {
                let held = descriptor.entries[at].value.parse().map_err(|_| {
                    let field = format!("descriptors[{index}].entries[{at}].value");
                    Status::invalid_argument(format!(
                        "`{field}` of `{SETTLE}`: expected the number of hits that the request has taken before"
                    ))
                })?;
                Hits::Settle { held, used }
            }
            (None, 0) => Hits::Check,
            (None, hits) if descriptor.is_negative_hits => Hits::Refund(hits),
            (None, hits) => Hits::Take(hits),
        })
    }

    /// The hits that statistics count.
    fn taken(self) -> u64 {
        match self {
            Hits::Take(hits) | Hits::Charge(hits) => hits.into(),
            Hits::Check | Hits::Refund(_) => 0,
            Hits::Settle { held, used } => used.saturating_sub(held).into(),
        }
    }

    /// The claim on the limit. `None` if any limit lets the request pass.
    fn claim(self) -> Option<Claim> {
        match self {
            Hits::Take(hits) => Some(Claim::of(hits)),
            Hits::Check | Hits::Charge(_) => Some(Claim { takes: 0, ..Claim::of(1) }),
            Hits::Refund(_) | Hits::Settle { .. } => None,
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
    index: usize,
    matched: Matched<'r>,
    requests: u32,
    unit: Unit,
    hits: Hits,
    /// One of several quotas is enough.
    is_quota: bool,
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

/// Decides requests by the rules in force.
pub struct Decider<'a> {
    pub current: &'a CurrentRules,
    /// The rules of `current`.
    pub rules: &'a Rules,
    pub lease_table: &'a LeaseTable,
    pub options: &'a AnswerOptions,
}

/// The descriptors of a request that have a limit, and whether a descriptor without one counts as a quota that passes.
struct Limits<'r> {
    limited: SmallVec<[Limited<'r>; FEW]>,
    has_free_quota: bool,
}

impl Decider<'_> {
    /// Decides a request. With `may_wait`, a request whose first lease may still arrive is not decided yet
    /// ([`Decision::Awaits`]).
    pub fn decide(&self, caller: &GrpcCaller, request: &RateLimitRequest, may_wait: bool) -> Result<Decision, Status> {
        check(request)?;
        let Some(domain) = self.rules.domain(&request.domain) else {
            counter!("leaseway_rls_unknown_domains_total").increment(1);
            let descriptors = request.descriptors.iter().map(|_| Descriptor::Free).collect();
            let decided =
                Decided { request, descriptors, refusing: Vec::new(), metadata: Vec::new(), held: Vec::new() };
            return Ok(Decision::Answered(decided.message(self.options)));
        };
        if may_wait && self.has_new_limits(domain, request) {
            return Ok(Decision::Undeclared);
        }
        let matched: SmallVec<[Option<Matched<'_>>; FEW]> =
            request.descriptors.iter().map(|descriptor| domain.matched(descriptor)).collect();
        let Limits { mut limited, has_free_quota } = self.limits(domain, caller, request, &matched)?;
        if may_wait {
            let awaited: Vec<_> = limited.iter().filter_map(Limited::awaits_lease).collect();
            if !awaited.is_empty() {
                return Ok(Decision::Awaits(awaited));
            }
        }
        let refusing = self.take_permits(&mut limited, has_free_quota);
        self.count(domain, request, &limited, &refusing);
        let mut next = limited.iter().peekable();
        let descriptors =
            (0..request.descriptors.len()).map(|index| match next.next_if(|limited| limited.index == index) {
                Some(limited) => limited.describe(),
                None => match matched[index].map(|matched| matched.rule.limit) {
                    Some(Limit::Unlimited) => Descriptor::Unlimited,
                    _ => Descriptor::Free,
                },
            });
        let descriptors = descriptors.collect();
        let passing = limited.iter().filter(|limited| limited.passes);
        let metadata = passing.filter_map(|limited| limited.matched.rule.metadata.as_ref()).collect();
        let held = limited.iter().filter(|limited| limited.passes && limited.entry.is_some());
        let held = held.filter_map(|limited| match limited.hits {
            Hits::Take(hits) => Some((limited.index, hits)),
            _ => None,
        });
        let decided = Decided { request, descriptors, held: held.collect(), refusing, metadata };
        Ok(Decision::Answered(decided.message(self.options)))
    }

    /// Notes the limits that descriptors bring with them. Returns whether some of them are new.
    fn has_new_limits(&self, domain: &Domain, request: &RateLimitRequest) -> bool {
        let brought = request.descriptors.iter().filter_map(|descriptor| {
            let own = descriptor.limit.as_ref().filter(|own| own.requests_per_unit > 0)?;
            let (domain, requests) = (Arc::clone(&domain.name), own.requests_per_unit);
            Some(RequestLimit { domain, requests, unit: Unit::of_wire(own.unit())? })
        });
        let new = brought.filter(|own| self.current.note_request_limit(own.clone()) == NotedLimit::New);
        new.count() > 0
    }

    /// The descriptors that have a limit, with their resources.
    fn limits<'r>(
        &self,
        domain: &'r Domain,
        caller: &GrpcCaller,
        request: &RateLimitRequest,
        matched: &[Option<Matched<'r>>],
    ) -> Result<Limits<'r>, Status> {
        let rules = matched.iter().map(|matched| matched.map(|matched| &**matched.rule));
        let (mut limited, mut has_free_quota) = (SmallVec::new(), false);
        for (index, (descriptor, matched)) in request.descriptors.iter().zip(matched).enumerate() {
            let unlimited =
                |matched: &Matched<'_>| descriptor.limit.is_none() && matched.rule.limit == Limit::Unlimited;
            if matched.as_ref().is_some_and(unlimited) {
                continue;
            }
            let kept = matched.filter(|matched| !Rule::replaced(rules.clone(), matched.rule.name.as_deref()));
            let Some(matched) = kept else {
                has_free_quota |= self.options.quota_mode;
                continue;
            };
            let (requests, unit) = limit_of(index, descriptor, &matched)?;
            let entry = self.entry(domain, caller, descriptor, &matched, (requests, unit))?;
            let is_charged = says_hits(request, index) && entry.as_ref().is_some_and(|entry| entry.is_charged());
            let hits = match Hits::of(request, index)? {
                Hits::Take(hits) if is_charged => Hits::Charge(hits),
                hits => hits,
            };
            let has_capacity = entry.as_ref().is_some_and(|entry| entry.has_capacity());
            let is_quota = matched.rule.quota || self.options.quota_mode;
            let (verdict, passes) = (Verdict::Ok, true);
            limited.push(Limited {
                index,
                matched,
                requests,
                unit,
                hits,
                is_quota,
                entry,
                has_capacity,
                verdict,
                passes,
            });
        }
        Ok(Limits { limited, has_free_quota })
    }

    /// The resource of a descriptor.
    fn entry(
        &self,
        domain: &Domain,
        caller: &GrpcCaller,
        descriptor: &RateLimitDescriptor,
        matched: &Matched<'_>,
        (requests, unit): (u32, Unit),
    ) -> Result<Option<Arc<LeaseEntry>>, Status> {
        if requests == 0 {
            return Ok(None);
        }
        let own = descriptor.limit.is_some().then(|| RequestLimit { domain: Arc::clone(&domain.name), requests, unit });
        ID.with_borrow_mut(|id| {
            match &own {
                // Requests with another limit, and those without one, have other resources.
                Some(own) => resource_id::write_marked(id, &domain.name, &own.mark(), entries(descriptor)),
                None if matched.shares => resource_id::write(id, &domain.name, domain.shared(entries(descriptor))),
                None => resource_id::write(id, &domain.name, entries(descriptor)),
            }
            caller.may_ask(id)?;
            let length = unit.length();
            let window = Window { length, rate: f64::from(requests) / length.as_secs_f64(), slides: true };
            if let Some(entry) = self.lease_table.find(id) {
                entry.set_window(window);
                return Ok(Some(entry));
            }
            if own.is_some_and(|own| self.current.note_request_limit(own) == NotedLimit::TooMany) {
                tracing::debug!(resource = id, "resource not opened: requests have too many different limits");
                return Ok(None);
            }
            let opened = self.lease_table.open(id, window, caller.principal());
            Ok(opened.inspect_err(|why| tracing::debug!(resource = id, "resource not opened: {why}")).ok())
        })
    }

    /// Takes permits from all, or from none. Returns the descriptors that refuse the request.
    fn take_permits(&self, limited: &mut [Limited<'_>], has_free_quota: bool) -> Vec<usize> {
        for limited in limited.iter_mut().filter(|limited| limited.entry.is_none()) {
            limited.conclude(self.lease_table, limited.taken_without_entry());
        }
        let passes_anyway = |limited: &Limited<'_>| match limited.claims() {
            true => limited.passes_anyway(self.lease_table),
            false => limited.passes,
        };
        let mut quotas = limited.iter().filter(|limited| limited.is_quota);
        let quota_passes = has_free_quota || quotas.clone().any(passes_anyway);
        let is_quota_lost = !quota_passes && quotas.clone().count() > 0 && !quotas.any(Limited::claims);
        let is_lost = |limited: &Limited<'_>| !limited.is_quota && !limited.claims() && !limited.passes;
        let is_vetoed = !self.options.shadow_mode && (is_quota_lost || limited.iter().any(is_lost));
        let claimed = limited.iter().filter_map(|limited| {
            let binding = match limited.is_quota {
                _ if self.options.shadow_mode || passes_anyway(limited) => Binding::Never,
                true if quota_passes => Binding::Never,
                true => Binding::OneOf,
                false => Binding::Always,
            };
            limited.entry.as_ref().zip(limited.hits.claim().map(|claim| Claim { binding, ..claim }))
        });
        let (entries, mut claims): (SmallVec<[_; FEW]>, SmallVec<[_; FEW]>) = claimed.unzip();
        self.lease_table.try_take_all(&entries, &mut claims, is_vetoed);
        drop(entries);
        let mut claims = claims.iter();
        for limited in limited.iter_mut().filter(|limited| limited.claims()) {
            match claims.next().map(|claim| claim.outcome) {
                Some(Ok(())) | None => {}
                Some(Err(_)) if limited.has_capacity => limited.conclude(self.lease_table, Taken::No),
                Some(Err(_)) => limited.conclude(self.lease_table, Taken::NoLease),
            }
        }
        let quota_passes = quota_passes || limited.iter().any(|limited| limited.is_quota && limited.passes);
        let refuses = |limited: &&Limited<'_>| !(limited.passes || limited.is_quota && quota_passes);
        limited.iter().filter(refuses).map(|limited| limited.index).collect()
    }

    /// Charges, refunds and counts after the decision.
    fn count(&self, domain: &Domain, request: &RateLimitRequest, limited: &[Limited<'_>], refusing: &[usize]) {
        for Limited { index, matched: Matched { rule, has_own_metric, .. }, entry, hits, verdict, .. } in limited {
            match (entry, *hits) {
                (Some(entry), Hits::Charge(hits)) => entry.charge(hits),
                (Some(entry), Hits::Refund(hits)) => entry.rate().refund(hits.into()),
                (Some(entry), Hits::Settle { held, used }) if used > held => entry.charge(used - held),
                (Some(entry), Hits::Settle { held, used }) => entry.rate().refund((held - used).into()),
                _ => {}
            }
            let by_value = has_own_metric
                .then(|| domain.metric_path(entries(&request.descriptors[*index]), rule.detailed))
                .filter(|path| rules::count_by_value(path, *verdict));
            if by_value.is_none() {
                rule.meters.count_of_rule(&rule.path, *verdict);
            }
            if let Some(stats) = stats::kept() {
                let path = by_value.as_deref().unwrap_or(&rule.path);
                stats.count(path, hits.taken(), *verdict, entry.as_ref().map(|entry| entry.standing()));
            }
        }
        let is_over =
            |limited: &Limited<'_>| limited.verdict == Verdict::OverLimit && refusing.contains(&limited.index);
        let verdict = match () {
            () if refusing.is_empty() => Verdict::Ok,
            () if self.options.shadow_mode => Verdict::Shadow,
            () if limited.iter().any(is_over) => Verdict::OverLimit,
            () => Verdict::NoLease,
        };
        domain.meters.count_of_domain(&domain.name, verdict);
    }
}

fn check(request: &RateLimitRequest) -> Result<(), Status> {
    let many = request.descriptors.len();
    let why = match many {
        _ if request.domain.is_empty() => "`domain` is empty: set the domain of a rule file".to_owned(),
        0 => "`descriptors` is empty: send at least one".to_owned(),
        _ if many > MAX_DESCRIPTORS => format!("`descriptors` has {many} elements; the maximum is {MAX_DESCRIPTORS}"),
        _ => return Ok(()),
    };
    Err(Status::invalid_argument(why))
}

/// Whether the request says how many hits the descriptor takes. A report about usage does, because it has the real
/// cost; a request that only counts as one may not.
fn says_hits(request: &RateLimitRequest, index: usize) -> bool {
    request.hits_addend > 0 || request.descriptors[index].hits_addend.is_some()
}

fn entries(descriptor: &RateLimitDescriptor) -> impl Iterator<Item = (&str, &str)> {
    let entries = descriptor.entries.iter().map(|entry| (entry.key.as_str(), entry.value.as_str()));
    entries.filter(|(key, _)| *key != SETTLE)
}

/// The limit of a descriptor: its own, else that of its rule.
fn limit_of(index: usize, descriptor: &RateLimitDescriptor, matched: &Matched<'_>) -> Result<(u32, Unit), Status> {
    match (&descriptor.limit, matched.rule.limit) {
        (Some(own), _) => match Unit::of_wire(own.unit()) {
            Some(unit) => Ok((own.requests_per_unit, unit)),
            None => Err(Status::invalid_argument(format!(
                "`descriptors[{index}].limit.unit` is {}: send a unit from SECOND to YEAR",
                own.unit
            ))),
        },
        (None, Limit::PerUnit { requests, unit }) => Ok((requests, unit)),
        (None, Limit::Unlimited) => Err(Status::internal("a rule without a limit was not skipped")),
    }
}

impl Domain {
    /// The rule for a descriptor. One that brings a limit of its own needs no other.
    fn matched(&self, descriptor: &RateLimitDescriptor) -> Option<Matched<'_>> {
        match descriptor.limit {
            Some(_) => Some(Matched { rule: &self.of_requests, shares: false, has_own_metric: false }),
            None => self.rule(entries(descriptor)),
        }
    }
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

    /// Whether there is an entry, and the hits claim something of it.
    fn claims(&self) -> bool {
        self.entry.is_some() && self.hits.claim().is_some()
    }

    /// Whether a shortage of permits does not matter.
    fn passes_anyway(&self, lease_table: &LeaseTable) -> bool {
        self.matched.rule.shadow || (lease_table.passes_without_lease() && !self.has_capacity)
    }

    fn taken_without_entry(&self) -> Taken {
        match self.hits {
            Hits::Refund(_) | Hits::Settle { .. } => Taken::Yes,
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
        if taken == Taken::NoLease {
            lease_table.note_without_lease(self.entry.as_ref().map_or(NoLease::NoRoom, |entry| entry.no_lease()));
        }
        let is_shadow = self.matched.rule.shadow;
        self.verdict = match taken {
            Taken::NoLease => Verdict::NoLease,
            Taken::Yes => Verdict::Ok,
            Taken::No if is_shadow => Verdict::Shadow,
            Taken::No => Verdict::OverLimit,
        };
        self.passes = is_enough || is_shadow;
    }

    fn describe(&self) -> Descriptor<'_> {
        Descriptor::Limited {
            is_over: !self.passes,
            is_tolerated: self.verdict == Verdict::Shadow,
            requests: self.requests,
            unit: self.unit,
            name: self.matched.rule.name.as_deref(),
            standing: self.entry.as_ref().map(|entry| entry.standing()),
        }
    }
}
