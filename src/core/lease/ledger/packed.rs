//! The packed form of a ledger with few holders: the records alone. Sums, table and queue follow from them. Change
//! counters start again, because only watch lists and rotations compare them.

use std::num::NonZeroU32;

use super::{Asked, HolderMode, Ledger, NOT_QUEUED, TableEntry, bucket_of, records::Records};
use crate::{
    lease::ledger::{BUCKET_MS, Holder},
    types::{HolderKind, Millis, Principal, Sum, Token, further},
};

/// Maximum number of records of a packed ledger: eight holders, and the inherited leases. With more, a resource would
/// take long to unpack.
const MAX_PACKED: usize = 9;

#[expect(clippy::box_collection, reason = "few resources have holders of several principals")]
pub(crate) struct PackedLedger {
    holders: Box<[Option<Holder>]>,
    /// The principal of all records, if it is the same.
    principal: Principal,
    /// The principal of each record, if they differ.
    principals: Option<Box<Vec<Principal>>>,
    lapsed: Option<Token>,
}

/// The echo of a client's lease, and the lease that would answer it.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Echo<'a> {
    pub(crate) client: &'a str,
    pub(crate) token: Token,
    pub(crate) now: Millis,
    /// The refresh interval of an ordinary answer. A holder with another one waits, or is waited for.
    pub(crate) interval: NonZeroU32,
    /// When the lease would certainly have ended at its holder.
    pub(crate) end: Millis,
    /// The same, in Unix seconds, as sent to the holder.
    pub(crate) expiry_time: i64,
}

impl PackedLedger {
    /// Moves the end of the echoed lease, if nothing else changes ([`Leases::renew`]). Returns whether it was moved.
    ///
    /// The record moves in the expiry queue, too. It would not have to, but then its tick would unpack the resource
    /// once per lease length.
    ///
    /// [`Leases::renew`]: crate::lease::holder::Leases::renew
    pub(crate) fn renew(&mut self, echo: &Echo<'_>) -> bool {
        let is_sender = |holder: &&mut Holder| holder.kind == HolderKind::Client && *holder.id == *echo.client;
        let Some(holder) = self.holders.iter_mut().flatten().find(is_sender) else { return false };
        let Some(asked) = holder.asked.filter(|asked| asked.interval == echo.interval) else { return false };
        if !holder.leases.renew(echo.token, echo.now, echo.end, echo.expiry_time) {
            return false;
        }
        holder.asked = Some(Asked { at: echo.now, ..asked });
        holder.bucket = bucket_of(echo.end);
        true
    }

    /// The newest lease that has ended, and was neither renewed nor given back.
    pub(crate) fn lapsed(&self) -> Option<Token> {
        self.lapsed
    }

    /// When a record next has to be visited.
    pub(crate) fn next_expiry(&self) -> Option<Millis> {
        let first = self.holders.iter().flatten().map(|holder| holder.bucket).min();
        first.filter(|bucket| *bucket != NOT_QUEUED).map(|bucket| Millis(u64::from(bucket) * BUCKET_MS))
    }
}

impl Ledger {
    /// Whether it can be packed: it has few records, in the first slots.
    pub(crate) fn can_pack(&self) -> bool {
        self.slot_deltas.is_empty() && self.holders.fits_in(MAX_PACKED)
    }

    pub(crate) fn pack(self) -> PackedLedger {
        let Ledger { holders, principals, lapsed, .. } = self;
        let principal = principals.first().copied().unwrap_or_default();
        let differ = principals.iter().any(|other| *other != principal) || principals.len() != holders.end();
        let principals = (differ && !principals.is_empty()).then(|| Box::new(principals));
        PackedLedger { holders: holders.into_boxed(), principal, principals, lapsed }
    }

    /// The reverse of [`pack`](Self::pack). `inherited`: the slot of the record that stands for unclaimed inherited
    /// leases, and their amount.
    pub(crate) fn unpack(packed: PackedLedger, inherited: Option<(u32, Sum)>, seed: u64) -> Ledger {
        let PackedLedger { holders, principal, principals, lapsed } = packed;
        let count = holders.len();
        let mut ledger = Ledger { inherited, lapsed, ..Ledger::new(seed) };
        ledger.holders = Records::from_boxed(holders);
        ledger.principals = match principals {
            Some(principals) => *principals,
            None if principal == Principal::NONE => Vec::new(),
            None => vec![principal; count],
        };
        for slot in 0..count as u32 {
            if ledger.holders.get(slot).is_some() {
                ledger.index(slot);
            }
        }
        ledger.sums.held += inherited.map_or(Sum::ZERO, |(_, unclaimed)| unclaimed);
        ledger
    }

    /// Adds a record that has its slot to the sums, the table and the queue.
    fn index(&mut self, slot: u32) {
        let holder = &self.holders[slot];
        self.sums.wants += holder.wants();
        self.sums.subclients += holder.subclients();
        self.sums.held += holder.counted.held;
        self.sums.granted += holder.counted.granted;
        if holder.mode == HolderMode::Gateway {
            self.sums.gateways += 1;
            self.sums.held_by_gateways += holder.counted.held;
        }
        if self.is_inherited(slot) {
            return;
        }
        self.further_claims += further(&holder.claims);
        self.waiting += usize::from(holder.waits);
        if holder.bucket != NOT_QUEUED {
            self.queue.entry(holder.bucket).or_default().push(slot);
            self.first_bucket = self.first_bucket.min(holder.bucket);
        }
        let hash = self.hash(holder.kind, &holder.id);
        self.by_id.insert_unique(Self::spread(hash), TableEntry { hash, slot }, |entry| Self::spread(entry.hash));
    }
}
