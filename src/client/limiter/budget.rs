//! The book of a budget: what one client has spent, and how far its allowance goes.
//!
//! The lease of a budget is a cumulative allowance for the period. The book adds up what its incarnation has spent,
//! exactly, and never spends beyond the allowance, after the end of the lease, or in another period.
//!
//! What is charged after it was used is *owed* as far as the allowance does not cover it. The next allowances pay it
//! before anything else is spent. What is not needed after all can be taken back, as long as the report that it was
//! spent can be taken back: in the same period, by the same incarnation.

use leaseway_core::{
    policy::period::Span,
    types::{Amount, Millis, Sum},
};

use crate::session::{BudgetUse, Lease};

/// The book of one incarnation.
#[derive(Debug, Clone)]
pub struct BudgetBook {
    incarnation: u64,
    period: Option<Span>,
    /// The lease that gave the allowance.
    token: Option<u64>,
    /// The lease that was taken last.
    seen: Option<u64>,
    allowance: Amount,
    /// The end of the lease.
    until: Millis,
    spent: Sum,
    /// How often `spent` began anew. A period can come back if the configuration changes.
    era: u64,
    /// Charged, but not covered by an allowance yet.
    owed: Sum,
    /// What callers wait for: in total, and the first of them.
    waiting: (f64, f64),
    /// What was refused to callers that do not wait, and when.
    refused: Option<(f64, Millis)>,
    /// The refresh interval of the lease, and the rate of spending per second.
    refresh: Millis,
    rate: f64,
    /// When the rate was last updated, and what had been spent then.
    sampled: (Millis, Sum),
    /// The wants that were last reported.
    wanted: f64,
}

/// When an amount was spent. It can be taken back only until another period or incarnation begins.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SpendingPeriod {
    era: u64,
    /// The period; absent before the first lease.
    pub period: Option<Span>,
}

/// The rate is a mean over about this time.
const RATE_SECS: f64 = 5.0;

/// How long an amount that was refused is asked for: callers that do not wait may try again.
const REFUSED_FOR: Millis = Millis(60_000);

impl BudgetBook {
    /// An empty book. `incarnation` is a random number.
    pub fn new(now: Millis, incarnation: u64) -> BudgetBook {
        BudgetBook {
            incarnation,
            period: None,
            token: None,
            seen: None,
            allowance: Amount::ZERO,
            until: Millis(0),
            spent: Sum::ZERO,
            era: 0,
            owed: Sum::ZERO,
            waiting: (0.0, 0.0),
            refused: None,
            refresh: Millis::from_secs(5),
            rate: 0.0,
            sampled: (now, Sum::ZERO),
            wanted: 0.0,
        }
    }

    /// Takes the newest lease of the session, if it is not known yet. `fresh` is the next incarnation, for a client that
    /// is told to start over. Returns whether the client should ask again at once.
    pub fn take(&mut self, now: Millis, lease: &Lease, fresh: impl FnOnce() -> u64) -> bool {
        let Some(budget) = lease.budget.filter(|_| lease.token.is_some() && lease.token != self.seen) else {
            return false;
        };
        if budget.starts_over || self.period.map(|period| period.start) != Some(budget.period.start) {
            self.spent = Sum::ZERO;
            self.era += 1;
            self.sampled.1 = Sum::ZERO;
        }
        self.seen = lease.token;
        self.period = Some(budget.period);
        self.refresh = lease.refresh;
        if budget.starts_over {
            self.incarnation = fresh();
            (self.token, self.allowance, self.until) = (None, Amount::ZERO, Millis(0));
            return true;
        }
        (self.token, self.until) = (lease.token, lease.end);
        self.allowance = Amount::new(lease.capacity.get()).unwrap_or_default();
        self.pay(now);
        false
    }

    /// Pays what is owed, as far as the allowance covers it.
    fn pay(&mut self, now: Millis) {
        let paid = self.owed.min(self.uncommitted(now));
        self.owed -= paid;
        self.spent += paid;
    }

    /// The part of the allowance that is not spent. Zero after the end of the lease.
    fn uncommitted(&self, now: Millis) -> Sum {
        if self.is_live(now) { (Sum::from(self.allowance) - self.spent).max(Sum::ZERO) } else { Sum::ZERO }
    }

    fn is_live(&self, now: Millis) -> bool {
        now < self.until
    }

