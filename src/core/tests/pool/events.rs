//! The events for the manager of a pool.

use super::*;

#[test]
fn events_describe_pool_and_client() {
    let mut server = PoolServer::new(10.0, &[]);
    server.assign("p", 4.0).expect("fits");
    server.reports("p", 4.0, 0.5, 0.0);
    server.asks("a", 1.0);
    server.pass(5);
    server.reports("p", 4.0, 0.5, 7.0);
    server.release("p");
    let events = server.events();
    assert_eq!(events.iter().map(|event| event.seq).collect::<Vec<_>>(), [1, 2, 3]);
    let told: Vec<_> = events
        .iter()
        .map(|event| {
            let client = event.client.as_ref().expect("about a client");
            let sums = (event.total.get(), event.connected.get(), event.priority_connected.get());
            (event.kind, &*client.id, client.capacity.get(), client.is_priority, event.cause.expect("a cause"), sums)
        })
        .collect();
    use PoolEventKind::{Connected, Disconnected};
    assert_eq!(
        told,
        [
            (Connected, "p", 4.0, true, Cause::Asked, (10.0, 4.0, 4.0)),
            (Connected, "a", 1.0, false, Cause::Asked, (10.0, 5.0, 4.0)),
            (Disconnected, "p", 0.0, true, Cause::Released, (10.0, 1.0, 0.0)),
        ]
    );
    let client = events[2].client.as_ref().expect("about a client");
    assert_eq!((client.time_cost, client.request_cost), (20.0, 7.0), "4 for 5 seconds, and what it reported");
}

#[test]
fn usage_update_event_follows_the_configured_step() {
    let mut server = PoolServer::new(10.0, &[("usage_update_units", "100"), ("time_factor", "0")]);
    server.reports("a", 1.0, 0.5, 0.0);
    server.event_kinds();
    for (cost, told) in [(60.0, 0), (60.0, 1), (60.0, 0), (300.0, 1)] {
        server.reports("a", 1.0, 0.5, cost);
        let updates: Vec<_> = server.events();
        assert_eq!(updates.len(), told, "{updates:?}");
        assert!(updates.iter().all(|event| event.kind == PoolEventKind::Update && event.cause == Some(Cause::Used)));
    }
}

#[test]
fn alarm_event_is_sent_once_when_the_mark_is_reached() {
    let mut server = PoolServer::new(10.0, &[]);
    server.assign("p", 4.0).expect("fits");
    let id: Arc<str> = "p".into();
    server.resource.set_alarm(server.now, HolderKind::Client, &id, Some(50.0)).expect("a mark");
    server.reports("p", 4.0, 0.0, 0.0);
    server.pass(10);
    server.reports("p", 4.0, 0.0, 0.0);
    server.event_kinds();
    server.pass(1);
    server.reports("p", 4.0, 0.0, 6.0);
    assert_eq!(server.event_kinds(), [PoolEventKind::Alarm], "4 for 11 seconds, and 6");
    server.pass(1);
    server.reports("p", 4.0, 0.0, 6.0);
    assert!(server.event_kinds().is_empty());
    server.resource.set_alarm(server.now, HolderKind::Client, &id, Some(1.0)).expect("a mark");
    assert_eq!(server.event_kinds(), [PoolEventKind::Alarm], "the mark is already reached");
}

#[test]
fn underrun_ends_after_the_last_disconnect() {
    use PoolEventKind::{Disconnected, Relieved, Total, Underrun};
    let mut server = PoolServer::new(10.0, &[]);
    for (id, assigned) in [("p", 6.0), ("q", 3.0)] {
        server.assign(id, assigned).expect("fits");
        server.asks(id, assigned);
    }
    server.event_kinds();
    server.capacity(6.0);
    assert_eq!(server.event_kinds(), [Total, Underrun], "the total falls, and that is an underrun");
    server.pass(5);
    server.tick();
    assert_eq!((server.due("q"), server.event_kinds()), (0.0, vec![]), "the pool has chosen, but q does not know yet");
    server.asks("q", 3.0);
    assert_eq!(server.event_kinds(), [Disconnected, Relieved]);
    server.capacity(5.0);
    server.capacity(10.0);
    assert_eq!(server.event_kinds(), [Total, Underrun, Total, Relieved], "a raise ends the underrun immediately");
}

#[test]
fn event_filters() {
    let mut server = PoolServer::new(10.0, &[]);
    server.assign("p", 8.0).expect("fits");
    server.asks("p", 8.0);
    server.asks("a", 1.0);
    server.capacity(7.0);
    let events = server.events();
    let passed = |filter: PoolEventFilter| {
        let passed = events.iter().filter(|event| filter.passes(event));
        passed.map(|event| event.kind).collect::<Vec<_>>()
    };
    use PoolEventKind::{Connected, Total, Underrun};
    assert_eq!(passed(PoolEventFilter::default()), [Connected, Connected, Total, Underrun]);
    assert_eq!(
        passed(PoolEventFilter { priority_only: true, ..Default::default() }),
        [Connected, Total, Underrun],
        "nothing about free clients"
    );
    assert_eq!(passed(PoolEventFilter { only_underrun: true, ..Default::default() }), [Underrun]);
    assert_eq!(passed(PoolEventFilter { kinds: vec![Total], ..Default::default() }), [Total]);
}

#[test]
fn event_queue_is_bounded() {
    let mut server = PoolServer::new(10.0, &[]);
    for n in 0..3000 {
        let id = format!("c{n}");
        server.asks(&id, 1.0);
        server.release(&id);
    }
    let events = server.events();
    assert!(events.len() <= 1024);
    assert_eq!(events[0].kind, PoolEventKind::Gap);
    assert!(events.windows(2).all(|pair| pair[0].seq + 1 == pair[1].seq));
    assert_eq!(events.last().expect("some").seq, server.report().newest_event);
    assert!(PoolEventFilter { only_underrun: true, ..Default::default() }.passes(&events[0]), "it passes every filter");
}

#[test]
fn gap_event_has_the_deadline() {
    let mut server = PoolServer::new(10.0, &[]);
    server.assign("p", 8.0).expect("fits");
    server.asks("p", 8.0);
    server.capacity(7.0);
    let deadline = server.report().deadline;
    assert!(deadline.is_some());
    for (assigned, expected) in [(7.5, deadline), (6.0, None)] {
        // Each is reported.
        for _ in 0..1100 {
            server.assign("p", assigned).expect("less than before, or as much");
        }
        let gap = &server.events()[0];
        assert_eq!((gap.kind, gap.deadline, server.report().deadline), (PoolEventKind::Gap, expected, expected));
    }
}
