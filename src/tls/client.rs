//! TLS of outgoing connections.

use std::{
    future::Future,
    io::{self, IoSlice},
    pin::Pin,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    task::{Context, Poll},
};

use http::Uri;
use hyper_util::{client::legacy::connect::HttpConnector, rt::TokioIo};
use tokio::{
    io::{AsyncBufReadExt as _, AsyncRead, AsyncWrite, AsyncWriteExt as _, ReadBuf},
    net::TcpStream,
    time::timeout,
};
use tokio_rustls::{
    TlsConnector,
    client::TlsStream,
    rustls::{
        ClientConfig, RootCertStore, SignatureScheme,
        client::ResolvesClientCert,
        pki_types::ServerName,
        sign::{CertifiedKey, SingleCertAndKey},
    },
};
use tonic::transport::{Channel, Endpoint};
use tower_service::Service;

use crate::{
    credentials::{Credentials, Derived, Loaded, provider},
    error::{self, TlsError},
    names::server_name,
    server::{HANDSHAKE_DEADLINE, Protocol},
};

/// The TLS configuration of a client. Clones share it.
#[derive(Clone)]
pub struct ClientTls(Arc<Client>);

struct Client {
    credentials: Credentials,
    /// Replaces the host name in the verification.
    server_name: Option<ServerName<'static>>,
    /// The CAs of the system, unless the credentials have some.
    system: Option<Arc<RootCertStore>>,
    protocol: Protocol,
    config: Derived<ClientConfig>,
}

impl ClientTls {
    /// Verifies servers with the CAs of the credentials or, if there are none, with those of the system. Presents the
    /// certificate of the credentials, if any, to servers that ask for one. `name` replaces the host name when the
    /// server's certificate is verified.
    pub fn new(credentials: &Credentials, name: Option<&str>) -> Result<ClientTls, TlsError> {
        ClientTls::for_protocol(Protocol::Http2, credentials, name)
    }

    /// Like [`new`](Self::new), for protocols other than gRPC.
    pub fn for_protocol(
        protocol: Protocol,
        credentials: &Credentials,
        name: Option<&str>,
    ) -> Result<ClientTls, TlsError> {
        let of = credentials.current();
        let system = if of.roots.is_none() { Some(Arc::new(system_roots()?)) } else { None };
        let named = |name: &str| server_name(name).ok_or_else(|| TlsError::ServerName(name.to_owned()));
        let server_name = name.map(named).transpose()?;
        let config = configure(&of, system.as_ref(), protocol)?;
        let config = Derived::new(of, config);
        Ok(ClientTls(Arc::new(Client { credentials: credentials.clone(), server_name, system, protocol, config })))
    }

    /// Performs the handshake with the server at `host`, a name or an IP address.
    pub async fn connect(&self, host: &str, stream: TcpStream) -> Result<ClientStream, TlsError> {
        let name = match &self.0.server_name {
            Some(name) => name.clone(),
            None => server_name(host).ok_or_else(|| TlsError::ServerName(host.to_owned()))?,
        };
        let late = |_| TlsError::Late { with: host.to_owned(), deadline: HANDSHAKE_DEADLINE };
        let connecting = timeout(HANDSHAKE_DEADLINE, self.handshake(host, name, stream));
        let connected: io::Result<ClientStream> = connecting.await.map_err(late)?;
        connected.map_err(|error| TlsError::Handshake(error::explain_to_client(host, &error)))
    }

    async fn handshake(&self, host: &str, name: ServerName<'static>, stream: TcpStream) -> io::Result<ClientStream> {
        let mut config = (*self.config()).clone();
        let resolver = Arc::new(RecordingResolver {
            resolver: config.client_auth_cert_resolver,
            was_asked: AtomicBool::new(false),
        });
        config.client_auth_cert_resolver = Arc::clone(&resolver) as _;
        let mut stream = TlsConnector::from(Arc::new(config)).connect(name, stream).await?;
        let waits = resolver.was_asked.load(Ordering::Relaxed) && self.0.protocol == Protocol::Http2;
        if waits {
            stream.write_all(PREFACE).await?;
            stream.flush().await?;
            stream.fill_buf().await?;
        }
        Ok(ClientStream { stream, host: host.into(), sent: if waits { PREFACE.len() as u8 } else { 0 } })
    }

    fn connector(&self) -> Connector {
        let mut tcp = HttpConnector::new();
        tcp.set_nodelay(true);
        tcp.enforce_http(false);
        Connector { tcp, tls: self.clone() }
    }

    fn config(&self) -> Arc<ClientConfig> {
        let Client { credentials, system, protocol, config, .. } = &*self.0;
        config.get(credentials.newest(), |newest| configure(newest, system.as_ref(), *protocol))
    }
}

/// A channel that connects on first use, and again after the connection was lost. Without `tls` it is in plain text.
pub fn channel(tls: Option<&ClientTls>, endpoint: Endpoint) -> Channel {
    match tls {
        None => endpoint.connect_lazy(),
        Some(tls) => secured(endpoint).connect_with_connector_lazy(tls.connector()),
    }
}

pub async fn connected_channel(
    tls: Option<&ClientTls>,
    endpoint: Endpoint,
) -> Result<Channel, tonic::transport::Error> {
    match tls {
        None => endpoint.connect().await,
        Some(tls) => secured(endpoint).connect_with_connector(tls.connector()).await,
    }
}

