//! A real Doorman server is replaced while clients of Doorman's own library hold leases.

use std::{collections::BTreeMap, path::Path};

use crate::harness::{
    binary,
    config::{ConfigFile, Template},
    foreign,
    peers::Peers,
    process::Process,
    server::free_addresses,
    wait::eventually,
};

const CAPACITY: f64 = 500.0;

/// A process with clients of the Go library.
struct GoFleet(Process);

impl GoFleet {
    fn start(programs: &Path, address: &str, wants: &str, ids: &[&str]) -> GoFleet {
        let arguments = [&[address, "r", wants], ids].concat();
        GoFleet(Process::start_program_reading(&programs.join("fleet"), &arguments))
    }

    /// The newest lease of each client, and the peak of their sum so far.
    fn books(&self) -> (BTreeMap<String, f64>, f64) {
        let (mut books, mut most) = (BTreeMap::new(), 0.0f64);
        for line in self.0.stdout().lines() {
            let Some((id, capacity)) = line.split_once(' ') else { continue };
            let Ok(capacity) = capacity.parse::<f64>() else { continue };
            books.insert(id.to_owned(), capacity);
            most = most.max(books.values().sum());
        }
        (books, most)
    }
}

#[test]
#[cfg_attr(not(doorman), ignore = "needs LEASEWAY_TEST_DOORMAN")]
fn clients_stay_within_the_capacity_while_doorman_is_replaced() {
    let programs = foreign::path("LEASEWAY_TEST_DOORMAN");
    // Compile before any lease begins.
    binary::path();
    let template = Template { lease: 20, refresh: 1, ..Template::fair("*", CAPACITY) };
    let config = ConfigFile::of(&[template]);
    let source = format!("file:{}", config.path());
    let mut peers = Peers::found(3, Some(config), &[], Vec::new());
    let address = peers.grpc(0);
    let (port, debug) = (address.port().to_string(), free_addresses(1)[0].port().to_string());
    let arguments = ["--port", &port, "--debug_port", &debug, "--config", &source, "--logtostderr"];
    let doorman = Process::start_program(&programs.join("doorman"), &arguments, &[]);
    eventually("Doorman listens", || {
        assert!(doorman.ended().is_none(), "{}", doorman.stderr());
        std::net::TcpStream::connect(address).ok()
    });
    let old = ["one", "two", "three", "four", "five"];
    let fleet = GoFleet::start(&programs, &address.to_string(), "200", &old);
    eventually("the whole capacity is leased", || {
        let (books, _) = fleet.books();
        (books.len() == 5 && books.values().all(|capacity| *capacity == 100.0)).then_some(())
    });
    doorman.signal(leaseway_process::Signal::KILL);
    doorman.finish();

    for peer in peers.all() {
        peers.run(peer, &["--take-over"]);
    }
    let mut newcomer = peers.client("newcomer");
    let mut most = 0.0f64;
    eventually("the new client has a share", || {
        let given = newcomer.ask(&peers, "r", 1000.0);
        let (books, _) = fleet.books();
        let all: f64 = books.values().sum::<f64>() + given;
        most = most.max(all);
        (given > 50.0).then_some(())
    });
    let (books, _) = fleet.books();
    assert!(most <= CAPACITY + 1e-6, "{most}");
    assert_eq!(books.len(), 5, "{books:?}");
    assert!(books.values().all(|capacity| *capacity > 50.0), "each client has a share: {books:?}");
}
