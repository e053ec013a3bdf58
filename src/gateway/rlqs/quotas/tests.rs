//! Single steps. The simulator runs many Envoys against sessions and masters.

use super::*;

fn settings() -> QuotaSettings {
    QuotaSettings { assignment_secs: 10, idle: Millis(60_000), first_wants: 10.0, max_buckets: 3 }
}

fn bucket(name: &str) -> Bucket<String> {
    Bucket { id: name.to_owned(), resource: format!("shop/route={name}").into() }
}

fn usage(secs: u64, allowed: u64, denied: u64) -> Usage {
    Usage { elapsed: Millis::from_secs(secs), allowed, denied }
}

/// The leases of a session.
#[derive(Debug, Default)]
struct FakeLeases {
    leases: BTreeMap<Arc<str>, Lease>,
    wants: BTreeMap<Arc<str>, f64>,
    in_use: BTreeMap<Arc<str>, f64>,
}

impl FakeLeases {
    fn lease(&mut self, name: &str, capacity: f64, end: u64) {
        self.leases.insert(bucket(name).resource, Lease { capacity, end: Millis(end) });
    }
}

impl Leases for FakeLeases {
    fn want(&mut self, resource: &Arc<str>, wants: f64) {
        self.wants.insert(Arc::clone(resource), wants);
    }

    fn hold(&mut self, resource: &Arc<str>, in_use: f64) -> Option<Lease> {
        self.in_use.insert(Arc::clone(resource), in_use);
        self.leases.get(resource).copied()
    }

    fn release(&mut self, resource: &Arc<str>) {
        self.wants.remove(resource);
        self.in_use.remove(resource);
    }
}

struct Harness {
    quotas: EnvoyQuotas<String>,
    leases: FakeLeases,
}

impl Harness {
    fn connected() -> Harness {
        let mut quotas = EnvoyQuotas::new(settings(), Millis(0));
        quotas.connected(Millis(0));
        Harness { quotas, leases: FakeLeases::default() }
    }

    fn report(&mut self, at: u64, name: &str, usage: &Usage) -> bool {
        self.quotas.reported(Millis(at), bucket(name), usage, &mut self.leases)
    }

    fn poll(&mut self, at: u64) -> Vec<Option<(Quota, u32)>> {
        self.quotas
            .poll(Millis(at), &mut self.leases, true)
            .into_iter()
            .map(|Action { assignment, .. }| assignment)
            .collect()
    }

    fn wants(&self, name: &str) -> Option<f64> {
        self.leases.wants.get(&bucket(name).resource).copied()
    }

    fn in_use(&self, name: &str) -> Option<f64> {
        self.leases.in_use.get(&bucket(name).resource).copied()
    }

    /// An assignment of 40 for ten seconds, at time 0.
    fn assigned() -> Harness {
        let mut harness = Harness::connected();
        assert!(harness.report(0, "a", &usage(0, 0, 1)));
        harness.leases.lease("a", 40.5, 60_000);
        assert_eq!(harness.poll(0), [Some((Quota::PerSecond(40), 10))]);
        harness
    }
}

#[test]
fn the_first_report_subscribes_and_an_assignment_comes_with_the_lease() {
    let mut harness = Harness::connected();
    assert!(harness.report(0, "a", &usage(0, 0, 1)));
    assert_eq!(harness.wants("a"), Some(10.0), "there is no estimate yet");
    assert_eq!(harness.poll(0), []);
    harness.leases.lease("a", 7.9, 60_000);
    assert_eq!(harness.poll(100), [Some((Quota::PerSecond(7), 10))]);
    assert_eq!(harness.poll(101), [], "the assignment was sent");
}

#[test]
fn an_assignment_is_extended_while_half_of_it_is_left_and_replaced_at_once() {
    let mut harness = Harness::assigned();
    assert_eq!(harness.quotas.wake(Millis(0)), Some(Millis(5_000)));
    assert_eq!(harness.poll(4_999), []);
    assert_eq!(harness.poll(5_000), [Some((Quota::PerSecond(40), 10))]);
    harness.leases.lease("a", 20.0, 60_000);
    assert_eq!(harness.poll(5_001), [Some((Quota::PerSecond(20), 10))]);
}

#[test]
fn no_assignment_outlasts_its_lease() {
    let mut harness = Harness::connected();
    harness.report(0, "a", &usage(0, 0, 1));
    harness.leases.lease("a", 40.0, 5_999);
    assert_eq!(harness.poll(0), [Some((Quota::PerSecond(40), 4))], "whole seconds, less one for transit");
    assert_eq!(harness.poll(3_000), []);
    harness.leases.lease("a", 40.0, 5_999 + 60_000);
    assert_eq!(harness.poll(3_250), [Some((Quota::PerSecond(40), 10))], "it has been renewed");
    let mut harness = Harness::connected();
    harness.report(0, "a", &usage(0, 0, 1));
    harness.leases.lease("a", 40.0, 1_999);
    assert_eq!(harness.poll(0), []);
}

