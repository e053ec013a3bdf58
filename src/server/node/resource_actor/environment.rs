//! The environment of a resource's engine: time, mastership, limits, watchers, and stored state.

use std::{
    cmp,
    collections::{HashMap, hash_map::Entry},
    sync::{
        Arc,
        atomic::{AtomicU32, AtomicUsize, Ordering},
    },
};

use actix::{Addr, dev::SendError};
use leaseway_core::engine::{Environment, Moment};
use leaseway_core::{
    policy::overrides::Load,
    pool::{Assigned, PoolNotes},
    resource::PackedContext,
    types::{HolderKind, Millis, Principal, PrincipalShare, SlotDelta},
};
use leaseway_raft::{MasterLease, RaftHandle};
use tokio::sync::watch;

use super::{combiner::Incarnation, note_rate_limit::NoteRateLimiter, uplink_notices::UplinkNotices};
use crate::{
    config::limits::Limits,
    listen::accounts::{Account, Accounts},
    node::{
        assignment_store::AssignmentStore,
        config_in_force::ConfigInForce,
        node_actor::{Ended, NodeActor},
        streams::{hints::Watchers, pool_events::Subscribers},
    },
    runtime::clock::Clock,
};

/// What all resources of one term of this master have in common.
pub(crate) struct ResourceContext {
    pub(crate) clock: Clock,
    /// The master lease under which the resources decide. `None` for a server without peers.
    pub(crate) master_lease: Option<MasterLease>,
    pub(crate) limits: Arc<Limits>,
    pub(crate) watchers: Arc<Watchers>,
    pub(crate) subscribers: Arc<Subscribers>,
    pub(crate) assignment_store: AssignmentStore,
    /// Where promises and notes are written. `None` without peers.
    pub(crate) raft: Option<RaftHandle>,
    pub(crate) note_rate_limiter: NoteRateLimiter,
    /// Where the uplink reads notices, if the node has a parent.
    pub(crate) notices: Option<Arc<UplinkNotices>>,
    /// The number of holders of all resources.
    pub(crate) holders: Arc<AtomicUsize>,
    pub(crate) accounts: Arc<Accounts>,
    pub(crate) config: watch::Receiver<Arc<ConfigInForce>>,
    /// Rises with every change of the configuration or of overrides.
    pub(crate) revision: Arc<AtomicU32>,
    pub(crate) node: Addr<NodeActor>,
    pub(crate) seed: u64,
}

impl ResourceContext {
    /// The number of places in the queue of a resource, and the share of one principal.
    pub(super) fn queue(&self) -> (usize, PrincipalShare) {
        (self.limits.queue, self.limits.share())
    }

    pub(super) fn idle_after(&self) -> Millis {
        Millis::from_secs(self.limits.idle_secs)
    }

    pub(super) fn packed(&self) -> PackedContext {
        let Limits { clients_per_resource: max_holders, .. } = *self.limits;
        PackedContext { seed: self.seed, max_holders, place_share: self.limits.share() }
    }

    /// Called on the thread on which an incarnation ended, which must not block. If the mailbox is full, the node
    /// notices the end when the resource is next needed.
    pub(super) fn notify_ended(&self, id: &Arc<str>, generation: u64) {
        if let Err(SendError::Full(Ended { id, .. })) = self.node.try_send(Ended { id: Arc::clone(id), generation }) {
            tracing::warn!(resource = %id, "mailbox of the node actor full: it will notice the end of this resource later");
        }
    }
}

/// The holders by principal. Most resources have holders of one.
#[expect(clippy::box_collection, reason = "few resources have holders of several principals")]
#[derive(Default)]
pub(super) enum Charges {
    #[default]
    None,
    One(Arc<Account>, u32),
    Several(Box<HashMap<Principal, (Arc<Account>, u32)>>),
}

