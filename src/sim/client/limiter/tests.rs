use leaseway_client::session::{Capacity, GrantedLease, Pace, Wire};

use super::*;

const WINDOW: Window = Window { length: std::time::Duration::from_secs(1), rate: 100.0, slides: false };

/// A client with 50 callers per second and a lease of 10/s for twenty seconds.
fn leased_ten() -> LimiterClient {
    let (endpoints, pace) = (vec!["a:1".into()], Pace::default());
    let settings = session::Settings { endpoints, pace, resources_per_request: 1, seed: 1 };
    let mut client = LimiterClient::new("r".into(), WINDOW, settings, 1);
    client.offer(Millis(0), Asked { amount: 50.0, ..Asked::default() });
    let asked = client.poll(Millis(5)).expect("the first caller may have come");
    let wire = Wire { expiry_time: 20, refresh_interval: 20, capacity: 10.0 };
    let (length, refresh) = (Millis(20_000), Millis(20_000));
    let given = GrantedLease { id: "r".into(), length, refresh, token: Some(1), wire, safe: None, budget: None };
    client.tell(Millis(50), |session| session.answered(Millis(50), asked.number, vec![given]));
    assert_eq!(client.changed(Millis(50)).map(leased), Some(10.0));
    client
}

fn set(client: &mut LimiterClient, now: Millis, capacity: f64) {
    let open = client.open.as_mut().expect("it is open");
    open.bucket.set(nanos(now), Capacity::of(capacity), None);
}

#[test]
fn callers_are_admitted_by_the_lease_and_wants_follow_their_rate() {
    let mut client = leased_ten();
    for second in 1..20 {
        client.poll(Millis(second * 1_000));
    }
    let CallerCounts { arrived, passed } = client.served();
    assert!((900..1_000).contains(&arrived) && (195..=200).contains(&passed), "{arrived} {passed}");
    assert!((40.0..60.0).contains(&client.wanted()), "{}", client.wanted());
    client.poll(Millis(20_005));
    assert_eq!(client.changed(Millis(20_005)).map(leased), Some(0.0), "it has ended");
    client.poll(Millis(30_000));
    assert_eq!(client.take_broken(), None);
    assert!(client.served().arrived > arrived && client.served().passed <= 210);
    client.close(Millis(30_000));
    client.poll(Millis(40_000));
    assert_eq!((client.served().arrived, client.wanted()), (0, 0.0));
}

/// Sets the capacity of the bucket to less or more than that of the lease.
#[test]
fn a_limiter_that_admits_too_much_or_too_little_is_found() {
    let broken = |capacity| {
        let mut client = leased_ten();
        client.poll(Millis(10_000));
        assert_eq!(client.take_broken(), None);
        set(&mut client, Millis(10_000), capacity);
        client.poll(Millis(15_000));
        client.take_broken().map(|violation| violation.invariant)
    };
    assert_eq!(broken(10.0), None);
    assert_eq!(broken(20.0), Some("admitted ≤ ∫ leased + burst"));
    assert_eq!(broken(5.0), Some("no refusal within the budget"));
}

#[test]
fn a_limiter_that_misses_the_expiry_is_found() {
    let mut client = leased_ten();
    client.poll(Millis(20_000));
    assert_eq!(client.take_broken(), None);
    client.poll(Millis(21_000));
    assert_eq!(client.take_broken().map(|violation| violation.invariant), Some("no permit without a lease"));
}
