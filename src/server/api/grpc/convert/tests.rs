use super::*;

fn lease(capacity: f64) -> wire::Lease {
    wire::Lease { expiry_time: Some(1), refresh_interval: Some(1), capacity: Some(capacity), ..Default::default() }
}

fn entry() -> wire::ResourceRequest {
    wire::ResourceRequest {
        resource_id: Some("r".into()),
        priority: Some(0),
        has: None,
        had: None,
        wants: Some(1.0),
        usage: None,
        outstanding: None,
        spent: None,
    }
}

fn of_client(resource: Vec<wire::ResourceRequest>) -> wire::GetCapacityRequest {
    wire::GetCapacityRequest { client_id: Some("c".into()), resource, drops_late: None, is_gateway: None }
}

fn of_node(resource: Vec<wire::ServerCapacityResourceRequest>) -> wire::GetServerCapacityRequest {
    wire::GetServerCapacityRequest { server_id: Some("n".into()), resource, ..Default::default() }
}

fn read(entry: wire::ResourceRequest) -> Result<Parsed, Invalid> {
    let request = of_client(vec![self::entry(), entry]);
    get_capacity(request, &Limits::default())
}

fn error(entry: wire::ResourceRequest) -> String {
    read(entry).expect_err("invalid").to_string()
}

/// The only problem of a request, and whether its entry is answered nevertheless.
fn problem(parsed: Parsed) -> (String, bool) {
    let problems = parsed.problems.into_wire();
    let [problem] = problems.as_slice() else { panic!("one problem is expected: {problems:?}") };
    (problem.message().to_owned(), parsed.requests.len() > 1)
}

fn node_problem(band: wire::PriorityBandAggregate) -> String {
    let entry =
        wire::ServerCapacityResourceRequest { resource_id: Some("r".into()), wants: vec![band], ..Default::default() };
    let request = of_node(vec![entry]);
    let parsed = get_server_capacity(request, &Limits::default()).expect("the request is answered");
    assert!(matches!(parsed.requests[0].1, Request::Renew(_)));
    problem(parsed).0
}

#[test]
fn a_missing_required_field_is_named() {
    assert_eq!(error(wire::ResourceRequest { wants: None, ..entry() }), "resource[1].wants: required field is missing");
    let no_id = wire::ResourceRequest { resource_id: None, ..entry() };
    assert_eq!(error(no_id), "resource[1].resource_id: required field is missing");
    let no_priority = wire::ResourceRequest { priority: None, ..entry() };
    assert_eq!(error(no_priority), "resource[1].priority: required field is missing");
    let has = Some(wire::Lease { capacity: None, ..lease(0.0) });
    assert_eq!(error(wire::ResourceRequest { has, ..entry() }), "resource[1].has.capacity: required field is missing");
    let request = wire::GetCapacityRequest::default();
    let error = get_capacity(request, &Limits::default()).expect_err("invalid").to_string();
    assert_eq!(error, "client_id: required field is missing");
}

#[test]
fn nan_negative_and_infinite_numbers_are_refused() {
    for (value, why) in [
        (f64::NAN, "is NaN, must be a finite number"),
        (f64::INFINITY, "is inf, must be a finite number"),
        (f64::NEG_INFINITY, "is -inf, must be a finite number"),
        (-1.0, "is -1, must not be negative"),
        (2e15, "is 2000000000000000, must be at most 1e15"),
    ] {
        let wants =
            read(wire::ResourceRequest { wants: Some(value), has: Some(lease(7.0)), ..entry() }).expect("answered");
        let Request::Renew(ask) = &wants.requests[1].1 else { panic!("expected a renewal: {:?}", wants.requests) };
        assert_eq!(ask.claims[0].wants.get(), 7.0, "the wants are replaced by the confirmed capacity");
        assert_eq!(problem(wants), (format!("resource[1].wants: {why}"), true));

        let has = wire::ResourceRequest { has: Some(lease(value)), outstanding: Some(3.0), ..entry() };
        let has = read(has).expect("answered");
        let Request::Ask(ask) = &has.requests[1].1 else { panic!("{:?}", has.requests) };
        assert_eq!((ask.has, ask.outstanding.map(Amount::get)), (None, Some(3.0)), "it confirms nothing");
        assert_eq!(problem(has), (format!("resource[1].has.capacity: {why}"), true));

        let outstanding = wire::ResourceRequest { outstanding: Some(value), has: Some(lease(7.0)), ..entry() };
        let outstanding = read(outstanding).expect("answered");
        let Request::Ask(ask) = &outstanding.requests[1].1 else { panic!("{:?}", outstanding.requests) };
        assert_eq!((ask.has, ask.outstanding), (None, None), "it confirms nothing");
        assert_eq!(problem(outstanding), (format!("resource[1].outstanding: {why}"), true));

        let band = wire::PriorityBandAggregate { priority: Some(0), num_clients: Some(1), wants: Some(value) };
        assert_eq!(node_problem(band), format!("resource[0].wants[0].wants: {why}"));
    }
}

