//! The interface for the manager of a pool.

use super::*;

#[test]
fn report_has_all_quantities_of_the_proposal() {
    let mut server = PoolServer::new(10.0, &[("max_capacity", "20"), ("min_capacity", "2")]);
    server.assign("p", 4.0).expect("fits");
    server.assign("q", 30.0).expect("it is not connected");
    server.asks("p", 4.0);
    server.asks("a", 1.0);
    let report = server.report();
    let amounts = [report.min_capacity, report.free_capacity, report.total, report.base, report.max];
    assert_eq!(amounts.map(Amount::get), [2.0, 2.0, 10.0, 10.0, 20.0]);
    let sums = [report.connected, report.priority_connected, report.priority_assigned, report.used];
    assert_eq!(sums.map(|sum| sum.get()), [6.0, 4.0, 34.0, 6.0]);
}

#[test]
fn assignments_are_checked() {
    let mut server = PoolServer::new(10.0, &[("min_capacity", "2")]);
    let least = Amount::clamped(2.0);
    assert_eq!(server.assign("p", 1.5), Err(AssignError::BelowMinimum { capacity: Amount::clamped(1.5), least }));
    assert!(matches!(server.assign_as("p", Assigned::Share(0.1)), Err(AssignError::BelowMinimum { .. })));
    for share in [f64::NAN, 0.0, -0.5, 1.1, f64::INFINITY] {
        assert!(matches!(server.assign_as("p", Assigned::Share(share)), Err(AssignError::BadShare { .. })), "{share}");
    }
    assert_eq!(server.resource.assigned(HolderKind::Client, "p"), None);
    server.assign("p", 5.0).expect("fits");
    server.asks("p", 5.0);
    server.assign("q", 5.0).expect("fits");
    server.asks("q", 5.0);
    assert!(matches!(server.assign("q", 6.0), Err(AssignError::OverTotal { .. })), "it is connected");
    server.assign("r", 6.0).expect("it is not: it is checked when it asks");
    assert_eq!(server.asks("r", 6.0), 0.0);
    assert_eq!(server.assign("p", 0.0).expect("no priority any more"), Some(Assigned::Capacity(Amount::clamped(5.0))));
    assert_eq!(server.resource.assigned(HolderKind::Client, "p"), None);
}

#[test]
fn assignment_can_be_lowered_in_an_underrun() {
    let mut server = PoolServer::new(10.0, &[]);
    server.assign("p", 5.0).expect("fits");
    server.assign("q", 5.0).expect("fits");
    server.asks("p", 5.0);
    server.asks("q", 5.0);
    server.capacity(3.0);
    server.assign("p", 4.0).expect("it helps, though it is not enough");
    assert!(server.assign("q", 5.5).is_err());
}

#[test]
fn members_are_listed_by_filter_and_page() {
    let mut server = PoolServer::new(10.0, &[]);
    for n in 0..3 {
        server.assign(&format!("p{n}"), 3.0).expect("fits");
    }
    server.asks("p1", 3.0);
    server.asks("a", 1.0);
    let named = |list: &[(&str, f64)]| list.iter().map(|(id, has)| ((*id).to_owned(), *has)).collect::<Vec<_>>();
    assert_eq!(server.list(PoolFilter::Connected), named(&[("p1", 3.0), ("a", 1.0)]));
    assert_eq!(server.list(PoolFilter::Assigned), named(&[("p0", 0.0), ("p1", 3.0), ("p2", 0.0)]));
    assert_eq!(server.list(PoolFilter::PriorityConnected), named(&[("p1", 3.0)]));
    let (mut from, mut seen) = (None, Vec::new());
    loop {
        let page = server.resource.pool_members(PoolFilter::Assigned, from.as_ref(), 2);
        assert!(page.members.len() <= 2);
        seen.extend(page.members.iter().map(|member| member.id.to_string()));
        if page.next.is_none() {
            break;
        }
        from = page.next;
    }
    assert_eq!(seen, ["p0", "p1", "p2"]);
    let first = server.resource.pool_members(PoolFilter::Connected, None, 1);
    let second = server.resource.pool_members(PoolFilter::Connected, first.next.as_ref(), 1);
    assert_eq!((&*second.members[0].id, second.members[0].standing), ("a", PoolStanding::Free));
    assert_eq!(second.next, None);
}

#[test]
fn load_reports_move_the_capacity_within_bounds() {
    for kind in [AlgorithmKind::PriorityPool, AlgorithmKind::FairShare] {
        let mut settings = settings(10.0, &[]);
        settings.kind = kind;
        settings.load_bounds = (Some(Amount::clamped(4.0)), Some(Amount::clamped(12.0)));
        let mut server = PoolServer::with_options(options(settings));
        let mut report = |load, until: Option<u64>| {
            let report = LoadReport { load, until: until.map(Millis::from_secs) };
            server.resource.report_load(server.now, report).map(Amount::get)
        };
        assert_eq!(report(Load::Capacity(Amount::clamped(7.0)), None), Ok(7.0), "{kind:?}");
        assert_eq!(report(Load::Capacity(Amount::clamped(1.0)), None), Ok(4.0), "{kind:?}");
        assert_eq!(report(Load::Factor(f64::NAN), None), Err(LoadError::BadFactor), "{kind:?}");
        assert_eq!(report(Load::Factor(5.0), None), Ok(12.0), "{kind:?}");
        assert_eq!(report(Load::Factor(0.5), Some(30)), Ok(5.0), "{kind:?}");
        assert_eq!(server.resource.total().get(), 5.0);
        assert_eq!(server.resource.next_expiry(), Some(Millis::from_secs(30)), "{kind:?}: then a tick is due");
        let mut template = server.resource.settings().clone();
        template.capacity = Amount::clamped(20.0);
        template.load_bounds.1 = Some(Amount::clamped(30.0));
        server.resource.configure(template);
        assert_eq!(server.resource.settings().capacity.get(), 10.0, "{kind:?}: half of what the template says now");
        server.pass(30);
        server.tick();
        assert_eq!(server.resource.settings().capacity.get(), 20.0, "{kind:?}: no report has said so since");
    }
}

