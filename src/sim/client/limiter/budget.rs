//! An independent check of the permits that a limiter admits, given the leases of its session.
//!
//! In every period, the admitted permits must not exceed the leased capacity plus one burst. The burst is the capacity
//! at the start of the period times the length of the window, and at least one permit.
//!
//! It suffices to track the smallest remaining budget of all periods that end now. A period that begins now has a burst
//! left. Leased capacity is added to the budgets of all periods, and an admitted permit is subtracted from all.
//!
//! The first lease fills the burst, because a newly opened resource begins full.

use std::time::Duration;

use leaseway_client::limiter::Nanos;
use leaseway_core::resource::invariant::Violation;

/// Tolerance for the rounding errors of a million additions here. The bucket itself is exact.
const TOLERANCE: f64 = 1e-4;

pub(super) struct AdmissionBudget {
    window: Duration,
    /// The capacity and expiry of the lease.
    lease: Option<(f64, Nanos)>,
    left: f64,
    has_begun: bool,
    at: Nanos,
}

impl AdmissionBudget {
    pub(super) fn new(at: Nanos, window: Duration) -> AdmissionBudget {
        AdmissionBudget { window, lease: None, left: 0.0, has_begun: false, at }
    }

    pub(super) fn burst(&self) -> f64 {
        (self.capacity() * self.window.as_secs_f64()).max(1.0)
    }

    pub(super) fn leased(&mut self, at: Nanos, lease: Option<(f64, Nanos)>) {
        self.advance(at);
        self.lease = lease.filter(|(_, end)| at < *end);
        if self.capacity() > 0.0 && !self.has_begun {
            (self.left, self.has_begun) = (f64::INFINITY, true);
        }
        self.left = self.left.min(self.burst());
    }

    pub(super) fn passed(&mut self, at: Nanos) -> Result<(), Violation> {
        self.advance(at);
        self.left -= 1.0;
        if self.capacity() == 0.0 {
            return Err(broken("no permit without a lease", "a permit was admitted without a lease".into()));
        }
        if self.left < -TOLERANCE {
            let detail = format!("admitted {} permits too many, at {} per second", -self.left, self.capacity());
            return Err(broken("admitted ≤ ∫ leased + burst", detail));
        }
        Ok(())
    }

    pub(super) fn refused(&mut self, at: Nanos) -> Result<(), Violation> {
        self.advance(at);
        if self.capacity() > 0.0 && self.left > 1.0 + TOLERANCE {
            let detail = format!(
                "a caller was refused, though {} permits were left, at {} per second",
                self.left,
                self.capacity()
            );
            return Err(broken("no refusal within the budget", detail));
        }
        Ok(())
    }

    fn capacity(&self) -> f64 {
        self.lease.map_or(0.0, |(capacity, _)| capacity)
    }

    fn advance(&mut self, at: Nanos) {
        let at = at.max(self.at);
        if let Some((capacity, end)) = self.lease {
            let seconds = (at.min(end) - self.at) as f64 / 1e9;
            self.left = (self.left + capacity * seconds).min(self.burst());
            if end <= at {
                self.lease = None;
                self.left = self.left.min(self.burst());
            }
        }
        self.at = at;
    }
}

