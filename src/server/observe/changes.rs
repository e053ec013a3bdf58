//! Recent changes, for pages: a bounded ring per kind, so that a flood of denials displaces no other kind. Lost at a
//! restart, unlike the audit log.

use std::{
    collections::VecDeque,
    net::IpAddr,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::{Duration, SystemTime},
};

use leaseway_core::{
    pool::{PoolEvent, PoolEventKind},
    types::readable,
};
use tokio::sync::broadcast;

/// Maximum number of changes per kind.
const MAX_CHANGES_PER_KIND: usize = 256;
/// Maximum length of each text of a change, in bytes.
const MAX_CHANGE_TEXT: usize = 400;

/// What an election is called that has left no master.
pub(crate) const NO_MASTER: &str = "no master is known";
/// The outcome of a successful action.
const DONE: &str = "done";
/// Maximum time between an action and its effect, for them to be one change.
const MAX_DELAY: Duration = Duration::from_secs(2);

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ChangeKind {
    Configuration,
    /// A change of master.
    Election,
    Override,
    /// A change of limits by an operator.
    Limit,
    /// An event that the manager of a pool should know about.
    Pool,
    /// A threshold of a budget was reached.
    Budget,
    /// Other changes by operators.
    Operator,
    /// An invalid credential or a missing permission.
    Denial,
}

impl ChangeKind {
    pub(crate) const ALL: [ChangeKind; 8] = [
        ChangeKind::Configuration,
        ChangeKind::Election,
        ChangeKind::Override,
        ChangeKind::Limit,
        ChangeKind::Pool,
        ChangeKind::Budget,
        ChangeKind::Operator,
        ChangeKind::Denial,
    ];

    pub(crate) fn name(self) -> &'static str {
        match self {
            ChangeKind::Configuration => "configuration",
            ChangeKind::Election => "election",
            ChangeKind::Override => "override",
            ChangeKind::Limit => "limit",
            ChangeKind::Pool => "pool",
            ChangeKind::Budget => "budget",
            ChangeKind::Operator => "operator",
            ChangeKind::Denial => "denial",
        }
    }

    pub(crate) fn named(name: &str) -> Option<ChangeKind> {
        ChangeKind::ALL.into_iter().find(|kind| kind.name() == name)
    }

    /// The kind of an event in the audit log.
    pub(crate) fn of_audited(what: &str) -> ChangeKind {
        match what.split('_').next() {
            Some("config" | "templates" | "declaration") => ChangeKind::Configuration,
            Some("capacity" | "group" | "override") => ChangeKind::Override,
            Some("limits") => ChangeKind::Limit,
            Some("budget") => ChangeKind::Budget,
            _ => ChangeKind::Operator,
        }
    }
}

#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Change {
    pub(crate) at: SystemTime,
    pub(crate) kind: ChangeKind,
    pub(crate) what: String,
    /// `done`, an error, or empty.
    pub(crate) outcome: String,
    /// The identity; empty for changes by the server itself.
    pub(crate) who: String,
    pub(crate) address: Option<IpAddr>,
    /// Empty unless the change concerns a single resource.
    pub(crate) resource: String,
    /// Number of repetitions; `at` is the time of the last.
    pub(crate) times: u64,
}

impl Change {
    pub(crate) fn new(kind: ChangeKind, what: impl Into<String>) -> Change {
        Change {
            at: SystemTime::now(),
            kind,
            what: what.into(),
            outcome: String::new(),
            who: String::new(),
            address: None,
            resource: String::new(),
            times: 1,
        }
    }

    /// Whether the server recorded it when it took effect.
    fn is_effect(&self) -> bool {
        self.outcome.is_empty() && self.who.is_empty()
    }

    /// Whether it is in force, and was not refused.
    pub(crate) fn took_effect(&self) -> bool {
        self.outcome.is_empty() || self.outcome == DONE
    }

    /// Whether it concerns only the resource that it names.
    pub(crate) fn is_of_one_resource(&self) -> bool {
        matches!(self.kind, ChangeKind::Override | ChangeKind::Limit | ChangeKind::Budget)
    }

    /// Whether one of the two is an audited action of an operator, and the other its effect at this peer.
    fn is_same_event(&self, other: &Change) -> bool {
        let can_be = matches!(self.kind, ChangeKind::Configuration | ChangeKind::Override);
        let (action, effect) = if self.is_effect() { (other, self) } else { (self, other) };
        let apart = action.at.duration_since(effect.at).or_else(|_| effect.at.duration_since(action.at));
        can_be
            && action.outcome == DONE
            && effect.is_effect()
            && (self.times, other.times) == (1, 1)
            && (self.kind == ChangeKind::Configuration || action.resource == effect.resource)
            && apart.is_ok_and(|apart| apart <= MAX_DELAY)
    }

    /// Adds who did it to an effect, or the effect to what somebody did.
    fn join(&mut self, other: Change) {
        let (action, effect) = if self.is_effect() { (other, self.clone()) } else { (self.clone(), other) };
        *self = Change { what: effect.what, at: effect.at, ..action };
    }

    fn repeats(&self, other: &Change) -> bool {
        (&self.what, &self.outcome, &self.who, self.address, &self.resource)
            == (&other.what, &other.outcome, &other.who, other.address, &other.resource)
    }
}

/// Recent changes, by kind.
#[derive(Debug)]
pub(crate) struct Changes {
    rings: [Mutex<VecDeque<Change>>; ChangeKind::ALL.len()],
    followers: broadcast::Sender<Arc<Change>>,
}

impl Default for Changes {
    fn default() -> Changes {
        Changes { rings: Default::default(), followers: broadcast::Sender::new(MAX_CHANGES_PER_KIND) }
    }
}

