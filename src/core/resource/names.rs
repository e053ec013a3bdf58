//! Child nodes that ask under one name.
//!
//! What a node may be using is counted for its name: the largest of its leases, because it uses one of them. Two
//! processes with the same name use one lease each. So a node says which [`NodeInstance`] it is, and what another
//! instance has is counted separately:
//!
//! - A new master of the same node has a higher term. It continues with the record, and requests of earlier masters
//!   are dropped as stale.
//! - Another node finds leases in use under its name. It may be the same node that lost its data, or a second one. The
//!   record is *displaced*: it has no claims any more and its leases run out. The new instance begins with nothing and
//!   gets what is free.
//! - If the displaced node reappears, both instances are live. It gets its record back, and the newer instance is
//!   refused until the older one's leases expire. A third instance is refused as long as two have leases.
//! - In a pool, places and balances belong to the name: another instance is refused at once.
//!
//! Nodes that send no instance id, such as Doorman's, continue with the record of their name.

use std::{collections::BTreeMap, sync::Arc};

use super::Resource;
use crate::{
    lease::ledger::NOT_WATCHED,
    resource::{Answer, Ask, NodeInstance, Release},
    types::{
        amount::Amount,
        claim::{Claims, HolderKind},
        time::{Millis, certain_end},
    },
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
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum NameDecision {
    /// It continues with the record of its name.
    GoesOn,
    /// It comes from an earlier master of the node.
    Stale,
    /// The owner so far is displaced.
    Displaces,
    /// It was displaced, and gets its record back.
    Returns,
    /// Another instance owns the name.
    Refused,
}

impl NameOwner {
    /// `is_held`, `is_displaced_held`: whether leases may be in use under the record of the name, and under the
    /// displaced one.
    fn decide(&self, instance: NodeInstance, is_held: bool, is_displaced_held: bool) -> NameDecision {
        let known = match &self.displaced {
            _ if self.instance.node == instance.node => Some(self.instance),
            Some(displaced) if displaced.instance.node == instance.node => Some(displaced.instance),
            _ => None,
        };
        if known.is_some_and(|known| instance.term < known.term) {
            return NameDecision::Stale;
        }
        match &self.displaced {
            _ if self.instance.node == instance.node => NameDecision::GoesOn,
            Some(displaced) if known.is_some() => {
                if is_held && displaced.is_refused {
                    NameDecision::Refused
                } else {
                    NameDecision::Returns
                }
            }
            _ if !is_held => NameDecision::GoesOn,
            _ if is_displaced_held => NameDecision::Refused,
            _ => NameDecision::Displaces,
        }
    }
}

impl Resource {
    /// Makes the instance that asks the owner of its name, or says why not.
    pub(super) fn check_name(&mut self, ask: &Ask, now: Millis) -> Result<(), Answer> {
        let (HolderKind::Node, Some(instance)) = (ask.kind, ask.instance) else { return Ok(()) };
        let name = &ask.id;
        if self.names.0.get(name).is_some_and(|owner| owner.instance == instance) {
            return Ok(());
        }
        let Some(mut owner) = self.names.0.remove(name) else {
            self.names.0.insert(Arc::clone(name), NameOwner { instance, displaced: None });
            return Ok(());
        };
        let is_displaced_held = owner.displaced.as_ref().is_some_and(|displaced| self.holds(&displaced.id, now));
        let mut decision = owner.decide(instance, self.holds(name, now), is_displaced_held);
        let id = displaced_id(name, owner.instance);
        if decision == NameDecision::Displaces
            && (self.pool.is_some() || self.book.ledger.find(HolderKind::Node, &id).is_some())
        {
            decision = NameDecision::Refused;
        }
        match decision {
            NameDecision::Stale => {}
            NameDecision::GoesOn => owner.instance = instance,
            NameDecision::Displaces => {
                self.displace(name, &id);
                let displaced = Some(Displaced { instance: owner.instance, id, is_refused: false, asked_at: now });
                owner = NameOwner { instance, displaced };
            }
            NameDecision::Returns => {
                let is_watched = self.displace(name, &id);
                let returning =
                    owner.displaced.and_then(|displaced| self.book.ledger.find(HolderKind::Node, &displaced.id));
                if let Some(slot) = returning {
                    self.book.ledger.rename(slot, Arc::clone(name));
                }
                if is_watched {
                    self.watch(HolderKind::Node, name);
                }
                let displaced = Some(Displaced { instance: owner.instance, id, is_refused: true, asked_at: now });
                owner = NameOwner { instance, displaced };
            }
            NameDecision::Refused => {
                if let Some(displaced) =
                    owner.displaced.as_mut().filter(|displaced| displaced.instance.node == instance.node)
                {
                    (displaced.instance, displaced.asked_at) = (instance, now);
                }
            }
        }
        self.names.0.insert(Arc::clone(name), owner);
        match decision {
            NameDecision::Stale => {
                self.counters.stale += 1;
                Err(Answer::Stale)
            }
            NameDecision::Refused => {
                self.counters.name_taken += 1;
                Err(Answer::NameTaken)
            }
            NameDecision::GoesOn | NameDecision::Displaces | NameDecision::Returns => Ok(()),
        }
    }

    /// The record that a release is about. None if another instance owns it.
    pub(super) fn released_by(&self, release: &Release) -> Option<u32> {
        let by_name = || self.book.ledger.find(release.kind, &release.id);
        let (HolderKind::Node, Some(instance)) = (release.kind, release.instance) else { return by_name() };
        match self.names.0.get(&release.id) {
            Some(NameOwner { instance: known, .. }) if known.node == instance.node => by_name(),
            Some(NameOwner { displaced: Some(displaced), .. }) if displaced.instance.node == instance.node => {
                self.book.ledger.find(HolderKind::Node, &displaced.id)
            }
            Some(_) => None,
            None => by_name(),
        }
    }

    /// Forgets names without records. An instance that is refused is remembered while it goes on asking.
    pub(super) fn forget_names(&mut self, now: Millis) {
        let (ledger, lease) = (&self.book.ledger, self.settings.lease);
        let is_there = |id: &str| ledger.find(HolderKind::Node, id).is_some();
        self.names.0.retain(|name, owner| {
            owner
                .displaced
                .take_if(|displaced| !is_there(&displaced.id) && certain_end(displaced.asked_at, lease) <= now);
            owner.displaced.is_some() || is_there(name)
        });
    }

    #[cfg(test)]
    pub(crate) fn knows_no_names(&self) -> bool {
        self.names.0.is_empty()
    }

    /// Whether leases of a record may be in use.
    fn holds(&self, id: &str, now: Millis) -> bool {
        let slot = self.book.ledger.find(HolderKind::Node, id);
        slot.is_some_and(|slot| self.book.ledger.holder(slot).leases.held(now) > Amount::ZERO)
    }

    /// Renames the record of a name, if there is one, and removes its claims. Returns whether its holder was watched.
    fn displace(&mut self, name: &str, id: &Arc<str>) -> bool {
        let Some(slot) = self.book.ledger.find(HolderKind::Node, name) else { return false };
        let holder = self.book.ledger.holder_mut(slot);
        let watch = std::mem::replace(&mut holder.watch, NOT_WATCHED);
        let claims = holder.claims.clone();
        self.forget(slot, &claims, watch);
        self.book.ledger.set_claims(slot, Claims::new());
        self.book.ledger.set_waits(slot, false);
        self.book.ledger.rename(slot, Arc::clone(id));
        watch != NOT_WATCHED
    }
}

/// The id of a displaced record, as operators see it.
fn displaced_id(name: &str, instance: NodeInstance) -> Arc<str> {
    format!("{name} (another node of this name, {:016x})", instance.node).into()
}
