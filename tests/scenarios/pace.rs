//! The minimum request interval: a request that comes too soon is left out of the answer.

use leaseway_proto::doorman::ResourceRequest;

use crate::harness::{
    config::{ConfigFile, Template},
    doorman::{Asks as _, entry, request},
    server::Server,
};

fn server(min_request_interval: u64) -> Server {
    let template = Template { refresh: 3000, min_request_interval, ..Template::fair("*", 100.0) };
    Server::with_config(&ConfigFile::of(&[template]))
}

#[test]
fn a_request_too_soon_is_left_out_of_the_answer() {
    let server = server(1000);
    let mut alice = server.client("alice");
    assert_eq!(alice.ask("mysql", 40.0), 40.0);
    let lease = alice.lease("mysql");
    for _ in 0..3 {
        assert_eq!(alice.try_ask("mysql", 40.0).unwrap(), None);
    }
    assert_eq!(alice.lease("mysql"), lease);
    assert_eq!(server.status(&["mysql"])["resources"][0]["granted"], 40.0, "the lease stays as it is");
    let entries = ["mysql", "other"].map(|resource| {
        let has = (resource == "mysql").then_some(lease);
        ResourceRequest { has, ..entry(resource, 40.0) }
    });
    let answer = server.doorman().get(request("alice", entries.into())).unwrap();
    assert_eq!(answer.response.iter().map(|response| response.resource_id()).collect::<Vec<_>>(), ["other"]);
}
