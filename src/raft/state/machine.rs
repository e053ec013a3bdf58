//! The state machine: applies the log to the [`State`], and takes and installs snapshots of it.

use std::{
    io::Cursor,
    panic::{AssertUnwindSafe, catch_unwind},
    sync::{Arc, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard},
};

use leaseway_core::types::Millis;
use openraft::{
    AnyError, EntryPayload, OptionalSend, RaftSnapshotBuilder, Snapshot, StorageIOError, storage::RaftStateMachine,
};

use crate::{
    log::{
        Entry, LogId, Member, Membership, Outcome, Payload, PeerId, SnapshotMeta, StorageError, StoreError,
        StoredMembership, Types, codec, command::Command, snapshots::Snapshots,
    },
    state::{State, StoredState},
};

/// Monotonic milliseconds.
pub type Clock = Arc<dyn Fn() -> Millis + Send + Sync>;

/// The state as far as the log is applied. The lock is never held across I/O.
#[derive(Debug, Clone, Default)]
pub(crate) struct SharedState(Arc<RwLock<State>>);

impl SharedState {
    /// Ignores poison: a panic while the state is changed ends consensus anyway.
    pub(crate) fn read(&self) -> RwLockReadGuard<'_, State> {
        self.0.read().unwrap_or_else(PoisonError::into_inner)
    }

    fn write(&self) -> RwLockWriteGuard<'_, State> {
        self.0.write().unwrap_or_else(PoisonError::into_inner)
    }
}

pub(crate) struct Machine {
    state: SharedState,
    applied: Option<LogId>,
    membership: StoredMembership,
    snapshots: Snapshots,
    clock: Clock,
}

impl Machine {
    /// Restores the snapshot, if there is one. Blocks.
    pub(crate) fn open(snapshots: Snapshots, clock: Clock) -> Result<Machine, StoreError> {
        let mut machine = Machine {
            state: SharedState::default(),
            applied: None,
            membership: StoredMembership::default(),
            snapshots,
            clock,
        };
        if let Some(stored) = machine.snapshots.open()? {
            let state =
                codec::decode::<StoredState>(&stored.state).map_err(|error| machine.snapshots.damaged(&error))?;
            let now = (machine.clock)();
            machine.install(&stored.meta, State::restore(state, now));
        }
        Ok(machine)
    }

    pub(crate) fn state(&self) -> SharedState {
        self.state.clone()
    }

    pub(crate) fn applied(&self) -> Option<LogId> {
        self.applied
    }

    /// The membership of the snapshot or of a later applied entry.
    pub(crate) fn membership(&self) -> Option<&Membership> {
        self.applied.map(|_| self.membership.membership())
    }

    /// Returns the previous state.
    fn install(&mut self, meta: &SnapshotMeta, state: State) -> State {
        self.applied = meta.last_log_id;
        self.membership = meta.last_membership.clone();
        std::mem::replace(&mut *self.state.write(), state)
    }

    fn apply_all(&mut self, entries: impl IntoIterator<Item = Entry>) -> Vec<Outcome> {
        let now = (self.clock)();
        let mut outcomes = Vec::new();
        for entry in entries {
            self.applied = Some(entry.log_id);
            outcomes.push(match entry.payload {
                EntryPayload::Blank => Outcome::None,
                EntryPayload::Normal(payload) => self.execute(&payload, now),
                EntryPayload::Membership(membership) => {
                    self.membership = StoredMembership::new(Some(entry.log_id), membership);
                    Outcome::None
                }
            });
        }
        outcomes
    }

    fn execute(&mut self, payload: &Payload, now: Millis) -> Outcome {
        match payload {
            Payload::BeginTerm => Outcome::TermBegan(self.state.write().begin_term()),
            Payload::Propose { term, proposals } => {
                let apply = |proposal: &Vec<Command>| self.state.write().apply(*term, proposal, now);
                Outcome::Proposed(proposals.iter().map(apply).collect())
            }
        }
    }
}

impl RaftStateMachine<Types> for Machine {
    type SnapshotBuilder = StateSnapshot;

    async fn applied_state(&mut self) -> Result<(Option<LogId>, StoredMembership), StorageError> {
        Ok((self.applied, self.membership.clone()))
    }

