//! How resources come to life, and anew when they fail.

use std::sync::{Arc, atomic::Ordering};

use actix::{Addr, AsyncContext as _, Context, dev::SendError};
use leaseway_core::engine::{Predecessor, Setup};
use leaseway_core::{AlgorithmKind, Amount, Birth, ClusterClock, Epoch, Inherited, Millis, Promises, Settings, Source};
use leaseway_raft::{MasterLease, RaftHandle};
use leaseway_uplink::Notice;

use super::{
    super::{
        directory::{NotMaster, Role},
        note_turns::NoteTurn,
        on_end::OnEnd,
        resource_actor::{self, HoldersShare, ResourceEnvironment, ResourceHandle},
    },
    Handover, Membership, Refused,
    actor::{NodeActor, NodeMessage, NodeShared},
};
use crate::{
    listen::accounts::{RequestOrigin, ResourcePlace},
    observe::metrics,
};

impl NodeActor {
    /// The resource, which comes to life if need be; `dead`: an incarnation of it that is known to be over.
    pub(super) fn open(
        &mut self,
        id: Arc<str>,
        dead: Option<u64>,
        from: Option<RequestOrigin>,
        ctx: &mut Context<Self>,
    ) -> Result<ResourceHandle, Refused> {
        let reign = match self.shared.directory.role() {
            Role::Master(reign) => reign,
            Role::Elsewhere(master) => return Err(Refused::NotMaster(NotMaster { master })),
        };
        match self.shared.directory.get(&id) {
            Some(handle) if Some(handle.generation()) != dead => Ok(handle),
            // It is gone, and its own message saying so is still under way.
            Some(handle) if handle.retired() => Ok(self.begin(id, reign, ctx)),
            Some(handle) => Ok(self.rebuild(id, &handle, reign, ctx)),
            None => {
                self.find_place(&id, from).inspect_err(|_| metrics::resource_refused())?;
                Ok(self.begin(id, reign, ctx))
            }
        }
    }

    /// A new resource is counted to the principal whose request it comes to life for.
    fn find_place(&mut self, id: &Arc<str>, from: Option<RequestOrigin>) -> Result<(), Refused> {
        let (used, most) = (self.shared.directory.len(), self.limits.resources);
        if used >= most {
            return Err(Refused::TooManyResources(most));
        }
        let Some(account) = from.and_then(|from| self.shared.accounts.of(from.principal)) else { return Ok(()) };
        if !self.limits.share().allows(account.resources.load(Ordering::Relaxed), 1, used, most) {
            return Err(Refused::ResourceShare(most));
        }
        self.resource_places.insert(Arc::clone(id), ResourcePlace::new(account));
        Ok(())
    }

    /// An incarnation is over: one that has retired is forgotten, one that has failed is built anew.
    pub(super) fn ended(&mut self, id: &Arc<str>, generation: u64, ctx: &mut Context<Self>) {
        let known = self.shared.directory.get(id).filter(|handle| handle.generation() == generation);
        // One that is not in the directory any more was left behind by a reign that is over.
        let Some(handle) = known else { return };
        match self.shared.directory.role() {
            _ if handle.retired() => {
                self.shared.directory.remove(id);
                self.resource_places.remove(id);
                if let Some(uplink) = &self.uplink {
                    uplink.notices.post(Notice::Retired(Arc::clone(id)));
                }
                tracing::debug!(resource = %id, "retired");
            }
            Role::Master(reign) => drop(self.rebuild(Arc::clone(id), &handle, reign, ctx)),
            Role::Elsewhere(_) => {
                self.shared.directory.remove(id);
                self.resource_places.remove(id);
            }
        }
    }

    /// A resource that no holder has anything of, unless masters before this one gave it.
    fn begin(&mut self, id: Arc<str>, reign: Option<MasterLease>, ctx: &mut Context<Self>) -> ResourceHandle {
        let given_until = self.former_masters_end();
        self.begin_after(id, given_until, reign, ctx)
    }

    /// The same; `given_until`: masters and incarnations before this one have given nothing since.
    fn begin_after(
        &mut self,
        id: Arc<str>,
        given_until: Millis,
        reign: Option<MasterLease>,
        ctx: &mut Context<Self>,
    ) -> ResourceHandle {
        let untold = self.keeps_promises().map(|membership| {
            let (until, whole) = membership.quorum.read(|state| (state.listen_until(), state.listens_whole()));
            (clock_of(reign.as_ref()).local(until.unwrap_or_default()), whole)
        });
        let predecessor = Predecessor::NewMaster(self.since);
        if self.uplink.is_some() {
            // The parent will say how long leases are.
            let predecessor = untold.is_none_or(|(until, _)| until > self.clock.at()).then_some(predecessor);
            return self.start_resource(id, given_until, Millis(0), predecessor, reign, ctx);
        }
        let learning_until = predecessor.learning_until(&self.config().settings_for(&id));
        let learning_until = match untold {
            None => learning_until,
            Some((until, true)) => until,
            Some((until, false)) => learning_until.min(until),
        };
        self.start_resource(id, given_until, learning_until, None, reign, ctx)
    }

