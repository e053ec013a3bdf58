//! Simulated clients. Their decisions are made by the code of the real client library, or by [`legacy`], which behaves
//! like the original Doorman client.

pub(crate) mod envoy;
pub(crate) mod legacy;
pub(crate) mod limiter;
pub(crate) mod spender;
pub(crate) mod usage;

use std::sync::Arc;

use leaseway_client::session::{GrantedLease, Mode, Outgoing, Session, StreamReply, Wants as Asked};
use leaseway_core::{
    resource::invariant::Violation,
    types::{Amount, Millis},
};

use crate::{
    client::{
        envoy::EnvoyClient,
        legacy::LegacyClient,
        limiter::{LimiterClient, leased},
        spender::Spender,
        usage::UsagePattern,
    },
    scenario::ClientKind,
};

/// A client, or its replacement.
pub(crate) struct Client {
    pub(crate) machine: ClientMachine,
    pub(crate) kind: ClientKind,
    pub(crate) name: Arc<str>,
    /// The number of names it has had before. A replacement gets a new name.
    pub(crate) names: u32,
    /// The number of starts, under any name.
    pub(crate) incarnation: u32,
    pub(crate) wants: Amount,
    /// False after it has left, until it returns.
    pub(crate) is_here: bool,
    /// The capacity that it believes it may use.
    pub(crate) believes: Amount,
    /// The pattern of its usage. `None` if it reports no usage.
    pub(crate) usage_pattern: Option<UsagePattern>,
    /// Of a budget: what it has spent.
    pub(crate) spender: Option<Box<Spender>>,
    /// Its next scheduled wake-up.
    pub(crate) woken_at: Option<Millis>,
    pub(crate) cut_until: Millis,
    /// Its arrival, if that was after a failover. Cleared once it has its due.
    pub(crate) waits_since: Option<Millis>,
}

pub(crate) enum ClientMachine {
    Session(Box<Session<Asked>>),
    Legacy(Box<LegacyClient>),
    Envoy(Box<EnvoyClient>),
    Limiter(Box<LimiterClient>),
}

impl ClientMachine {
    pub(crate) fn want(&mut self, now: Millis, resource: &Arc<str>, asked: Asked) {
        match self {
            ClientMachine::Session(session) => {
                session.want(now, resource, asked, Mode::Pessimistic);
            }
            ClientMachine::Legacy(legacy) => legacy.want(now, asked),
            ClientMachine::Envoy(envoy) => envoy.offer(now, asked.amount),
            ClientMachine::Limiter(limiter) => limiter.offer(now, asked),
        }
    }

    pub(crate) fn release(&mut self, now: Millis, resource: &str) {
        match self {
            ClientMachine::Session(session) => session.release(resource),
            ClientMachine::Legacy(legacy) => legacy.release(now),
            ClientMachine::Envoy(envoy) => envoy.end(now),
            ClientMachine::Limiter(limiter) => limiter.close(now),
        }
    }

    pub(crate) fn hint(&mut self, now: Millis, resource: &str) {
        match self {
            ClientMachine::Session(session) => session.hint(now, resource),
            ClientMachine::Envoy(envoy) => envoy.hint(now, resource),
            ClientMachine::Limiter(limiter) => limiter.tell(now, |session| session.hint(now, resource)),
            ClientMachine::Legacy(_) => {}
        }
    }

    pub(crate) fn poll(&mut self, now: Millis) -> Option<Outgoing<Asked>> {
        match self {
            ClientMachine::Session(session) => session.poll(now),
            ClientMachine::Legacy(legacy) => legacy.poll(now),
            ClientMachine::Envoy(envoy) => envoy.poll(now),
            ClientMachine::Limiter(limiter) => limiter.poll(now),
        }
    }

    /// `end` is the expiry that is written in the lease.
    pub(crate) fn answered(&mut self, now: Millis, number: u64, given: Option<GrantedLease>, end: Millis) {
        if let ClientMachine::Legacy(legacy) = self {
            return legacy.answered(now, number, given.map(|given| (given, end)));
        }
        self.with_session(now, number, |session, number| {
            session.answered(now, number, given.into_iter().collect());
        });
    }

