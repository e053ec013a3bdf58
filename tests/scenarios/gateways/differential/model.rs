//! The decisions of envoyproxy/ratelimit, and the differences of a gateway, each of which can be set.

use std::collections::HashMap;

use leaseway_proto::envoy::ratelimit::{
    RateLimitDescriptor, RateLimitRequest, RateLimitResponse,
    rate_limit_response::{Code, rate_limit::Unit},
};

use super::draw::{Domain, Rule, is_exact};

/// How a gateway differs from envoyproxy/ratelimit. All are in docs/guide/envoy.md.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Differences {
    /// A refused request takes nothing. There, it is counted at all of its limits.
    pub(super) refused_takes_nothing: bool,
    /// `is_negative_hits` gives hits back. There, they are counted like others.
    pub(super) negative_gives_back: bool,
    /// 0 hits pass if a permit is left. There, they pass until the limit is exceeded.
    pub(super) zero_needs_one: bool,
    /// A limit in a request is counted for itself. There, it shares the counter of the rule.
    pub(super) own_limits_apart: bool,
    /// A request is refused if all of its quotas are over. Before its version of 2026-04, no quota refused a request
    /// there.
    pub(super) quotas_refuse: bool,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Answer {
    pub(super) is_over: bool,
    statuses: Vec<Status>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
struct Status {
    is_over: bool,
    /// Number, unit and name.
    limit: Option<(u32, i32, String)>,
    /// None if it depends on the time.
    remaining: Option<u32>,
}

pub(super) struct Model {
    differences: Differences,
    counts: HashMap<Key, u64>,
}

/// What is counted: the entries of a descriptor with the patterns that share a counter, and what tells limits of the
/// same entries apart.
type Key = (Vec<(String, String)>, u64);

/// A descriptor with a limit.
struct Limited<'d> {
    index: usize,
    key: Key,
    requests: u32,
    unit: Unit,
    name: &'d str,
    shadow: bool,
    quota: bool,
    hits: u64,
    gives_back: bool,
    is_over: bool,
    remaining: u32,
}

struct Found<'d> {
    rule: &'d Rule,
    entries: Vec<(String, String)>,
}

impl Answer {
    pub(super) fn of(response: &RateLimitResponse) -> Answer {
        let statuses = response.statuses.iter().map(|status| {
            let limit = status.current_limit.as_ref();
            let is_exact = limit.is_none_or(|limit| is_exact(limit.unit()));
            Status {
                is_over: status.code() == Code::OverLimit,
                limit: limit.map(|limit| (limit.requests_per_unit, limit.unit, limit.name.clone())),
                remaining: is_exact.then_some(status.limit_remaining),
            }
        });
        Answer { is_over: response.overall_code() == Code::OverLimit, statuses: statuses.collect() }
    }
}

impl Model {
    pub(super) fn new(differences: Differences) -> Model {
        Model { differences, counts: HashMap::new() }
    }

    /// Decides a request at a time in seconds since the Unix epoch.
    pub(super) fn decide(&mut self, domain: &Domain, request: &RateLimitRequest, now: u64) -> Answer {
        // A descriptor with a limit of its own has no rule.
        let find = |descriptor: &RateLimitDescriptor| match descriptor.limit {
            Some(_) => None,
            None => find(&domain.rules, descriptor),
        };
        let found: Vec<_> = request.descriptors.iter().map(find).collect();
        let rules = || found.iter().flatten().filter_map(|found| found.rule.limit.as_ref());
        let replaced: Vec<&String> = rules().flat_map(|limit| &limit.replaces).collect();
        let mut limited: Vec<Limited<'_>> = Vec::new();
        let mut statuses = Vec::new();
        for (index, (descriptor, found)) in request.descriptors.iter().zip(&found).enumerate() {
            let limit = self.limited(index, request, descriptor, found.as_ref(), now);
            let limit = limit.filter(|limit| limit.name.is_empty() || !replaced.iter().any(|name| *name == limit.name));
            let is_unlimited =
                |found: &Found<'_>| found.rule.limit.as_ref().is_some_and(|limit| limit.per_unit.is_none());
            let remaining = if found.as_ref().is_some_and(is_unlimited) { u32::MAX } else { 0 };
            statuses.push(Status { is_over: false, limit: None, remaining: Some(remaining) });
            limited.extend(limit);
        }
        let is_over = self.count(&mut limited);
        for Limited { index, requests, unit, name, is_over, remaining, shadow, quota, .. } in limited {
            statuses[index] = Status {
                is_over: is_over && !shadow && (!quota || self.differences.quotas_refuse),
                limit: Some((requests, unit.into(), name.to_owned())),
                remaining: is_exact(unit).then_some(remaining),
            };
        }
        Answer { is_over, statuses }
    }

