//! What a client does: leases by hand.

pub(crate) mod ask;
pub(crate) mod shell;
