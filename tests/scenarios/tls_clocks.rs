//! Certificates of servers that are not good for the client that asks, as the command line and the client library see
//! them, and what the server says of it.

use std::time::Duration;

use leaseway_client::{Client, ClientTls, Credentials, Files};

use crate::harness::{
    authority::{Authority, Valid},
    preload,
    process::{Process, Said},
    server::Server,
    tls::{flags, present},
    wait::{eventually, runtime},
};

const DAY: i64 = 86_400;

/// A server with this certificate.
fn server(files: &Files) -> Server {
    let flags = flags(files);
    Server::with_flags(&flags.iter().map(String::as_str).collect::<Vec<_>>())
}

/// The command line with these files, on a machine whose clock is so many seconds ahead.
fn get(address: &str, files: &Files, ahead: i64) -> Said {
    let directory = tempfile::tempdir().unwrap();
    let (library, ahead) = (preload::library(directory.path(), "wrong_clock"), ahead.to_string());
    let flags = flags(files);
    let asks = ["get", "alice", "mysql", "40", "--server", address];
    let words: Vec<&str> = asks.into_iter().chain(flags.iter().map(String::as_str)).collect();
    Process::start(&words, &[("LD_PRELOAD", &library), ("CLOCK_AHEAD", &ahead)]).finish()
}

/// Why a client of the library has no lease.
fn library_says(address: &str, files: &Files, says: &str) {
    let tls = ClientTls::new(&Credentials::load(files.clone()).unwrap(), None).unwrap();
    let _inside = runtime().enter();
    let builder = Client::builder().endpoint(address).tls(&tls);
    let client = builder.deadline(Duration::from_secs(2)).backoff_max(Duration::from_millis(100)).build().unwrap();
    let _waiting = client.resource("r").wants(1.0).open().unwrap();
    eventually(says, || client.health().last_error.filter(|error| error.contains(says)));
}

#[test]
fn a_server_whose_certificate_is_not_valid_at_this_time_is_refused_in_words_on_both_sides() {
    let ours = Authority::new("ours");
    let server = server(&ours.issue("server", &["127.0.0.1"], Valid::Now));
    let (address, alice) = (server.grpc().to_string(), ours.issue("alice", &["alice"], Valid::Now));
    assert_eq!(get(&address, &ours.trust(), 0).code, Some(69), "it has to show a certificate");
    let said = get(&address, &alice, 0);
    assert_eq!(said.code, Some(0), "{said:?}");
    for (ahead, says) in [(3 * DAY, "has expired: it was valid until"), (-3 * DAY, "is not valid before")] {
        let log = server.log().len();
        eventually("the server says why", || {
            let said = get(&address, &ours.trust(), ahead);
            assert!(said.code == Some(69) && said.stderr.contains(says), "{ahead}: {said:?}");
            // A line a second, at most.
            server.log()[log..]
                .contains("says that this server's certificate has expired, or is not valid")
                .then_some(())
        });
    }
    for (valid, says) in [(Valid::Past, "has expired: it was valid until"), (Valid::Future, "is not valid before")] {
        let shown = present(&ours.issue("elsewhen", &["127.0.0.1"], valid));
        library_says(&shown.to_string(), &alice, says);
    }
}

#[test]
fn a_server_whose_certificate_is_for_another_name_is_refused_in_words_on_both_sides() {
    let ours = Authority::new("ours");
    let server = server(&ours.issue("server", &["db.internal"], Valid::Now));
    let (address, alice) = (server.grpc().to_string(), ours.issue("alice", &["alice"], Valid::Now));
    library_says(&address, &alice, "is for other names (db.internal)");
    eventually("the server says why", || {
        let said = get(&address, &alice, 0);
        assert!(said.code == Some(69) && said.stderr.contains("is for other names (db.internal)"), "{said:?}");
        assert!(said.stderr.contains("--tls-server-name"), "what would be right: {said:?}");
        server.log().contains("it is for another name than it has asked for").then_some(())
    });
    let named = [flags(&alice), vec!["--tls-server-name".into(), "db.internal".into()]].concat();
    let asks = ["get", "alice", "mysql", "40", "--server", &address];
    let words: Vec<&str> = asks.into_iter().chain(named.iter().map(String::as_str)).collect();
    assert_eq!(Process::start(&words, &[]).finish().code, Some(0));
}

#[test]
fn a_certificate_of_ones_own_that_is_not_valid_now_is_named_and_nothing_is_asked() {
    let ours = Authority::new("ours");
    let server = server(&ours.issue("server", &["127.0.0.1"], Valid::Now));
    for (valid, says) in [(Valid::Past, "has expired"), (Valid::Future, "is not valid before")] {
        let files = ours.issue("alice", &["alice"], valid);
        let said = get(&server.grpc().to_string(), &files, 0);
        assert!(said.code == Some(78) && said.stderr.contains(says) && said.stderr.contains("alice.pem"), "{said:?}");
        let error = Credentials::load(files).map(drop).unwrap_err().to_string();
        assert!(error.contains(says) && error.contains("alice.pem"), "{error}");
    }
    assert!(!server.log().contains("a connection was refused"), "{}", server.log());
}