    /// A resource that failed, or whose write was lost, has lost its books. What the peers have stored is as good;
    /// without it, it learns for one lease length before it divides again.
    fn rebuild(
        &mut self,
        id: Arc<str>,
        before: &ResourceHandle,
        reign: Option<MasterLease>,
        ctx: &mut Context<Self>,
    ) -> ResourceHandle {
        let (generation, now) = (before.generation(), self.clock.at());
        if before.lost_commit() {
            tracing::debug!(resource = %id, generation, "built anew: what it had promised was not stored");
            return self.begin_after(id, now.max(self.former_masters_end()), reign, ctx);
        }
        metrics::resource_restarted();
        if self.keeps_promises().is_some() {
            tracing::error!(resource = %id, generation, "resource failed; built anew from what it has promised");
            return self.begin_after(id, now.max(self.former_masters_end()), reign, ctx);
        }
        tracing::error!(resource = %id, generation, "resource failed; built anew, it learns for one lease length");
        let predecessor = Predecessor::Rebuilt(now);
        let learning_until = predecessor.learning_until(&self.config().settings_for(&id));
        self.start_resource(id, now, learning_until, Some(predecessor), reign, ctx)
    }

    fn start_resource(
        &mut self,
        id: Arc<str>,
        given_until: Millis,
        learning_until: Millis,
        predecessor: Option<Predecessor>,
        reign: Option<MasterLease>,
        ctx: &mut Context<Self>,
    ) -> ResourceHandle {
        let config = self.config();
        let has_parent = self.uplink.is_some();
        if !has_parent && config.repository.find(&id).is_none() {
            metrics::resource_unmatched();
            tracing::warn!(resource = %id, "no template matches: its requests are honoured as they come");
        }
        let (inherited, promises) = self.inherit(&id, given_until, reign.as_ref());
        let birth = Birth {
            source: if has_parent { Source::Parent } else { Source::Own },
            epoch: self.next_epoch(inherited.as_ref().and_then(|inherited| inherited.newest)),
            since: self.since,
            learning_until,
            max_holders: self.limits.clients_per_resource,
            seed: self.seed,
            settings: if has_parent { placeholder() } else { config.settings_for(&id) },
            inherited,
        };
        self.generation += 1;
        let generation = self.generation;
        let notes = self
            .membership
            .as_ref()
            .map(|membership| (membership.quorum.clone(), NoteTurn::new(self.note_turns.clone())));
        let idle_after = Millis::from_secs(self.limits.idle_secs);
        let on_end = {
            let (node, id) = (ctx.address(), Arc::clone(&id));
            OnEnd::new(move || tell_ended(&node, id, generation))
        };
        let NodeShared { watchers, assignment_store, subscribers, .. } = &self.shared;
        let start = resource_actor::Start {
            generation,
            setup: Setup { birth, keeps_notes: notes.is_some(), predecessor, idle_after },
            config,
            environment: ResourceEnvironment {
                id: Arc::clone(&id),
                clock: self.clock,
                reign,
                limits: Arc::clone(&self.limits),
                watchers: Arc::clone(watchers),
                assignment_store: assignment_store.clone(),
                holders: HoldersShare::new(Arc::clone(&self.shared.holders), Arc::clone(&self.shared.accounts)),
            },
            promises,
            notes,
            notices: self.uplink.as_ref().map(|uplink| Arc::clone(&uplink.notices)),
            subscribers: Arc::clone(subscribers),
            on_end,
        };
        let arbiter = &self.arbiters[self.next_arbiter % self.arbiters.len()];
        self.next_arbiter += 1;
        let handle = resource_actor::start(start, arbiter);
        self.shared.directory.put(id, handle.clone());
        handle
    }

    /// Masters before this one give no leases after this, with any `--timing`.
    fn former_masters_end(&self) -> Millis {
        let overlap = self.membership.as_ref().map_or(Millis(0), |membership| membership.quorum.overlap());
        self.since.plus(overlap)
    }

    /// The part in the quorum, if masters keep promises.
    fn keeps_promises(&self) -> Option<&Membership> {
        self.membership.as_ref().filter(|membership| membership.handover == Handover::Promises)
    }

    /// What was promised before, and where to write what will be; neither if promises are not kept.
    fn inherit(
        &self,
        id: &str,
        given_until: Millis,
        reign: Option<&MasterLease>,
    ) -> (Option<Inherited>, Option<RaftHandle>) {
        let Some(membership) = self.keeps_promises() else { return (None, None) };
        let (now, clock) = (self.clock.at(), clock_of(reign));
        let promised = |promises: &Promises| promises.inherited(clock, now, given_until);
        let inherited = membership.quorum.read(|state| state.promises(id).map(promised));
        let inherited = inherited.unwrap_or(Inherited { clock, ..Inherited::default() });
        (Some(inherited), Some(membership.quorum.clone()))
    }

    /// Epochs only rise: they count milliseconds since the epoch, with room for four million tokens in each. Over
    /// restarts of the process they rise because time does; a clock that was set back shows where promises are kept.
    fn next_epoch(&mut self, before: Option<Epoch>) -> Epoch {
        let now = self.clock.unix_ms().saturating_mul(Inherited::EPOCHS_APART);
        let before = before.map_or(0, |epoch| epoch.0).max(self.last_epoch);
        self.last_epoch = now.max(before.saturating_add(Inherited::EPOCHS_APART));
        Epoch(self.last_epoch)
    }
}

/// The clock of the cluster, where there is one.
fn clock_of(reign: Option<&MasterLease>) -> ClusterClock {
    reign.map(MasterLease::clock).unwrap_or_default()
}

/// Until the parent has said how a resource is run. Nothing is granted by this.
fn placeholder() -> Settings {
    Settings::new(AlgorithmKind::FairShare, Amount::ZERO)
}

/// Called on the thread on which an incarnation ended; waiting is not possible there, so what a full mailbox does not
/// take is noticed when the resource is next needed.
fn tell_ended(node: &Addr<NodeActor>, id: Arc<str>, generation: u64) {
    if let Err(SendError::Full(NodeMessage::Ended { id, .. })) = node.try_send(NodeMessage::Ended { id, generation }) {
        tracing::warn!(resource = %id, "the node is busy; it will notice later that this resource is gone");
    }
}
