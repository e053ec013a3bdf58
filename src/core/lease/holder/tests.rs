//! The leases of one holder, one rule per test.

use super::*;

fn named(number: u64) -> Token {
    Token::new(number).expect("not zero")
}

fn grant(token: u64, capacity: f64, end: u64) -> Grant {
    Grant { token: named(token), capacity: Amount::clamped(capacity), end: Millis(end) }
}

fn has(token: u64, capacity: f64) -> ShownLease {
    ShownLease { token: Some(named(token)), capacity: Amount::clamped(capacity), expiry_time: 0 }
}

fn leases(grants: &[(u64, f64, u64)]) -> Leases {
    let mut leases = Leases::default();
    for &(token, capacity, end) in grants {
        leases.grant(grant(token, capacity, end), end as i64, Reuse::Confirmed);
    }
    leases
}

fn held(leases: &Leases, now: u64) -> f64 {
    leases.held(Millis(now)).get()
}

#[test]
fn held_is_the_largest_live_lease() {
    let leases = leases(&[(1, 50.0, 100), (2, 20.0, 110), (3, 30.0, 120)]);
    assert_eq!(held(&leases, 0), 50.0);
    assert_eq!(held(&leases, 100), 30.0, "a lease is over at its end");
    assert_eq!(held(&leases, 120), 0.0);
    assert_eq!(leases.current(Millis(0)).get(), 30.0);
}

#[test]
fn merging_does_not_revive_an_ended_lease() {
    let ends = |n: u64| if n == 0 { 100 } else { 1_000 - n };
    let given: Vec<_> = (0..MAX_GRANTS as u64).map(|n| (n + 1, 90.0 - n as f64, ends(n))).collect();
    let mut leases = leases(&given);
    assert_eq!(held(&leases, 100), 89.0);
    leases.forget_ended(Millis(100));
    leases.grant(grant(99, 1.0, 900), 900, Reuse::Confirmed);
    assert_eq!(held(&leases, 100), 89.0, "the first has ended");
}

#[test]
fn confirming_drops_older_leases_only() {
    let mut leases = leases(&[(1, 50.0, 100), (2, 20.0, 110)]);
    assert_eq!(leases.confirm(&has(1, 50.0), false, |_| true), Confirmation::Known);
    assert_eq!(held(&leases, 0), 50.0, "the newer answer may not have arrived, the older one is still known");
    assert_eq!(leases.confirm(&has(2, 20.0), false, |_| true), Confirmation::Known);
    assert_eq!(held(&leases, 0), 20.0);
    assert_eq!(leases.confirm(&has(1, 50.0), false, |_| true), Confirmation::Stale);
    assert_eq!(held(&leases, 0), 20.0);
}

#[test]
fn lost_answer_does_not_lock_out_a_returning_holder() {
    let mut leases = leases(&[(5, 50.0, 100)]);
    assert_eq!(leases.confirm(&has(3, 50.0), false, |_| true), Confirmation::Nothing);
    assert_eq!(leases.confirm(&has(5, 50.0), false, |_| true), Confirmation::Known);
    assert_eq!(leases.confirm(&has(3, 50.0), false, |_| true), Confirmation::Stale);
}

#[test]
fn has_never_raises_a_record() {
    let mut leases = leases(&[(1, 50.0, 100)]);
    assert_eq!(leases.confirm(&has(1, 80.0), false, |_| true), Confirmation::Known);
    assert_eq!(held(&leases, 0), 50.0);
    assert_eq!(leases.confirm(&has(1, 40.0), false, |_| true), Confirmation::Known);
    assert_eq!(held(&leases, 0), 40.0);
}

#[test]
fn a_token_of_another_epoch_or_from_the_future_confirms_nothing() {
    let mut leases = leases(&[(7, 50.0, 100), (8, 20.0, 110)]);
    assert_eq!(leases.confirm(&has(8, 20.0), false, |_| false), Confirmation::Nothing);
    assert_eq!(leases.confirm(&has(9, 20.0), false, |_| true), Confirmation::Nothing);
    assert_eq!(held(&leases, 0), 50.0);
}

