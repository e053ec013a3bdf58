//! envoyproxy/ratelimit and a gateway decide the same requests by the same random rules. They may differ only as
//! docs/guide/envoy.md says.

mod draw;
mod model;

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    path::Path,
    time::{SystemTime, UNIX_EPOCH},
};

use fastrand::Rng;
use leaseway_gateway::rls::{
    file,
    rules::{RequestLimit, Unit},
    templates,
};
use leaseway_proto::envoy::ratelimit::{RateLimitRequest, rate_limit_response::rate_limit};

use self::{
    draw::Domain,
    model::{Answer, Differences, Model},
};
use crate::harness::{
    config::ConfigFile,
    gateway::Gateway,
    ratelimit::Ratelimit,
    rls::{Answered as _, RlsCaller, descriptor, request},
    server::Server,
    wait::block_on,
};

const SEED: u64 = 45;
const REQUESTS: usize = 10_000;
const PER_DOMAIN: usize = 50;
/// More than are needed: a domain is left out if a window of the original ended meanwhile.
const DOMAINS: usize = REQUESTS / PER_DOMAIN + 50;

/// All requests of a domain must be decided within this time in seconds, so that no permit is refilled: the largest
/// limit has six permits per hour.
const MAX_SECONDS: u64 = 300;

const OURS: Differences = Differences {
    refused_takes_nothing: true,
    negative_gives_back: true,
    zero_needs_one: true,
    own_limits_apart: true,
    quotas_refuse: true,
};

fn now() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_secs()
}

/// A server with the capacities of the rules, whose leases do not change during the test, and a gateway.
fn ours(rules: &Path) -> (ConfigFile, Server, Gateway) {
    let loaded = file::load(&[rules.to_owned()], false).unwrap();
    assert_eq!(loaded.warnings, []);
    let mut own = BTreeSet::new();
    for domain in loaded.rules.domains() {
        for (requests, unit) in draw::OWN_LIMITS.into_iter().filter(|(requests, _)| *requests > 0) {
            own.insert(RequestLimit { domain: domain.name.clone(), requests, unit: Unit::of_wire(unit).unwrap() });
        }
    }
    let text = templates::resources(&loaded.rules, &own);
    let steady = "lease_length: 3600, refresh_interval: 600, learning_mode_duration: 0, \
                  parameters: [{name: min_request_interval, value: 0}]}";
    let text = [60, 120]
        .iter()
        .fold(text, |text, lease| text.replace(&format!("lease_length: {lease}, refresh_interval: 5}}"), steady));
    let config = ConfigFile::new(&text);
    let server = Server::with_config(&config);
    let servers = [server.grpc().to_string()];
    let gateway = Gateway::with_directory(&servers, rules.to_str().unwrap(), &[]);
    (config, server, gateway)
}

/// Whether this version of the original refuses requests whose quotas are all over.
fn quotas_refuse(original: &RlsCaller) -> bool {
    !original.ask(request("probe", &[descriptor(&[("quota", "x")])])).passes()
}

const PROBE: &str = "
domain: probe
descriptors: [{key: quota, quota_mode: true, rate_limit: {unit: day, requests_per_unit: 0}}]
";

/// The models of the original, of the original with one of the differences, and of a gateway.
struct Models {
    original: Model,
    ours: Model,
    by_kind: Vec<(&'static str, Model)>,
}

impl Models {
    fn new(original: Differences) -> Models {
        let kinds = [
            ("a refused request takes nothing", Differences { refused_takes_nothing: true, ..original }),
            ("negative hits are given back", Differences { negative_gives_back: true, ..original }),
            ("0 hits need a permit that is left", Differences { zero_needs_one: true, ..original }),
            ("a limit in a request is counted apart", Differences { own_limits_apart: true, ..original }),
            ("all quotas over refuse a request", Differences { quotas_refuse: true, ..original }),
        ];
        let by_kind = kinds.into_iter().filter(|(_, with)| *with != original);
        let by_kind = by_kind.map(|(name, with)| (name, Model::new(with))).collect();
        Models { original: Model::new(original), ours: Model::new(OURS), by_kind }
    }

