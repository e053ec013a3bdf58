//! Child nodes that ask under one name.
//!
//! What a node may believe in is counted for its name: the largest of its leases, for it uses one of them. Two nodes
//! that have the same name use one each. So a node says which it is ([`Life`]), and what another of its name has is
//! counted for itself:
//!
//! - A new master of the same node has a higher reign. It goes on with the record, and what an earlier one still says
//!   is dropped.
//! - Another node finds leases in use under its name. It may be the same that has lost its memory in a restart, or one
//!   beside it. The record is *set aside*: it has no claims any more and its leases run out; the other begins with
//!   nothing, and gets what is free.
//! - If the one set aside is heard again, both are alive. It gets its record back, and the later one is refused until
//!   the first has nothing any more. A third is refused as long as two have leases.
//! - In a pool, places and balances are the name's: another node is refused at once.
//!
//! Nodes that do not say which they are (Doorman's, and those of before) go on with the record that has their name.

use std::{collections::BTreeMap, sync::Arc};

use super::Resource;
use crate::{Amount, Answer, Ask, Claims, HolderKind, Life, Millis, Release, hints::NOT_WATCHED, time::certain_end};

/// Who has which name; names of nodes that do not say who they are are not in it.
#[derive(Debug, Default)]
pub(super) struct Lives(BTreeMap<Arc<str>, Tenancy>);

#[derive(Debug, Clone)]
struct Tenancy {
    /// The record of the name is its.
    life: Life,
    aside: Option<Aside>,
}

/// Another that has the name.
#[derive(Debug, Clone)]
struct Aside {
    life: Life,
    /// What its record is called, if it has one.
    id: Arc<str>,
    /// It is known to live beside the one whose record the name is.
    is_refused: bool,
    /// When it last asked.
    heard: Millis,
}

/// What is to be done with a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Turn {
    /// It goes on with the record of its name.
    GoesOn,
    /// It comes from a former master of the node.
    Stale,
    /// The one before is set aside.
    SetsAside,
    /// It was set aside, and changes places with the other.
    Returns,
    /// Another has the name.
    Refused,
}

impl Tenancy {
    /// `is_held`, `is_aside_held`: whether leases may be in use under the record of the name, and under the other.
    fn turn(&self, life: Life, is_held: bool, is_aside_held: bool) -> Turn {
        let known = match &self.aside {
            _ if self.life.node == life.node => Some(self.life),
            Some(aside) if aside.life.node == life.node => Some(aside.life),
            _ => None,
        };
        if known.is_some_and(|known| life.reign < known.reign) {
            return Turn::Stale;
        }
        match &self.aside {
            _ if self.life.node == life.node => Turn::GoesOn,
            Some(aside) if known.is_some() => {
                if is_held && aside.is_refused {
                    Turn::Refused
                } else {
                    Turn::Returns
                }
            }
            _ if !is_held => Turn::GoesOn,
            _ if is_aside_held => Turn::Refused,
            _ => Turn::SetsAside,
        }
    }
}

impl Resource {
    /// Makes the record of its name that of the node that asks, or says why not.
    pub(super) fn check_name(&mut self, ask: &Ask, now: Millis) -> Result<(), Answer> {
        let (HolderKind::Node, Some(life)) = (ask.kind, ask.life) else { return Ok(()) };
        let name = &ask.id;
        if self.lives.0.get(name).is_some_and(|tenancy| tenancy.life == life) {
            return Ok(());
        }
        let Some(mut tenancy) = self.lives.0.remove(name) else {
            self.lives.0.insert(Arc::clone(name), Tenancy { life, aside: None });
            return Ok(());
        };
        let is_aside_held = tenancy.aside.as_ref().is_some_and(|aside| self.holds(&aside.id, now));
        let mut turn = tenancy.turn(life, self.holds(name, now), is_aside_held);
        let id = set_aside_as(name, tenancy.life);
        if turn == Turn::SetsAside && (self.pool.is_some() || self.ledger.find(HolderKind::Node, &id).is_some()) {
            turn = Turn::Refused;
        }
        match turn {
            Turn::Stale => {}
            Turn::GoesOn => tenancy.life = life,
            Turn::SetsAside => {
                self.set_aside(name, &id);
                let aside = Some(Aside { life: tenancy.life, id, is_refused: false, heard: now });
                tenancy = Tenancy { life, aside };
            }
            Turn::Returns => {
                let is_watched = self.set_aside(name, &id);
                let returning = tenancy.aside.and_then(|aside| self.ledger.find(HolderKind::Node, &aside.id));
                if let Some(slot) = returning {
                    self.ledger.rename(slot, Arc::clone(name));
                }
                if is_watched {
                    self.watch(HolderKind::Node, name);
                }
                let aside = Some(Aside { life: tenancy.life, id, is_refused: true, heard: now });
                tenancy = Tenancy { life, aside };
            }
            Turn::Refused => {
                if let Some(aside) = tenancy.aside.as_mut().filter(|aside| aside.life.node == life.node) {
                    (aside.life, aside.heard) = (life, now);
                }
            }
        }
        self.lives.0.insert(Arc::clone(name), tenancy);
        match turn {
            Turn::Stale => {
                self.counters.stale += 1;
                Err(Answer::Stale)
            }
            Turn::Refused => {
                self.counters.name_taken += 1;
                Err(Answer::NameTaken)
            }
            Turn::GoesOn | Turn::SetsAside | Turn::Returns => Ok(()),
        }
    }