fn broken(invariant: &'static str, detail: String) -> Violation {
    Violation { invariant, detail }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Nanos = 1_000_000_000;
    const WINDOW: Duration = Duration::from_secs(2);

    /// A lease that changes ten times in twenty seconds, and is absent for a while.
    fn leases(rng: &mut fastrand::Rng) -> Vec<(Nanos, f64)> {
        let mut leases = vec![(0, 5.0)];
        leases.extend((1..10).map(|turn| (turn * 2 * SECOND, if rng.u8(..) < 60 { 0.0 } else { rng.f64() * 8.0 })));
        leases
    }

    fn leased(leases: &[(Nanos, f64)], from: Nanos, until: Nanos) -> f64 {
        let ends = leases.iter().skip(1).map(|(at, _)| *at).chain([Nanos::MAX]);
        let each = leases.iter().zip(ends).map(|((begin, capacity), end)| {
            let seconds = end.min(until).saturating_sub(from.max(*begin)) as f64 / 1e9;
            capacity * seconds
        });
        each.sum()
    }

    fn burst(leases: &[(Nanos, f64)], at: Nanos) -> f64 {
        let capacity = leases.iter().rev().find(|(begin, _)| *begin <= at).map_or(0.0, |(_, capacity)| *capacity);
        (capacity * WINDOW.as_secs_f64()).max(1.0)
    }

    /// The minimum over all periods that begin just before a change, at a change, or with a permit.
    fn least_left(leases: &[(Nanos, f64)], passed: &[Nanos], now: Nanos) -> f64 {
        let changes = leases.iter().flat_map(|(at, _)| [at.saturating_sub(1), *at]);
        let begins = changes.chain(passed.iter().copied()).filter(|at| *at <= now).chain([now]);
        let left = begins.map(|from| {
            let within = passed.iter().filter(|at| (from..now).contains(*at)).count() as f64;
            burst(leases, from) + leased(leases, from, now) - within
        });
        left.fold(f64::INFINITY, f64::min)
    }

    #[test]
    fn the_budget_is_that_of_the_period_with_the_smallest_budget() {
        let (mut admitted, mut refused) = (0, 0);
        for seed in 0..200 {
            let mut rng = fastrand::Rng::with_seed(seed);
            let leases = leases(&mut rng);
            let mut changes = leases.iter().peekable();
            let (mut budget, mut passed) = (AdmissionBudget::new(0, WINDOW), Vec::new());
            for step in 1..200 {
                let now = step * SECOND / 10 + 1;
                while let Some((at, capacity)) = changes.next_if(|(at, _)| *at <= now) {
                    budget.leased(*at, Some((*capacity, Nanos::MAX)).filter(|_| *capacity > 0.0));
                }
                let (left, has_lease) = (least_left(&leases, &passed, now), budget.capacity() > 0.0);
                if has_lease && left >= 1.0 && rng.bool() {
                    assert_eq!(budget.refused(now).is_err(), left > 1.0 + TOLERANCE, "{seed}: {left} left");
                    assert!(budget.passed(now).is_ok(), "{seed}: {left} left");
                    passed.push(now);
                    admitted += 1;
                } else if left < 0.9 || !has_lease {
                    assert!(budget.refused(now).is_ok(), "{seed}: {left} left");
                    refused += 1;
                }
                budget.advance(now);
                assert!((budget.left - least_left(&leases, &passed, now + 1)).abs() < 1e-6, "{seed}: {step}");
            }
        }
        assert!(admitted > 1_000 && refused > 1_000, "{admitted} {refused}");
    }

    #[test]
    fn a_permit_beyond_the_budget_or_without_a_lease_is_found() {
        let mut budget = AdmissionBudget::new(0, WINDOW);
        assert!(budget.passed(1).expect_err("there is no lease").invariant.contains("without a lease"));
        let mut budget = AdmissionBudget::new(0, WINDOW);
        budget.leased(0, Some((3.0, 10 * SECOND)));
        assert!((0..6).all(|_| budget.passed(SECOND).is_ok()), "it begins full");
        assert!(budget.passed(SECOND).expect_err("it was full").detail.contains("admitted 1 permits too many"));
        budget.leased(2 * SECOND, Some((3.0, 10 * SECOND)));
        assert!((0..2).all(|_| budget.passed(2 * SECOND).is_ok()) && budget.passed(2 * SECOND).is_err());
        budget.leased(9 * SECOND, Some((3.0, 10 * SECOND)));
        assert!(budget.passed(10 * SECOND).expect_err("it has ended").invariant.contains("without a lease"));
    }
}