    /// The decisions of the original and of a gateway, and which difference alone leads from one to the other.
    fn decide(&mut self, domain: &Domain, request: &RateLimitRequest, now: u64) -> (Answer, Answer, &'static str) {
        let original = self.original.decide(domain, request, now);
        let ours = self.ours.decide(domain, request, now);
        let mut kind = "several differences together";
        for (name, model) in &mut self.by_kind {
            if model.decide(domain, request, now).is_over == ours.is_over && ours.is_over != original.is_over {
                kind = *name;
            }
        }
        (original, ours, kind)
    }
}

#[derive(Default)]
struct Tally {
    requests: usize,
    refused: usize,
    left_out: usize,
    differences: BTreeMap<&'static str, usize>,
}

#[test]
#[cfg_attr(not(ratelimit), ignore = "needs LEASEWAY_TEST_RATELIMIT, and redis-server")]
fn a_gateway_decides_as_envoyproxy_ratelimit() {
    let mut random = Rng::with_seed(SEED);
    let domains: Vec<Domain> = (0..DOMAINS).map(|number| draw::domain(&mut random, number)).collect();
    let root = tempfile::tempdir().unwrap();
    let rules = root.path().join("rules/config");
    fs::create_dir_all(&rules).unwrap();
    for domain in &domains {
        fs::write(rules.join(format!("{}.yaml", domain.name)), domain.yaml()).unwrap();
    }
    fs::write(rules.join("probe.yaml"), PROBE).unwrap();
    let original = Ratelimit::start(root.path());
    let (_config, _server, gateway) = ours(&rules);
    let callers = [original.caller(), gateway.caller()];
    let there = Differences { quotas_refuse: quotas_refuse(&callers[0]), ..Differences::default() };
    let mut tally = Tally::default();
    for domain in &domains {
        if tally.requests < REQUESTS {
            let requests = domain.requests(&mut random, PER_DOMAIN);
            compare(domain, &requests, &callers, there, &mut tally);
        }
    }
    let differing: usize = tally.differences.values().sum();
    eprintln!(
        "{} requests, {} refused by the original, {differing} decided differently",
        tally.requests, tally.refused
    );
    eprintln!("domains left out because a window ended: {}", tally.left_out);
    tally.differences.iter().for_each(|(kind, count)| eprintln!("{count:5} {kind}"));
    assert!(tally.requests >= REQUESTS, "too many domains were left out; the original says:\n{}", original.log());
}

/// Sends the requests to both, and compares the answers with the models.
fn compare(
    domain: &Domain,
    requests: &[RateLimitRequest],
    [original, ours]: &[RlsCaller; 2],
    there: Differences,
    tally: &mut Tally,
) {
    let began = now();
    let answers = requests.iter().map(|request| {
        let ask = |caller: &RlsCaller| Answer::of(&block_on(caller.should_rate_limit(request.clone())).unwrap());
        (ask(original), ask(ours))
    });
    let answers: Vec<_> = answers.collect();
    let hour = model::length(rate_limit::Unit::Hour);
    if began / hour != now() / hour || now() - began > MAX_SECONDS {
        tally.left_out += 1;
        return;
    }
    let mut models = Models::new(there);
    for (at, (request, (original, ours))) in requests.iter().zip(answers).enumerate() {
        let (of_original, of_ours, kind) = models.decide(domain, request, began);
        let shown = || format!("request {at}: {request:#?}\n{}", domain.yaml());
        assert_eq!(original, of_original, "envoyproxy/ratelimit (left), its model (right); {}", shown());
        assert_eq!(ours, of_ours, "the gateway (left), its model (right); {}", shown());
        tally.requests += 1;
        tally.refused += usize::from(original.is_over);
        if original.is_over != ours.is_over {
            *tally.differences.entry(kind).or_default() += 1;
        }
    }
}
