//! What a process needs whatever it serves: a clock, signals, its supervisor, and work that does not keep others waiting.

pub(crate) mod background;
pub(crate) mod clock;
pub(crate) mod coop;
pub(crate) mod signals;
pub(crate) mod supervisor;