    /// Spends an amount if the allowance covers all of it.
    pub fn spend(&mut self, now: Millis, amount: Amount) -> bool {
        let pays = self.is_live(now) && self.owed == Sum::ZERO;
        let covered = pays && Sum::from(amount) <= self.uncommitted(now);
        if covered {
            self.spent += amount;
            self.refused = self.refused.filter(|(refused, _)| *refused > amount.get());
        }
        covered
    }

    /// Where amounts are spent now.
    pub fn spends_in(&self) -> SpendingPeriod {
        SpendingPeriod { era: self.era, period: self.period }
    }

    /// Of an amount that was spent in advance, `used` was used. Takes back the rest, unless the period or the incarnation
    /// is another by now; what exceeds it is charged.
    pub fn settle(&mut self, now: Millis, reserved: Amount, used: Amount, spent_in: SpendingPeriod) {
        let excess = Sum::from(used) - Sum::from(reserved);
        if excess >= Sum::ZERO {
            self.owed += excess;
        } else if spent_in.era == self.era {
            self.spent += excess;
        }
        self.pay(now);
    }

    /// Spends an amount that was used already. What the allowance does not cover is owed.
    pub fn charge(&mut self, now: Millis, amount: Amount) {
        self.owed += amount;
        self.pay(now);
    }

    /// What was charged and is not covered by an allowance yet.
    pub fn owed(&self) -> Amount {
        self.owed.ceil()
    }

    /// Notes an amount that was refused to a caller that does not wait, so that it is asked for.
    pub fn refuse(&mut self, now: Millis, amount: Amount) {
        self.refused = Some((self.refused(now).max(amount.get()), now));
    }

    fn refused(&self, now: Millis) -> f64 {
        self.refused.filter(|(_, at)| now.since(*at) < REFUSED_FOR).map_or(0.0, |(amount, _)| amount)
    }

    /// What may be spent now, without asking.
    pub fn left(&self, now: Millis) -> Amount {
        if self.owed == Sum::ZERO { self.uncommitted(now).floor() } else { Amount::ZERO }
    }

    /// What this incarnation has spent in the current period.
    pub fn spent(&self) -> Amount {
        self.spent.ceil()
    }

    /// The current period; absent before the first lease.
    pub fn period(&self) -> Option<Span> {
        self.period
    }

    /// Sets what callers wait for: the total, and the first of them.
    pub fn set_waiting(&mut self, total: f64, first: f64) {
        self.waiting = (total, first);
    }

    /// Whether less than half of what was last wanted is left, or less than what was refused, or callers wait, or
    /// something is owed.
    pub fn is_short(&self, now: Millis) -> bool {
        let left = self.left(now).get();
        self.waiting.0 > 0.0
            || self.owed > Sum::ZERO
            || left < self.refused(now)
            || self.rate > 0.0 && left < self.wanted / 2.0
    }

    /// Nothing can be spent from now on.
    pub fn close(&mut self) {
        self.until = Millis(0);
    }

    /// The demand: what is spent in two refresh intervals, what callers wait for, what was refused, and what is owed.
    pub fn wants(&mut self, now: Millis) -> (f64, BudgetUse) {
        self.pay(now);
        let (at, before) = self.sampled;
        let elapsed = now.since(at).0 as f64 / 1000.0;
        if elapsed >= 0.1 {
            let recent = (self.spent - before).get() / elapsed;
            let weight = 1.0 - (-elapsed / RATE_SECS).exp();
            self.rate += (recent - self.rate) * weight;
            if self.rate < 1e-6 {
                self.rate = 0.0;
            }
            self.sampled = (now, self.spent);
        }
        let (waiting, first) = self.waiting;
        let refused = self.refused(now);
        let demand = self.rate * self.refresh.0 as f64 / 500.0 + waiting + refused + self.owed.get();
        // A server refuses larger wants, and then nothing would be granted.
        self.wanted = Amount::clamped(demand.ceil()).get();
        let report = BudgetUse {
            spent: self.spent.ceil().get(),
            period: self.period.map_or(0, |period| period.start),
            incarnation: self.incarnation,
            need: if waiting > 0.0 { first } else { refused },
            token: self.token,
            is_short: self.is_short(now),
        };
        (self.wanted, report)
    }
}

#[cfg(test)]
mod tests {
    use leaseway_core::resource::BudgetLease;

    use super::*;
    use crate::session::{Capacity, Wire};

    const PERIOD: Span = Span { start: 1000, end: 2000 };

    fn lease(token: u64, capacity: f64, period: Span, starts_over: bool) -> Lease {
        Lease {
            capacity: Capacity::of(capacity),
            end: Millis(10_000),
            refresh: Millis(2_000),
            token: Some(token),
            wire: Wire { expiry_time: 10, refresh_interval: 2, capacity },
            budget: Some(BudgetLease { period, starts_over }),
        }
    }

