//! What a quorum remembers, and how a command changes it.
//!
//! Applying a command depends on the state and the log alone, but for the age of what is remembered of pools, which a peer
//! counts on its own clock. Ends of promises are moments on the clock of the cluster, which is a command itself.
//! Deliberately absent: disk, network and consensus.

use std::{
    collections::{BTreeMap, VecDeque},
    sync::Arc,
};

use leaseway_core::{Assigned, Changes, ClusterTime, Epoch, HolderKind, Load, Millis, PoolMemory, PoolNotes, Promises};

use crate::{
    command::{Command, Configuration},
    cow_map::CowMap,
    listening::Listening,
    overrides::{self, KeptOverride},
    propose_error::ProposeError,
    stored::{StoredPromises, StoredState},
};

/// So many configurations are remembered, the one in force included.
const MAX_CONFIGURATIONS: usize = 32;
/// So many balances and costs of all pools together are remembered.
const MAX_POOL_ENTRIES: usize = 200_000;

/// A client or a child node, by name.
type Holder = (HolderKind, Arc<str>);

/// Everything that a quorum remembers. A copy takes no time to speak of, however much it is.
#[derive(Debug, Clone, Default)]
pub struct State {
    term: u64,
    /// How far the clock of the cluster has got.
    clock: ClusterTime,
    /// No promise and no time of listening ends later.
    last_end: ClusterTime,
    version: u64,
    configurations: VecDeque<Configuration>,
    promises: CowMap<Arc<str>, Promises>,
    assignments: CowMap<Arc<str>, CowMap<Holder, Assigned>>,
    loads: CowMap<Arc<str>, Load>,
    overrides: Vec<(Arc<str>, KeptOverride)>,
    pools: CowMap<Arc<str>, PoolMemory>,
    /// Entries of all of them.
    pool_entries: usize,
    /// And until when.
    listening: Option<(ClusterTime, Listening)>,
}

impl State {
    /// The last configurations, the one in force at the end.
    pub fn configurations(&self) -> impl DoubleEndedIterator<Item = &Configuration> {
        self.configurations.iter()
    }

    /// The configuration in force.
    pub fn configuration(&self) -> Option<&Configuration> {
        self.configurations.back()
    }

    /// What is promised about a resource.
    pub fn promises(&self, resource: &str) -> Option<&Promises> {
        self.promises.get(resource)
    }

    /// The resources that anything was promised about.
    pub fn promised(&self) -> impl Iterator<Item = &Arc<str>> {
        self.promises.iter().map(|(resource, _)| resource)
    }

    /// The assignments of a resource.
    pub fn assignments(&self, resource: &str) -> impl Iterator<Item = (HolderKind, &Arc<str>, Assigned)> {
        let holders = self.assignments.get(resource).into_iter().flat_map(CowMap::iter);
        holders.map(|((kind, holder), assigned)| (*kind, holder, *assigned))
    }

    /// What is assigned to a holder.
    pub fn assigned(&self, resource: &str, kind: HolderKind, holder: &Arc<str>) -> Option<Assigned> {
        self.assignments.get(resource)?.get(&(kind, Arc::clone(holder))).copied()
    }

    /// What a protected resource can serve; `None` if its template decides.
    pub fn load(&self, resource: &str) -> Option<Load> {
        self.loads.get(resource).copied()
    }

    /// What operators have set for a time, and for which ids: a pattern. The newest last; also what is over.
    pub fn overrides(&self) -> &[(Arc<str>, KeptOverride)] {
        &self.overrides
    }

    /// Of these, what is not over then, in milliseconds since the epoch.
    pub fn overrides_in_force(&self, unix_ms: u64) -> impl Iterator<Item = &(Arc<str>, KeptOverride)> + Clone {
        self.overrides.iter().filter(move |(_, one)| one.until_unix_ms > unix_ms)
    }

    /// What is remembered of a pool.
    pub fn pool(&self, resource: &str) -> Option<&PoolMemory> {
        self.pools.get(resource)
    }

    /// The pools that anything is remembered of.
    pub fn pools(&self) -> impl Iterator<Item = (&Arc<str>, &PoolMemory)> {
        self.pools.iter()
    }

