//! Applies changes of mastership: starts and ends the role of master.

use std::time::Duration;

use actix::{ActorFutureExt as _, Addr, AsyncContext as _, Context, fut::wrap_future};
use leaseway_core::types::{ClusterTime, Millis};
use leaseway_raft::{Command, Listening, MasterLease, Mastership, RaftHandle};

use super::{Elected, FollowRaft, Handover, NodeActor};
use crate::{
    node::resource_directory::Role,
    observe::changes::{ChangeKind, NO_MASTER},
};

/// How often a peer checks the Raft state, which another peer may have changed.
const POLL_INTERVAL: Duration = Duration::from_millis(200);

/// Sends the node every change of mastership, and [`FollowRaft`] periodically, until Raft or the node ends.
pub(super) async fn follow(raft: RaftHandle, node: Addr<NodeActor>) {
    let mut mastership = raft.mastership();
    mastership.mark_changed();
    let mut poll = tokio::time::interval(POLL_INTERVAL);
    poll.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    loop {
        let sent = tokio::select! {
            changed = mastership.changed() => match changed {
                Ok(()) => {
                    let newest = mastership.borrow_and_update().clone();
                    node.send(Elected(newest)).await
                }
                Err(_) => return,
            },
            _ = poll.tick() => node.send(FollowRaft).await,
        };
        if sent.is_err() {
            return;
        }
    }
}

fn in_words(mastership: &Mastership) -> String {
    match mastership {
        Mastership::Master(master_lease) => format!("this peer is the master, term {}", master_lease.term()),
        Mastership::Follower { of: Some(master) } => format!("{} is the master", master.name),
        Mastership::Follower { of: None } | Mastership::Unknown => NO_MASTER.to_owned(),
    }
}

impl NodeActor {
    pub(super) fn elected(&mut self, mastership: Mastership, ctx: &mut Context<Self>) {
        // Before the first resource is created.
        self.adopt_newest();
        self.follow_declarations();
        self.follow_overrides();
        let decided = in_words(&mastership);
        if decided != in_words(&self.mastership) {
            self.record(ChangeKind::Election, decided, String::new());
        }
        self.mastership = mastership.clone();
        match mastership {
            Mastership::Master(master_lease) if self.keeps_no_promises() => {
                self.warn_successors(&master_lease, true, ctx)
            }
            Mastership::Master(master_lease) => self.win(master_lease),
            Mastership::Follower { of } => {
                self.set_role(Role::Elsewhere(of.map(|master| master.advertise.as_str().into())));
            }
            Mastership::Unknown => self.set_role(Role::Elsewhere(None)),
        }
    }

    pub(super) fn keeps_no_promises(&self) -> bool {
        self.shared.membership.as_ref().is_some_and(|membership| membership.handover == Handover::Learning)
    }

    fn win(&mut self, master_lease: MasterLease) {
        if let Role::Master(Some(before)) = self.shared.directory.role()
            && before.term() == master_lease.term()
        {
            return;
        }
        tracing::info!(term = master_lease.term(), "this peer is the master now");
        self.set_role(Role::Master(Some(master_lease)));
    }

    /// Changes the role, and ends everything that belongs to the previous one.
    fn set_role(&mut self, role: Role) {
        self.since = self.shared.clock.at();
        let is_master = matches!(role, Role::Master(_));
        let is_known = !matches!(role, Role::Elsewhere(None));
        self.shared.directory.set_role(role);
        self.context = None;
        if is_known {
            self.master_known.send_replace(true);
        }
        self.shared.watchers.dismiss();
        self.shared.renewing.dismiss();
        self.shared.subscribers.dismiss();
        self.end_uplink();
        if is_master {
            self.begin_uplink();
        }
    }

    /// A master that stores no promises records this in Raft before its first lease, and renews the record before it
    /// expires. Otherwise a successor would take the stored promises for complete. With `wins`, this peer becomes
    /// master when the record is committed.
    pub(super) fn warn_successors(&mut self, master_lease: &MasterLease, wins: bool, ctx: &mut Context<Self>) {
        let Some(membership) = &self.shared.membership else { return };
        let longest = self.shared.config().longest_lease().max(self.shared.uplink_status.longest());
        let lasts = |until: ClusterTime| until.since(master_lease.clock().at(self.shared.clock.at())) > longest;
        if membership.raft.read(|state| state.listen_until()).is_some_and(lasts) {
            if wins {
                self.win(master_lease.clone());
            }
            return;
        }
        let length = Millis(longest.0.saturating_mul(2));
        let (raft, master_lease) = (membership.raft.clone(), master_lease.clone());
        let told = async move {
            let told = raft.propose(&master_lease, vec![Command::Listen(Listening { length, whole: false })]).await;
            if let Err(error) = &told {
                tracing::warn!(%error, "--handover learning: cannot commit the notice that the next master must learn all leases from clients");
            }
            told.map(|()| master_lease)
        };
        ctx.spawn(wrap_future(told).map(move |told, node: &mut NodeActor, _| {
            // Another master may have been elected in the meantime.
            if let (Ok(master_lease), Mastership::Master(current)) = (told, &node.mastership)
                && current.term() == master_lease.term()
            {
                node.win(master_lease);
            }
        }));
    }
}
