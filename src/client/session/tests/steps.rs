//! Random calls at absurd times: a session never panics, never asks its driver to come back at once without having
//! anything to do, never hammers a server, forgets released leases, names live leases only, and accepts no answer after
//! the expiry of the lease that its request named.

use proptest::prelude::*;

use super::*;

#[derive(Debug, Clone)]
enum Op {
    Want(usize, f64),
    Release(usize),
    ReleaseAll,
    Hint(usize),
    HintAll,
    /// Answers the request in flight, or one before it, with leases of this length and refresh interval.
    Answer {
        before: u64,
        length: u64,
        refresh: u64,
        capacity: f64,
    },
    LeaveOut,
    Redirect(usize),
    NoMaster,
    Fail(u64),
    /// Advances to the wake-up.
    Sleep,
    /// Advances by this time.
    Late(u64),
}

fn spans() -> impl Strategy<Value = u64> {
    prop_oneof![Just(0), 1..200u64, 1_000..100_000u64, Just(u64::MAX / 2), Just(u64::MAX)]
}

fn ops() -> impl Strategy<Value = Op> {
    prop_oneof![
        1 => (0..3usize, 0.0..100.0f64).prop_map(|(id, amount)| Op::Want(id, amount)),
        1 => (0..3usize).prop_map(Op::Release),
        1 => Just(Op::ReleaseAll),
        1 => (0..3usize).prop_map(Op::Hint),
        1 => Just(Op::HintAll),
        4 => (0..2u64, spans(), spans(), -1.0..1e9f64)
            .prop_map(|(before, length, refresh, capacity)| Op::Answer { before, length, refresh, capacity }),
        1 => Just(Op::LeaveOut),
        1 => (0..3usize).prop_map(Op::Redirect),
        1 => Just(Op::NoMaster),
        1 => (0..2u64).prop_map(Op::Fail),
        8 => Just(Op::Sleep),
        1 => prop_oneof![8 => 0..5_000u64, 1 => Just(u64::MAX / 4)].prop_map(Op::Late),
    ]
}

const NAMES: [&str; 3] = ["a", "b", "c"];

