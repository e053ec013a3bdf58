//! A gateway, its callers over HTTP, and Envoys that ask it or report to it.

pub(crate) mod passes;
pub(crate) mod process;
pub(crate) mod rlqs;
pub(crate) mod rls;
