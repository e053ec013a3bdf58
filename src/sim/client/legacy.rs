//! A client of the original protocol, like Doorman's Go client: it accepts any answer before the deadline of its
//! request, believes a lease until the expiry that is written in it, and gets no hints.

use std::sync::Arc;

use leaseway_client::session::{Ask, Body, Capacity, GrantedLease, Lease, Outgoing, Release, Wants};
use leaseway_core::types::Millis;

/// The delay after a failed request, or after an answer without the resource.
const RETRY_DELAY: Millis = Millis(1_000);

pub(crate) struct LegacyClient {
    resource: Arc<str>,
    endpoints: Vec<Arc<str>>,
    target: usize,
    deadline: Millis,
    /// Absent after the release.
    wants: Option<Wants>,
    lease: Option<Lease>,
    under_way: Option<(u64, Millis)>,
    number: u64,
    due: Millis,
}

impl LegacyClient {
    pub(crate) fn new(resource: Arc<str>, endpoints: Vec<Arc<str>>, deadline: Millis, seed: u64) -> LegacyClient {
        LegacyClient {
            resource,
            target: (seed % endpoints.len() as u64) as usize,
            endpoints,
            deadline,
            wants: None,
            lease: None,
            under_way: None,
            number: 0,
            due: Millis(0),
        }
    }

    /// Changes the wants. The client sends them with the next refresh.
    pub(crate) fn want(&mut self, now: Millis, wants: Wants) {
        if self.wants.replace(wants).is_none() {
            self.due = now;
        }
    }

    pub(crate) fn release(&mut self, now: Millis) {
        (self.wants, self.lease, self.due) = (None, None, now);
    }

    pub(crate) fn poll(&mut self, now: Millis) -> Option<Outgoing<Wants>> {
        if let Some((_, sent)) = self.under_way
            && self.has_failed(sent, now)
        {
            self.failed(now);
        }
        if now < self.due || self.under_way.is_some() {
            return None;
        }
        self.number += 1;
        let body = match &self.wants {
            Some(wants) => {
                let has = self.lease.filter(|lease| lease.is_live(now));
                self.under_way = Some((self.number, now));
                Body::Ask(vec![Ask { id: Arc::clone(&self.resource), demand: *wants, has, had: None }])
            }
            None => {
                self.due = Millis(u64::MAX);
                Body::Release(vec![Release { id: Arc::clone(&self.resource), token: None, spent: None }])
            }
        };
        let (number, deadline) = (self.number, now.plus(self.deadline));
        Some(Outgoing { number, target: Arc::clone(&self.endpoints[self.target]), deadline, body })
    }

    fn has_failed(&self, sent: Millis, now: Millis) -> bool {
        now >= sent.plus(self.deadline)
    }

    /// Moves on to the next endpoint.
    fn failed(&mut self, now: Millis) {
        self.under_way = None;
        self.target = (self.target + 1) % self.endpoints.len();
        self.due = now.plus(RETRY_DELAY);
    }

    /// `end` is the expiry that is written in the lease.
    pub(crate) fn answered(&mut self, now: Millis, number: u64, given: Option<(GrantedLease, Millis)>) {
        let Some(sent) = self.awaited(number, now) else { return };
        self.under_way = None;
        self.due = now.plus(RETRY_DELAY);
        let Some((GrantedLease { length, refresh, token, wire, .. }, end)) = given.filter(|_| self.wants.is_some())
        else {
            return;
        };
        let capacity = Capacity::of(wire.capacity);
        // Do not use the lease for longer than the server counts it, even if the server wrote the answer long after the
        // request.
        let end = end.min(now.max(sent).plus(length));
        self.lease = Some(Lease { capacity, end, refresh, token, wire, budget: None });
        self.due = now.plus(refresh);
    }

    pub(crate) fn redirected(&mut self, now: Millis, number: u64, master: Option<&str>) {
        if self.awaited(number, now).is_none() {
            return;
        }
        self.failed(now);
        if let Some(index) = master.and_then(|master| self.endpoints.iter().position(|known| **known == *master)) {
            (self.target, self.due) = (index, now);
        }
    }

    /// The time at which request `number` was sent. `None` if its answer no longer counts.
    fn awaited(&self, number: u64, now: Millis) -> Option<Millis> {
        self.under_way
            .filter(|(awaited, sent)| *awaited == number && !self.has_failed(*sent, now))
            .map(|(_, sent)| sent)
    }

    pub(crate) fn wake(&self, now: Millis) -> Option<Millis> {
        let next = self.under_way.map_or(self.due, |(_, sent)| sent.plus(self.deadline));
        let end = self.lease.filter(|lease| lease.is_live(now)).map(|lease| lease.end);
        end.into_iter().chain([next]).min().filter(|at| *at < Millis(u64::MAX))
    }

    pub(crate) fn usable(&self, now: Millis) -> f64 {
        self.lease.filter(|lease| lease.is_live(now)).map_or(0.0, |lease| lease.capacity.get())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use leaseway_client::session::Wire;

    fn legacy() -> LegacyClient {
        let mut legacy = LegacyClient::new("r".into(), vec!["0:0".into(), "0:1".into()], Millis(3_000), 0);
        legacy.want(Millis(0), Wants { amount: 5.0, ..Wants::default() });
        legacy
    }

    fn given() -> GrantedLease {
        let wire = Wire { expiry_time: 10, refresh_interval: 4, capacity: 5.0 };
        let (length, refresh) = (Millis(10_000), Millis(4_000));
        GrantedLease { id: "r".into(), length, refresh, token: Some(7), wire, safe: None, budget: None }
    }

    fn has(outgoing: &Outgoing<Wants>) -> Option<u64> {
        let Body::Ask(asks) = &outgoing.body else { panic!("{outgoing:?}") };
        asks[0].has.and_then(|lease| lease.token)
    }

    #[test]
    fn a_lease_is_used_until_its_written_expiry_and_echoed() {
        let mut legacy = legacy();
        let asked = legacy.poll(Millis(0)).expect("it asks at once");
        legacy.answered(Millis(200), asked.number, Some((given(), Millis(10_000))));
        assert_eq!((legacy.usable(Millis(9_999)), legacy.usable(Millis(10_000))), (5.0, 0.0));
        assert_eq!((legacy.poll(Millis(4_199)), legacy.wake(Millis(200))), (None, Some(Millis(4_200))));
        assert_eq!(has(&legacy.poll(Millis(4_200)).expect("it refreshes")), Some(7));
    }

    #[test]
    fn an_answer_counts_after_the_named_lease_has_expired_but_not_after_the_deadline() {
        let mut legacy = legacy();
        let asked = legacy.poll(Millis(0)).expect("it asks at once");
        legacy.answered(Millis(0), asked.number, Some((given(), Millis(10_000))));
        let late = legacy.poll(Millis(9_500)).expect("it refreshes, late");
        assert_eq!(has(&late), Some(7));
        legacy.answered(Millis(10_500), late.number, Some((given(), Millis(19_000))));
        assert_eq!(legacy.usable(Millis(10_500)), 5.0);
        let never = legacy.poll(Millis(14_500)).expect("it refreshes");
        assert!(legacy.poll(Millis(17_500)).is_none(), "it waits before it retries");
        legacy.answered(Millis(17_500), never.number, Some((given(), Millis(30_000))));
        assert_eq!(legacy.usable(Millis(19_000)), 0.0);
    }
}
