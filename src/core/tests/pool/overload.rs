//! Overloads: usage beyond the base, victims, and the total.

use super::*;

/// A pool with this number of connected clients of one unit each. All have reported usage of this fraction.
fn crowded(base: f64, clients: usize, fraction: f64, parameters: &[(&str, &str)]) -> PoolServer {
    let mut settings = settings(base, &[&[("max_capacity", "1000")], parameters].concat());
    settings.refresh = Millis::from_secs(16);
    let learning_until = Millis(1000);
    let mut server = PoolServer::with_options(ResourceOptions { learning_until, ..options(settings) });
    for n in 0..clients {
        let id = format!("c{n:03}");
        let has = Some(crate::lease::holder::ShownLease {
            token: None,
            capacity: Amount::clamped(1.0),
            expiry_time: now_at(server.now).unix + 60,
        });
        let usage = Usage { recharging: fraction, request_cost: Amount::ZERO, interval: None };
        server.send(Ask {
            has,
            pool_fields: Some(Box::new(PoolFields { key: None, usage: Some(usage) })),
            ..ask(&id, 1.0, None)
        });
    }
    server.pass(1);
    server.tick();
    assert_eq!(server.report().total.get(), clients as f64);
    server
}

fn connected(server: &PoolServer) -> usize {
    server.list(PoolFilter::Connected).len()
}

/// All clients ask in turn over one refresh interval and report usage of this fraction.
fn refresh(server: &mut PoolServer, clients: usize, fraction: f64) {
    for n in 0..clients {
        server.now = server.now.plus(Millis(16_000 / clients as u64));
        let id = format!("c{n:03}");
        let uses = if server.leases[&id].capacity > Amount::ZERO { fraction } else { 0.0 };
        server.reports(&id, 1.0, uses, 0.0);
    }
}

/// A victim uses its capacity until its next request. If that usage counted, the pool would disconnect more and more
/// clients before the first disconnection takes effect.
#[test]
fn overload_cuts_no_more_clients_than_needed() {
    for mode in ["slots", "rate"] {
        let mut server = crowded(100.0, 180, 0.5, &[("drop_mode", mode)]);
        let mut lowest = 180;
        for _ in 0..4 {
            // Usage of 150 at a base of 100.
            refresh(&mut server, 180, 150.0 / 180.0);
            lowest = lowest.min(connected(&server));
        }
        assert!((119..=120).contains(&lowest), "{mode}: 120 of them use 100, {lowest} are left");
        let kicked = server.events().iter().filter(|event| event.kind == PoolEventKind::Disconnected).count();
        assert!((60..=61).contains(&kicked), "{mode}: {kicked} were kicked out");
    }
}

#[test]
fn overload_spares_idle_clients() {
    let mut server = crowded(10.0, 15, 0.5, &[]);
    for n in 0..15 {
        let id = format!("c{n:03}");
        server.reports(&id, 1.0, if n < 4 { 0.0 } else { 1.0 }, 0.0);
    }
    let pool = server.report();
    assert_eq!((pool.total.get(), pool.used.get(), pool.overloads), (14.0, 10.0, 1));
    for n in 0..4 {
        assert_eq!(server.due(&format!("c{n:03}")), 1.0);
    }
}

#[test]
fn overload_by_priority_clients_starts_an_underrun() {
    let mut server = PoolServer::new(10.0, &[("max_capacity", "20"), ("raise_tc_s", "1")]);
    for id in ["p", "q"] {
        server.assign(id, 6.0).expect("fits");
    }
    server.reports("p", 6.0, 0.0, 0.0);
    for n in 0..4 {
        server.reports(&format!("c{n}"), 1.0, 0.0, 0.0);
    }
    for _ in 0..10 {
        server.pass(5);
        server.reports("p", 6.0, 0.0, 0.0);
        for n in 0..4 {
            server.reports(&format!("c{n}"), 1.0, 0.0, 0.0);
        }
    }
    assert_eq!(server.reports("q", 6.0, 0.0, 0.0), 6.0, "usage was low, so the total has risen");
    server.event_kinds();
    server.reports("p", 6.0, 1.0, 0.0);
    server.reports("q", 6.0, 1.0, 0.0);
    assert_eq!((server.due("p"), server.due("q")), (6.0, 6.0));
    let underrun = server
        .events()
        .into_iter()
        .find(|event| event.kind == PoolEventKind::Underrun)
        .expect("an underrun event comes first");
    assert_eq!(underrun.deadline, Some(server.now.plus(Millis::from_secs(5))));
    assert_eq!(server.report().total.get(), 10.0);
    server.pass(5);
    server.tick();
    assert_eq!((server.due("p"), server.due("q")), (6.0, 4.0));
    server.pass(5);
    server.reports("q", 6.0, 1.0, 0.0);
    assert_eq!(server.report().used.get(), 10.0);
}