impl Charges {
    /// Charges a change to its principal. If the account was already dropped, nobody is charged.
    pub(super) fn charge(&mut self, delta: SlotDelta, accounts: &Accounts) {
        if let Charges::None = self {
            let Some(account) = accounts.of(delta.principal) else { return };
            *self = Charges::One(account, 0);
        }
        if let Charges::One(account, own) = self {
            if account.principal() == delta.principal {
                change(account, own, delta.places);
                if *own == 0 {
                    *self = Charges::None;
                }
                return;
            }
            let known = (account.principal(), (Arc::clone(account), std::mem::take(own)));
            *self = Charges::Several(Box::new(HashMap::from([known])));
        }
        let Charges::Several(all) = self else { return };
        let entry = match all.entry(delta.principal) {
            Entry::Occupied(known) => known.into_mut(),
            Entry::Vacant(new) => {
                let Some(account) = accounts.of(delta.principal) else { return };
                new.insert((account, 0))
            }
        };
        change(&entry.0, &mut entry.1, delta.places);
        if entry.1 == 0 {
            all.remove(&delta.principal);
        }
        if let (1, Some((account, own))) = (all.len(), all.values_mut().next()) {
            *self = Charges::One(Arc::clone(account), std::mem::take(own));
        }
    }
}

fn change(account: &Account, own: &mut u32, places: isize) {
    let before = std::mem::replace(own, own.saturating_add_signed(places.try_into().unwrap_or(i32::MAX)));
    if *own >= before {
        account.holders.fetch_add((*own - before) as usize, Ordering::Relaxed);
    } else {
        account.holders.fetch_sub((before - *own) as usize, Ordering::Relaxed);
    }
}

impl Drop for Charges {
    fn drop(&mut self) {
        match self {
            Charges::None => {}
            Charges::One(account, own) => drop(account.holders.fetch_sub(*own as usize, Ordering::Relaxed)),
            Charges::Several(all) => all.values().for_each(|(account, own)| {
                account.holders.fetch_sub(*own as usize, Ordering::Relaxed);
            }),
        }
    }
}

/// The environment of the actor, see [`Moment`].
impl Incarnation {
    pub(super) fn context(&self) -> &ResourceContext {
        self.context.as_ref().expect("only tests of the mailbox have none, and their actors never run")
    }

    /// Sets the number of holders of this resource. Most rounds do not change it, and then do not write the shared
    /// number. Call it only while the actor is locked.
    pub(super) fn set_holders(&self, own: usize) {
        let before = self.holders.swap(own as u32, Ordering::Relaxed) as usize;
        match own.cmp(&before) {
            cmp::Ordering::Equal => {}
            cmp::Ordering::Greater => drop(self.context().holders.fetch_add(own - before, Ordering::Relaxed)),
            cmp::Ordering::Less => drop(self.context().holders.fetch_sub(before - own, Ordering::Relaxed)),
        }
    }

    pub(super) fn moment(&self) -> Moment<'_> {
        let now = self.context().clock.now();
        Moment {
            now,
            may_decide: self.context().master_lease.as_ref().is_none_or(|master_lease| master_lease.holds(now.at)),
            max_holders: self.max_holders(),
            environment: self,
        }
    }

    /// Whether a principal has used up its share of the holders of all resources.
    pub(super) fn is_at_share(&self, principal: Principal) -> bool {
        let ResourceContext { limits, accounts, holders, .. } = self.context();
        let (most, used) = (limits.clients, holders.load(Ordering::Relaxed));
        let own = accounts.of(principal).map(|account| account.holders.load(Ordering::Relaxed));
        own.is_some_and(|own| !limits.share().allows(own, 1, used, most))
    }

    /// Whether any principal can have used up its share; if not, [`is_at_share`](Self::is_at_share) need not be called.
    pub(super) fn shares_bind(&self) -> bool {
        let ResourceContext { limits, holders, .. } = self.context();
        !limits.share().cannot_bind(holders.load(Ordering::Relaxed), limits.clients)
    }

    /// The maximum number of holders: the limit per resource, or less if the limit of all resources is nearly used up.
    fn max_holders(&self) -> usize {
        let ResourceContext { limits, holders, .. } = self.context();
        let left = limits.clients.saturating_sub(holders.load(Ordering::Relaxed));
        limits.clients_per_resource.min(self.holders.load(Ordering::Relaxed) as usize + left)
    }
}

impl Environment for Incarnation {
    fn is_watched(&self, kind: HolderKind, id: &str) -> bool {
        self.context().watchers.is_watched(kind, id)
    }

    fn assignments(&self) -> Vec<(HolderKind, Arc<str>, Assigned)> {
        self.context().assignment_store.assignments(&self.id)
    }

    fn notes(&self, now: Millis) -> Option<PoolNotes> {
        self.context().assignment_store.pool(&self.id, now)
    }

    fn reported_load(&self) -> Option<Load> {
        self.context().assignment_store.load_of(&self.id)
    }
}
