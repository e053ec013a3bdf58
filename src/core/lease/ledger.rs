//! The records of one resource's holders: what each holds and wants, the sums over all of them, and when each record
//! expires.
//!
//! Each operation costs the same with ten holders as with a million. The sums are exact ([`Sum`]). Expiry is lazy: a
//! record waits in the bucket of the earliest moment at which what it holds may fall. Refreshing its lease does not
//! move it. When the time of the bucket comes, a record that was refreshed moves to the bucket where it now belongs. So
//! a refresh costs nothing, and each record is visited about once per lease length.

mod labels;
pub(crate) mod packed;
mod records;

use std::{
    collections::BTreeMap,
    hash::{BuildHasher, Hasher},
    num::NonZeroU32,
    sync::Arc,
};

use foldhash::fast::FixedState;
use hashbrown::HashTable;

use self::{labels::Labels, records::Records};
use crate::{
    lease::holder::{Grant, Leases},
    policy::settings::Reuse,
    types::{Amount, Claim, Claims, HolderKind, Millis, Principal, SlotDelta, SlotDeltas, Sum, Token, further, wanted},
};

/// The width of a bucket of the expiry queue. Expired capacity becomes free at most this much later.
pub(crate) const BUCKET_MS: u64 = 100;
/// The bucket of records that are not queued. Its time comes after thirteen years.
const NOT_QUEUED: u32 = u32::MAX;

/// The position of a record that is not watched.
pub(crate) const NOT_WATCHED: u32 = u32::MAX;

/// The record of one client or child node: three cache lines, all of which each request touches.
#[repr(align(64))]
pub(crate) struct Holder {
    pub(crate) id: Arc<str>,
    pub(crate) kind: HolderKind,
    pub(crate) claims: Claims,
    pub(crate) leases: Leases,
    /// Its last request that was not ignored.
    pub(crate) asked: Option<Asked>,
    /// The last sub-round that it took part in. A holder has at most one request in each.
    pub(crate) round: u32,
    /// Its position in the watch list.
    pub(crate) watch: u32,
    /// With whole units: whether it has one of the left-over units of this rotation.
    pub(crate) extra: bool,
    /// Changed by [`set_mode`](Ledger::set_mode).
    mode: HolderMode,
    /// Whether it was given visibly less than it was due when it last asked, or when it was last considered for a hint.
    waits: bool,
    counted: Counted,
    /// The bucket in which it is queued. Its entries in other buckets are out of date.
    bucket: u32,
}

/// Properties that a holder reports besides its kind. One byte, because records are full.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum HolderMode {
    Plain,
    /// A child node that knows terms.
    UnderstandsTerms,
    /// A client that limits others with its lease.
    Gateway,
}

/// When a holder asked last.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Asked {
    pub(crate) at: Millis,
    /// The refresh interval it was given then, in milliseconds.
    pub(crate) interval: NonZeroU32,
}

impl Holder {
    fn new(kind: HolderKind, id: Arc<str>) -> Holder {
        Holder {
            id,
            kind,
            claims: Claims::new(),
            leases: Leases::default(),
            asked: None,
            round: 0,
            watch: NOT_WATCHED,
            extra: false,
            mode: HolderMode::Plain,
            waits: false,
            counted: Counted::default(),
            bucket: NOT_QUEUED,
        }
    }

    /// Whether it was given visibly less than it was due.
    pub(crate) fn waits(&self) -> bool {
        self.waits
    }

    /// The total wants of its clients.
    pub(crate) fn wants(&self) -> Sum {
        wanted(&self.claims).map(|claim| claim.wants).collect()
    }

    /// The number of clients that it stands for.
    pub(crate) fn subclients(&self) -> u64 {
        wanted(&self.claims).map(|claim| u64::from(claim.subclients)).sum()
    }
}

/// A holder's contribution to the sums.
#[derive(Default, PartialEq)]
struct Counted {
    held: Amount,
    granted: Amount,
}

#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct Sums {
    pub wants: Sum,
    pub held: Sum,
    pub granted: Sum,
    /// The number of clients that the holders stand for.
    pub subclients: u64,
    /// The number of holders that are gateways.
    pub gateways: u64,
    /// Capacity that gateways may be using.
    pub held_by_gateways: Sum,
}

#[derive(Clone, Copy)]
struct TableEntry {
    /// Stored so that neither a failed lookup nor growth of the table touches a record.
    hash: u32,
    slot: u32,
}

