//! Joins the peers of this node.

use std::{net::SocketAddr, path::PathBuf, sync::Arc};

use leaseway_core::types::Millis;
use leaseway_raft::{
    self as raft, Accept, Backup, PeerConnection, RaftHandle, Secret, StartError, StateOrigin, Timing,
};
use tokio_stream::StreamExt as _;

use crate::{
    config::{
        error::ServeError,
        initial_config::{InitialConfiguration, believed, longest_lease},
        read_secret,
    },
    listen::{Addresses, Caller, Listener, ListenerSettings, tls::Tls},
    node::{Handover, Membership, addresses::PeerEndpoints, addresses::ServerInfo},
    runtime::clock::Clock,
};

/// The default name of a server without peers.
const ALONE: &str = "alone";

/// The data directory and the peers of this node.
#[derive(Debug, Clone)]
pub struct PeerOptions {
    /// The data directory.
    pub data: PathBuf,
    /// The names of all peers, including this one, with their addresses for peers. Empty for a server without peers.
    pub peers: Vec<(String, String)>,
    /// Where to listen for peers. The default is this peer's address in `peers`.
    pub listen: Option<SocketAddr>,
    /// The file with the shared secret of the peers.
    pub secret_file: Option<PathBuf>,
    /// Bootstraps a new cluster.
    pub bootstrap: bool,
    /// Bootstraps a cluster that replaces another server with clients.
    pub take_over: Option<TakeOver>,
    pub handover: Handover,
    pub timing: Timing,
}

/// The longest remaining validity of leases of the replaced server.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TakeOver {
    /// The longest lease of the configuration.
    LongestLease,
    For(Millis),
}

impl PeerOptions {
    fn secret(&self) -> Result<Option<Secret>, ServeError> {
        let Some(path) = &self.secret_file else { return Ok(None) };
        read_secret(path).map(|secret| Some(Secret::new(secret)))
    }

    /// Where to listen for peers. `None` without peers.
    fn listen(&self, name: &str) -> Result<Option<SocketAddr>, ServeError> {
        if self.listen.is_some() || self.peers.is_empty() {
            return Ok(self.listen);
        }
        let own = self.peers.iter().find(|(other, _)| other == name).map(|(_, address)| address);
        let address = own.ok_or_else(|| ServeError::NotAmongPeers {
            name: name.to_owned(),
            peers: self.peers.iter().map(|(name, _)| name.as_str()).collect::<Vec<_>>().join(", "),
        })?;
        address.parse().map(Some).map_err(|_| ServeError::PeerListen { address: address.clone() })
    }
}

/// A peer whose Raft runs, and that does not serve yet.
pub(crate) struct Joined {
    pub(crate) membership: Membership,
    /// The data directory.
    pub(crate) data: PathBuf,
}

/// Connections to and from the other peers.
pub(crate) struct Peering<'a> {
    pub(crate) listener: ListenerSettings,
    pub(crate) tls: Option<&'a Tls>,
}

/// Joins the peers: starts Raft in the data directory. `id` is the name of this peer; `None` without `--id`.
pub(crate) async fn join(
    options: &PeerOptions,
    (id, info): (Option<&str>, &ServerInfo),
    peering: Peering<'_>,
    addresses: &mut Addresses,
    clock: Clock,
    first: Arc<InitialConfiguration>,
) -> Result<Joined, ServeError> {
    let (grpc, admin, http) = (info.advertise.to_string(), info.admin.to_string(), info.http.to_string());
    let services = PeerEndpoints { grpc, admin, http };
    let raft = enter(options, (id, &services), peering, clock, &first).await?;
    addresses.peers = raft.local_addr();
    let membership = Membership { raft, handover: options.handover, initial: first };
    Ok(Joined { membership, data: options.data.clone() })
}

/// Accepts connections of peers, under the same limits as other connections.
fn accept(settings: ListenerSettings) -> Accept {
    Arc::new(move |tcp| {
        let connections = Listener::new(tcp, settings.clone()).connections();
        Box::pin(connections.map(|opened| {
            opened.map(|connection| {
                let Caller { address, names, .. } = connection.caller().clone();
                PeerConnection::new(connection, address, names)
            })
        }))
    })
}

/// Starts Raft, without waiting for an election.
async fn enter(
    options: &PeerOptions,
    (id, services): (Option<&str>, &PeerEndpoints),
    peering: Peering<'_>,
    clock: Clock,
    first: &InitialConfiguration,
) -> Result<RaftHandle, ServeError> {
    let restored = Backup::pending(&options.data).map_err(StartError::Store)?;
    if options.handover == Handover::Learning && (options.take_over.is_some() || restored.is_some()) {
        return Err(ServeError::TakeOverLearning);
    }
    let name = id.unwrap_or(ALONE);
    let mut settings = raft::Settings::new(name, options.data.clone(), Arc::new(move || clock.at()));
    settings.listen = options.listen(name)?;
    settings.advertise = services.to_string();
    settings.peers = options.peers.clone();
    settings.bootstrap = options.bootstrap || options.take_over.is_some();
    settings.take_over = options.take_over.is_some();
    settings.listening = match options.take_over {
        Some(TakeOver::For(lease)) => believed(lease),
        Some(TakeOver::LongestLease) | None => longest_lease(&first.loaded.repository),
    };
    if let Some(backup) = restored {
        (settings.bootstrap, settings.take_over, settings.listening) = (true, true, backup.believed());
        settings.restored = Some(Arc::new(backup));
    }
    settings.first_configuration = first.configuration(clock, id.unwrap_or(&services.grpc));
    settings.secret = options.secret()?;
    settings.tls = peering.tls.map(Tls::to_peers).transpose()?.flatten();
    settings.accept = accept(peering.listener);
    settings.timing = options.timing;
    let raft = raft::start(settings).await?;
    if options.take_over.is_some() && raft.origin() == StateOrigin::Resumed {
        tracing::warn!(
            "--take-over is ignored: {} has been used before; a learning period that has begun continues",
            options.data.display()
        );
    }
    Ok(raft)
}