    fn amount(value: f64) -> Amount {
        Amount::new(value).expect("valid")
    }

    #[test]
    fn an_allowance_is_never_exceeded() {
        let mut book = BudgetBook::new(Millis(0), 1);
        assert!(!book.spend(Millis(0), amount(1.0)), "no lease yet");
        book.take(Millis(0), &lease(1, 10.0, PERIOD, false), || 2);
        assert!(book.spend(Millis(0), amount(7.0)) && !book.spend(Millis(0), amount(4.0)));
        assert!(book.spend(Millis(0), amount(3.0)) && book.left(Millis(0)) == Amount::ZERO);
        book.take(Millis(0), &lease(2, 12.0, PERIOD, false), || 2);
        assert_eq!((book.left(Millis(9_999)).get(), book.left(Millis(10_000)).get()), (2.0, 0.0));
        book.take(Millis(0), &lease(3, 5.0, PERIOD, false), || 2);
        assert_eq!((book.left(Millis(0)).get(), book.spent().get()), (0.0, 10.0), "it has spent more");
    }

    #[test]
    fn another_period_and_another_incarnation_begin_with_nothing_spent() {
        let mut book = BudgetBook::new(Millis(0), 1);
        book.take(Millis(0), &lease(1, 10.0, PERIOD, false), || 2);
        book.spend(Millis(0), amount(7.0));
        book.take(Millis(0), &lease(2, 4.0, Span { start: 2000, end: 3000 }, false), || 2);
        let (_, report) = book.wants(Millis(0));
        assert_eq!((report.spent, report.period, report.incarnation, report.token), (0.0, 2000, 1, Some(2)));
        book.spend(Millis(0), amount(3.0));
        assert!(book.take(Millis(0), &lease(3, 0.0, Span { start: 2000, end: 3000 }, true), || 2), "it asks at once");
        let (_, report) = book.wants(Millis(0));
        assert_eq!((report.spent, report.incarnation, report.token), (0.0, 2, None));
        assert!(!book.spend(Millis(0), amount(1.0)));
    }

    #[test]
    fn an_amount_is_taken_back_where_it_was_spent() {
        let mut book = BudgetBook::new(Millis(0), 1);
        book.take(Millis(0), &lease(1, 10.0, PERIOD, false), || 2);
        assert!(book.spend(Millis(0), amount(7.0)));
        let spent_in = book.spends_in();
        book.settle(Millis(0), amount(7.0), amount(2.0), spent_in);
        assert_eq!((book.spent().get(), book.left(Millis(0)).get()), (2.0, 8.0));
        book.settle(Millis(20_000), amount(1.0), Amount::ZERO, spent_in);
        assert_eq!((book.spent().get(), book.left(Millis(20_000)).get()), (1.0, 0.0), "the lease has ended");
        book.take(Millis(0), &lease(2, 4.0, Span { start: 2000, end: 3000 }, false), || 2);
        book.spend(Millis(0), amount(1.0));
        book.settle(Millis(0), amount(1.0), Amount::ZERO, spent_in);
        assert_eq!(book.spent().get(), 1.0, "another period");
        let spent_in = book.spends_in();
        book.take(Millis(0), &lease(3, 0.0, Span { start: 2000, end: 3000 }, true), || 2);
        book.take(Millis(0), &lease(4, 4.0, Span { start: 2000, end: 3000 }, false), || 2);
        book.spend(Millis(0), amount(1.0));
        book.settle(Millis(0), amount(1.0), Amount::ZERO, spent_in);
        assert_eq!(book.spent().get(), 1.0, "another incarnation");
    }

    #[test]
    fn nothing_is_taken_back_from_a_period_that_has_come_back() {
        let mut book = BudgetBook::new(Millis(0), 1);
        book.take(Millis(0), &lease(1, 10.0, PERIOD, false), || 2);
        assert!(book.spend(Millis(0), amount(7.0)));
        let spent_in = book.spends_in();
        book.take(Millis(0), &lease(2, 4.0, Span { start: 0, end: 3000 }, false), || 2);
        book.take(Millis(0), &lease(3, 10.0, PERIOD, false), || 2);
        assert!(book.spend(Millis(0), amount(2.0)));
        book.settle(Millis(0), amount(7.0), Amount::ZERO, spent_in);
        assert_eq!((book.spent().get(), book.left(Millis(0)).get()), (2.0, 8.0));
    }

