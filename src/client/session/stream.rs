//! Renewal by a stream: a client that holds very many leases states what has changed, and renews all others with one
//! message.
//!
//! Each resource gets an index on the stream with the request that *states* it first. It is *renewable* while the client
//! has the lease of the last answer and its demand is the one that was stated last; a later message names its index only.
//! A resource is stated again if its demand has changed, if its lease was cut, if it was left out of an answer, or if its
//! last answer did not count, as one that came after the end of the lease that the message named (rule 6). So a renewal
//! always stands for a request that names the newest lease, with nothing in use beyond it.
//!
//! Messages are requests like others: one is in flight at a time. If its answer does not come, the stream is given up,
//! and everything is stated on another, or by GetCapacity if the server or a proxy does not pass streams.

use std::{collections::BTreeMap, ops::Range, sync::Arc};

use leaseway_core::{
    planted::{self, Fault},
    types::Millis,
};

use super::{InFlight, NOT_BEFORE_ANSWER, RequestKind, Session, usable_length};
use crate::session::{
    lease::Capacity,
    messages::{Demand, GrantedLease, StreamReply, StreamRequest},
    pace::MIN_REQUEST_GAP,
    resource_state::{ResourceState, StreamPlace},
};

/// How long no stream to a server is opened after one could not be. Doubles while that goes on.
const PAUSE_FIRST: Millis = Millis::from_secs(10);
const PAUSE_MAX: Millis = Millis::from_secs(600);
/// Resources join a message of others if they are due within this part of their refresh interval: jitter spreads
/// refreshes over a tenth of it.
const JOINS_PART: u64 = 5;
/// Renewals in one message. If all of them needed a round, the server would still answer in time, with a message of less
/// than four megabytes.
const MAX_RENEWED: usize = 20_000;
/// A stream with more indexes of resources that are gone is replaced by another.
const MAX_GONE: usize = 1_000;
/// Servers that accept streams. The peers of a node are fewer.
const MAX_OFFERS: usize = 64;

#[derive(Debug, Default)]
pub(super) struct RenewalStream {
    /// The servers that accept streams.
    offers: BTreeMap<Arc<str>, Offer>,
    open: Option<OpenStream>,
    /// The number of the last stream.
    last: u64,
}

#[derive(Debug, Default)]
struct Offer {
    /// The minimum number of resources to use a stream.
    resources: usize,
    /// No stream to this server is opened before.
    paused_until: Millis,
    /// The last pause; `None` after an answer on a stream.
    pause: Option<Millis>,
}

#[derive(Debug)]
struct OpenStream {
    number: u64,
    target: Arc<str>,
    /// The number of the next message.
    next: u64,
    /// The resources, by index.
    ids: Vec<Arc<str>>,
}

impl RenewalStream {
    /// Gives up the stream, if there is one.
    pub(super) fn give_up(&mut self) {
        self.open = None;
    }

    fn is_open_to(&self, server: &Arc<str>) -> bool {
        self.open.as_ref().is_some_and(|open| open.target == *server)
    }

    /// Opens no stream to this server for a while.
    fn pause(&mut self, now: Millis, server: &Arc<str>, least: Millis) {
        let Some(offer) = self.offers.get_mut(server) else { return };
        let pause = offer.pause.map_or(least, |pause| pause.plus(pause).max(least)).min(PAUSE_MAX);
        offer.pause = Some(pause);
        offer.paused_until = now.plus(pause);
    }
}

impl<D: Demand> Session<D> {
    /// Reports whether `server` accepts streams of renewals. One is used from `resources` resources on.
    pub fn offer_stream(&mut self, server: &Arc<str>, resources: Option<usize>) {
        let offers = &mut self.stream.offers;
        match resources {
            Some(_) if offers.len() >= MAX_OFFERS && !offers.contains_key(server) => {}
            Some(resources) => offers.entry(Arc::clone(server)).or_default().resources = resources,
            None => _ = offers.remove(server),
        }
    }

    /// The number of the stream on which leases are renewed at present.
    pub fn stream(&self) -> Option<u64> {
        self.stream.open.as_ref().map(|open| open.number)
    }

    /// Whether to ask on a stream.
    pub(super) fn uses_stream(&self, now: Millis) -> bool {
        let target = self.route.target();
        self.stream.offers.get(target).is_some_and(|offer| {
            self.entries.len() >= offer.resources && (self.stream.is_open_to(target) || offer.paused_until <= now)
        })
    }

