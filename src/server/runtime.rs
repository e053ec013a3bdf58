//! Services for the whole process: clock, signals, background work and cooperative scheduling.

pub(crate) mod background;
pub(crate) mod clock;
pub(crate) mod coop;
pub(crate) mod signals;
