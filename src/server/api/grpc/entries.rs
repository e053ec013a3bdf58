//! How many entries a message has, counted before it is decoded.
//!
//! An empty entry is two bytes on the wire and a hundred in memory: what a message becomes is bounded by its entries
//! rather than by its bytes. So the length-delimited fields of a long message are counted as they come: its own, and
//! those in them, which is as deep as lists go in what clients send. What is in a name may look like a field, and then
//! counts as one. Short messages, which are nearly all, are not looked at: they cannot become much.

/// A message that is no longer than this is not looked at.
pub(super) const LOOKED_AT: usize = 16 << 10;
/// So many entries of an entry take as much memory as one.
pub(super) const INNER_LIKE_AN_ENTRY: usize = 16;

/// What is at the end of a field's number, as protobuf has it.
mod wire_type {
    pub(super) const VARINT: u64 = 0;
    pub(super) const FIXED64: u64 = 1;
    pub(super) const DELIMITED: u64 = 2;
    pub(super) const START_GROUP: u64 = 3;
    pub(super) const END_GROUP: u64 = 4;
    pub(super) const FIXED32: u64 = 5;
}

/// Counts the entries of a message that comes in parts.
#[derive(Debug, Default)]
pub(super) struct EntryCount {
    next: Part,
    number: u64,
    bits: u32,
    /// How much is left of the entry that is being read; none: it is the message itself.
    inside: Option<u64>,
    /// So much is of no interest.
    skipped: u64,
    outer: usize,
    inner: usize,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
enum Part {
    #[default]
    Tag,
    Value,
    Length,
}

impl EntryCount {
    /// How many there are so far: those in entries count for less.
    pub(super) fn entries(&self) -> usize {
        self.outer + self.inner / INNER_LIKE_AN_ENTRY
    }

    /// Takes note of what has come. What is no message of protobuf is counted as far as it is one: decoding it ends
    /// there, too.
    pub(super) fn pass(&mut self, mut data: &[u8]) {
        while let Some((first, rest)) = data.split_first() {
            let is_skipped = self.skipped > 0;
            if is_skipped {
                let taken = data.len().min(usize::try_from(self.skipped).unwrap_or(usize::MAX));
                data = &data[taken..];
                self.skipped -= taken as u64;
                self.inside = self.inside.map(|left| left - taken as u64);
            } else {
                data = rest;
                self.inside = self.inside.map(|left| left - 1);
                self.read(*first);
            }
            if self.inside == Some(0) {
                self.leave();
            }
        }
    }

    /// The entry is over, wherever in one of its fields that is.
    fn leave(&mut self) {
        (self.inside, self.next, self.skipped, self.number, self.bits) = (None, Part::Tag, 0, 0, 0);
    }

    fn read(&mut self, byte: u8) {
        self.number |= u64::from(byte & 0x7f).checked_shl(self.bits).unwrap_or_default();
        self.bits += 7;
        if byte & 0x80 != 0 {
            if self.bits > u64::BITS {
                self.give_up();
            }
            return;
        }
        let number = std::mem::take(&mut self.number);
        self.bits = 0;
        match std::mem::take(&mut self.next) {
            Part::Value => {}
            Part::Length => self.enter(number),
            Part::Tag => match number & 7 {
                wire_type::VARINT => self.next = Part::Value,
                wire_type::FIXED64 => self.skip(8),
                wire_type::DELIMITED => self.next = Part::Length,
                wire_type::START_GROUP | wire_type::END_GROUP => {}
                wire_type::FIXED32 => self.skip(4),
                _ => self.give_up(),
            },
        }
    }

    fn enter(&mut self, length: u64) {
        if self.inside.is_some() {
            self.inner += 1;
            self.skip(length);
        } else {
            self.outer += 1;
            self.inside = Some(length);
        }
    }

    /// At most to the end of the entry.
    fn skip(&mut self, bytes: u64) {
        self.skipped = bytes.min(self.inside.unwrap_or(bytes));
    }

    /// The rest is nothing that could be counted: of the entry, or of the message.
    fn give_up(&mut self) {
        self.skip(u64::MAX);
    }
}

#[cfg(test)]
mod tests {
    use leaseway_proto::doorman::{
        GetServerCapacityRequest, PriorityBandAggregate, ReleaseCapacityRequest, ServerCapacityResourceRequest,
    };
    use proptest::prelude::*;
    use prost::Message as _;

    use super::*;

    fn count(message: &[u8], cut: usize) -> (usize, usize) {
        let mut count = EntryCount::default();
        message.chunks(cut).for_each(|part| count.pass(part));
        (count.outer, count.inner)
    }

    #[test]
    fn empty_entries_are_counted_and_empty_entries_in_them() {
        let message = [0x12, 0].repeat(1_000);
        assert_eq!(count(&message, 7), (1_000, 0));
        // One entry of 2,000 bytes with lists of its own.
        let bands = [&[0x12, 0xd0, 0x0f][..], &[0x1a, 0].repeat(1_000)].concat();
        assert_eq!(count(&bands, 7), (1, 1_000));
        assert_eq!(count(&[bands.clone(), message].concat(), 5), (1_001, 1_000));
        let mut counted = EntryCount::default();
        counted.pass(&bands);
        assert_eq!(counted.entries(), 1 + 1_000 / INNER_LIKE_AN_ENTRY);
    }

    #[test]
    fn what_breaks_off_or_is_no_message_ends_the_count() {
        assert_eq!(count(&[&[0x12, 0][..], &[0x0f], &[0x12, 0].repeat(10)].concat(), 3), (1, 0), "no wire type");
        assert_eq!(count(&[0xff; 100], 3), (0, 0), "no number");
        assert_eq!(count(&[0x12, 0x7f, 0x12, 0], 1), (1, 1), "it is longer than what came");
        // An entry that breaks off inside ends where it says.
        assert_eq!(count(&[0x12, 2, 0x1a, 0x7f, 0x12, 0], 1), (2, 1));
    }

    proptest! {
        #[test]
        fn lists_are_counted_however_a_message_is_cut(
            bands in prop::collection::vec(0_usize..20, 0..30), names in prop::collection::vec("[a-z]{0,12}", 0..30),
            cut in 1_usize..50,
        ) {
            let band = PriorityBandAggregate { priority: Some(-1), num_clients: Some(7), wants: Some(1.5) };
            let resource = |bands: &usize| ServerCapacityResourceRequest {
                wants: vec![band; *bands],
                ..Default::default()
            };
            let resource: Vec<_> = bands.iter().map(resource).collect();
            let message = GetServerCapacityRequest { resource, ..Default::default() }.encode_to_vec();
            prop_assert_eq!(count(&message, cut), (bands.len(), bands.iter().sum::<usize>()));
            let release = ReleaseCapacityRequest { resource_id: names.clone(), ..Default::default() };
            prop_assert_eq!(count(&release.encode_to_vec(), cut).0, names.len());
        }

        #[test]
        fn nothing_that_comes_makes_it_fail(message in prop::collection::vec(any::<u8>(), 0..200), cut in 1_usize..9) {
            let (outer, inner) = count(&message, cut);
            prop_assert!(outer + inner <= message.len());
            prop_assert_eq!(count(&message, message.len().max(1)), (outer, inner));
        }
    }
}
