//! What peers remember of a pool: balances, costs and the total.
//!
//! A master periodically sends what has changed ([`PoolNotes`]), its peers keep it ([`PoolMemory`]), and the next
//! master begins with that. Nothing here is a promise: losing it costs fairness and a part of a bill, within the bounds
//! of [`PoolNotes`].
//!
//! Notes are few, because what only changes with time need not be sent: balances grow or decay and costs rise with the
//! clock of the pool. A peer counts the age of that clock on its own clock, from when it learned of it.

use std::{collections::BTreeMap, sync::Arc};

use crate::types::{Amount, HolderKind, Millis, Token};

/// The time of a pool, over all its masters.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct PoolClock {
    /// Seconds in which it had a master, or in which peers remembered one.
    #[cfg_attr(feature = "serde", serde(deserialize_with = "crate::types::stored_number"))]
    pub lived: f64,
    /// Growth of a balance filter client was always connected.
    #[cfg_attr(feature = "serde", serde(deserialize_with = "crate::types::stored_number"))]
    pub grown: f64,
    /// The exponent of e by which balances have decayed.
    #[cfg_attr(feature = "serde", serde(deserialize_with = "crate::types::stored_number"))]
    pub decayed: f64,
    /// By how much balances grow in a second.
    #[cfg_attr(feature = "serde", serde(deserialize_with = "crate::types::stored_number"))]
    pub speed: f64,
    /// In what time they decay by a factor of e.
    pub time_constant: Millis,
}

impl PoolClock {
    /// The clock after `elapsed` more time.
    pub(in crate::pool) fn after(self, elapsed: Millis) -> PoolClock {
        let seconds = elapsed.0 as f64 / 1000.0;
        PoolClock {
            lived: self.lived + seconds,
            grown: self.grown + self.speed * seconds,
            decayed: self.decayed + elapsed.0 as f64 / self.time_constant.0.max(1) as f64,
            ..self
        }
    }
}

/// The balance of an account, in stored form.
#[derive(Debug, Clone, Copy, PartialEq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(rename_all = "snake_case"))]
pub enum NotedBalance {
    /// The account was dropped.
    None,
    /// None of its clients is connected: its logarithm, when nothing had decayed.
    Away(#[cfg_attr(feature = "serde", serde(deserialize_with = "crate::types::stored_number"))] f64),
    /// The number of connected clients, and its value at clock zero.
    Connected(#[cfg_attr(feature = "serde", serde(deserialize_with = "crate::types::stored_number"))] f64, u32),
}

/// The cost of a connected client.
#[derive(Debug, Clone, PartialEq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct NotedCost {
    pub capacity: Amount,
    /// Capacity times seconds, less what that is for all the time that the pool has lived.
    #[cfg_attr(feature = "serde", serde(deserialize_with = "crate::types::stored_number"))]
    pub time: f64,
    /// Its reported usage.
    #[cfg_attr(feature = "serde", serde(deserialize_with = "crate::types::stored_number"))]
    pub request: f64,
    /// Its account, if it is a free client.
    pub account: Option<Arc<str>>,
    /// How much of the use since which lease has been counted, so that a repeated report is not paid twice.
    pub counted: Option<(Option<Token>, f64)>,
}

/// Changes of a pool that the peers store.
///
/// What a pool remembers is complete but for changes that are younger than half a minute and, of a balance or a cost,
/// less than a sixteenth of it; of the total, less than a hundredth. Where there is more to say than may be last_noted at
/// once, the oldest comes first.
#[derive(Debug, Clone, PartialEq, Default)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct PoolNotes {
    /// Replaces all earlier notes.
    pub anew: bool,
    /// The time at which this is so.
    pub clock: PoolClock,
    /// Maximum capacity of connected clients.
    pub total: Amount,
    /// Balances that have changed.
    pub balances: Vec<(Arc<str>, NotedBalance)>,
    /// Costs that have changed; `None`: disconnected.
    pub costs: Vec<(HolderKind, Arc<str>, Option<NotedCost>)>,
}

/// A pool as the peers store it.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct PoolMemory {
    clock: PoolClock,
    total: Amount,
    /// When that was so, on the clock of this peer.
    learnt: Millis,
    balances: BTreeMap<Arc<str>, NotedBalance>,
    costs: BTreeMap<(HolderKind, Arc<str>), NotedCost>,
}

impl PoolMemory {
    /// Applies notes as of `now`; adds at most `room` new entries.
    pub fn apply(&mut self, notes: &PoolNotes, now: Millis, mut room: usize) {
        if notes.anew {
            room = room.saturating_add(self.len());
            (self.balances, self.costs) = Default::default();
        }
        (self.clock, self.total, self.learnt) = (notes.clock, notes.total, now);
        for (id, balance) in &notes.balances {
            let change = (*balance != NotedBalance::None).then_some(*balance);
            put(&mut self.balances, Arc::clone(id), change, &mut room);
        }
        for (kind, id, cost) in &notes.costs {
            put(&mut self.costs, (*kind, Arc::clone(id)), cost.clone(), &mut room);
        }
    }

    /// The complete current state.
    pub fn notes(&self, now: Millis) -> PoolNotes {
        let balances = self.balances.iter().map(|(id, balance)| (Arc::clone(id), *balance));
        let costs = self.costs.iter().map(|((kind, id), cost)| (*kind, Arc::clone(id), Some(cost.clone())));
        PoolNotes {
            anew: true,
            clock: self.clock.after(now.since(self.learnt)),
            total: self.total,
            balances: balances.collect(),
            costs: costs.collect(),
        }
    }

    pub fn len(&self) -> usize {
        self.balances.len() + self.costs.len()
    }

    /// Whether it has no entries. It may have a total nevertheless.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    pub fn age(&self, now: Millis) -> Millis {
        now.since(self.learnt)
    }

    /// Whether it can be dropped: no client is known to be connected, and no balance is worth a second.
    pub fn is_worthless(&self, now: Millis) -> bool {
        let decayed = self.clock.after(self.age(now)).decayed;
        self.costs.is_empty()
            && self.balances.values().all(|balance| match balance {
                NotedBalance::None => true,
                NotedBalance::Away(key) => *key < decayed,
                NotedBalance::Connected(..) => false,
            })
    }
}

fn put<K: Ord, V>(map: &mut BTreeMap<K, V>, key: K, value: Option<V>, room: &mut usize) {
    match value {
        None => *room += usize::from(map.remove(&key).is_some()),
        Some(value) if *room > 0 || map.contains_key(&key) => {
            *room -= usize::from(map.insert(key, value).is_none());
        }
        Some(_) => {}
    }
}
