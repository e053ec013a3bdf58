//! What is made before a server starts: certificates, tokens, completions and manual pages.

pub(crate) mod certs;
pub(crate) mod manual;
pub(crate) mod token;
