//! The encoding of stored data and of messages between peers: bincode, with a version number of our own.
//!
//! bincode is not self-describing: if a field is added or removed, old bytes mean something else. So every change of an
//! encoded type needs a new [`FORMAT`]. `tests/format.rs` compares the stored bytes. CONTRIBUTING describes how to
//! change the format.

use bincode::Options as _;
use serde::{Serialize, de::DeserializeOwned};

pub(crate) const FORMAT: u8 = 1;

/// Decoding fails beyond this.
const MAX_DECODED_BYTES: u64 = 1 << 30;

/// The bytes do not decode although their checksum is right, so another program wrote them.
#[derive(Debug, thiserror::Error)]
#[error("does not decode as format {FORMAT}: {0}")]
pub(crate) struct DecodeError(#[from] bincode::Error);

pub(crate) fn encode<T: Serialize>(value: &T) -> Vec<u8> {
    bincode::DefaultOptions::new().serialize(value).expect("plain data in memory always encodes")
}

pub(crate) fn encoded_len<T: Serialize>(value: &T) -> u64 {
    bincode::DefaultOptions::new().serialized_size(value).expect("plain data in memory always encodes")
}

/// Fails if bytes are left over.
pub(crate) fn decode<T: DeserializeOwned>(bytes: &[u8]) -> Result<T, DecodeError> {
    Ok(bincode::DefaultOptions::new().with_limit(MAX_DECODED_BYTES).deserialize(bytes)?)
}