/// With `exp` the total falls by less than the capacity of the victims, so some places stay open.
#[test]
fn victim_stays_cut_off_until_it_asks() {
    let mut server = crowded(10.0, 12, 0.5, &[("drop_mode", "exp")]);
    let ids: Vec<String> = (0..12).map(|n| format!("c{n:03}")).collect();
    for (n, id) in ids.iter().enumerate().rev() {
        server.reports(id, 1.0, if n < 10 { 1.0 } else { 0.01 }, 0.0);
    }
    let cut = |server: &PoolServer| ids.iter().filter(|id| server.due(id) == 0.0).cloned().collect::<Vec<_>>();
    let victims = cut(&server);
    assert_eq!(victims, ["c010", "c011"], "the last arrivals");
    server.tick();
    server.assign("c011", 0.0).expect("nothing is assigned to it");
    server.tick();
    let pool = server.report();
    assert_eq!((pool.used.get(), pool.revoking, pool.overloads), (10.0, 2, 1));
    assert!(pool.total.get() > 11.0, "a place is open: {pool:?}");
    assert_eq!(cut(&server), victims);
    assert_eq!(server.asks("c010", 1.0), 0.0);
    server.tick();
    assert_eq!(server.due("c010"), 1.0, "from then on it waits like other clients");
}

#[test]
fn unreported_time_counts_as_full_usage() {
    let mut server = PoolServer::new(10.0, &[]);
    server.reports("a", 1.0, 0.0, 0.0);
    server.pass(10);
    let usage = Usage { recharging: 0.2, request_cost: Amount::ZERO, interval: Some(Millis::from_secs(5)) };
    server.send(Ask {
        pool_fields: Some(Box::new(PoolFields { key: None, usage: Some(usage) })),
        ..server.request("a", 1.0)
    });
    assert!((server.report().used.get() - 0.6).abs() < 1e-9, "a fifth for half of the time, full use for the rest");
    server.pass(5);
    server.asks("a", 1.0);
    assert_eq!(server.report().used.get(), 1.0);
}

#[test]
fn total_rises_with_high_demand_and_low_usage() {
    for (clients, fraction, rises) in [(10, 0.0, true), (10, 0.5, true), (10, 1.0, false), (7, 0.0, false)] {
        let mut server = PoolServer::new(10.0, &[("max_capacity", "20")]);
        for _ in 0..20 {
            for n in 0..clients {
                server.reports(&format!("c{n}"), 1.0, fraction, 0.0);
            }
            server.pass(5);
        }
        server.tick();
        assert_eq!(server.report().total.get() > 10.0, rises, "{clients} clients, {fraction}");
        assert!(server.report().total.get() < 10.0 * (100.0f64 / 3600.0).exp(), "at most by a factor of e per hour");
    }
}

#[test]
fn overbooking_is_relative_to_the_base() {
    let mut server = crowded(10.0, 15, 0.1, &[]);
    server.capacity(8.0);
    assert_eq!(server.report().total.get(), 12.0);
    server.capacity(10.0);
    assert_eq!(server.report().total.get(), 12.0, "a larger base does not raise the total");
    server.capacity(14.0);
    assert_eq!(server.report().total.get(), 14.0);
}

#[test]
fn cost_weights_follow_the_limiting_factor() {
    let parameters = [("max_capacity", "12"), ("cost_weights", "auto"), ("calm_s", "60"), ("raise_tc_s", "10")];
    let mut server = PoolServer::new(10.0, &parameters);
    let balance = |server: &PoolServer| server.resource.pool_members(PoolFilter::Known, None, 1).members[0].balance;
    let step = |server: &mut PoolServer, cost| {
        let before = balance(server);
        server.pass(1);
        for n in 0..13 {
            server.reports(&format!("c{n:02}"), 1.0, 0.0, if n == 0 { cost } else { 0.0 });
        }
        balance(server) - before
    };
    for n in 0..13 {
        server.reports(&format!("c{n:02}"), 1.0, 0.0, 0.0);
    }
    let near = |found: f64, expected: f64| assert!((found - expected).abs() < 1e-6, "{found}, expected {expected}");
    near(step(&mut server, 2.0), 2.1);
    for _ in 0..50 {
        step(&mut server, 0.0);
    }
    assert_eq!(server.report().total.get(), 12.0);
    near(step(&mut server, 2.0), 3.0);
    for _ in 0..70 {
        step(&mut server, 0.0);
    }
    near(step(&mut server, 2.0), 1.2);
}

