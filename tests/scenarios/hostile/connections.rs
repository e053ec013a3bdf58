//! Connections that do nothing.

use std::{
    io::{Read as _, Write as _},
    net::TcpStream,
};

use super::{ELSEWHERE, Victim};
use crate::harness::{
    doorman::Asks as _,
    http2::{connect_tcp, hangs_up},
    prometheus::Scrape,
    push::watch,
    server::Server,
    wait::eventually,
};

#[test]
fn silent_connections_do_not_lock_out_new_clients() {
    let victim = Victim::with_flags(&["--max-connections", "50", "--address-share", "100"]);
    let strangers: Vec<TcpStream> = (0..60).map(|_| connect_tcp(victim.server.grpc(), None)).collect();
    // The connection limit is reached. Each newcomer from another address displaces an idle connection.
    for _ in 0..3 {
        victim.serves_others();
    }
    assert!(victim.metric("leaseway_connections") <= 50.0 + 3.0);
    assert!(victim.closed("displaced") >= 1.0);
    drop(strangers);
}

#[test]
fn an_idle_connection_is_closed_and_its_client_does_not_notice() {
    let server = Server::with_flags(&["--idle-connection-secs", "1"]);
    let mut client = server.client("alice");
    let mut watching = watch(&server, "bob");
    assert_eq!(client.ask("mysql", 10.0), 10.0);
    let closed = || {
        let metrics = Scrape::parse(&server.page("/metrics"));
        metrics.find("leaseway_connections_closed_total", "reason", "idle").unwrap()
    };
    eventually("the idle connection is closed", || (closed() >= 1.0).then_some(()));
    assert_eq!(client.ask("mysql", 20.0), 20.0, "the client has reconnected");
    // A connection with a stream of hints is not idle.
    let mut bob = server.client("bob");
    assert_eq!(bob.ask("mysql", 100.0), 80.0);
    server.doorman().release("alice", &["mysql"]).unwrap();
    watching.is_told_of("mysql");
}

#[test]
fn the_http_and_admin_listeners_limit_connections() {
    let server = Server::with_flags(&["--max-page-connections", "8", "--admin", "127.0.0.1:0"]);
    for address in [server.http(), server.admin().parse().unwrap()] {
        let mut strangers: Vec<TcpStream> = (0..12).map(|_| connect_tcp(address, None)).collect();
        let refused = strangers.split_off(8);
        assert!(refused.into_iter().all(|mut stream| hangs_up(&mut stream)));
        // Another address can still connect.
        let mut other = connect_tcp(address, Some(ELSEWHERE));
        other.write_all(b"GET /healthz HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n").unwrap();
        assert!(hangs_up(&mut other));
        drop(strangers);
    }
    eventually("a connection is accepted again", || {
        let mut again = connect_tcp(server.http(), None);
        again.write_all(b"GET /healthz HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n").ok()?;
        let mut answer = String::new();
        again.read_to_string(&mut answer).ok()?;
        answer.starts_with("HTTP/1.1 200").then_some(())
    });
}