    /// How far the clock of the cluster has got, by what is applied here.
    pub fn clock(&self) -> ClusterTime {
        self.clock
    }

    /// When everything has ended that has an end.
    pub(crate) fn last_end(&self) -> ClusterTime {
        self.last_end
    }

    /// Until when promises that these peers know nothing of may be in force; `None` once a command has ended that.
    pub fn listen_until(&self) -> Option<ClusterTime> {
        self.listening.map(|(until, _)| until)
    }

    /// Whether resources listen until then also where their templates say less.
    pub fn listens_whole(&self) -> bool {
        self.listening.is_some_and(|(_, listening)| listening.whole)
    }

    /// Nothing was ever decided: neither a configuration, nor for how long to listen, nor anything about a resource.
    pub(crate) fn is_blank(&self) -> bool {
        let State { configurations, listening, overrides, promises, .. } = self;
        configurations.is_empty() && listening.is_none() && overrides.is_empty() && promises.is_empty()
    }

    /// The number of the newest term.
    pub fn term(&self) -> u64 {
        self.term
    }

    /// The next term begins.
    pub(crate) fn begin_term(&mut self) -> u64 {
        self.term += 1;
        self.term
    }

    /// Applies all of a proposal or nothing.
    pub(crate) fn apply(&mut self, term: u64, commands: &[Command], now: Millis) -> Result<(), ProposeError> {
        if term != self.term {
            return Err(ProposeError::Deposed);
        }
        self.check(commands)?;
        for command in commands {
            self.apply_command(command, now);
        }
        Ok(())
    }

    /// Whether all promises of a proposal would be accepted in order. Each resource checks its own changes, but one by
    /// one, and the first change of a proposal must not be applied if the second is refused.
    fn check(&self, commands: &[Command]) -> Result<(), ProposeError> {
        let mut ahead: BTreeMap<&Arc<str>, Option<(Epoch, u64)>> = BTreeMap::new();
        for command in commands {
            let (resource, changed) = match command {
                Command::Promises { resource, changes } => (resource, Ok((changes.epoch, changes.number))),
                Command::ForgetPromises { resource, epoch } => (resource, Err(epoch)),
                Command::Configuration(_)
                | Command::Assignment { .. }
                | Command::Load { .. }
                | Command::Override { .. }
                | Command::Listen(_)
                | Command::Pool { .. }
                | Command::ForgetPool { .. }
                | Command::Clock(_) => continue,
            };
            let newest =
                ahead.entry(resource).or_insert_with(|| self.promises.get(resource).and_then(Promises::newest));
            *newest = match changed {
                Ok((epoch, number)) => {
                    Promises::follows(*newest, epoch, number)
                        .map_err(|why| ProposeError::Refused { resource: Arc::clone(resource), why })?;
                    Some((epoch, number))
                }
                Err(epoch) => newest.filter(|(newest, _)| newest > epoch),
            };
        }
        Ok(())
    }

    fn apply_command(&mut self, command: &Command, now: Millis) {
        match command {
            Command::Configuration(configuration) => self.configure(configuration),
            Command::Promises { resource, changes } => self.promise(resource, changes),
            Command::Clock(reached) => self.clock = self.clock.max(*reached),
            Command::ForgetPromises { resource, epoch } => {
                let newest = self.promises.get(resource).and_then(Promises::newest);
                if newest.is_none_or(|(newest, _)| newest <= *epoch) {
                    self.promises.remove(resource);
                }
            }
            Command::Assignment { resource, kind, holder, assigned } => self.assign(resource, *kind, holder, *assigned),
            Command::Load { resource, load: Some(load) } => self.loads.insert(Arc::clone(resource), *load),
            Command::Load { resource, load: None } => drop(self.loads.remove(resource)),
            Command::Override { pattern, set } => overrides::apply(&mut self.overrides, pattern, set.as_deref()),
            Command::Listen(listening) => self.listen(*listening),
            Command::Pool { resource, notes } => self.apply_notes(resource, notes, now),
            Command::ForgetPool { resource } => {
                self.pool_entries -= self.pools.remove(resource).map_or(0, |pool| pool.len());
            }
        }
    }