pub(crate) struct Ledger {
    holders: Records,
    by_id: HashTable<TableEntry>,
    /// The principal that each record is charged to, by slot. It is not part of the record, because requests of known
    /// holders do not need it.
    principals: Vec<Principal>,
    /// Present if records are labelled.
    labels: Option<Box<Labels>>,
    /// Changes of the slots of principals that were not drained yet.
    slot_deltas: SlotDeltas,
    hasher: FixedState,
    sums: Sums,
    /// Claims beyond the first of each holder.
    further_claims: usize,
    /// The anonymous record that stands for unclaimed inherited leases, and their amount.
    inherited: Option<(u32, Sum)>,
    /// The number of holders that wait for more.
    waiting: usize,
    /// The newest lease that has ended and was neither renewed nor given back.
    lapsed: Option<Token>,
    changes: u64,
    claims_changes: u64,
    queue: BTreeMap<u32, Vec<u32>>,
    /// A lower bound of the first bucket in the queue. While its time has not come, a round need not look at the queue.
    first_bucket: u32,
}

impl Ledger {
    /// `seed` makes hash collisions unpredictable for attackers. Nothing that can be observed depends on it.
    pub(crate) fn new(seed: u64) -> Ledger {
        Ledger {
            holders: Records::default(),
            by_id: HashTable::new(),
            principals: Vec::new(),
            labels: None,
            slot_deltas: SlotDeltas::default(),
            hasher: FixedState::with_seed(seed),
            sums: Sums::default(),
            further_claims: 0,
            inherited: None,
            waiting: 0,
            lapsed: None,
            changes: 0,
            claims_changes: 0,
            queue: BTreeMap::new(),
            first_bucket: NOT_QUEUED,
        }
    }

    /// The number of holders. The record of inherited leases is not counted.
    pub(crate) fn len(&self) -> usize {
        self.holders.len() - usize::from(self.inherited.is_some())
    }

    /// Entries that count against limits: holders, and each band of a child node beyond its first.
    pub(crate) fn charged_slots(&self) -> usize {
        self.len() + self.further_claims
    }

    pub(crate) fn sums(&self) -> Sums {
        self.sums
    }

    /// The number of holders that wait for more, as far as is known.
    pub(crate) fn waiting(&self) -> usize {
        self.waiting
    }

    /// The newest lease that has ended, and was neither renewed nor given back.
    pub(crate) fn lapsed(&self) -> Option<Token> {
        self.lapsed
    }

    /// Records that all leases up to this one have ended.
    pub(crate) fn lapse(&mut self, token: Option<Token>) {
        self.lapsed = self.lapsed.max(token);
    }

    fn note_lapsed(&mut self, slot: u32, now: Millis) {
        self.lapse(self.holders[slot].leases.newest_ended(now));
    }

    /// Rises with every change that may affect a due amount, the free capacity, or whether a holder waits.
    pub(crate) fn changes(&self) -> u64 {
        self.changes
    }

    /// Rises with every change of wants.
    pub(crate) fn claims_changes(&self) -> u64 {
        self.claims_changes
    }

    pub(crate) fn set_waits(&mut self, slot: u32, waits: bool) {
        let before = self.waiting;
        let holder = &mut self.holders[slot];
        self.waiting -= usize::from(holder.waits);
        self.waiting += usize::from(waits);
        holder.waits = waits;
        self.changes += u64::from((before == 0) != (self.waiting == 0));
    }

    fn hash(&self, kind: HolderKind, id: &str) -> u32 {
        let mut hasher = self.hasher.build_hasher();
        hasher.write_u8(kind as u8);
        hasher.write(id.as_bytes());
        hasher.finish() as u32
    }

    /// Spreads the stored 32 bits over the 64 bits that the table uses.
    fn spread(hash: u32) -> u64 {
        u64::from(hash).wrapping_mul(0x9e37_79b9_7f4a_7c15)
    }

    pub(crate) fn find(&self, kind: HolderKind, id: &str) -> Option<u32> {
        let hash = self.hash(kind, id);
        let same = |entry: &TableEntry| {
            entry.hash == hash && {
                let holder = &self.holders[entry.slot];
                *holder.id == *id && holder.kind == kind
            }
        };
        self.by_id.find(Self::spread(hash), same).map(|entry| entry.slot)
    }

