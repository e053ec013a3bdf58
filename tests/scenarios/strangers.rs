//! What a stranger on the network can cost: each attack is made on a real server, which stays within its bounds, and
//! serves others meanwhile. docs/benchmarks.md has what each costs both sides.

mod bodies;
mod connections;
mod frames;
mod identities;
mod shares;
mod unread;

use std::net::{IpAddr, Ipv4Addr};

use leaseway_process::usage;

use crate::harness::{
    doorman::{Doorman, entry, request},
    http,
    prometheus::Scrape,
    server::Server,
    wait::eventually,
};

const GET_CAPACITY: &str = "/doorman.Capacity/GetCapacity";
const GET_STATUS: &str = "/leaseway.status.v1.Status/GetStatus";

/// Another client on another machine, as far as the server can see.
const ELSEWHERE: IpAddr = IpAddr::V4(Ipv4Addr::new(127, 9, 9, 9));
const THIRD: IpAddr = IpAddr::V4(Ipv4Addr::new(127, 9, 9, 10));
const OPERATOR: IpAddr = IpAddr::V4(Ipv4Addr::new(127, 9, 9, 11));

const MIB: u64 = 1024;

/// A server that is attacked, and a client of it that does no harm.
struct Victim {
    server: Server,
    /// Resident memory before the attack, in KiB.
    before: u64,
}

impl Victim {
    fn with_flags(flags: &[&str]) -> Victim {
        let server = Server::with_flags(flags);
        let victim = Victim { server, before: 0 };
        victim.serves_others();
        Victim { before: usage::memory(victim.server.id()).unwrap().now_kib, ..victim }
    }

    /// It answers a newcomer from elsewhere.
    #[track_caller]
    fn serves_others(&self) {
        let doorman = Doorman::over(self.server.channel_from(ELSEWHERE));
        let answer = doorman.get(request("an honest client", vec![entry("mysql", 1.0)])).unwrap();
        assert!(answer.response.len() == 1 || answer.problem[0].reason() == "too_soon", "{answer:?}");
    }

    /// By how many MiB its memory has grown at most.
    fn grown(&self) -> u64 {
        usage::memory(self.server.id()).unwrap().peak_kib.saturating_sub(self.before) / MIB
    }

    /// From an address of its own: a stranger's may have its share of what may wait.
    fn scrape(&self) -> Scrape {
        let response = http::get_from(OPERATOR, self.server.http(), "/metrics");
        assert_eq!(response.status, 200, "{response:?}");
        Scrape::parse(&response.body)
    }

    fn metric(&self, name: &str) -> f64 {
        self.scrape().only(name)
    }

    fn closed(&self, why: &str) -> f64 {
        self.scrape().find("leaseway_connections_closed_total", "reason", why).unwrap()
    }

    /// What waited is gone.
    fn holds_nothing(&self) {
        eventually("nothing waits any more", || (self.metric("leaseway_waiting_bytes") == 0.0).then_some(()));
    }
}