    #[test]
    fn what_is_owed_is_paid_before_anything_is_spent() {
        let mut book = BudgetBook::new(Millis(0), 1);
        book.charge(Millis(0), amount(3.0));
        let (wants, report) = book.wants(Millis(0));
        assert_eq!((book.owed().get(), wants, report.spent, report.is_short), (3.0, 3.0, 0.0, true));
        book.take(Millis(0), &lease(1, 2.0, PERIOD, false), || 2);
        assert_eq!((book.owed().get(), book.spent().get(), book.left(Millis(0)).get()), (1.0, 2.0, 0.0));
        book.take(Millis(0), &lease(2, 10.0, PERIOD, false), || 2);
        assert_eq!((book.owed().get(), book.spent().get(), book.left(Millis(0)).get()), (0.0, 3.0, 7.0));
        assert!(book.spend(Millis(0), amount(6.0)));
        let spent_in = book.spends_in();
        book.settle(Millis(0), amount(1.0), amount(5.0), spent_in);
        assert!(book.owed().get() == 3.0 && !book.spend(Millis(0), Amount::ZERO), "even if nothing is spent");
        book.settle(Millis(0), amount(5.0), Amount::ZERO, spent_in);
        assert_eq!((book.owed().get(), book.left(Millis(0)).get()), (0.0, 2.0), "what comes back pays");
        book.charge(Millis(10_000), amount(1.0));
        assert_eq!((book.owed().get(), book.spent().get()), (1.0, 8.0), "the lease has ended");
        book.take(Millis(0), &lease(3, 4.0, Span { start: 2000, end: 3000 }, false), || 2);
        assert_eq!((book.owed().get(), book.spent().get()), (0.0, 1.0), "paid from the next period");
    }

    #[test]
    fn the_demand_is_an_amount_however_much_is_owed_or_waited_for() {
        let mut book = BudgetBook::new(Millis(0), 1);
        book.charge(Millis(0), Amount::MAX);
        book.charge(Millis(0), Amount::MAX);
        book.refuse(Millis(0), amount(6e14));
        book.set_waiting(6e14, 6e14);
        assert_eq!(book.wants(Millis(0)).0, 1e15);
    }

    #[test]
    fn small_amounts_add_up_exactly() {
        let mut book = BudgetBook::new(Millis(0), 1);
        book.take(Millis(0), &lease(1, 1.0, PERIOD, false), || 2);
        let spent = (0..20_000).filter(|_| book.spend(Millis(0), amount(0.0001))).count();
        assert!((9_999..=10_000).contains(&spent), "{spent}");
    }

    #[test]
    fn amounts_that_were_refused_are_asked_for_until_they_are_spent() {
        let mut book = BudgetBook::new(Millis(0), 1);
        book.refuse(Millis(0), amount(20.0));
        book.refuse(Millis(1_000), amount(5.0));
        let (wants, report) = book.wants(Millis(1_000));
        assert_eq!((wants, report.need, report.is_short), (20.0, 20.0, true));
        assert_eq!(book.wants(Millis(61_000)).0, 0.0, "too long ago");
        book.refuse(Millis(61_000), amount(20.0));
        book.take(Millis(0), &Lease { end: Millis(90_000), ..lease(1, 30.0, PERIOD, false) }, || 2);
        assert!(!book.is_short(Millis(62_000)), "it is covered");
        assert!(book.spend(Millis(62_000), amount(5.0)) && book.wants(Millis(62_000)).1.need == 20.0);
        assert!(book.spend(Millis(62_000), amount(20.0)) && book.wants(Millis(62_000)).1.need == 0.0);
    }

    #[test]
    fn wants_follow_the_rate_and_the_waiting_calls() {
        let mut book = BudgetBook::new(Millis(0), 1);
        book.set_waiting(50.0, 20.0);
        let (wants, report) = book.wants(Millis(1_000));
        assert_eq!((wants, report.need, report.is_short), (50.0, 20.0, true));
        book.set_waiting(0.0, 0.0);
        book.take(Millis(0), &lease(1, 1e6, PERIOD, false), || 2);
        for second in 2..60 {
            book.spend(Millis(0), amount(100.0));
            book.wants(Millis(second * 1_000));
        }
        assert_eq!(book.wants(Millis(59_000)).0, 400.0, "two intervals of 2 s");
        let (wants, _) = book.wants(Millis(60_000));
        assert!((300.0..350.0).contains(&wants), "{wants}: it has spent nothing for a second");
    }
}