#[test]
fn empty_and_long_ids_are_refused() {
    let problem =
        |id: &str| problem(read(wire::ResourceRequest { resource_id: Some(id.into()), ..entry() }).expect("answered"));
    assert_eq!(problem(""), ("resource[1].resource_id: must not be empty".into(), false));
    let long = "resource[1].resource_id: is 257 bytes long, at most 256 are allowed".to_owned();
    assert_eq!(problem(&"x".repeat(257)), (long, false));
    let request = wire::GetCapacityRequest { client_id: Some(String::new()), ..of_client(vec![entry()]) };
    let error = get_capacity(request, &Limits::default()).expect_err("no client").to_string();
    assert_eq!(error, "client_id: must not be empty");
}

#[test]
fn a_child_node_has_at_least_one_client_in_each_band() {
    for clients in [0, -1, i64::MIN, i64::MAX] {
        let band = wire::PriorityBandAggregate { priority: Some(1), num_clients: Some(clients), wants: Some(1.0) };
        let problem = node_problem(band);
        assert!(
            problem.starts_with(&format!("resource[0].wants[0].num_clients: is {clients}, subclients should be > 0"))
        );
    }
}

#[test]
fn an_invalid_report_of_a_child_node_confirms_nothing() {
    let wants = vec![wire::PriorityBandAggregate { priority: Some(0), num_clients: Some(1), wants: Some(1.0) }];
    let entry = wire::ServerCapacityResourceRequest {
        resource_id: Some("r".into()),
        wants,
        has: Some(lease(7.0)),
        outstanding: Some(f64::NAN),
        ..Default::default()
    };
    let request = of_node(vec![entry]);
    let parsed = get_server_capacity(request, &Limits::default()).expect("answered");
    let Request::Ask(ask) = &parsed.requests[0].1 else { panic!("{:?}", parsed.requests) };
    assert_eq!((ask.has, ask.outstanding), (None, Some(Amount::ZERO)), "0 is outstanding");
}

#[test]
fn beyond_the_limit_the_entries_that_expire_first_are_answered() {
    let limits = Limits { resources_per_request: 2, ..Limits::default() };
    let entry = |id: &str, ends: Option<i64>| wire::ResourceRequest {
        resource_id: Some(id.into()),
        has: ends.map(|ends| wire::Lease { expiry_time: Some(ends), ..lease(1.0) }),
        ..entry()
    };
    let resource = vec![entry("late", Some(9)), entry("soon", Some(5)), entry("new", None), entry("later", Some(10))];
    let request = of_client(resource);
    let parsed = get_capacity(request, &limits).expect("answered");
    let answered: Vec<_> = parsed.requests.iter().map(|(id, _)| id.as_str()).collect();
    assert_eq!(answered, ["soon", "new"], "in the order of the request");
    let problems = parsed.problems.into_wire();
    assert_eq!(problems.iter().map(|problem| problem.resource_id()).collect::<Vec<_>>(), ["late", "later"]);
    assert!(problems.iter().all(|problem| problem.reason() == "too_many_in_request"));
}

