//! A cluster as it is: status, explanations, checks, support bundles.

pub(crate) mod check;
pub(crate) mod debug;
pub(crate) mod explain;
pub(crate) mod status;
pub(crate) mod top;
