//! The promises of one resource, as a peer keeps them.

use std::{
    collections::{BTreeMap, btree_map},
    sync::Arc,
};

use super::{Ceiling, Changes, Inherited, Record, Refused};
use crate::{Amount, Epoch, HolderKind, Millis, Sum};

/// Ceilings and horizons of the epochs that still have any.
///
/// Every ceiling ends with the horizon of the epoch that wrote it: a later epoch says nothing about the leases of an
/// earlier one. Epochs without ceilings are forgotten, except for the newest, which may continue.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Promises {
    /// The newest epoch, and the number of its last change.
    newest: Option<(Epoch, u64)>,
    epochs: BTreeMap<Epoch, EpochHorizon>,
    ceilings: BTreeMap<(HolderKind, Arc<str>), Kept>,
    sum: Sum,
}

/// The horizon of one epoch.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
struct EpochHorizon {
    /// The horizon on the clock of this peer.
    until: Millis,
    /// Its full length.
    length: Millis,
    /// How many ceilings it has.
    ceilings: usize,
}

#[derive(Debug, Clone, Copy, PartialEq)]
struct Kept {
    amount: Amount,
    epoch: Epoch,
}

impl Promises {
    /// Applies changes, all or none; their horizon counts from `now`.
    pub fn apply(&mut self, changes: &Changes, now: Millis) -> Result<(), Refused> {
        let Changes { epoch, number, ref ceilings, horizon } = *changes;
        let expected = match self.newest {
            Some((newest, _)) if epoch < newest => return Err(Refused::OlderEpoch { newest, got: epoch }),
            Some((newest, last)) if epoch == newest => last.saturating_add(1),
            _ => 1,
        };
        if number != expected {
            return Err(Refused::Gap { epoch, expected, got: number });
        }
        self.begin(epoch, number);
        if let Some(horizon) = horizon {
            self.epochs.entry(epoch).or_default().extend(now, horizon);
        }
        for Ceiling { kind, id, amount } in ceilings {
            self.put((*kind, Arc::clone(id)), Kept { amount: *amount, epoch });
        }
        Ok(())
    }

    /// What a new life of the resource starts from.
    pub fn inherited(&self, now: Millis) -> Inherited {
        let ceilings: Vec<_> = self.iter().filter(|(_, until)| now < *until).collect();
        let until = ceilings.iter().map(|(_, until)| *until).max().unwrap_or_default();
        Inherited { ceilings, newest: self.newest.map(|(epoch, _)| epoch), until }
    }

    /// Drops the ceilings whose horizons have passed, of epochs that others have followed: these horizons are final.
    ///
    /// Those of the newest epoch stay, though they are not inherited any more. Its master may have extended its horizon
    /// long ago, and this peer, cut off from it, learns of that late; its ceilings will not be sent again.
    pub fn forget_ended(&mut self, now: Millis) {
        let newest = self.newest.map(|(epoch, _)| epoch);
        let ended = |epoch: Epoch, record: &EpochHorizon| Some(epoch) != newest && record.until <= now;
        if !self.epochs.iter().any(|(epoch, record)| record.ceilings > 0 && ended(*epoch, record)) {
            return;
        }
        let (epochs, sum) = (&mut self.epochs, &mut self.sum);
        self.ceilings.retain(|_, kept| {
            let Some(record) = epochs.get_mut(&kept.epoch).filter(|record| ended(kept.epoch, record)) else {
                return true;
            };
            record.ceilings -= 1;
            *sum -= kept.amount;
            false
        });
        self.drop_epochs_without_ceilings();
    }

    /// The newest epoch that has promised anything.
    pub fn newest(&self) -> Option<Epoch> {
        self.newest.map(|(epoch, _)| epoch)
    }

    /// Whether there are no ceilings.
    pub fn is_empty(&self) -> bool {
        self.ceilings.is_empty()
    }

    /// The number of ceilings.
    pub fn len(&self) -> usize {
        self.ceilings.len()
    }