#[test]
fn beyond_the_limit_all_entries_without_leases_are_reached() {
    let limits = Limits { resources_per_request: 1, ..Limits::default() };
    let mut seen = std::collections::BTreeSet::new();
    for _ in 0..1_000 {
        let resource = ["a", "b", "c"].map(|id| wire::ResourceRequest { resource_id: Some(id.into()), ..entry() });
        let request = of_client(resource.into());
        seen.extend(get_capacity(request, &limits).expect("answered").requests.into_iter().map(|(id, _)| id));
    }
    assert_eq!(seen.len(), 3);
}

#[test]
fn empty_ids_in_releases_of_the_go_client_are_skipped() {
    let request = wire::ReleaseCapacityRequest {
        client_id: Some("c".into()),
        resource_id: vec![String::new(), "r1".into()],
        ..Default::default()
    };
    let released = release_capacity(request, &Limits::default()).expect("as Doorman's client sends it");
    assert_eq!(released.requests.len(), 1);
    assert_eq!(released.requests[0].0, "r1");
}

#[test]
fn outstanding_capacity_is_added_to_the_lease() {
    let entry = wire::ResourceRequest { has: Some(lease(10.0)), outstanding: Some(5.0), ..entry() };
    let request = of_client(vec![entry]);
    let asks = get_capacity(request, &Limits::default()).expect("valid");
    let Request::Ask(ask) = &asks.requests[0].1 else { panic!("an ask") };
    assert_eq!(ask.outstanding.map(Amount::get), Some(15.0));
}

#[test]
fn a_watch_names_exactly_one_id() {
    let watch = |client: Option<&str>, server: Option<&str>| {
        let request = WatchRequest { client_id: client.map(Into::into), server_id: server.map(Into::into) };
        super::watch(request, &Limits::default()).map_err(|error| error.to_string())
    };
    assert_eq!(watch(Some("a"), None), Ok((HolderKind::Client, "a".into())));
    assert_eq!(watch(None, Some("a")), Ok((HolderKind::Node, "a".into())));
    let long = "x".repeat(Limits::default().id_bytes + 1);
    for (client, server, problem) in [
        (None, None, "client_id: is missing, and so is server_id: one of them is required"),
        (Some("a"), Some("b"), "server_id: must not be given together with client_id"),
        (Some(""), None, "client_id: must not be empty"),
        (None, Some(""), "server_id: must not be empty"),
        (Some(long.as_str()), None, "client_id: is 257 bytes long, at most 256 are allowed"),
        (None, Some(long.as_str()), "server_id: is 257 bytes long, at most 256 are allowed"),
    ] {
        assert_eq!(watch(client, server), Err(problem.to_owned()));
    }
}

#[test]
fn invalid_reports_of_use_are_problems() {
    let with = |usage| wire::ResourceRequest { usage: Some(usage), ..entry() };
    for part in [-0.1, 1.1, f64::NAN] {
        let usage = wire::Usage { recharging_fraction: Some(part), ..wire::Usage::default() };
        assert_eq!(
            problem(read(with(usage)).expect("answered")),
            (format!("resource[1].usage.recharging_fraction: is {part}, expected a fraction from 0 to 1"), true)
        );
    }
    let usage = wire::Usage { request_cost: Some(f64::INFINITY), ..wire::Usage::default() };
    assert!(problem(read(with(usage)).expect("answered")).0.starts_with("resource[1].usage.request_cost: is inf"));
    let usage = wire::Usage { interval_ms: Some(-1), ..wire::Usage::default() };
    let negative = "resource[1].usage.interval_ms: is -1, expected milliseconds that are not negative";
    assert_eq!(problem(read(with(usage)).expect("answered")).0, negative);
}

