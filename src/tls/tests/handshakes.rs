use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::TcpStream,
};

use super::authority::{Authority, FUTURE, NOW, Outcome, PAST, client, listen, load, meet, server};
use crate::{ClientCertificates, ClientTls, Credentials, Files, Protocol, ServerTls};

/// Asserts that both sides fail with these errors.
fn assert_refused(seen: &Outcome, client_error: &str, server_error: &str) {
    let (Err(client), Err(server)) = seen else { panic!("it is refused: {seen:?}") };
    assert!(client.contains(client_error), "{client_error}: {client}");
    assert!(server.contains(server_error), "{server_error}: {server}");
}

#[tokio::test]
async fn client_and_server_verify_each_other() {
    let authority = Authority::new();
    let server = server(authority.issue("server", &["a.test", "10.0.0.1"], NOW), ClientCertificates::Required);
    let names = ["web.test", "spiffe://acme/web/1", "https://acme.test", "*.a.test"];
    let client = client(authority.issue("web-1", &names, NOW));
    for host in ["a.test", "10.0.0.1"] {
        let (read, names) = meet(&server, &client, host).await;
        assert_eq!(read.as_deref(), Ok("hello"));
        let names = names.expect("accepted").expect("a certificate");
        assert_eq!(names.all(), ["spiffe://acme/web/1", "web.test", "web-1"]);
        assert_eq!(names.identity(), Some("spiffe://acme/web/1"));
        assert!(names.is_valid_for("web.test") && names.is_valid_for("x.a.test"));
        assert!(!names.is_valid_for("web-1") && !names.is_valid_for("10.0.0.1"));
    }
}

#[tokio::test]
async fn a_name_with_control_characters_is_ignored() {
    let authority = Authority::new();
    let server = server(authority.issue("server", &["a.test"], NOW), ClientCertificates::Required);
    let client = client(authority.issue("good", &["spiffe://acme/\u{1}"], NOW));
    let (_, names) = meet(&server, &client, "a.test").await;
    assert_eq!(names.expect("accepted").expect("a certificate").all(), ["good"]);
}

#[tokio::test]
async fn an_ip_address_may_be_in_brackets() {
    let authority = Authority::new();
    let server = server(authority.issue("server", &["::1"], NOW), ClientCertificates::Required);
    let client = client(authority.issue("c", &["::1"], NOW));
    let (read, names) = meet(&server, &client, "[::1]").await;
    assert_eq!(read.as_deref(), Ok("hello"));
    assert!(names.expect("accepted").expect("a certificate").is_valid_for("[::1]"));
}

#[tokio::test]
async fn a_server_of_another_ca_validity_or_name_is_refused_with_the_reason() {
    let authority = Authority::new();
    let trusting = client(authority.trust());
    for other in [Authority::new(), Authority::named(authority.name())] {
        let stranger = server(other.issue("server", &["a.test"], NOW), ClientCertificates::Ignored);
        let seen = meet(&stranger, &trusting, "a.test").await;
        assert_refused(&seen, "not issued by a CA that is trusted here", "does not trust the CA of this server");
    }
    for (years, client_error) in [(PAST, "valid until 2002-01-01"), (FUTURE, "not valid before 2100-01-01")] {
        let invalid = Credentials::load_without_validity_check(&authority.issue("server", &["a.test"], years));
        let server = ServerTls::new(&invalid, ClientCertificates::Ignored, Protocol::Http2).expect("it serves");
        let seen = meet(&server, &trusting, "a.test").await;
        assert_refused(&seen, client_error, "has expired or is not valid yet");
    }
    let elsewhere = server(authority.issue("server", &["b.test", "c.test"], NOW), ClientCertificates::Ignored);
    let seen = meet(&elsewhere, &trusting, "a.test").await;
    assert_refused(&seen, "is for other names (b.test, c.test)", "another name");
    let (read, _) = meet(&elsewhere, &named(&authority, "c.test"), "a.test").await;
    assert_eq!(read.as_deref(), Ok("hello"), "under the name that is expected");
}