#[test]
fn without_a_token_only_the_newest_lease_is_recognised() {
    let mut leases = leases(&[(1, 50.0, 100), (2, 20.0, 110)]);
    let mut plain = ShownLease { token: None, capacity: Amount::clamped(20.0), expiry_time: 111 };
    assert_eq!(leases.confirm(&plain, false, |_| true), Confirmation::Nothing);
    plain.expiry_time = 110;
    let other = ShownLease { capacity: Amount::clamped(50.0), ..plain };
    assert_eq!(
        leases.confirm(&other, false, |_| true),
        Confirmation::Nothing,
        "another master may have granted it in the same second"
    );
    assert_eq!(leases.confirm(&plain, false, |_| true), Confirmation::Known);
    assert_eq!(held(&leases, 0), 20.0);
}

#[test]
fn without_a_token_an_ambiguous_lease_is_not_recognised() {
    let mut same_second = leases(&[(1, 0.0, 100), (2, 50.0, 100), (3, 0.0, 100)]);
    let plain = ShownLease { token: None, capacity: Amount::ZERO, expiry_time: 100 };
    assert_eq!(same_second.confirm(&plain, false, |_| true), Confirmation::Nothing, "the first may be meant");
    assert_eq!(held(&same_second, 0), 50.0);
    assert!(same_second.echoes_newest(&plain));
    same_second.grant(grant(4, 0.0, 101), 101, Reuse::Confirmed);
    let later = ShownLease { expiry_time: 101, ..plain };
    assert_eq!(same_second.confirm(&later, false, |_| true), Confirmation::Known);
    assert_eq!(held(&same_second, 0), 0.0);
}

#[test]
fn an_untrusted_report_of_outstanding_only_raises() {
    let mut leases = leases(&[(1, 50.0, 100)]);
    let report = |leases: &mut Leases, amount, trusted| {
        leases.report_outstanding(Amount::clamped(amount), trusted, Millis(0), Millis(500));
    };
    report(&mut leases, 70.0, false);
    report(&mut leases, 60.0, false);
    assert_eq!(held(&leases, 99), 70.0);
    report(&mut leases, 10.0, true);
    assert_eq!(held(&leases, 99), 50.0);
    assert_eq!(leases.next_change(Millis(0)), Some(Millis(100)));
}

#[test]
fn a_report_of_an_unknown_holder_counts_for_a_lease_length() {
    let mut leases = Leases::default();
    leases.report_outstanding(Amount::clamped(70.0), false, Millis(0), Millis(500));
    assert_eq!((held(&leases, 499), held(&leases, 500)), (70.0, 0.0));
}

#[test]
fn shorter_lease_does_not_shorten_older_ones() {
    let leases = leases(&[(1, 50.0, 100), (2, 20.0, 40)]);
    assert_eq!(held(&leases, 50), 50.0);
    assert_eq!(leases.current(Millis(50)).get(), 0.0);
}

#[test]
fn repeated_release_frees_nothing() {
    let mut leases = Leases::default();
    assert_eq!(leases.claim_former(named(3), Millis(0)), Some(true));
    leases.grant(grant(9, 50.0, 100), 100, Reuse::Confirmed);
    assert_eq!(leases.release(named(7)), (false, Amount::ZERO), "a lease of an earlier record");
    assert_eq!(held(&leases, 0), 50.0);
    assert_eq!(leases.release(named(9)), (true, Amount::ZERO));
}

#[test]
fn leases_of_a_holder_are_bounded() {
    let mut leases = Leases::default();
    for n in 0..100u64 {
        leases.grant(grant(n + 1, 200.0 - n as f64, 1000 + n), 0, Reuse::Confirmed);
        assert!(leases.grants.len() <= MAX_GRANTS);
        assert_eq!(held(&leases, 0), 200.0, "the oldest lease is still live");
    }
}
