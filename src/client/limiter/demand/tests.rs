use proptest::prelude::*;

use super::*;

const REFRESH: Duration = Duration::from_secs(5);

fn demand(kind: DemandKind) -> Demand {
    Demand::new(DemandSettings { kind, refresh: REFRESH, remembers: true })
}

fn counts(count: u64, waiting: u64) -> Sample {
    Sample { count, waiting, ..Sample::default() }
}

/// The estimator of a rate limiter.
struct Sampled {
    demand: Demand,
    now: u64,
    arrived: f64,
    /// The sampling interval in milliseconds.
    step: u64,
}

impl Sampled {
    fn sampled_every(step: u64) -> Sampled {
        let mut demand = demand(DemandKind::Rate);
        demand.sample(Millis(0), counts(0, 0));
        Sampled { demand, now: 0, arrived: 0.0, step }
    }

    /// Runs evenly spaced arrivals at `rate` for some seconds, while `waiting` callers wait. Returns the minimum and
    /// maximum wants.
    fn run(&mut self, rate: f64, seconds: u64, waiting: u64) -> (f64, f64) {
        let end = self.now + seconds * 1000;
        let (mut least, mut most) = (f64::INFINITY, 0.0f64);
        while self.now < end {
            self.now += self.step;
            self.arrived += rate * self.step as f64 / 1000.0;
            // Rounded, so that sums of fractions do not lose a permit.
            self.demand.sample(Millis(self.now), counts((self.arrived + 1e-6) as u64, waiting));
            let wants = self.demand.wants(Millis(self.now));
            (least, most) = (least.min(wants), most.max(wants));
        }
        (least, most)
    }

    fn wants(&self) -> f64 {
        self.demand.wants(Millis(self.now))
    }
}

#[test]
fn wants_equal_a_steady_rate_at_any_sampling_interval() {
    for step in [100, 700, 1250, 5000] {
        for rate in [0.1, 0.35, 1.0, 7.3, 100.0, 4321.0, 1e6] {
            let mut flow = Sampled::sampled_every(step);
            flow.run(rate, 300, 0);
            let (least, most) = flow.run(rate, 300, 0);
            let off = (most / rate - 1.0).max(1.0 - least / rate);
            assert!(off < 0.08, "{rate}/s sampled every {step} ms: {least}..{most}");
            if rate >= 1.0 {
                assert!(off < 0.03, "{rate}/s sampled every {step} ms: {least}..{most}");
            }
        }
    }
}

#[test]
fn a_spike_is_fully_wanted_within_one_refresh() {
    let mut flow = Sampled::sampled_every(1000);
    flow.run(10.0, 300, 0);
    flow.run(1000.0, 5, 0);
    assert!(flow.wants() > 990.0, "{}", flow.wants());
}

#[test]
fn a_new_flow_is_not_extrapolated_from_a_millisecond() {
    let mut demand = demand(DemandKind::Rate);
    demand.sample(Millis(0), counts(0, 0));
    demand.sample(Millis(1), counts(100, 0));
    assert!(demand.wants(Millis(1)) <= 200.0, "100 in the first millisecond are not 100,000 per second");
}

#[test]
fn wants_fall_gradually_to_zero() {
    for rate in [0.5, 20.0, 1e5] {
        let mut flow = Sampled::sampled_every(250);
        flow.run(rate, 300, 0);
        let mut before = flow.wants();
        let start = before;
        for _ in 0..1000 {
            flow.run(0.0, 1, 0);
            let wants = flow.wants();
            assert!(wants <= before + 1e-9, "{rate}/s: rose from {before} to {wants} without demand");
            assert!(wants >= before * 0.9 || before <= 2.0 * NEGLIGIBLE, "{rate}/s: a cliff from {before} to {wants}");
            before = wants;
            if flow.now == 310_000 {
                assert!(wants > 0.4 * start, "{rate}/s: {wants} after two refreshes");
            }
        }
        assert_eq!(before, 0.0, "{rate}/s");
    }
}

#[test]
fn wants_fall_between_samples() {
    let mut gauge = demand(DemandKind::Gauge);
    gauge.sample(Millis(0), counts(100, 0));
    gauge.sample(Millis(1), counts(0, 0));
    let wants = |seconds: u64| gauge.wants(Millis(seconds * 1000));
    assert_eq!(wants(5), 100.0);
    assert!(wants(6) < 100.0 && wants(20) < 40.0 && wants(20) > 30.0);
    assert_eq!(wants(10_000), 0.0);
}

#[test]
fn wants_of_saturated_closed_loop_callers_exceed_the_capacity_within_bounds() {
    // Each caller asks again as soon as it is served: arrivals equal served permits, and nearly all callers wait.
    for capacity in [0.5, 10.0, 1000.0, 1e6] {
        let mut flow = Sampled::sampled_every(1000);
        flow.arrived = 64.0;
        flow.run(capacity, 300, 64);
        let (least, most) = flow.run(capacity, 300, 64);
        assert!(least > capacity, "wants {least} of {capacity}");
        assert!(most < 1.05 * capacity + 64.0 / MAX_WAIT_SECONDS + 0.5, "wants {most} of {capacity}");
    }
}

