//! Accepts and opens connections.

use std::{
    net::{IpAddr, Ipv4Addr},
    sync::Arc,
    time::Duration,
};

use leaseway_core::policy::access::Identity;
use leaseway_tls::{HANDSHAKE_DEADLINE, Protocol, ServerTls};
use tokio::{
    io::DuplexStream,
    net::{TcpListener, TcpStream},
    sync::mpsc,
    time::timeout,
};
use tokio_stream::{Stream, wrappers::ReceiverStream};

use super::{
    caller::Caller,
    connection::{self, Connection},
    pending_handshakes::{HandshakePermit, PendingHandshakes},
    protocol_detection::{DetectedProtocol, detect_protocol, read_preface, refuse},
};
use crate::{
    config::listeners::Service,
    listen::open_connections::{ConnectionPermit, OpenConnection, OpenConnections},
    observe::{logging::Throttle, metrics},
};

/// The pause after an error of `accept`, which is usually a lack of file descriptors.
const ACCEPT_PAUSE: Duration = Duration::from_millis(50);

/// The settings of a listener.
#[derive(Debug, Clone)]
pub(crate) struct ListenerSettings {
    pub(crate) service: Service,
    pub(crate) tls: Option<ServerTls>,
    /// The open connections of this listener.
    pub(crate) open: OpenConnections,
    /// The pending handshakes of all listeners.
    pub(crate) pending_handshakes: PendingHandshakes,
}

pub(crate) struct Listener {
    tcp: TcpListener,
    settings: ListenerSettings,
}

impl Listener {
    pub(crate) fn new(tcp: TcpListener, settings: ListenerSettings) -> Listener {
        Listener { tcp, settings }
    }

    /// The next connection within the limits. It must be opened elsewhere, because that waits for the client.
    pub(crate) async fn accept(&self) -> Accepted {
        loop {
            let (stream, address) = match self.tcp.accept().await {
                Ok(accepted) => accepted,
                Err(error) => {
                    tracing::warn!(%error, listener = self.settings.service.name(), "cannot accept a connection");
                    tokio::time::sleep(ACCEPT_PAUSE).await;
                    continue;
                }
            };
            let ListenerSettings { service, tls, open, pending_handshakes } = &self.settings;
            let Some(permit) = open.admit(address.ip()) else { continue };
            let Some(opening) = pending_handshakes.begin(permit.connection.origin().principal) else {
                metrics::connection_refused();
                continue;
            };
            match stream.set_nodelay(true).and_then(|()| stream.into_std()) {
                Ok(stream) => {
                    let raw = Raw::Tcp { stream, tls: tls.clone(), opening };
                    return Accepted { raw, address: address.ip().to_canonical(), service: *service, permit };
                }
                Err(error) => tracing::debug!(%error, "connection lost before it was accepted"),
            }
        }
    }

    /// All connections, opened.
    pub(crate) fn connections(self) -> impl Stream<Item = std::io::Result<Connection>> + Send + 'static {
        let (ready, connections) = mpsc::channel(1);
        tokio::spawn(async move {
            loop {
                let accepted = tokio::select! {
                    () = ready.closed() => return,
                    accepted = self.accept() => accepted,
                };
                let ready = ready.clone();
                tokio::spawn(async move {
                    if let Some(connection) = accepted.open().await {
                        // An error means that no more connections are served.
                        let _ = ready.send(Ok(connection)).await;
                    }
                });
            }
        });
        ReceiverStream::new(connections)
    }
}

/// An accepted connection before its handshake. It is not registered with a runtime, so any thread may open it.
pub(crate) struct Accepted {
    raw: Raw,
    /// IPv4 addresses are not mapped to IPv6.
    address: IpAddr,
    service: Service,
    permit: ConnectionPermit,
}

enum Raw {
    Tcp { stream: std::net::TcpStream, tls: Option<ServerTls>, opening: HandshakePermit },
    InProcess(DuplexStream),
}

/// Why a connection is not served.
enum Refusal {
    /// It was lost, or closed before the first byte, as by health checks of load balancers. Not logged.
    Gone,
    Because(String),
}

impl Accepted {
    pub(super) fn in_process(stream: DuplexStream, service: Service, permit: ConnectionPermit) -> Accepted {
        Accepted { raw: Raw::InProcess(stream), address: IpAddr::V4(Ipv4Addr::LOCALHOST), service, permit }
    }

