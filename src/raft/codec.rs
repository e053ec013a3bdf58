//! The encoding of what is stored and what peers send each other: bincode, with a version of our own beside it.
//!
//! bincode does not describe its data: with a field more or less, old bytes mean something else. So every change of a
//! type that is encoded here needs a new [`FORMAT`]; `tests/format.rs` has the stored bytes and fails when one is
//! forgotten. CONTRIBUTING says how a format is changed once there is a release.

use bincode::Options as _;
use serde::{Serialize, de::DeserializeOwned};

/// The version of what is encoded here, on disk and between peers.
pub(crate) const FORMAT: u8 = 1;

/// The most bytes that are decoded at once.
const MAX_DECODED_BYTES: u64 = 1 << 30;

/// The bytes do not decode although their checksum is right: another program wrote them.
#[derive(Debug, thiserror::Error)]
#[error("does not decode as format {FORMAT}: {0}")]
pub(crate) struct DecodeError(#[from] bincode::Error);

pub(crate) fn encode<T: Serialize>(value: &T) -> Vec<u8> {
    bincode::DefaultOptions::new().serialize(value).expect("plain data in memory always encodes")
}

pub(crate) fn encoded_len<T: Serialize>(value: &T) -> u64 {
    bincode::DefaultOptions::new().serialized_size(value).expect("plain data in memory always encodes")
}

/// Everything, to the last byte.
pub(crate) fn decode<T: DeserializeOwned>(bytes: &[u8]) -> Result<T, DecodeError> {
    Ok(bincode::DefaultOptions::new().with_limit(MAX_DECODED_BYTES).deserialize(bytes)?)
}