    fn limited<'d>(
        &self,
        index: usize,
        request: &RateLimitRequest,
        descriptor: &RateLimitDescriptor,
        found: Option<&Found<'d>>,
        now: u64,
    ) -> Option<Limited<'d>> {
        let sent = || descriptor.entries.iter().map(|entry| (entry.key.clone(), entry.value.clone())).collect();
        let (requests, unit, name, shadow, quota, entries) = match &descriptor.limit {
            Some(own) => (own.requests_per_unit, own.unit(), "", false, false, sent()),
            None => {
                let Found { rule, entries } = found?;
                let limit = rule.limit.as_ref()?;
                let (requests, unit) = limit.per_unit?;
                (requests, unit, &*limit.name, rule.shadow, rule.quota, entries.clone())
            }
        };
        let apart = match &descriptor.limit {
            Some(own) if self.differences.own_limits_apart => {
                1 + u64::from(own.requests_per_unit) * 10 + own.unit as u64
            }
            None if self.differences.own_limits_apart => 0,
            _ => window_start(unit, now),
        };
        let hits = descriptor.hits_addend.unwrap_or_else(|| request.hits_addend.max(1).into());
        let gives_back = descriptor.is_negative_hits && hits > 0 && self.differences.negative_gives_back;
        let (is_over, remaining, key) = (false, 0, (entries, apart));
        Some(Limited { index, key, requests, unit, name, shadow, quota, hits, gives_back, is_over, remaining })
    }

    /// Counts the hits. Returns whether the request is refused.
    fn count(&mut self, limited: &mut [Limited<'_>]) -> bool {
        let Differences { refused_takes_nothing, zero_needs_one, quotas_refuse, .. } = self.differences;
        let before = self.counts.clone();
        for limited in limited.iter_mut() {
            let count = self.counts.entry(limited.key.clone()).or_default();
            let needs = limited.hits.max(u64::from(zero_needs_one));
            limited.is_over = !limited.gives_back && *count + needs > u64::from(limited.requests);
            if !(limited.gives_back || limited.is_over && refused_takes_nothing) {
                *count += limited.hits;
            }
            limited.remaining = left(limited, *count);
        }
        let refuses = |limited: &&Limited<'_>| limited.is_over && !limited.shadow;
        let of = |quota| limited.iter().filter(move |limited| limited.quota == quota);
        let all_quotas = of(true).count() > 0 && of(true).filter(refuses).count() == of(true).count();
        let is_over = of(false).any(|limited| refuses(&limited)) || (quotas_refuse && all_quotas);
        if is_over && refused_takes_nothing {
            self.counts = before;
        }
        for limited in limited.iter().filter(|limited| limited.gives_back) {
            let count = self.counts.entry(limited.key.clone()).or_default();
            *count = count.saturating_sub(limited.hits);
        }
        if refused_takes_nothing {
            // The statuses are made after all descriptors have taken their permits.
            for limited in limited.iter_mut() {
                limited.remaining = left(limited, self.counts.get(&limited.key).copied().unwrap_or_default());
            }
        }
        is_over
    }
}

fn left(limited: &Limited<'_>, count: u64) -> u32 {
    if limited.is_over { 0 } else { limited.requests.saturating_sub(u32::try_from(count).unwrap()) }
}

fn window_start(unit: Unit, now: u64) -> u64 {
    let length = length(unit);
    now / length * length
}

pub(super) fn length(unit: Unit) -> u64 {
    const DAY: u64 = 86_400;
    match unit {
        Unit::Unknown | Unit::Second => 1,
        Unit::Minute => 60,
        Unit::Hour => 3_600,
        Unit::Day => DAY,
        Unit::Week => 7 * DAY,
        Unit::Month => 30 * DAY,
        Unit::Year => 365 * DAY,
    }
}

/// The rule for a descriptor.
fn find<'d>(rules: &'d [Rule], descriptor: &RateLimitDescriptor) -> Option<Found<'d>> {
    let (mut level, mut last, mut entries) = (rules, None, Vec::new());
    for entry in &descriptor.entries {
        let mut of_key = level.iter().filter(|rule| rule.key == entry.key);
        let is_exact = |rule: &&Rule| !rule.value.is_empty() && rule.value == entry.value;
        let is_like = |rule: &&Rule| rule.value.strip_suffix('*').is_some_and(|prefix| entry.value.starts_with(prefix));
        let rule = of_key
            .clone()
            .find(is_exact)
            .or_else(|| of_key.clone().find(is_like))
            .or_else(|| of_key.find(|rule| rule.value.is_empty()))?;
        let value = if rule.shares { rule.value.to_owned() } else { entry.value.clone() };
        entries.push((entry.key.clone(), value));
        (level, last) = (&rule.below, Some(rule));
    }
    Some(Found { rule: last?, entries })
}