    /// The next message, which is request `number`, with the ids of the resources that it states.
    pub(super) fn stream_request(&mut self, now: Millis, number: u64) -> Option<(StreamRequest<D>, Vec<Arc<str>>)> {
        if self.first_due() > now || !self.may_ask(now) {
            return None;
        }
        let open =
            self.stream.open.take().filter(|open| {
                open.target == *self.route.target() && open.ids.len() <= 2 * self.entries.len() + MAX_GONE
            });
        let mut open = open.unwrap_or_else(|| {
            self.stream.last += 1;
            let (number, target) = (self.stream.last, Arc::clone(self.route.target()));
            OpenStream { number, target, next: 1, ids: Vec::new() }
        });
        let renewed = self.renew_due(&open, now, number);
        let stated = self.to_state(&open, now);
        let stated: Vec<_> = stated
            .into_iter()
            .filter_map(|id| {
                let ask = self.ask(&id, now)?;
                let place = &mut self.entries.get_mut(&id)?.place;
                let index = match place {
                    Some(place) if place.stream == open.number => place.index,
                    _ => {
                        open.ids.push(Arc::clone(&id));
                        open.ids.len() as u32 - 1
                    }
                };
                *place = Some(StreamPlace { stream: open.number, index, is_known: false });
                Some((index, ask))
            })
            .collect();
        let ids = stated.iter().map(|(_, ask)| Arc::clone(&ask.id)).collect();
        let request = StreamRequest { stream: open.number, sequence: open.next, stated, renewed };
        self.stream.open = Some(open);
        let is_empty = request.stated.is_empty() && request.renewed.is_empty();
        (!is_empty).then_some((request, ids))
    }

    /// The resources that the next message states. Update their demands first.
    pub fn next_stated(&self, now: Millis) -> Vec<Arc<str>> {
        self.stream.open.as_ref().map(|open| self.to_state(open, now)).unwrap_or_default()
    }

    /// Makes the renewable resources that are due part of request `number`. Returns their indexes.
    fn renew_due(&mut self, open: &OpenStream, now: Millis, number: u64) -> Vec<Range<u32>> {
        let mut indexes = vec![false; open.ids.len()];
        let is_due = |entry: &&mut ResourceState<D>| entry.joins(now) && entry.is_renewable(open.number, now);
        for entry in self.entries.values_mut().filter(is_due).take(MAX_RENEWED) {
            let Some(place) = entry.place else { continue };
            indexes[place.index as usize] = true;
            entry.named_until = entry.lease.filter(|lease| lease.is_live(now)).map(|lease| lease.end);
            entry.renewed_by = number;
            self.first_due.remove(entry.due);
            entry.due = NOT_BEFORE_ANSWER;
        }
        let mut renewed: Vec<Range<u32>> = Vec::new();
        for index in (0..indexes.len() as u32).filter(|index| indexes[*index as usize]) {
            match renewed.last_mut() {
                Some(range) if range.end == index => range.end += 1,
                _ => renewed.push(index..index + 1),
            }
        }
        renewed
    }

    /// The resources to state: those that are due and not renewable. At most as many as in a request, those first that
    /// are due first.
    fn to_state(&self, open: &OpenStream, now: Millis) -> Vec<Arc<str>> {
        let is_stated = |entry: &ResourceState<D>| entry.joins(now) && !entry.is_renewable(open.number, now);
        let due = self.entries.iter().filter(|(_, entry)| is_stated(entry));
        self.earliest(due.map(|(id, entry)| (entry.due, id)).collect())
    }

    /// Reports the answer of the master to request `number`, which was a message on a stream. Returns whether it still
    /// counts.
    pub fn stream_answered(&mut self, now: Millis, number: u64, reply: StreamReply) -> bool {
        let Some(in_flight) = self.take_in_flight(number).filter(|in_flight| in_flight.kind == RequestKind::Stream)
        else {
            return false;
        };
        self.route.succeeded();
        let Some(mut open) = self.stream.open.take() else { return false };
        if reply.restart {
            if open.next == 1 {
                // A server that does not even accept the first message would be asked again and again.
                self.stream.pause(now, &open.target, PAUSE_FIRST);
            }
            self.retry_stream(&in_flight, now);
            return true;
        }
        self.failures = 0;
        if let Some(offer) = self.stream.offers.get_mut(&open.target) {
            offer.pause = None;
        }
        if !self.may_ask(now) {
            self.retry_stream(&in_flight, now);
            return false;
        }
        open.next += 1;
        for (index, given) in reply.granted {
            let Some(id) = open.ids.get(index as usize) else { continue };
            if !self.is_asked_by(&in_flight, id) {
                // The server takes it for the newest lease now. The next message states the one that is held.
                self.note_answer(id, false);
                continue;
            }
            let given = GrantedLease { id: Arc::clone(id), ..given };
            let before = self.lease(now, id).map_or(Capacity::NONE, |lease| lease.capacity);
            let is_taken = self.store_lease(now, in_flight.sent, &given) && given.token.is_some();
            // After a cut, more may be in use than the lease allows. A renewal cannot say so.
            let is_cut = Capacity::of(given.wire.capacity) < before;
            self.note_answer(id, is_taken && !is_cut);
        }
        for index in reply.left_out {
            let Some(id) = open.ids.get(index as usize) else { continue };
            if planted::is(Fault::RenewsWhatItLacks) {
                self.entries.get_mut(id).into_iter().for_each(|entry| entry.renewed_by = number);
                continue;
            }
            self.note_answer(id, false);
            self.keep_lease(now, id);
        }
        for id in &in_flight.ids {
            self.keep_lease(now, id);
        }
        self.extend_leases(now, &in_flight, reply.unix);
        self.stream.open = Some(open);
        true
    }

