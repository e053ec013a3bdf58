//! What peers of the formats up to 3 kept of a resource: a ceiling for each holder, in place of a total.
//!
//! Their logs and snapshots are read. A ceiling in a log takes the place of the one that its holder had before, so the
//! ceilings are kept one by one while such entries are applied, and dropped with the first change of this format; a
//! total alone would grow with every ceiling that is said again. The total of a resource is their exact sum, rounded
//! up: never less than its leases, and no more than the version that wrote them would have counted after a start.
//!
//! Deliberately absent: ceilings that end with the horizon of their own epoch. All last as long as the latest of the
//! horizons, which errs on the safe side by less than that for one time after an upgrade.

#[cfg(test)]
mod tests;

use std::{collections::BTreeMap, sync::Arc};

use leaseway_core::{Amount, Changes, Claim, Claims, Epoch, Millis, Sum};
use serde::{Deserialize, Serialize};

/// What a master of a format up to 3 changed about the promises of a resource.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct CeilingChanges {
    pub(crate) epoch: u64,
    pub(crate) number: u64,
    ceilings: Vec<Ceiling>,
    horizon: Option<u64>,
}

/// A holder was never believed to have more than this.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
struct Ceiling {
    node: bool,
    id: Arc<str>,
    /// Zero: it has none any more.
    amount: f64,
}

/// The ceilings of one resource in a snapshot.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct CeilingRecord {
    pub(crate) resource: Arc<str>,
    newest: Option<(u64, u64)>,
    /// The epochs that have ceilings, and the newest: how long their horizons are.
    horizons: Vec<(u64, u64)>,
    /// The ceilings, and the epochs that wrote them.
    ceilings: Vec<(Ceiling, u64)>,
}

/// The ceilings of one resource, by holder.
#[derive(Debug, Clone, Default, PartialEq)]
pub(crate) struct Ceilings {
    holders: BTreeMap<(bool, Arc<str>), Amount>,
    sum: Sum,
}

#[cfg(test)]
impl CeilingChanges {
    /// Of child nodes (`true`) and clients.
    pub(crate) fn of(
        (epoch, number): (u64, u64),
        ceilings: &[(bool, &str, f64)],
        horizon: Option<u64>,
    ) -> CeilingChanges {
        let ceiling =
            |(node, id, amount): &(bool, &str, f64)| Ceiling { node: *node, id: (*id).into(), amount: *amount };
        CeilingChanges { epoch, number, ceilings: ceilings.iter().map(ceiling).collect(), horizon }
    }
}

impl Ceilings {
    /// Applies changes; returns what they mean for the promises of the resource.
    pub(crate) fn apply(&mut self, changes: &CeilingChanges) -> Changes {
        for ceiling in &changes.ceilings {
            self.put(ceiling);
        }
        self.changes((changes.epoch, changes.number), changes.horizon)
    }

    /// From a snapshot, and what that means for the promises of the resource.
    pub(crate) fn restore(record: &CeilingRecord) -> (Ceilings, Changes) {
        let mut ceilings = Ceilings::default();
        for (ceiling, _) in &record.ceilings {
            ceilings.put(ceiling);
        }
        let longest = record.horizons.iter().map(|(_, length)| *length).max();
        let changes = ceilings.changes(record.newest.unwrap_or_default(), longest);
        (ceilings, changes)
    }

    fn changes(&self, (epoch, number): (u64, u64), horizon: Option<u64>) -> Changes {
        let (epoch, horizon) = (Epoch(epoch), horizon.map(Millis));
        Changes { epoch, number, total: self.sum.ceil(), horizon, lease: None, floor: None, wants: Some(self.wants()) }
    }

    /// For a snapshot, together with the promises of the resource.
    pub(crate) fn record(&self, resource: &Arc<str>, promises: &Changes) -> CeilingRecord {
        let epoch = promises.epoch.0;
        let ceiling = |((node, id), amount): (&(bool, Arc<str>), &Amount)| {
            (Ceiling { node: *node, id: Arc::clone(id), amount: amount.get() }, epoch)
        };
        CeilingRecord {
            resource: Arc::clone(resource),
            newest: Some((epoch, promises.number)),
            horizons: vec![(epoch, promises.horizon.unwrap_or_default().0)],
            ceilings: self.holders.iter().map(ceiling).collect(),
        }
    }

    fn put(&mut self, ceiling: &Ceiling) {
        let (holder, amount) =
            ((ceiling.node, Arc::clone(&ceiling.id)), Amount::new(ceiling.amount).unwrap_or(Amount::MAX));
        let before = if amount > Amount::ZERO {
            self.sum += amount;
            self.holders.insert(holder, amount)
        } else {
            self.holders.remove(&holder)
        };
        if let Some(before) = before {
            self.sum -= before;
        }
    }

    /// What the holders want was not kept: as much as they may have.
    fn wants(&self) -> Claims {
        let holders = u32::try_from(self.holders.len()).unwrap_or(u32::MAX).min(Claim::MAX_SUBCLIENTS);
        let claim = Claim::new(self.sum.ceil(), holders, 0);
        (holders > 0).then_some(claim).into_iter().collect()
    }
}
