//! Where a process can listen.

use std::{
    io,
    net::{Ipv4Addr, SocketAddr, TcpListener},
};

/// So many addresses of `host` whose ports were free a moment ago. Another process may take one first; a server that is
/// given it then says so and ends.
pub fn free(host: Ipv4Addr, number: usize) -> io::Result<Vec<SocketAddr>> {
    // Held until all are known, so that no port is named twice.
    let listeners = (0..number).map(|_| TcpListener::bind((host, 0))).collect::<io::Result<Vec<_>>>()?;
    listeners.iter().map(TcpListener::local_addr).collect()
}
