//! Group commit: proposals that arrive while an entry is being committed share the next entry.
//!
//! An entry costs every peer about the same, whether it carries one proposal or many. So a master pauses after each
//! entry and collects the proposals that arrive meanwhile: the log grows with time and not with requests. A proposal
//! that arrives after the pause is written immediately. [`propose`] skips the pause, because its caller waits for the
//! outcome and so limits itself. The queue is unbounded, because a full queue could only make callers wait.

use std::{sync::Arc, time::Duration};

use tokio::{
    sync::{mpsc, oneshot},
    time::{Instant, sleep_until},
};

use crate::{
    election::master_lease::MasterLease,
    log::{
        Outcome, Payload, Raft,
        command::{Command, ProposeError},
    },
    metrics,
    state::machine::Clock,
};

/// The maximum size of a proposal.
const MAX_PROPOSAL_BYTES: u64 = 4 << 20;
/// The maximum size of an entry with several proposals: all peers have to receive it within a heartbeat.
const MAX_BATCH_BYTES: u64 = 256 << 10;
/// The pause after an entry, as a multiple of the time that the entry took. It is at least `MIN_REST` and at most
/// `MAX_REST`. An entry costs a master about 1 ms of CPU, as much as forty requests (three peers on two cores).
const REST_FACTOR: u32 = 9;
const MIN_REST: Duration = Duration::from_millis(3);
const MAX_REST: Duration = Duration::from_millis(40);

type Callback = Box<dyn FnOnce(Result<(), ProposeError>) + Send>;

pub(crate) struct Proposal {
    lease: MasterLease,
    commands: Vec<Command>,
    bytes: u64,
    skips_rest: bool,
    done: Callback,
}

pub(crate) type Proposals = mpsc::UnboundedSender<Proposal>;
pub(crate) type WeakProposals = mpsc::WeakUnboundedSender<Proposal>;

pub(crate) fn queue() -> (Proposals, mpsc::UnboundedReceiver<Proposal>) {
    mpsc::unbounded_channel()
}

/// Queues a proposal. `done` is called once the proposal is committed and applied here, or once the lease ends
/// before its outcome is known. If the peer stops, `done` is dropped.
pub(crate) fn submit(queue: &Proposals, lease: &MasterLease, commands: Vec<Command>, done: Callback) {
    enqueue(queue, lease, commands, false, done);
}

/// As [`submit`], and waits for the outcome.
pub(crate) async fn propose(
    queue: &Proposals,
    lease: &MasterLease,
    commands: Vec<Command>,
) -> Result<(), ProposeError> {
    let (result, decided) = oneshot::channel();
    // `send` fails if the caller was dropped.
    enqueue(queue, lease, commands, true, Box::new(move |outcome| drop(result.send(outcome))));
    decided.await.unwrap_or(Err(ProposeError::Uncertain))
}

fn enqueue(queue: &Proposals, lease: &MasterLease, commands: Vec<Command>, skips_rest: bool, done: Callback) {
    let bytes = crate::log::codec::encoded_len(&commands);
    if bytes > MAX_PROPOSAL_BYTES {
        return done(Err(ProposeError::TooLarge { bytes, most: MAX_PROPOSAL_BYTES }));
    }
    if lease.is_over() {
        return done(Err(ProposeError::Deposed));
    }
    let proposal = Proposal { lease: lease.clone(), commands, bytes, skips_rest, done };
    if let Err(mpsc::error::SendError(proposal)) = queue.send(proposal) {
        (proposal.done)(Err(ProposeError::Deposed));
    }
}

/// Writes proposals in batches, in order, until the last sender is dropped.
pub(crate) async fn run(raft: Raft, mut queue: mpsc::UnboundedReceiver<Proposal>, clock: Clock) {
    let mut next = None;
    let mut rest_until = Instant::now();
    loop {
        let first = match next.take() {
            Some(first) => first,
            None => {
                let Some(first) = queue.recv().await else { return };
                if !first.skips_rest {
                    sleep_until(rest_until).await;
                }
                first
            }
        };
        let (batch, left) = gather(first, &mut queue);
        next = left;
        let began = Instant::now();
        store(&raft, batch, &clock).await;
        rest_until = Instant::now() + (began.elapsed() * REST_FACTOR).clamp(MIN_REST, MAX_REST);
    }
}

/// The queued proposals of the same term that fit into an entry, and the first that does not fit.
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

/// Writes one entry for proposals of one term. Its first command advances the cluster clock.
async fn store(raft: &Raft, batch: Vec<Proposal>, clock: &Clock) {
    // Do not store a proposal whose master lease has ended.
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

/// Calls the callers back. Without an outcome, it is unknown whether the proposals were stored: openraft returns the
/// same error for a refused entry and for one that was truncated here but may be stored elsewhere.
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
