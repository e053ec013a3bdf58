//! Peers replace a Doorman server whose clients hold the whole capacity.

use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use prost_reflect::{DynamicMessage, Value};

use crate::harness::{
    config::{ConfigFile, Template},
    legacy_client::{build, entry, field, get, inner, list, number},
    peers::Peers,
    raw::Raw,
    wait::eventually,
};

const CAPACITY: f64 = 1000.0;
const LEASE: u64 = 6;

/// A configuration of a Doorman server, without a learning mode duration.
fn config() -> ConfigFile {
    ConfigFile::of(&[Template { lease: LEASE, refresh: 1, ..Template::fair("*", CAPACITY) }])
}

fn unix() -> f64 {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_secs_f64()
}

/// A client of the original library: it echoes its newest lease with unknown fields, and uses it until it expires.
struct Old {
    id: String,
    wants: f64,
    lease: Option<DynamicMessage>,
    next: Instant,
}

impl Old {
    /// A client that a Doorman server has just given this lease.
    fn holding(id: String, capacity: f64) -> Old {
        let fields = [
            ("expiry_time", Value::I64(unix() as i64 + LEASE as i64)),
            ("refresh_interval", Value::I64(1)),
            ("capacity", Value::F64(capacity)),
        ];
        Old {
            id,
            wants: capacity,
            lease: Some(build("Lease", fields)),
            next: Instant::now() + Duration::from_millis(500),
        }
    }

    fn newcomer(id: String, wants: f64) -> Old {
        Old { id, wants, lease: None, next: Instant::now() }
    }

    /// Refreshes its lease if that is due, at the first server that answers.
    fn refresh(&mut self, servers: &[Raw]) {
        if Instant::now() < self.next {
            return;
        }
        for server in servers {
            let Ok(answer) = get(server, &self.id, vec![entry("r", self.wants, self.lease.as_ref())]) else { continue };
            if let [response] = list(&answer, "response").as_slice() {
                self.lease = Some(inner(response, "gets"));
                self.next = Instant::now() + Duration::from_secs(1);
                return;
            }
        }
        self.next = Instant::now() + Duration::from_millis(300);
    }

    /// The capacity of its unexpired lease.
    fn usable(&self) -> f64 {
        let lease = self.lease.as_ref().filter(|lease| unix() < field(lease, "expiry_time").as_i64().unwrap() as f64);
        lease.map_or(0.0, |lease| number(lease, "capacity"))
    }
}

/// Refreshes all clients until newcomers have a share. Returns the peak of the sum of their leases. Calls `trouble`
/// once, while the peers learn.
fn most_believed(mut servers: impl FnMut() -> Vec<Raw>, old: Vec<Old>, mut trouble: impl FnMut()) -> f64 {
    let newcomers = 3;
    let mut clients: Vec<Old> = (0..newcomers).map(|n| Old::newcomer(format!("new {n}"), 100.0)).chain(old).collect();
    let (began, mut most, mut troubled) = (Instant::now(), 0.0f64, false);
    let mut reached = servers();
    eventually("newcomers have a share", || {
        for client in &mut clients {
            client.refresh(&reached);
        }
        most = most.max(clients.iter().map(Old::usable).sum());
        if !troubled && began.elapsed() > Duration::from_secs(2) {
            trouble();
            reached = servers();
            troubled = true;
        }
        clients[..newcomers].iter().all(|client| client.usable() > 50.0).then_some(())
    });
    most
}

fn ten_old() -> Vec<Old> {
    (0..10).map(|n| Old::holding(format!("old {n}"), CAPACITY / 10.0)).collect()
}

#[test]
fn peers_that_take_over_never_grant_held_capacity_even_after_a_failover() {
    let old = ten_old();
    let peers = Peers::start_with(3, config(), &[], &["--take-over"]);
    let peers = std::cell::RefCell::new(peers);
    let servers = || {
        let peers = peers.borrow();
        peers.all().map(|peer| peers.raw(peer)).collect()
    };
    let trouble = || {
        let master = peers.borrow().master();
        peers.borrow_mut().kill(master);
        peers.borrow_mut().run(master, &[]);
    };
    let most = most_believed(servers, old, trouble);
    assert!(most <= CAPACITY, "clients held {most} of {CAPACITY}");
    assert!(most > CAPACITY * 0.9, "clients held only {most}");
}
