//! TLS between real processes: accepted connections, and the errors on both sides.

use std::net::SocketAddr;

use leaseway_tls::Files;
use tonic::transport::Channel;

use crate::harness::{
    authority::{Authority, Valid},
    doorman::{Asks as _, Client, Doorman, one_of_ours},
    http,
    peers::channel as in_the_clear,
    server::{Server, free_addresses},
    tls::{HTTP2, Stranger, channel, flags, text},
    wait::eventually,
};

/// A server on loopback with an admin address.
fn server(files: &Files, more: &[&str]) -> Server {
    let flags = flags(files);
    let flags: Vec<&str> = flags.iter().map(String::as_str).chain(["--admin", "127.0.0.1:0"]).collect();
    Server::with_flags(&[&flags, more].concat())
}

fn of_server(authority: &Authority) -> Files {
    authority.issue("server", &["127.0.0.1", "localhost"], Valid::Now)
}

fn client(server: &Server, files: &Files) -> Client {
    Client::new(Doorman::over(channel(server.grpc(), files)), "c")
}

/// The error of a request over this channel.
fn error_over(channel: Channel) -> String {
    let error = Doorman::over(channel).try_discovery().expect_err("the server refuses the client");
    let causes = std::iter::successors(std::error::Error::source(&error), |error| error.source());
    causes.last().map_or_else(|| error.message().to_owned(), ToString::to_string)
}

fn error_of(server: &Server, files: &Files) -> String {
    error_over(channel(server.grpc(), files))
}

#[test]
fn every_listener_requires_a_valid_certificate_of_the_ca() {
    let (ours, other) = (Authority::new("ours"), Authority::new("another"));
    let server = server(&of_server(&ours), &[]);
    let (grpc, http) = (server.grpc(), server.http());
    let admin: SocketAddr = server.admin().parse().unwrap();
    let show =
        |files: &Files, protocol: &[u8]| Stranger::new(&Files { ca: ours.trust().ca, ..files.clone() }, protocol);

    let good = ours.issue("web-1", &["spiffe://acme/web/1"], Valid::Now);
    for address in [grpc, admin] {
        let answer = show(&good, b"h2").ask(address, HTTP2).expect("the certificate is accepted");
        assert_eq!(answer[3], 4, "the answer is a SETTINGS frame");
    }
    assert_eq!(show(&good, b"http/1.1").page(http, "/metrics").expect("the certificate is accepted").0, 200);
    assert_eq!(client(&server, &good).ask("r", 10.0), 10.0);

    let bad = [
        (other.issue("web-1", &["web"], Valid::Now), "UnknownCA", "not issued by the CA of --tls-ca"),
        (
            ours.issue("past", &["web"], Valid::Past),
            "CertificateExpired",
            "the client's certificate has expired: it was valid",
        ),
        (
            ours.issue("future", &["web"], Valid::Future),
            "CertificateExpired",
            "the client's certificate is not valid before",
        ),
    ];
    for (shown, client_says, server_says) in &bad {
        for (address, protocol, listener) in
            [(grpc, &b"h2"[..], "clients"), (admin, b"h2", "operators"), (http, b"http/1.1", "http")]
        {
            eventually("the server logs the reason", || {
                let error = show(shown, protocol).ask(address, HTTP2).expect_err("the server refuses the client");
                assert!(error.contains(client_says), "{listener}: {error}");
                // The server logs at most one such line per second, so it may have logged another error instead.
                let log = server.log();
                let is_logged = log
                    .lines()
                    .any(|line| line.contains(server_says) && line.contains(&format!("listener=\"{listener}\"")));
                is_logged.then_some(())
            });
        }
    }

    // Without a certificate pages are refused with a hint, but probes are answered.
    for address in [grpc, admin] {
        let error = show(&ours.trust(), b"h2").ask(address, HTTP2).expect_err("the server refuses the client");
        assert!(error.contains("CertificateRequired"), "{error}");
    }
    let bare = show(&ours.trust(), b"http/1.1");
    for (path, status) in [("/healthz", 200), ("/readyz", 200), ("/metrics", 401), ("/resources", 401), ("/", 401)] {
        let (found, page) = bare.page(http, path).expect("an answer");
        assert_eq!(found, status, "{path}: {page}");
        assert_eq!(page.contains("--tls-client-auth"), status == 401, "{page}");
    }
    eventually("the server logs the reason", || {
        show(&ours.trust(), b"h2").ask(grpc, HTTP2).expect_err("the server refuses the client");
        server.log().contains("the client presented no certificate").then_some(())
    });

    // Errors of our own client.
    let error = error_of(&server, &ours.trust());
    assert!(error.contains("requires a client certificate"), "{error}");
    let error = error_of(&server, &Files { ca: ours.trust().ca, ..bad[0].0.clone() });
    assert!(error.contains("does not trust the CA of this client's certificate"), "{error}");
    let metrics = show(&good, b"http/1.1").page(http, "/metrics").expect("the certificate is accepted").1;
    assert!(metrics.contains("leaseway_tls_certificate_expires_seconds"), "{metrics}");
}

/// A child of the server at `parent`, with these files.
fn child(parent: &str, files: &Files) -> Server {
    server(files, &["--parent", parent, "--node", "leaf"])
}