    /// The slot that the record of a holder probably has. Only the hash is compared, no record is touched.
    pub(crate) fn likely_slot(&self, kind: HolderKind, id: &str) -> Option<u32> {
        let hash = self.hash(kind, id);
        self.by_id.find(Self::spread(hash), |entry| entry.hash == hash).map(|entry| entry.slot)
    }

    /// Reads from every cache line of a record, and from its id.
    pub(crate) fn touch(&self, slot: u32) -> u64 {
        let holder = &self.holders[slot];
        let id = holder.id.as_bytes().first().copied().unwrap_or_default();
        u64::from(id) ^ holder.leases.touch() ^ u64::from(holder.bucket) ^ holder.counted.held.get().to_bits()
    }

    pub(crate) fn insert(&mut self, kind: HolderKind, id: Arc<str>, principal: Principal) -> u32 {
        let hash = self.hash(kind, &id);
        let slot = self.holders.insert(Holder::new(kind, id));
        self.by_id.insert_unique(Self::spread(hash), TableEntry { hash, slot }, |entry| Self::spread(entry.hash));
        self.count_to(slot, principal);
        slot
    }

    /// Counts what a record holds under this label from now on.
    pub(crate) fn set_label(&mut self, slot: u32, label: u32) {
        let held = self.holders[slot].counted.held;
        self.labels.get_or_insert_default().set(slot, label, held);
    }

    pub(crate) fn clear_labels(&mut self) {
        self.labels = None;
    }

    /// What the records with a label hold.
    pub(crate) fn held_by_label(&self, label: u32) -> Sum {
        self.labels.as_ref().map_or(Sum::ZERO, |labels| labels.held(label))
    }

    /// Gives a holder another id, which no other holder has.
    pub(crate) fn rename(&mut self, slot: u32, id: Arc<str>) {
        let holder = &self.holders[slot];
        let (kind, before) = (holder.kind, self.hash(holder.kind, &holder.id));
        if let Ok(entry) = self.by_id.find_entry(Self::spread(before), |entry| entry.slot == slot) {
            entry.remove();
        }
        let hash = self.hash(kind, &id);
        self.by_id.insert_unique(Self::spread(hash), TableEntry { hash, slot }, |entry| Self::spread(entry.hash));
        self.holders[slot].id = id;
    }

    fn count_to(&mut self, slot: u32, principal: Principal) {
        let at = slot as usize;
        if at >= self.principals.len() {
            if principal == Principal::NONE {
                return;
            }
            self.principals.resize(at + 1, Principal::NONE);
        }
        self.principals[at] = principal;
        self.slot_deltas.note(principal, 1);
    }

    pub(crate) fn principal(&self, slot: u32) -> Principal {
        self.principals.get(slot as usize).copied().unwrap_or_default()
    }

    /// Takes the changes in the number of slots of each principal since the last call.
    pub(crate) fn drain_slot_deltas(&mut self) -> impl Iterator<Item = SlotDelta> {
        self.slot_deltas.drain()
    }

    pub(crate) fn remove(&mut self, slot: u32) -> Holder {
        self.set_mode(slot, HolderMode::Plain);
        let holder = self.holders.remove(slot);
        if let Some(labels) = &mut self.labels {
            labels.remove(slot, holder.counted.held);
        }
        let hash = self.hash(holder.kind, &holder.id);
        if let Ok(entry) = self.by_id.find_entry(Self::spread(hash), |entry| entry.slot == slot) {
            entry.remove();
        }
        self.further_claims -= further(&holder.claims);
        self.slot_deltas.note(self.principal(slot), -(1 + further(&holder.claims) as isize));
        self.sums.wants -= holder.wants();
        self.sums.subclients -= holder.subclients();
        self.sums.held -= holder.counted.held;
        self.sums.granted -= holder.counted.granted;
        self.waiting -= usize::from(holder.waits);
        self.changed_claims();
        holder
    }

    pub(crate) fn holder(&self, slot: u32) -> &Holder {
        &self.holders[slot]
    }

    /// The holder in a slot that may have become vacant.
    pub(crate) fn get(&self, slot: u32) -> Option<&Holder> {
        self.holders.get(slot)
    }

    /// For changes that the sums do not contain. After a change of leases call [`recount`](Self::recount).
    pub(crate) fn holder_mut(&mut self, slot: u32) -> &mut Holder {
        &mut self.holders[slot]
    }

    /// All records from slot `from` on, without visiting those before it.
    pub(crate) fn iter_from(&self, from: usize) -> impl Iterator<Item = (u32, &Holder)> {
        self.holders.iter_from(from)
    }

