//! The replicated state, and how commands change it. Pure: no disk, no network, no consensus.
//!
//! All peers apply the same log and reach the same state, with one exception: the notes of pools age by the clock of
//! each peer. Promises end by the cluster clock, which is part of the state.

pub(crate) mod backup;
pub(crate) mod cow_map;
#[cfg(feature = "fuzzing")]
pub mod fuzzing;
pub(crate) mod limits;
pub(crate) mod machine;
pub(crate) mod usage;

use std::{
    collections::{BTreeMap, VecDeque},
    sync::Arc,
};

use leaseway_core::{
    lease::promises::{Changes, Promises},
    policy::overrides::{Load, OverrideTarget},
    pool::{Assigned, PoolMemory, PoolNotes},
    resource::budget::usage::UsageRow,
    types::{ClusterTime, Epoch, HolderKind, Millis},
};
use serde::{Deserialize, Serialize};

use crate::{
    log::command::{Command, Configuration, Declaration, KeptOverride, LimitChanges, Listening, ProposeError},
    state::{cow_map::CowMap, limits::Limits, usage::Usage},
};

/// The number of configurations that are kept, including the one in force.
const MAX_CONFIGURATIONS: usize = 32;
/// The maximum number of balances and costs of all pools together.
const MAX_POOL_ENTRIES: usize = 200_000;

/// Declarations by name.
pub type Declarations = BTreeMap<Arc<str>, Declaration>;

/// A target, and its override.
pub type Overriding = (OverrideTarget, KeptOverride);

/// A client or a child node, by name.
type Holder = (HolderKind, Arc<str>);

/// The replicated state. Cloning it takes microseconds at any size: see [`CowMap`].
#[derive(Debug, Clone, Default)]
pub struct State {
    term: u64,
    /// The newest time of the cluster clock in the log.
    clock: ClusterTime,
    /// The latest end of any promise or learning period.
    last_end: ClusterTime,
    version: u64,
    configurations: VecDeque<Configuration>,
    promises: CowMap<Arc<str>, Promises>,
    assignments: CowMap<Arc<str>, CowMap<Holder, Assigned>>,
    loads: CowMap<Arc<str>, Load>,
    overrides: Vec<Overriding>,
    limits: Limits,
    declarations: Arc<Declarations>,
    usage: Usage,
    pools: CowMap<Arc<str>, PoolMemory>,
    /// The number of entries of all pools.
    pool_entries: usize,
    /// The learning period and its end.
    listening: Option<(ClusterTime, Listening)>,
}

impl State {
    /// The newest configurations; the last one is in force.
    pub fn configurations(&self) -> impl DoubleEndedIterator<Item = &Configuration> {
        self.configurations.iter()
    }

    pub fn configuration(&self) -> Option<&Configuration> {
        self.configurations.back()
    }

    pub fn promises(&self, resource: &str) -> Option<&Promises> {
        self.promises.get(resource)
    }

