//! Which demands are estimated when.

use std::sync::Arc;

use leaseway_core::Millis;

use super::{MIN_ESTIMATE_INTERVAL, State};

impl State {
    pub(super) fn want(&mut self, now: Millis, id: &Arc<str>) {
        let Some(slot) = self.opened.get(id) else { return };
        let (mut wants, mode) = (slot.opened.wants(now), slot.opened.mode);
        if self.session.lease(now, id).is_some_and(|lease| wants.outstanding <= lease.capacity.get()) {
            wants.outstanding = 0.0;
        }
        let changing = self.session.want(now, id, wants, mode);
        let again = slot.opened.next_sample_at();
        if wants.outstanding > 0.0 || (changing && slot.opened.is_under_pressure()) {
            self.estimate_soon(now);
        }
        if let Some(at) = again {
            self.schedule_estimate(id, at.max(now.plus(MIN_ESTIMATE_INTERVAL)));
        }
    }

    /// Estimates all demands at `at`, or a little later.
    pub(super) fn estimate_soon(&mut self, at: Millis) {
        let at = at.max(self.estimated.plus(MIN_ESTIMATE_INTERVAL));
        self.estimate_at = Some(self.estimate_at.map_or(at, |before| before.min(at)));
    }

    /// Estimates the demand of one resource at `at`, or earlier if that was scheduled.
    fn schedule_estimate(&mut self, id: &Arc<str>, at: Millis) {
        let Some(slot) = self.opened.get_mut(id) else { return };
        if slot.estimate_at.is_some_and(|before| before <= at) {
            return;
        }
        if let Some(before) = slot.estimate_at.replace(at) {
            self.scheduled_estimates.remove(&(before, Arc::clone(id)));
        }
        self.scheduled_estimates.insert((at, Arc::clone(id)));
    }

    /// The resources whose demands to estimate now: all of them if callers wait at some, else those of the next request
    /// and those that are scheduled. Others are skipped, because there may be a hundred thousand.
    pub(super) fn take_due_estimates(&mut self, now: Millis) -> Vec<Arc<str>> {
        if self.estimate_at.is_some_and(|at| at <= now) {
            (self.estimate_at, self.estimated) = (None, now);
            return self.opened.keys().cloned().collect();
        }
        let mut due_resources = if self.session.is_due(now) { self.session.due_resources(now) } else { Vec::new() };
        if !due_resources.is_empty() && due_resources.len() == self.opened.len() {
            // The next request asks for all resources, as with most clients.
            (self.estimate_at, self.estimated) = (None, now);
        }
        while let Some((_, id)) = self.scheduled_estimates.first().filter(|(at, _)| *at <= now) {
            let id = Arc::clone(id);
            self.scheduled_estimates.pop_first();
            if let Some(slot) = self.opened.get_mut(&id) {
                slot.estimate_at = None;
                due_resources.push(id);
            }
        }
        due_resources
    }
}
