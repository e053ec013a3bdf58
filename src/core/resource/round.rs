//! A round: absorbs every request that is waiting, then divides and settles once, and answers all of them.
//!
//! For each request, *admission* applies what it says about leases and inserts what it wants. Then *settlement* computes
//! what the holders of all these requests are due, and grants each as much of it as is free. So the order of requests
//! within a round does not matter.

mod admission;
mod settlement;

use crate::{
    allocation::{KnownTerms, settlement::Participant},
    lease::confirm::Entitlement,
    pool::MOVES_PER_REQUEST,
    resource::{Answer, Request, Resource},
    types::{Amount, HolderKind, Now},
};

/// The number of expiring records visited per request, besides those visited by ticks. About as many as refreshes make
/// necessary, so that no request waits for a million leases that end in the same second.
const EXPIRE_PER_REQUEST: usize = 8;

/// Buffers of a round. They are empty between two rounds, so one of them serves all resources of a thread and stays in
/// the caches of the processor. Buffers of each resource would be cold.
#[derive(Default)]
pub struct RoundScratch {
    /// The slots whose records were prefetched.
    slots: Vec<u32>,
    /// The requests of the sub-round.
    pending: Vec<PendingGrant>,
    participants: Vec<Participant>,
    grants: Vec<Amount>,
    terms: KnownTerms,
}

impl RoundScratch {
    fn clear(&mut self) {
        self.pending.clear();
        self.participants.clear();
        self.grants.clear();
        self.terms.clear();
    }
}

/// A request that waits for its answer.
pub(super) struct PendingGrant {
    pub(super) slot: u32,
    /// The index of its answer.
    pub(super) answer: usize,
    pub(super) entitled: Entitlement,
}

impl Resource {
    /// Runs a round over `requests`, which is left empty. `answers` gets one answer for each, in the same order.
    pub fn round(
        &mut self,
        now: Now,
        requests: &mut Vec<Request>,
        answers: &mut Vec<Answer>,
        scratch: &mut RoundScratch,
    ) {
        // A round that panicked may have left data.
        scratch.clear();
        self.counters.rounds += 1;
        self.expire(now.at, EXPIRE_PER_REQUEST * (1 + requests.len()));
        self.end_inherited(now.at);
        self.expire_supply(now.at);
        self.expire_report(now.at);
        self.step_pool(now.at, MOVES_PER_REQUEST * (1 + requests.len()));
        self.begin_sub_round();
        self.last_round.newcomers.clear();
        self.last_round.short.clear();
        self.prefetch(requests, &mut scratch.slots);
        for request in requests.drain(..) {
            // A placeholder until the sub-round is settled.
            let place = answers.len();
            answers.push(Answer::TooSoon);
            let ask = match request {
                Request::Ask(ask) => ask,
                Request::Renew(ask) => match self.with_wants(ask, now) {
                    Some(ask) => ask,
                    None => {
                        answers[place] = Answer::Unknown;
                        continue;
                    }
                },
                Request::Release(release) => {
                    if self.is_pending(release.kind, &release.id, scratch) {
                        self.settle(now, answers, scratch);
                    }
                    self.release(&release, now.at);
                    answers[place] = Answer::Released;
                    continue;
                }
            };
            if self.is_pending(ask.kind, &ask.id, scratch) {
                self.settle(now, answers, scratch);
            }
            match self.admit(ask, now) {
                Ok((slot, entitled)) => scratch.pending.push(PendingGrant { slot, answer: place, entitled }),
                Err(answer) => answers[place] = answer,
            }
        }
        self.settle(now, answers, scratch);
    }

    /// Prefetches the records that the round will use. Visited one after the other, each would wait for memory several
    /// times. Touched together, the waits overlap.
    fn prefetch(&self, requests: &[Request], slots: &mut Vec<u32>) {
        let likely = requests.iter().filter_map(|request| match request {
            Request::Ask(ask) | Request::Renew(ask) => self.book.ledger().likely_slot(ask.kind, &ask.id),
            Request::Release(release) => self.book.ledger().likely_slot(release.kind, &release.id),
        });
        slots.clear();
        slots.extend(likely);
        let touched = slots.iter().fold(0, |touched, slot| touched ^ self.book.ledger().touch(*slot));
        // Keeps the compiler from removing the unused reads.
        std::hint::black_box(touched);
    }

    fn begin_sub_round(&mut self) {
        self.last_round.sub_round = self.last_round.sub_round.wrapping_add(1);
    }

    /// Whether the holder has a request in this sub-round already.
    fn is_pending(&self, kind: HolderKind, id: &str, scratch: &RoundScratch) -> bool {
        // The first request needs no lookup.
        !scratch.pending.is_empty() && {
            let ledger = self.book.ledger();
            ledger.find(kind, id).is_some_and(|slot| ledger.holder(slot).round == self.last_round.sub_round)
        }
    }
}
