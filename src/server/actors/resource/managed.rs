//! A resource in the hands of whoever manages it: what was said about it before this life of it is in force from its
//! first request on, what happens in its pool is told, and operators look at it and change it between two rounds.

use std::{net::IpAddr, sync::Arc};

use leaseway_core::{FreeKey, Kind, LoadReport, Millis, Request, Resource};

use super::{living::Living, noting::Noting};
use crate::{metrics, subscribers::Subscribers, vouched::Vouched};

/// Something to be done with a resource, by an operator.
pub(in super::super) type Work = Box<dyn FnOnce(&mut Resource, Millis) + Send>;

/// What a resource has to do with those who manage it.
pub(in super::super) struct Managed {
    vouched: Vouched,
    subscribers: Arc<Subscribers>,
    /// Where it says what is to be remembered, if that is kept.
    pub(super) noting: Option<Noting>,
    /// It is a pool, and knows who is vouched for.
    knows: bool,
    /// As far as metrics have been told.
    overloads: u64,
}

impl Managed {
    pub(in super::super) fn new(vouched: Vouched, subscribers: Arc<Subscribers>, noting: Option<Noting>) -> Managed {
        Managed { vouched, subscribers, noting, knows: false, overloads: 0 }
    }

    pub(super) fn is_pool(&self) -> bool {
        self.knows
    }

    /// In a pool that keeps the balances of strangers by where they come from, a request says where that is.
    pub(super) fn note_origin(&self, core: &Resource, request: &mut Request, from: Option<IpAddr>) {
        let by_address = || core.settings().pool.free_key == FreeKey::PeerIp;
        if let (Some(from), true, Request::Ask(ask) | Request::Renew(ask)) = (from, self.knows && by_address(), request)
        {
            let news = ask.news.get_or_insert_default();
            news.key = Some(from.to_canonical().to_string().into());
        }
    }
}

impl Living {
    /// Whenever the settings may have changed: what was said counts, as far as they allow it.
    pub(super) fn remember_what_was_said(&mut self, now: Millis) {
        let is_pool = self.core.settings().kind == Kind::PriorityPool;
        let knew = std::mem::replace(&mut self.managed.knows, is_pool);
        if is_pool && !knew {
            self.managed.overloads = 0;
            self.core.remember_assignments(self.managed.vouched.assignments(&self.id));
            if self.managed.noting.is_some() {
                self.core.keep_notes();
            }
            if let Some(notes) = self.managed.vouched.pool(&self.id, now) {
                self.core.recall(now, notes);
            }
        }
        if let Some(load) = self.managed.vouched.load_of(&self.id) {
            let report = LoadReport { load, until: None };
            if let Err(error) = self.core.report_load(now, report) {
                // It was possible when it was said; the template has changed since.
                tracing::warn!(resource = %self.id, %error, "a reported load does not count any more");
            }
        }
    }

    /// An operator looks or changes something. If nobody may decide now, whoever waits for it is told by its being
    /// dropped.
    pub(super) fn manage(&mut self, work: Work) {
        let now = self.clock.at();
        if !self.reigns(now) {
            return;
        }
        self.remember();
        work(&mut self.core, now);
        // Nobody waits for what this changes about promises: it grants nothing.
        let _ = self.write(now);
        self.tell_subscribers();
        self.hinting.after_tick(&mut self.core, now);
        self.ask_early();
    }

    /// What has happened in the pool, to everybody who listens.
    pub(super) fn tell_subscribers(&mut self) {
        if !self.managed.knows {
            return;
        }
        self.managed.subscribers.tell(&self.id, &self.core.take_pool_events());
        if let Some(pool) = self.core.pool() {
            metrics::pool_overloaded(pool.overloads.saturating_sub(self.managed.overloads));
            self.managed.overloads = pool.overloads;
        }
    }
}
