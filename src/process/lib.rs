//! Child processes on this machine. `leaseway up`, the bench and the end-to-end tests share it.
//!
//! [`Process`] is a child that is stopped with its handle, [`tether`] stops a child whose parent is gone, [`usage`]
//! measures CPU time and memory, [`ports`] finds free ports, and [`link`] is a TCP proxy that injects network faults.

pub mod link;
mod process;
pub mod tether;
pub mod usage;

pub use process::{Output, Process, Start};
pub use rustix::process::Signal;

pub mod ports {
    use std::io;
    use std::net::{Ipv4Addr, SocketAddr, TcpListener};

    /// Addresses of `host` whose ports are free now. Another process may take one before the caller uses it.
    pub fn free(host: Ipv4Addr, number: usize) -> io::Result<Vec<SocketAddr>> {
        // All listeners stay open until the end, so that no port is returned twice.
        let listeners = (0..number).map(|_| TcpListener::bind((host, 0))).collect::<io::Result<Vec<_>>>()?;
        listeners.iter().map(TcpListener::local_addr).collect()
    }
}
