//! The promises of one resource, as a peer keeps them.

use std::{
    collections::{BTreeMap, btree_map},
    sync::Arc,
};

use super::{Ceiling, Changes, Inherited, Record, Refused};
use crate::{Amount, HolderKind, Millis, Sum, Term};

/// Ceilings and horizons of the terms that still have any.
///
/// Every ceiling ends with the horizon of the term that wrote it: a later term says nothing about the leases of an
/// earlier one. Terms without ceilings are forgotten, but for the newest, which may go on.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Promises {
    /// Who promised last, and the number of its last change.
    newest: Option<(Term, u64)>,
    terms: BTreeMap<Term, Chapter>,
    ceilings: BTreeMap<(HolderKind, Arc<str>), Kept>,
    sum: Sum,
}

/// What one term has promised about time.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
struct Chapter {
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
    term: Term,
}

impl Promises {
    /// Takes in what a master has promised; what it says about time counts from `now`. All of it or, if it is refused,
    /// nothing.
    pub fn apply(&mut self, changes: &Changes, now: Millis) -> Result<(), Refused> {
        let Changes { term, number, ref ceilings, horizon } = *changes;
        let expected = match self.newest {
            Some((newest, _)) if term < newest => return Err(Refused::OlderTerm { newest, got: term }),
            Some((newest, last)) if term == newest => last.saturating_add(1),
            _ => 1,
        };
        if number != expected {
            return Err(Refused::Gap { term, expected, got: number });
        }
        self.begin(term, number);
        if let Some(horizon) = horizon {
            self.terms.entry(term).or_default().extend(now, horizon);
        }
        for Ceiling { kind, id, amount } in ceilings {
            self.put((*kind, Arc::clone(id)), Kept { amount: *amount, term });
        }
        Ok(())
    }

    /// What a new life of the resource starts from.
    pub fn inherited(&self, now: Millis) -> Inherited {
        let ceilings: Vec<_> = self.iter().filter(|(_, until)| now < *until).collect();
        let until = ceilings.iter().map(|(_, until)| *until).max().unwrap_or_default();
        Inherited { ceilings, newest: self.newest.map(|(term, _)| term), until }
    }

    /// Drops the ceilings whose horizons have passed, of terms that others have followed: these horizons are final.
    ///
    /// Those of the newest term stay, though they are not inherited any more. Its master may have extended its horizon
    /// long ago, and this peer, cut off from it, is going to learn of that late; its ceilings will not be said again.
    pub fn forget_ended(&mut self, now: Millis) {
        let newest = self.newest.map(|(term, _)| term);
        let ended = |term: Term, chapter: &Chapter| Some(term) != newest && chapter.until <= now;
        if !self.terms.iter().any(|(term, chapter)| chapter.ceilings > 0 && ended(*term, chapter)) {
            return;
        }
        let (terms, sum) = (&mut self.terms, &mut self.sum);
        self.ceilings.retain(|_, kept| {
            let Some(chapter) = terms.get_mut(&kept.term).filter(|chapter| ended(kept.term, chapter)) else {
                return true;
            };
            chapter.ceilings -= 1;
            *sum -= kept.amount;
            false
        });
        self.drop_terms_without_ceilings();
    }

    /// The newest term that has promised anything.
    pub fn newest(&self) -> Option<Term> {
        self.newest.map(|(term, _)| term)
    }

    /// Whether nothing is promised to anybody.
    pub fn is_empty(&self) -> bool {
        self.ceilings.is_empty()
    }

    /// How many holders something is promised to.
    pub fn len(&self) -> usize {
        self.ceilings.len()
    }

    /// Σ ceilings, those included that have ended but are not forgotten.
    pub fn sum(&self) -> Sum {
        self.sum
    }

    /// The ceilings in the order of their holders, each with when it ends.
    pub fn iter(&self) -> impl Iterator<Item = (Ceiling, Millis)> {
        self.ceilings.iter().map(|((kind, id), kept)| {
            let ceiling = Ceiling { kind: *kind, id: Arc::clone(id), amount: kept.amount };
            (ceiling, self.terms.get(&kept.term).map_or(Millis::default(), |chapter| chapter.until))
        })
    }

    /// Everything, for a snapshot.
    pub fn record(&self) -> Record {
        let ceiling = |((kind, id), kept): (&(HolderKind, Arc<str>), &Kept)| {
            (Ceiling { kind: *kind, id: Arc::clone(id), amount: kept.amount }, kept.term)
        };
        Record {
            newest: self.newest,
            horizons: self.terms.iter().map(|(term, chapter)| (*term, chapter.length)).collect(),
            ceilings: self.ceilings.iter().map(ceiling).collect(),
        }
    }

    /// From a snapshot. Nobody knows how old that is: every horizon counts anew from `now`, at its full length.
    pub fn restore(record: Record, now: Millis) -> Promises {
        let mut promises = Promises { newest: record.newest, ..Promises::default() };
        for (term, length) in record.horizons {
            promises.terms.entry(term).or_default().extend(now, length);
        }
        for (Ceiling { kind, id, amount }, term) in record.ceilings {
            promises.put((kind, id), Kept { amount, term });
        }
        promises.drop_terms_without_ceilings();
        promises
    }

    /// The newest term may change its mind about time while it has no ceilings; those before it will not come back.
    fn begin(&mut self, term: Term, number: u64) {
        let before = self.newest.replace((term, number));
        if before.is_none_or(|(before, _)| before != term) {
            self.terms.entry(term).or_default();
            self.drop_terms_without_ceilings();
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
        self.terms.entry(kept.term).or_default().ceilings += 1;
    }

    fn discount(&mut self, kept: Kept) {
        self.sum -= kept.amount;
        let newest = self.newest.is_some_and(|(newest, _)| newest == kept.term);
        if let Some(chapter) = self.terms.get_mut(&kept.term) {
            chapter.ceilings -= 1;
            if chapter.ceilings == 0 && !newest {
                self.terms.remove(&kept.term);
            }
        }
    }

    fn drop_terms_without_ceilings(&mut self) {
        let newest = self.newest.map(|(term, _)| term);
        self.terms.retain(|term, chapter| chapter.ceilings > 0 || Some(*term) == newest);
    }
}

impl Chapter {
    /// A horizon of `length` was learnt of at `now`. The one that ends later counts.
    fn extend(&mut self, now: Millis, length: Millis) {
        let until = now.plus(length);
        if until >= self.until {
            *self = Chapter { until, length, ..*self };
        }
    }
}