    /// Whether a message states or renews a resource.
    fn is_asked_by(&self, message: &InFlight, id: &Arc<str>) -> bool {
        let entry = self.entries.get(id).or_else(|| self.leaving.get(id));
        message.concerns(id) || entry.is_some_and(|entry| entry.renewed_by == message.number)
    }

    fn note_answer(&mut self, id: &Arc<str>, is_known: bool) {
        if let Some(entry) = self.entries.get_mut(id) {
            entry.renewed_by = 0;
            entry.place.iter_mut().for_each(|place| place.is_known = is_known);
        }
    }

    /// Extends the leases that the answer to this request does not list.
    fn extend_leases(&mut self, now: Millis, in_flight: &InFlight, unix: i64) {
        let soon = self.earliest_request(now);
        for entry in self.entries.values_mut().filter(|entry| entry.renewed_by == in_flight.number) {
            entry.renewed_by = 0;
            let Some(lease) = &mut entry.lease else { continue };
            if entry.named_until.is_some_and(|end| end <= now) && !planted::is(Fault::AnswerAfterEnd) {
                // See `store_lease`.
                entry.place.iter_mut().for_each(|place| place.is_known = false);
                entry.schedule(soon);
                self.first_due.insert(entry.due);
                continue;
            }
            self.first_end.remove(lease.end);
            lease.end = in_flight.sent.plus(usable_length(entry.length, entry.demand.tail()));
            lease.wire.expiry_time = unix.saturating_add((entry.length.0 / 1000) as i64);
            self.first_end.insert(lease.end);
            let refresh = self.pace.refresh(lease.refresh, lease.end.since(now), &mut self.rng);
            entry.failed = false;
            entry.schedule(now.plus(refresh));
            self.first_due.insert(entry.due);
        }
    }

    /// Makes all resources of a message due at once, and gives up the stream.
    pub(super) fn retry_stream(&mut self, in_flight: &InFlight, now: Millis) {
        self.stream.give_up();
        self.retry_now(in_flight, now);
        self.each_renewed(in_flight.number, |entry| entry.schedule(now));
        self.first_due.invalidate();
    }

    /// Handles the failure of a message: the stream is given up. If it was the first message, no other stream to this
    /// server is opened for a while.
    pub(super) fn stream_failed(&mut self, now: Millis, in_flight: &InFlight) {
        if let Some(open) = self.stream.open.take().filter(|open| open.next == 1) {
            self.stream.pause(now, &open.target, PAUSE_FIRST);
        }
        self.each_renewed(in_flight.number, |entry| {
            entry.failed = true;
            entry.schedule(now);
        });
        self.first_due.invalidate();
    }

    fn each_renewed(&mut self, number: u64, mut change: impl FnMut(&mut ResourceState<D>)) {
        for entry in self.entries.values_mut().filter(|entry| entry.renewed_by == number) {
            entry.renewed_by = 0;
            change(entry);
        }
    }

    /// Reports that the server, or a proxy before it, does not know streams. Request `number` is sent again by
    /// GetCapacity, at once. Returns whether the failure still counts.
    pub fn stream_refused(&mut self, now: Millis, number: u64) -> bool {
        let Some(in_flight) = self.take_in_flight(number) else { return false };
        self.stream.pause(now, self.route.target(), PAUSE_MAX);
        self.retry_stream(&in_flight, now);
        true
    }

    /// Schedules the refresh of a resource that was left out of an answer, whose lease stays unchanged.
    pub(super) fn keep_lease(&mut self, now: Millis, id: &Arc<str>) {
        let Some(entry) = self.entries.get_mut(id).filter(|entry| entry.due == NOT_BEFORE_ANSWER) else { return };
        entry.schedule(now.plus(match entry.lease {
            Some(lease) => self.pace.refresh(lease.refresh, lease.end.since(now), &mut self.rng),
            None => self.pace.refresh_min.max(MIN_REQUEST_GAP),
        }));
        self.first_due.insert(entry.due);
    }
}

impl<D: Demand> ResourceState<D> {
    /// Whether it is due, or soon enough to join a message of others. In a steady state all resources are, once per
    /// refresh interval. If one is due early, as after a cut or a hint, it does not renew all others.
    pub(super) fn joins(&self, now: Millis) -> bool {
        let ahead = self.lease.map_or(Millis(0), |lease| Millis(lease.refresh.0 / JOINS_PART));
        self.due != NOT_BEFORE_ANSWER && self.due <= now.plus(ahead) && self.not_before <= now
    }

    /// Whether its index on this stream stands for a request that names its lease and its demand.
    fn is_renewable(&self, stream: u64, now: Millis) -> bool {
        let Some(place) = self.place.filter(|place| place.stream == stream) else { return false };
        // What a client has spent of a budget is part of each request.
        place.is_known
            && self.demand.spent().is_none()
            && self.lease.is_some_and(|lease| lease.is_live(now))
            && self.asked.as_ref().is_some_and(|asked| self.demand.is_same(asked))
    }
}
