//! What operators have said about resources: who is vouched for in a pool, and what a protected resource can serve.
//!
//! It outlives the resources, which come and go, and begins anew in each life of one. Where there is a data directory
//! it is a fact that a quorum keeps, and outlives the master too; otherwise it lives as long as this process, and
//! whoever says it is told so. What a pool itself wants to be remembered is read here as well; it is kept by peers
//! alone.
//!
//! Deliberately absent: whether it makes sense, which the resource decides before it is written down; and reports of
//! load that count for a time only, which are over before a new master would need them.

use std::{
    collections::{BTreeMap, HashMap},
    sync::{Arc, Mutex, MutexGuard},
};

use leaseway_core::{Assigned, HolderKind, Load, Millis, PoolNotes};
use leaseway_quorum::{Fact, ProposeError, Quorum, Reign};

/// Where it is kept.
#[derive(Clone)]
pub(crate) enum Vouched {
    /// With the peers.
    Peers(Quorum),
    /// Here.
    Process(Arc<Mutex<HashMap<Arc<str>, Said>>>),
}

/// A client or a child node, by name.
pub(crate) type Whom = (HolderKind, Arc<str>);

/// All that was said about one resource.
#[derive(Debug, Default, PartialEq)]
pub(crate) struct Said {
    assignments: BTreeMap<Whom, Assigned>,
    load: Option<Load>,
}

impl Vouched {
    pub(crate) fn new(quorum: Option<&Quorum>) -> Vouched {
        quorum.map_or_else(|| Vouched::Process(Arc::default()), |quorum| Vouched::Peers(quorum.clone()))
    }

    /// Whether it is kept when this process ends.
    pub(crate) fn is_kept(&self) -> bool {
        matches!(self, Vouched::Peers(_))
    }

    /// Who is vouched for in a pool, with how much.
    pub(crate) fn assignments(&self, resource: &str) -> Vec<(HolderKind, Arc<str>, Assigned)> {
        match self {
            Vouched::Peers(quorum) => quorum.read(|facts| {
                let assignments = facts.assignments(resource);
                assignments.map(|(kind, holder, assigned)| (kind, Arc::clone(holder), assigned)).collect()
            }),
            Vouched::Process(said) => {
                let said = lock(said);
                let assignments = said.get(resource).into_iter().flat_map(|said| &said.assignments);
                assignments.map(|((kind, holder), assigned)| (*kind, Arc::clone(holder), *assigned)).collect()
            }
        }
    }

    /// What is assigned to a holder.
    pub(crate) fn assigned(&self, resource: &str, (kind, holder): &Whom) -> Option<Assigned> {
        match self {
            Vouched::Peers(quorum) => quorum.read(|facts| facts.assigned(resource, *kind, holder)),
            Vouched::Process(said) => lock(said).get(resource)?.assignments.get(&(*kind, Arc::clone(holder))).copied(),
        }
    }

    /// What is remembered of a pool under a master before this one, or before it retired. Only peers remember that.
    pub(crate) fn pool(&self, resource: &str, now: Millis) -> Option<PoolNotes> {
        match self {
            Vouched::Peers(quorum) => quorum.read(|facts| facts.pool(resource).map(|pool| pool.notes(now))),
            Vouched::Process(_) => None,
        }
    }

    /// What a resource can serve, if that is not what its template says.
    pub(crate) fn load_of(&self, resource: &str) -> Option<Load> {
        match self {
            Vouched::Peers(quorum) => quorum.read(|facts| facts.load(resource)),
            Vouched::Process(said) => lock(said).get(resource)?.load,
        }
    }

    /// Writes down that so much is assigned to a holder; `None`: nothing.
    pub(crate) async fn assign(
        &self,
        reign: Option<&Reign>,
        resource: &Arc<str>,
        whom: Whom,
        assigned: Option<Assigned>,
    ) -> Result<(), ProposeError> {
        if self.assigned(resource, &whom) == assigned {
            return Ok(());
        }
        match self {
            Vouched::Peers(quorum) => {
                let (kind, holder) = whom;
                let fact = Fact::Assignment { resource: Arc::clone(resource), kind, holder, assigned };
                propose(quorum, reign, fact).await?;
            }
            Vouched::Process(said) => change(said, resource, |said| match assigned {
                Some(assigned) => drop(said.assignments.insert(whom, assigned)),
                None => drop(said.assignments.remove(&whom)),
            }),
        }
        Ok(())
    }

    /// Writes down that a resource can serve so much; `None`: what its template says.
    pub(crate) async fn load(
        &self,
        reign: Option<&Reign>,
        resource: &Arc<str>,
        load: Option<Load>,
    ) -> Result<(), ProposeError> {
        if self.load_of(resource) == load {
            return Ok(());
        }
        match self {
            Vouched::Peers(quorum) => {
                propose(quorum, reign, Fact::Load { resource: Arc::clone(resource), load }).await?;
            }
            Vouched::Process(said) => change(said, resource, |said| said.load = load),
        }
        Ok(())
    }
}

async fn propose(quorum: &Quorum, reign: Option<&Reign>, fact: Fact) -> Result<(), ProposeError> {
    let reign = reign.expect("a server with peers reigns only by their vote");
    quorum.propose(reign, vec![fact]).await
}

fn lock(said: &Mutex<HashMap<Arc<str>, Said>>) -> MutexGuard<'_, HashMap<Arc<str>, Said>> {
    said.lock().expect("nobody panics while holding what was said")
}

fn change(all: &Mutex<HashMap<Arc<str>, Said>>, resource: &Arc<str>, change: impl FnOnce(&mut Said)) {
    let mut all = lock(all);
    let said = all.entry(Arc::clone(resource)).or_default();
    change(said);
    if *said == Said::default() {
        all.remove(resource);
    }
}

#[cfg(test)]
mod tests {
    use leaseway_core::Amount;

    use super::*;

    #[tokio::test]
    async fn what_was_said_holds_until_something_else_is() {
        let vouched = Vouched::new(None);
        let (pool, ada): (Arc<str>, Arc<str>) = ("pool".into(), "ada".into());
        let ten = Assigned::Capacity(Amount::clamped(10.0));
        for (kind, assigned) in [(HolderKind::Client, ten), (HolderKind::Node, Assigned::Share(0.5))] {
            vouched.assign(None, &pool, (kind, Arc::clone(&ada)), Some(assigned)).await.expect("nobody to lose it");
        }
        vouched.load(None, &pool, Some(Load::Factor(0.5))).await.expect("nobody to lose it");
        assert!(!vouched.is_kept());
        assert_eq!((vouched.assignments("other"), vouched.load_of("other")), (vec![], None));
        let half = Assigned::Share(0.5);
        let all = [(HolderKind::Client, Arc::clone(&ada), ten), (HolderKind::Node, Arc::clone(&ada), half)];
        assert_eq!(vouched.assignments("pool"), all);
        assert_eq!(vouched.assigned("pool", &(HolderKind::Node, Arc::clone(&ada))), Some(half));
        assert_eq!(vouched.load_of("pool"), Some(Load::Factor(0.5)));
        for kind in [HolderKind::Client, HolderKind::Node] {
            vouched.assign(None, &pool, (kind, Arc::clone(&ada)), None).await.expect("nobody to lose it");
        }
        vouched.load(None, &pool, None).await.expect("nobody to lose it");
        let Vouched::Process(all) = &vouched else { panic!("there are no peers") };
        assert!(lock(all).is_empty(), "nothing is left of it");
    }
}