    pub(crate) fn open_connection(&self) -> Arc<OpenConnection> {
        Arc::clone(&self.permit.connection)
    }

    /// Waits for the TLS handshake and the HTTP/2 preface. Answers a client with another protocol by an error in that
    /// protocol. Returns `None` and logs the reason if the connection cannot be served.
    pub(crate) async fn open(self) -> Option<Connection> {
        let (address, service) = (self.address, self.service);
        let opened = timeout(HANDSHAKE_DEADLINE, self.open_in_time()).await;
        let why = match opened {
            Ok(Ok(connection)) => return Some(connection),
            Ok(Err(Refusal::Gone)) => return None,
            Ok(Err(Refusal::Because(why))) => why,
            Err(_) => format!("no complete handshake within {} s", HANDSHAKE_DEADLINE.as_secs()),
        };
        metrics::handshake_failed(service);
        warn(service, address, &why);
        None
    }

    async fn open_in_time(self) -> Result<Connection, Refusal> {
        let Accepted { raw, address, service, permit } = self;
        let (stream, tls, _opening) = match raw {
            Raw::Tcp { stream, tls, opening } => (stream, tls, opening),
            Raw::InProcess(stream) => {
                let connection = Arc::clone(&permit.connection);
                let caller = Caller { address, names: None, is_in_process: true, connection };
                let stream = connection::Stream::InProcess(Box::new(stream));
                return Ok(Connection::new(stream, false, caller, permit));
            }
        };
        let stream = TcpStream::from_std(stream).map_err(|_| Refusal::Gone)?;
        let (mut stream, names) = match (detect_protocol(&stream).await.map_err(|_| Refusal::Gone)?, tls) {
            (DetectedProtocol::Closed, _) => return Err(Refusal::Gone),
            (DetectedProtocol::Tls, Some(tls)) => {
                let secured = tls.accept(stream).await.map_err(|error| Refusal::Because(error.to_string()))?;
                (connection::Stream::Tls(Box::new(secured.stream)), secured.names)
            }
            (opening, None) if is_right(opening, service) => (connection::Stream::Plain(stream), None),
            (other, tls) => {
                let (to_it, of_it) = mismatch(other, tls.is_some());
                refuse(stream, other, to_it).await;
                return Err(Refusal::Because(of_it.to_owned()));
            }
        };
        let has_preface = service.protocol() == Protocol::Http2;
        if has_preface && !read_preface(&mut stream).await.map_err(|_| Refusal::Gone)? {
            return Err(Refusal::Because("the client does not begin with the HTTP/2 preface".to_owned()));
        }
        if let Some(names) = &names {
            permit.connection.ends_at(names.until());
        }
        let caller = Caller { address, names, is_in_process: false, connection: Arc::clone(&permit.connection) };
        if let Some(Identity::Named(name)) = caller.certified()
            && !permit.connection.count_to(&permit.accounts().of_identity(&name))
        {
            let why = format!("`{name}` has too many connections (--address-share)");
            return Err(Refusal::Because(why));
        }
        let connection = Connection::new(stream, has_preface, caller, permit);
        Ok(if service == Service::Peers { connection.ending_by_itself() } else { connection })
    }
}

/// Whether a connection without TLS begins with the protocol of the service.
fn is_right(opening: DetectedProtocol, service: Service) -> bool {
    match service.protocol() {
        Protocol::Http2 => opening == DetectedProtocol::Http2,
        // hyper answers invalid requests.
        Protocol::Http1 => {
            matches!(opening, DetectedProtocol::Http1 | DetectedProtocol::Http2 | DetectedProtocol::Other)
        }
    }
}

/// The answer to a client with another protocol, and the log text.
fn mismatch(opening: DetectedProtocol, has_tls: bool) -> (&'static str, &'static str) {
    match opening {
        DetectedProtocol::Tls => (
            "this server does not speak TLS: use http://",
            "the client speaks TLS, but this server has no --tls-cert and --tls-key",
        ),
        _ if has_tls => ("this server speaks TLS: use https:// or --tls-ca FILE", "the client does not speak TLS"),
        _ => ("this is a gRPC port: pages are served at the address of --http", "the client does not speak gRPC"),
    }
}

static LOGGED: Throttle = Throttle::new();

fn warn(service: Service, address: IpAddr, why: &str) {
    let Some(suppressed) = LOGGED.turn() else { return };
    tracing::warn!(listener = service.name(), from = %address, suppressed, "connection refused: {why}");
}
