//! TLS of a listener.

use std::{
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

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
    credentials::{Credentials, Loaded, provider},
    error::TlsError,
    explain,
    names::Names,
};

/// How long a handshake may take.
pub const HANDSHAKE_DEADLINE: Duration = Duration::from_secs(10);

/// How long the end of a connection may take that is not to be reset …
const LINGER_TIMEOUT: Duration = Duration::from_secs(1);
/// … and how much of what still comes is read meanwhile.
const MAX_IGNORED_BYTES: u64 = 64 << 10;

/// Whether clients are asked for certificates.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ClientCertificates {
    /// They are not.
    Ignored,
    /// One that is shown has to be good; none is fine, too.
    Optional,
    /// Each has to show one.
    Required,
}

/// What is spoken over TLS.
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

/// TLS of a listener. Clones share it; listeners of one server share the [`Credentials`].
#[derive(Clone)]
pub struct ServerTls(Arc<Listener>);

struct Listener {
    credentials: Credentials,
    clients: ClientCertificates,
    protocol: Protocol,
    /// What was made of the newest credentials.
    made: Mutex<BuiltServer>,
}

struct BuiltServer {
    of: Arc<Loaded>,
    config: Arc<ServerConfig>,
}

/// A connection after its handshake.
pub struct Secured {
    pub stream: TlsStream<TcpStream>,
    /// What the client's certificate proves, if it has shown one.
    pub names: Option<Arc<Names>>,
}

impl ServerTls {
    /// A listener with these credentials, which need a certificate, and CAs if clients are asked for one.
    pub fn new(
        credentials: &Credentials,
        clients: ClientCertificates,
        protocol: Protocol,
    ) -> Result<ServerTls, TlsError> {
        let of = credentials.current();
        let config = Arc::new(configure(&of, clients, protocol)?);
        let made = Mutex::new(BuiltServer { of, config });
        Ok(ServerTls(Arc::new(Listener { credentials: credentials.clone(), clients, protocol, made })))
    }

    /// The handshake with a client, which is told why it fails.
    pub async fn accept(&self, stream: TcpStream) -> Result<Secured, TlsError> {
        let late = |_| TlsError::Late { with: "the client".to_owned(), deadline: HANDSHAKE_DEADLINE };
        let accepting = TlsAcceptor::from(self.config()).accept(stream).into_fallible();
        let stream = match timeout(HANDSHAKE_DEADLINE, accepting).await.map_err(late)? {
            Ok(stream) => stream,
            Err((error, stream)) => {
                linger(stream).await;
                return Err(TlsError::Handshake(explain::to_server(&error)));
            }
        };
        let names = names(&stream).map_err(|error| TlsError::Handshake(format!("its certificate: {error}")))?;
        Ok(Secured { stream, names })
    }

    /// BuiltServer of the newest credentials.
    fn config(&self) -> Arc<ServerConfig> {
        let newest = self.0.credentials.current();
        let mut made = self.0.made.lock().unwrap_or_else(PoisonError::into_inner);
        if !Arc::ptr_eq(&made.of, &newest) {
            match configure(&newest, self.0.clients, self.0.protocol) {
                Ok(config) => made.config = Arc::new(config),
                Err(error) => tracing::error!("new certificates are not used, those before stay in use: {error}"),
            }
            made.of = newest;
        }
        Arc::clone(&made.config)
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
        // A session that is resumed would go on with a certificate that has expired meanwhile.
        config.session_storage = Arc::new(NoServerSessionStorage {});
        config.send_tls13_tickets = 0;
    }
    Ok(config)
}

/// Closes a connection so that the other side can read what was said last: with unread bytes it would be reset, and a
/// reset overtakes what was sent before it.
pub async fn linger(mut stream: TcpStream) {
    let ending = async {
        stream.shutdown().await?;
        tokio::io::copy(&mut stream.take(MAX_IGNORED_BYTES), &mut tokio::io::sink()).await
    };
    let _ = timeout(LINGER_TIMEOUT, ending).await;
}
