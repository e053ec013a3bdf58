//! Connections that fail before their first request.

use std::time::Duration;

use leaseway_core::types::PrincipalShare;
use leaseway_tls::{ClientCertificates, Credentials, Files, Protocol, ServerTls};
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::TcpStream,
};

use super::*;
use crate::{config::listeners::Service, listen::open_connections::OpenConnections};

const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";

async fn listener(
    service: Service,
    tls: Option<ServerTls>,
    most: usize,
    most_opening: usize,
) -> (Listener, SocketAddr) {
    let tcp = TcpListener::bind("127.0.0.1:0").await.expect("a free port");
    let address = tcp.local_addr().expect("it is bound");
    let open = OpenConnections::at_most(most);
    let pending_handshakes = PendingHandshakes::new(most_opening, PrincipalShare::ALL);
    (Listener::new(tcp, ListenerSettings { service, tls, open, pending_handshakes }), address)
}

fn tls() -> ServerTls {
    let directory = tempfile::tempdir().expect("a directory");
    let key = rcgen::KeyPair::generate().expect("a key");
    let params = rcgen::CertificateParams::new(vec!["a.test".to_owned()]).expect("a name");
    let certificate = params.self_signed(&key).expect("a certificate");
    let path = |name: &str, pem: &str| {
        let path = directory.path().join(name);
        std::fs::write(&path, pem).expect("written");
        Some(path)
    };
    let files =
        Files { certificate: path("cert", &certificate.pem()), key: path("key", &key.serialize_pem()), ca: None };
    let credentials = Credentials::load(files).expect("good files");
    ServerTls::new(&credentials, ClientCertificates::Ignored, Protocol::Http2).expect("it serves")
}

/// Sends these bytes. Returns the answer if the connection is refused.
async fn told(service: Service, tls: Option<ServerTls>, question: &[u8]) -> Option<Vec<u8>> {
    let (listener, address) = listener(service, tls, 1, 1).await;
    let asking = async {
        let mut stream = TcpStream::connect(address).await.expect("it listens");
        stream.write_all(question).await.expect("it is sent");
        stream.shutdown().await.expect("nothing more");
        let mut answer = Vec::new();
        let read = stream.read_to_end(&mut answer).await;
        (answer, read)
    };
    let opening = async { listener.accept().await.open().await.map(drop) };
    let ((answer, read), opened) = tokio::join!(asking, opening);
    opened.is_none().then(|| {
        read.expect("it is not reset");
        answer
    })
}

#[tokio::test]
async fn a_client_with_the_wrong_protocol_is_refused_in_its_own() {
    let http = b"GET / HTTP/1.1\r\n\r\n";
    let hello = [0x16, 3, 1, 0, 1, 0];
    for (service, with_tls, question, says) in [
        (Service::Clients, true, &http[..], "HTTP/1.1 400"),
        (Service::Clients, true, &http[..], "this server speaks TLS: use https:// or --tls-ca FILE\n"),
        (Service::Operators, true, PREFACE, "this server speaks TLS: use https:// or --tls-ca FILE"),
        (Service::Clients, false, &http[..], "this is a gRPC port: pages are served at the address of --http\n"),
        (Service::Peers, false, &hello[..], "this server does not speak TLS: use http://"),
    ] {
        let answer = told(service, with_tls.then(tls), question).await.expect("it is refused");
        assert!(String::from_utf8_lossy(&answer).contains(says), "{says}: {answer:?}");
    }
    for (service, with_tls, question) in
        [(Service::Clients, false, &b""[..]), (Service::Clients, false, &b"PRI * HTTP/2.1\r\n\r\nSM\r\n\r\n"[..])]
    {
        assert_eq!(told(service, with_tls.then(tls), question).await, Some(Vec::new()));
    }
    assert_eq!(told(Service::Clients, false.then(tls), PREFACE).await, None, "it is accepted");
    for question in [&http[..], PREFACE] {
        assert_eq!(told(Service::Pages, false.then(tls), question).await, None, "hyper answers it");
    }
}

#[tokio::test]
async fn the_consumed_preface_is_replayed_to_the_reader() {
    let (listener, address) = listener(Service::Clients, None, 1, 1).await;
    let mut client = TcpStream::connect(address).await.expect("it listens");
    client.write_all(PREFACE).await.expect("sent");
    client.write_all(b"and more").await.expect("sent");
    client.shutdown().await.expect("nothing more");
    let mut connection = listener.accept().await.open().await.expect("it is opened");
    assert!(connection.caller().address.is_loopback() && connection.caller().identity().is_none());
    let mut first = [0; 5];
    connection.read_exact(&mut first).await.expect("it is there");
    let mut rest = Vec::new();
    connection.read_to_end(&mut rest).await.expect("it is there");
    assert_eq!([&first[..], &rest].concat(), [PREFACE, b"and more"].concat());
}

#[tokio::test(start_paused = true)]
async fn a_silent_connection_ends_and_makes_room() {
    for said in [&b""[..], &PREFACE[..7]] {
        let (listener, address) = listener(Service::Clients, None, 1, 1).await;
        let mut silent = TcpStream::connect(address).await.expect("it listens");
        silent.write_all(said).await.expect("sent");
        let opening = tokio::spawn(listener.accept().await.open());
        // All slots are taken.
        let _refused = TcpStream::connect(address).await.expect("it listens");
        let more = tokio::time::timeout(Duration::from_secs(5), listener.accept()).await;
        assert!(more.is_err(), "there is no room");
        assert!(opening.await.expect("no panic").is_none());
        let _next = TcpStream::connect(address).await.expect("it listens");
        listener.accept().await;
    }
}