fn named(authority: &Authority, name: &str) -> ClientTls {
    ClientTls::new(&load(authority.trust()), Some(name)).expect("a name")
}

#[tokio::test]
async fn a_client_of_another_ca_or_validity_is_refused_with_the_reason() {
    let authority = Authority::new();
    let server = server(authority.issue("server", &["a.test"], NOW), ClientCertificates::Required);
    for other in [Authority::new(), Authority::named(authority.name())] {
        let stranger = other.issue("web", &["web.test"], NOW);
        let stranger = client(Files { ca: Some(authority.ca()), ..stranger });
        let seen = meet(&server, &stranger, "a.test").await;
        assert_refused(&seen, "does not trust the CA", "not issued by the CA of --tls-ca");
    }
    for (years, server_error) in [(PAST, "valid until 2002-01-01"), (FUTURE, "not valid before 2100-01-01")] {
        let files = authority.issue("web", &["web.test"], years);
        let client = ClientTls::new(&Credentials::load_without_validity_check(&files), None).expect("it connects");
        let seen = meet(&server, &client, "a.test").await;
        assert_refused(&seen, "has expired or is not valid yet", server_error);
    }
}

#[tokio::test]
async fn a_client_without_a_certificate_is_refused_only_if_one_is_required() {
    let authority = Authority::new();
    let files = authority.issue("server", &["a.test"], NOW);
    let bare = client(authority.trust());
    let seen = meet(&server(files.clone(), ClientCertificates::Required), &bare, "a.test").await;
    assert_refused(&seen, "requires a client certificate", "presented no certificate");
    for clients in [ClientCertificates::Optional, ClientCertificates::Ignored] {
        let (read, names) = meet(&server(files.clone(), clients), &bare, "a.test").await;
        assert_eq!((read.as_deref(), names), (Ok("hello"), Ok(None)));
    }
}

#[tokio::test]
async fn an_invalid_certificate_is_refused_even_if_it_is_optional() {
    let (authority, other) = (Authority::new(), Authority::new());
    let server = server(authority.issue("server", &["a.test"], NOW), ClientCertificates::Optional);
    let stranger = client(Files { ca: Some(authority.ca()), ..other.issue("web", &["web.test"], NOW) });
    assert_refused(&meet(&server, &stranger, "a.test").await, "does not trust the CA", "not issued by the CA");
}

#[tokio::test]
async fn a_server_without_tls_is_reported_to_the_client() {
    let authority = Authority::new();
    let client = client(authority.trust());
    for answer in ["", "HTTP/1.1 400 Bad Request\r\n\r\n"] {
        let (listener, address) = listen().await;
        let answering = async {
            let (mut stream, _) = listener.accept().await.expect("it comes");
            let mut hello = [0; 64];
            stream.read_exact(&mut hello).await.expect("the hello");
            stream.write_all(answer.as_bytes()).await.expect("it is sent");
            stream
        };
        let connecting = async {
            let stream = TcpStream::connect(address).await.expect("it listens");
            client.connect("a.test", stream).await.err().expect("no TLS there").to_string()
        };
        // Without an answer the server closes the connection at once, otherwise when both sides are done.
        let error = match answer {
            "" => tokio::join!(async { drop(answering.await) }, connecting).1,
            _ => tokio::join!(answering, connecting).1,
        };
        assert!(error.contains("does not speak TLS") || error.contains("that does not speak TLS"), "{error}");
        assert!(error.contains("without TLS"), "{error}");
    }
}

#[tokio::test]
async fn an_http_1_port_is_refused_for_grpc() {
    let authority = Authority::new();
    let files = authority.issue("server", &["a.test"], NOW);
    let pages = ServerTls::new(&load(files), ClientCertificates::Ignored, Protocol::Http1).expect("it serves");
    let seen = meet(&pages, &client(authority.trust()), "a.test").await;
    assert_refused(&seen, "but not HTTP/2", "does not speak HTTP/2");
}
