//! The packed form of a ledger with few holders: the records alone. Sums, table and queue follow from them. Change
//! counters start again, because only watch lists and rotations compare them.

use super::{HolderMode, Ledger, NOT_QUEUED, TableEntry, records::Records};
use crate::{
    lease::ledger::Holder,
    types::{Principal, Sum, Token, further},
};

/// Maximum number of records of a packed ledger: two holders, and the inherited leases.
const MAX_PACKED: usize = 3;

pub(crate) struct PackedLedger {
    holders: Box<[Option<Holder>]>,
    principals: [Principal; MAX_PACKED],
    lapsed: Option<Token>,
}

impl Ledger {
    /// Whether it can be packed: it has few records, and they are in the first slots.
    pub(crate) fn can_pack(&self) -> bool {
        self.slot_deltas.is_empty() && self.holders.are_first(MAX_PACKED)
    }

    pub(crate) fn pack(self) -> PackedLedger {
        let mut principals = [Principal::NONE; MAX_PACKED];
        principals.iter_mut().zip(&self.principals).for_each(|(packed, principal)| *packed = *principal);
        let Ledger { holders, lapsed, .. } = self;
        PackedLedger { holders: holders.into_boxed(), principals, lapsed }
    }

    /// The reverse of [`pack`](Self::pack). `inherited`: the slot of the record that stands for unclaimed inherited
    /// leases, and their amount.
    pub(crate) fn unpack(packed: PackedLedger, inherited: Option<(u32, Sum)>, seed: u64) -> Ledger {
        let PackedLedger { holders, principals, lapsed } = packed;
        let count = holders.len();
        let mut ledger = Ledger { inherited, lapsed, ..Ledger::new(seed) };
        ledger.holders = Records::from_boxed(holders);
        if principals != [Principal::NONE; MAX_PACKED] {
            ledger.principals.extend_from_slice(&principals[..count]);
        }
        (0..count as u32).for_each(|slot| ledger.index(slot));
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
