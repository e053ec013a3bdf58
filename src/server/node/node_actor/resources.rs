//! Creates resources, and restarts those that fail.

use std::sync::{Arc, atomic::Ordering};

use actix::{Addr, AsyncContext as _, Context, dev::SendError};
use leaseway_core::engine::{Predecessor, Setup};
use leaseway_core::{
    lease::promises::{Inherited, Promises},
    policy::settings::{AlgorithmKind, Settings},
    resource::{ResourceOptions, supply::Source},
    types::{Amount, ClusterClock, Epoch, Millis},
};
use leaseway_raft::MasterLease;
use leaseway_uplink::Notice;

use super::{Ended, Handover, Membership, NodeActor};
use crate::{
    listen::accounts::{RequestOrigin, ResourceCharge},
    node::{
        request_error::{NotMaster, RequestError},
        resource_actor::{self, ResourceContext, ResourceHandle},
        resource_directory::Role,
    },
    observe::metrics,
};

impl NodeActor {
    /// Returns the resource, and creates it if it is not active. `dead` is an incarnation that is known to have ended.
    pub(super) fn open(
        &mut self,
        id: Arc<str>,
        dead: Option<u64>,
        from: Option<RequestOrigin>,
        ctx: &mut Context<Self>,
    ) -> Result<ResourceHandle, RequestError> {
        let master_lease = match self.shared.directory.role() {
            Role::Master(master_lease) => master_lease,
            Role::Elsewhere(master) => return Err(RequestError::NotMaster(NotMaster { master })),
        };
        match self.shared.directory.get(&id) {
            Some(handle) if Some(handle.generation()) != dead => Ok(handle),
            // It has retired, and its message about that is still under way.
            Some(handle) if handle.retired() => Ok(self.begin(id, handle.charge(), master_lease, ctx)),
            Some(handle) => Ok(self.rebuild(id, &handle, master_lease, ctx)),
            None => {
                let charge = self.charge_for(from).inspect_err(|_| metrics::resource_refused())?;
                Ok(self.begin(id, charge, master_lease, ctx))
            }
        }
    }

    /// Charges a new resource to the principal of the request. Fails at the limits.
    fn charge_for(&self, from: Option<RequestOrigin>) -> Result<Option<ResourceCharge>, RequestError> {
        let (used, most) = (self.shared.directory.len(), self.shared.limits.resources);
        if used >= most {
            return Err(RequestError::TooManyResources(most));
        }
        let Some(account) = from.and_then(|from| self.shared.accounts.of(from.principal)) else { return Ok(None) };
        if !self.shared.limits.share().allows(account.resources.load(Ordering::Relaxed), 1, used, most) {
            return Err(RequestError::ResourceShare(most));
        }
        Ok(Some(ResourceCharge::new(account)))
    }

    /// Removes an incarnation that has retired, and restarts one that has failed.
    pub(super) fn ended(&mut self, id: &Arc<str>, generation: u64, ctx: &mut Context<Self>) {
        let known = self.shared.directory.get(id).filter(|handle| handle.generation() == generation);
        // An incarnation that is not in the directory belongs to an earlier term.
        let Some(handle) = known else { return };
        match self.shared.directory.role() {
            _ if handle.retired() => {
                self.shared.directory.remove(id);
                if let Some(notices) = &self.notices {
                    notices.post(Notice::Retired(Arc::clone(id)));
                }
                tracing::debug!(resource = %id, "resource retired");
            }
            Role::Master(master_lease) => drop(self.rebuild(Arc::clone(id), &handle, master_lease, ctx)),
            Role::Elsewhere(_) => {
                self.shared.directory.remove(id);
            }
        }
    }

    /// Creates a resource whose earlier leases, if any, were granted by earlier masters.
    fn begin(
        &mut self,
        id: Arc<str>,
        charge: Option<ResourceCharge>,
        master_lease: Option<MasterLease>,
        ctx: &mut Context<Self>,
    ) -> ResourceHandle {
        let given_until = self.former_masters_end();
        self.begin_after(id, charge, given_until, master_lease, ctx)
    }

