//! Records by slot. Records never move, because a copy of a million records would delay all requests in the meantime.

use std::ops::{Index, IndexMut};

use super::Holder;

/// The number of records in a block. The first block grows by being copied, so it must not be large.
const BLOCK: usize = 1 << 17;

/// All blocks except the last are full, of records and vacant slots.
#[derive(Default)]
pub(super) struct Records {
    blocks: Vec<Vec<Option<Holder>>>,
    vacant: Vec<u32>,
}

impl Records {
    /// Puts a record into the slot that was vacated last, or at the end.
    pub(super) fn insert(&mut self, record: Holder) -> u32 {
        if let Some(slot) = self.vacant.pop() {
            *self.entry(slot).expect("vacant slots are in blocks") = Some(record);
            return slot;
        }
        let slot = self.end();
        if slot.is_multiple_of(BLOCK) {
            // Most resources have few holders, so the first block grows as needed.
            self.blocks.push(if slot == 0 { Vec::new() } else { Vec::with_capacity(BLOCK) });
        }
        self.blocks[slot / BLOCK].push(Some(record));
        slot as u32
    }

    pub(super) fn remove(&mut self, slot: u32) -> Holder {
        let record = self.entry(slot).and_then(Option::take).expect("only inserted records are removed");
        self.vacant.push(slot);
        record
    }

    pub(super) fn get(&self, slot: u32) -> Option<&Holder> {
        self.blocks.get(slot as usize / BLOCK)?.get(slot as usize % BLOCK)?.as_ref()
    }

    pub(super) fn get_mut(&mut self, slot: u32) -> Option<&mut Holder> {
        self.entry(slot)?.as_mut()
    }

    fn entry(&mut self, slot: u32) -> Option<&mut Option<Holder>> {
        self.blocks.get_mut(slot as usize / BLOCK)?.get_mut(slot as usize % BLOCK)
    }

    pub(super) fn len(&self) -> usize {
        self.end() - self.vacant.len()
    }

    /// Whether only the first `maximum` slots were ever used.
    pub(super) fn fits_in(&self, maximum: usize) -> bool {
        self.end() <= maximum
    }

    /// The records and vacant slots, in order. There must be only one block.
    pub(super) fn into_boxed(mut self) -> Box<[Option<Holder>]> {
        debug_assert!(self.fits_in(BLOCK), "records would be lost");
        if self.len() == 0 { Box::default() } else { self.blocks.pop().unwrap_or_default().into_boxed_slice() }
    }

    pub(super) fn from_boxed(records: Box<[Option<Holder>]>) -> Records {
        let block = records.into_vec();
        let vacant = (0..block.len() as u32).filter(|slot| block[*slot as usize].is_none()).collect();
        let blocks = if block.is_empty() { Vec::new() } else { vec![block] };
        Records { blocks, vacant }
    }

    /// The first slot that was never used.
    pub(super) fn end(&self) -> usize {
        self.blocks.last().map_or(0, |last| (self.blocks.len() - 1) * BLOCK + last.len())
    }

    pub(super) fn iter_from(&self, from: usize) -> impl Iterator<Item = (u32, &Holder)> {
        (from as u32..self.end() as u32).filter_map(|slot| Some((slot, self.get(slot)?)))
    }

    /// Bytes in use, without heap parts of records.
    pub(super) fn bytes(&self) -> usize {
        let blocks: usize = self.blocks.iter().map(Vec::capacity).sum();
        blocks * size_of::<Option<Holder>>() + self.vacant.capacity() * size_of::<u32>()
    }
}

impl Index<u32> for Records {
    type Output = Holder;

    fn index(&self, slot: u32) -> &Holder {
        self.get(slot).expect("slots are those of records")
    }
}

impl IndexMut<u32> for Records {
    fn index_mut(&mut self, slot: u32) -> &mut Holder {
        self.get_mut(slot).expect("slots are those of records")
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::types::HolderKind;

    fn record(id: usize) -> Holder {
        Holder::new(HolderKind::Client, id.to_string().into())
    }

    #[test]
    fn records_keep_their_slots() {
        let mut records = Records::default();
        let many = BLOCK * 2 + 3;
        for id in 0..many {
            assert_eq!(records.insert(record(id)) as usize, id);
        }
        for slot in [BLOCK - 1, BLOCK, BLOCK * 2 + 2] {
            assert_eq!(*records.remove(slot as u32).id, *slot.to_string());
        }
        assert!(records.get(BLOCK as u32).is_none() && records.get(many as u32).is_none());
        assert_eq!(records.len(), many - 3);
        let ids: Vec<String> = records.iter_from(BLOCK - 2).take(3).map(|(_, holder)| holder.id.to_string()).collect();
        assert_eq!(ids, [BLOCK - 2, BLOCK + 1, BLOCK + 2].map(|id| id.to_string()));
        let taken = [(); 4].map(|()| records.insert(record(many)) as usize);
        assert_eq!(taken, [BLOCK * 2 + 2, BLOCK, BLOCK - 1, many]);
    }
}
