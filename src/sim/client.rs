//! A client: the real session, or one of the original protocol, and what it may use.

pub(crate) mod envoy;
pub(crate) mod legacy;
pub(crate) mod limiter;
pub(crate) mod usage;

use std::sync::Arc;

use leaseway_client::session::{Given, Mode, Outgoing, Session, Wants as Asked};
use leaseway_core::{Amount, Millis, invariant::Violation};

use crate::{
    client::{
        envoy::EnvoyClient,
        legacy::LegacyClient,
        limiter::{LimiterClient, leased},
        usage::UsagePattern,
    },
    scenario::ClientKind,
};

/// One client, or the one that came in its place.
pub(crate) struct Client {
    pub(crate) machine: Machine,
    pub(crate) speaks: ClientKind,
    pub(crate) name: Arc<str>,
    /// How many names it has had.
    pub(crate) names: u32,
    /// Its processes, of whichever names.
    pub(crate) incarnation: u32,
    pub(crate) wants: Amount,
    /// Not while it has given back what it had.
    pub(crate) is_here: bool,
    /// What its book says that it may use.
    pub(crate) believes: Amount,
    /// How it uses that, if it says.
    pub(crate) usage_pattern: Option<UsagePattern>,
    /// When it will be woken next, if that is known.
    pub(crate) woken_at: Option<Millis>,
    pub(crate) cut_until: Millis,
    /// It came after a failover, and has not got what it is due since then.
    pub(crate) waits_since: Option<Millis>,
}

/// What decides when it asks, and what it takes.
pub(crate) enum Machine {
    Session(Box<Session<Asked>>),
    Legacy(Box<LegacyClient>),
    Envoy(Box<EnvoyClient>),
    Limiter(Box<LimiterClient>),
}

impl Machine {
    pub(crate) fn want(&mut self, now: Millis, resource: &Arc<str>, asked: Asked) {
        match self {
            Machine::Session(session) => {
                session.want(now, resource, asked, Mode::Pessimistic);
            }
            Machine::Legacy(legacy) => legacy.want(now, asked),
            Machine::Envoy(envoy) => envoy.offer(now, asked.amount),
            Machine::Limiter(limiter) => limiter.offer(now, asked),
        }
    }

    pub(crate) fn release(&mut self, now: Millis, resource: &str) {
        match self {
            Machine::Session(session) => session.release(resource),
            Machine::Legacy(legacy) => legacy.release(now),
            Machine::Envoy(envoy) => envoy.end(now),
            Machine::Limiter(limiter) => limiter.close(now),
        }
    }

    pub(crate) fn hint(&mut self, now: Millis, resource: &str) {
        match self {
            Machine::Session(session) => session.hint(now, resource),
            Machine::Envoy(envoy) => envoy.hint(now, resource),
            Machine::Limiter(limiter) => limiter.tell(now, |session| session.hint(now, resource)),
            Machine::Legacy(_) => {}
        }
    }

    pub(crate) fn poll(&mut self, now: Millis) -> Option<Outgoing<Asked>> {
        match self {
            Machine::Session(session) => session.poll(now),
            Machine::Legacy(legacy) => legacy.poll(now),
            Machine::Envoy(envoy) => envoy.poll(now),
            Machine::Limiter(limiter) => limiter.poll(now),
        }
    }

    /// `end` is when the lease ends that was given, as it is written there.
    pub(crate) fn answered(&mut self, now: Millis, number: u64, given: Option<Given>, end: Millis) {
        match self {
            Machine::Session(session) => {
                session.answered(now, number, given.into_iter().collect());
            }
            Machine::Envoy(envoy) => {
                if let Some((session, number)) = envoy.session_of(number) {
                    session.answered(now, number, given.into_iter().collect());
                }
            }
            Machine::Limiter(limiter) => {
                limiter.tell(now, |session| session.answered(now, number, given.into_iter().collect()));
            }
            Machine::Legacy(legacy) => legacy.answered(now, number, given.map(|given| (given, end))),
        }
    }

    pub(crate) fn redirected(&mut self, now: Millis, number: u64, master: Option<&str>) {
        match self {
            Machine::Session(session) => {
                session.redirected(now, number, master);
            }
            Machine::Envoy(envoy) => {
                if let Some((session, number)) = envoy.session_of(number) {
                    session.redirected(now, number, master);
                }
            }
            Machine::Limiter(limiter) => {
                limiter.tell(now, |session| session.redirected(now, number, master));
            }
            Machine::Legacy(legacy) => legacy.redirected(now, number, master),
        }
    }

    pub(crate) fn wake(&self, now: Millis) -> Option<Millis> {
        match self {
            Machine::Session(session) => session.wake(now),
            Machine::Legacy(legacy) => legacy.wake(now),
            Machine::Envoy(envoy) => envoy.wake(now),
            Machine::Limiter(limiter) => limiter.wake(now),
        }
    }

    /// Nothing is late any more.
    pub(crate) fn heal(&mut self) {
        if let Machine::Envoy(envoy) = self {
            envoy.heal();
        }
    }

    /// What may be used, if that is another amount than before.
    pub(crate) fn usable(&mut self, now: Millis) -> Option<Amount> {
        let leased = match self {
            Machine::Session(session) => {
                let mut usable = None;
                session.changes(now, |_, changed| usable = Some(changed));
                leased(usable?)
            }
            Machine::Legacy(legacy) => legacy.usable(now),
            Machine::Envoy(envoy) => envoy.believed(now),
            Machine::Limiter(limiter) => leased(limiter.changed(now)?),
        };
        Some(Amount::clamped(leased))
    }
}

impl Client {
    /// What it wants now; nothing while it is not here.
    pub(crate) fn wants(&self) -> Amount {
        if self.is_here { self.wants } else { Amount::ZERO }
    }

    /// What its node is asked for: of an Envoy what its gateway makes of the reports, of a limiter what it estimates.
    pub(crate) fn asks_for(&self) -> Amount {
        match &self.machine {
            Machine::Envoy(envoy) => Amount::clamped(envoy.wanted()),
            Machine::Limiter(limiter) => Amount::clamped(limiter.wanted()),
            Machine::Session(_) | Machine::Legacy(_) => self.wants(),
        }
    }

    /// A promise that its limiter did not keep.
    pub(crate) fn take_broken(&mut self) -> Option<Violation> {
        match &mut self.machine {
            Machine::Limiter(limiter) => limiter.take_broken(),
            Machine::Session(_) | Machine::Legacy(_) | Machine::Envoy(_) => None,
        }
    }

    /// What it uses now, as far as it says; one that does not say uses all it has.
    pub(crate) fn uses(&self) -> Amount {
        if self.usage_pattern.as_ref().is_none_or(UsagePattern::is_busy) { self.believes } else { Amount::ZERO }
    }
}