    /// Up to `most` resources with promises, in the order of their ids, after this id.
    pub fn promised_after<'a>(
        &'a self,
        id: &'a str,
        most: usize,
    ) -> impl Iterator<Item = (&'a Arc<str>, &'a Promises)> {
        self.promises.from(id).skip_while(move |(known, _)| &***known <= id).take(most)
    }

    /// The resources with promises.
    pub fn promised(&self) -> impl Iterator<Item = &Arc<str>> {
        self.promises.iter().map(|(resource, _)| resource)
    }

    pub fn assignments(&self, resource: &str) -> impl Iterator<Item = (HolderKind, &Arc<str>, Assigned)> {
        let holders = self.assignments.get(resource).into_iter().flat_map(CowMap::iter);
        holders.map(|((kind, holder), assigned)| (*kind, holder, *assigned))
    }

    pub fn assigned(&self, resource: &str, kind: HolderKind, holder: &Arc<str>) -> Option<Assigned> {
        self.assignments.get(resource)?.get(&(kind, Arc::clone(holder))).copied()
    }

    /// The load that a protected resource can serve; `None` if its template decides.
    pub fn load(&self, resource: &str) -> Option<Load> {
        self.loads.get(resource).copied()
    }

    /// Overrides by target, oldest first, including those that have ended.
    pub fn overrides(&self) -> &[Overriding] {
        &self.overrides
    }

    /// The overrides in force at `unix_ms`, milliseconds since the Unix epoch.
    pub fn overrides_in_force(&self, unix_ms: u64) -> impl Iterator<Item = &Overriding> + Clone {
        self.overrides.iter().filter(move |(_, one)| one.until_unix_ms > unix_ms)
    }

    /// The capacities of single resources.
    pub fn limits(&self) -> &Limits {
        &self.limits
    }

    /// The templates that gateways have declared.
    pub fn declarations(&self) -> &Arc<Declarations> {
        &self.declarations
    }

    /// What holders of budgets have spent.
    pub fn usage(&self) -> &Usage {
        &self.usage
    }

    pub fn pool(&self, resource: &str) -> Option<&PoolMemory> {
        self.pools.get(resource)
    }

    pub fn pools(&self) -> impl Iterator<Item = (&Arc<str>, &PoolMemory)> {
        self.pools.iter()
    }

    /// The cluster clock as far as the log is applied here.
    pub fn clock(&self) -> ClusterTime {
        self.clock
    }

    /// The time by which every promise and learning period has ended.
    pub(crate) fn last_end(&self) -> ClusterTime {
        self.last_end
    }

    /// The end of the learning period, if any.
    pub fn listen_until(&self) -> Option<ClusterTime> {
        self.listening.map(|(until, _)| until)
    }

    /// Whether resources learn for the whole period even if their templates say less.
    pub fn listens_whole(&self) -> bool {
        self.listening.is_some_and(|(_, listening)| listening.whole)
    }

    /// Whether the cluster is new: it has no configuration, learning period, override or promise.
    pub(crate) fn is_blank(&self) -> bool {
        let State { configurations, listening, overrides, promises, .. } = self;
        configurations.is_empty() && listening.is_none() && overrides.is_empty() && promises.is_empty()
    }

    /// The term of the newest master lease.
    pub fn term(&self) -> u64 {
        self.term
    }

    pub(crate) fn begin_term(&mut self) -> u64 {
        self.term += 1;
        self.term
    }

    /// Applies a proposal as a whole or not at all. A proposal of another term is refused.
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

    /// Checks that all promises of a proposal will be accepted in order. [`Promises::apply`] checks one change at a
    /// time, but the first change must not be applied if the second is refused.
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
                | Command::Limits(_)
                | Command::Declare { .. }
                | Command::Usage { .. }
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
            Command::Load { resource, load: Some(load) } => drop(self.loads.insert(Arc::clone(resource), *load)),
            Command::Load { resource, load: None } => drop(self.loads.remove(resource)),
            Command::Override { target, set } => apply_override(&mut self.overrides, target, set.as_deref()),
            Command::Limits(changes) => self.limits.apply(changes),
            Command::Usage { resource, rows } => self.usage.apply(resource, rows),
            Command::Declare { name, declaration } => self.declare(name, declaration.as_ref()),
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

    fn declare(&mut self, name: &Arc<str>, declaration: Option<&Declaration>) {
        let declarations = Arc::make_mut(&mut self.declarations);
        match declaration {
            Some(declaration) => drop(declarations.insert(Arc::clone(name), declaration.clone())),
            None => drop(declarations.remove(name)),
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

    /// The encoding for a snapshot.
    pub(crate) fn record(&self, now: Millis) -> StoredState {
        let promises = self.promises.iter();
        let promises = promises.map(|(resource, promises)| (Arc::clone(resource), promises.record(self.clock)));
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
            overrides: self.overrides.iter().cloned().map(|(target, set)| (target, Some(set))).collect(),
            limits: self.limits.record(),
            declarations: Declarations::clone(&self.declarations).into_iter().collect(),
            usage: self.usage.record(),
        }
    }

    pub(crate) fn restore(stored: StoredState, now: Millis) -> State {
        let mut state = State {
            term: stored.term,
            clock: stored.clock,
            version: stored.version,
            configurations: stored.configurations.into(),
            declarations: Arc::new(stored.declarations.into_iter().collect()),
            ..State::default()
        };
        for (resource, record) in stored.promises {
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
        state.overrides = stored.overrides.into_iter().filter_map(|(target, set)| Some((target, set?))).collect();
        for (resource, load) in stored.loads {
            state.loads.insert(resource, load);
        }
        stored.limits.iter().for_each(|changes| state.limits.apply(changes));
        stored.usage.iter().for_each(|(resource, rows)| state.usage.apply(resource, rows));
        state
    }
}

/// Resource, kind and name of the holder, amount.
type StoredAssignment = (Arc<str>, HolderKind, Arc<str>, Option<Assigned>);

/// The whole state in a snapshot. `tests/format.rs` fails if a change of a type changes the bytes.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct StoredState {
    term: u64,
    clock: ClusterTime,
    version: u64,
    configurations: Vec<Configuration>,
    pub(crate) assignments: Vec<StoredAssignment>,
    pub(crate) loads: Vec<(Arc<str>, Load)>,
    listening: Listening,
    pub(crate) pools: Vec<(Arc<str>, PoolNotes)>,
    promises: Vec<(Arc<str>, Changes)>,
    overrides: Vec<(OverrideTarget, Option<KeptOverride>)>,
    pub(crate) limits: Vec<LimitChanges>,
    pub(crate) declarations: Vec<(Arc<str>, Declaration)>,
    pub(crate) usage: Vec<(Arc<str>, Vec<UsageRow>)>,
}

