//! Applies the configuration and overrides of the Raft state, and removes expired entries from it.

use std::{
    collections::BTreeMap,
    sync::Arc,
    time::{Duration, SystemTime, UNIX_EPOCH},
};

use actix::Context;
use leaseway_core::{
    policy::{
        overrides::Overrides,
        template::{Repository, Template},
    },
    types::{ClusterTime, Epoch, Glob, Millis},
};
use leaseway_raft::{Command, Declaration, Declarations, Listening, MasterLease, Mastership, Overriding, RaftHandle};

use super::NodeActor;
use crate::{
    config,
    node::{
        config_in_force::{ConfigInForce, override_of},
        resource_directory::Directory,
    },
    observe::changes::{Change, ChangeKind},
};

/// How often a master looks for stored promises that have expired.
const SWEEP_INTERVAL: Millis = Millis::from_secs(10);
/// How long the notes of an unused pool are kept.
const POOLS_LAST: Millis = Millis::from_secs(24 * 3600);
/// Maximum number of resources whose entries one sweep removes.
const MAX_SWEPT: usize = 1000;
/// Maximum number of resources with promises that one sweep looks at.
const MAX_EXAMINED: usize = 20_000;

/// The declarations in force.
#[derive(Debug, Default)]
pub(super) struct Declared {
    stored: Arc<Declarations>,
    parsed: BTreeMap<Arc<str>, Vec<(Template, Glob)>>,
    /// The templates of all declarations, in the order of the names.
    pub(super) repository: Arc<Repository>,
}

impl Declared {
    /// Parses the declarations that have changed. Returns whether there are any.
    fn follow(&mut self, newest: Arc<Declarations>) -> bool {
        if newest == self.stored {
            return false;
        }
        self.parsed.retain(|name, _| newest.contains_key(name));
        for (name, declaration) in newest.iter() {
            let Declaration { version, text, .. } = declaration;
            if self.stored.get(name).is_some_and(|known| known.text == *text) {
                continue;
            }
            match config::parse_declared(name, text) {
                Ok(templates) => {
                    tracing::info!(%name, version, templates = templates.len(), "declared templates are now in force");
                    self.parsed.insert(Arc::clone(name), templates);
                }
                // Probably declared by a newer version of the server. The templates in force stay.
                Err(error) => tracing::error!(
                    %name,
                    version,
                    "cannot read the stored declaration, so its earlier templates stay in force; if a newer version of \
                     Leaseway wrote it, upgrade this server:\n{error}"
                ),
            }
        }
        for name in self.stored.keys().filter(|name| !newest.contains_key(*name)) {
            tracing::info!(%name, "declared templates removed");
        }
        self.repository = Arc::new(Repository::new(self.parsed.values().flatten().cloned().collect()));
        self.stored = newest;
        true
    }
}

impl NodeActor {
    pub(super) fn follow_raft(&mut self, ctx: &mut Context<Self>) {
        self.adopt_newest();
        self.follow_declarations();
        self.follow_overrides();
        self.warn_if_different();
        let Mastership::Master(master_lease) = self.mastership.clone() else { return };
        if self.keeps_no_promises() {
            self.warn_successors(&master_lease, false, ctx);
        } else {
            self.sweep(&master_lease);
        }
    }

    /// Puts the newest configuration of the peers in force.
    pub(super) fn adopt_newest(&mut self) {
        let Some(membership) = &self.shared.membership else { return };
        let adopted = self.adopted;
        let newest =
            membership.raft.read(|state| state.configuration().filter(|newest| newest.version != adopted).cloned());
        let Some(newest) = newest else { return };
        self.adopted = newest.version;
        match config::parse(&newest.source, &newest.text) {
            Ok(loaded) => {
                tracing::info!(version = newest.version, source = %newest.source, "stored configuration in force");
                let (version, mut source) = (newest.version, newest.source.to_string());
                // With a parent, only the access policy applies: the templates were stored before the node had one.
                let repository = if self.notices.is_some() { Repository::default() } else { loaded.repository };
                if self.notices.is_some() && loaded.access.is_none() {
                    source.clone_from(&self.shared.config().source);
                }
                let (access, text) = (loaded.access, newest.text);
                let config = ConfigInForce { repository, access, version, source, text, ..Default::default() };
                let since = UNIX_EPOCH + Duration::from_secs(newest.at_unix.max(0) as u64);
                self.put_in_force(config, since.min(SystemTime::now()));
            }
            // Probably applied by a newer version of the server.
            Err(error) if self.shared.config().rejected.is_none() => {
                let version = newest.version;
                tracing::error!(
                    version,
                    "cannot read the stored configuration, so the previous one stays in force; if a newer version of \
                     Leaseway wrote it, upgrade this server:\n{error}"
                );
                self.reject(error.to_string());
            }
            Err(_) => {}
        }
    }

    /// Warns once if the configuration file of this peer differs from the configuration in force.
    fn warn_if_different(&mut self) {
        let config = self.shared.config();
        if config.version == 0 || std::mem::replace(&mut self.has_warned_of_difference, true) {
            return;
        }
        let Some(membership) = &self.shared.membership else { return };
        let initial = &membership.initial;
        if initial.is_file && !config.is_same_as(&initial.loaded) {
            let (file, version, source) = (&initial.source, config.version, &config.source);
            tracing::warn!(
                "{file} differs from the configuration in force (version {version} from {source}): `leaseway config \
                 diff {file}` shows the differences, `leaseway config apply {file}` puts the file in force"
            );
        }
    }

