//! Configurations that change under a running server.

use std::{thread, time::Instant};

use rustix::process::Signal;

use crate::harness::{
    config::{self, ConfigFile, Template},
    doorman::Asks as _,
    process::Process,
    prometheus::Scrape,
    server::{ANYWHERE, Server},
    wait::{PATIENCE, eventually},
};

fn fair(capacity: f64) -> String {
    config::text(&[Template::fair("*", capacity)])
}

fn wait_for_version(server: &Server, version: u64) {
    eventually("the new configuration is in force", || {
        (server.status(&[])["config"]["version"] == version).then_some(())
    });
}

/// Alice has 40; `change` makes the capacity 70.
fn changes(change: impl FnOnce(&ConfigFile, &Server)) {
    let file = ConfigFile::new(&fair(100.0));
    let server = Server::with_config(&file);
    assert_eq!(server.client("alice").ask("mysql", 40.0), 40.0);
    change(&file, &server);
    wait_for_version(&server, 2);
    eventually("the resource has heard of it", || {
        (server.status(&["mysql"])["resources"][0]["capacity"] == 70.0).then_some(())
    });
    let status = server.status(&["mysql"]);
    assert_eq!(status["resources"][0]["granted"], 40.0, "leases stay as they are");
    assert_eq!(server.client("bob").ask("mysql", 1000.0), 30.0, "seventy less forty");
}

#[test]
fn a_rewritten_file_is_read_again() {
    changes(|file, _| file.rewrite(&fair(70.0)));
}

#[test]
fn sighup_makes_the_server_read_its_file() {
    changes(|file, server| {
        file.rewrite(&fair(70.0));
        server.signal(Signal::HUP);
    });
}

#[test]
fn sighup_the_moment_a_server_serves_does_not_end_it() {
    let file = ConfigFile::new(&fair(100.0));
    let arguments = ["serve", "--listen", ANYWHERE, "--http", ANYWHERE, "--config", file.path()];
    // Microseconds count here: hence no pause while waiting, and several tries.
    survives_sighup(&arguments);
}

fn survives_sighup(arguments: &[&str]) {
    for _ in 0..20 {
        let process = Process::start(arguments, &[]);
        let deadline = Instant::now() + PATIENCE;
        while !process.stdout().contains("serving") {
            assert!(process.ended().is_none() && Instant::now() < deadline, "it does not serve");
            thread::yield_now();
        }
        process.signal(Signal::HUP);
        process.signal(Signal::TERM);
        assert_eq!(process.finish().code, Some(0), "it was asked to stop only by the second signal");
    }
}

#[test]
fn a_bad_file_changes_nothing_and_is_shown_everywhere() {
    let file = ConfigFile::new(&fair(100.0));
    let server = Server::with_config(&file);
    server.client("alice").ask("mysql", 40.0);
    assert_eq!(Scrape::parse(&server.page("/metrics")).only("leaseway_config_rejected"), 0.0);

    file.rewrite("resources:\n- identifier_glob: a<b\n  capacity: lots\n");
    let mistake = format!("{}:3:13: ", file.path());
    let status = eventually("the refusal is shown", || {
        let said = server.cli(&["status"]);
        said.stdout.contains("the newest configuration was refused").then_some(said.stdout)
    });
    assert!(status.contains(&mistake), "{status}");
    assert!(status.contains("version 1"), "{status}");
    let metrics = Scrape::parse(&server.page("/metrics"));
    assert_eq!((metrics.only("leaseway_config_rejected"), metrics.only("leaseway_config_version")), (1.0, 1.0));
    assert_eq!(metrics.find("leaseway_config_reloads_total", "outcome", "rejected"), Some(1.0));
    assert!(server.page("/debug/status").contains(&mistake));
    assert!(server.log().contains(&mistake), "{}", server.log());
    assert_eq!(server.client("bob").ask("mysql", 1000.0), 60.0, "the old one is in force");

    file.replace(&fair(50.0));
    wait_for_version(&server, 2);
    assert_eq!(server.status(&[])["config"]["error"], "");
    assert!(!server.page("/debug/status").contains(&mistake));
}

#[test]
fn a_file_that_vanishes_changes_nothing() {
    let file = ConfigFile::new(&fair(100.0));
    let server = Server::with_config(&file);
    std::fs::remove_file(file.path()).unwrap();
    server.signal(Signal::HUP);
    eventually("the refusal is shown", || {
        let error = server.status(&[])["config"]["error"].as_str().unwrap().to_owned();
        error.contains("cannot read the configuration file").then_some(())
    });
    assert_eq!(server.client("alice").ask("mysql", 1000.0), 100.0);
}
