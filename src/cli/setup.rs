//! Commands that prepare a machine: certificates, tokens, shell completions and manual pages.

pub(crate) mod certs;
pub(crate) mod manual;
pub(crate) mod token;
