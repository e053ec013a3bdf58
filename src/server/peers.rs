//! This server as one of the peers of its node: from options to a quorum, and what the quorum says carried to the node.

use std::{net::SocketAddr, path::PathBuf, sync::Arc, time::Duration};

use leaseway_quorum::{self as quorum, Configuration, Fact, Mastership, Quorum, Secret, Services, Timing};

use crate::{
    actors::{Gone, Handover, NodeHandle},
    clock::Clock,
    config,
    run::ServeError,
};

/// A lone peer's name, unless it is given one.
const ALONE: &str = "alone";
/// How often a peer looks whether another has put a configuration in force.
const LOOK_EVERY: Duration = Duration::from_millis(200);

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
        let text = read_secret(path)?;
        Secret::new(&text).map(Some).map_err(|error| ServeError::Secret { path: path.clone(), why: error.to_string() })
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
pub(crate) fn read_secret(path: &std::path::Path) -> Result<String, ServeError> {
    let text = std::fs::read_to_string(path)
        .map_err(|error| ServeError::Secret { path: path.to_owned(), why: error.to_string() })?;
    let text = text.trim_end_matches(['\r', '\n']);
    if text.is_empty() {
        return Err(ServeError::Secret { path: path.to_owned(), why: "it is empty".into() });
    }
    Ok(text.to_owned())
}

/// Joins the peers. Whether any of them is master shows later.
pub(crate) async fn join(
    options: &PeerOptions,
    id: Option<&str>,
    services: Services,
    clock: Clock,
    first: Configuration,
) -> Result<Quorum, ServeError> {
    let name = id.unwrap_or(ALONE);
    let mut settings = quorum::Settings::new(name, options.data.clone(), Arc::new(move || clock.at()));
    settings.listen = options.listen(name)?;
    settings.services = services;
    settings.peers = options.peers.clone();
    settings.bootstrap = options.bootstrap;
    settings.first_configuration = Some(first);
    settings.secret = options.secret()?;
    settings.timing = options.timing;
    Ok(quorum::start(settings).await?)
}

/// Carries what the peers agree on to the node, until either is gone. A master that finds no configuration proposes `first`.
pub(crate) async fn follow(quorum: Quorum, node: NodeHandle, first: Configuration) {
    let mut mastership = quorum.mastership();
    mastership.mark_changed();
    let mut look = tokio::time::interval(LOOK_EVERY);
    look.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    loop {
        let followed = tokio::select! {
            changed = mastership.changed() => match changed {
                Ok(()) => {
                    let now = mastership.borrow_and_update().clone();
                    stand(&quorum, &node, now, &first).await
                }
                Err(_) => return,
            },
            _ = look.tick() => adopt_newest(&quorum, &node).await,
        };
        if let Err(Gone) = followed {
            return;
        }
    }
}

async fn stand(quorum: &Quorum, node: &NodeHandle, now: Mastership, first: &Configuration) -> Result<(), Gone> {
    if let Mastership::Master(reign) = &now {
        if quorum.read(|facts| facts.configuration().is_none()) {
            let proposed = quorum.propose(reign, vec![Fact::Configuration(first.clone())]).await;
            // Whoever is master next will try as well.
            if let Err(error) = proposed {
                tracing::warn!(%error, "the first configuration is not kept yet");
            }
        }
        // Before the first resource comes to life.
        adopt_newest(quorum, node).await?;
    }
    node.stand(now).await
}

/// Puts the newest configuration of the peers in force here.
pub(crate) async fn adopt_newest(quorum: &Quorum, node: &NodeHandle) -> Result<(), Gone> {
    let in_force = node.config().version;
    let newest = quorum.read(|facts| facts.configuration().filter(|newest| newest.version != in_force).cloned());
    let Some(newest) = newest else { return Ok(()) };
    match config::parse(&newest.source, &newest.text) {
        Ok(loaded) => {
            tracing::info!(version = newest.version, source = %newest.source, "configuration of the peers in force");
            node.adopt(loaded.repository, newest.version, newest.source.to_string()).await
        }
        // Applied by a server that understands more than this one.
        Err(error) if node.config().rejected.is_none() => {
            tracing::error!(
                version = newest.version,
                "the configuration of the peers is not understood here:\n{error}"
            );
            node.reject(error.to_string()).await
        }
        Err(_) => Ok(()),
    }
}