impl Changes {
    fn ring(&self, kind: ChangeKind) -> MutexGuard<'_, VecDeque<Change>> {
        self.rings[kind as usize].lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Adds a change, or counts a repetition of the last. An action and its effect are one change.
    pub(crate) fn tell(&self, mut change: Change) {
        for text in [&mut change.what, &mut change.outcome, &mut change.who, &mut change.resource] {
            cut(text);
        }
        if self.followers.receiver_count() > 0 {
            // Fails if the last follower has just left.
            let _ = self.followers.send(Arc::new(change.clone()));
        }
        let mut ring = self.ring(change.kind);
        if let Some(last) = ring.back_mut().filter(|last| last.repeats(&change)) {
            (last.at, last.times) = (change.at, last.times + 1);
            return;
        }
        if let Some(last) = ring.back_mut().filter(|last| last.is_same_event(&change)) {
            return last.join(change);
        }
        if ring.len() == MAX_CHANGES_PER_KIND {
            ring.pop_front();
        }
        ring.push_back(change);
    }

    /// The changes from now on. A slow follower misses the oldest.
    pub(crate) fn follow(&self) -> broadcast::Receiver<Arc<Change>> {
        self.followers.subscribe()
    }

    /// Adds the events that the manager of a pool should know about.
    pub(crate) fn record_pool_events(&self, resource: &str, events: &[PoolEvent]) {
        for event in events {
            let Some(what) = pool_event_text(event) else { continue };
            self.tell(Change { resource: resource.to_owned(), ..Change::new(ChangeKind::Pool, what) });
        }
    }

    /// All changes, or those of a kind, the newest first.
    pub(crate) fn list(&self, kind: Option<ChangeKind>) -> Vec<Change> {
        let kinds = ChangeKind::ALL.into_iter().filter(|one| kind.is_none_or(|kind| kind == *one));
        let mut all: Vec<Change> = kinds.flat_map(|kind| self.ring(kind).iter().cloned().collect::<Vec<_>>()).collect();
        all.sort_by_key(|change| std::cmp::Reverse(change.at));
        all
    }
}

/// The text for an event. `None` for routine events.
fn pool_event_text(event: &PoolEvent) -> Option<String> {
    let client = event.client.as_ref().map(|client| client.id.to_string()).unwrap_or_default();
    let total = readable(event.total.get());
    match event.kind {
        PoolEventKind::Underrun => {
            let has = readable(event.priority_connected.get());
            Some(format!("underrun: priority clients have {has}, but the total is {total}"))
        }
        PoolEventKind::Relieved => Some(format!("the underrun is over: the total is {total}")),
        PoolEventKind::Downgraded => {
            Some(format!("{client} has no assignment, and more capacity than a client without one may have"))
        }
        PoolEventKind::Alarm => Some(format!("the cost of {client} has exceeded its alarm threshold")),
        PoolEventKind::Connected
        | PoolEventKind::Disconnected
        | PoolEventKind::Update
        | PoolEventKind::Total
        | PoolEventKind::Gap => None,
    }
}

fn cut(text: &mut String) {
    if text.len() > MAX_CHANGE_TEXT {
        let most = MAX_CHANGE_TEXT - '…'.len_utf8();
        let end = (0..=most).rev().find(|end| text.is_char_boundary(*end)).unwrap_or_default();
        text.truncate(end);
        text.push('…');
    }
    text.shrink_to_fit();
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_flood_of_denials_is_bounded_and_displaces_no_other_kind() {
        let changes = Changes::default();
        changes.tell(Change::new(ChangeKind::Election, "b is master"));
        for number in 0..10 * MAX_CHANGES_PER_KIND {
            changes.tell(Change::new(ChangeKind::Denial, format!("{number}{}", "ü".repeat(MAX_CHANGE_TEXT))));
        }
        let all = changes.list(None);
        assert_eq!(all.len(), MAX_CHANGES_PER_KIND + 1);
        assert!(all.iter().all(|change| change.what.len() <= MAX_CHANGE_TEXT));
        assert_eq!(changes.list(Some(ChangeKind::Election))[0].what, "b is master");
    }

    #[test]
    fn an_action_and_its_effect_are_one_change() {
        let effect = || Change { resource: "db".into(), ..Change::new(ChangeKind::Override, "`db` is set to 4") };
        let action = |outcome: &str| Change {
            resource: "db".into(),
            outcome: outcome.into(),
            who: "ann".into(),
            ..Change::new(ChangeKind::Override, "capacity overridden, capacity 4")
        };
        for order in [[effect(), action("done")], [action("done"), effect()]] {
            let changes = Changes::default();
            order.into_iter().for_each(|change| changes.tell(change));
            let all = changes.list(None);
            assert_eq!((all.len(), &*all[0].what, &*all[0].who), (1, "`db` is set to 4", "ann"));
        }
        let other = || Change { resource: "web".into(), ..effect() };
        let late = || Change { at: SystemTime::now() + 2 * MAX_DELAY, ..effect() };
        for two in
            [[action("denied"), effect()], [action("done"), other()], [action("done"), late()], [effect(), other()]]
        {
            let changes = Changes::default();
            two.into_iter().for_each(|change| changes.tell(change));
            assert_eq!(changes.list(None).len(), 2, "they differ");
        }
    }

    #[test]
    fn repetitions_are_counted() {
        let changes = Changes::default();
        (0..3).for_each(|_| changes.tell(Change::new(ChangeKind::Denial, "GetCapacity")));
        changes.tell(Change::new(ChangeKind::Denial, "Watch"));
        let times: Vec<u64> = changes.list(None).iter().map(|change| change.times).collect();
        assert_eq!(times, [1, 3]);
    }
}
