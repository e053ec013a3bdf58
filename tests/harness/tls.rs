//! TLS clients that use any certificate, valid or not.

use std::{fs, net::SocketAddr, path::PathBuf, sync::Arc};

use leaseway_tls::{ClientTls, Credentials, Files};
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::TcpStream,
};
use tokio_rustls::{
    TlsConnector,
    rustls::{
        ClientConfig, RootCertStore,
        crypto::ring::default_provider,
        pki_types::{CertificateDer, PrivateKeyDer, ServerName, pem::PemObject as _},
        version::{TLS12, TLS13},
    },
};
use tonic::transport::{Channel, Endpoint};

use super::wait::{block_on, runtime};

/// The connection preface and an empty SETTINGS frame of an HTTP/2 client.
pub(crate) const HTTP2: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\x04\0\0\0\0\0";

/// The TLS flags of a server.
pub(crate) fn flags(files: &Files) -> Vec<String> {
    let named = [("--tls-cert", &files.certificate), ("--tls-key", &files.key), ("--tls-ca", &files.ca)];
    let named = named.into_iter().filter_map(|(flag, path)| Some([flag.to_owned(), text(path.as_ref()?)]));
    named.flatten().collect()
}

pub(crate) fn text(path: &std::path::Path) -> String {
    path.to_str().unwrap().to_owned()
}

/// Connects as our clients do.
pub(crate) fn channel(address: SocketAddr, files: &Files) -> Channel {
    let tls = ClientTls::new(&Credentials::load(files.clone()).unwrap(), None).unwrap();
    let _inside = runtime().enter();
    leaseway_tls::channel(Some(&tls), Endpoint::from_shared(format!("http://{address}")).unwrap())
}

fn chain(path: &Option<PathBuf>) -> Vec<CertificateDer<'static>> {
    let bytes = fs::read(path.as_ref().unwrap()).unwrap();
    CertificateDer::pem_slice_iter(&bytes).map(Result::unwrap).collect()
}

fn key(path: &Option<PathBuf>) -> PrivateKeyDer<'static> {
    PrivateKeyDer::from_pem_slice(&fs::read(path.as_ref().unwrap()).unwrap()).unwrap()
}

/// A client that trusts the CA of `shown` and uses its certificate, valid or not.
#[derive(Clone)]
pub(crate) struct Stranger(TlsConnector);

impl Stranger {
    pub(crate) fn new(shown: &Files, protocol: &[u8]) -> Stranger {
        let mut roots = RootCertStore::empty();
        roots.add_parsable_certificates(chain(&shown.ca));
        let builder = ClientConfig::builder_with_provider(Arc::new(default_provider()))
            .with_protocol_versions(&[&TLS13, &TLS12])
            .unwrap()
            .with_root_certificates(roots);
        let mut config = match &shown.certificate {
            Some(_) => builder.with_client_auth_cert(chain(&shown.certificate), key(&shown.key)).unwrap(),
            None => builder.with_no_client_auth(),
        };
        config.alpn_protocols = vec![protocol.to_vec()];
        Stranger(TlsConnector::from(Arc::new(config)))
    }

    /// Sends `question`, and returns the first bytes of the answer or the TLS error.
    pub(crate) fn ask(&self, address: SocketAddr, question: &[u8]) -> Result<Vec<u8>, String> {
        block_on(async {
            let stream = TcpStream::connect(address).await.unwrap();
            let name = ServerName::from(address.ip());
            let mut stream = self.0.connect(name, stream).await.map_err(|error| error.to_string())?;
            stream.write_all(question).await.map_err(|error| error.to_string())?;
            let mut answer = vec![0; 64 << 10];
            let length = stream.read(&mut answer).await.map_err(|error| error.to_string())?;
            answer.truncate(length);
            if answer.is_empty() { Err("the connection was closed".to_owned()) } else { Ok(answer) }
        })
    }

    /// Requests a page. Returns its status and the whole response.
    pub(crate) fn page(&self, address: SocketAddr, path: &str) -> Result<(u16, String), String> {
        let question = format!("GET {path} HTTP/1.1\r\nHost: {address}\r\n\r\n");
        let answer = String::from_utf8_lossy(&self.ask(address, question.as_bytes())?).into_owned();
        let status = answer.split(' ').nth(1).and_then(|status| status.parse().ok()).expect("a status line");
        Ok((status, answer))
    }
}
