//! Pool state stored by peers: balances, costs and the total.
//!
//! A master periodically sends changes ([`PoolNotes`]), its peers store them ([`PoolMemory`]), and the next master
//! starts from them. No promise depends on this state. Its loss costs fairness and a part of a bill, within the bounds
//! that [`PoolNotes`] states.
//!
//! Notes are few, because changes with time are not sent: balances grow or decay and costs rise with the clock of the
//! pool. A peer advances that clock by its own clock from the moment of receipt.

use std::{collections::BTreeMap, sync::Arc};

use crate::types::{Amount, HolderKind, Millis, Token};

/// The time of a pool, over all its masters.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct PoolClock {
    /// Seconds in which the pool had a master or was remembered by peers.
    #[cfg_attr(feature = "serde", serde(deserialize_with = "crate::types::stored_number"))]
    pub lived: f64,
    /// The growth of a balance whose client was always connected.
    #[cfg_attr(feature = "serde", serde(deserialize_with = "crate::types::stored_number"))]
    pub grown: f64,
    /// The exponent of e by which balances have decayed.
    #[cfg_attr(feature = "serde", serde(deserialize_with = "crate::types::stored_number"))]
    pub decayed: f64,
    /// Growth of balances per second.
    #[cfg_attr(feature = "serde", serde(deserialize_with = "crate::types::stored_number"))]
    pub speed: f64,
    /// The time in which balances decay by a factor of e.
    pub time_constant: Millis,
}

impl PoolClock {
    /// The clock after `elapsed` more time.
    pub(crate) fn after(self, elapsed: Millis) -> PoolClock {
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
    /// No client is connected: the logarithm of the balance at decay clock zero.
    Away(#[cfg_attr(feature = "serde", serde(deserialize_with = "crate::types::stored_number"))] f64),
    /// The balance at growth clock zero, and the number of connected clients.
    Connected(#[cfg_attr(feature = "serde", serde(deserialize_with = "crate::types::stored_number"))] f64, u32),
}

/// The cost of a connected client.
#[derive(Debug, Clone, PartialEq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct NotedCost {
    pub capacity: Amount,
    /// Capacity times seconds, minus the capacity times the age of the pool.
    #[cfg_attr(feature = "serde", serde(deserialize_with = "crate::types::stored_number"))]
    pub time: f64,
    #[cfg_attr(feature = "serde", serde(deserialize_with = "crate::types::stored_number"))]
    pub request: f64,
    /// The account of a free client.
    pub account: Option<Arc<str>>,
    /// The counted usage since this lease, so that a repeated report is not charged twice.
    pub counted: Option<(Option<Token>, f64)>,
}

/// Changes of a pool, to be stored by peers.
///
/// Stored values lag behind by at most half a minute. Larger changes are written sooner: a sixteenth of a balance or
/// cost, or a hundredth of the total. If there are more changes than fit into one batch, the oldest come first.
#[derive(Debug, Clone, PartialEq, Default)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct PoolNotes {
    /// Whether these notes replace all earlier ones.
    pub anew: bool,
    /// The clock at which these values are correct.
    pub clock: PoolClock,
    /// Maximum capacity of connected clients.
    pub total: Amount,
    pub balances: Vec<(Arc<str>, NotedBalance)>,
    /// Costs that have changed; `None` if the client has disconnected.
    pub costs: Vec<(HolderKind, Arc<str>, Option<NotedCost>)>,
}

/// The state of a pool as stored by a peer.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct PoolMemory {
    clock: PoolClock,
    total: Amount,
    /// The peer's clock when the last notes arrived.
    learnt: Millis,
    balances: BTreeMap<Arc<str>, NotedBalance>,
    costs: BTreeMap<(HolderKind, Arc<str>), NotedCost>,
}

impl PoolMemory {
    /// Applies notes received at `now`. Adds at most `room` entries.
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

    /// Whether it has no entries. It may have a total.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    pub fn age(&self, now: Millis) -> Millis {
        now.since(self.learnt)
    }

    /// Whether this state can be dropped: no client is known to be connected, and every balance is at most one second.
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
