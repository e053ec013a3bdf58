use super::*;

fn lease(capacity: f64) -> wire::Lease {
    wire::Lease { expiry_time: Some(1), refresh_interval: Some(1), capacity: Some(capacity), ..Default::default() }
}

fn entry() -> wire::ResourceRequest {
    wire::ResourceRequest {
        resource_id: Some("r".into()),
        priority: Some(0),
        has: None,
        wants: Some(1.0),
        usage: None,
        outstanding: None,
    }
}

fn error(entry: wire::ResourceRequest) -> String {
    let request = wire::GetCapacityRequest { client_id: Some("c".into()), resource: vec![self::entry(), entry] };
    get_capacity(request, &Limits::default()).expect_err("invalid").to_string()
}

fn node_error(band: wire::PriorityBandAggregate) -> String {
    let entry =
        wire::ServerCapacityResourceRequest { resource_id: Some("r".into()), wants: vec![band], ..Default::default() };
    let request = wire::GetServerCapacityRequest { server_id: Some("n".into()), resource: vec![entry] };
    get_server_capacity(request, &Limits::default()).expect_err("invalid").to_string()
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
fn nan_negative_and_infinite_numbers_die_at_the_border() {
    for (value, problem) in [
        (f64::NAN, "is NaN, must be a finite number"),
        (f64::INFINITY, "is inf, must be a finite number"),
        (f64::NEG_INFINITY, "is -inf, must be a finite number"),
        (-1.0, "is -1, must not be negative"),
        (2e15, "is 2000000000000000, must be at most 1e15"),
    ] {
        let wants = error(wire::ResourceRequest { wants: Some(value), ..entry() });
        assert_eq!(wants, format!("resource[1].wants: {problem}"));
        let has = error(wire::ResourceRequest { has: Some(lease(value)), ..entry() });
        assert_eq!(has, format!("resource[1].has.capacity: {problem}"));
        let outstanding = error(wire::ResourceRequest { outstanding: Some(value), ..entry() });
        assert_eq!(outstanding, format!("resource[1].outstanding: {problem}"));
        let band = wire::PriorityBandAggregate { priority: Some(0), num_clients: Some(1), wants: Some(value) };
        assert_eq!(node_error(band), format!("resource[0].wants[0].wants: {problem}"));
    }
}

#[test]
fn ids_are_neither_empty_nor_long() {
    let empty = wire::ResourceRequest { resource_id: Some(String::new()), ..entry() };
    assert_eq!(error(empty), "resource[1].resource_id: must not be empty");
    let long = wire::ResourceRequest { resource_id: Some("x".repeat(257)), ..entry() };
    assert_eq!(error(long), "resource[1].resource_id: is 257 bytes long, at most 256 are allowed");
}

#[test]
fn a_child_node_has_at_least_one_client_in_each_band() {
    for clients in [0, -1, i64::MIN, i64::MAX] {
        let band = wire::PriorityBandAggregate { priority: Some(1), num_clients: Some(clients), wants: Some(1.0) };
        let error = node_error(band);
        assert!(
            error.starts_with(&format!("resource[0].wants[0].num_clients: is {clients}, subclients should be > 0"))
        );
    }
}

#[test]
fn too_many_entries_are_refused_as_exhaustion() {
    let limits = Limits { resources_per_request: 2, bands: 1, ..Limits::default() };
    let request = wire::GetCapacityRequest { client_id: Some("c".into()), resource: vec![entry(); 3] };
    let error = get_capacity(request, &limits).expect_err("too many");
    assert_eq!(Status::from(error).code(), tonic::Code::ResourceExhausted);
}

#[test]
fn the_go_clients_empty_ids_are_skipped_when_it_releases() {
    let request = wire::ReleaseCapacityRequest {
        client_id: Some("c".into()),
        resource_id: vec![String::new(), "r1".into()],
        token: Vec::new(),
        is_server: None,
    };
    let released = release_capacity(request, &Limits::default()).expect("as Doorman's client sends it");
    assert_eq!(released.len(), 1);
    assert_eq!(released[0].0, "r1");
}

#[test]
fn a_gauge_holds_what_it_has_and_what_is_beyond() {
    let entry = wire::ResourceRequest { has: Some(lease(10.0)), outstanding: Some(5.0), ..entry() };
    let request = wire::GetCapacityRequest { client_id: Some("c".into()), resource: vec![entry] };
    let asks = get_capacity(request, &Limits::default()).expect("valid");
    let Request::Ask(ask) = &asks[0].1 else { panic!("an ask") };
    assert_eq!(ask.outstanding.map(Amount::get), Some(15.0));
}

#[test]
fn a_watch_is_for_exactly_one_id() {
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
fn reports_of_use_are_checked_and_reach_the_pool() {
    let with = |usage| wire::ResourceRequest { usage: Some(usage), ..entry() };
    for part in [-0.1, 1.1, f64::NAN] {
        let usage = wire::Usage { recharging_fraction: Some(part), ..wire::Usage::default() };
        assert_eq!(
            error(with(usage)),
            format!("resource[1].usage.recharging_fraction: is {part}, expected a part from 0 to 1")
        );
    }
    let usage = wire::Usage { request_cost: Some(f64::INFINITY), ..wire::Usage::default() };
    assert!(error(with(usage)).starts_with("resource[1].usage.request_cost: is inf"));
    let usage = wire::Usage { interval_ms: Some(-1), ..wire::Usage::default() };
    assert_eq!(error(with(usage)), "resource[1].usage.interval_ms: is -1, must not be negative");
}

#[test]
fn a_node_tells_what_is_used_below_it() {
    let asks = |usage| {
        let entry = wire::ServerCapacityResourceRequest { resource_id: Some("r".into()), usage, ..Default::default() };
        let request = wire::GetServerCapacityRequest { server_id: Some("n".into()), resource: vec![entry] };
        get_server_capacity(request, &Limits::default()).map_err(|error| error.to_string())
    };
    let news = |usage| {
        let asks = asks(usage).expect("valid");
        let Request::Ask(ask) = &asks[0].1 else { panic!("an ask") };
        ask.news.as_ref().and_then(|news| news.usage)
    };
    assert_eq!(news(None), None, "Doorman's nodes do not say");
    let usage = wire::Usage { recharging_fraction: Some(0.25), request_cost: Some(7.0), interval_ms: None };
    let read = news(Some(usage)).expect("it was said");
    assert_eq!((read.recharging, read.request_cost.get(), read.interval), (0.25, 7.0, None));
    let error = asks(Some(wire::Usage { recharging_fraction: Some(1.5), ..usage })).expect_err("no part");
    assert!(error.starts_with("resource[0].usage.recharging_fraction: is 1.5"), "{error}");
}
