//! Limits apply to an identity across all of its addresses.

use std::net::IpAddr;

use super::{ELSEWHERE, THIRD};
use crate::harness::{
    bearer::TokenFiles,
    config::{self, ConfigFile, Template},
    doorman::Doorman,
    server::Server,
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

    /// Asks as `number` clients. Returns the number that get a lease.
    fn takes(&self, identity: &str, from: IpAddr, number: usize) -> usize {
        let caller = self.caller(identity, from);
        let ask = |n| caller.ask(&format!("{identity}-{from}-{n}"), "r", 1.0, None).unwrap();
        (0..number).filter_map(ask).count()
    }
}

#[test]
fn limits_apply_per_identity_across_its_addresses() {
    let callers = KnownCallers::start(&["--max-clients", "100"]);
    let first = callers.takes("web", THIRD, 60);
    assert_eq!(first, 60);
    let second = callers.takes("web", ELSEWHERE, 60);
    assert!((70..=76).contains(&(first + second)), "{first} and {second} of 100");
    let other = callers.takes("db", ELSEWHERE, 60);
    assert!((15..=20).contains(&other), "{other} of the rest, from an address with clients of another identity");
}