    fn promise(&mut self, resource: &Arc<str>, changes: &Changes) {
        let promises = self.promises.or_default(Arc::clone(resource));
        promises.apply(changes, self.clock).expect("checked: the change follows the last one");
        self.last_end = self.last_end.max(promises.until());
    }

    fn apply_notes(&mut self, resource: &Arc<str>, notes: &PoolNotes, now: Millis) {
        let pool = self.pools.or_default(Arc::clone(resource));
        let others = self.pool_entries - pool.len();
        pool.apply(notes, now, MAX_POOL_ENTRIES.saturating_sub(self.pool_entries));
        self.pool_entries = others + pool.len();
    }

    fn listen(&mut self, listening: Listening) {
        let until = self.clock.plus(listening.length);
        self.listening = (listening.length > Millis(0)).then_some((until, listening));
        self.last_end = self.last_end.max(until);
    }

    fn configure(&mut self, configuration: &Configuration) {
        self.version = configuration.version.max(self.version + 1);
        self.configurations.push_back(Configuration { version: self.version, ..configuration.clone() });
        if self.configurations.len() > MAX_CONFIGURATIONS {
            self.configurations.pop_front();
        }
    }

    fn assign(&mut self, resource: &Arc<str>, kind: HolderKind, holder: &Arc<str>, assigned: Option<Assigned>) {
        let holder = (kind, Arc::clone(holder));
        if let Some(assigned) = assigned {
            self.assignments.or_default(Arc::clone(resource)).insert(holder, assigned);
        } else if let Some(holders) = self.assignments.get_mut(resource) {
            holders.remove(&holder);
            if holders.is_empty() {
                self.assignments.remove(resource);
            }
        }
    }

    /// Everything, for a snapshot.
    pub(crate) fn record(&self, now: Millis) -> StoredState {
        let promises = self.promises.iter();
        let promises = promises.map(|(resource, promises)| StoredPromises::new(resource, promises.record(self.clock)));
        let still_listens = |(until, listening): (ClusterTime, Listening)| {
            let length = until.since(self.clock);
            Listening { length, whole: listening.whole && length > Millis(0) }
        };
        let assignments = self.assignments.iter().flat_map(|(resource, holders)| {
            let stored = |((kind, holder), assigned): (&Holder, &Assigned)| {
                (Arc::clone(resource), *kind, Arc::clone(holder), Some(*assigned))
            };
            holders.iter().map(stored)
        });
        let pools = self.pools.iter().map(|(resource, pool)| (Arc::clone(resource), pool.notes(now)));
        StoredState {
            term: self.term,
            clock: self.clock,
            version: self.version,
            configurations: self.configurations.iter().cloned().collect(),
            assignments: assignments.collect(),
            loads: self.loads.iter().map(|(resource, load)| (Arc::clone(resource), *load)).collect(),
            listening: self.listening.map(still_listens).unwrap_or_default(),
            pools: pools.collect(),
            promises: promises.collect(),
            overrides: self.overrides.iter().cloned().map(|(pattern, set)| (pattern, Some(set))).collect(),
        }
    }

    /// From a snapshot.
    pub(crate) fn restore(stored: StoredState, now: Millis) -> State {
        let mut state = State {
            term: stored.term,
            clock: stored.clock,
            version: stored.version,
            configurations: stored.configurations.into(),
            ..State::default()
        };
        for (resource, record) in stored.promises.into_iter().map(StoredPromises::record) {
            let promises = Promises::restore(&record);
            state.last_end = state.last_end.max(promises.until());
            state.promises.insert(resource, promises);
        }
        state.listen(stored.listening);
        for (resource, kind, holder, assigned) in stored.assignments {
            state.assign(&resource, kind, &holder, assigned);
        }
        for (resource, notes) in stored.pools {
            state.apply_notes(&resource, &notes, now);
        }
        state.overrides = stored.overrides.into_iter().filter_map(|(pattern, set)| Some((pattern, set?))).collect();
        for (resource, load) in stored.loads {
            state.loads.insert(resource, load);
        }
        state
    }
}