    pub(crate) fn set_claims(&mut self, slot: u32, claims: Claims) {
        let holder = &mut self.holders[slot];
        self.sums.wants -= holder.wants();
        self.sums.subclients -= holder.subclients();
        let (fewer, more) = (further(&holder.claims), further(&claims));
        self.further_claims -= fewer;
        self.further_claims += more;
        if more != fewer {
            let principal = self.principals.get(slot as usize).copied().unwrap_or_default();
            self.slot_deltas.note(principal, more as isize - fewer as isize);
        }
        holder.claims = claims;
        self.sums.wants += holder.wants();
        self.sums.subclients += holder.subclients();
        self.changed_claims();
    }

    /// Keeps the record of a holder without leases until `until`.
    pub(crate) fn remember(&mut self, slot: u32, now: Millis, until: Millis) {
        self.holders[slot].leases.remember(until);
        self.recount(slot, now);
    }

    pub(crate) fn grant(&mut self, slot: u32, now: Millis, grant: Grant, expiry_time: i64, reuse: Reuse) {
        self.note_lapsed(slot, now);
        let Holder { kind, leases, .. } = &mut self.holders[slot];
        if *kind == HolderKind::Node {
            leases.await_report(now);
        }
        leases.forget_ended(now);
        leases.grant(grant, expiry_time, reuse);
        self.recount(slot, now);
    }

    /// Updates the sums and the expiry queue after a change of a holder's leases.
    pub(crate) fn recount(&mut self, slot: u32, now: Millis) {
        let holder = &mut self.holders[slot];
        holder.leases.end_claimed(holder.kind, now);
        let counted = Counted { held: holder.leases.held(now), granted: holder.leases.current(now) };
        self.sums.held -= holder.counted.held;
        self.sums.held += counted.held;
        self.sums.granted -= holder.counted.granted;
        self.sums.granted += counted.granted;
        if holder.mode == HolderMode::Gateway {
            self.sums.held_by_gateways -= holder.counted.held;
            self.sums.held_by_gateways += counted.held;
        }
        if let Some(labels) = self.labels.as_mut().filter(|_| counted.held != holder.counted.held) {
            labels.change(slot, holder.counted.held, counted.held);
        }
        self.changes += u64::from(counted != holder.counted);
        if counted.held < holder.counted.held {
            self.lapsed = self.lapsed.max(holder.leases.newest_ended(now));
        }
        holder.counted = counted;
        if let Some(at) = holder.leases.next_change(now) {
            let bucket = bucket_of(at);
            if bucket < holder.bucket {
                holder.bucket = bucket;
                self.queue.entry(bucket).or_default().push(slot);
                self.first_bucket = self.first_bucket.min(bucket);
            }
        }
    }

    /// Adds the record that stands for inherited leases. It has no id. Its claims count as wants and take no slots.
    pub(crate) fn insert_inherited(&mut self, claims: Claims) -> u32 {
        debug_assert!(self.inherited.is_none(), "they were inherited once");
        let mut record = Holder::new(HolderKind::Node, "".into());
        record.claims = claims;
        self.sums.wants += record.wants();
        self.sums.subclients += record.subclients();
        let slot = self.holders.insert(record);
        self.inherited = Some((slot, Sum::ZERO));
        self.changed_claims();
        slot
    }

    /// Sets the amount of inherited leases that nobody has claimed.
    pub(crate) fn set_unclaimed(&mut self, has: Sum) {
        if let Some((_, had)) = &mut self.inherited {
            let before = std::mem::replace(had, has);
            self.sums.held -= before;
            self.sums.held += has;
            self.changes += 1;
        }
    }

    /// Replaces a claim of the inherited wants.
    pub(crate) fn replace_inherited_claim(&mut self, ordinal: usize, claim: Claim) {
        let Some((slot, _)) = self.inherited else { return };
        let old = std::mem::replace(&mut self.holders[slot].claims[ordinal], claim);
        self.sums.wants -= old.wants;
        self.sums.wants += claim.wants;
        self.sums.subclients -= u64::from(old.subclients);
        self.sums.subclients += u64::from(claim.subclients);
        self.changed_claims();
    }

    /// Removes the record of the inherited leases. Returns the wants that were left in it.
    pub(crate) fn remove_inherited(&mut self) -> Claims {
        self.set_unclaimed(Sum::ZERO);
        let Some((slot, _)) = self.inherited.take() else { return Claims::new() };
        let record = self.holders.remove(slot);
        self.sums.wants -= record.wants();
        self.sums.subclients -= record.subclients();
        self.changed_claims();
        record.claims
    }

