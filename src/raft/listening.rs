//! For how long resources listen after a start that knows nothing of earlier promises.

use leaseway_core::Millis;
use serde::{Deserialize, Serialize};

/// Promises that these peers know nothing of may be in force, for so long from when this is applied.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Listening {
    /// How long. Zero: none are any more.
    pub length: Millis,
    /// Resources listen for the whole length, also where their templates say less.
    pub whole: bool,
}
