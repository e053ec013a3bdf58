//! What happens when more is used than can be served, and how rarely that is.

use super::*;

/// A pool in which `clients` are connected, each with one unit; all of them have just reported to use this part of it.
fn crowded(base: f64, clients: usize, fraction: f64, parameters: &[(&str, &str)]) -> Pond {
    let mut settings = settings(base, &[&[("max_capacity", "1000")], parameters].concat());
    settings.refresh = Millis::from_secs(16);
    let learning_until = Millis(1000);
    let mut pond = Pond::born(Birth { learning_until, ..birth(settings) });
    for n in 0..clients {
        let id = format!("c{n:03}");
        let has = Some(crate::lease::holder::Has {
            token: None,
            capacity: Amount::clamped(1.0),
            expiry_time: now_at(pond.now).unix + 60,
        });
        let usage = Usage { recharging: fraction, request_cost: Amount::ZERO, interval: None };
        pond.send(Ask { has, news: Some(Box::new(News { key: None, usage: Some(usage) })), ..ask(&id, 1.0, None) });
    }
    pond.pass(1);
    pond.tick();
    assert_eq!(pond.pool().total.get(), clients as f64);
    pond
}

fn connected(pond: &Pond) -> usize {
    pond.list(PoolFilter::Connected).len()
}

/// All ask in turn over a refresh interval, and report the same.
fn refresh(pond: &mut Pond, clients: usize, fraction: f64) {
    for n in 0..clients {
        pond.now = pond.now.plus(Millis(16_000 / clients as u64));
        let id = format!("c{n:03}");
        let uses = if pond.leases[&id].capacity > Amount::ZERO { fraction } else { 0.0 };
        pond.reports(&id, 1.0, uses, 0.0);
    }
}

/// Refreshes are slow and overloads sudden: a victim goes on until it asks. If that counted as before, more and more
/// would be told to go, long before anything of it is seen.
#[test]
fn there_is_no_storm_when_half_as_much_again_is_used_as_can_be_served() {
    for mode in ["slots", "rate"] {
        let mut pond = crowded(100.0, 180, 0.5, &[("drop_mode", mode)]);
        let mut lowest = 180;
        for _ in 0..4 {
            // 150 of 100.
            refresh(&mut pond, 180, 150.0 / 180.0);
            lowest = lowest.min(connected(&pond));
        }
        assert!((119..=120).contains(&lowest), "{mode}: 120 of them use 100, {lowest} are left");
        let kicked = pond.events().iter().filter(|event| event.kind == PoolEventKind::Disconnected).count();
        assert!((60..=61).contains(&kicked), "{mode}: {kicked} were kicked out");
    }
}

#[test]
fn clients_that_use_nothing_are_not_cut_off_for_those_that_do() {
    let mut pond = crowded(10.0, 15, 0.5, &[]);
    for n in 0..15 {
        let id = format!("c{n:03}");
        pond.reports(&id, 1.0, if n < 4 { 0.0 } else { 1.0 }, 0.0);
    }
    let pool = pond.pool();
    assert_eq!((pool.total.get(), pool.used.get(), pool.overloads), (14.0, 10.0, 1));
    for n in 0..4 {
        assert_eq!(pond.due(&format!("c{n:03}")), 1.0);
    }
}

