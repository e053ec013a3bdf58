//! Attacks from the network: the server stays within its limits and keeps serving others. docs/benchmarks.md has the
//! cost of each attack.

mod attacks;
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

/// Addresses of other clients.
const ELSEWHERE: IpAddr = IpAddr::V4(Ipv4Addr::new(127, 9, 9, 9));
const THIRD: IpAddr = IpAddr::V4(Ipv4Addr::new(127, 9, 9, 10));
const OPERATOR: IpAddr = IpAddr::V4(Ipv4Addr::new(127, 9, 9, 11));

const MIB: u64 = 1024;

/// A server under attack.
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

    /// Fails unless a new client from another address is answered.
    #[track_caller]
    fn serves_others(&self) {
        let doorman = Doorman::over(self.server.channel_from(ELSEWHERE));
        let answer = doorman.get(request("an honest client", vec![entry("mysql", 1.0)])).unwrap();
        assert!(answer.response.len() == 1 || answer.problem[0].reason() == "too_soon", "{answer:?}");
    }

    /// The peak growth of its memory in MiB.
    fn grown(&self) -> u64 {
        usage::memory(self.server.id()).unwrap().peak_kib.saturating_sub(self.before) / MIB
    }

    /// Uses another address than the attackers, whose address may have used up its share.
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

    /// Waits until no bytes are buffered.
    fn holds_nothing(&self) {
        eventually("no bytes are buffered", || (self.metric("leaseway_waiting_bytes") == 0.0).then_some(()));
    }
}