#[test]
fn bad_parameters_are_refused() {
    let apply = |name: &str, value: &str| {
        let parameter = NamedParameter { name: name.into(), value: Some(value.into()) };
        let mut settings = Settings::new(AlgorithmKind::PriorityPool, Amount::clamped(10.0));
        settings.apply(&parameter).map_err(|error| error.to_string())?;
        settings.check().map_err(|error| error.to_string())
    };
    for (name, value) in [
        ("min_capacity", "0"),
        ("min_capacity", "-1"),
        ("min_capacity", "11"),
        ("max_capacity", "9"),
        ("max_capacity", "NaN"),
        ("raise_threshold", "0"),
        ("raise_threshold", "1"),
        ("connected_bias_s", "-1"),
        ("raise_tc_s", "0"),
        ("negative_tc_s", "0"),
        ("negative_tc_s", "-3"),
        ("drop_mode", "fast"),
        ("free_key", "name"),
        ("capacity_floor", "11"),
        ("capacity_ceiling", "9"),
        ("whole_units", "true"),
    ] {
        let error = apply(name, value).expect_err(value);
        assert!(error.contains(name), "{error}");
    }
    for (name, value) in [("min_capacity", "10"), ("max_capacity", "10"), ("raise_mode", "demand")] {
        apply(name, value).expect("a good parameter");
    }
    let parameter = NamedParameter { name: "min_capacity".into(), value: Some("1".into()) };
    let mut fair = Settings::new(AlgorithmKind::FairShare, Amount::clamped(10.0));
    let error = fair.apply(&parameter).expect_err("it would do nothing");
    assert_eq!(
        error.to_string(),
        "parameter `min_capacity` is for PRIORITY_POOL only; the algorithm here is FAIR_SHARE"
    );
}

#[test]
fn parameters_round_trip() {
    let written = [
        ("min_capacity", "2.5"),
        ("max_capacity", "40"),
        ("raise_tc_s", "7200"),
        ("raise_threshold", "0.5"),
        ("raise_mode", "demand"),
        ("drop_mode", "exp"),
        ("drop_factor", "0.2"),
        ("reduction_window_s", "1.5"),
        ("negative_tc_s", "600"),
        ("connected_bias_s", "60"),
        ("time_factor", "2"),
        ("request_factor", "0"),
        ("cost_weights", "auto"),
        ("calm_s", "60"),
        ("calm_ratio", "0.25"),
        ("free_key", "host"),
        ("max_remembered", "10"),
        ("burst_seconds", "3"),
        ("usage_update_units", "100"),
        ("eval_interval_s", "1"),
    ];
    let settings = settings(10.0, &written);
    let found = settings.parameters();
    let found: Vec<(&str, &str)> = found.iter().map(|p| (&*p.name, p.value.as_deref().unwrap_or_default())).collect();
    for pair in written {
        assert!(found.contains(&pair), "{pair:?} in {found:?}");
    }
    assert_eq!(self::settings(10.0, &[]).parameters().len(), 1, "only the minimum request interval differs");
}

#[test]
fn algorithm_can_change_to_a_pool_and_back() {
    let mut fair = Settings::new(AlgorithmKind::FairShare, Amount::clamped(10.0));
    fair.min_request_interval = Millis(0);
    let mut server = PoolServer::with_options(options(fair.clone()));
    server.asks("a", 6.0);
    server.asks("b", 4.0);
    let mut settings = settings(10.0, &[]);
    settings.refresh = fair.refresh;
    server.resource.configure(settings);
    assert_eq!((server.due("a"), server.due("b")), (1.0, 1.0));
    server.pass(5);
    assert_eq!(server.asks("a", 6.0), 1.0);
    server.assign("b", 5.0).expect("fits");
    server.resource.configure(fair);
    assert_eq!(server.resource.pool(), None);
    assert_eq!(server.asks("a", 6.0), 6.0);
}

/// A client is hinted when its assignment changes: after a cut, it must not use the excess until its next refresh.
#[test]
fn lowered_assignment_is_hinted_at_once() {
    let mut server = PoolServer::new(10.0, &[]);
    server.assign("p", 4.0).expect("fits");
    assert_eq!(server.asks("p", 8.0), 4.0);
    assert!(server.resource.watch(HolderKind::Client, "p"));
    let hinted = |server: &mut PoolServer, capacity| {
        server.assign("p", capacity).expect("fits");
        server.pass(1);
        let mut hints = Vec::new();
        server.resource.hints(server.now, 100, &mut hints);
        let whys: Vec<_> = hints.iter().map(|hint| hint.reason).collect();
        (whys, server.asks("p", 8.0))
    };
    assert_eq!(hinted(&mut server, 8.0), (vec![crate::resource::watch_list::HintReason::Grow], 8.0));
    assert_eq!(
        hinted(&mut server, 3.0),
        (vec![crate::resource::watch_list::HintReason::Shrink], 3.0),
        "no client waits for it"
    );
}
