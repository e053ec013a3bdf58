//! Group commit: concurrent proposals share one entry, one write to each disk and one message to each peer.
//!
//! While entries are under way the next proposals queue up. There is no timer: batches grow with the load.

use std::{sync::Arc, time::Instant};

use tokio::sync::{Semaphore, mpsc, oneshot};

use crate::{
    error::ProposeError,
    fact::Fact,
    metrics,
    raft::{Command, Outcome, Raft},
    reign::Reign,
    stored::{StoredFact, StoredRefusal},
};

/// Entries under way at once: while the peers write one, the next is on its way to them.
const UNDER_WAY: usize = 4;
/// No entry is larger than the largest proposal.
const LARGEST: u64 = 4 << 20;
/// Proposals that may queue; callers beyond this wait in `propose`.
const WAITING: usize = 4096;

pub(crate) struct Proposal {
    reign: Reign,
    facts: Vec<StoredFact>,
    bytes: u64,
    result: oneshot::Sender<Result<(), ProposeError>>,
}

pub(crate) type Proposals = mpsc::Sender<Proposal>;

pub(crate) fn queue() -> (Proposals, mpsc::Receiver<Proposal>) {
    mpsc::channel(WAITING)
}

/// Resolves when a quorum has the facts and they are applied here, or when that cannot be known any more.
pub(crate) async fn propose(queue: &Proposals, reign: &Reign, facts: &[Fact]) -> Result<(), ProposeError> {
    let facts: Vec<StoredFact> = facts.iter().map(StoredFact::from).collect();
    let bytes = crate::codec::encoded_len(&facts);
    if bytes > LARGEST {
        return Err(ProposeError::TooLarge { bytes, most: LARGEST });
    }
    if reign.is_over() {
        return Err(ProposeError::Deposed);
    }
    let (result, decided) = oneshot::channel();
    if queue.send(Proposal { reign: reign.clone(), facts, bytes, result }).await.is_err() {
        return Err(ProposeError::Deposed);
    }
    tokio::select! {
        biased;
        decided = decided => decided.unwrap_or(Err(ProposeError::Uncertain)),
        () = reign.ended() => Err(ProposeError::Uncertain),
    }
}

/// Batches proposals and writes them, in order, until the last sender is dropped.
pub(crate) async fn run(raft: Raft, mut queue: mpsc::Receiver<Proposal>) {
    let under_way = Arc::new(Semaphore::new(UNDER_WAY));
    let mut next = None;
    loop {
        let first = match next.take() {
            Some(first) => first,
            None => match queue.recv().await {
                Some(first) => first,
                None => return,
            },
        };
        // More proposals queue up meanwhile.
        let Ok(place) = Arc::clone(&under_way).acquire_owned().await else { return };
        let (batch, left) = gather(first, &mut queue);
        next = left;
        // A proposal of a reign that is over must not be stored.
        let (over, batch): (Vec<_>, Vec<_>) = batch.into_iter().partition(|proposal| proposal.reign.is_over());
        for proposal in over {
            let _ = proposal.result.send(Err(ProposeError::Deposed));
        }
        let Some(reign) = batch.first().map(|proposal| proposal.reign.number()) else { continue };
        let (proposals, callers): (Vec<_>, Vec<_>) =
            batch.into_iter().map(|proposal| (proposal.facts, proposal.result)).unzip();
        let began = Instant::now();
        // The entry has its place in the log when this returns: batches are stored in order.
        let written = raft.client_write_ff(Command::Propose { reign, proposals: Arc::new(proposals) }).await;
        tokio::spawn(async move {
            let outcome = match written {
                Ok(result) => result.await.ok().and_then(Result::ok).map(|response| response.data),
                Err(_) => None,
            };
            metrics::committed(began.elapsed());
            answer(callers, outcome);
            drop(place);
        });
    }
}

/// The queued proposals of the same reign that fit into an entry, and the first that does not belong to them.
fn gather(first: Proposal, queue: &mut mpsc::Receiver<Proposal>) -> (Vec<Proposal>, Option<Proposal>) {
    let (reign, mut bytes) = (first.reign.number(), first.bytes);
    let mut batch = vec![first];
    while let Ok(proposal) = queue.try_recv() {
        bytes += proposal.bytes;
        if proposal.reign.number() != reign || bytes > LARGEST {
            return (batch, Some(proposal));
        }
        batch.push(proposal);
    }
    (batch, None)
}

/// Without an outcome it is unknown whether the proposals are stored: openraft does not say whether an entry was
/// refused or truncated later, and one that was truncated here may still be stored elsewhere.
fn answer(callers: Vec<oneshot::Sender<Result<(), ProposeError>>>, outcome: Option<Outcome>) {
    let Some(Outcome::Proposed(results)) = outcome else {
        metrics::proposed("uncertain", callers.len());
        for caller in callers {
            let _ = caller.send(Err(ProposeError::Uncertain));
        }
        return;
    };
    for (caller, result) in callers.into_iter().zip(results) {
        metrics::proposed(if result.is_ok() { "stored" } else { "refused" }, 1);
        let _ = caller.send(result.map_err(ProposeError::from));
    }
}

impl From<StoredRefusal> for ProposeError {
    fn from(refusal: StoredRefusal) -> ProposeError {
        match refusal {
            StoredRefusal::Deposed => ProposeError::Deposed,
            StoredRefusal::OlderEpoch { resource, newest, got } => ProposeError::OlderEpoch { resource, newest, got },
            StoredRefusal::Gap { resource, epoch, expected, got } => {
                ProposeError::Gap { resource, epoch, expected, got }
            }
        }
    }
}
