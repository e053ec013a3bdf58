//! What a master does, as machines without clock, I/O, task, lock, channel or actor: inputs go in, effects come out.

pub mod uplink;
