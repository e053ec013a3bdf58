//! The settings that a peer starts with.

pub(crate) mod timing;

use std::{
    fmt, io,
    net::{IpAddr, SocketAddr},
    path::PathBuf,
    pin::Pin,
    sync::Arc,
};

use futures_util::{Stream, StreamExt as _};
use leaseway_core::types::Millis;
use leaseway_tls::{ClientTls, Names};
use tokio::{
    io::{AsyncRead, AsyncWrite},
    net::TcpListener,
};
use tokio_stream::wrappers::TcpListenerStream;

use crate::{
    log::{Member, command::Configuration},
    settings::timing::Timing,
    state::{backup::Backup, machine::Clock},
};

/// The settings of a peer. [`Settings::new`] is for a lone peer.
#[derive(Clone)]
pub struct Settings {
    /// The name of this peer, as in `peers`.
    pub name: String,
    /// The data directory, used by this peer alone.
    pub data: PathBuf,
    /// Monotonic milliseconds, for master leases and the ends of promises.
    pub clock: Clock,
    /// The address of the peer listener. Without it this peer is a cluster of one.
    pub listen: Option<SocketAddr>,
    /// The address for clients. Other peers redirect clients to it while this one is master.
    pub advertise: String,
    /// Name and `HOST:PORT` of the peer listener of all peers, including this one. Empty for a lone peer.
    pub peers: Vec<(String, String)>,
    /// Bootstraps a new cluster. Ignored if the data directory has been used.
    pub bootstrap: bool,
    /// With `bootstrap`: the new cluster replaces another server, whose promises may be in force for `listening`, even
    /// if the configuration says less.
    pub take_over: bool,
    /// Put in force by the first master if the cluster has no configuration.
    pub first_configuration: Option<Configuration>,
    /// The learning period of a cluster that is new, but was not bootstrapped: unknown promises may be in force.
    pub listening: Millis,
    /// The backup that a new cluster begins with. Used with `bootstrap`, `take_over` and `listening`.
    pub restored: Option<Arc<Backup>>,
    /// The shared secret of all peers. Without it and without `tls`, peers listen on loopback only.
    pub secret: Option<Secret>,
    /// TLS of connections to other peers. With it, a caller is a peer if its certificate is valid for the host of one.
    /// Without it, connections are in plain text.
    pub tls: Option<ClientTls>,
    /// Accepts connections of other peers, over TLS with client certificates if `tls` is set.
    pub accept: Accept,
    /// Has to be the same on all peers.
    pub timing: Timing,
}

impl Settings {
    pub fn new(name: impl Into<String>, data: impl Into<PathBuf>, clock: Clock) -> Settings {
        Settings {
            name: name.into(),
            data: data.into(),
            clock,
            listen: None,
            advertise: String::new(),
            peers: Vec::new(),
            bootstrap: false,
            take_over: false,
            first_configuration: None,
            listening: Millis(0),
            restored: None,
            secret: None,
            tls: None,
            accept: plain_text(),
            timing: Timing::ONE_SITE,
        }
    }

    /// Whether this peer is a cluster of one, so that no other can be master.
    pub(crate) fn is_lone(&self) -> bool {
        self.listen.is_none()
    }

    /// Whether `peers` names no other peer. Others may still be added if this one listens.
    pub(crate) fn names_no_other_peer(&self) -> bool {
        self.peers.iter().all(|(name, _)| *name == self.name)
    }

    /// The address of a peer that `peers` names.
    pub(crate) fn address_of(&self, name: &str) -> Option<&str> {
        self.peers.iter().find(|(peer, _)| peer == name).map(|(_, address)| address.as_str())
    }

    /// This peer as a member of a new cluster.
    pub(crate) fn own_member(&self) -> Member {
        let address = self.address_of(&self.name).unwrap_or_default().to_owned();
        Member { name: self.name.clone(), address, advertise: self.advertise.clone() }
    }

    /// The address of a member's peer listener. An address in `peers` takes precedence over that in the membership,
    /// which is from the time the member was added.
    pub(crate) fn address_of_member<'a>(&'a self, member: &'a Member) -> &'a str {
        self.address_of(&member.name).unwrap_or(&member.address)
    }
}

/// The shared secret. Peers prove that they know it without sending it. It encrypts nothing: only TLS does.
#[derive(Clone)]
pub struct Secret(Arc<[u8]>);

impl Secret {
    pub fn new(secret: impl AsRef<[u8]>) -> Secret {
        Secret(secret.as_ref().into())
    }

    pub(crate) fn bytes(&self) -> &[u8] {
        &self.0
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Secret(…)")
    }
}

/// Turns a bound listener into a stream of connections.
pub type Accept = Arc<dyn Fn(TcpListener) -> Incoming + Send + Sync>;

pub type Incoming = Pin<Box<dyn Stream<Item = io::Result<PeerConnection>> + Send>>;

pub(crate) trait Transport: AsyncRead + AsyncWrite + Send {}

impl<T: AsyncRead + AsyncWrite + Send> Transport for T {}

/// An accepted connection, perhaps from a peer.
pub struct PeerConnection {
    pub(crate) transport: Pin<Box<dyn Transport>>,
    pub(crate) address: IpAddr,
    pub(crate) names: Option<Arc<Names>>,
}

impl PeerConnection {
    /// `names` are those of the client certificate, if there is one.
    pub fn new(
        transport: impl AsyncRead + AsyncWrite + Send + 'static,
        address: IpAddr,
        names: Option<Arc<Names>>,
    ) -> PeerConnection {
        PeerConnection { transport: Box::pin(transport), address, names }
    }
}

/// Accepts without TLS.
pub(crate) fn plain_text() -> Accept {
    Arc::new(|listener| {
        Box::pin(TcpListenerStream::new(listener).map(|accepted| {
            let stream = accepted?;
            stream.set_nodelay(true)?;
            let address = stream.peer_addr()?.ip();
            Ok(PeerConnection::new(stream, address, None))
        }))
    })
}
