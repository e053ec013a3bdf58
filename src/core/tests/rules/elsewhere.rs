//! Faults of other limiters, by the numbers that they have there: what went wrong, asked of ours.

use super::*;

/// A hundred, of which all have to be asked for within three refreshes.
fn settled(wants: &[(&str, f64)]) -> Vec<f64> {
    let mut server = Server::new(fair(100.0));
    let mut last = Vec::new();
    for _ in 0..3 {
        last = wants.iter().map(|(id, wants)| server.asks(id, *wants)).collect();
        server.pass(16_000);
    }
    last
}

/// The sum over partitions passed the limit by a fifth, because each looked before any of them had taken anything.
#[test]
fn concurrency_limits_234_those_that_look_at_the_same_time_do_not_pass_the_limit_together() {
    let mut server = Server::new(fair(100.0));
    let answers = server.send_all(std::array::from_fn::<_, 10, _>(|n| ask(&format!("c{n}"), 60.0, None)));
    let sum: f64 = answers.into_iter().map(|answer| granted(answer).capacity.get()).sum();
    assert_eq!((sum, server.held()), (100.0, 100.0));
}

/// An even split left the hot client waiting below the limit.
#[test]
fn pd_9605_and_11211_what_others_do_not_want_is_for_the_one_that_does() {
    assert_eq!(settled(&[("a", 2.0), ("b", 3.0), ("hot", 500.0)]), [2.0, 3.0, 95.0]);
}

/// Where a fill rate was computed as 0, a client was stuck for a second.
#[test]
fn pd_10251_none_is_left_with_nothing_while_there_is_something() {
    let mut server = Server::new(fair(100.0));
    for client in 0..1000 {
        assert!(server.asks(&format!("c{client}"), 0.05) > 0.0, "{client}");
    }
}

/// Even parts were called fair: max-min is not even.
#[test]
fn kubernetes_95979_shares_are_max_min_and_not_even() {
    assert_eq!(settled(&[("a", 10.0), ("b", 30.0), ("c", 80.0), ("d", 90.0)]), [10.0, 30.0, 30.0, 30.0]);
}

/// Counters went down and never came back.
#[test]
fn gubernator_225_all_is_there_again_when_leases_have_ended() {
    let mut server = Server::new(fair(100.0));
    for instance in 0..50 {
        assert_eq!(server.asks(&format!("c{instance}"), 100.0), 100.0, "life {instance}");
        server.pass(62_000);
        server.resource.tick(server.now);
    }
    assert_eq!((server.held(), server.resource.holders()), (0.0, 0));
}

/// Each request found that its entry had expired, and began anew.
#[test]
fn envoy_35723_a_request_finds_the_lease_of_the_one_before() {
    let mut server = Server::new(fair(100.0));
    for _ in 0..20 {
        assert_eq!(server.asks("a", 60.0), 60.0);
        assert_eq!(server.asks("b", 40.0), 40.0);
        server.pass(16_000);
    }
    assert_eq!((server.held(), server.resource.holders()), (100.0, 2));
}
