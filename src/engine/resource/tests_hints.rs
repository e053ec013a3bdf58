//! When a resource is asked for hints, on a clock that the tests move.

use leaseway_core::{
    Amount, Answer, Ask, Birth, Claim, Claims, HolderKind, Kind, Now, Request, Settings, Term, Workspace,
};

use super::*;
use crate::watchers::Watch;

const CLIENT: HolderKind = HolderKind::Client;

struct Desk {
    core: Resource,
    hinting: Hinting,
    watchers: Arc<Watchers>,
    alarm: Arc<Alarm>,
    now: Millis,
}

impl Desk {
    fn new() -> Desk {
        let settings = Settings::new(Kind::FairShare, Amount::clamped(100.0));
        let (learning_until, max_holders) = (Millis(0), usize::MAX);
        let (watchers, alarm) = (Arc::new(Watchers::new(10)), Arc::<Alarm>::default());
        Desk {
            core: Resource::new(Birth {
                source: leaseway_core::Source::Own,
                settings,
                term: Term(1),
                since: Millis(0),
                learning_until,
                inherited: None,
                max_holders,
                seed: 1,
            }),
            hinting: Hinting::new("r".into(), Arc::clone(&watchers), Arc::clone(&alarm)),
            watchers,
            alarm,
            now: Millis(1_000),
        }
    }

    /// A round of one request, which says nothing of what its client has.
    fn asks(&mut self, id: &str) {
        let ask = Ask {
            kind: CLIENT,
            id: id.into(),
            claims: Claims::from_slice(&[Claim::of_client(Amount::clamped(100.0), 0)]),
            has: None,
            outstanding: None,
            learning: false,
            news: None,
        };
        let mut answers = Vec::new();
        self.core.round(
            Now { at: self.now, unix: 0 },
            &mut vec![Request::Ask(ask)],
            &mut answers,
            &mut Workspace::default(),
        );
        assert!(matches!(answers[..], [Answer::Granted(_)]));
        self.hinting.after_round(&mut self.core, self.now);
    }

    fn tick(&mut self) {
        self.hinting.after_tick(&mut self.core, self.now);
    }

    fn pass(&mut self, ms: u64) {
        self.now = self.now.plus(Millis(ms));
    }

    fn listens(&self, id: &str) -> Watch {
        self.watchers.start(CLIENT, id.into()).expect("there is room")
    }

    /// How often the resource has put itself on the list.
    fn reminders(&self) -> usize {
        self.alarm.take().len()
    }
}

/// Whether there is something to tell now.
fn is_told(watch: &Watch) -> bool {
    futures_util::FutureExt::now_or_never(watch.pending()).is_some()
}

#[test]
fn it_looks_with_the_round_that_changed_something_unless_it_has_just_looked() {
    let mut desk = Desk::new();
    let (a, b) = (desk.listens("a"), desk.listens("b"));
    desk.asks("a");
    desk.pass(50);
    desk.asks("b");
    assert!(is_told(&a), "at once");
    assert_eq!(desk.reminders(), 1, "its hint may have to be repeated");
    desk.pass(49);
    desk.asks("a");
    desk.asks("c");
    assert!(!is_told(&b));
    desk.core.round(
        Now { at: desk.now, unix: 0 },
        &mut vec![Request::Release(leaseway_core::Release { kind: CLIENT, id: "a".into(), token: None })],
        &mut Vec::new(),
        &mut Workspace::default(),
    );
    desk.hinting.after_round(&mut desk.core, desk.now);
    assert!(!is_told(&b), "49 ms after the last look");
    assert_eq!(desk.reminders(), 0, "it is on the list already");
    desk.pass(1);
    desk.tick();
    assert!(is_told(&b));
}

#[test]
fn a_resource_without_listeners_or_changes_wants_no_reminders() {
    let mut desk = Desk::new();
    desk.asks("a");
    desk.asks("b");
    assert_eq!(desk.reminders(), 0);
    let b = desk.listens("b");
    desk.tick();
    assert_eq!(desk.reminders(), 0, "b waits, but nothing is free");
    desk.pass(50);
    let _a = desk.listens("a");
    desk.tick();
    assert_eq!(desk.reminders(), 1);
    drop(b);
}

#[test]
fn what_is_more_than_a_second_away_waits_for_the_tick() {
    let mut desk = Desk::new();
    let a = desk.listens("a");
    desk.asks("a");
    desk.pass(50);
    desk.asks("b");
    // a does not follow: pauses of 0.2, 0.4 and 0.8 s, then 1.6.
    for pause in [200, 400, 800] {
        assert!(is_told(&a));
        assert_eq!(desk.reminders(), 1, "{pause}");
        desk.pass(pause);
        desk.tick();
    }
    assert!(is_told(&a));
    assert_eq!(desk.reminders(), 0);
}

#[test]
fn whoever_does_not_listen_any_more_is_looked_at_once_and_never_again() {
    let mut desk = Desk::new();
    let a = desk.listens("a");
    desk.asks("a");
    drop(a);
    desk.pass(50);
    desk.asks("b");
    assert_eq!(desk.core.next_hints(desk.now), None);
    assert_eq!(desk.reminders(), 0);
}

#[test]
fn who_listens_anew_is_heard_of_with_the_next_round_or_tick() {
    for by_round in [true, false] {
        let mut desk = Desk::new();
        desk.asks("a");
        desk.asks("b");
        let a = desk.listens("a");
        if by_round {
            desk.asks("b");
        } else {
            desk.tick();
        }
        assert!(is_told(&a), "by round: {by_round}");
    }
}
