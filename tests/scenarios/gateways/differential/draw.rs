//! Random rules, and requests for them. All is drawn from one seed.

use fastrand::Rng;
use leaseway_proto::envoy::ratelimit::{
    RateLimitDescriptor, RateLimitRequest,
    rate_limit_descriptor::{Entry, RateLimitOverride},
    rate_limit_response::rate_limit::Unit,
};

pub(super) struct Domain {
    pub(super) name: String,
    pub(super) rules: Vec<Rule>,
}

pub(super) struct Rule {
    pub(super) key: &'static str,
    /// Empty: all values. With a `*` at its end: a prefix.
    pub(super) value: &'static str,
    pub(super) limit: Option<Limit>,
    pub(super) shadow: bool,
    pub(super) quota: bool,
    pub(super) shares: bool,
    pub(super) below: Vec<Rule>,
}

pub(super) struct Limit {
    /// None: unlimited.
    pub(super) per_unit: Option<(u32, Unit)>,
    pub(super) name: String,
    pub(super) replaces: Vec<String>,
}

/// Windows that outlast the test.
const LONG: [Unit; 5] = [Unit::Hour, Unit::Day, Unit::Week, Unit::Month, Unit::Year];
/// Windows within which a limit would be refilled, so these limits are never reached.
const SHORT: [Unit; 2] = [Unit::Second, Unit::Minute];
const NEVER_REACHED: u32 = 4_000_000;

const KEYS: [&str; 3] = ["a", "b", "c"];
const VALUES: [&str; 7] = ["", "", "x", "y", "x*", "xy*", "*"];
const SENT: [&str; 6] = ["x", "xy", "xyz", "y", "z", ""];

/// Limits that requests bring with them. A gateway follows 256 different ones of all domains.
pub(super) const OWN_LIMITS: [(u32, Unit); 2] = [(3, Unit::Day), (0, Unit::Minute)];

/// A limit whose permits are counted exactly.
pub(super) fn is_exact(unit: Unit) -> bool {
    !SHORT.contains(&unit)
}

pub(super) fn domain(random: &mut Rng, number: usize) -> Domain {
    let mut names = 0;
    let count = random.usize(2..6);
    Domain { name: format!("d{number}"), rules: rules(random, count, 2, &mut names) }
}

fn rules(random: &mut Rng, count: usize, depth: usize, names: &mut usize) -> Vec<Rule> {
    let mut rules: Vec<Rule> = Vec::new();
    for _ in 0..count {
        let (key, value) = (KEYS[random.usize(..KEYS.len())], VALUES[random.usize(..VALUES.len())]);
        if rules.iter().any(|rule| (rule.key, rule.value) == (key, value)) {
            continue;
        }
        let limit = (random.u8(..10) < 8).then(|| limit(random, names));
        let of_limit = |chance: u8, random: &mut Rng| limit.is_some() && random.u8(..100) < chance;
        let (shadow, quota) = (of_limit(15, random), of_limit(25, random));
        let shares = value.ends_with('*') && random.bool();
        let more = if depth > 0 && random.u8(..10) < 4 { random.usize(1..3) } else { 0 };
        let below = rules_below(random, more, depth, names);
        rules.push(Rule { key, value, limit, shadow, quota, shares, below });
    }
    rules
}

fn rules_below(random: &mut Rng, count: usize, depth: usize, names: &mut usize) -> Vec<Rule> {
    if count == 0 { Vec::new() } else { rules(random, count, depth - 1, names) }
}

fn limit(random: &mut Rng, names: &mut usize) -> Limit {
    let per_unit = match random.u8(..20) {
        0 | 1 => None,
        2 | 3 => Some((0, LONG[random.usize(..LONG.len())])),
        4 => Some((NEVER_REACHED, SHORT[random.usize(..SHORT.len())])),
        _ => Some((random.u32(1..7), LONG[random.usize(..LONG.len())])),
    };
    *names += 1;
    // A rule replaces those before it, because these exist.
    let replaces = (*names > 1 && random.u8(..10) < 2).then(|| format!("n{}", random.usize(1..*names)));
    Limit { per_unit, name: format!("n{names}"), replaces: replaces.into_iter().collect() }
}

impl Domain {
    pub(super) fn yaml(&self) -> String {
        let mut text = format!("domain: {}\ndescriptors:\n", self.name);
        self.rules.iter().for_each(|rule| rule.write(0, &mut text));
        text
    }

    /// A pool of requests, of which many are sent several times.
    pub(super) fn requests(&self, random: &mut Rng, number: usize) -> Vec<RateLimitRequest> {
        let mut pool: Vec<_> = (0..8).map(|_| self.request(random)).collect();
        // Some of them with another limit.
        for at in 0..3 {
            let mut request: RateLimitRequest = pool[at].clone();
            request.descriptors[0].limit = Some(own_limit(random));
            pool.push(request);
        }
        (0..number).map(|_| pool[random.usize(..pool.len())].clone()).collect()
    }

    fn request(&self, random: &mut Rng) -> RateLimitRequest {
        let descriptors = (0..random.usize(1..4)).map(|_| descriptor(random)).collect();
        let hits_addend = if random.u8(..10) < 8 { 0 } else { random.u32(1..4) };
        RateLimitRequest { domain: self.name.clone(), descriptors, hits_addend }
    }
}

fn descriptor(random: &mut Rng) -> RateLimitDescriptor {
    let entries = match random.u8(..10) {
        0..6 => 1,
        6..9 => 2,
        _ => 3,
    };
    let entry = |_| {
        let (key, value) = (KEYS[random.usize(..KEYS.len())], SENT[random.usize(..SENT.len())]);
        Entry { key: key.to_owned(), value: value.to_owned() }
    };
    let entries = (0..entries).map(entry).collect();
    let hits_addend = match random.u8(..20) {
        0 => Some(0),
        1..4 => Some(random.u64(1..5)),
        _ => None,
    };
    RateLimitDescriptor {
        entries,
        limit: (random.u8(..16) == 0).then(|| own_limit(random)),
        hits_addend,
        is_negative_hits: random.u8(..25) == 0,
    }
}

fn own_limit(random: &mut Rng) -> RateLimitOverride {
    let (requests_per_unit, unit) = OWN_LIMITS[random.usize(..OWN_LIMITS.len())];
    RateLimitOverride { requests_per_unit, unit: unit.into() }
}

impl Rule {
    fn write(&self, indent: usize, text: &mut String) {
        let Rule { key, value, limit, shadow, quota, shares, below } = self;
        let mut line = |more: usize, line: &str| *text += &format!("{:1$}{line}\n", "", indent + more);
        line(0, &format!("- key: {key}"));
        if !value.is_empty() {
            line(2, &format!("value: '{value}'"));
        }
        for (flag, is_set) in [("shadow_mode", shadow), ("quota_mode", quota), ("share_threshold", shares)] {
            if *is_set {
                line(2, &format!("{flag}: true"));
            }
        }
        if let Some(Limit { per_unit, name, replaces }) = limit {
            let limit = match per_unit {
                Some((requests, unit)) => format!("unit: {}, requests_per_unit: {requests}", unit.as_str_name()),
                None => "unlimited: true".to_owned(),
            };
            let replaces: Vec<_> = replaces.iter().map(|name| format!("{{name: {name}}}")).collect();
            line(2, &format!("rate_limit: {{{limit}, name: {name}, replaces: [{}]}}", replaces.join(", ")));
        }
        if !below.is_empty() {
            line(2, "descriptors:");
            below.iter().for_each(|rule| rule.write(indent + 2, text));
        }
    }
}
