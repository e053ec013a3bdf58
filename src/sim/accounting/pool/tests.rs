use std::sync::Arc;

use leaseway_core::pool::PoolClient;

use super::*;

fn amount(value: f64) -> Amount {
    Amount::clamped(value)
}

fn report(total: f64, overloads: u64) -> PoolReport {
    let nothing = Amount::ZERO;
    PoolReport {
        min_capacity: amount(1.0),
        free_capacity: amount(1.0),
        total: amount(total),
        base: amount(100.0),
        max: amount(400.0),
        connected: Sum::ZERO,
        priority_connected: Sum::ZERO,
        priority_assigned: Sum::ZERO,
        used: nothing.into(),
        overloads,
        is_overloaded: false,
        deadline: None,
        is_learning: false,
        free_waiting: 0,
        priority_waiting: 0,
        revoking: 0,
        remembered: 0,
        burst: Millis(0),
        newest_event: 0,
    }
}

fn event(kind: PoolEventKind, holder: HolderKind, cause: Cause) -> PoolEvent {
    let id: Arc<str> = "c".into();
    PoolEvent {
        seq: 0,
        at: Millis(0),
        kind,
        total: Amount::ZERO,
        connected: Sum::ZERO,
        priority_connected: Sum::ZERO,
        client: Some(PoolClient {
            kind: holder,
            id,
            capacity: Amount::ZERO,
            is_priority: false,
            time_cost: 0.0,
            request_cost: 0.0,
        }),
        cause: Some(cause),
        deadline: None,
    }
}

fn pools() -> Pools {
    Pools::new(amount(100.0), Millis(10_000))
}

#[test]
fn usage_and_total_are_integrated_over_time() {
    let mut pools = pools();
    pools.uses(Millis(0), Amount::ZERO, amount(50.0));
    pools.record_report(Millis(15_000), 1, &report(200.0, 0));
    pools.uses(Millis(20_000), Amount::ZERO, amount(60.0));
    pools.uses(Millis(24_000), amount(60.0), Amount::ZERO);
    pools.advance(Millis(30_000));
    let figures = pools.figures();
    let near = |found: f64, expected: f64| assert!((found - expected).abs() < 1e-9, "{found}, expected {expected}");
    // 50, and 110 for 4 s of 20.
    near(figures.used, 62.0);
    near(figures.used_most, 110.0);
    near(figures.overused, 20.0);
    // 100 for 5 s, then 200.
    near(figures.total, 175.0);
    near(figures.total_most, 200.0);
}

#[test]
fn overloads_are_counted_over_all_masters_from_the_given_time_on() {
    let mut pools = pools();
    pools.record_report(Millis(5_000), 1, &report(100.0, 2));
    pools.record_report(Millis(12_000), 1, &report(100.0, 3));
    pools.record_report(Millis(14_000), 2, &report(100.0, 0));
    pools.record_report(Millis(16_000), 2, &report(100.0, 2));
    pools.advance(Millis(10_000 + 3_600_000));
    let figures = pools.figures();
    assert_eq!((figures.overloads, figures.overloads_in_8_h), (3, 24.0));
}

#[test]
fn only_clients_that_lost_their_capacity_count_as_kicked_out() {
    let mut pools = pools();
    let gone = PoolEventKind::Disconnected;
    for (at, kind, holder, cause) in [
        (9_000, gone, HolderKind::Client, Cause::Overload),
        (20_000, gone, HolderKind::Client, Cause::Overload),
        (21_000, gone, HolderKind::Client, Cause::Crowded),
        (22_000, gone, HolderKind::Client, Cause::Displaced),
        (23_000, gone, HolderKind::Client, Cause::Released),
        (24_000, gone, HolderKind::Client, Cause::Expired),
        (25_000, gone, HolderKind::Node, Cause::Crowded),
        (26_000, PoolEventKind::Update, HolderKind::Client, Cause::Overload),
        (130_000, gone, HolderKind::Client, Cause::Underrun),
    ] {
        pools.record_event(Millis(at), &event(kind, holder, cause));
    }
    let figures = pools.figures();
    assert_eq!((figures.kicked_out, figures.took_turns, figures.kicked_out_most), (3, 1, 2));
    assert_eq!(figures.kicked_out_in, [KickedOut { minute: 0, clients: 2 }, KickedOut { minute: 2, clients: 1 }]);
}
