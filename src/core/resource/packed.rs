//! The packed form of a resource: most resources have few holders, and between their requests only a fraction of the
//! state must be kept. Everything else follows from the settings and the records of the holders: sums, indexes, the
//! expiry queue, the division.
//!
//! Packing changes no decision. A resource that was packed and unpacked after every step gives the same answers as one
//! that was not; the tests of the core run in both ways.

use std::sync::Arc;

use crate::{
    allocation::{Allocation, settlement::without_dust},
    lease::{
        LeaseBook, PackedBook,
        ledger::{Holder, NOT_WATCHED, packed::Echo},
    },
    policy::settings::{AlgorithmKind, Settings},
    resource::{
        Counters, LastRound, Limits, Resource,
        names::NameOwners,
        round::interval_of,
        supply::{CapacityInputs, Source, SupplyState},
        watch_list::WatchList,
    },
    types::{Millis, Now, PrincipalShare, Token, certain_end},
};

/// A resource between requests, in few bytes.
pub struct PackedResource {
    settings: Arc<Settings>,
    book: PackedBook,
    /// Absent if no counter is used by later decisions.
    counters: Option<Box<Counters>>,
    sub_round: u32,
    /// Whether each holder has exactly its due, and confirmed it: then a request that changes nothing is answered with
    /// the same amount.
    is_settled: bool,
}

/// A client that echoes a lease, and asks for the same again.
#[derive(Debug, Clone, Copy)]
pub struct Renewal<'a> {
    pub client: &'a str,
    pub token: Token,
    /// The length that the lease was given with, and that the client counts on.
    pub length: Millis,
}

/// A lease whose end was moved. Its token, capacity, length and refresh interval are those of before.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Renewed {
    /// The end in Unix seconds.
    pub expiry_time: i64,
}

impl PackedResource {
    /// Answers a client that echoes a lease and has nothing else to say, by moving the end of that lease. `None`
    /// without effect, if an ordinary round may have another outcome: then the client has to be answered by one.
    ///
    /// This is the round that would grant the same amount, except for the token: the echo confirms the lease (rule 1),
    /// it is the only one that the client may be using, the amount is what it is due (rule 3), and the stored promises
    /// cover the new end (rule E1).
    pub fn renew(&mut self, renewal: &Renewal<'_>, now: Now) -> Option<Renewed> {
        let Renewal { client, token, length } = *renewal;
        if !self.is_settled || length != self.settings.lease {
            return None;
        }
        let renewed = Renewed { expiry_time: now.unix.saturating_add((length.0 / 1000) as i64) };
        let echo = Echo {
            client,
            token,
            now: now.at,
            interval: interval_of(self.settings.refresh_within(length)),
            end: certain_end(now.at, length),
            expiry_time: renewed.expiry_time,
        };
        self.book.renew(&echo, length).then_some(renewed)
    }

    /// When the next tick has something to do.
    pub fn next_expiry(&self) -> Option<Millis> {
        self.book.next_expiry()
    }
}

/// The state that all resources of a server have in common.
#[derive(Debug, Clone, Copy)]
pub struct PackedContext {
    pub seed: u64,
    pub max_holders: usize,
    pub place_share: PrincipalShare,
}

impl Resource {
    /// Packs the resource. Call it only if the resource [can be packed](Self::can_pack).
    pub fn pack(self) -> PackedResource {
        let is_settled = self.is_settled();
        let Resource { settings, book, counters, last_round, .. } = self;
        PackedResource {
            settings,
            book: book.pack(),
            counters: counters.are_unusual().then(|| Box::new(counters)),
            sub_round: last_round.sub_round,
            is_settled,
        }
    }

    /// See [`PackedResource`].
    fn is_settled(&self) -> bool {
        let (mut terms, ledger) = (Vec::new(), self.book.ledger());
        let mut has_due = |slot, holder: &Holder| {
            let due = self.due_now(slot, Millis(0), &mut terms);
            !holder.waits() && holder.leases.only() == Some(without_dust(due, due, self.total()))
        };
        self.book.is_quiet() && ledger.waiting() == 0 && ledger.iter_from(0).all(|(slot, holder)| has_due(slot, holder))
    }

    /// Whether it has only state that the packed form keeps: at most eight holders, no parent, override or load report,
    /// no pool, no whole units, no child nodes with names, and no hints that may be due.
    pub fn can_pack(&self, now: Millis) -> bool {
        self.book.can_pack()
            && self.pool.is_none()
            && self.budget.is_none()
            && self.settings.kind != AlgorithmKind::PriorityPool
            && self.allocation.can_pack()
            && matches!(self.supply_state, SupplyState::Own)
            && self.capacity_inputs == CapacityInputs::new(self.settings.capacity)
            && self.group_overrides.is_none()
            && self.names.is_empty()
            && self.last_round.lapsed.is_empty()
            && self.watch_list.can_pack(self.version(), now)
            && (self.watch_list.is_empty() || !self.is_learning(now))
    }

    /// The reverse of [`pack`](Self::pack).
    pub fn unpack(packed: PackedResource, context: PackedContext) -> Resource {
        let PackedResource { settings, book, counters, sub_round, is_settled: _ } = packed;
        let mut resource = Resource {
            allocation: Allocation::new(&settings, false),
            book: LeaseBook::unpack(book, context.seed),
            pool: None,
            budget: None,
            supply_state: Source::Own.into(),
            capacity_inputs: CapacityInputs::new(settings.capacity),
            group_overrides: None,
            settings,
            names: NameOwners::default(),
            watch_list: WatchList::default(),
            limits: Limits { max_holders: context.max_holders, place_share: context.place_share },
            counters: counters.map(|counters| *counters).unwrap_or_default(),
            last_round: LastRound { sub_round, ..LastRound::default() },
            settings_version: 0,
            seed: context.seed,
        };
        let mut watched = Vec::new();
        for (slot, holder) in resource.book.ledger().iter_from(0) {
            resource.allocation.insert(slot, &holder.claims);
            if holder.watch != NOT_WATCHED {
                watched.push(slot);
            }
        }
        for slot in watched {
            let position = resource.watch_list.insert(slot);
            resource.book.set_watch(slot, position);
        }
        let version = resource.version();
        resource.watch_list.end_pass(version);
        resource
    }
}

impl Counters {
    /// Whether a counter is set that is rarely set, and that later decisions or warnings use.
    fn are_unusual(&self) -> bool {
        [self.full, self.name_taken, self.share_full, self.unaccounted, self.learning_excess] != [0; 5]
    }
}
