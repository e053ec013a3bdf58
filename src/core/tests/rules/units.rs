//! With `whole_units` nobody gets a part of a unit, and the units that are left over go round.

use super::*;

fn whole(capacity: f64) -> Settings {
    let mut settings = fair(capacity);
    settings.whole_units = true;
    (settings.refresh, settings.min_request_interval) = (Millis(5_000), Millis(0));
    settings.rotation_period = Some(Millis(40_000));
    settings
}

/// Everybody asks when it was told to, and again at once to confirm that it has less; calls `look` all the time.
fn live(desk: &mut Desk, wants: &[(&str, f64)], secs: u64, mut look: impl FnMut(&Desk)) {
    let mut due: BTreeMap<&str, Millis> = wants.iter().map(|(id, _)| (*id, desk.now)).collect();
    for _ in 0..secs * 10 {
        for (id, wants) in wants {
            if due[id] <= desk.now {
                let had = desk.leases.get(*id).map_or(0.0, |lease| lease.capacity.get());
                let shrank = desk.asks(id, *wants) < had;
                let pause = if shrank { Millis(100) } else { desk.leases[*id].refresh };
                due.insert(*id, desk.now.plus(pause));
            }
        }
        look(desk);
        desk.pass(100);
        desk.resource.tick(desk.now);
    }
}

const TEN: [(&str, f64); 10] = [
    ("a", 5.0),
    ("b", 5.0),
    ("c", 5.0),
    ("d", 5.0),
    ("e", 5.0),
    ("f", 5.0),
    ("g", 5.0),
    ("h", 5.0),
    ("i", 5.0),
    ("j", 5.0),
];

#[test]
fn three_units_go_round_among_ten() {
    for kind in [Kind::FairShare, Kind::ProportionalShare] {
        let mut desk = Desk::new(Settings { kind, ..whole(3.0) });
        // All have come, and a round begins.
        live(&mut desk, &TEN, 40, |_| ());
        let (mut had, mut used, mut looks) = ([0.0; 10], 0.0, 0.0);
        live(&mut desk, &TEN, 400, |desk| {
            let has = TEN.map(|(id, _)| desk.leases[id].capacity.get());
            assert!(has.iter().all(|has| *has == has.floor() && *has <= 1.0), "{has:?}");
            used += has.iter().sum::<f64>();
            looks += 1.0;
            had.iter_mut().zip(has).for_each(|(had, has)| *had += has);
        });
        for had in had {
            assert!((had / looks - 0.3).abs() < 0.05, "{kind:?}: one of ten had {} of a unit", had / looks);
        }
        // A unit is idle from when it is given up until the next one asks for it, about a second of forty.
        assert!(used / looks > 0.9 * 3.0, "{kind:?}: {} of 3 units were in use", used / looks);
    }
}

#[test]
fn nobody_gets_a_part_and_whoever_wants_less_than_a_unit_gets_nothing() {
    let mut desk = Desk::new(whole(10.0));
    assert_eq!(desk.asks("a", 0.9), 0.0);
    assert_eq!(desk.asks("b", 2.7), 2.0);
    assert_eq!(desk.asks("c", 100.0), 8.0, "what the others cannot use is not lost");
    assert_eq!((desk.report("c").wants.get(), desk.held()), (100.0, 10.0));
}

#[test]
fn a_unit_that_is_free_goes_to_one_instead_of_halves_to_two() {
    let mut desk = Desk::new(whole(4.0));
    desk.asks("a", 3.0);
    let got = desk.round(&[("b", 3.0), ("c", 3.0)]);
    assert_eq!(got.iter().sum::<f64>(), 1.0, "{got:?}");
}

#[test]
fn a_capacity_that_is_not_whole_is_cut_down() {
    let mut desk = Desk::new(whole(3.9));
    live(&mut desk, &TEN, 120, |desk| assert!(desk.held() <= 3.0));
    assert_eq!(desk.held(), 3.0);
}

#[test]
fn refreshes_come_at_the_end_of_a_round() {
    let mut desk = Desk::new(whole(1.0));
    desk.round(&[("a", 1.0), ("b", 1.0)]);
    desk.pass(37_000);
    desk.asks("a", 1.0);
    desk.asks("b", 1.0);
    let refresh = |id: &str| desk.leases[id].refresh.0;
    assert_eq!((refresh("a"), refresh("b")), (3_000, 4_000), "whoever has it gives it up, and then the other asks");
}

#[test]
fn when_units_are_whole_no_more_parts_are_taken_back() {
    let mut desk = Desk::new(fair(10.0));
    desk.round(&[("a", 9.0), ("b", 9.0), ("c", 9.0)]);
    desk.change(|settings| settings.whole_units = true);
    for _ in 0..3 {
        desk.pass(16_000);
        for id in ["a", "b", "c"] {
            desk.asks(id, 9.0);
        }
    }
    let has = ["a", "b", "c"].map(|id| desk.leases[id].capacity.get());
    assert_eq!(has.iter().sum::<f64>(), 10.0, "{has:?}");
    assert!(has.iter().all(|has| *has == has.floor()), "{has:?}");
    desk.change(|settings| settings.whole_units = false);
    desk.pass(16_000);
    assert!((desk.report("a").due.get() - 10.0 / 3.0).abs() < 1e-9);
}

#[test]
fn a_unit_goes_round_by_weights() {
    let mut desk = Desk::new(Settings { priority: Priority::Weighted, ..whole(1.0) });
    let mut had = [0.0; 2];
    for _ in 0..8 * 30 {
        let has = [("heavy", 2), ("light", 1)].map(|(id, priority)| {
            let ask =
                |desk: &Desk| Ask { claims: Claims::from_slice(&[slice(1, 5.0, priority)]), ..desk.request(id, 0.0) };
            // Once more, to confirm what it heard.
            desk.deliver(ask(&desk));
            desk.deliver(ask(&desk))
        });
        assert!(has == [0.0, 0.0] || has == [0.0, 1.0] || has == [1.0, 0.0], "{has:?}");
        had.iter_mut().zip(has).for_each(|(had, has)| *had += has);
        desk.pass(5_000);
    }
    let heavy = had[0] / (had[0] + had[1]);
    assert!((heavy - 2.0 / 3.0).abs() < 0.03, "it had the unit for {heavy} of the time");
}
