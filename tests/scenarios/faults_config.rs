//! Defects of the Go server that configurations set off.

use crate::harness::{
    config::{self, ConfigFile, Template},
    doorman::Asks as _,
    process::leaseway,
    server::Server,
    wait::eventually,
};

/// It is refused by the check and by a server that would start with it, at that place, for that reason.
fn assert_refused(text: &str, place: &str, why: &str) {
    let file = ConfigFile::new(text);
    let check = leaseway(&["config", "check", file.path()]);
    let serve = leaseway(&["serve", "--listen", "127.0.0.1:0", "--http", "127.0.0.1:0", "--config", file.path()]);
    for said in [check, serve] {
        assert_eq!(said.code, Some(78), "{said:?}");
        let expected = format!("{}:{place}: ", file.path());
        let line = said.stderr.lines().find(|line| line.contains(&expected));
        assert!(line.is_some_and(|line| line.contains(why)), "{expected}…{why}… is not in {}", said.stderr);
        assert!(!said.stdout.contains("serving"), "{said:?}");
    }
}

#[test]
fn doorman_fault_3_a_template_without_capacity_is_accepted_and_kills_the_server() {
    let text = "resources:\n- identifier_glob: a\n  algorithm: {kind: FAIR_SHARE}\n";
    assert_refused(text, "2:20", "needs a `capacity`");
}

#[test]
fn doorman_fault_5_a_capacity_cut_gives_negative_grants() {
    let config = ConfigFile::of(&[Template::fair("*", 50.0)]);
    let server = Server::with_config(&config);
    let (mut alice, mut bob) = (server.client("alice"), server.client("bob"));
    let mut both = || (alice.ask("mysql", 25.0), bob.ask("mysql", 25.0));
    assert_eq!(both(), (25.0, 25.0));
    config.replace(&config::text(&[Template::fair("*", 10.0)]));
    eventually("the new capacity is in force", || {
        (server.status(&["mysql"])["resources"][0]["capacity"] == 10.0).then_some(())
    });
    let mut before = 50.0;
    for _ in 0..4 {
        let (alice, bob) = both();
        assert!(alice >= 0.0 && bob >= 0.0, "{alice} and {bob}");
        assert!(alice + bob <= before, "{alice} + {bob} after {before}");
        before = alice + bob;
    }
    assert_eq!(both(), (5.0, 5.0));
}
