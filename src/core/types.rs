//! Amounts, times, tokens, claims: the values that everything else is made of.

pub mod amount;
pub mod claim;
pub mod cluster_clock;
pub mod escape;
pub mod glob;
pub mod principal;
pub mod time;
pub mod token;