#[test]
fn an_assignment_counts_as_in_use_until_it_expires() {
    let mut harness = Harness::assigned();
    assert_eq!(harness.in_use("a"), Some(40.0));
    harness.leases.lease("a", 10.0, 60_000);
    harness.poll(2_000);
    assert_eq!(harness.in_use("a"), Some(40.0), "the smaller assignment may be lost");
    harness.report(5_000, "a", &usage(5, 50, 0));
    let over = 10_000 + TRANSIT.0;
    assert!(harness.quotas.wake(Millis(9_000)) <= Some(Millis(over)));
    for (at, in_use) in [(over - 1, 40.0), (over, 10.0)] {
        harness.poll(at);
        assert_eq!(harness.in_use("a"), Some(in_use));
    }
}

#[test]
fn assignments_outlive_the_stream_and_then_all_is_released() {
    let mut harness = Harness::assigned();
    harness.quotas.disconnected(Millis(1_000));
    harness.poll(1_000);
    assert_eq!((harness.in_use("a"), harness.wants("a")), (Some(40.0), Some(10.0)), "it may reconnect");
    harness.poll(10_999);
    assert_eq!(harness.in_use("a"), Some(40.0));
    assert_eq!((harness.poll(11_000), harness.in_use("a"), harness.quotas.is_finished()), (vec![], None, true));
}

#[test]
fn a_stopped_gateway_releases_as_soon_as_assignments_expire() {
    let mut harness = Harness::assigned();
    harness.poll(9_000);
    assert_eq!(harness.in_use("a"), Some(40.0));
    harness.quotas.stopped(Millis(19_000));
    harness.poll(19_999);
    assert_eq!(harness.in_use("a"), Some(40.0), "its last assignment is of 9 s");
    assert_eq!((harness.poll(20_000), harness.in_use("a")), (vec![], None));
}

#[test]
fn assignments_are_sent_again_after_a_reconnect() {
    let mut harness = Harness::assigned();
    harness.quotas.disconnected(Millis(1_000));
    harness.quotas.connected(Millis(4_000));
    assert_eq!(harness.poll(4_000), [], "it may have forgotten the bucket");
    harness.report(4_001, "a", &usage(5, 10, 0));
    assert_eq!(harness.poll(4_001), [Some((Quota::PerSecond(40), 10))]);
}

/// An Envoy that connects at 100 s and has had 100 requests per second at another gateway.
fn from_another_gateway() -> Harness {
    let mut harness = Harness::connected();
    harness.quotas.connected(Millis(100_000));
    assert!(harness.report(100_000, "a", &usage(5, 500, 50)));
    harness
}

#[test]
fn all_that_is_held_for_an_envoy_of_another_gateway_counts_as_in_use_at_first() {
    let mut harness = from_another_gateway();
    assert_eq!(harness.wants("a"), Some(121.0), "estimated from its first report");
    harness.leases.lease("a", 100.0, 160_000);
    assert_eq!(harness.poll(100_010), [Some((Quota::PerSecond(100), 10))]);
    let over = 100_000 + settings().max_assignment_span().0;
    for (at, in_use) in [(100_010, f64::INFINITY), (over - 1, f64::INFINITY), (over, 100.0)] {
        harness.poll(at);
        assert_eq!(harness.in_use("a"), Some(in_use), "at {at}");
    }
}

#[test]
fn assignments_of_another_gateway_are_not_denied_while_they_last() {
    let mut harness = from_another_gateway();
    harness.leases.lease("a", 0.0, 160_000);
    assert_eq!(harness.poll(100_010), []);
    assert_eq!(harness.poll(110_999), []);
    assert_eq!(harness.poll(111_000), [Some((Quota::Nothing, 10))]);
}

#[test]
fn an_envoy_stays_longer_after_a_regular_report_than_after_that_of_a_new_bucket() {
    let (first, regular) = (usage(0, 0, 1), usage(5, 0, 0));
    assert_eq!(
        stay_after_report(true, [&first].into_iter()),
        STAY_AFTER_REPORT,
        "the next regular report comes five seconds later"
    );
    assert_eq!(stay_after_report(false, [&regular].into_iter()), STAY_AFTER_REPORT);
    assert_eq!(
        stay_after_report(false, [&first, &first].into_iter()),
        STAY_AFTER_REPORT,
        "new buckets are reported one by one"
    );
    assert_eq!(stay_after_report(false, [&first].into_iter()), TRANSIT);
}

