//! Measurements of pools: how often they were overloaded, how far they were overbooked, and which clients were kicked
//! out.
//!
//! A pool learns of usage with a delay of up to a refresh interval. These measurements use the actual usage.

use leaseway_core::{
    pool::{Cause, PoolEvent, PoolEventKind, PoolReport},
    types::{Amount, HolderKind, Millis, Sum},
};
use serde::Serialize;

use crate::accounting::per_cent;

const MINUTE: u64 = 60_000;
/// Frequencies are reported per eight hours.
pub(crate) const EIGHT_HOURS: f64 = 8.0 * 3_600_000.0;

pub(crate) struct Pools {
    base: Amount,
    from: Millis,
    last: Millis,
    used: Sum,
    /// The total capacity of the clients that may be connected.
    total: Amount,
    whole: PoolIntegrals,
    overloads: u64,
    /// The incarnation of the root's master, and the number of overloads that it has reported.
    seen: (u32, u64),
    kicked: Vec<KickedOut>,
    turns: u64,
}

/// Integrals over time, in units of capacity · ms.
#[derive(Debug, Default)]
struct PoolIntegrals {
    ms: u64,
    used: f64,
    total: f64,
    over_ms: u64,
    most_used: f64,
    most_total: f64,
}

/// Clients kicked out in a minute.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct KickedOut {
    pub minute: u64,
    pub clients: u64,
}

/// Results of pools. Fractions are in percent.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub struct PoolFigures {
    /// Number of overloads that the root noticed.
    pub overloads: u64,
    /// `overloads` per eight hours.
    pub overloads_in_8_h: f64,
    /// Fraction of the time in which actual usage exceeded the capacity.
    pub overused: f64,
    /// Mean actual usage, relative to the capacity.
    pub used: f64,
    /// Peak actual usage, relative to the capacity.
    pub used_most: f64,
    /// Mean total that may be connected, relative to the capacity.
    pub total: f64,
    /// Peak of that total, relative to the capacity.
    pub total_most: f64,
    /// Clients that lost their capacity to overloads, a falling total, or priority clients.
    pub kicked_out: u64,
    /// Clients kicked out in the worst minute.
    pub kicked_out_most: u64,
    /// Clients kicked out by minute. Minutes without any are left out.
    pub kicked_out_in: Vec<KickedOut>,
    /// Clients that took turns: they lost their capacity to others that had been served less.
    pub took_turns: u64,
    /// Clients kicked out per eight hours.
    pub kicked_out_in_8_h: f64,
    /// `took_turns` per eight hours.
    pub took_turns_in_8_h: f64,
}

impl Pools {
    pub(crate) fn new(base: Amount, from: Millis) -> Pools {
        Pools {
            base,
            from,
            last: Millis(0),
            used: Sum::ZERO,
            total: base,
            whole: PoolIntegrals::default(),
            overloads: 0,
            seen: (0, 0),
            kicked: Vec::new(),
            turns: 0,
        }
    }

    pub(crate) fn uses(&mut self, now: Millis, before: Amount, after: Amount) {
        self.advance(now);
        self.used -= before;
        self.used += after;
    }

    /// Records the state of the root's pool, as this incarnation of its master reports it.
    pub(crate) fn record_report(&mut self, now: Millis, incarnation: u32, report: &PoolReport) {
        self.advance(now);
        self.total = report.total;
        let seen = if self.seen.0 == incarnation { self.seen.1 } else { 0 };
        if now >= self.from {
            self.overloads += report.overloads - seen;
        }
        self.seen = (incarnation, report.overloads);
    }

    pub(crate) fn record_event(&mut self, now: Millis, event: &PoolEvent) {
        let is_client = event.client.as_ref().is_some_and(|client| client.kind == HolderKind::Client);
        if event.kind != PoolEventKind::Disconnected || !is_client || now < self.from {
            return;
        }
        match event.cause {
            Some(Cause::Overload | Cause::Crowded | Cause::Underrun) => {
                let minute = now.0 / MINUTE;
                match self.kicked.last_mut().filter(|kicks| kicks.minute == minute) {
                    Some(kicks) => kicks.clients += 1,
                    None => self.kicked.push(KickedOut { minute, clients: 1 }),
                }
            }
            Some(Cause::Displaced) => self.turns += 1,
            _ => {}
        }
    }

    /// Integrates over the time since the last change.
    pub(crate) fn advance(&mut self, now: Millis) {
        let ms = now.since(self.last.max(self.from)).0;
        self.last = now;
        if ms == 0 {
            return;
        }
        let (used, total, whole) = (self.used.get(), self.total.get(), &mut self.whole);
        whole.ms += ms;
        whole.used += used * ms as f64;
        whole.total += total * ms as f64;
        whole.most_used = whole.most_used.max(used);
        whole.most_total = whole.most_total.max(total);
        whole.over_ms += if self.used > Sum::from(self.base) { ms } else { 0 };
    }

    pub(crate) fn now(&self) -> (f64, f64, u64) {
        (self.used.get(), self.total.get(), self.kicked_out())
    }

    fn kicked_out(&self) -> u64 {
        self.kicked.iter().map(|kicks| kicks.clients).sum()
    }

    pub(crate) fn figures(&self) -> PoolFigures {
        let (whole, base) = (&self.whole, self.base.get());
        let time = whole.ms as f64;
        let in_8_h = |count: u64| if whole.ms == 0 { 0.0 } else { count as f64 * EIGHT_HOURS / time };
        PoolFigures {
            overloads: self.overloads,
            overloads_in_8_h: in_8_h(self.overloads),
            overused: per_cent(whole.over_ms as f64, time),
            used: per_cent(whole.used, base * time),
            used_most: per_cent(whole.most_used, base),
            total: per_cent(whole.total, base * time),
            total_most: per_cent(whole.most_total, base),
            kicked_out: self.kicked_out(),
            kicked_out_most: self.kicked.iter().map(|kicks| kicks.clients).max().unwrap_or_default(),
            kicked_out_in: self.kicked.clone(),
            took_turns: self.turns,
            kicked_out_in_8_h: in_8_h(self.kicked_out()),
            took_turns_in_8_h: in_8_h(self.turns),
        }
    }
}

#[cfg(test)]
mod tests;
