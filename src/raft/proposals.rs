//! Group commit: what is proposed while an entry is under way shares the next, with one write to each disk and one
//! message to each peer.
//!
//! The first proposal after a quiet moment goes at once; where one entry follows the other there is a rest between
//! them, because an entry costs all peers about the same, however little is in it: so the log grows with time and not
//! with requests. A caller that waits for its proposal before it makes the next does not rest: it bounds itself. The
//! queue has no bound: what waits in it would otherwise wait with its caller.

use std::{sync::Arc, time::Duration};

use tokio::{
    sync::{mpsc, oneshot},
    time::{Instant, sleep_until},
};

use crate::{
    Clock,
    command::Command,
    master_lease::MasterLease,
    metrics,
    propose_error::ProposeError,
    raft::{Outcome, Payload, Raft},
};

/// No proposal is larger.
const MAX_PROPOSAL_BYTES: u64 = 4 << 20;
/// Several proposals of one entry have no more than this together: all peers have to get it within a heartbeat.
const MAX_BATCH_BYTES: u64 = 256 << 10;
/// After an entry a busy master rests for so many times as long as it took, within these bounds. Measured with three
/// peers on two cores: an entry costs the master a millisecond of CPU, as much as forty requests.
const REST_FACTOR: u32 = 9;
const MIN_REST: Duration = Duration::from_millis(3);
const MAX_REST: Duration = Duration::from_millis(40);

type Callback = Box<dyn FnOnce(Result<(), ProposeError>) + Send>;

pub(crate) struct Proposal {
    lease: MasterLease,
    commands: Vec<Command>,
    bytes: u64,
    /// Whether it leaves at once, also if an entry has only just been written.
    at_once: bool,
    done: Callback,
}

pub(crate) type Proposals = mpsc::UnboundedSender<Proposal>;
pub(crate) type WeakProposals = mpsc::WeakUnboundedSender<Proposal>;

pub(crate) fn queue() -> (Proposals, mpsc::UnboundedReceiver<Proposal>) {
    mpsc::unbounded_channel()
}

/// Puts the commands into the queue. `done` is told when a quorum has them and they are applied here, or when that cannot
/// be known any more; it is dropped if the peer stops.
pub(crate) fn submit(queue: &Proposals, lease: &MasterLease, commands: Vec<Command>, done: Callback) {
    put(queue, lease, commands, false, done);
}

/// As [`submit`], and waits.
pub(crate) async fn propose(
    queue: &Proposals,
    lease: &MasterLease,
    commands: Vec<Command>,
) -> Result<(), ProposeError> {
    let (result, decided) = oneshot::channel();
    // The caller may have gone away meanwhile.
    put(queue, lease, commands, true, Box::new(move |told| drop(result.send(told))));
    decided.await.unwrap_or(Err(ProposeError::Uncertain))
}

fn put(queue: &Proposals, lease: &MasterLease, commands: Vec<Command>, at_once: bool, done: Callback) {
    let bytes = crate::codec::encoded_len(&commands);
    if bytes > MAX_PROPOSAL_BYTES {
        return done(Err(ProposeError::TooLarge { bytes, most: MAX_PROPOSAL_BYTES }));
    }
    if lease.is_over() {
        return done(Err(ProposeError::Deposed));
    }
    let proposal = Proposal { lease: lease.clone(), commands, bytes, at_once, done };
    if let Err(mpsc::error::SendError(proposal)) = queue.send(proposal) {
        (proposal.done)(Err(ProposeError::Deposed));
    }
}

/// Batches proposals and writes them, in order, until the last sender is dropped.
pub(crate) async fn run(raft: Raft, mut queue: mpsc::UnboundedReceiver<Proposal>, clock: Clock) {
    let mut next = None;
    let mut rested = Instant::now();
    loop {
        let first = match next.take() {
            Some(first) => first,
            None => {
                let Some(first) = queue.recv().await else { return };
                if !first.at_once {
                    // More proposals queue up meanwhile.
                    sleep_until(rested).await;
                }
                first
            }
        };
        let (batch, left) = gather(first, &mut queue);
        next = left;
        let began = Instant::now();
        store(&raft, batch, &clock).await;
        rested = Instant::now() + (began.elapsed() * REST_FACTOR).clamp(MIN_REST, MAX_REST);
    }
}

/// The queued proposals of the same master lease that fit into an entry, and the first that does not belong to them.
fn gather(first: Proposal, queue: &mut mpsc::UnboundedReceiver<Proposal>) -> (Vec<Proposal>, Option<Proposal>) {
    let (term, mut bytes) = (first.lease.term(), first.bytes);
    let mut batch = vec![first];
    while let Ok(proposal) = queue.try_recv() {
        bytes += proposal.bytes;
        if proposal.lease.term() != term || bytes > MAX_BATCH_BYTES {
            return (batch, Some(proposal));
        }
        batch.push(proposal);
    }
    (batch, None)
}

/// One entry for proposals of one master lease. It begins with how far the clock of the cluster has got.
async fn store(raft: &Raft, batch: Vec<Proposal>, clock: &Clock) {
    // A proposal of a master lease that is over must not be stored.
    let (over, batch): (Vec<_>, Vec<_>) = batch.into_iter().partition(|proposal| proposal.lease.is_over());
    for proposal in over {
        (proposal.done)(Err(ProposeError::Deposed));
    }
    let Some(lease) = batch.first().map(|proposal| proposal.lease.clone()) else { return };
    let reached = Command::Clock(lease.clock().reached(clock()));
    let (mut proposals, callers): (Vec<_>, Vec<_>) =
        batch.into_iter().map(|proposal| (proposal.commands, proposal.done)).unzip();
    proposals.insert(0, vec![reached]);
    metrics::promised(proposals.iter().flatten().filter(|command| command.is_of_promises()).count());
    let began = Instant::now();
    let payload = Payload::Propose { term: lease.term(), proposals: Arc::new(proposals) };
    let outcome = tokio::select! {
        biased;
        outcome = raft.client_write(payload) => outcome.ok().map(|response| response.data),
        () = lease.ended() => None,
    };
    metrics::committed(began.elapsed());
    answer(callers, outcome);
}

/// Without an outcome it is unknown whether the proposals are stored: openraft does not say whether an entry was
/// refused or truncated later, and one that was truncated here may still be stored elsewhere.
fn answer(callers: Vec<Callback>, outcome: Option<Outcome>) {
    let Some(Outcome::Proposed(results)) = outcome else {
        metrics::proposed("uncertain", callers.len());
        return callers.into_iter().for_each(|done| done(Err(ProposeError::Uncertain)));
    };
    for (done, result) in callers.into_iter().zip(results.into_iter().skip(1)) {
        metrics::proposed(if result.is_ok() { "stored" } else { "refused" }, 1);
        done(result);
    }
}