#[test]
fn priority_clients_that_overload_are_not_cut_off_without_a_word() {
    let mut pond = Pond::new(10.0, &[("max_capacity", "20"), ("raise_tc_s", "1")]);
    for id in ["p", "q"] {
        pond.assign(id, 6.0).expect("fits");
    }
    pond.reports("p", 6.0, 0.0, 0.0);
    for n in 0..4 {
        pond.reports(&format!("c{n}"), 1.0, 0.0, 0.0);
    }
    for _ in 0..10 {
        pond.pass(5);
        pond.reports("p", 6.0, 0.0, 0.0);
        for n in 0..4 {
            pond.reports(&format!("c{n}"), 1.0, 0.0, 0.0);
        }
    }
    assert_eq!(pond.reports("q", 6.0, 0.0, 0.0), 6.0, "little was used, so there is room");
    pond.happened();
    pond.reports("p", 6.0, 1.0, 0.0);
    pond.reports("q", 6.0, 1.0, 0.0);
    assert_eq!((pond.due("p"), pond.due("q")), (6.0, 6.0));
    let underrun = pond.events().into_iter().find(|event| event.kind == PoolEventKind::Underrun).expect("told first");
    assert_eq!(underrun.deadline, Some(pond.now.plus(Millis::from_secs(5))));
    assert_eq!(pond.pool().total.get(), 10.0);
    pond.pass(5);
    pond.tick();
    assert_eq!((pond.due("p"), pond.due("q")), (6.0, 4.0));
    pond.pass(5);
    pond.reports("q", 6.0, 1.0, 0.0);
    assert_eq!(pond.pool().used.get(), 10.0);
}

/// With `exp` the total falls by less than what the victims had, so that some of their places stay open.
#[test]
fn who_was_cut_off_is_not_called_back_before_it_has_asked() {
    let mut pond = crowded(10.0, 12, 0.5, &[("drop_mode", "exp")]);
    let ids: Vec<String> = (0..12).map(|n| format!("c{n:03}")).collect();
    for (n, id) in ids.iter().enumerate().rev() {
        pond.reports(id, 1.0, if n < 10 { 1.0 } else { 0.01 }, 0.0);
    }
    let cut = |pond: &Pond| ids.iter().filter(|id| pond.due(id) == 0.0).cloned().collect::<Vec<_>>();
    let victims = cut(&pond);
    assert_eq!(victims, ["c010", "c011"], "they came last");
    pond.tick();
    pond.assign("c011", 0.0).expect("nothing is assigned to it");
    pond.tick();
    let pool = pond.pool();
    assert_eq!((pool.used.get(), pool.revoking, pool.overloads), (10.0, 2, 1));
    assert!(pool.total.get() > 11.0, "a place is open: {pool:?}");
    assert_eq!(cut(&pond), victims);
    assert_eq!(pond.asks("c010", 1.0), 0.0);
    pond.tick();
    assert_eq!(pond.due("c010"), 1.0, "it waits like others from then on");
}

#[test]
fn what_a_report_does_not_tell_of_counts_as_used() {
    let mut pond = Pond::new(10.0, &[]);
    pond.reports("a", 1.0, 0.0, 0.0);
    pond.pass(10);
    let usage = Usage { recharging: 0.2, request_cost: Amount::ZERO, interval: Some(Millis::from_secs(5)) };
    pond.send(Ask { news: Some(Box::new(News { key: None, usage: Some(usage) })), ..pond.request("a", 1.0) });
    assert!((pond.pool().used.get() - 0.6).abs() < 1e-9, "half of the time a fifth, half of it all");
    pond.pass(5);
    pond.asks("a", 1.0);
    assert_eq!(pond.pool().used.get(), 1.0);
}

#[test]
fn the_total_rises_only_while_most_of_it_is_connected_and_little_is_used() {
    for (clients, fraction, rises) in [(10, 0.0, true), (10, 0.5, true), (10, 1.0, false), (7, 0.0, false)] {
        let mut pond = Pond::new(10.0, &[("max_capacity", "20")]);
        for _ in 0..20 {
            for n in 0..clients {
                pond.reports(&format!("c{n}"), 1.0, fraction, 0.0);
            }
            pond.pass(5);
        }
        pond.tick();
        assert_eq!(pond.pool().total.get() > 10.0, rises, "{clients} clients, {fraction}");
        assert!(pond.pool().total.get() < 10.0 * (100.0f64 / 3600.0).exp(), "no faster than that");
    }
}

