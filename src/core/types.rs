//! Amounts, times, tokens, claims: the values that everything else is made of.

pub(crate) mod amount;
pub(crate) mod claim;
pub(crate) mod cluster_clock;
pub(crate) mod escape;
pub(crate) mod glob;
pub(crate) mod principal;
pub(crate) mod time;
pub(crate) mod token;
