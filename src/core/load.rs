//! How much a resource can serve, as it is said from outside.

use crate::Amount;

/// How much a resource can serve.
#[derive(Debug, Clone, Copy, PartialEq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub enum Load {
    #[cfg_attr(feature = "serde", serde(rename = "amount"))]
    Capacity(Amount),
    /// This part of what the template says; finite, not negative.
    #[cfg_attr(feature = "serde", serde(rename = "part"))]
    Factor(f64),
}