    /// Creates a resource for which earlier masters and incarnations have granted nothing after `given_until`.
    fn begin_after(
        &mut self,
        id: Arc<str>,
        charge: Option<ResourceCharge>,
        given_until: Millis,
        master_lease: Option<MasterLease>,
        ctx: &mut Context<Self>,
    ) -> ResourceHandle {
        let listening = self.keeps_promises().map(|membership| {
            let (until, whole) = membership.raft.read(|state| (state.listen_until(), state.listens_whole()));
            (clock_of(master_lease.as_ref()).local(until.unwrap_or_default()), whole)
        });
        let predecessor = Predecessor::NewMaster(self.since);
        if self.notices.is_some() {
            // The lease length comes from the parent.
            let predecessor = listening.is_none_or(|(until, _)| until > self.shared.clock.at()).then_some(predecessor);
            return self.start_resource(id, charge, given_until, Millis(0), predecessor, master_lease, ctx);
        }
        let learning_until = predecessor.learning_until(&self.shared.settings_for(&id));
        let learning_until = match listening {
            None => learning_until,
            Some((until, true)) => until,
            Some((until, false)) => learning_until.min(until),
        };
        self.start_resource(id, charge, given_until, learning_until, None, master_lease, ctx)
    }

    /// Replaces an incarnation that failed or whose commit was lost. It starts from the stored promises; without them,
    /// it learns for one lease length before it divides again.
    fn rebuild(
        &mut self,
        id: Arc<str>,
        before: &ResourceHandle,
        master_lease: Option<MasterLease>,
        ctx: &mut Context<Self>,
    ) -> ResourceHandle {
        let (generation, now) = (before.generation(), self.shared.clock.at());
        if before.lost_commit() {
            tracing::debug!(resource = %id, generation, "resource restarted: its promises were not committed");
            return self.begin_after(id, before.charge(), now.max(self.former_masters_end()), master_lease, ctx);
        }
        metrics::resource_restarted();
        if self.keeps_promises().is_some() {
            tracing::error!(resource = %id, generation, "resource failed; restarting from its stored promises");
            return self.begin_after(id, before.charge(), now.max(self.former_masters_end()), master_lease, ctx);
        }
        tracing::error!(resource = %id, generation, "resource failed; restarting in learning mode for one lease length");
        let predecessor = Predecessor::Rebuilt(now);
        let learning_until = predecessor.learning_until(&self.shared.settings_for(&id));
        self.start_resource(id, before.charge(), now, learning_until, Some(predecessor), master_lease, ctx)
    }

    #[expect(clippy::too_many_arguments, reason = "they describe one incarnation")]
    fn start_resource(
        &mut self,
        id: Arc<str>,
        charge: Option<ResourceCharge>,
        given_until: Millis,
        learning_until: Millis,
        predecessor: Option<Predecessor>,
        master_lease: Option<MasterLease>,
        ctx: &mut Context<Self>,
    ) -> ResourceHandle {
        let has_parent = self.notices.is_some();
        let settings = if has_parent { placeholder().into() } else { self.shared.settings_for(&id) };
        if settings.kind == AlgorithmKind::NoAlgorithm && self.shared.config().template_settings(&id).is_none() {
            metrics::resource_unmatched();
            tracing::warn!(resource = %id, "no template matches, so every request is granted: add a template to limit this resource");
        }
        let inherited = self.inherit(&id, given_until, master_lease.as_ref());
        let options = ResourceOptions {
            source: if has_parent { Source::Parent } else { Source::Own },
            epoch: self.next_epoch(inherited.as_ref().and_then(|inherited| inherited.newest)),
            since: self.since,
            learning_until,
            max_holders: self.shared.limits.clients_per_resource,
            seed: self.seed,
            settings,
            inherited,
        };
        self.generation += 1;
        let context = self.context(master_lease, ctx);
        let (keeps_notes, idle_after) = (context.raft.is_some(), Millis::from_secs(self.shared.limits.idle_secs));
        let setup = Setup { options, keeps_notes, predecessor, idle_after };
        let start = resource_actor::Start { id, generation: self.generation, setup, context, charge };
        let scheduler = &self.schedulers[self.next_scheduler % self.schedulers.len()];
        self.next_scheduler += 1;
        let handle = resource_actor::start(start, scheduler);
        self.shared.directory.put(handle.clone());
        handle
    }

