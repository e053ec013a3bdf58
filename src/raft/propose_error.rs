//! Why a proposal was not carried out.

use std::sync::Arc;

use leaseway_core::Refused;
use serde::{Deserialize, Serialize};

/// A proposal was not carried out, or perhaps it was.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error, Serialize, Deserialize)]
pub enum ProposeError {
    /// The master lease is over. Nothing was stored.
    #[error("the master lease is over; nothing was stored")]
    Deposed,
    /// The master lease ended, or consensus did, while the proposal was under way. It may have been stored or not; the next
    /// master knows.
    #[error("mastership was lost while the proposal was under way: it may have been stored, or not")]
    Uncertain,
    /// More than fits into one message to the peers. Nothing was stored.
    #[error("a proposal of {bytes} bytes is too large: the maximum is {most}")]
    TooLarge {
        /// As they would be stored.
        bytes: u64,
        most: u64,
    },
    /// The promises do not follow the stored ones: a bug in the proposing code. Nothing was stored.
    #[error("about {resource:?}: {why}")]
    Refused { resource: Arc<str>, why: Refused },
}
