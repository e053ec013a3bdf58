//! What each holder is due: what is fair.

pub(crate) mod division;
pub(crate) mod settlement;
pub(crate) mod units;
