use std::collections::VecDeque;

use proptest::prelude::*;

use super::*;

const SECOND: Nanos = 1_000_000_000;
const MINUTE: Nanos = 60 * SECOND;
/// The latest return of a permit after its window.
const LATE: Nanos = MINUTE / SLOTS;

fn window(per_minute: f64) -> SlidingWindow {
    let mut window = SlidingWindow::new(Duration::from_secs(60));
    window.set_capacity(0, Capacity::of(per_minute / 60.0));
    window
}

fn take(window: &mut SlidingWindow, at: Nanos, n: u32) -> bool {
    window.take(at, n).is_ok()
}

#[test]
fn nothing_passes_without_capacity() {
    let mut window = SlidingWindow::new(Duration::from_secs(60));
    assert_eq!(window.take(0, 1), Err(Shortage { ready_in: None }));
    window.set_capacity(0, Capacity::of(1e-13));
    assert!(!take(&mut window, MINUTE, 1));
    window.set_capacity(0, Capacity::UNLIMITED);
    assert!(take(&mut window, MINUTE, 1_000_000));
    assert_eq!(window.standing(MINUTE).available, f64::INFINITY);
}

#[test]
fn all_permits_pass_at_once_and_come_back_after_the_window() {
    let mut window = window(100.0);
    assert!(take(&mut window, SECOND, 60) && take(&mut window, 30 * SECOND, 40));
    assert!(!take(&mut window, 30 * SECOND, 1));
    assert_eq!(window.available(SECOND + MINUTE), 0, "never too early");
    assert_eq!(window.available(SECOND + MINUTE + LATE), 60);
    assert_eq!(window.available(30 * SECOND + MINUTE + LATE), 100);
}

#[test]
fn the_time_until_permits_come_back_is_known() {
    let mut window = window(100.0);
    assert_eq!(window.standing(0).next_in, Some(Duration::ZERO), "none are in use");
    assert!(take(&mut window, 0, 60) && take(&mut window, 30 * SECOND, 40));
    let now = 30 * SECOND;
    assert_eq!(window.standing(now).next_in, Some(Duration::from_nanos(30 * SECOND + LATE)));
    assert_eq!(window.ready_in(now, 60), Some(30 * SECOND + LATE));
    assert_eq!(window.ready_in(now, 61), Some(MINUTE + LATE));
    assert_eq!(window.ready_in(now, 101), None, "only a larger lease helps");
    let at = now + window.ready_in(now, 60).expect("a time");
    assert!(take(&mut window, at, 60));
}

#[test]
fn a_small_lease_passes_one_permit_in_the_time_that_brings_it() {
    let mut window = window(0.5);
    assert!(take(&mut window, 0, 1));
    assert_eq!(window.available(2 * MINUTE), 0);
    assert!(take(&mut window, 2 * MINUTE + LATE, 1));
}

#[test]
fn a_cut_lease_admits_nobody_while_more_is_in_use() {
    let mut window = window(100.0);
    assert!(take(&mut window, 0, 60));
    window.set_capacity(SECOND, Capacity::of(0.5));
    assert_eq!(window.outstanding(SECOND), 1.0, "60 permits of a minute");
    assert_eq!((window.available(SECOND), window.owed(SECOND)), (0, 0));
    assert_eq!(window.standing(SECOND).available, -30.0);
    assert_eq!(window.outstanding(MINUTE + LATE), 0.0);
    assert_eq!(window.available(MINUTE + LATE), 30);
}

#[test]
fn charges_beyond_the_lease_are_debt_until_they_come_back() {
    let mut window = window(100.0);
    window.set_max_debt(50);
    assert_eq!(window.charge(0, 120), 120);
    assert_eq!((window.owed(0), window.taken()), (20, 120));
    assert_eq!(window.charge(SECOND, 40), 30, "the maximum debt");
    assert!(!take(&mut window, SECOND, 1));
    assert_eq!(window.owed(MINUTE + LATE), 0);
    assert_eq!(window.available(MINUTE + LATE), 70);
}

#[test]
fn returned_permits_are_available_again() {
    let mut window = window(100.0);
    assert!(take(&mut window, 0, 60));
    let promise = window.promise(60);
    assert!(take(&mut window, 10 * SECOND, 40));
    window.use_part(11 * SECOND, promise, 20);
    assert_eq!(window.available(11 * SECOND), 40);
    assert_eq!(window.refund(11 * SECOND, 50), 50, "40 of the last, 10 of those before");
    assert_eq!(window.available(11 * SECOND), 90);
    assert_eq!(window.available(MINUTE + LATE), 100);
    let late = Promise { n: 5, era: promise.era };
    window.hand_back(2 * MINUTE, late);
    assert_eq!(window.available(2 * MINUTE), 100, "they have come back already");
}

#[test]
fn a_shorter_window_applies_to_permits_in_use() {
    let mut window = window(100.0);
    assert!(take(&mut window, 0, 60));
    window.set_length(SECOND, Duration::from_secs(10));
    window.set_capacity(SECOND, Capacity::of(10.0));
    assert_eq!(window.available(SECOND), 40);
    assert_eq!(window.available(10 * SECOND + LATE), 100);
}

