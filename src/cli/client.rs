//! Commands that act as a client: they lease capacity by hand.

pub(crate) mod ask;
pub(crate) mod shell;
