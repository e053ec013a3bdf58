//! What a lone server knows after a restart.

use rustix::process::Signal;

use crate::harness::{
    config::{ConfigFile, Template},
    doorman::Asks as _,
    server::{ANYWHERE, Server},
    wait::eventually,
};

/// Leases outlast every test. Learning mode lasts as long as leases.
fn learning_file(capacity: f64) -> ConfigFile {
    ConfigFile::of(&[Template { learning: 3600, ..Template::fair("*", capacity) }])
}

/// A server without peers, with a data directory.
struct Lone {
    config: ConfigFile,
    data: tempfile::TempDir,
}

impl Lone {
    fn new(config: ConfigFile) -> Lone {
        Lone { config, data: tempfile::tempdir().unwrap() }
    }

    fn start(&self, flags: &[&str]) -> Server {
        let data = self.data.path().join("data");
        let data = data.to_str().unwrap();
        let flags = [&["--config", self.config.path(), "--data", data, "--admin", ANYWHERE], flags].concat();
        let server = Server::with_flags(&flags);
        eventually("the server is master", || (server.doorman().discovery().is_master == Some(true)).then_some(()));
        server
    }
}

fn kill(server: Server) {
    server.signal(Signal::KILL);
    server.finish();
}

#[test]
fn a_lone_server_with_a_data_directory_keeps_its_promises_over_a_restart() {
    let lone = Lone::new(learning_file(100.0));
    let server = lone.start(&["--bootstrap"]);
    let mut alice = server.client("alice");
    assert_eq!(alice.ask("r", 40.0), 40.0, "a bootstrapped server does not learn");
    kill(server);
    let server = lone.start(&[]);
    let mut bob = server.client("bob");
    let first = bob.ask("r", 1000.0);
    assert!(first > 0.0 && first <= 60.0, "bob got {first}, and alice left 60");
    kill(server);
    let server = lone.start(&["--bootstrap"]);
    assert_eq!(server.client("carol").ask("r", 5.0), 0.0);
    for (client, wants, gets) in [(&mut alice, 40.0, 40.0), (&mut bob, 1000.0, first)] {
        client.moves_to(server.doorman());
        assert_eq!(client.ask("r", wants), gets);
    }
}

#[test]
fn a_server_with_an_empty_directory_learns_unless_bootstrapped() {
    let lone = Lone::new(learning_file(100.0));
    for _ in 0..2 {
        // The second start interrupts learning.
        let server = lone.start(&[]);
        assert_eq!(server.client("new").ask("r", 40.0), 0.0, "another client may hold the whole capacity");
        let learning = server.status(&["r"])["resources"][0]["learning_ms"].as_u64().unwrap();
        assert!(learning > 3_000_000, "{learning}");
        kill(server);
    }
}