/// What happens at one of several gateways that share a limit.
#[derive(Debug, Clone, Copy)]
enum Event {
    Wait(Nanos),
    Ask {
        gateway: usize,
        permits: u32,
    },
    /// The gateway confirms its lease and gets another one, at most this fraction of the capacity.
    Refresh {
        gateway: usize,
        fraction: f64,
    },
    /// The gateway reports late what it has in use.
    Report {
        gateway: usize,
    },
    /// The gateway dies, and another one takes its place.
    Die {
        gateway: usize,
    },
}

fn events() -> impl Strategy<Value = Vec<Event>> {
    let gateway = 0..GATEWAYS;
    let event = prop_oneof![
        4 => (0..5 * SECOND).prop_map(Event::Wait),
        1 => (0..40 * SECOND).prop_map(Event::Wait),
        8 => (gateway.clone(), 1..40u32).prop_map(|(gateway, permits)| Event::Ask { gateway, permits }),
        6 => (gateway.clone(), 0.0..=1.0).prop_map(|(gateway, fraction)| Event::Refresh { gateway, fraction }),
        3 => gateway.clone().prop_map(|gateway| Event::Report { gateway }),
        1 => gateway.prop_map(|gateway| Event::Die { gateway }),
    ];
    proptest::collection::vec(event, 1..200)
}

const GATEWAYS: usize = 3;

/// The lease length of declared limits per minute, and the part that is used.
const LEASE: Nanos = 2 * MINUTE;

/// A gateway, and what the cluster counts for it.
struct Gateway {
    window: SlidingWindow,
    lease: f64,
    lease_ends: Nanos,
    /// In use beyond the lease, as last reported.
    outstanding: f64,
}

impl Gateway {
    fn new() -> Gateway {
        let window = SlidingWindow::new(Duration::from_secs(60));
        Gateway { window, lease: 0.0, lease_ends: 0, outstanding: 0.0 }
    }

    fn held(&self, now: Nanos) -> f64 {
        if now < self.lease_ends { self.lease.max(self.outstanding) } else { 0.0 }
    }
}

/// Several gateways under the rules of the lease protocol: what a gateway may use or has in use is given to nobody else.
struct Cluster {
    capacity: f64,
    gateways: Vec<Gateway>,
    /// What is counted for gateways that died, and until when.
    dead: Vec<(f64, Nanos)>,
    now: Nanos,
    passed: VecDeque<(Nanos, u64)>,
}

impl Cluster {
    fn step(&mut self, event: Event) {
        let now = self.now;
        match event {
            Event::Wait(span) => self.now += span,
            Event::Ask { gateway, permits } => {
                let Gateway { window, lease_ends, .. } = &mut self.gateways[gateway];
                // The client uses a lease no longer than until one window before its end.
                let is_live = now + MINUTE < *lease_ends;
                if is_live && window.take(now, permits).is_ok() {
                    self.passed.push_back((now, permits.into()));
                }
            }
            Event::Refresh { gateway, fraction } => {
                let reported = self.gateways[gateway].window.outstanding(now);
                let others = (0..GATEWAYS).filter(|other| *other != gateway);
                let held: f64 = others.map(|other| self.gateways[other].held(now)).sum();
                let dead: f64 = self.dead.iter().filter(|(_, end)| now < *end).map(|(held, _)| held).sum();
                let free = (self.capacity - held - dead).max(0.0);
                let at = &mut self.gateways[gateway];
                // Whole permits: a lease of less than one passes one all the same.
                let whole = (free.min(self.capacity * fraction) * 60.0 + 1e-6).floor() / 60.0;
                (at.lease, at.lease_ends) = (whole, now + LEASE);
                at.window.set_capacity(now, Capacity::of(at.lease));
                at.outstanding = at.window.outstanding(now).max(reported);
            }
            Event::Report { gateway } => {
                let at = &mut self.gateways[gateway];
                at.outstanding = at.window.outstanding(now);
            }
            Event::Die { gateway } => {
                let at = std::mem::replace(&mut self.gateways[gateway], Gateway::new());
                self.dead.push((at.held(now), at.lease_ends));
            }
        }
    }

    /// The most that passed in a window that ends now.
    fn in_window(&mut self) -> u64 {
        while self.passed.front().is_some_and(|(at, _)| *at + MINUTE <= self.now) {
            self.passed.pop_front();
        }
        self.passed.iter().map(|(_, permits)| permits).sum()
    }
}

proptest! {
    #[test]
    fn in_no_window_do_all_gateways_pass_more_than_the_limit(limit in 3u64..200, events in events()) {
        let gateways = (0..GATEWAYS).map(|_| Gateway::new()).collect();
        let capacity = limit as f64 / 60.0;
        let mut cluster =
            Cluster { capacity, gateways, dead: Vec::new(), now: 0, passed: VecDeque::new() };
        for event in events {
            cluster.step(event);
            prop_assert!(cluster.in_window() <= limit, "{} of {limit}", cluster.in_window());
        }
    }

    #[test]
    fn a_saturated_window_passes_the_limit_less_one_slot(limit in 100u32..10_000, step in 1u64..200_000_000) {
        let mut window = window(limit.into());
        let (mut now, mut passed) = (0, 0u64);
        while now < 10 * MINUTE {
            let free = u32::try_from(window.available(now)).expect("few");
            let per_step = (u64::from(limit) * step / MINUTE + 1) as u32;
            if take(&mut window, now, free.min(per_step)) {
                passed += u64::from(free.min(per_step));
            }
            now += step;
        }
        prop_assert!(passed >= u64::from(limit) * 10 * 97 / 100, "{passed} of {}", limit * 10);
    }
}