    /// Σ ceilings, those included that have ended but are not forgotten.
    pub fn sum(&self) -> Sum {
        self.sum
    }

    /// The ceiling of a holder.
    pub fn ceiling(&self, kind: HolderKind, id: &Arc<str>) -> Option<Amount> {
        self.ceilings.get(&(kind, Arc::clone(id))).map(|kept| kept.amount)
    }

    /// The ceilings in the order of their holders, each with when it ends.
    pub fn iter(&self) -> impl Iterator<Item = (Ceiling, Millis)> {
        self.ceilings.iter().map(|((kind, id), kept)| {
            let ceiling = Ceiling { kind: *kind, id: Arc::clone(id), amount: kept.amount };
            (ceiling, self.epochs.get(&kept.epoch).map_or(Millis::default(), |record| record.until))
        })
    }

    /// Everything, for a snapshot.
    pub fn record(&self) -> Record {
        let ceiling = |((kind, id), kept): (&(HolderKind, Arc<str>), &Kept)| {
            (Ceiling { kind: *kind, id: Arc::clone(id), amount: kept.amount }, kept.epoch)
        };
        Record {
            newest: self.newest,
            horizons: self.epochs.iter().map(|(epoch, record)| (*epoch, record.length)).collect(),
            ceilings: self.ceilings.iter().map(ceiling).collect(),
        }
    }

    /// From a snapshot of unknown age: every horizon counts anew from `now`, at its full length.
    pub fn restore(record: Record, now: Millis) -> Promises {
        let mut promises = Promises { newest: record.newest, ..Promises::default() };
        for (epoch, length) in record.horizons {
            promises.epochs.entry(epoch).or_default().extend(now, length);
        }
        for (Ceiling { kind, id, amount }, epoch) in record.ceilings {
            promises.put((kind, id), Kept { amount, epoch });
        }
        promises.drop_epochs_without_ceilings();
        promises
    }

    /// Begins an epoch. The newest epoch may set its horizon anew while it has no ceilings; earlier ones do not come
    /// back.
    fn begin(&mut self, epoch: Epoch, number: u64) {
        let before = self.newest.replace((epoch, number));
        if before.is_none_or(|(before, _)| before != epoch) {
            self.epochs.entry(epoch).or_default();
            self.drop_epochs_without_ceilings();
        }
    }

    fn put(&mut self, holder: (HolderKind, Arc<str>), new: Kept) {
        let old = match self.ceilings.entry(holder) {
            btree_map::Entry::Vacant(_) if new.amount == Amount::ZERO => None,
            btree_map::Entry::Vacant(entry) => {
                entry.insert(new);
                self.count(new);
                None
            }
            btree_map::Entry::Occupied(entry) if new.amount == Amount::ZERO => Some(entry.remove()),
            btree_map::Entry::Occupied(mut entry) => {
                let old = entry.insert(new);
                self.count(new);
                Some(old)
            }
        };
        if let Some(old) = old {
            self.discount(old);
        }
    }

    fn count(&mut self, kept: Kept) {
        self.sum += kept.amount;
        self.epochs.entry(kept.epoch).or_default().ceilings += 1;
    }

    fn discount(&mut self, kept: Kept) {
        self.sum -= kept.amount;
        let newest = self.newest.is_some_and(|(newest, _)| newest == kept.epoch);
        if let Some(record) = self.epochs.get_mut(&kept.epoch) {
            record.ceilings -= 1;
            if record.ceilings == 0 && !newest {
                self.epochs.remove(&kept.epoch);
            }
        }
    }

    fn drop_epochs_without_ceilings(&mut self) {
        let newest = self.newest.map(|(epoch, _)| epoch);
        self.epochs.retain(|epoch, record| record.ceilings > 0 || Some(*epoch) == newest);
    }
}

impl EpochHorizon {
    /// A horizon of `length` was learnt of at `now`. The one that ends later counts.
    fn extend(&mut self, now: Millis, length: Millis) {
        let until = now.plus(length);
        if until >= self.until {
            *self = EpochHorizon { until, length, ..*self };
        }
    }
}
