//! What a pool wants to be remembered beyond its master, on its way to the peers.
//!
//! Never on the way of an answer: with a tick a pool that has something to say asks for a turn, and when it has one
//! says as much as a turn allows. Turns go round among all pools of the node ([`Turns`]), so that what they write
//! together is bounded however many there are. What may be lost is said again; nobody waits for it but a resource that
//! is about to retire.

use std::sync::{
    Arc,
    atomic::{AtomicBool, Ordering},
};

use leaseway_core::Millis;
use leaseway_quorum::Reign;
use tokio::{sync::mpsc, time::Duration};

use super::{
    super::scribe::Scribe,
    living::Living,
    outbox::{Held, Memory},
};

/// What may be said in a turn: so many entries, of so many bytes together.
const ENTRIES: usize = 64;
const BYTES: usize = 16 << 10;
/// What may be said when this master goes.
const LAST_ENTRIES: usize = 1024;
const LAST_BYTES: usize = 128 << 10;
/// Turns of all pools come so far apart: 1,280 entries and 320 KiB in a second.
const APART: Duration = Duration::from_millis(50);

/// Gives turns, in the order in which they were asked for.
#[derive(Debug, Clone)]
pub(in super::super) struct Turns(mpsc::UnboundedSender<Arc<AtomicBool>>);

impl Turns {
    /// For as long as anybody could ask. A pool asks for one at a time, so that no more wait than there are pools.
    pub(in super::super) fn start() -> Turns {
        let (queue, mut asked) = mpsc::unbounded_channel::<Arc<AtomicBool>>();
        actix_rt::spawn(async move {
            while let Some(turn) = asked.recv().await {
                // One that nobody waits for any more is no turn.
                if Arc::strong_count(&turn) > 1 {
                    turn.store(true, Ordering::Release);
                    tokio::time::sleep(APART).await;
                }
            }
        });
        Turns(queue)
    }
}

/// Where a pool says what is to be remembered.
#[derive(Debug)]
pub(in super::super) struct Noting {
    scribe: Scribe,
    turns: Turns,
    /// It has been asked for; set once it has come.
    turn: Option<Arc<AtomicBool>>,
    memory: Arc<Memory>,
    /// The number of the newest writing.
    newest: u64,
}

impl Noting {
    pub(in super::super) fn new(scribe: Scribe, turns: Turns) -> Noting {
        Noting { scribe, turns, turn: None, memory: Arc::default(), newest: 0 }
    }

    /// Whether it is this pool's turn; if not, it will be.
    fn has_turn(&mut self) -> bool {
        match &self.turn {
            Some(turn) if turn.load(Ordering::Acquire) => {
                self.turn = None;
                true
            }
            Some(_) => false,
            None => {
                let turn = Arc::new(AtomicBool::new(false));
                // If nobody gives turns any more, the server is stopping.
                let _ = self.turns.0.send(Arc::clone(&turn));
                self.turn = Some(turn);
                false
            }
        }
    }
}

/// Writings that are under way.
#[derive(Debug)]
pub(in super::super) struct UnderWay {
    memory: Arc<Memory>,
    newest: u64,
}

impl UnderWay {
    /// Whether the peers hold them, or never will.
    pub(in super::super) fn is_over(&self) -> bool {
        self.memory.held() == Held::Lost || self.memory.held() == Held::UpTo(self.newest)
    }
}

impl Living {
    /// Says what is due by now, if it is this pool's turn; with `all`, what is not due as well. Returns whether nothing
    /// is left to say, nor under way.
    pub(super) fn note(&mut self, now: Millis, all: bool) -> bool {
        let (Some(noting), Some(reign)) = (&mut self.managed.noting, &self.reign) else { return true };
        let held = noting.memory.held();
        if held == Held::Lost {
            (noting.memory, noting.newest) = (Arc::default(), 0);
            self.core.note_anew();
        }
        if !self.core.has_notes(now, all) {
            return held == Held::UpTo(noting.newest);
        }
        if noting.has_turn() {
            let reign = reign.clone();
            self.say(&reign, now, (ENTRIES, BYTES), all);
        }
        false
    }

    fn say(&mut self, reign: &Reign, now: Millis, (entries, bytes): (usize, usize), all: bool) {
        let Some(noting) = &mut self.managed.noting else { return };
        if let Some(notes) = self.core.take_notes(now, entries, bytes, all) {
            noting.newest += 1;
            noting.scribe.note(reign, &self.id, notes, noting.memory.expect(noting.newest));
        }
    }

    /// This master goes: whoever listens is told what clients have cost, and the peers what they do not know yet.
    pub(super) fn part(&mut self, now: Millis) -> Option<UnderWay> {
        if !self.reigns(now) || !self.managed.is_pool() {
            return None;
        }
        self.core.part(now);
        self.tell_subscribers();
        let reign = self.reign.clone()?;
        self.say(&reign, now, (LAST_ENTRIES, LAST_BYTES), true);
        self.managed
            .noting
            .as_ref()
            .map(|noting| UnderWay { memory: Arc::clone(&noting.memory), newest: noting.newest })
    }
}
