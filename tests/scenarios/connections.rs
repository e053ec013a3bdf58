//! Connections beyond the limit are closed, and no other client notices.

use std::{
    io::{Read as _, Write as _},
    net::{SocketAddr, TcpStream},
};

use crate::harness::{
    doorman::Asks as _,
    prometheus::Scrape,
    server::Server,
    tls::HTTP2,
    wait::{PATIENCE, eventually},
};

/// Whether the server hangs up on a newcomer. It sends its HTTP/2 settings to those it takes, once they have greeted.
fn is_refused(address: SocketAddr) -> bool {
    let mut stream = TcpStream::connect(address).unwrap();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    // A server that hangs up at once may be faster.
    let _ = stream.write_all(HTTP2);
    let mut byte = [0];
    match stream.read(&mut byte) {
        Ok(length) => length == 0,
        Err(error) => error.kind() == std::io::ErrorKind::ConnectionReset,
    }
}

#[test]
fn connections_beyond_the_limit_are_closed_and_the_others_keep_working() {
    let server = Server::with_flags(&["--max-connections", "2"]);
    let mut alice = server.client("alice");
    let mut bob = server.client("bob");
    assert_eq!((alice.ask("mysql", 10.0), bob.ask("mysql", 10.0)), (10.0, 10.0));
    for _ in 0..3 {
        assert!(is_refused(server.grpc()));
    }
    assert_eq!((alice.ask("mysql", 20.0), bob.ask("mysql", 20.0)), (20.0, 20.0));
    let metrics = Scrape::parse(&server.page("/metrics"));
    assert_eq!(metrics.only("leaseway_connections"), 2.0);
    assert_eq!(metrics.only("leaseway_connections_refused_total"), 3.0);

    drop(bob);
    eventually("there is room again", || (!is_refused(server.grpc())).then_some(()));
    assert_eq!(alice.ask("mysql", 30.0), 30.0);
}