    /// Puts the stored declarations in force. A node with a parent has none.
    pub(super) fn follow_declarations(&mut self) {
        let Some(membership) = self.shared.membership.as_ref().filter(|_| self.notices.is_none()) else { return };
        let newest = membership.raft.read(|state| Arc::clone(state.declarations()));
        if !self.declared.follow(newest) {
            return;
        }
        // Shared settings are found by the address of their template, so they end with the templates.
        let config = ConfigInForce { limited: Arc::default(), ..ConfigInForce::clone(&self.shared.config()) };
        self.publish(config);
    }

    /// Puts the stored overrides in force until they expire. An expiry needs no commit, because every peer checks it by
    /// its own clock.
    pub(super) fn follow_overrides(&mut self) {
        let Some(membership) = &self.shared.membership else { return };
        let (unix_ms, known) = (self.shared.clock.unix_ms(), &self.kept_overrides);
        let changed = membership.raft.read(|state| {
            let in_force = state.overrides_in_force(unix_ms);
            (!in_force.clone().eq(known)).then(|| in_force.cloned().collect::<Vec<_>>())
        });
        let Some(in_force) = changed else { return };
        let targets: Vec<String> = in_force.iter().map(|(target, _)| target.to_string()).collect();
        tracing::info!(?targets, "overrides in force have changed");
        self.record_overrides(&in_force);
        let at = self.shared.clock.at();
        self.overrides = Arc::new(Overrides::new(in_force.iter().map(|kept| override_of(kept, unix_ms, at))));
        self.kept_overrides = in_force;
        let config = ConfigInForce::clone(&self.shared.config());
        self.publish(config);
    }

    /// Records new and expired overrides for the pages.
    fn record_overrides(&self, in_force: &[Overriding]) {
        let is_over = |(target, _): &&Overriding| in_force.iter().all(|(other, _)| other != target);
        let now = SystemTime::now();
        let at = |unix_ms: u64| (UNIX_EPOCH + Duration::from_millis(unix_ms)).min(now);
        // A peer that starts finds overrides that were set before.
        let set = in_force.iter().filter(|one| !self.kept_overrides.contains(one)).map(|one| {
            let set_to = override_of(one, 0, Millis(0)).set_to();
            let (target, kept) = one;
            (target, at(kept.from_unix_ms), format!("{target} is set to {set_to} by {}: {}", kept.by, kept.why))
        });
        let over = self.kept_overrides.iter().filter(is_over);
        let over = over
            .map(|(target, kept)| (target, at(kept.until_unix_ms), format!("override of {target} expired or cleared")));
        for (target, at, what) in set.chain(over) {
            let resource = target.pattern.to_string();
            let change = Change { at, resource, ..Change::new(ChangeKind::Override, what) };
            self.shared.authorizer.audit().changes().tell(change);
        }
    }

    /// Proposes to remove expired entries from the Raft state. If the proposal is lost, the next sweep repeats it.
    pub(super) fn sweep(&mut self, master_lease: &MasterLease) {
        let now = self.shared.clock.at();
        if now.since(self.swept) < SWEEP_INTERVAL {
            return;
        }
        self.swept = now;
        let Some(membership) = self.shared.membership.clone() else { return };
        let moment = master_lease.clock().at(now);
        let mut expired = expired(&membership.raft, &self.shared.directory, now, moment);
        expired.extend(self.expired_promises(&membership.raft, master_lease, now));
        if expired.is_empty() {
            return;
        }
        let (raft, master_lease) = (membership.raft.clone(), master_lease.clone());
        actix_rt::spawn(async move {
            if let Err(error) = raft.propose(&master_lease, expired).await {
                tracing::debug!(%error, "removal of expired entries not committed; the next sweep retries");
            }
        });
    }
}

impl NodeActor {
    /// The commands that remove promises of inactive resources, if all their leases have ended. Continues where the
    /// last call has stopped.
    fn expired_promises(&mut self, raft: &RaftHandle, master_lease: &MasterLease, now: Millis) -> Vec<Command> {
        let (clock, since) = (master_lease.clock(), self.former_masters_end());
        let (mut examined, mut ended, mut last) = (0, Vec::new(), None);
        raft.read(|state| {
            for (resource, promises) in state.promised_after(&self.swept_up_to, MAX_EXAMINED) {
                (examined, last) = (examined + 1, Some(Arc::clone(resource)));
                if promises.believed_until(clock, now, since).is_none() {
                    ended.push((Arc::clone(resource), promises.newest().map_or(Epoch(0), |(epoch, _)| epoch)));
                }
                if ended.len() == MAX_SWEPT {
                    return;
                }
            }
            if examined < MAX_EXAMINED {
                last = None;
            }
        });
        self.swept_up_to = last.unwrap_or_default();
        ended.retain(|(resource, _)| self.shared.directory.get(resource).is_none());
        ended.into_iter().map(|(resource, epoch)| Command::ForgetPromises { resource, epoch }).collect()
    }
}

/// The commands that remove old or worthless notes of pools, and the record of a learning period that is over.
fn expired(raft: &RaftHandle, directory: &Directory, now: Millis, moment: ClusterTime) -> Vec<Command> {
    let mut commands = expired_pools(raft, directory, now);
    if raft.read(|state| state.listen_until()).is_some_and(|until| until <= moment) {
        commands.push(Command::Listen(Listening::default()));
    }
    commands
}

/// The commands that remove the notes of inactive pools, if they are old or worthless.
fn expired_pools(raft: &RaftHandle, directory: &Directory, now: Millis) -> Vec<Command> {
    let ended: Vec<Arc<str>> = raft.read(|state| {
        let ended = state.pools().filter(|(_, pool)| pool.age(now) >= POOLS_LAST || pool.is_worthless(now));
        ended.map(|(resource, _)| Arc::clone(resource)).take(MAX_SWEPT).collect()
    });
    let unasked = ended.into_iter().filter(|resource| directory.get(resource).is_none());
    unasked.map(|resource| Command::ForgetPool { resource }).collect()
}