    /// The record that a release is about; none if that of its name is another's.
    pub(super) fn released_by(&self, release: &Release) -> Option<u32> {
        let by_name = || self.ledger.find(release.kind, &release.id);
        let (HolderKind::Node, Some(life)) = (release.kind, release.life) else { return by_name() };
        match self.lives.0.get(&release.id) {
            Some(Tenancy { life: known, .. }) if known.node == life.node => by_name(),
            Some(Tenancy { aside: Some(aside), .. }) if aside.life.node == life.node => {
                self.ledger.find(HolderKind::Node, &aside.id)
            }
            Some(_) => None,
            None => by_name(),
        }
    }

    /// Forgets names that no record has any more. One that is refused is remembered while it goes on asking.
    pub(super) fn forget_lives(&mut self, now: Millis) {
        let (ledger, lease) = (&self.ledger, self.settings.lease);
        let is_there = |id: &str| ledger.find(HolderKind::Node, id).is_some();
        self.lives.0.retain(|name, tenancy| {
            tenancy.aside.take_if(|aside| !is_there(&aside.id) && certain_end(aside.heard, lease) <= now);
            tenancy.aside.is_some() || is_there(name)
        });
    }

    #[cfg(test)]
    pub(crate) fn knows_no_names(&self) -> bool {
        self.lives.0.is_empty()
    }

    /// Whether leases of the record may be in use.
    fn holds(&self, id: &str, now: Millis) -> bool {
        let slot = self.ledger.find(HolderKind::Node, id);
        slot.is_some_and(|slot| self.ledger.holder(slot).leases.held(now) > Amount::ZERO)
    }

    /// Gives the record of a name, if there is one, another, under which nothing is asked for. Returns whether its
    /// holder was watched.
    fn set_aside(&mut self, name: &str, id: &Arc<str>) -> bool {
        let Some(slot) = self.ledger.find(HolderKind::Node, name) else { return false };
        let holder = self.ledger.holder_mut(slot);
        let watch = std::mem::replace(&mut holder.watch, NOT_WATCHED);
        let claims = holder.claims.clone();
        self.forget(slot, &claims, watch);
        self.ledger.set_claims(slot, Claims::new());
        self.ledger.set_waits(slot, false);
        self.ledger.rename(slot, Arc::clone(id));
        watch != NOT_WATCHED
    }
}

/// What operators see of a record that was set aside.
fn set_aside_as(name: &str, life: Life) -> Arc<str> {
    format!("{name} (another node of this name, {:016x})", life.node).into()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn life(node: u64, reign: u64) -> Life {
        Life::new(node, reign).expect("not zero")
    }

    fn tenancy(is_aside_refused: Option<bool>) -> Tenancy {
        let aside = is_aside_refused.map(|is_refused| Aside {
            life: life(2, 5),
            id: "n (2)".into(),
            is_refused,
            heard: Millis(0),
        });
        Tenancy { life: life(1, 5), aside }
    }

    #[test]
    fn a_node_goes_on_under_its_next_masters_and_not_under_former_ones() {
        for aside in [None, Some(false), Some(true)] {
            for (reign, turn) in [(4, Turn::Stale), (5, Turn::GoesOn), (6, Turn::GoesOn)] {
                assert_eq!(tenancy(aside).turn(life(1, reign), true, true), turn, "{aside:?} {reign}");
            }
        }
        assert_eq!(tenancy(Some(false)).turn(life(2, 4), false, true), Turn::Stale);
    }

    #[test]
    fn another_takes_the_name_when_nothing_is_in_use_under_it_and_else_begins_beside_it() {
        assert_eq!(tenancy(None).turn(life(9, 0), false, false), Turn::GoesOn);
        assert_eq!(tenancy(None).turn(life(9, 0), true, false), Turn::SetsAside);
        for is_refused in [false, true] {
            assert_eq!(tenancy(Some(is_refused)).turn(life(9, 0), true, false), Turn::SetsAside);
            assert_eq!(tenancy(Some(is_refused)).turn(life(9, 0), true, true), Turn::Refused, "two are enough");
        }
    }

    #[test]
    fn the_first_of_two_that_live_is_served_until_it_has_nothing() {
        assert_eq!(tenancy(Some(false)).turn(life(2, 5), true, true), Turn::Returns, "it is heard again");
        assert_eq!(tenancy(Some(true)).turn(life(2, 5), true, true), Turn::Refused);
        assert_eq!(tenancy(Some(true)).turn(life(2, 6), false, true), Turn::Returns, "the first has nothing any more");
    }
}
