//! Regression tests for faults of the first published light-server pool. T2 to T4 are the numbers in its analysis.

use super::*;

fn underrun() -> PoolServer {
    let mut server = PoolServer::new(10.0, &[]);
    server.assign("p", 5.0).expect("fits");
    server.assign("q", 3.0).expect("fits");
    server.asks("p", 5.0);
    server.asks("q", 3.0);
    server.asks("a", 1.0);
    server.asks("b", 1.0);
    server.event_kinds();
    server
}

/// T2: a second fall during a pending one was written to a copy and lost.
#[test]
fn second_fall_keeps_the_first_deadline() {
    let mut server = underrun();
    server.capacity(7.0);
    assert_eq!(server.report().deadline, Some(Millis(5000)));
    server.pass(3);
    server.capacity(5.0);
    assert_eq!(server.report().deadline, Some(Millis(5000)), "the deadline stays");
    assert_eq!((server.due("p"), server.due("q")), (5.0, 3.0), "the whole excess is cut");
    server.pass(2);
    server.tick();
    assert_eq!((server.due("p"), server.due("q")), (5.0, 0.0), "q came last; of its 3 nothing is left");
}

/// T3: a raise did not cancel pending falls, which took effect later.
#[test]
fn raised_capacity_ends_the_underrun() {
    let mut server = underrun();
    server.capacity(7.0);
    server.pass(2);
    server.capacity(10.0);
    assert_eq!(server.report().deadline, None);
    server.pass(3);
    server.tick();
    assert_eq!((server.due("p"), server.due("q")), (5.0, 3.0));
    server.pass(1);
    server.capacity(7.0);
    assert_eq!(server.report().deadline, Some(Millis(11_000)), "a later fall has a deadline of its own");
}

/// T4: the search for victims counted free clients as priority clients.
#[test]
fn underrun_cuts_priority_clients_only() {
    let mut server = underrun();
    server.capacity(5.0);
    assert_eq!((server.due("a"), server.due("b")), (0.0, 0.0), "free clients are disconnected immediately");
    server.pass(5);
    for id in ["p", "q", "a", "b"] {
        server.asks(id, if id == "p" { 5.0 } else { 3.0 });
    }
    server.asks("q", 3.0);
    let report = server.report();
    assert_eq!((report.priority_connected.get(), report.priority_waiting), (5.0, 1));
    for id in ["p", "q", "a", "b"] {
        server.release(id);
    }
    let report = server.report();
    assert_eq!((report.priority_connected.get(), report.priority_waiting, report.used.get()), (0.0, 0, 0.0));
    assert_eq!((report.free_waiting, report.revoking), (0, 0));
}