#[test]
fn child_and_parent_authenticate_each_other_by_certificates() {
    let (ours, other) = (Authority::new("ours"), Authority::new("another"));
    let parent = server(&of_server(&ours), &[]);
    let address = parent.grpc().to_string();
    let files = ours.issue("leaf", &["127.0.0.1"], Valid::Now);
    let good = child(&address, &files);
    let mut asks = client(&good, &files);
    eventually("the parent lends", || (asks.ask("r", 10.0) == 10.0).then_some(()));

    // The child has a certificate of another CA, or none.
    let stranger = other.issue("leaf", &["127.0.0.1"], Valid::Now);
    let trusting = Files { ca: ours.trust().ca, ..stranger };
    let of_stranger = Files { ca: other.trust().ca, ..files };
    let bare = format!("https://{address}");
    let not_trusted = ("does not trust the CA of this client's", "not issued by the CA");
    let not_shown = ("requires a client certificate", "presented no certificate");
    for (child, asks, (child_says, parent_says)) in [
        (child(&address, &trusting), Some(&of_stranger), not_trusted),
        (server(&ours.trust(), &["--parent", &bare]), None, not_shown),
    ] {
        eventually("child and parent log the reason", || {
            ask_in_vain(&child, asks);
            (child.log().contains(child_says) && parent.log().contains(parent_says)).then_some(())
        });
    }
}

/// Sends a request that makes the child ask its parent, and ignores the answer. Without files it uses no TLS.
fn ask_in_vain(child: &Server, files: Option<&Files>) {
    let channel = match files {
        Some(files) => channel(child.grpc(), files),
        None => in_the_clear(child.grpc()),
    };
    let _ = Doorman::over(channel).get(one_of_ours("c", "r", 10.0, None));
}

fn three_peers(files: &Files) -> Vec<Server> {
    let names = ["a", "b", "c"];
    let named = names.iter().zip(free_addresses(3)).map(|(name, at)| format!("{name}={at}"));
    let named = named.collect::<Vec<_>>().join(",");
    let directory = tempfile::tempdir().unwrap().keep();
    let start = |name: &str| {
        let data = text(&directory.join(name));
        let own = ["--id", name, "--peers", &named, "--data", &data, "--bootstrap", "--timing", "100,500,900"];
        server(files, &own)
    };
    names.map(start).into()
}

fn hosts() -> Vec<String> {
    // The addresses that `free_addresses` returns.
    (0..=255).map(|low| format!("127.0.0.{low}")).chain((0..=255).map(|low| format!("127.0.1.{low}"))).collect()
}

#[test]
fn peers_authenticate_each_other_by_certificates() {
    let (ours, other) = (Authority::new("ours"), Authority::new("another"));
    let hosts = hosts();
    let hosts: Vec<&str> = hosts.iter().map(String::as_str).collect();
    let good = ours.issue("peer", &hosts, Valid::Now);
    let of_other = other.issue("peer", &hosts, Valid::Now);
    let stranger = Files { ca: ours.trust().ca, ..of_other };
    let running = three_peers(&good);
    let reads = Stranger::new(&good, b"http/1.1");
    let ready = |server: &Server| {
        let page = reads.page(server.http(), "/readyz").ok()?;
        page.1.contains("ready: master").then_some(())
    };
    eventually("there is a master", || running.iter().find_map(&ready));

    // A client certificate of the same CA completes the handshake.
    let at: SocketAddr = peer_address(&running[0]);
    let web = ours.issue("web-1", &["web"], Valid::Now);
    assert!(Stranger::new(&web, b"h2").ask(at, HTTP2).is_ok(), "the handshake succeeds");
    for (shown, client_says, peer_says) in [
        (&stranger, "UnknownCA", "not issued by the CA of --tls-ca"),
        (&ours.trust(), "CertificateRequired", "presented no certificate"),
        (&ours.issue("past", &hosts, Valid::Past), "CertificateExpired", "has expired"),
        (&ours.issue("future", &hosts, Valid::Future), "CertificateExpired", "is not valid before"),
    ] {
        eventually("the peer logs the reason", || {
            let error = Stranger::new(shown, b"h2").ask(at, HTTP2).expect_err("the server refuses the client");
            assert!(error.contains(client_says), "{error}");
            running[0].log().contains(peer_says).then_some(())
        });
    }
}

fn peer_address(server: &Server) -> SocketAddr {
    let output = server.stdout();
    let (_, after) = output.split_once("peer ").expect("the log names the peers' listener");
    let (_, after) = after.split_once(" on ").expect("the line has an address");
    after.split_once(',').expect("a comma follows the address").0.parse().unwrap()
}

#[test]
fn plaintext_clients_of_a_tls_server_get_a_clear_error() {
    let ours = Authority::new("ours");
    let server = server(&of_server(&ours), &[]);
    // hyper drops the reason of a GOAWAY that arrives before the request was sent.
    eventually("the server logs the reason", || {
        error_over(in_the_clear(server.grpc())).contains("this server speaks TLS").then_some(())
    });
    let page = http::get(server.http(), "/metrics");
    assert_eq!((page.status, page.body.as_str()), (400, "this server speaks TLS: use https:// or --tls-ca FILE\n"));
    // TLS to a server without TLS.
    let plain = Server::with_flags(&[]);
    let error = error_of(&plain, &ours.trust());
    assert!(error.contains("does not speak TLS on this port: write http:// to connect without TLS"), "{error}");
    eventually("the server logs the reason", || {
        error_of(&plain, &ours.trust());
        plain.log().contains("the client speaks TLS, but this server has no --tls-cert and --tls-key").then_some(())
    });
}
