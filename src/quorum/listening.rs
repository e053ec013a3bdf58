//! How long resources listen ([`Fact::Listen`](crate::fact::Fact::Listen)), as one number.

use leaseway_core::Millis;

/// Set in a length for which resources listen also where their templates say less. No length comes near it; a version
/// that does not know the bit listens for ever, which errs on the safe side.
const WHOLE: u64 = 1 << 63;

/// The length, and whether all resources listen for it.
pub(crate) fn encode(length: Millis, whole: bool) -> u64 {
    let length = length.0.min(WHOLE - 1);
    if whole && length > 0 { length | WHOLE } else { length }
}

/// The inverse of [`encode`].
pub(crate) fn decode(stored: u64) -> (Millis, bool) {
    (Millis(stored & !WHOLE), stored & WHOLE != 0)
}