    /// The context of the resources of this term.
    fn context(&mut self, master_lease: Option<MasterLease>, ctx: &mut Context<Self>) -> Arc<ResourceContext> {
        let (shared, notices, limiter, seed) = (&self.shared, &self.notices, &self.note_rate_limiter, self.seed);
        let context = self.context.get_or_insert_with(|| {
            Arc::new(ResourceContext {
                clock: shared.clock,
                master_lease,
                limits: Arc::clone(&shared.limits),
                watchers: Arc::clone(&shared.watchers),
                subscribers: Arc::clone(&shared.subscribers),
                audit: shared.authorizer.audit().clone(),
                assignment_store: shared.assignment_store.clone(),
                raft: shared.membership.as_ref().map(|membership| membership.raft.clone()),
                note_rate_limiter: limiter.clone(),
                notices: notices.clone(),
                holders: Arc::clone(&shared.holders),
                accounts: Arc::clone(&shared.accounts),
                config: shared.config.subscribe(),
                revision: Arc::clone(&shared.revision),
                on_end: Box::new(notifier(ctx.address())),
                seed,
            })
        });
        Arc::clone(context)
    }

    /// The time after which earlier masters grant no leases, with any `--timing`.
    pub(super) fn former_masters_end(&self) -> Millis {
        let overlap = self.shared.membership.as_ref().map_or(Millis(0), |membership| membership.raft.overlap());
        self.since.plus(overlap)
    }

    /// The membership, if masters store promises. `None` without peers, or with `--handover learning`.
    fn keeps_promises(&self) -> Option<&Membership> {
        self.shared.membership.as_ref().filter(|membership| membership.handover == Handover::Promises)
    }

    /// The stored promises. `None` if promises are not stored.
    fn inherit(&self, id: &str, given_until: Millis, master_lease: Option<&MasterLease>) -> Option<Inherited> {
        let membership = self.keeps_promises()?;
        let (now, clock) = (self.shared.clock.at(), clock_of(master_lease));
        let promised = |promises: &Promises| promises.inherited(clock, now, given_until);
        let inherited = membership.raft.read(|state| state.promises(id).map(promised));
        Some(inherited.unwrap_or(Inherited { clock, ..Inherited::default() }))
    }

    /// Epochs increase monotonically, over restarts as well, because they count milliseconds since 1970. If the clock
    /// was set back, the stored promises raise them. Each has room for four million tokens.
    fn next_epoch(&mut self, before: Option<Epoch>) -> Epoch {
        let now = self.shared.clock.unix_ms().saturating_mul(Inherited::EPOCHS_APART);
        let before = before.map_or(0, |epoch| epoch.0).max(self.last_epoch);
        self.last_epoch = now.max(before.saturating_add(Inherited::EPOCHS_APART));
        Epoch(self.last_epoch)
    }
}

/// The clock of the cluster, or that of the process if there are no peers.
fn clock_of(master_lease: Option<&MasterLease>) -> ClusterClock {
    master_lease.map(MasterLease::clock).unwrap_or_default()
}

/// The settings of a resource until those of the parent arrive. Nothing is granted before.
fn placeholder() -> Settings {
    Settings::new(AlgorithmKind::FairShare, Amount::ZERO)
}

/// Notifies the node of the end of an incarnation. Called on the thread on which it ended, which must not block. If the
/// mailbox is full, the node notices the end when the resource is next needed.
fn notifier(node: Addr<NodeActor>) -> impl Fn(&Arc<str>, u64) {
    move |id, generation| {
        if let Err(SendError::Full(Ended { id, .. })) = node.try_send(Ended { id: Arc::clone(id), generation }) {
            tracing::warn!(resource = %id, "this server is busy and will remove the ended resource later: the \
                                            mailbox of the node actor is full");
        }
    }
}
