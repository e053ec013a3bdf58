//! What is safe: which leases count, and for how long.

pub(crate) mod leases;
pub(crate) mod ledger;
pub(crate) mod promises;