#[test]
fn a_node_reports_the_usage_below_it() {
    let asks = |usage| {
        let entry = wire::ServerCapacityResourceRequest { resource_id: Some("r".into()), usage, ..Default::default() };
        let request = of_node(vec![entry]);
        get_server_capacity(request, &Limits::default()).map_err(|error| error.to_string())
    };
    let pool_fields = |usage| {
        let asks = asks(usage).expect("valid");
        let Request::Ask(ask) = &asks.requests[0].1 else { panic!("an ask") };
        ask.pool_fields.as_ref().and_then(|pool_fields| pool_fields.usage)
    };
    assert_eq!(pool_fields(None), None, "Doorman's nodes do not report it");
    let usage = wire::Usage { recharging_fraction: Some(0.25), request_cost: Some(7.0), interval_ms: None };
    let read = pool_fields(Some(usage)).expect("a report");
    assert_eq!((read.recharging, read.request_cost.get(), read.interval), (0.25, 7.0, None));
    let parsed = asks(Some(wire::Usage { recharging_fraction: Some(1.5), ..usage })).expect("answered");
    let problems = parsed.problems.into_wire();
    assert!(problems[0].message().starts_with("resource[0].usage.recharging_fraction: is 1.5"), "{problems:?}");
}

#[test]
fn fields_of_the_sender_apply_to_every_entry() {
    for (sent, expected) in [(None, false), (Some(false), false), (Some(true), true)] {
        let client = wire::GetCapacityRequest { drops_late: sent, ..of_client(vec![entry(), entry()]) };
        let entry = wire::ServerCapacityResourceRequest { resource_id: Some("r".into()), ..Default::default() };
        // Invalid claims make it a `Renew`.
        let band = wire::PriorityBandAggregate { priority: Some(0), num_clients: Some(1), wants: Some(f64::NAN) };
        let unreadable = wire::ServerCapacityResourceRequest { wants: vec![band], ..entry.clone() };
        let node = wire::GetServerCapacityRequest { drops_late: sent, ..of_node(vec![entry, unreadable]) };
        let limits = Limits::default();
        for parsed in [get_capacity(client, &limits), get_server_capacity(node, &limits)] {
            let requests = parsed.expect("valid").requests;
            let drops_late = requests.iter().map(|(_, request)| match request {
                Request::Ask(ask) | Request::Renew(ask) => ask.drops_late,
                Request::Release(_) => panic!("not a release"),
            });
            assert_eq!(drops_late.collect::<Vec<_>>(), [expected; 2], "{sent:?}");
        }
    }
}

#[test]
fn a_node_reports_its_demand_by_group() {
    let band = |wants: f64| wire::PriorityBandAggregate { priority: Some(0), num_clients: Some(2), wants: Some(wants) };
    let group = |path: &str, wants: f64| wire::GroupDemand {
        group: Some(path.into()),
        wants: vec![band(wants)],
        minimums: vec![band(1.0)],
        outstanding: Some(3.0),
    };
    let read = |group: Vec<wire::GroupDemand>| {
        let entry = wire::ServerCapacityResourceRequest {
            resource_id: Some("r".into()),
            wants: vec![band(30.0)],
            group,
            ..Default::default()
        };
        get_server_capacity(of_node(vec![entry]), &Limits::default()).expect("answered")
    };
    let parsed = read(vec![group("acme/web", 20.0), group("", 10.0)]);
    let Request::Ask(ask) = &parsed.requests[0].1 else { panic!("{parsed:?}") };
    let (web, unknown) = (&ask.groups[0], &ask.groups[1]);
    assert_eq!((&*web.path, web.held.get(), &*unknown.path), ("acme/web", 3.0, ""));
    let claims: Vec<_> = web.claims.iter().map(|claim| (claim.wants.get(), claim.is_minimum)).collect();
    assert_eq!(claims, [(20.0, false), (1.0, true)]);
    for (groups, says) in [
        (vec![group("a", f64::NAN)], "resource[0].group[0].wants[0].wants: is NaN"),
        (vec![group("a", 1.0), group(&"x".repeat(300), 1.0)], "resource[0].group[1].group: is 300 bytes long"),
        (vec![group("a", 1.0); 1_003], "resource[0].group: has 1003 groups, at most 1002 are allowed"),
        (
            vec![wire::GroupDemand { wants: vec![band(1.0); 500], ..group("a", 1.0) }; 30],
            "resource[0].group: has 15030 slices in its groups, at most 10004 are allowed",
        ),
    ] {
        let said = problem(read(groups)).0;
        assert!(said.starts_with(says), "{said}");
    }
}
