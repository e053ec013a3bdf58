//! Which backends of a balancer are enabled: those with a share that are neither paused nor in back-off. Time is an
//! argument.

use std::{cmp::Reverse, collections::BinaryHeap, time::Duration};

use tokio::time::Instant;

use super::schedule::{Factor, Member, Schedule};

#[derive(Debug)]
pub(super) struct Members {
    schedule: Schedule,
    states: Vec<MemberState>,
    /// The ends of all back-offs.
    retries: BinaryHeap<Reverse<(Instant, usize)>>,
}

#[derive(Debug)]
struct MemberState {
    member: Member,
    paused: bool,
    failed: bool,
}

impl Members {
    pub(super) fn new(factors: impl IntoIterator<Item = Factor>) -> Members {
        let mut members = Members { schedule: Schedule::new(), states: Vec::new(), retries: BinaryHeap::new() };
        for (index, factor) in factors.into_iter().enumerate() {
            let member = members.schedule.add(factor);
            members.states.push(MemberState { member, paused: false, failed: false });
            members.settle(index);
        }
        members
    }

    pub(super) fn pick(&mut self) -> Option<usize> {
        self.schedule.pick().map(Member::index)
    }

    pub(super) fn pick_where(&mut self, mut accept: impl FnMut(usize) -> bool) -> Option<usize> {
        self.schedule.pick_where(|member| accept(member.index())).map(Member::index)
    }

    pub(super) fn pick_sticky(&mut self, index: usize) -> Option<usize> {
        self.schedule.force(self.states[index].member).then_some(index)
    }

    /// Sets a configured share, and forgets all statuses.
    pub(super) fn configure(&mut self, index: usize, factor: Factor) {
        self.schedule.set_factor(self.states[index].member, factor);
        self.schedule.reset();
        self.settle(index);
    }

    /// Sets a share from a lease.
    pub(super) fn lease(&mut self, index: usize, factor: Factor) {
        // Rescale before disabling a member without lease, as for any smaller lease.
        self.schedule.rescale(self.states[index].member, factor);
        self.settle(index);
    }

    pub(super) fn pause(&mut self, index: usize, paused: bool) {
        self.states[index].paused = paused;
        self.settle(index);
    }

    /// Starts a back-off until `now + retry`, unless there is one.
    pub(super) fn failed(&mut self, index: usize, now: Instant, retry: Duration) {
        if self.states[index].failed {
            return;
        }
        self.states[index].failed = true;
        self.settle(index);
        // A time that overflows never comes.
        self.retries.extend(now.checked_add(retry).map(|at| Reverse((at, index))));
    }

    /// When the next back-off ends.
    pub(super) fn next_retry(&self) -> Option<Instant> {
        self.retries.peek().map(|Reverse((at, _))| *at)
    }

    /// Ends back-offs that are over.
    pub(super) fn retry(&mut self, now: Instant) {
        while self.next_retry().is_some_and(|at| at <= now) {
            if let Some(Reverse((_, index))) = self.retries.pop() {
                self.states[index].failed = false;
                self.settle(index);
            }
        }
    }

    pub(super) fn is_enabled(&self, index: usize) -> bool {
        self.schedule.is_enabled(self.states[index].member)
    }

    fn settle(&mut self, index: usize) {
        let MemberState { member, paused, failed } = self.states[index];
        let has_share = self.schedule.factor(member).is_some_and(|factor| factor > Factor::ZERO);
        if has_share && !paused && !failed {
            self.schedule.enable(member);
        } else {
            self.schedule.disable(member);
        }
    }

    #[cfg(test)]
    pub(super) fn status(&self, index: usize) -> i128 {
        self.schedule.status(self.states[index].member).expect("no backend is ever removed")
    }
}
