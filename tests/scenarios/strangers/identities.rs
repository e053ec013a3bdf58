//! Authenticated callers, and bad tokens: an identity is one stranger from any address.

use std::net::IpAddr;

use tonic::Code;

use super::{ELSEWHERE, THIRD};
use crate::harness::{
    bearer::TokenFiles,
    config::{self, ConfigFile, Template},
    doorman::Doorman,
    http,
    prometheus::Scrape,
    server::Server,
    wait::eventually,
};

const RULES: &str = "access:\n- {name: all, who: '*', may: [ask, read], clients: '*'}\n";

struct KnownCallers {
    server: Server,
    tokens: TokenFiles,
}

impl KnownCallers {
    fn start(flags: &[&str]) -> KnownCallers {
        let tokens = TokenFiles::of(&["web", "db"]);
        let templates = config::text(&[Template { kind: "NO_ALGORITHM", ..Template::fair("*", 1000.0) }]);
        let config = ConfigFile::new(&format!("{templates}{RULES}"));
        let server = Server::with_flags(&[&["--config", config.path(), "--tokens", &tokens.server()], flags].concat());
        KnownCallers { server, tokens }
    }

    fn caller(&self, identity: &str, from: IpAddr) -> Doorman {
        Doorman::with_token(self.server.channel_from(from), &self.tokens.token(identity))
    }

    /// How many of so many clients get a lease.
    fn takes(&self, identity: &str, from: IpAddr, number: usize) -> usize {
        let caller = self.caller(identity, from);
        let ask = |n| caller.ask(&format!("{identity}-{from}-{n}"), "r", 1.0, None).unwrap();
        (0..number).filter_map(ask).count()
    }

    fn closed(&self, why: &str) -> f64 {
        let header = format!("Authorization: Bearer {}\r\n", self.tokens.token("db"));
        let metrics = Scrape::parse(&http::get_with(self.server.http(), "/metrics", &header).body);
        metrics.find("leaseway_connections_closed_total", "reason", why).unwrap()
    }
}

#[test]
fn an_identity_is_one_from_all_its_addresses_and_those_of_one_address_are_many() {
    let callers = KnownCallers::start(&["--max-clients", "100"]);
    let first = callers.takes("web", THIRD, 60);
    assert_eq!(first, 60);
    let second = callers.takes("web", ELSEWHERE, 60);
    assert!((70..=76).contains(&(first + second)), "{second} more than {first}, of 100");
    let other = callers.takes("db", ELSEWHERE, 60);
    assert!((15..=20).contains(&other), "{other} of the rest, from an address that has some already");
}

#[test]
fn a_flood_of_bad_tokens_ends_its_connection_and_a_bad_token_alone_does_not() {
    let callers = KnownCallers::start(&[]);
    let honest = callers.caller("web", THIRD);
    let refused = |caller: &Doorman| caller.ask("web", "r", 1.0, None).unwrap_err().code();
    let channel = callers.server.channel();
    for _ in 0..10 {
        assert_eq!(refused(&Doorman::with_token(channel.clone(), "lwt_wrong")), Code::Unauthenticated);
    }
    assert!(honest.ask("web", "r", 1.0, None).is_ok());
    assert_eq!(callers.closed("refused"), 0.0);
    for n in 0..60 {
        // For its token, or because its connection is on its way out.
        refused(&Doorman::with_token(channel.clone(), &format!("lwt_{n}")));
    }
    eventually("it is closed", || (callers.closed("refused") >= 1.0).then_some(()));
    assert!(honest.ask("web", "r", 1.0, None).is_ok(), "others go on");
}
