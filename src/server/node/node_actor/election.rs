//! The election, as the node takes part in it: what the quorum decides comes to the node actor as messages, and the
//! actor gives this peer its role.

use std::time::Duration;

use actix::{ActorFutureExt as _, Addr, AsyncContext as _, Context, fut::wrap_future};
use leaseway_core::{ClusterTime, Millis, Repository};
use leaseway_raft::{Command, Listening, MasterLease, Mastership, RaftHandle};

use super::{
    super::{config_in_force::ConfigInForce, directory::Role},
    Handover,
    actor::{NodeActor, NodeMessage},
};
use crate::{
    config::{self, initial_config::longest_lease},
    observe::changes::ChangeKind,
};

/// How often a peer looks at what the quorum has stored: another may have put a configuration in force.
const POLL_INTERVAL: Duration = Duration::from_millis(200);

/// Tells the node of every change of mastership, and when to look at what the quorum has stored. Goes on until the node
/// or the quorum is gone.
async fn follow(quorum: RaftHandle, node: Addr<NodeActor>) {
    let mut mastership = quorum.mastership();
    mastership.mark_changed();
    let mut look = tokio::time::interval(POLL_INTERVAL);
    look.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    loop {
        let message = tokio::select! {
            changed = mastership.changed() => match changed {
                Ok(()) => NodeMessage::Mastership(mastership.borrow_and_update().clone()),
                Err(_) => return,
            },
            _ = look.tick() => NodeMessage::LookAtFacts,
        };
        if node.send(message).await.is_err() {
            return;
        }
    }
}

fn in_words(mastership: &Mastership) -> String {
    match mastership {
        Mastership::Master(reign) => format!("this peer is the master, reign {}", reign.term()),
        Mastership::Follower { of: Some(master) } => format!("{} is the master", master.name),
        Mastership::Follower { of: None } | Mastership::Unknown => "no master is known".to_owned(),
    }
}

impl NodeActor {
    /// Takes part in the election, if there are peers or could be.
    pub(super) fn take_part(&self, ctx: &Context<Self>) {
        if let Some(membership) = &self.membership {
            actix_rt::spawn(follow(membership.quorum.clone(), ctx.address()));
        }
    }

    /// The quorum has decided which peer is master.
    pub(super) fn elected(&mut self, mastership: Mastership, ctx: &mut Context<Self>) {
        // Before the first resource comes to life.
        self.adopt_newest();
        self.follow_overrides();
        let decided = in_words(&mastership);
        if decided != in_words(&self.mastership) {
            self.tell(ChangeKind::Election, decided, String::new());
        }
        self.mastership = mastership.clone();
        match mastership {
            Mastership::Master(reign) if self.keeps_no_promises() => self.warn_successors(&reign, true, ctx),
            Mastership::Master(reign) => self.win(reign),
            Mastership::Follower { of } => {
                self.set_role(Role::Elsewhere(of.map(|master| master.advertise.as_str().into())));
            }
            Mastership::Unknown => self.set_role(Role::Elsewhere(None)),
        }
    }

    /// What the quorum has stored may have changed.
    pub(super) fn look_at_facts(&mut self, ctx: &mut Context<Self>) {
        self.adopt_newest();
        self.follow_overrides();
        self.tell_if_different();
        let Mastership::Master(reign) = self.mastership.clone() else { return };
        if self.keeps_no_promises() {
            self.warn_successors(&reign, false, ctx);
        } else {
            self.sweep(&reign);
        }
    }

    fn keeps_no_promises(&self) -> bool {
        self.membership.as_ref().is_some_and(|membership| membership.handover == Handover::Learning)
    }

    fn win(&mut self, reign: MasterLease) {
        if let Role::Master(Some(before)) = self.shared.directory.role()
            && before.term() == reign.term()
        {
            return;
        }
        tracing::info!(reign = reign.term(), "this peer is the master now");
        self.set_role(Role::Master(Some(reign)));
    }

