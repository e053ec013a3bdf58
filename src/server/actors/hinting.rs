//! A resource's part in hints: when its state machine is asked who should ask again, and the clock that reminds it.
//!
//! A resource looks with the round that changed something, unless it has just looked: then it puts itself on the list
//! of an [`Alarm`]. The alarm is outside: somebody waits until there is anybody on the list, then a moment, and sends
//! each of them one message. So no timer runs in an actor, looks are [`EVERY`] apart however many rounds there are, and
//! a resource in which nothing changes costs nothing. What may wait for a second waits for the tick that comes anyway.

use std::sync::{Arc, Mutex};

use leaseway_core::{Hint, Millis, Resource};
use tokio::sync::Notify;

use crate::watchers::Watchers;

/// Looks of one resource are so far apart.
pub(super) const EVERY: Millis = Millis(50);
/// Watched holders looked at in one go: well below a millisecond of work.
const BUDGET: usize = 2048;
/// What is not due before that waits for the tick.
const TICK: Millis = Millis::from_secs(1);

/// Resources that want to be reminded.
#[derive(Debug, Default)]
pub(super) struct Alarm {
    waiting: Mutex<Vec<Arc<str>>>,
    wake: Notify,
}

impl Alarm {
    pub(super) fn remind(&self, resource: Arc<str>) {
        self.waiting.lock().expect("nobody panics while holding the list").push(resource);
        self.wake.notify_one();
    }

    /// Returns once somebody wants to be reminded.
    pub(super) async fn wanted(&self) {
        self.wake.notified().await;
    }

    pub(super) fn take(&self) -> Vec<Arc<str>> {
        std::mem::take(&mut *self.waiting.lock().expect("nobody panics while holding the list"))
    }
}

/// The part that each resource has.
pub(super) struct Hinting {
    id: Arc<str>,
    watchers: Arc<Watchers>,
    alarm: Arc<Alarm>,
    /// How much of the log of new watchers it has read.
    heard: u64,
    looked: Option<Millis>,
    /// On the alarm's list.
    reminded: bool,
    hints: Vec<Hint>,
}

impl Hinting {
    /// A new resource has nobody whose watch it could have missed.
    pub(super) fn new(id: Arc<str>, watchers: Arc<Watchers>, alarm: Arc<Alarm>) -> Hinting {
        let heard = watchers.started();
        Hinting { id, watchers, alarm, heard, looked: None, reminded: false, hints: Vec::new() }
    }

    /// After a round: who has come may be one who listens.
    pub(super) fn after_round(&mut self, core: &mut Resource, now: Millis) {
        self.hear(core);
        let newcomers = core.newcomers().filter(|(kind, id)| self.watchers.is_watched(*kind, id));
        let newcomers: Vec<_> = newcomers.map(|(kind, id)| (kind, Arc::clone(id))).collect();
        for (kind, id) in newcomers {
            core.watch(kind, &id);
        }
        self.look(core, now);
    }

    /// With every tick, and when the alarm reminds it.
    pub(super) fn after_tick(&mut self, core: &mut Resource, now: Millis) {
        self.reminded = false;
        self.hear(core);
        self.look(core, now);
    }

    fn hear(&mut self, core: &mut Resource) {
        for (kind, id) in self.watchers.started_since(&mut self.heard) {
            core.watch(kind, &id);
        }
    }

    fn look(&mut self, core: &mut Resource, now: Millis) {
        let rested = self.looked.is_none_or(|looked| now.since(looked) >= EVERY);
        if rested && core.next_hints(now).is_some_and(|next| next <= now) {
            self.looked = Some(now);
            core.hints(now, BUDGET, &mut self.hints);
            self.watchers.hint(&self.id, &mut self.hints);
            for gone in self.hints.drain(..) {
                core.unwatch(gone.kind, &gone.id);
            }
        }
        if !self.reminded && core.next_hints(now).is_some_and(|next| next < now.plus(TICK)) {
            self.reminded = true;
            self.alarm.remind(Arc::clone(&self.id));
        }
    }
}

#[cfg(test)]
mod tests;