#[test]
fn an_idle_bucket_is_abandoned_and_released_when_its_assignment_expires() {
    let mut harness = Harness::assigned();
    for at in 1..=12 {
        harness.report(at * 5_000, "a", &usage(5, 0, 0));
        harness.leases.lease("a", 1.0, 100_000);
        let sent = harness.poll(at * 5_000);
        assert_eq!(sent.contains(&None), at == 12, "{sent:?} at {at}");
    }
    assert_eq!(harness.wants("a"), Some(0.0));
    harness.report(60_010, "a", &usage(0, 0, 1));
    assert_eq!(harness.poll(60_010), [Some((Quota::PerSecond(1), 10))], "a request arrived meanwhile");
    harness.poll(75_009);
    assert_eq!(harness.in_use("a"), Some(1.0));
    assert_eq!(harness.poll(75_010), [None], "there are no more reports");
    harness.poll(86_009);
    assert_eq!((harness.in_use("a"), harness.quotas.buckets()), (None, 0));
}

#[test]
fn buckets_beyond_the_maximum_are_refused() {
    let mut harness = Harness::connected();
    let room = ["a", "b", "c", "d", "a"].map(|name| harness.report(0, name, &usage(0, 0, 1)));
    assert_eq!(room, [true, true, true, false, true]);
}

#[test]
fn wants_follow_the_offered_rate() {
    let mut harness = Harness::assigned();
    let mut at = 0;
    let mut report = |secs, allowed, denied| {
        at += 5_000;
        harness.report(at, "a", &usage(secs, allowed, denied));
        harness.wants("a").expect("there are wants")
    };
    assert_eq!(report(5, 200, 800), 215.0, "200, and a margin for chance");
    assert_eq!(report(5, 200, 1_000_000), 420.0, "denied callers retry");
    assert_eq!(report(4, 500, 0), 258.0, "4.999 s are reported as 4 s; a fall counts by half");
    let later = [(); 5].map(|()| report(5, 500, 0));
    assert_eq!(later, [103.0, 102.0, 101.0, 101.0, 101.0], "two reports agree, and nothing was denied");
    assert_eq!((0..20).map(|_| report(5, 0, 0)).last(), Some(1.0), "the next request may pass");
    assert_eq!(report(5, u64::MAX, u64::MAX), 1e12);
}

#[test]
fn the_margin_for_chance_grows_if_requests_are_denied_within_the_quota() {
    let wants = |allowed, denied| {
        let mut harness = Harness::assigned();
        harness.report(5_000, "a", &usage(5, 100, 0));
        harness.report(10_000, "a", &usage(5, allowed, denied));
        harness.wants("a").expect("there are wants")
    };
    assert_eq!((wants(100, 0), wants(90, 10)), (22.0, 25.0), "20 are offered, and the quota is 40");
    assert_eq!(wants(200, 10), 46.0, "42 are offered, above the quota");
}

#[test]
fn a_short_report_is_added_to_the_next() {
    let mut harness = Harness::assigned();
    harness.report(1, "a", &usage(0, 3, 0));
    assert_eq!(harness.wants("a"), Some(10.0));
    harness.report(5_001, "a", &usage(5, 500, 0));
    assert_eq!(harness.wants("a"), Some(104.0));
}

#[test]
fn a_delayed_report_counts_for_the_time_that_it_states() {
    let mut harness = Harness::assigned();
    for at in [5_000, 10_000, 19_999, 20_000, 25_000] {
        harness.report(at, "a", &usage(5, 500, 0));
    }
    let wants = harness.wants("a").expect("there are wants");
    assert!((90.0..=125.0).contains(&wants), "{wants}");
}

#[test]
fn a_quota_is_whole_and_never_above_the_capacity() {
    for capacity in [0.0, 1e-9, 0.1, 0.3, 0.999, 1.0, 1.9, 33.3, 1e3, 5e9, f64::INFINITY, -1.0, f64::NAN] {
        assert!(Quota::of(capacity).rate() <= capacity.max(0.0), "{capacity}");
    }
    let quotas = [0.0, 0.2, 0.3, 0.99, 1.99, 33.3].map(Quota::of);
    use Quota::{Nothing, OneIn, PerSecond};
    assert_eq!(quotas, [Nothing, OneIn(5), OneIn(4), OneIn(2), PerSecond(1), PerSecond(33)]);
    assert_eq!([1.0 / 3600.0, 1.0 / 3601.0, 1e10].map(Quota::of), [OneIn(3600), Nothing, PerSecond(u32::MAX)]);
}
