//! TLS of incoming connections.

use std::{sync::Arc, time::Duration};

use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::TcpStream,
    time::timeout,
};
use tokio_rustls::{
    TlsAcceptor,
    rustls::{
        ServerConfig,
        server::{NoServerSessionStorage, WebPkiClientVerifier},
        sign::SingleCertAndKey,
    },
    server::TlsStream,
};

use crate::{
    certificate::MalformedCertificate,
    credentials::{Credentials, Derived, Loaded, provider},
    error::{self, TlsError},
    names::Names,
};

/// The time limit of a handshake.
pub const HANDSHAKE_DEADLINE: Duration = Duration::from_secs(10);

/// The time limit of [`linger`] …
const LINGER_TIMEOUT: Duration = Duration::from_secs(1);
/// … and the number of bytes that it reads.
const MAX_IGNORED_BYTES: u64 = 64 << 10;

/// Whether clients have to present certificates.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ClientCertificates {
    /// Clients are not asked for one.
    Ignored,
    /// If a client presents one, it has to be valid.
    Optional,
    Required,
}

/// The protocol inside TLS.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Protocol {
    /// HTTP/2, for gRPC.
    Http2,
    /// HTTP/1.1, for pages.
    Http1,
}

impl Protocol {
    pub(crate) fn alpn(self) -> Vec<u8> {
        match self {
            Protocol::Http2 => b"h2".to_vec(),
            Protocol::Http1 => b"http/1.1".to_vec(),
        }
    }
}

/// The TLS configuration of a listener. Clones share it.
#[derive(Clone)]
pub struct ServerTls(Arc<Listener>);

struct Listener {
    credentials: Credentials,
    clients: ClientCertificates,
    protocol: Protocol,
    config: Derived<ServerConfig>,
}

/// A connection after its handshake.
pub struct Accepted {
    pub stream: TlsStream<TcpStream>,
    /// The names of the client certificate, if there is one.
    pub names: Option<Arc<Names>>,
}

impl ServerTls {
    /// The credentials need a certificate, and CAs if clients are asked for certificates.
    pub fn new(
        credentials: &Credentials,
        clients: ClientCertificates,
        protocol: Protocol,
    ) -> Result<ServerTls, TlsError> {
        let of = credentials.current();
        let config = configure(&of, clients, protocol)?;
        let config = Derived::new(of, config);
        Ok(ServerTls(Arc::new(Listener { credentials: credentials.clone(), clients, protocol, config })))
    }

    /// Performs the handshake with a client. If it fails, the client gets the alert before the connection is closed.
    pub async fn accept(&self, stream: TcpStream) -> Result<Accepted, TlsError> {
        let late = |_| TlsError::Late { with: "the client".to_owned(), deadline: HANDSHAKE_DEADLINE };
        let accepting = TlsAcceptor::from(self.config()).accept(stream).into_fallible();
        let stream = match timeout(HANDSHAKE_DEADLINE, accepting).await.map_err(late)? {
            Ok(stream) => stream,
            Err((error, stream)) => {
                linger(stream).await;
                return Err(TlsError::Handshake(error::explain_to_server(&error)));
            }
        };
        let names =
            names(&stream).map_err(|error| TlsError::Handshake(format!("the client's certificate: {error}")))?;
        Ok(Accepted { stream, names })
    }

    fn config(&self) -> Arc<ServerConfig> {
        let Listener { credentials, clients, protocol, config } = &*self.0;
        config.get(credentials.current(), |newest| configure(newest, *clients, *protocol))
    }
}

impl std::fmt::Debug for ServerTls {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Listener { credentials, clients, protocol, .. } = &*self.0;
        f.debug_struct("ServerTls")
            .field("credentials", credentials)
            .field("clients", clients)
            .field("protocol", protocol)
            .finish_non_exhaustive()
    }
}

fn names(stream: &TlsStream<TcpStream>) -> Result<Option<Arc<Names>>, MalformedCertificate> {
    match stream.get_ref().1.peer_certificates() {
        Some([certificate, ..]) => Ok(Some(Arc::new(Names::of(certificate)?))),
        _ => Ok(None),
    }
}

fn configure(loaded: &Loaded, clients: ClientCertificates, protocol: Protocol) -> Result<ServerConfig, TlsError> {
    let own = loaded.own.as_ref().ok_or(TlsError::NoCertificate)?;
    let refused = |error: &dyn std::fmt::Display| TlsError::Handshake(format!("TLS cannot be set up: {error}"));
    let builder = ServerConfig::builder_with_provider(provider())
        .with_safe_default_protocol_versions()
        .map_err(|error| refused(&error))?;
    let builder = match clients {
        ClientCertificates::Ignored => builder.with_no_client_auth(),
        asked => {
            let roots = Arc::clone(loaded.roots.as_ref().ok_or(TlsError::NoCa)?);
            let verifier = WebPkiClientVerifier::builder_with_provider(roots, provider());
            let verifier = match asked {
                ClientCertificates::Optional => verifier.allow_unauthenticated(),
                _ => verifier,
            };
            builder.with_client_cert_verifier(verifier.build().map_err(|error| refused(&error))?)
        }
    };
    let mut config = builder.with_cert_resolver(Arc::new(SingleCertAndKey::from(own.certified.clone())));
    config.alpn_protocols = vec![protocol.alpn()];
    if clients != ClientCertificates::Ignored {
        // Without resumption, because a resumed session skips the check whether the client certificate has expired.
        config.session_storage = Arc::new(NoServerSessionStorage {});
        config.send_tls13_tickets = 0;
    }
    Ok(config)
}

/// Closes a connection so that the other side can read the last bytes sent to it. Closing with unread bytes would reset
/// the connection, and the reset could overtake bytes that are still on their way.
pub async fn linger(mut stream: TcpStream) {
    let ending = async {
        stream.shutdown().await?;
        tokio::io::copy(&mut stream.take(MAX_IGNORED_BYTES), &mut tokio::io::sink()).await
    };
    let _ = timeout(LINGER_TIMEOUT, ending).await;
}
