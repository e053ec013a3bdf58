//! Resources that are open at a door, and what holds them.