    /// Lets a client of this kind renew its lease by a stream. All servers accept streams.
    pub(crate) fn offer_stream(&mut self) {
        if let ClientMachine::Session(session) = self {
            let server = Arc::clone(session.target());
            session.offer_stream(&server, Some(1));
        }
    }

    pub(crate) fn stream_answered(&mut self, now: Millis, number: u64, reply: StreamReply) {
        self.with_session(now, number, |session, number| {
            session.stream_answered(now, number, reply);
        });
    }

    pub(crate) fn redirected(&mut self, now: Millis, number: u64, master: Option<&str>) {
        if let ClientMachine::Legacy(legacy) = self {
            return legacy.redirected(now, number, master);
        }
        self.with_session(now, number, |session, number| {
            session.redirected(now, number, master);
        });
    }

    /// Calls the session that sent a request, if it still exists, with the number of the request in that session.
    fn with_session(&mut self, now: Millis, number: u64, call: impl FnOnce(&mut Session<Asked>, u64)) {
        match self {
            ClientMachine::Session(session) => call(session, number),
            ClientMachine::Envoy(envoy) => {
                if let Some((session, number)) = envoy.session_of(number) {
                    call(session, number);
                }
            }
            ClientMachine::Limiter(limiter) => limiter.tell(now, |session| call(session, number)),
            ClientMachine::Legacy(_) => {}
        }
    }

    pub(crate) fn wake(&self, now: Millis) -> Option<Millis> {
        match self {
            ClientMachine::Session(session) => session.wake(now),
            ClientMachine::Legacy(legacy) => legacy.wake(now),
            ClientMachine::Envoy(envoy) => envoy.wake(now),
            ClientMachine::Limiter(limiter) => limiter.wake(now),
        }
    }

    /// Ends the faults inside the client: the delays of an Envoy's reports.
    pub(crate) fn heal(&mut self) {
        if let ClientMachine::Envoy(envoy) = self {
            envoy.heal();
        }
    }

    pub(crate) fn usable(&mut self, now: Millis) -> Option<Amount> {
        let leased = match self {
            ClientMachine::Session(session) => {
                let mut usable = None;
                session.changes(now, |_, changed| usable = Some(changed));
                leased(usable?)
            }
            ClientMachine::Legacy(legacy) => legacy.usable(now),
            ClientMachine::Envoy(envoy) => envoy.believed(now),
            ClientMachine::Limiter(limiter) => leased(limiter.changed(now)?),
        };
        Some(Amount::clamped(leased))
    }
}

impl Client {
    /// Its demand now; 0 while it is away.
    pub(crate) fn wants(&self) -> Amount {
        if self.is_here { self.wants } else { Amount::ZERO }
    }

    /// The wants in its requests. For an Envoy the gateway derives them from reports; a limiter estimates them.
    pub(crate) fn asks_for(&self) -> Amount {
        match &self.machine {
            ClientMachine::Envoy(envoy) => Amount::clamped(envoy.wanted()),
            ClientMachine::Limiter(limiter) => Amount::clamped(limiter.wanted()),
            ClientMachine::Session(_) | ClientMachine::Legacy(_) => self.wants(),
        }
    }

    /// Takes the first violation of an invariant by its limiter, if any.
    pub(crate) fn take_broken(&mut self) -> Option<Violation> {
        match &mut self.machine {
            ClientMachine::Limiter(limiter) => limiter.take_broken(),
            ClientMachine::Session(_) | ClientMachine::Legacy(_) | ClientMachine::Envoy(_) => None,
        }
    }

    /// Its usage now. A client that does not report usage uses its whole capacity.
    pub(crate) fn uses(&self) -> Amount {
        if self.usage_pattern.as_ref().is_none_or(UsagePattern::is_busy) { self.believes } else { Amount::ZERO }
    }
}
