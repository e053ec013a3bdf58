//! Refuses combinations of flags that cannot work, before anything is started.

use std::net::SocketAddr;

use super::Serve;
use crate::error::CliError;

impl Serve {
    /// Flags that are fine each, and not together.
    pub(super) fn check(&self) -> Result<(), CliError> {
        self.check_peers()?;
        let admin = self.admin.listen(self.peers.data.is_some());
        let own = self.peers.peers.iter().find(|peer| self.id.as_ref() == Some(&peer.name));
        let peer_listen = self.peers.peer_listen.or_else(|| own.and_then(|peer| peer.address.parse().ok()));
        let flag = if self.peers.peer_listen.is_some() { "--peer-listen" } else { "this peer's address in --peers" };
        let listening =
            [("--listen", Some(self.listen)), ("--http", Some(self.http)), ("--admin", admin), (flag, peer_listen)];
        for (place, (flag, address)) in listening.iter().enumerate() {
            let Some(address) = address else { continue };
            let before =
                listening[..place].iter().find(|(_, other)| other.is_some_and(|other| collide(other, *address)));
            if let Some((other, _)) = before {
                return Err(CliError::Flags(format!(
                    "{other} and {flag} are the same port, {address}: each needs one of its own"
                )));
            }
        }
        Ok(())
    }

    fn check_peers(&self) -> Result<(), CliError> {
        let peers = &self.peers.peers;
        for (place, peer) in peers.iter().enumerate() {
            if let Some(other) = peers[..place].iter().find(|other| other.address == peer.address) {
                return Err(CliError::Flags(format!(
                    "--peers: {} and {} have the same address, {}: each peer listens for itself",
                    other.name, peer.name, peer.address
                )));
            }
        }
        if !peers.is_empty() && self.listen.ip().is_unspecified() && self.advertise.is_none() {
            return Err(CliError::Flags(format!(
                "--listen {} is every address of this machine, and the other peers send clients here: name one that \
                 clients reach with --advertise HOST:PORT",
                self.listen
            )));
        }
        Ok(())
    }
}

/// Port 0 is another each time.
fn collide(one: SocketAddr, other: SocketAddr) -> bool {
    let everywhere = one.ip().is_unspecified() || other.ip().is_unspecified();
    one.port() == other.port() && one.port() != 0 && (one.ip() == other.ip() || everywhere)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_port_of_all_addresses_is_taken_on_each() {
        let address = |text: &str| -> SocketAddr { text.parse().expect("an address") };
        assert!(collide(address("0.0.0.0:5100"), address("127.0.0.1:5100")));
        assert!(collide(address("127.0.0.1:5100"), address("127.0.0.1:5100")));
        assert!(!collide(address("127.0.0.2:5100"), address("127.0.0.1:5100")));
        assert!(!collide(address("127.0.0.1:0"), address("127.0.0.1:0")));
    }
}