#[test]
fn the_total_stays_below_its_ceiling() {
    let mut pond = Pond::new(10.0, &[("max_capacity", "12"), ("raise_tc_s", "10")]);
    for _ in 0..200 {
        for n in 0..13 {
            pond.reports(&format!("c{n}"), 1.0, 0.0, 0.0);
        }
        pond.pass(5);
    }
    assert_eq!(pond.pool().total.get(), 12.0);
    assert_eq!(connected(&pond), 12);
}

#[test]
fn overbooking_is_a_part_of_what_can_be_served() {
    let mut pond = crowded(10.0, 15, 0.1, &[]);
    pond.capacity(8.0);
    assert_eq!(pond.pool().total.get(), 12.0);
    pond.capacity(10.0);
    assert_eq!(pond.pool().total.get(), 12.0, "that more can be served does not show that more can be promised");
    pond.capacity(14.0);
    assert_eq!(pond.pool().total.get(), 14.0);
}

#[test]
fn costs_weigh_as_the_pool_is_limited() {
    let parameters = [("max_capacity", "12"), ("cost_weights", "auto"), ("calm_s", "60"), ("raise_tc_s", "10")];
    let mut pond = Pond::new(10.0, &parameters);
    let balance = |pond: &Pond| pond.resource.pool_members(PoolFilter::Known, None, 1).members[0].balance;
    let step = |pond: &mut Pond, cost| {
        let before = balance(pond);
        pond.pass(1);
        for n in 0..13 {
            pond.reports(&format!("c{n:02}"), 1.0, 0.0, if n == 0 { cost } else { 0.0 });
        }
        balance(pond) - before
    };
    for n in 0..13 {
        pond.reports(&format!("c{n:02}"), 1.0, 0.0, 0.0);
    }
    let near = |found: f64, expected: f64| assert!((found - expected).abs() < 1e-6, "{found}, expected {expected}");
    near(step(&mut pond, 2.0), 2.1);
    for _ in 0..50 {
        step(&mut pond, 0.0);
    }
    assert_eq!(pond.pool().total.get(), 12.0);
    near(step(&mut pond, 2.0), 3.0);
    for _ in 0..70 {
        step(&mut pond, 0.0);
    }
    near(step(&mut pond, 2.0), 1.2);
}

/// Three priority clients hold 180 of a pool of a hundred, and have just reported that they use half of it.
fn three_use_half(parameters: &[(&str, &str)]) -> Pond {
    let mut pond = Pond::born(Birth {
        learning_until: Millis(1000),
        ..birth(settings(100.0, &[&[("max_capacity", "200")], parameters].concat()))
    });
    let sixty = Assigned::Capacity(Amount::clamped(60.0));
    let all = ["p", "q", "r"];
    pond.resource.remember_assignments(all.map(|id| (HolderKind::Client, id.into(), sixty)));
    for id in all {
        let capacity = Amount::clamped(60.0);
        let has = Some(crate::lease::holder::Has { token: None, capacity, expiry_time: now_at(pond.now).unix + 60 });
        let usage = Usage { recharging: 0.5, request_cost: Amount::ZERO, interval: None };
        pond.send(Ask { has, news: Some(Box::new(News { key: None, usage: Some(usage) })), ..ask(id, 60.0, None) });
    }
    pond.pass(1);
    pond.tick();
    pond.happened();
    pond
}

