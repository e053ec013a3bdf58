//! What clients write into their own books, added up: together they never may use more than there is, regardless of
//! what happens to the server and the network. No server is asked.

use std::time::Duration;

use leaseway_process::link::Link;

use crate::harness::{
    config::{self, ConfigFile, Template},
    crowd::Crowd,
    server::{Server, addresses_of_its_own},
    wait::runtime,
};

const CAPACITY: f64 = 100.0;

/// Learning lasts for a lease, as it does without a word about it.
fn file() -> ConfigFile {
    let template = Template { lease: 3, refresh: 1, ..Template::fair("*", CAPACITY) };
    ConfigFile::new(&config::text(&[template]).replace("    learning_mode_duration: 0\n", ""))
}

#[test]
fn books_stay_within_the_capacity_while_a_server_is_killed_and_learns() {
    let file = file();
    let [listen, http] = addresses_of_its_own();
    let start = || Server::start(&["--listen", &listen, "--http", &http, "--config", file.path()], &[]);
    let server = start();
    let mut crowd = Crowd::of(20, [listen.clone()]);
    crowd.wait_until_all_is_out(CAPACITY);
    crowd.stir(100);
    server.signal(rustix::process::Signal::KILL);
    server.finish();
    crowd.stir(100);
    let _server = start();
    crowd.stir(300);
    crowd.wait_until_all_is_out(CAPACITY);
    crowd.assert_never_too_much(CAPACITY);
}

#[test]
fn books_stay_within_the_capacity_on_links_that_delay_and_go_silent() {
    let file = file();
    let server = Server::with_config(&file);
    let link = Link::to(server.grpc(), runtime().handle()).unwrap();
    let mut crowd = Crowd::of(20, [link.address()]);
    crowd.wait_until_all_is_out(CAPACITY);
    for delay in [0, 20, 100] {
        link.delay(Duration::from_millis(delay));
        crowd.stir(100);
        if delay == 20 {
            link.stall()
        } else {
            link.stall_towards()
        }
        crowd.stir(100);
    }
    crowd.wait_until_all_is_out(CAPACITY);
    crowd.assert_never_too_much(CAPACITY);
}
