//! Peers with real sockets and real files, all in one process.

mod elections;
mod world;
