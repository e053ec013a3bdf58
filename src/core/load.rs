//! How much a resource can serve, as it is said from outside.

use crate::Amount;

/// How much a resource can serve.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Load {
    /// So much.
    Capacity(Amount),
    /// This part of what the template says; finite, not negative.
    Factor(f64),
}
