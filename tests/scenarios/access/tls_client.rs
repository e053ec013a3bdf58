//! The command line and the client library over TLS.

use std::time::Duration;

use leaseway_client::{Basis, Client, ClientTls, Credentials, Files, Resource};

use crate::harness::{
    authority::Authority,
    process::{Output, Process, leaseway, leaseway_reading},
    server::Server,
    tls::{flags, text},
    wait::{block_on, eventually, runtime},
};

fn words(words: &[String]) -> Vec<&str> {
    words.iter().map(String::as_str).collect()
}

/// A server whose clients need no certificate.
fn server_alone(authority: &Authority) -> Server {
    Server::with_flags(&words(&flags(&Files { ca: None, ..authority.issued("node") })))
}

/// A server that asks for certificates.
fn mutual(authority: &Authority, more: &[&str]) -> Server {
    Server::with_flags(&[&words(&flags(&authority.issued("node")))[..], more].concat())
}

fn get(server: &str, flags: &[&str]) -> Output {
    leaseway(&[&["get", "alice", "mysql", "40", "--server", server], flags].concat())
}

fn granted(output: &Output) {
    assert!(output.code == Some(0) && output.stdout.contains("alice may use 40 of `mysql`"), "{output:?}");
}

fn refused(output: &Output, code: i32, says: &str) {
    assert!(output.code == Some(code) && output.stderr.contains(says), "expected {code}, {says}: {output:?}");
}

#[test]
fn the_command_line_works_over_tls_and_explains_tls_errors() {
    let authority = Authority::with_node_and_alice();
    let server = server_alone(&authority);
    let (address, ca) = (server.grpc().to_string(), text(&authority.path("ca.pem")));
    granted(&get(&address, &["--tls-ca", &ca]));
    granted(&get(&format!("https://{address}"), &["--tls-ca", &ca]));
    granted(&get(&format!("localhost:{}", server.grpc().port()), &["--tls-ca", &ca]));
    granted(&get(&address, &["--tls-ca", &ca, "--tls-server-name", "localhost"]));
    let variables = [("LEASEWAY_TLS_CA", ca.as_str()), ("LEASEWAY_SERVER", &address)];
    granted(&Process::start(&["get", "alice", "mysql", "40"], &variables).finish());
    let status = leaseway(&["status", "mysql", "--server", &address, "--tls-ca", &ca]);
    assert!(status.stdout.contains("alice"), "{status:?}");
    let released = leaseway(&["release", "alice", "mysql", "--server", &address, "--tls-ca", &ca]);
    assert_eq!(released.code, Some(0), "{released:?}");
    let shell = ["shell", "--server", &address, "--tls-ca", &ca];
    let shown = leaseway_reading(&shell, "get alice mysql 40\nshow\nwatch mysql\n");
    assert!(shown.stdout.contains("capacity: 40") && shown.code == Some(0), "{shown:?}");

    refused(&get(&address, &[]), 69, "--tls-ca");
    refused(&get(&format!("https://{address}"), &[]), 69, "not issued by a CA that is trusted here");
    refused(
        &get(&address, &["--tls-ca", &text(&Authority::new("another").path("ca.pem"))]),
        69,
        "not issued by a CA that is trusted here",
    );
    refused(&get(&address, &["--tls-ca", &ca, "--tls-server-name", "db.internal"]), 69, "is for other names");
    refused(&get(&format!("http://{address}"), &["--tls-ca", &ca]), 2, "write https://");
    let http = server.http().to_string();
    refused(&get(&http, &["--tls-ca", &ca]), 69, "looks like the --http port");
}

fn build(builder: leaseway_client::Builder) -> Client {
    let _inside = runtime().enter();
    builder.deadline(Duration::from_secs(2)).backoff_max(Duration::from_millis(100)).build().unwrap()
}

fn client_tls(files: Files) -> ClientTls {
    ClientTls::new(&Credentials::load(files).unwrap(), None).unwrap()
}

fn has_lease(resource: &Resource) {
    eventually("the client has a lease", || (resource.usable().basis == Basis::Lease).then_some(()));
}

fn says(client: &Client, words: &str) {
    eventually(words, || client.health().last_error.filter(|error| error.contains(words)));
}

#[test]
fn the_client_library_works_over_tls_and_reports_tls_errors() {
    let authority = Authority::with_node_and_alice();
    let server = mutual(&authority, &[]);
    let address = server.grpc().to_string();
    let endpoint = || Client::builder().endpoint(format!("https://{address}"));

    let client = build(endpoint().tls(&client_tls(authority.issued("alice"))));
    let resource = client.resource("r").wants(10.0).open().unwrap();
    has_lease(&resource);
    assert_eq!(client.health().server, address);

    let without = build(endpoint().tls(&client_tls(authority.trust())));
    let _waiting = without.resource("r").wants(1.0).open().unwrap();
    says(&without, "requires a client certificate");
    let other = build(endpoint().tls(&client_tls(Authority::with_node_and_alice().issued("alice"))));
    let _waiting = other.resource("r").wants(1.0).open().unwrap();
    says(&other, "not issued by a CA that is trusted here");
    let clear = build(Client::builder().endpoint(&address));
    let _waiting = clear.resource("r").wants(1.0).open().unwrap();
    says(&clear, "speaks TLS");
    let plain = Server::development();
    let tls = build(Client::builder().endpoint(plain.grpc().to_string()).tls(&client_tls(authority.trust())));
    let _waiting = tls.resource("r").wants(1.0).open().unwrap();
    says(&tls, "speak TLS");
    block_on(client.close());
}
