//! How much a resource can serve, as it is said from outside.

use serde::{Deserialize, Serialize};

use crate::Amount;

/// How much a resource can serve.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub enum Load {
    /// So much.
    #[serde(rename = "amount")]
    Capacity(Amount),
    /// This part of what the template says; finite, not negative.
    #[serde(rename = "part")]
    Factor(f64),
}
