//! Expiry, a part at a time.

use super::{BUCKET_MS, Holder, Ledger, NOT_QUEUED};
use crate::types::time::Millis;

impl Ledger {
    /// Visits up to `budget` records whose buckets are due, and removes those that hold nothing any more. `looked_at`
    /// gets every slot, and the record if it was removed. Being late is safe: what has ended still counts.
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

/// Whether the time of a bucket has come.
fn has_come(bucket: u32, now: Millis) -> bool {
    u64::from(bucket) * BUCKET_MS <= now.0
}
