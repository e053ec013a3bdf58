//! `leaseway config check`, and servers that refuse to start on a bad file.

use crate::harness::{
    config::ConfigFile,
    doorman::Asks as _,
    process::leaseway,
    server::{ANYWHERE, Server},
};

const TWO_MISTAKES: &str = "resources:
- identifier_glob: a
  capacity: many
- identifier_glob: b
  capacity: 1
  algoritm: {kind: FAIR_SHARE}
";

#[test]
fn a_good_file_is_checked_and_shown() {
    let file = ConfigFile::new(
        "resources:
- identifier_glob: mysql*
  capacity: 1000.5
  algorithm: {kind: PROPORTIONAL_SHARE, lease_length: 30, refresh_interval: 3}
- {identifier_glob: \"*\", capacity: 50, algorithm: {kind: FAIR_SHARE}}
",
    );
    let said = leaseway(&["config", "check", file.path()]);
    assert_eq!((said.code, said.stderr.as_str()), (Some(0), ""));
    assert!(said.stdout.contains(&format!("{} is fine: 2 templates", file.path())), "{said:?}");
    let rows: Vec<Vec<&str>> = said.stdout.lines().map(|line| line.split_whitespace().collect()).collect();
    assert!(rows.contains(&vec!["mysql*", "1000.5", "PROPORTIONAL_SHARE", "30", "s", "3", "s"]), "{rows:?}");
    assert!(rows.contains(&vec!["*", "50", "FAIR_SHARE", "60", "s", "5", "s"]), "{rows:?}");
}

#[test]
fn every_mistake_is_named_with_file_line_and_column() {
    let file = ConfigFile::new(TWO_MISTAKES);
    let said = leaseway(&["config", "check", file.path()]);
    assert_eq!((said.code, said.stdout.as_str()), (Some(78), ""));
    for (place, what) in [("3:13", "many"), ("6:3", "did you mean `algorithm`?")] {
        let start = format!("{}:{place}: ", file.path());
        assert!(said.stderr.lines().any(|line| line.contains(&start) && line.contains(what)), "{said:?}");
    }
}

#[test]
fn a_file_that_is_not_there_is_named() {
    for arguments in [&["config", "check", "/no/such/file.yaml"][..], &["serve", "--config", "/no/such/file.yaml"]] {
        let said = leaseway(arguments);
        assert_eq!(said.code, Some(78), "{said:?}");
        assert!(said.stderr.contains("cannot read the configuration file /no/such/file.yaml"), "{said:?}");
    }
}

#[test]
fn a_server_refuses_to_start_on_a_bad_file_before_it_opens_a_port() {
    let file = ConfigFile::new(TWO_MISTAKES);
    // The port is taken: had the server come as far as that, it would complain about it.
    let taken = std::net::TcpListener::bind(ANYWHERE).unwrap();
    let address = taken.local_addr().unwrap().to_string();
    let said = leaseway(&["serve", "--listen", &address, "--http", ANYWHERE, "--config", file.path()]);
    assert_eq!((said.code, said.stdout.as_str()), (Some(78), ""));
    assert!(said.stderr.contains(&format!("{}:3:13: ", file.path())), "{said:?}");
    assert!(!said.stderr.contains("cannot listen"), "{said:?}");
}

#[test]
fn the_example_is_a_configuration_to_start_from() {
    let said = leaseway(&["config", "example"]);
    assert_eq!(said.code, Some(0));
    let file = ConfigFile::new(&said.stdout);
    assert_eq!(leaseway(&["config", "check", file.path()]).code, Some(0));
    let server = Server::with_config(&file);
    assert_eq!(server.client("alice").ask("mysql", 1000.0), 100.0);
    assert_eq!(server.status(&[])["config"]["source"], file.path());
}
