//! Child nodes that ask under one name.
//!
//! What a node may be using is counted for its name: the largest of its leases, because it uses one of them. Two
//! processes with the same name use one lease each. So a node says which [`NodeInstance`] it is, and what another
//! instance has is counted separately:
//!
//! - A new master of the same node has a higher term. It continues with the record, and requests of earlier masters
//!   are dropped as stale.
//! - Another node finds leases in use under its name. It may be the same node that lost its data, or a second one. The
//!   record is *displaced*: it loses its claims, and its leases run out. The new instance begins with nothing and gets
//!   what is free.
//! - If the displaced node reappears, both instances are live. It gets its record back, and the newer instance is
//!   refused until the older one's leases expire. A third instance is refused as long as two have leases.
//! - In a pool, places and balances belong to the name: another instance is refused immediately.
//!
//! Nodes that send no instance id, such as Doorman's, continue with the record of their name.

use std::{collections::BTreeMap, sync::Arc};

use crate::{
    lease::LeaseBook,
    resource::{NodeInstance, Release},
    types::{Amount, HolderKind, Millis, certain_end},
};

/// The owner of each name. Without names of nodes that send no instance id.
#[derive(Debug, Default)]
pub(super) struct NameOwners(BTreeMap<Arc<str>, NameOwner>);

#[derive(Debug, Clone)]
struct NameOwner {
    /// The owner of the record of this name.
    instance: NodeInstance,
    displaced: Option<Displaced>,
}

/// Another instance with the same name.
#[derive(Debug, Clone)]
struct Displaced {
    instance: NodeInstance,
    /// The id of its record, if it has one.
    id: Arc<str>,
    /// Both are known to be live, so it is refused.
    is_refused: bool,
    /// When it last asked.
    asked_at: Millis,
}

/// How to treat a request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum NameDecision {
    /// It continues with the record of its name.
    Continues,
    /// It comes from an earlier master of the node.
    Stale,
    /// The owner so far is displaced: its record gets this id.
    Displaces(Arc<str>),
    /// It was displaced, and gets its record back. The record of the owner so far gets the id `displaced`.
    Returns { displaced: Arc<str>, returning: Arc<str> },
    /// Another instance owns the name.
    Refused,
}

impl NameOwners {
    /// Decides about a request of this instance, and notes the owner of its name.
    pub(super) fn check(
        &mut self,
        name: &Arc<str>,
        instance: NodeInstance,
        book: &LeaseBook,
        is_pool: bool,
        now: Millis,
    ) -> NameDecision {
        let Some(owner) = self.0.get_mut(name) else {
            self.0.insert(Arc::clone(name), NameOwner { instance, displaced: None });
            return NameDecision::Continues;
        };
        if owner.instance.node == instance.node {
            if instance.term < owner.instance.term {
                return NameDecision::Stale;
            }
            owner.instance = instance;
            return NameDecision::Continues;
        }
        let is_held = holds(book, name, now);
        let id = displaced_id(name, owner.instance);
        match &mut owner.displaced {
            Some(known) if known.instance.node == instance.node => {
                if instance.term < known.instance.term {
                    return NameDecision::Stale;
                }
                if is_held && known.is_refused {
                    (known.instance, known.asked_at) = (instance, now);
                    return NameDecision::Refused;
                }
                let returning = Arc::clone(&known.id);
                let (instance_before, displaced) = (owner.instance, Arc::clone(&id));
                let before = Displaced { instance: instance_before, id, is_refused: true, asked_at: now };
                *owner = NameOwner { instance, displaced: Some(before) };
                NameDecision::Returns { displaced, returning }
            }
            _ if !is_held => {
                owner.instance = instance;
                NameDecision::Continues
            }
            displaced => {
                let is_displaced_held = displaced.as_ref().is_some_and(|displaced| holds(book, &displaced.id, now));
                if is_displaced_held || is_pool || book.ledger().find(HolderKind::Node, &id).is_some() {
                    return NameDecision::Refused;
                }
                let before =
                    Displaced { instance: owner.instance, id: Arc::clone(&id), is_refused: false, asked_at: now };
                *owner = NameOwner { instance, displaced: Some(before) };
                NameDecision::Displaces(id)
            }
        }
    }

    /// The record that a release is about. `None` if another instance owns it.
    pub(super) fn released_by(&self, release: &Release, book: &LeaseBook) -> Option<u32> {
        let find = |id: &str| book.ledger().find(release.kind, id);
        let (HolderKind::Node, Some(instance)) = (release.kind, release.instance) else { return find(&release.id) };
        match self.0.get(&release.id) {
            None => find(&release.id),
            Some(owner) if owner.instance.node == instance.node => find(&release.id),
            Some(NameOwner { displaced: Some(displaced), .. }) if displaced.instance.node == instance.node => {
                find(&displaced.id)
            }
            Some(_) => None,
        }
    }

    /// Forgets names without records. A refused instance is remembered while it continues to ask.
    pub(super) fn forget_unused(&mut self, book: &LeaseBook, lease: Millis, now: Millis) {
        let is_there = |id: &str| book.ledger().find(HolderKind::Node, id).is_some();
        self.0.retain(|name, owner| {
            owner
                .displaced
                .take_if(|displaced| !is_there(&displaced.id) && certain_end(displaced.asked_at, lease) <= now);
            owner.displaced.is_some() || is_there(name)
        });
    }

    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

/// Whether leases of a record may be in use.
fn holds(book: &LeaseBook, id: &str, now: Millis) -> bool {
    let slot = book.ledger().find(HolderKind::Node, id);
    slot.is_some_and(|slot| book.ledger().holder(slot).leases.held(now) > Amount::ZERO)
}

/// The id of a displaced record, as operators see it.
fn displaced_id(name: &str, instance: NodeInstance) -> Arc<str> {
    format!("{name} (another node of this name, {:016x})", instance.node).into()
}
