//! Recorded behaviour of the Go server (`data/doorman.jsonl`): the grants of each client after all have repeated their
//! requests until nothing changes. Intermediate grants may differ.

use std::collections::BTreeMap;

use serde_json::Value;

use super::harness::{ask, has, now_at, options};
use crate::{
    allocation::division::tests::water_filling,
    policy::settings::{AlgorithmKind, Reuse, Settings},
    resource::{Answer, Lease, Release, Request, Resource, RoundScratch},
    types::{Amount, Claim, Claims, HolderKind, Millis},
};

struct Vector {
    id: String,
    algorithm: String,
    capacity: f64,
    steps: Vec<Value>,
    converged: Vec<(String, f64)>,
}

fn number(value: &Value) -> f64 {
    value.as_f64().expect("a number")
}

fn text(value: &Value) -> String {
    value.as_str().expect("a string").to_owned()
}

fn vectors(algorithm: &str) -> Vec<Vector> {
    let lines = include_str!("data/doorman.jsonl").lines().skip(1);
    let parsed = lines.map(|line| serde_json::from_str::<Value>(line).expect("a JSON line"));
    let vectors = parsed.filter(|vector| vector["algorithm"] == algorithm).map(|vector| Vector {
        id: text(&vector["id"]),
        algorithm: text(&vector["algorithm"]),
        capacity: number(&vector["capacity"]),
        steps: vector["steps"].as_array().expect("steps").clone(),
        converged: vector["converged"]
            .as_array()
            .expect("a converged state")
            .iter()
            .map(|pair| (text(&pair[0]), number(&pair[1])))
            .collect(),
    });
    vectors.collect()
}

fn kind(algorithm: &str) -> AlgorithmKind {
    // Vectors of learning mode were recorded with this algorithm.
    AlgorithmKind::ALL.into_iter().find(|kind| kind.name() == algorithm).unwrap_or(AlgorithmKind::FairShare)
}

/// The wants and subclients of each holder after the last step, and the final capacity.
fn demand(vector: &Vector) -> (f64, BTreeMap<String, Claim>) {
    let (mut capacity, mut claims) = (vector.capacity, BTreeMap::new());
    for step in &vector.steps {
        match step[0].as_str() {
            Some("get") => {
                let subclients = step[4].as_u64().expect("subclients") as u32;
                let wants = Amount::clamped(number(&step[3]));
                claims.insert(text(&step[1]), Claim::new(wants, subclients, 0));
            }
            Some("release") => drop(claims.remove(step[1].as_str().expect("a client"))),
            Some("capacity") => capacity = number(&step[1]),
            other => panic!("unknown step {other:?}"),
        }
    }
    (capacity, claims)
}

/// Replays the steps, and then lets all holders refresh until leases settle.
fn play(vector: &Vector, reuse: Reuse) -> BTreeMap<String, f64> {
    let mut settings = Settings::new(kind(&vector.algorithm), Amount::clamped(vector.capacity));
    settings.reuse = reuse;
    let mut resource = Resource::new(options(settings));
    let mut leases: BTreeMap<String, Lease> = BTreeMap::new();
    let mut clock = 0;
    let mut get = |resource: &mut Resource, leases: &mut BTreeMap<String, Lease>, id: &str, claim: Claim| {
        clock += 10;
        let mut request = ask(id, 0.0, leases.get(id).map(has));
        request.claims = Claims::from_slice(&[claim]);
        let mut answers = Vec::new();
        resource.round(
            now_at(Millis(clock)),
            &mut vec![Request::Ask(request)],
            &mut answers,
            &mut RoundScratch::default(),
        );
        if let Answer::Granted(lease) = answers[0] {
            leases.insert(id.to_owned(), lease);
        }
    };
    for step in &vector.steps {
        let id = step[1].as_str().unwrap_or_default();
        match step[0].as_str() {
            Some("get") => {
                let subclients = step[4].as_u64().expect("subclients") as u32;
                let claim = Claim::new(Amount::clamped(number(&step[3])), subclients, 0);
                get(&mut resource, &mut leases, id, claim);
            }
            Some("release") => {
                leases.remove(id);
                let release =
                    Release { kind: HolderKind::Client, id: id.into(), token: None, instance: None, spent: None };
                resource.round(
                    now_at(Millis(0)),
                    &mut vec![Request::Release(release)],
                    &mut Vec::new(),
                    &mut RoundScratch::default(),
                );
            }
            _ => {
                let mut settings = resource.settings().clone();
                settings.capacity = Amount::clamped(number(&step[1]));
                resource.configure(settings);
            }
        }
    }
    let mut settings = resource.settings().clone();
    settings.min_request_interval = Millis(0);
    resource.configure(settings);
    let (_, claims) = demand(vector);
    for _ in 0..4 {
        for (id, claim) in &claims {
            get(&mut resource, &mut leases, id, *claim);
        }
    }
    leases.into_iter().map(|(id, lease)| (id, lease.capacity.get())).collect()
}

fn same(ours: f64, theirs: f64) -> bool {
    (ours - theirs).abs() <= theirs.abs() * 1e-6 + 1e-13
}

/// Ids of the vectors whose converged grants differ from the Go server's.
fn differing(algorithm: &str) -> Vec<String> {
    let mut differing = Vec::new();
    for reuse in [Reuse::Confirmed, Reuse::Prompt] {
        for vector in vectors(algorithm) {
            let ours = play(&vector, reuse);
            let all = vector.converged.iter().all(|(id, theirs)| same(ours[id], *theirs));
            if !(all && ours.len() == vector.converged.len()) {
                differing.push(vector.id);
            }
        }
    }
    differing.sort();
    differing.dedup();
    differing
}

#[test]
fn proportional_share_converges_to_what_the_go_server_grants() {
    assert_eq!(vectors("PROPORTIONAL_SHARE").len(), 76);
    assert_eq!(differing("PROPORTIONAL_SHARE"), [""; 0]);
}

#[test]
fn no_algorithm_and_static_grant_what_the_go_server_grants() {
    assert_eq!(differing("NO_ALGORITHM"), [""; 0]);
    assert_eq!(differing("STATIC"), [""; 0]);
}

/// This implementation is exact max-min fairness. The Go server stops after two redistributions, measures others by the
/// asking client's share if numbers of subclients differ, and does not limit the last share to the wants.
#[test]
fn fair_share_differs_from_the_go_server_only_where_that_is_not_exact() {
    for reuse in [Reuse::Confirmed, Reuse::Prompt] {
        for vector in vectors("FAIR_SHARE") {
            let (capacity, claims) = demand(&vector);
            let exact = water_filling(capacity, &claims.values().copied().collect::<Vec<_>>());
            let ours = play(&vector, reuse);
            for ((id, claim), exact) in claims.iter().zip(exact) {
                assert!(same(ours[id], exact), "{}: {id} {claim:?} has {}, exact {exact}", vector.id, ours[id]);
            }
        }
    }
    let inexact = ["FAIR_SHARE/random-06", "FAIR_SHARE/random-14", "FAIR_SHARE/random-15", "FAIR_SHARE/sub-100"];
    assert_eq!(differing("FAIR_SHARE"), inexact);
}
