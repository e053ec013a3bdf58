//! Commands that inspect a cluster: status, explanations, checks, support bundles.

pub(crate) mod budget;
pub(crate) mod check;
pub(crate) mod debug;
pub(crate) mod explain;
pub(crate) mod status;
pub(crate) mod top;
pub(crate) mod usage;