fn apply(session: &mut Session<Wants>, now: Millis, number: u64, op: &Op) {
    match *op {
        Op::Want(name, amount) => _ = session.want(now, &id(NAMES[name]), wants(amount), MODE),
        Op::Release(name) => session.release(NAMES[name]),
        Op::ReleaseAll => {
            NAMES.iter().for_each(|name| session.release(name));
            session.end_backoff();
        }
        Op::Hint(name) => session.hint(now, NAMES[name]),
        Op::HintAll => session.hint_all(now),
        Op::Answer { before, length, refresh, capacity } => {
            let one = |name| GrantedLease {
                length: Millis(length),
                refresh: Millis(refresh),
                ..given(name, capacity, number.max(1))
            };
            session.answered(now, number.saturating_sub(before), NAMES.map(one).into());
        }
        Op::LeaveOut => _ = session.answered(now, number, vec![]),
        Op::Redirect(to) => _ = session.redirected(now, number, Some(["x:1", "y:1", "a:1"][to])),
        Op::NoMaster => _ = session.redirected(now, number, None),
        Op::Fail(before) => _ = session.failed(now, number.saturating_sub(before)),
        Op::Sleep | Op::Late(_) => {}
    }
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn any_calls_keep_the_rules_of_a_session(ops in prop::collection::vec(ops(), 1..200), bound in 1..4usize) {
        let mut session = Session::new(Settings { resources_per_request: bound, ..settings(&["a:1", "b:1"]) });
        let (mut now, mut number, mut named) = (Millis(0), 0, Vec::<(Arc<str>, Millis)>::new());
        for op in ops {
            let awaited = session.in_flight() == Some(number);
            match op {
                Op::Sleep => now = session.wake(now).unwrap_or(now),
                Op::Late(span) => now = now.plus(Millis(span)),
                _ => apply(&mut session, now, number, &op),
            }
            // Time cannot advance beyond its maximum.
            if now > Millis(u64::MAX / 2) {
                break;
            }
            if matches!(op, Op::Answer { before: 0, .. }) && awaited {
                let ended = named.iter().filter(|(_, end)| *end <= now);
                let accepted: Vec<_> = ended.filter(|(id, _)| session.lease(now, id).is_some()).collect();
                prop_assert!(accepted.is_empty(), "accepted at {:?} although too late: {:?}", now, accepted);
            }
            let due = session.is_due(now);
            if let Some(outgoing) = session.poll(now) {
                prop_assert!(due, "a request without being due");
                number = outgoing.number;
                let count = match &outgoing.body {
                    Body::Ask(asks) => {
                        named = asks.iter().filter_map(|ask| Some((Arc::clone(&ask.id), ask.has?.end))).collect();
                        asks.len()
                    }
                    Body::Stream(_) => panic!("no server offers streams"),
                    Body::Release(releases) => {
                        named.clear();
                        releases.len()
                    }
                };
                prop_assert!(named.iter().all(|(_, end)| now < *end), "expired at {:?}: {:?}", now, named);
                prop_assert!((1..=bound).contains(&count), "{} of at most {}", count, bound);
            }
            session.changes(now, |_, _| ());
            prop_assert_eq!(session.poll(now), None, "a second request in flight");
            let wake = session.wake(now);
            prop_assert!(wake.is_none_or(|wake| wake > now), "{:?} at {:?}", wake, now);
            prop_assert!(!session.is_due(now), "due but not sent");
            prop_assert!(wake.is_some() || session.is_idle(), "not idle, and no wake-up");
        }
    }

    #[test]
    fn a_server_is_asked_at_most_ten_times_a_second(
        refresh_min in prop_oneof![Just(0u64), 0..2_000u64],
        answers in prop::collection::vec((spans(), spans(), 0.0..100.0f64), 100),
    ) {
        let pace = Pace { refresh_min: Millis(refresh_min), ..Pace::default() };
        let mut session = Session::new(Settings { pace, ..settings(&["a:1"]) });
        session.want(Millis(0), &id("r"), wants(100.0), MODE);
        let mut now = Millis(0);
        let mut sent = Vec::new();
        for (length, refresh, capacity) in answers {
            if let Some(outgoing) = session.poll(now) {
                sent.push(now);
                let given = GrantedLease { length: Millis(length), refresh: Millis(refresh), ..given("r", capacity, 1) };
                session.answered(now, outgoing.number, vec![given]);
            }
            session.want(now, &id("r"), wants(capacity), MODE);
            now = session.wake(now).expect("a request or an expiry");
        }
        // Jitter is at most a tenth.
        prop_assert!(sent.windows(2).all(|pair| pair[1].since(pair[0]) >= Millis(90)), "{:?}", sent);
    }

    #[test]
    fn released_and_expired_leases_are_forgotten(names in 1..300usize, answered in any::<bool>()) {
        let mut session = Session::new(Settings { resources_per_request: 10, ..settings(&["a:1"]) });
        let mut now = Millis(0);
        for n in 0..names {
            let name = format!("r{n}");
            session.want(now, &id(&name), wants(1.0), MODE);
            for _ in 0..100 {
                let Some(outgoing) = session.poll(now) else { break };
                match outgoing.body {
                    Body::Ask(asks) => {
                        let given = asks.iter().map(|ask| given(&ask.id, 1.0, n as u64 + 1)).collect();
                        session.answered(now, outgoing.number, given);
                    }
                    Body::Stream(_) => panic!("no server offers streams"),
                    Body::Release(_) if answered => _ = session.answered(now, outgoing.number, vec![]),
                    Body::Release(_) => _ = session.failed(now, outgoing.number),
                }
            }
            session.release(&name);
            now = now.plus(Millis(1_000));
        }
        if !answered {
            now = now.plus(Millis(200_000));
        }
        for _ in 0..names {
            let Some(outgoing) = session.poll(now) else { break };
            session.answered(now, outgoing.number, vec![]);
        }
        prop_assert!(session.is_idle(), "{session:?}");
    }
}
