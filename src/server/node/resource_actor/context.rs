//! What the resources of a term have in common, and how many holders a resource has.

use std::{
    collections::{HashMap, hash_map::Entry},
    sync::{
        Arc,
        atomic::{AtomicU32, AtomicUsize, Ordering},
    },
};

use leaseway_core::{
    resource::PackedContext,
    types::{Millis, Principal, SlotDelta},
};
use leaseway_raft::{MasterLease, RaftHandle};
use tokio::sync::watch;

use super::{note_rate_limit::NoteRateLimiter, uplink_notices::UplinkNotices};
use crate::{
    config::limits::Limits,
    listen::accounts::{Account, Accounts},
    node::{
        assignment_store::AssignmentStore,
        config_in_force::ConfigInForce,
        streams::{hints::Watchers, pool_events::Subscribers},
    },
    observe::audit::Audit,
    runtime::clock::Clock,
};

type OnEnd = dyn Fn(&Arc<str>, u64) + Send + Sync;

/// What all resources of one term of this master have in common.
pub(crate) struct ResourceContext {
    pub(crate) clock: Clock,
    /// The master lease under which the resources decide. `None` for a server without peers.
    pub(crate) master_lease: Option<MasterLease>,
    pub(crate) limits: Arc<Limits>,
    pub(crate) watchers: Arc<Watchers>,
    pub(crate) subscribers: Arc<Subscribers>,
    pub(crate) audit: Audit,
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
    /// Called with the id and the generation when an incarnation ends. Must not block.
    pub(crate) on_end: Box<OnEnd>,
    pub(crate) seed: u64,
}

impl ResourceContext {
    pub(super) fn idle_after(&self) -> Millis {
        Millis::from_secs(self.limits.idle_secs)
    }

    pub(super) fn packed(&self) -> PackedContext {
        let Limits { clients_per_resource: max_holders, .. } = *self.limits;
        PackedContext { seed: self.seed, max_holders, place_share: self.limits.share() }
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
                change(account, own, delta.slots);
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
        change(&entry.0, &mut entry.1, delta.slots);
        if entry.1 == 0 {
            all.remove(&delta.principal);
        }
        if let (1, Some((account, own))) = (all.len(), all.values_mut().next()) {
            *self = Charges::One(Arc::clone(account), std::mem::take(own));
        }
    }
}

fn change(account: &Account, own: &mut u32, slots: isize) {
    let before = std::mem::replace(own, own.saturating_add_signed(slots.try_into().unwrap_or(i32::MAX)));
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

#[cfg(test)]
impl ResourceContext {
    /// A context of a server without peers, whose node hears of nothing.
    pub(super) fn for_tests() -> ResourceContext {
        let limits = Arc::new(Limits::default());
        ResourceContext {
            clock: Clock::start(),
            master_lease: None,
            watchers: Arc::new(Watchers::new(limits.watchers, limits.share())),
            subscribers: Arc::default(),
            audit: Audit::none(),
            assignment_store: AssignmentStore::new(None),
            raft: None,
            note_rate_limiter: NoteRateLimiter::stopped(),
            notices: None,
            holders: Arc::default(),
            accounts: Arc::default(),
            config: watch::channel(Arc::default()).1,
            revision: Arc::default(),
            on_end: Box::new(|_, _| {}),
            seed: 1,
            limits,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn holders_are_charged_to_their_principals_until_they_leave() {
        let accounts = Accounts::default();
        let of = [1_u8, 2].map(|last| accounts.of_address([10, 0, 0, last].into()));
        let charged = || of.each_ref().map(|account| account.holders.load(Ordering::Relaxed));
        let mut charges = Charges::default();
        let mut charge = |at: usize, slots| {
            charges.charge(SlotDelta { principal: of[at].principal(), slots }, &accounts);
            charged()
        };
        let steps = [(0, 1), (0, 2), (1, 1), (1, 1), (0, -3), (1, 3), (0, 1), (1, -5)];
        let expected = [[1, 0], [3, 0], [3, 1], [3, 2], [0, 2], [0, 5], [1, 5], [1, 0]];
        assert_eq!(steps.map(|(at, slots)| charge(at, slots)), expected);
        charges.charge(SlotDelta { principal: Principal(999), slots: 1 }, &accounts);
        drop(charges);
        assert_eq!(charged(), [0, 0], "an ended resource charges nobody");
    }
}