/// One caller that works for `work` seconds, waits for a permit, and begins again, while it gets its wants up to
/// `most`. Returns the wants after a number of samples, a tenth of a second apart.
fn wants_of_one_caller(work: f64, most: f64, samples: u64) -> f64 {
    let mut demand = demand(DemandKind::Rate);
    let (mut arrived, mut queued, mut capacity) = (1.0, 0.0, 0.0);
    for number in 0..samples {
        let waits = (1.0 - work * capacity).max(0.0);
        let per_second = if waits > 0.0 { capacity } else { 1.0 / work };
        (arrived, queued) = (arrived + per_second * 0.1, queued + waits * 0.1);
        let sample = Sample {
            count: arrived as u64,
            freely: arrived as u64,
            waiting: u64::from(waits > 0.0),
            queued: Duration::from_secs_f64(queued),
            capacity,
            ..Sample::default()
        };
        let now = Millis(number * 100);
        demand.sample(now, sample);
        capacity = demand.wants(now).min(most);
    }
    demand.wants(Millis(samples * 100))
}

#[test]
fn one_closed_loop_caller_wants_its_unlimited_rate() {
    for (work, could) in [(0.001, 1_000.0), (0.1, 10.0), (1e-6, 1e6)] {
        let soon = wants_of_one_caller(work, f64::INFINITY, 30);
        assert!(soon > could / 2.0, "after 3 s {soon}, it could do {could}");
        let wants = wants_of_one_caller(work, f64::INFINITY, 1_000);
        assert!((could * 0.8..could * 2.1 + 1.0).contains(&wants), "{wants}, it could do {could}");
    }
}

#[test]
fn one_limited_caller_wants_at_most_twice_its_capacity() {
    let wants = wants_of_one_caller(1e-6, 50.0, 1_000);
    assert!((99.0..=110.0).contains(&wants), "{wants} of 50");
}

#[test]
fn short_queues_do_not_claim_a_large_capacity() {
    let mut demand = demand(DemandKind::Rate);
    for second in 0..100u64 {
        // Three permits at once each second, two of which wait for ten milliseconds.
        let queued = Duration::from_millis(second * 10);
        let sample = Sample { count: second * 3, freely: second * 2, queued, capacity: 100.0, ..Sample::default() };
        demand.sample(Millis(second * 1000), sample);
    }
    let wants = demand.wants(Millis(100_000));
    assert!((2.9..3.5).contains(&wants), "{wants}");
}

#[test]
fn callers_without_capacity_are_sampled_for_a_bounded_time() {
    let mut demand = demand(DemandKind::Rate);
    demand.sample(Millis(0), counts(0, 0));
    let mut samples = 0;
    let mut next = Some(Millis(5));
    while let Some(at) = next.take().filter(|at| *at < Millis(60_000)) {
        demand.sample(at, counts(20, 20));
        samples += 1;
        next = demand.next_sample_at();
    }
    assert!((10..=60).contains(&samples), "{samples} samples");
    for second in 6..60 {
        demand.sample(Millis(second * 1000), counts(20, 20));
        assert_eq!(demand.next_sample_at(), None, "after {second} s");
        let wants = demand.wants(Millis(second * 1000));
        assert!((20.0..25.0).contains(&wants), "waiting callers are wanted: {wants}");
    }
}

#[test]
fn a_gauge_wants_its_peak_for_a_refresh_and_then_less() {
    let mut gauge = demand(DemandKind::Gauge);
    gauge.sample(Millis(0), counts(10, 2));
    assert_eq!(gauge.wants(Millis(0)), 12.0);
    for second in 1..=5 {
        gauge.sample(Millis(second * 1000), counts(4, 0));
        assert_eq!(gauge.wants(Millis(second * 1000)), 12.0, "after {second} s");
    }
    let mut before = 12.0;
    for second in 6..200 {
        gauge.sample(Millis(second * 1000), counts(4, 0));
        let wants = gauge.wants(Millis(second * 1000));
        assert!(wants <= before && wants > before * 0.9, "from {before} to {wants}");
        before = wants;
    }
    assert_eq!(before, 4.0);
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn wants_are_finite_and_cover_gauges_and_waiting_callers(
        gauge in any::<bool>(),
        refresh in prop_oneof![Just(0), 1..20_000u64, Just(u64::MAX)],
        samples in proptest::collection::vec(
            (
                prop_oneof![0..10_000u64, any::<u64>()],
                prop_oneof![0..100u64, any::<u64>()],
                prop_oneof![Just(0), 0..1000u64, any::<u64>()],
            ),
            1..50,
        ),
    ) {
        let kind = if gauge { DemandKind::Gauge } else { DemandKind::Rate };
        let refresh = Duration::from_millis(refresh);
        let mut demand = Demand::new(DemandSettings { kind, refresh, remembers: true });
        for (now, count, waiting) in samples {
            demand.sample(Millis(now), counts(count, waiting));
            let least = if gauge {
                count as f64 + waiting as f64
            } else {
                waiting as f64 / MAX_WAIT_SECONDS
            };
            for later in [now, now.saturating_add(1000), u64::MAX] {
                let wants = demand.wants(Millis(later));
                prop_assert!(wants.is_finite() && wants >= least, "{wants}, at least {least}");
            }
        }
    }
}