impl std::fmt::Debug for ClientTls {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ClientTls").field("credentials", &self.0.credentials).finish_non_exhaustive()
    }
}

/// Sets the scheme of requests to `https`.
fn secured(endpoint: Endpoint) -> Endpoint {
    let mut parts = endpoint.uri().clone().into_parts();
    parts.scheme = Some(http::uri::Scheme::HTTPS);
    match Uri::from_parts(parts) {
        Ok(origin) => endpoint.origin(origin),
        Err(_) => endpoint,
    }
}

fn system_roots() -> Result<RootCertStore, TlsError> {
    let found = rustls_native_certs::load_native_certs();
    let mut roots = RootCertStore::empty();
    roots.add_parsable_certificates(found.certs);
    if roots.is_empty() {
        let why = found.errors.first().map_or_else(|| "no CA file found".to_owned(), ToString::to_string);
        return Err(TlsError::NoSystemRoots(why));
    }
    Ok(roots)
}

fn configure(
    loaded: &Loaded,
    system: Option<&Arc<RootCertStore>>,
    protocol: Protocol,
) -> Result<ClientConfig, TlsError> {
    let roots = loaded.roots.as_ref().or(system).ok_or(TlsError::NoCa)?;
    let builder = ClientConfig::builder_with_provider(provider())
        .with_safe_default_protocol_versions()
        .map_err(|error| TlsError::Handshake(format!("TLS cannot be set up: {error}")))?
        .with_root_certificates(Arc::clone(roots));
    let mut config = match &loaded.own {
        Some(own) => builder.with_client_cert_resolver(Arc::new(SingleCertAndKey::from(own.certified.clone()))),
        None => builder.with_no_client_auth(),
    };
    config.alpn_protocols = vec![protocol.alpn()];
    Ok(config)
}

/// The first bytes of an HTTP/2 client.
const PREFACE: &[u8; 24] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";

/// Records whether the server has asked for a client certificate.
///
/// In TLS 1.3 the server verifies the certificate after the client has finished the handshake. If the server rejects
/// it, hyper reports only that the first request failed. So a client that was asked for a certificate sends the HTTP/2
/// preface itself, which hyper would send first, and waits for the first bytes of the server or for its alert.
#[derive(Debug)]
struct RecordingResolver {
    resolver: Arc<dyn ResolvesClientCert>,
    was_asked: AtomicBool,
}

impl ResolvesClientCert for RecordingResolver {
    fn resolve(&self, root_hint_subjects: &[&[u8]], sigschemes: &[SignatureScheme]) -> Option<Arc<CertifiedKey>> {
        self.was_asked.store(true, Ordering::Relaxed);
        self.resolver.resolve(root_hint_subjects, sigschemes)
    }

    fn has_certs(&self) -> bool {
        self.resolver.has_certs()
    }
}

/// Opens the connections of a channel.
#[derive(Clone)]
struct Connector {
    tcp: HttpConnector,
    tls: ClientTls,
}

type BoxError = Box<dyn std::error::Error + Send + Sync>;

type Connecting = Pin<Box<dyn Future<Output = Result<TokioIo<ClientStream>, BoxError>> + Send>>;

impl Service<Uri> for Connector {
    type Response = TokioIo<ClientStream>;
    type Error = BoxError;
    type Future = Connecting;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), Self::Error>> {
        self.tcp.poll_ready(cx).map_err(Into::into)
    }

    fn call(&mut self, uri: Uri) -> Connecting {
        let (host, tls) = (uri.host().unwrap_or_default().to_owned(), self.tls.clone());
        let connecting = self.tcp.call(uri);
        Box::pin(async move {
            let stream = connecting.await?.into_inner();
            Ok(TokioIo::new(tls.connect(&host, stream).await?))
        })
    }
}

/// A connection to a server. Its errors explain what went wrong in the handshake.
pub struct ClientStream {
    stream: TlsStream<TcpStream>,
    host: Box<str>,
    /// The number of bytes of the HTTP/2 preface that were sent already and have to be skipped when written.
    sent: u8,
}

impl ClientStream {
    fn explained(&self, error: io::Error) -> io::Error {
        if error::tls_error(&error).is_none() {
            return error;
        }
        io::Error::new(error.kind(), TlsError::Handshake(error::explain_to_client(&self.host, &error)))
    }
}

impl AsyncRead for ClientStream {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let read = Pin::new(&mut self.stream).poll_read(cx, buf);
        read.map_err(|error| self.explained(error))
    }
}

impl AsyncWrite for ClientStream {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        if self.sent > 0 {
            let skipped = buf.len().min(usize::from(self.sent));
            self.sent -= skipped as u8;
            return Poll::Ready(Ok(skipped));
        }
        let written = Pin::new(&mut self.stream).poll_write(cx, buf);
        written.map_err(|error| self.explained(error))
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        if self.sent > 0 {
            let first = bufs.iter().find(|buf| !buf.is_empty()).map_or(&[][..], |buf| &**buf);
            return self.poll_write(cx, first);
        }
        let written = Pin::new(&mut self.stream).poll_write_vectored(cx, bufs);
        written.map_err(|error| self.explained(error))
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }
}