    /// Whether this is the record that stands for inherited leases.
    pub(crate) fn is_inherited(&self, slot: u32) -> bool {
        self.inherited.is_some_and(|(inherited, _)| inherited == slot)
    }

    fn changed_claims(&mut self) {
        self.changes += 1;
        self.claims_changes += 1;
    }

    /// The granted amount of this holder as contained in the sums.
    pub(crate) fn granted(&self, slot: u32) -> Amount {
        self.holders[slot].counted.granted
    }

    /// Bytes in use, for the benchmarks. Includes ids, but not claims and leases that unusual holders keep on the heap.
    pub(crate) fn bytes(&self) -> usize {
        self.holders.bytes()
            + self.holders.iter_from(0).map(|(_, holder)| holder.id.len()).sum::<usize>()
            + self.by_id.allocation_size()
            + self.principals.capacity() * size_of::<Principal>()
            + self.labels.as_ref().map_or(0, |labels| labels.bytes())
            + self.queue.values().map(|bucket| bucket.capacity() * size_of::<u32>()).sum::<usize>()
    }
}

impl Holder {
    /// What it holds, as contained in the sums.
    pub(crate) fn held(&self) -> Amount {
        self.counted.held
    }

    pub(crate) fn understands_terms(&self) -> bool {
        self.mode == HolderMode::UnderstandsTerms
    }

    pub(crate) fn mode(&self) -> HolderMode {
        self.mode
    }
}

impl Ledger {
    pub(crate) fn set_mode(&mut self, slot: u32, mode: HolderMode) {
        let holder = &mut self.holders[slot];
        let before = std::mem::replace(&mut holder.mode, mode);
        match (before == HolderMode::Gateway, mode == HolderMode::Gateway) {
            (false, true) => {
                self.sums.gateways += 1;
                self.sums.held_by_gateways += holder.counted.held;
            }
            (true, false) => {
                self.sums.gateways -= 1;
                self.sums.held_by_gateways -= holder.counted.held;
            }
            _ => {}
        }
    }
}

impl Ledger {
    /// Visits up to `budget` records whose buckets are due, and removes those that hold nothing any more. `looked_at`
    /// gets every slot, and the record if it was removed. A late call is safe, because ended leases still count.
    pub(crate) fn expire(&mut self, now: Millis, budget: usize, looked_at: impl FnMut(u32, Option<Holder>)) {
        if has_come(self.first_bucket, now) {
            self.expire_buckets(now, budget, looked_at);
            self.first_bucket = self.queue.first_key_value().map_or(NOT_QUEUED, |(bucket, _)| *bucket);
        }
    }

    fn expire_buckets(&mut self, now: Millis, budget: usize, mut looked_at: impl FnMut(u32, Option<Holder>)) {
        let mut left = budget;
        while left > 0 {
            let Some(mut entry) = self.queue.first_entry() else {
                return;
            };
            let bucket = *entry.key();
            if !has_come(bucket, now) {
                return;
            }
            let Some(slot) = entry.get_mut().pop() else {
                entry.remove();
                continue;
            };
            left -= 1;
            match self.holders.get_mut(slot) {
                Some(holder) if holder.bucket == bucket => holder.bucket = NOT_QUEUED,
                _ => continue,
            }
            if self.holders[slot].leases.next_change(now).is_some() {
                self.recount(slot, now);
                looked_at(slot, None);
            } else {
                self.note_lapsed(slot, now);
                let holder = self.remove(slot);
                looked_at(slot, Some(holder));
            }
        }
    }

    /// When [`expire`](Self::expire) next has something to do.
    pub(crate) fn next_expiry(&self) -> Option<Millis> {
        self.queue.first_key_value().map(|(bucket, _)| Millis(u64::from(*bucket) * BUCKET_MS))
    }
}

/// The bucket of the records that may change at this time.
fn bucket_of(at: Millis) -> u32 {
    at.0.div_ceil(BUCKET_MS).try_into().unwrap_or(NOT_QUEUED)
}

/// Whether the time of a bucket has come.
fn has_come(bucket: u32, now: Millis) -> bool {
    u64::from(bucket) * BUCKET_MS <= now.0
}

/// If a record grew by a cache line, every request would cost another cache miss.
const _: () = assert!(size_of::<Holder>() == 192);
