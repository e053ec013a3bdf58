//! How clients find servers: names, discovered peers, and ports of other programs.

use std::{
    io::{Read as _, Write as _},
    net::TcpListener,
    thread,
    time::Duration,
};

use leaseway_client::{Client, Resource};

use crate::harness::{
    config::{ConfigFile, Template},
    fake::{Fake, Manner},
    peers::Peers,
    server::Server,
    wait::{block_on, eventually, runtime},
};

const SOON: Duration = Duration::from_secs(20);

fn client(endpoint: &str) -> Client {
    let _inside = runtime().enter();
    let builder = Client::builder().endpoint(endpoint).deadline(Duration::from_millis(500));
    builder.backoff_max(Duration::from_millis(300)).build().unwrap()
}

fn has(resource: &Resource, capacity: f64) {
    eventually("it has the lease", || (resource.capacity().get() == capacity).then_some(()));
}

fn peers(number: usize) -> Peers {
    Peers::start(number, ConfigFile::of(&[Template::fair("*", 100.0)]), &[])
}

#[test]
fn a_client_that_was_given_one_peer_finds_the_others_when_that_one_is_gone() {
    let mut peers = peers(3);
    let master = peers.master();
    let client = client(&peers.grpc(master).to_string());
    let resource = client.resource("r").wants(10.0).open().unwrap();
    has(&resource, 10.0);
    eventually("it learns of the others", || (client.health().endpoints.len() == 3).then_some(()));
    assert_eq!(client.health().endpoints[0], peers.grpc(master).to_string(), "what was given comes first");
    peers.kill(master);
    resource.set_wants(20.0).unwrap();
    has(&resource, 20.0);
    assert_ne!(client.health().server, peers.grpc(master).to_string());
}

#[test]
fn a_client_that_was_given_one_follower_finds_the_others_when_that_one_is_gone() {
    let mut peers = peers(3);
    let (given, master) = (peers.follower(), peers.master());
    let client = client(&peers.grpc(given).to_string());
    let resource = client.resource("r").wants(10.0).open().unwrap();
    has(&resource, 10.0);
    eventually("it learns of the others", || (client.health().endpoints.len() == 3).then_some(()));
    peers.stop(given);
    // With two of three there is a master still, whichever it is.
    resource.set_wants(20.0).unwrap();
    has(&resource, 20.0);
    peers.run(given, &[]);
    peers.kill(master);
    resource.set_wants(30.0).unwrap();
    has(&resource, 30.0);
}

#[test]
fn servers_that_name_no_peers_are_asked_as_before() {
    let fake = Fake::new(Manner::Gives { capacity: 7.0, seconds: 60 });
    let of_fake = client(&fake.address());
    has(&of_fake.resource("r").wants(10.0).open().unwrap(), 7.0);
    let server = Server::development();
    let of_server = client(&server.grpc().to_string());
    has(&of_server.resource("r").wants(10.0).open().unwrap(), 10.0);
    assert_eq!(of_fake.health().endpoints, [fake.address()]);
    assert_eq!(of_server.health().endpoints, [server.grpc().to_string()]);
}

#[test]
fn names_and_urls_are_endpoints() {
    let server = Server::development();
    let port = server.grpc().port();
    for endpoint in
        [format!("localhost:{port}"), format!("http://localhost:{port}/"), format!("http://127.0.0.1:{port}")]
    {
        let client = client(&endpoint);
        let resource = client.resource("r").wants(10.0).open().unwrap();
        has(&resource, 10.0);
        block_on(client.close());
    }
}

/// What a client says of a port.
fn says(port: &str) -> String {
    let client = client(port);
    let _resource = client.resource("r").wants(10.0).open().unwrap();
    let not_ready = eventually("it has tried", || {
        let not_ready = block_on(client.ready(Duration::from_millis(200))).unwrap_err();
        (client.health().failures > 0).then_some(not_ready)
    });
    assert_eq!(not_ready.resources, ["r"]);
    not_ready.to_string()
}

#[test]
fn a_port_that_is_another_is_recognised_and_named() {
    let peers = peers(1);
    let http = peers.http(0).to_string();
    let expected = format!(
        "no lease yet for `r`: {http} speaks HTTP, not gRPC: this looks like the --http port; \
         clients use --listen, 5100 by default"
    );
    assert_eq!(says(&http), expected);
    let command = peers.command(0);
    let of_peers = &command[command.iter().position(|flag| flag == "--peer-listen").unwrap() + 1];
    for port in [&peers.admin(0).to_string(), of_peers] {
        let said = says(port);
        assert!(
            said.contains(&format!("{port} has no service doorman.Capacity: this looks like the --admin port")),
            "{said}"
        );
    }
}

#[test]
fn a_port_that_knows_only_the_first_http_is_recognised_too() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().to_string();
    thread::spawn(move || {
        for connection in listener.incoming() {
            let Ok(mut connection) = connection else { return };
            let _ = connection.read(&mut [0; 1024]);
            let _ = connection.write_all(b"HTTP/1.1 400 Bad Request\r\nContent-Length: 0\r\n\r\n");
        }
    });
    let said = says(&port);
    // Which of the two depends on what is read before it hangs up.
    let recognised = ["does not speak gRPC", "closed the connection without an answer"];
    assert!(recognised.iter().any(|what| said.contains(&format!("{port} {what}"))), "{said}");
    assert!(said.contains("another service") && said.contains("clients use --listen, 5100 by default"), "{said}");
}

#[test]
fn where_nothing_listens_the_error_says_why() {
    let free = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let said = says(&free.to_string());
    assert!(said.contains("Connection refused"), "{said}");
}

#[test]
fn ready_waits_for_all_that_is_open_and_for_leases_only() {
    let fake = Fake::new(Manner::Hangs);
    let client = client(&fake.address());
    assert_eq!(block_on(client.ready(SOON)), Ok(()), "nothing is open");
    let [a, b] = ["a", "b"].map(|id| client.resource(id).wants(1.0).open().unwrap());
    let not_ready = block_on(client.ready(Duration::from_millis(1))).unwrap_err();
    assert_eq!(not_ready.resources, ["a", "b"]);
    assert!(block_on(a.ready(Duration::from_millis(1))).unwrap_err().to_string().contains("`a`"));
    fake.now(Manner::Gives { capacity: 7.0, seconds: 60 });
    assert_eq!(block_on(client.ready(SOON)), Ok(()));
    assert_eq!((a.capacity().get(), b.capacity().get()), (7.0, 7.0));
    assert_eq!(block_on(b.ready(SOON)), Ok(()));
}
