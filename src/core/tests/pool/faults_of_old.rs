//! What went wrong in the first code of this kind that was published, each as a test.

use super::*;

fn underrun() -> Pond {
    let mut pond = Pond::new(10.0, &[]);
    pond.assign("p", 5.0).expect("fits");
    pond.assign("q", 3.0).expect("fits");
    pond.asks("p", 5.0);
    pond.asks("q", 3.0);
    pond.asks("a", 1.0);
    pond.asks("b", 1.0);
    pond.happened();
    pond
}

/// T2: a second fall while the first was pending was written to a copy, and lost.
#[test]
fn a_second_fall_keeps_the_earlier_deadline_and_the_lower_value() {
    let mut pond = underrun();
    pond.capacity(7.0);
    assert_eq!(pond.pool().deadline, Some(Millis(5000)));
    pond.pass(3);
    pond.capacity(5.0);
    assert_eq!(pond.pool().deadline, Some(Millis(5000)), "no more time than before");
    assert_eq!((pond.due("p"), pond.due("q")), (5.0, 3.0), "but all of it");
    pond.pass(2);
    pond.tick();
    assert_eq!((pond.due("p"), pond.due("q")), (5.0, 0.0), "q came last; of its 3 nothing is left");
}

/// T3: a raise left older falls armed, which went off later.
#[test]
fn a_raise_ends_the_fall_before_it() {
    let mut pond = underrun();
    pond.capacity(7.0);
    pond.pass(2);
    pond.capacity(10.0);
    assert_eq!(pond.pool().deadline, None);
    pond.pass(3);
    pond.tick();
    assert_eq!((pond.due("p"), pond.due("q")), (5.0, 3.0));
    pond.pass(1);
    pond.capacity(7.0);
    assert_eq!(pond.pool().deadline, Some(Millis(11_000)), "a fall after it has its own time");
}

/// T4: when victims were looked for, free clients were walked too and counted as priority clients.
#[test]
fn victims_of_a_fall_are_priority_clients_and_the_sums_stay_right() {
    let mut pond = underrun();
    pond.capacity(5.0);
    assert_eq!((pond.due("a"), pond.due("b")), (0.0, 0.0), "free clients go at once");
    pond.pass(5);
    for id in ["p", "q", "a", "b"] {
        pond.asks(id, if id == "p" { 5.0 } else { 3.0 });
    }
    pond.asks("q", 3.0);
    let report = pond.pool();
    assert_eq!((report.priority_connected.get(), report.priority_waiting), (5.0, 1));
    for id in ["p", "q", "a", "b"] {
        pond.release(id);
    }
    let report = pond.pool();
    assert_eq!((report.priority_connected.get(), report.priority_waiting, report.used.get()), (0.0, 0, 0.0));
    assert_eq!((report.free_waiting, report.revoking), (0, 0));
}
