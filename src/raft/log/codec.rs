//! The encoding of stored data and of messages between peers, and the framing of stored data.
//!
//! Values are encoded with bincode, which is not self-describing: if a field is added or removed, old bytes mean
//! something else. So every change of an encoded type needs a new [`FORMAT`]. `tests/format.rs` compares the stored
//! bytes. CONTRIBUTING describes how to change the format.
//!
//! On disk, each value is the payload of a frame: kind, format, length, two checksums, payload. The header has a
//! checksum of its own. Without it, a damaged length in the middle of the log would look like a frame that was torn off
//! at the end, and all later frames would be dropped silently.

use bincode::Options as _;
use serde::{Serialize, de::DeserializeOwned};

pub(crate) const FORMAT: u8 = 1;

/// The maximum size of a value to decode.
const MAX_DECODED_BYTES: u64 = 1 << 30;

/// The bytes do not decode although their checksum is right, so another program wrote them.
#[derive(Debug, thiserror::Error)]
#[error("the data does not decode as format {FORMAT}: {0}")]
pub(crate) struct DecodeError(#[from] bincode::Error);

pub(crate) fn encode<T: Serialize>(value: &T) -> Vec<u8> {
    bincode::DefaultOptions::new().serialize(value).expect("plain data in memory always encodes")
}

pub(crate) fn encoded_len<T: Serialize>(value: &T) -> u64 {
    bincode::DefaultOptions::new().serialized_size(value).expect("plain data in memory always encodes")
}

/// Fails if bytes are left over after the value.
pub(crate) fn decode<T: DeserializeOwned>(bytes: &[u8]) -> Result<T, DecodeError> {
    Ok(bincode::DefaultOptions::new().with_limit(MAX_DECODED_BYTES).deserialize(bytes)?)
}

/// Kind, format, two zeros, length (4), checksum of these eight bytes (4), checksum of the payload (4).
pub(crate) const HEADER_BYTES: usize = 16;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum Kind {
    Segment = 1,
    Entry = 2,
    Truncate = 3,
    Purge = 4,
    Identity = 5,
    Vote = 6,
    Snapshot = 7,
    HighWaterMark = 8,
}

const KINDS: [Kind; 8] = [
    Kind::Segment,
    Kind::Entry,
    Kind::Truncate,
    Kind::Purge,
    Kind::Identity,
    Kind::Vote,
    Kind::Snapshot,
    Kind::HighWaterMark,
];

#[derive(Debug)]
pub(crate) enum FrameResult<'a> {
    /// A frame. The next one begins at `end`.
    Frame { kind: Kind, payload: &'a [u8], end: usize },
    /// The end of the file, right after a frame.
    End,
    /// The beginning of a frame whose end is missing.
    Torn,
    /// A frame of an unknown format.
    Format(u8),
    /// A checksum is wrong.
    Damaged(&'static str),
}

pub(crate) fn write_frame(out: &mut Vec<u8>, kind: Kind, payload: &[u8]) {
    let length = u32::try_from(payload.len()).expect("a frame is far below 4 GiB");
    let mut header = [0; HEADER_BYTES];
    header[0] = kind as u8;
    header[1] = FORMAT;
    header[4..8].copy_from_slice(&length.to_le_bytes());
    let of_header = crc32fast::hash(&header[..8]);
    header[8..12].copy_from_slice(&of_header.to_le_bytes());
    header[12..16].copy_from_slice(&crc32fast::hash(payload).to_le_bytes());
    out.extend_from_slice(&header);
    out.extend_from_slice(payload);
}

pub(crate) fn read_frame(bytes: &[u8], at: usize) -> FrameResult<'_> {
    let rest = &bytes[at..];
    if rest.is_empty() {
        return FrameResult::End;
    }
    let Some((header, rest)) = rest.split_at_checked(HEADER_BYTES) else { return FrameResult::Torn };
    let word = |at: usize| u32::from_le_bytes([header[at], header[at + 1], header[at + 2], header[at + 3]]);
    if crc32fast::hash(&header[..8]) != word(8) {
        return FrameResult::Damaged("wrong checksum of a header");
    }
    if header[1] != FORMAT {
        return FrameResult::Format(header[1]);
    }
    let Some(kind) = KINDS.into_iter().find(|kind| *kind as u8 == header[0]) else {
        return FrameResult::Damaged("unknown kind of record");
    };
    let length = word(4) as usize;
    let Some(payload) = rest.get(..length) else { return FrameResult::Torn };
    if crc32fast::hash(payload) != word(12) {
        return FrameResult::Damaged("wrong checksum of a record");
    }
    FrameResult::Frame { kind, payload, end: at + HEADER_BYTES + length }
}