    /// What is alive belongs to the reign before, and ends with it.
    fn set_role(&mut self, role: Role) {
        self.since = self.clock.at();
        let is_master = matches!(role, Role::Master(_));
        let is_known = !matches!(role, Role::Elsewhere(None));
        self.shared.directory.set_role(role);
        self.resource_places.clear();
        if is_known {
            self.shared.known.send_replace(true);
        }
        self.shared.watchers.dismiss();
        self.shared.subscribers.dismiss();
        self.end_uplink();
        if is_master {
            self.begin_uplink();
        }
    }

    /// A master that keeps no promises says so before it gives its first lease, and again before that is forgotten:
    /// should the next one keep promises, it must not take what is written down for all there is. `wins`: it gives
    /// leases as soon as that is stored.
    fn warn_successors(&mut self, reign: &MasterLease, wins: bool, ctx: &mut Context<Self>) {
        let Some(membership) = &self.membership else { return };
        let longest = longest_lease(&self.config().repository).max(self.shared.uplink_status.longest());
        let lasts = |until: ClusterTime| until.since(reign.clock().at(self.clock.at())) > longest;
        if membership.quorum.read(|state| state.listen_until()).is_some_and(lasts) {
            if wins {
                self.win(reign.clone());
            }
            return;
        }
        let length = Millis(longest.0.saturating_mul(2));
        let (quorum, reign) = (membership.quorum.clone(), reign.clone());
        let told = async move {
            let told = quorum.propose(&reign, vec![Command::Listen(Listening { length, whole: false })]).await;
            if let Err(error) = &told {
                tracing::warn!(%error, "the peers do not know yet that this master keeps no promises");
            }
            told.map(|()| reign)
        };
        ctx.spawn(wrap_future(told).map(move |told, node: &mut NodeActor, _| {
            // Meanwhile another may have won.
            if let (Ok(reign), Mastership::Master(current)) = (told, &node.mastership)
                && current.term() == reign.term()
            {
                node.win(reign);
            }
        }));
    }

    /// Puts the newest configuration of the peers in force here.
    pub(super) fn adopt_newest(&mut self) {
        let Some(membership) = &self.membership else { return };
        let adopted = self.adopted;
        let newest =
            membership.quorum.read(|state| state.configuration().filter(|newest| newest.version != adopted).cloned());
        let Some(newest) = newest else { return };
        self.adopted = newest.version;
        match config::parse(&newest.source, &newest.text) {
            Ok(loaded) => {
                tracing::info!(version = newest.version, source = %newest.source, "configuration of the peers in force");
                let (version, mut source) = (newest.version, newest.source.to_string());
                // Templates that are kept are from a time when it had no parent; who may do what is said here only.
                let repository = if self.uplink.is_some() { Repository::default() } else { loaded.repository };
                if self.uplink.is_some() && loaded.access.is_none() {
                    source.clone_from(&self.config().source);
                }
                let config = ConfigInForce { repository, access: loaded.access, version, source, ..Default::default() };
                self.put_in_force(config);
            }
            // Applied by a server that understands more than this one.
            Err(error) if self.config().rejected.is_none() => {
                let version = newest.version;
                tracing::error!(version, "the configuration of the peers is not understood here:\n{error}");
                self.reject(error.to_string());
            }
            Err(_) => {}
        }
    }

    /// A file that was given, and is not what the peers keep, is easily taken for what is in force. Told once.
    fn tell_if_different(&mut self) {
        let config = self.config();
        if config.version == 0 || std::mem::replace(&mut self.is_difference_told, true) {
            return;
        }
        let Some(membership) = &self.membership else { return };
        let initial = &membership.initial;
        if initial.is_file && !config.says_the_same_as(&initial.loaded) {
            let (file, version, source) = (&initial.source, config.version, &config.source);
            tracing::warn!(
                "{file} differs from what is in force, version {version} from {source}, which the peers keep: \
                 `leaseway config diff {file}` shows how, `leaseway config apply {file}` changes that"
            );
        }
    }
}
