//! The examples of the algorithms page, to the digit.

use super::harness::{ask, birth, has, now_at, one};
use crate::{
    policy::settings::{AlgorithmKind, Settings},
    resource::{Answer, Lease, Request, Resource},
    types::{amount::Amount, time::Millis},
};

/// What each client has once all have refreshed a few times.
fn converged(kind: AlgorithmKind, wants: &[f64]) -> Vec<f64> {
    let mut resource = Resource::new(birth(Settings::new(kind, Amount::clamped(120.0))));
    let mut leases: Vec<Option<Lease>> = vec![None; wants.len()];
    for pass in 0..4u64 {
        for (n, wants) in wants.iter().enumerate() {
            let now = now_at(Millis::from_secs(16 * pass));
            let request = ask(&format!("c{n}"), *wants, leases[n].as_ref().map(has));
            match one(&mut resource, now, Request::Ask(request)) {
                Answer::Granted(lease) => leases[n] = Some(lease),
                other => panic!("{other:?}"),
            }
        }
    }
    leases.into_iter().flatten().map(|lease| lease.capacity.get()).collect()
}

#[test]
fn no_algorithm() {
    assert_eq!(converged(AlgorithmKind::NoAlgorithm, &[100.0, 10.0, 1000.0]), [100.0, 10.0, 1000.0]);
}

#[test]
fn static_capacity_is_per_client() {
    assert_eq!(converged(AlgorithmKind::Static, &[50.0, 200.0, 300.0]), [50.0, 120.0, 120.0]);
}

#[test]
fn proportional_share() {
    let shares = converged(AlgorithmKind::ProportionalShare, &[1000.0, 50.0, 10.0]);
    let digits: Vec<String> = shares.iter().map(|share| format!("{share:.9}")).collect();
    assert_eq!(digits, ["69.690721649", "40.309278351", "10.000000000"]);
}

#[test]
fn fair_share() {
    assert_eq!(converged(AlgorithmKind::FairShare, &[1000.0, 50.0, 10.0]), [60.0, 50.0, 10.0]);
}