/// Three priority clients hold 180 of a pool with a base of 100, and have reported usage of one half.
fn three_use_half(parameters: &[(&str, &str)]) -> PoolServer {
    let mut server = PoolServer::with_options(ResourceOptions {
        learning_until: Millis(1000),
        ..options(settings(100.0, &[&[("max_capacity", "200")], parameters].concat()))
    });
    let sixty = Assigned::Capacity(Amount::clamped(60.0));
    let all = ["p", "q", "r"];
    server.resource.remember_assignments(all.map(|id| (HolderKind::Client, id.into(), sixty)));
    for id in all {
        let capacity = Amount::clamped(60.0);
        let has =
            Some(crate::lease::holder::ShownLease { token: None, capacity, expiry_time: now_at(server.now).unix + 60 });
        let usage = Usage { recharging: 0.5, request_cost: Amount::ZERO, interval: None };
        server.send(Ask {
            has,
            pool_fields: Some(Box::new(PoolFields { key: None, usage: Some(usage) })),
            ..ask(id, 60.0, None)
        });
    }
    server.pass(1);
    server.tick();
    server.event_kinds();
    server
}

/// Reports arrive one after the other. The excess of each must not wait for the next reduction window.
#[test]
fn reports_within_one_window_lower_the_total() {
    let mut server = three_use_half(&[]);
    let mut totals = Vec::new();
    let deadline = server.now.plus(Millis::from_secs(5));
    for id in ["p", "q", "r"] {
        server.reports(id, 60.0, 1.0, 0.0);
        totals.push(server.report().total.get());
        assert_eq!(server.report().deadline, Some(deadline), "{id}: {totals:?}");
        assert_eq!(server.due(id), 60.0, "the reduction window is open");
        server.pass(1);
    }
    server.pass(2);
    server.tick();
    let due = ["p", "q", "r"].map(|id| server.due(id));
    assert_eq!(
        (totals, due),
        (vec![140.0, 100.0, 100.0], [60.0, 40.0, 0.0]),
        "only usage counts, so r loses all of its capacity"
    );
    assert_eq!(
        (server.report().used.get(), server.report().deadline),
        (100.0, None),
        "all of the excess was cut in one step"
    );
    let underruns: Vec<_> = server.events().into_iter().filter(|event| event.kind == PoolEventKind::Underrun).collect();
    assert_eq!(underruns.iter().map(|event| event.total.get()).collect::<Vec<_>>(), [140.0, 100.0]);
    assert!(underruns.iter().all(|event| event.deadline == Some(deadline)), "{underruns:?}");
}

#[test]
fn manager_choice_replaces_pool_choice() {
    let mut server = three_use_half(&[]);
    server.reports("p", 60.0, 1.0, 0.0);
    assert_eq!(server.report().total.get(), 140.0, "r would have to give up 40 to use 20 less");
    server.assign("p", 50.0).expect("less than before");
    assert_eq!(server.report().total.get(), 150.0, "half of the excess is gone");
    assert!(server.report().deadline.is_some());
    server.assign("p", 40.0).expect("less than before");
    assert_eq!((server.report().total.get(), server.report().deadline), (160.0, None));
    server.pass(10);
    server.tick();
    assert_eq!(["p", "q", "r"].map(|id| server.due(id)), [40.0, 60.0, 60.0]);
}

/// An overload lasts until usage is below the base, regardless of the number of victims.
#[test]
fn overload_is_counted_once() {
    let mut server = crowded(10.0, 15, 0.5, &[("raise_tc_s", "10")]);
    refresh(&mut server, 15, 1.0);
    assert_eq!(server.report().overloads, 1, "several reports of one overload");
    assert!(server.report().is_overloaded, "victims use their capacity until they ask");
    refresh(&mut server, 15, 1.0);
    refresh(&mut server, 15, 1.0);
    assert_eq!(
        (server.report().overloads, server.report().is_overloaded, server.report().connected.get()),
        (1, false, 10.0)
    );
    for _ in 0..10 {
        refresh(&mut server, 15, 0.1);
    }
    assert_eq!(connected(&server), 15, "usage was low, so the total has risen");
    for n in 0..15 {
        server.reports(&format!("c{n:03}"), 1.0, 1.0, 0.0);
        assert_eq!(server.report().overloads, if server.report().is_overloaded { 2 } else { 1 });
        if server.report().is_overloaded {
            return;
        }
    }
    panic!("no overload");
}

/// The number of overloads in eight hours with this `raise_tc_s`. Each of sixty clients uses its capacity a quarter of
/// the time; the base is twenty units.
fn overloads(raise_tc: &str) -> u64 {
    let mut settings = settings(20.0, &[("max_capacity", "80"), ("raise_tc_s", raise_tc)]);
    settings.refresh = Millis::from_secs(20);
    let mut server = PoolServer::with_options(options(settings));
    let mut state = 1u64;
    for _ in 0..1440 {
        for n in 0..60 {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            let uses = if state >> 62 == 0 { 1.0 } else { 0.0 };
            server.reports(&format!("c{n}"), 1.0, uses, 0.0);
        }
        server.resource.take_pool_events();
        server.pass(20);
    }
    server.report().overloads
}

#[test]
fn slower_rise_causes_fewer_overloads() {
    let found = ["900", "3600", "14400", "57600"].map(overloads);
    assert!(found.windows(2).all(|pair| pair[0] > pair[1]), "{found:?}");
    assert!(found[3] * 8 < found[0], "{found:?}");
}
