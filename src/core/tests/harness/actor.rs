//! Holders that follow the protocol.

use std::sync::Arc;

use super::{EPOCH, ask, has};
use crate::{
    lease::holder::ShownLease,
    pool::{PoolFields, Usage},
    resource::{Ask, Lease},
    types::{Amount, Claims, HolderKind, Millis},
};

/// How holders treat tokens.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) enum Echo {
    /// Names its lease by the token, and ignores answers that arrive after the end of the named lease.
    Token,
    /// Echoes the token without understanding it, as libraries do that preserve unknown fields.
    Unknowing,
    /// Drops the token.
    Plain,
    /// Never reports its lease.
    Never,
}

/// A client, or a child node with clients of its own.
#[derive(Debug, Clone)]
pub(crate) struct Actor {
    pub(crate) id: Arc<str>,
    pub(crate) kind: HolderKind,
    pub(crate) echo: Echo,
    pub(crate) claims: Claims,
    pub(crate) lease: Option<(Lease, Millis)>,
    /// Child nodes: for each lease of the node, the amount that its clients may still use, and until when.
    pub(super) below: Vec<(Amount, Millis)>,
    pub(super) sent: u64,
    /// The number of the newest answered request.
    pub(super) answered: u64,
    pub(super) lives: u32,
    /// In a pool: the account of a free client, and the usage that it reports (fraction of capacity, and cost).
    pub(crate) account: Option<Arc<str>>,
    pub(crate) usage: Option<(f64, f64)>,
}

impl Actor {
    pub(crate) fn new(n: usize, kind: HolderKind, echo: Echo, claims: Claims) -> Actor {
        let id = format!("holder-{n}").into();
        Actor {
            id,
            kind,
            echo,
            claims,
            lease: None,
            below: Vec::new(),
            sent: 0,
            answered: 0,
            lives: 0,
            account: None,
            usage: None,
        }
    }

    /// The capacity that the holder, or any client below it, may be using.
    pub(super) fn believes(&self, now: Millis) -> Amount {
        let own = self.lease.filter(|(_, end)| now < *end).map_or(Amount::ZERO, |(lease, _)| lease.capacity);
        own.max(self.outstanding(now))
    }

    fn outstanding(&self, now: Millis) -> Amount {
        let live = self.below.iter().filter(|(_, end)| now < *end);
        live.fold(Amount::ZERO, |most, (amount, _)| most.max(*amount))
    }

    /// The end of the lease that its next request would name.
    pub(super) fn names_until(&self, now: Millis) -> Option<Millis> {
        self.lease.filter(|(_, end)| now < *end && self.echo == Echo::Token).map(|(_, end)| end)
    }

    pub(super) fn request(&mut self, now: Millis) -> Ask {
        self.sent += 1;
        let lease = self.lease.filter(|(_, end)| now < *end).map(|(lease, _)| lease);
        let live = match self.echo {
            Echo::Token | Echo::Unknowing => lease.map(|lease| has(&lease)),
            Echo::Plain => lease.map(|lease| ShownLease { token: None, ..has(&lease) }),
            Echo::Never => None,
        };
        let had = self.lease.filter(|_| live.is_none() && self.echo == Echo::Token).map(|(lease, _)| has(&lease));
        let outstanding = Some(self.outstanding(now));
        let (kind, claims, drops_late) = (self.kind, self.claims.clone(), self.echo == Echo::Token);
        let pool_fields = self.usage.map(|(recharging, cost)| {
            let usage = Usage { recharging, request_cost: Amount::clamped(cost), interval: None };
            Box::new(PoolFields { key: self.account.clone(), usage: Some(usage) })
        });
        Ask { kind, claims, had, drops_late, outstanding, pool_fields, ..ask(&self.id, 0.0, live) }
    }

    pub(super) fn receive(&mut self, lease: Lease, sent_at: Millis, now: Millis) {
        let end = end_at_holder(&lease, sent_at);
        if end <= now {
            return;
        }
        if self.kind == HolderKind::Node {
            // Clients of the node learn of a cut when they refresh.
            self.below.push((lease.capacity, end));
        }
        self.lease = Some((lease, end));
    }
}

/// The worst case of an honest holder: its clock is slow by a thousandth, and it rounds up to whole seconds.
pub(super) fn end_at_holder(lease: &Lease, sent_at: Millis) -> Millis {
    let counted = sent_at.plus(lease.length).plus(Millis(lease.length.0 / 1000));
    let by_the_clock = Millis(((lease.expiry_time - EPOCH) as u64 + 1) * 1000 - 1);
    counted.max(by_the_clock)
}
