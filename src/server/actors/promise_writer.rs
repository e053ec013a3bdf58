//! Carries what resources promise, and what pools want to be remembered, to the peers: one entry of the log for
//! everything that waits.
//!
//! Group commit: proposals are made in the order in which they come, one batch after the other; while one is under way
//! the next gathers, so that the log grows with time and not with requests. The first after a quiet moment goes at
//! once; where one follows the other there is a pause between them, because an entry costs all peers about the same,
//! however little is in it. No actor and no mailbox: a resource must be able to write at any time, and what it may have
//! under way is bounded by the requests that it may have waiting.

use std::{sync::Arc, time::Duration};

use leaseway_core::{Changes, Epoch, PoolNotes};
use leaseway_quorum::{Fact, ProposeError, Quorum, Reign};
use tokio::{sync::mpsc, time::Instant};

use super::commit::CommitGuard;
use crate::metrics;

/// Proposals of one entry, and the bytes that they may have together: all peers have to get it within a heartbeat. A
/// single proposal may have more.
const BATCH: usize = 1024;
const BATCH_BYTES: usize = 256 << 10;
/// After an entry a busy master rests for so many times as long as it took, within these bounds. Measured with three
/// peers on two cores: an entry costs the master a millisecond of CPU, as much as forty requests.
const REST: u32 = 9;
const REST_LEAST: Duration = Duration::from_millis(3);
const REST_MOST: Duration = Duration::from_millis(20);
/// What a number of a change or a note takes, with what belongs to it; and a slice of wants.
const RECORD_BYTES: usize = 32;
const SLICE_BYTES: usize = 16;

/// Something for the log.
struct Proposal {
    reign: Reign,
    fact: Fact,
    /// Told when it is stored.
    guard: Option<CommitGuard>,
}

/// Takes proposals.
#[derive(Debug, Clone)]
pub(super) struct PromiseWriter(mpsc::UnboundedSender<Proposal>);

impl PromiseWriter {
    /// Goes on for as long as there is a resource that could write.
    pub(super) fn start(quorum: Quorum) -> PromiseWriter {
        let (queue, proposals) = mpsc::unbounded_channel();
        actix_rt::spawn(write(quorum, proposals));
        PromiseWriter(queue)
    }

    /// What a resource promises.
    pub(super) fn promise(&self, reign: &Reign, resource: &Arc<str>, changes: Changes, guard: CommitGuard) {
        self.put(reign, Fact::Promises { resource: Arc::clone(resource), changes }, Some(guard));
    }

    /// What a pool wants to be remembered.
    pub(super) fn note(&self, reign: &Reign, resource: &Arc<str>, notes: PoolNotes, guard: CommitGuard) {
        self.put(reign, Fact::Pool { resource: Arc::clone(resource), notes: Box::new(notes) }, Some(guard));
    }

    /// This resource is held by no one any more. Should that get lost, the peers keep an empty total.
    pub(super) fn forget(&self, reign: &Reign, resource: &Arc<str>, epoch: Epoch) {
        self.put(reign, Fact::ForgetPromises { resource: Arc::clone(resource), epoch }, None);
    }

    fn put(&self, reign: &Reign, fact: Fact, guard: Option<CommitGuard>) {
        // If the task is gone, the server is stopping: the guard is dropped with the proposal and says so.
        let _ = self.0.send(Proposal { reign: reign.clone(), fact, guard });
    }
}

async fn write(quorum: Quorum, mut proposals: mpsc::UnboundedReceiver<Proposal>) {
    let mut batch = Vec::with_capacity(BATCH);
    let mut next = Instant::now();
    while proposals.recv_many(&mut batch, BATCH).await > 0 {
        if Instant::now() < next {
            tokio::time::sleep_until(next).await;
            while batch.len() < BATCH
                && let Ok(proposal) = proposals.try_recv()
            {
                batch.push(proposal);
            }
        }
        while !batch.is_empty() {
            let together = together(&batch);
            let began = Instant::now();
            propose(&quorum, batch.drain(..together).collect()).await;
            next = Instant::now() + (began.elapsed() * REST).clamp(REST_LEAST, REST_MOST);
        }
    }
}

/// How many of the first fit into one entry: those of one reign, and not too many.
fn together(batch: &[Proposal]) -> usize {
    let mut bytes = 0;
    let fits = |proposal: &&Proposal| {
        bytes += proposal.bytes();
        proposal.reign.number() == batch[0].reign.number() && bytes <= BATCH_BYTES
    };
    batch.iter().take_while(fits).count().max(1)
}

impl Proposal {
    /// Nearly.
    fn bytes(&self) -> usize {
        match &self.fact {
            Fact::Promises { resource, changes } => resource.len() + RECORD_BYTES + changes.wants.len() * SLICE_BYTES,
            Fact::Pool { resource, notes } => {
                let balances = notes.balances.iter().map(|(id, _)| id.len() + RECORD_BYTES);
                let costs = notes.costs.iter().map(|(_, id, _)| id.len() + 2 * RECORD_BYTES);
                resource.len() + 2 * RECORD_BYTES + balances.chain(costs).sum::<usize>()
            }
            _ => RECORD_BYTES,
        }
    }
}

/// One entry for proposals of one reign.
async fn propose(quorum: &Quorum, proposals: Vec<Proposal>) {
    let Some(reign) = proposals.first().map(|proposal| proposal.reign.clone()) else { return };
    let (facts, guards): (Vec<Fact>, Vec<_>) =
        proposals.into_iter().map(|proposal| (proposal.fact, proposal.guard)).unzip();
    metrics::promises_written(facts.iter().filter(|fact| !matches!(fact, Fact::Pool { .. })).count());
    match quorum.propose(&reign, facts).await {
        Ok(()) => guards.into_iter().flatten().for_each(CommitGuard::confirm),
        Err(ProposeError::Deposed) => tracing::debug!(reign = reign.number(), "what was to be promised comes too late"),
        Err(error) => tracing::warn!(reign = reign.number(), %error, "the peers did not take what was to be promised"),
    }
}
