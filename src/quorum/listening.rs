//! For how long resources listen, as one number.

use leaseway_core::Millis;
use serde::{Deserialize, Serialize};

/// Promises that these peers know nothing of may be in force, for so long from when this is applied.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(from = "u64", into = "u64")]
pub struct Listening {
    /// How long. Zero: none are any more.
    pub length: Millis,
    /// Resources listen for the whole length, also where their templates say less.
    pub whole: bool,
}

/// Set in a length for which resources listen also where their templates say less. No length comes near it; a version
/// that does not know the bit listens for ever, which errs on the safe side.
const WHOLE: u64 = 1 << 63;

impl From<Listening> for u64 {
    fn from(Listening { length, whole }: Listening) -> u64 {
        let length = length.0.min(WHOLE - 1);
        if whole && length > 0 { length | WHOLE } else { length }
    }
}

impl From<u64> for Listening {
    fn from(stored: u64) -> Listening {
        Listening { length: Millis(stored & !WHOLE), whole: stored & WHOLE != 0 }
    }
}
