//! `whole_units`: only whole units are granted, and left-over units rotate.

use super::*;

fn whole(capacity: f64) -> Settings {
    let mut settings = fair(capacity);
    settings.whole_units = true;
    (settings.refresh, settings.min_request_interval) = (Millis(5_000), Millis(0));
    settings.rotation_period = Some(Millis(40_000));
    settings
}

/// Each client asks at its refresh time, and immediately again to confirm a smaller lease. Calls `look` every 100 ms.
fn live(server: &mut Server, wants: &[(&str, f64)], secs: u64, mut look: impl FnMut(&Server)) {
    let mut due: BTreeMap<&str, Millis> = wants.iter().map(|(id, _)| (*id, server.now)).collect();
    for _ in 0..secs * 10 {
        for (id, wants) in wants {
            if due[id] <= server.now {
                let had = server.leases.get(*id).map_or(0.0, |lease| lease.capacity.get());
                let shrank = server.asks(id, *wants) < had;
                let pause = if shrank { Millis(100) } else { server.leases[*id].refresh };
                due.insert(*id, server.now.plus(pause));
            }
        }
        look(server);
        server.pass(100);
        server.resource.tick(server.now);
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
fn three_units_rotate_among_ten_clients() {
    for kind in [AlgorithmKind::FairShare, AlgorithmKind::ProportionalShare] {
        let mut server = Server::new(Settings { kind, ..whole(3.0) });
        // All clients have asked, and a rotation begins.
        live(&mut server, &TEN, 40, |_| ());
        let (mut had, mut used, mut looks) = ([0.0; 10], 0.0, 0.0);
        live(&mut server, &TEN, 400, |server| {
            let has = TEN.map(|(id, _)| server.leases[id].capacity.get());
            assert!(has.iter().all(|has| *has == has.floor() && *has <= 1.0), "{has:?}");
            used += has.iter().sum::<f64>();
            looks += 1.0;
            had.iter_mut().zip(has).for_each(|(had, has)| *had += has);
        });
        for had in had {
            assert!((had / looks - 0.3).abs() < 0.05, "{kind:?}: one of ten had {} of a unit", had / looks);
        }
        // A unit is idle between its release and the next request, about one second of forty.
        assert!(used / looks > 0.9 * 3.0, "{kind:?}: {} of 3 units were in use", used / looks);
    }
}

#[test]
fn only_whole_units_are_granted() {
    let mut server = Server::new(whole(10.0));
    assert_eq!(server.asks("a", 0.9), 0.0);
    assert_eq!(server.asks("b", 2.7), 2.0);
    assert_eq!(server.asks("c", 100.0), 8.0, "unused fractions are not lost");
    assert_eq!((server.report("c").wants.get(), server.held()), (100.0, 10.0));
}

#[test]
fn free_unit_is_not_split() {
    let mut server = Server::new(whole(4.0));
    server.asks("a", 3.0);
    let got = server.round(&[("b", 3.0), ("c", 3.0)]);
    assert_eq!(got.iter().sum::<f64>(), 1.0, "{got:?}");
}

#[test]
fn refresh_interval_ends_with_the_rotation() {
    let mut server = Server::new(whole(1.0));
    server.round(&[("a", 1.0), ("b", 1.0)]);
    server.pass(37_000);
    server.asks("a", 1.0);
    server.asks("b", 1.0);
    let refresh = |id: &str| server.leases[id].refresh.0;
    assert_eq!((refresh("a"), refresh("b")), (3_000, 4_000), "the holder releases the unit before the other asks");
}

#[test]
fn enabled_whole_units_round_existing_leases() {
    let mut server = Server::new(fair(10.0));
    server.round(&[("a", 9.0), ("b", 9.0), ("c", 9.0)]);
    server.change(|settings| settings.whole_units = true);
    for _ in 0..3 {
        server.pass(16_000);
        for id in ["a", "b", "c"] {
            server.asks(id, 9.0);
        }
    }
    let has = ["a", "b", "c"].map(|id| server.leases[id].capacity.get());
    assert_eq!(has.iter().sum::<f64>(), 10.0, "{has:?}");
    assert!(has.iter().all(|has| *has == has.floor()), "{has:?}");
    server.change(|settings| settings.whole_units = false);
    server.pass(16_000);
    assert!((server.report("a").due.get() - 10.0 / 3.0).abs() < 1e-9);
}

#[test]
fn units_rotate_by_weight() {
    let mut server = Server::new(Settings { priority: Priority::Weighted, ..whole(1.0) });
    let mut had = [0.0; 2];
    for _ in 0..8 * 30 {
        let has = [("heavy", 2), ("light", 1)].map(|(id, priority)| {
            let ask = |server: &Server| Ask {
                claims: Claims::from_slice(&[slice(1, 5.0, priority)]),
                ..server.request(id, 0.0)
            };
            // The second request confirms the smaller lease.
            server.deliver(ask(&server));
            server.deliver(ask(&server))
        });
        assert!(has == [0.0, 0.0] || has == [0.0, 1.0] || has == [1.0, 0.0], "{has:?}");
        had.iter_mut().zip(has).for_each(|(had, has)| *had += has);
        server.pass(5_000);
    }
    let heavy = had[0] / (had[0] + had[1]);
    assert!((heavy - 2.0 / 3.0).abs() < 0.03, "it had the unit for {heavy} of the time");
}
