//! Faults: drawn ahead of time, then injected into processes, disks, links and clients.

pub(crate) mod handover;
pub(crate) mod injector;
pub(crate) mod network;
pub(crate) mod packets;