/// T2 of an overload: reports come one after the other, and what each adds must not wait for the next window.
#[test]
fn each_report_within_the_window_lowers_the_total_and_one_window_is_enough() {
    let mut pond = three_use_half(&[]);
    let mut totals = Vec::new();
    let deadline = pond.now.plus(Millis::from_secs(5));
    for id in ["p", "q", "r"] {
        pond.reports(id, 60.0, 1.0, 0.0);
        totals.push(pond.pool().total.get());
        assert_eq!(pond.pool().deadline, Some(deadline), "{id}: {totals:?}");
        assert_eq!(pond.due(id), 60.0, "there is time to choose");
        pond.pass(1);
    }
    pond.pass(2);
    pond.tick();
    let due = ["p", "q", "r"].map(|id| pond.due(id));
    assert_eq!((totals, due), (vec![140.0, 100.0, 100.0], [60.0, 40.0, 0.0]), "of what the last has it uses half");
    assert_eq!((pond.pool().used.get(), pond.pool().deadline), (100.0, None), "all of it was cut at once");
    let underruns: Vec<_> = pond.events().into_iter().filter(|event| event.kind == PoolEventKind::Underrun).collect();
    assert_eq!(underruns.iter().map(|event| event.total.get()).collect::<Vec<_>>(), [140.0, 100.0]);
    assert!(underruns.iter().all(|event| event.deadline == Some(deadline)), "{underruns:?}");
}

#[test]
fn what_the_manager_takes_from_others_counts_for_what_the_pool_would_have_taken() {
    let mut pond = three_use_half(&[]);
    pond.reports("p", 60.0, 1.0, 0.0);
    assert_eq!(pond.pool().total.get(), 140.0, "r would have to give up 40 to use 20 less");
    pond.assign("p", 50.0).expect("less than before");
    assert_eq!(pond.pool().total.get(), 150.0, "half is done");
    assert!(pond.pool().deadline.is_some());
    pond.assign("p", 40.0).expect("less than before");
    assert_eq!((pond.pool().total.get(), pond.pool().deadline), (160.0, None));
    pond.pass(10);
    pond.tick();
    assert_eq!(["p", "q", "r"].map(|id| pond.due(id)), [40.0, 60.0, 60.0]);
}

/// As long as more is used than can be served it is one overload, however many are cut off for it.
#[test]
fn an_overload_is_counted_once_until_it_is_over() {
    let mut pond = crowded(10.0, 15, 0.5, &[("raise_tc_s", "10")]);
    refresh(&mut pond, 15, 1.0);
    assert_eq!(pond.pool().overloads, 1, "a report after the other said more");
    assert!(pond.pool().is_overloaded, "those who have been told to go go on until they ask");
    refresh(&mut pond, 15, 1.0);
    refresh(&mut pond, 15, 1.0);
    assert_eq!((pond.pool().overloads, pond.pool().is_overloaded, pond.pool().connected.get()), (1, false, 10.0));
    for _ in 0..10 {
        refresh(&mut pond, 15, 0.1);
    }
    assert_eq!(connected(&pond), 15, "little was used, so the total has risen");
    for n in 0..15 {
        pond.reports(&format!("c{n:03}"), 1.0, 1.0, 0.0);
        assert_eq!(pond.pool().overloads, if pond.pool().is_overloaded { 2 } else { 1 });
        if pond.pool().is_overloaded {
            return;
        }
    }
    panic!("no overload");
}

/// How often more is used than can be served in eight hours, if the total rises by a factor of e in this time at most.
/// Sixty clients use what they have a quarter of the time, each by itself; twenty units can be served.
fn overloads(raise_tc: &str) -> u64 {
    let mut settings = settings(20.0, &[("max_capacity", "80"), ("raise_tc_s", raise_tc)]);
    settings.refresh = Millis::from_secs(20);
    let mut pond = Pond::born(birth(settings));
    let mut state = 1u64;
    for _ in 0..1440 {
        for n in 0..60 {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            let uses = if state >> 62 == 0 { 1.0 } else { 0.0 };
            pond.reports(&format!("c{n}"), 1.0, uses, 0.0);
        }
        pond.resource.take_pool_events();
        pond.pass(20);
    }
    pond.pool().overloads
}

#[test]
fn the_slower_the_total_rises_the_rarer_are_overloads() {
    let found = ["900", "3600", "14400", "57600"].map(overloads);
    assert!(found.windows(2).all(|pair| pair[0] > pair[1]), "{found:?}");
    assert!(found[3] * 8 < found[0], "{found:?}");
}