/// Appends an override, or removes it, and drops an earlier one of the same target. Setting an override also drops
/// those that have ended by then.
fn apply_override(overrides: &mut Vec<Overriding>, target: &OverrideTarget, set: Option<&KeptOverride>) {
    let now = set.map_or(0, |set| set.from_unix_ms);
    overrides.retain(|(other, one)| other != target && one.until_unix_ms > now);
    overrides.extend(set.map(|set| (target.clone(), set.clone())));
}

#[cfg(test)]
mod tests {
    use leaseway_core::policy::overrides::OverrideValue;

    use super::*;

    fn names(all: &[Overriding]) -> Vec<String> {
        let name = |target: &OverrideTarget| {
            target.group.iter().fold(target.pattern.to_string(), |name, group| name + "/" + group)
        };
        all.iter().map(|(target, _)| name(target)).collect()
    }

    #[test]
    fn the_newest_override_comes_last_and_ended_ones_are_dropped() {
        let mut all = Vec::new();
        let target = |name: &str| {
            let (pattern, group) = name.split_once('/').map_or((name, None), |(pattern, group)| (pattern, Some(group)));
            OverrideTarget { pattern: pattern.into(), group: group.map(Into::into) }
        };
        let mut put = |name: &str, from_unix_ms, until_unix_ms| {
            let set = KeptOverride {
                value: OverrideValue::Capacity { load: Load::Factor(0.5), above: false },
                from_unix_ms,
                until_unix_ms,
                by: "ada".into(),
                why: "a test".into(),
            };
            apply_override(&mut all, &target(name), Some(&set));
            names(&all)
        };
        assert_eq!(put("a", 0, 100), ["a"]);
        assert_eq!(put("b", 10, 50), ["a", "b"]);
        assert_eq!(put("a", 20, 300), ["b", "a"]);
        assert_eq!(put("c", 50, 300), ["a", "c"]);
        assert_eq!(put("a/team", 50, 300), ["a", "c", "a/team"], "a group has an override of its own");
        apply_override(&mut all, &target("a"), None);
        apply_override(&mut all, &target("unknown"), None);
        assert_eq!(names(&all), ["c", "a/team"]);
    }
}
