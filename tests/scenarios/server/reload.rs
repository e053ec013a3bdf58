//! Configurations that change while a server runs.

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

#[test]
fn a_changed_file_is_reloaded_without_dropping_leases() {
    let file = ConfigFile::new(&fair(100.0));
    let server = Server::with_config(&file);
    assert_eq!(server.client("alice").ask("mysql", 40.0), 40.0);
    for (version, capacity) in [(2, 80.0), (3, 70.0)] {
        file.rewrite(&fair(capacity));
        if version == 2 {
            server.signal(Signal::HUP);
        }
        wait_for_version(&server, version);
        eventually("the resource has the new capacity", || {
            (server.status(&["mysql"])["resources"][0]["capacity"] == capacity).then_some(())
        });
    }
    assert_eq!(server.status(&["mysql"])["resources"][0]["granted"], 40.0);
    assert_eq!(server.client("bob").ask("mysql", 1000.0), 30.0, "70 less alice's 40");
}

/// The signal has to arrive within microseconds after the server reports that it serves. Repetition makes that likely.
#[test]
fn sighup_right_after_the_start_does_not_end_the_server() {
    let file = ConfigFile::new(&fair(100.0));
    let arguments = ["serve", "--listen", ANYWHERE, "--http", ANYWHERE, "--config", file.path()];
    for _ in 0..10 {
        let process = Process::start(&arguments, &[]);
        let deadline = Instant::now() + PATIENCE;
        while !process.stdout().contains("serving") {
            assert!(process.ended().is_none() && Instant::now() < deadline, "the server does not start");
            thread::yield_now();
        }
        process.signal(Signal::HUP);
        process.signal(Signal::TERM);
        assert_eq!(process.finish().code, Some(0), "SIGTERM stops the server, not SIGHUP");
    }
}

#[test]
fn an_invalid_file_changes_nothing_and_is_reported() {
    let file = ConfigFile::new(&fair(100.0));
    let server = Server::with_config(&file);
    server.client("alice").ask("mysql", 40.0);
    assert_eq!(Scrape::parse(&server.page("/metrics")).only("leaseway_config_rejected"), 0.0);

    file.rewrite("resources:\n- identifier_glob: a<b\n  capacity: lots\n");
    let mistake = format!("{}:3:13: ", file.path());
    let status = eventually("status shows the refusal", || {
        let output = server.cli(&["status"]);
        output.stdout.contains("the newest configuration was refused").then_some(output.stdout)
    });
    assert!(status.contains(&mistake) && status.contains("version 1"), "{status}");
    let metrics = Scrape::parse(&server.page("/metrics"));
    assert_eq!((metrics.only("leaseway_config_rejected"), metrics.only("leaseway_config_version")), (1.0, 1.0));
    assert_eq!(metrics.find("leaseway_config_reloads_total", "outcome", "rejected"), Some(1.0));
    assert!(server.page("/").contains(&mistake));
    assert!(server.log().contains(&mistake), "{}", server.log());
    assert_eq!(server.client("bob").ask("mysql", 1000.0), 60.0, "the old configuration is in force");

    file.replace(&fair(50.0));
    wait_for_version(&server, 2);
    assert_eq!(server.status(&[])["config"]["error"], "");
    assert!(!server.page("/").contains(&mistake));
}
