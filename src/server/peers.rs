//! This server as one of the peers of its node: from options to a quorum.

use std::{net::SocketAddr, path::PathBuf, sync::Arc};

use leaseway_quorum::{self as quorum, Quorum, Secret, Timing};

use tokio::{net::TcpListener, sync::watch};

use crate::{
    actors::{Handover, Memory, NodeHandle},
    clock::Clock,
    first::{FirstConfiguration, longest_lease},
    follow::follow,
    grpc::{
        Identity,
        admin::{self, AdminService, Token},
    },
    run::{Addresses, ServeError, bind, local},
    services::Services,
};

/// A lone peer's name, unless it is given one.
const ALONE: &str = "alone";

/// What survives a restart, and who else answers for this node.
#[derive(Debug, Clone)]
pub struct PeerOptions {
    /// Where it is kept.
    pub data: PathBuf,
    /// All peers by name, with the addresses at which they listen for each other, this one included. Empty: it is alone.
    pub peers: Vec<(String, String)>,
    /// Where to listen for them; none: at this peer's address among them.
    pub listen: Option<SocketAddr>,
    /// The file with the secret that all of them share.
    pub secret_file: Option<PathBuf>,
    /// Nothing was ever promised to anybody.
    pub bootstrap: bool,
    /// What a new master starts from.
    pub handover: Handover,
    /// How soon a silent master is replaced.
    pub timing: Timing,
    /// Where operators are served.
    pub admin: SocketAddr,
    /// The file with what operators must know.
    pub admin_token_file: Option<PathBuf>,
}

impl PeerOptions {
    /// The secret of the peers.
    fn secret(&self) -> Result<Option<Secret>, ServeError> {
        let Some(path) = &self.secret_file else { return Ok(None) };
        read_secret(path).map(|secret| Some(Secret::new(secret)))
    }

    /// Where to listen for peers; none if it is alone.
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

/// What a file says, without the line break at its end.
fn read_secret(path: &std::path::Path) -> Result<String, ServeError> {
    let text = std::fs::read_to_string(path)
        .map_err(|error| ServeError::Secret { path: path.to_owned(), why: error.to_string() })?;
    let text = text.trim_end_matches(['\r', '\n']);
    if text.is_empty() {
        return Err(ServeError::Secret { path: path.to_owned(), why: "it is empty".into() });
    }
    Ok(text.to_owned())
}

/// A peer that has joined, and does not serve yet.
pub(crate) struct Joined {
    pub(crate) memory: Memory,
    admin: TcpListener,
    token: Option<Token>,
}

pub(crate) async fn join(
    options: &PeerOptions,
    id: Option<&str>,
    identity: &mut Identity,
    addresses: &mut Addresses,
    clock: Clock,
    first: &FirstConfiguration,
) -> Result<Joined, ServeError> {
    let token = match &options.admin_token_file {
        Some(path) => Some(Token::new(&read_secret(path)?)),
        None if !options.admin.ip().is_loopback() => return Err(ServeError::AdminOpen { address: options.admin }),
        None => None,
    };
    let admin = bind(options.admin, "--admin").await?;
    let admin_address = local(&admin, options.admin);
    identity.admin = admin_address.to_string().into();
    addresses.admin = Some(admin_address);
    let services = Services { grpc: identity.advertise.to_string(), admin: identity.admin.to_string() };
    let quorum = enter(options, id, &services, clock, first).await?;
    addresses.peers = quorum.listening();
    Ok(Joined { memory: Memory { quorum, handover: options.handover }, admin, token })
}

impl Joined {
    /// From here on it answers when the peers say so, and operators can change things.
    pub(crate) fn serve(
        self,
        node: &NodeHandle,
        identity: &Identity,
        first: FirstConfiguration,
        stopped: &watch::Receiver<bool>,
    ) -> Quorum {
        actix_rt::spawn(follow(self.memory.clone(), node.clone(), first));
        let quorum = self.memory.quorum;
        let service = AdminService::new(node.clone(), quorum.clone(), identity.clone());
        actix_rt::spawn(admin::serve(service, self.token, self.admin, stopped.clone()));
        quorum
    }
}

/// Whether any of them is master shows later.
async fn enter(
    options: &PeerOptions,
    id: Option<&str>,
    services: &Services,
    clock: Clock,
    first: &FirstConfiguration,
) -> Result<Quorum, ServeError> {
    let name = id.unwrap_or(ALONE);
    let mut settings = quorum::Settings::new(name, options.data.clone(), Arc::new(move || clock.at()));
    settings.listen = options.listen(name)?;
    settings.advertise = services.to_string();
    settings.peers = options.peers.clone();
    settings.bootstrap = options.bootstrap;
    settings.listening = longest_lease(&first.loaded.repository);
    settings.first_configuration = first.fact(clock, id.unwrap_or(&services.grpc));
    settings.secret = options.secret()?;
    settings.timing = options.timing;
    Ok(quorum::start(settings).await?)
}