    async fn apply<I>(&mut self, entries: I) -> Result<Vec<Outcome>, StorageError>
    where
        I: IntoIterator<Item = Entry> + OptionalSend,
        I::IntoIter: OptionalSend,
    {
        // openraft does not notice if the task that applies entries panics: it would continue to lead, and never answer
        // a proposal.
        let applied = catch_unwind(AssertUnwindSafe(|| self.apply_all(entries)));
        applied.map_err(|_| {
            let last = self.applied.unwrap_or_default();
            StorageIOError::apply(last, AnyError::error("a panic while it was applied")).into()
        })
    }

    /// Clones the state. Encoding and writing happen in the background.
    async fn get_snapshot_builder(&mut self) -> StateSnapshot {
        let now = (self.clock)();
        let number = self.applied.map_or(0, |applied| applied.index);
        StateSnapshot {
            state: Some(self.state.read().clone()),
            now,
            meta: SnapshotMeta {
                last_log_id: self.applied,
                last_membership: self.membership.clone(),
                snapshot_id: format!("{number}-{}", now.0),
            },
            snapshots: self.snapshots.clone(),
        }
    }

    async fn begin_receiving_snapshot(&mut self) -> Result<Box<Cursor<Vec<u8>>>, StorageError> {
        Ok(Box::new(Cursor::new(Vec::new())))
    }

    async fn install_snapshot(
        &mut self,
        meta: &openraft::SnapshotMeta<PeerId, Member>,
        snapshot: Box<Cursor<Vec<u8>>>,
    ) -> Result<(), StorageError> {
        let bytes = snapshot.into_inner();
        let unreadable =
            |error: AnyError| StorageError::from(StorageIOError::read_snapshot(Some(meta.signature()), error));
        // Decoding a large state takes seconds, and this thread has to answer the master meanwhile.
        let decode = move || codec::decode::<StoredState>(&bytes).map(|state| (state, bytes));
        let decoded = tokio::task::spawn_blocking(decode).await.map_err(|gone| unreadable(AnyError::new(&gone)))?;
        let (state, bytes) = decoded
            .inspect_err(|error| self.snapshots.fail(error))
            .map_err(|error| unreadable(AnyError::new(&error)))?;
        self.snapshots.write(meta.clone(), bytes).await?;
        let clock = Arc::clone(&self.clock);
        let restore = move || State::restore(state, clock());
        let state = tokio::task::spawn_blocking(restore).await.map_err(|gone| unreadable(AnyError::new(&gone)))?;
        let before = self.install(meta, state);
        tokio::task::spawn_blocking(move || drop(before));
        tracing::info!(upto = ?meta.last_log_id.map(|id| id.index), "installed a snapshot");
        Ok(())
    }

    async fn get_current_snapshot(&mut self) -> Result<Option<Snapshot<Types>>, StorageError> {
        let stored = self.snapshots.read().await?;
        Ok(stored.map(|stored| Snapshot { meta: stored.meta, snapshot: Box::new(Cursor::new(stored.state)) }))
    }
}

/// A snapshot that is not encoded yet.
pub(crate) struct StateSnapshot {
    /// `None` once it is encoded.
    state: Option<State>,
    now: Millis,
    meta: SnapshotMeta,
    snapshots: Snapshots,
}

impl RaftSnapshotBuilder<Types> for StateSnapshot {
    async fn build_snapshot(&mut self) -> Result<Snapshot<Types>, StorageError> {
        let signature = self.meta.signature();
        let failed =
            |error: AnyError| -> StorageError { StorageIOError::write_snapshot(Some(signature.clone()), error).into() };
        let state = self.state.take().ok_or_else(|| failed(AnyError::error("it was built already")))?;
        let now = self.now;
        // The clone is dropped on that thread as well, because freeing a large state takes long.
        let encode = move || codec::encode(&state.record(now));
        let encoded = tokio::task::spawn_blocking(encode).await;
        let bytes = encoded.map_err(|gone| failed(AnyError::new(&gone)))?;
        self.snapshots.write(self.meta.clone(), bytes.clone()).await?;
        tracing::info!(bytes = bytes.len(), upto = ?self.meta.last_log_id.map(|id| id.index), "snapshot written");
        Ok(Snapshot { meta: self.meta.clone(), snapshot: Box::new(Cursor::new(bytes)) })
    }
}
