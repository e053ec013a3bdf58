//! A client that shares a limit with a gateway and wants all of it. It bypasses the degraded links, so what is lent to
//! the gateway and not renewed goes to this client next.

use std::time::{Duration, Instant};

use tokio::{sync::watch, time::timeout_at};

use crate::chaos::raw_client::{CapacityRequest, Grant, RawClient};

/// After a request without an answer.
const PAUSE: Duration = Duration::from_millis(100);

pub(crate) struct Competitor {
    peers: Vec<RawClient>,
    /// The peer to ask. It changes after each request without an answer.
    turn: usize,
    request: CapacityRequest,
    refresh: Duration,
    lease: Duration,
    has: Option<Grant>,
    believed: Vec<(Instant, f64)>,
}

impl Competitor {
    pub(crate) fn of(
        peers: Vec<RawClient>,
        request: CapacityRequest,
        refresh: Duration,
        lease: Duration,
    ) -> Competitor {
        Competitor { peers, turn: 0, request, refresh, lease, has: None, believed: Vec::new() }
    }

    /// Returns what it believed in, and from when on. Its last lease counts until it ends.
    pub(crate) async fn live(mut self, mut left: watch::Receiver<bool>) -> Vec<(Instant, f64)> {
        while !*left.borrow() {
            let pause = if self.ask().await { self.refresh } else { PAUSE };
            let _ = timeout_at((Instant::now() + pause).into(), left.wait_for(|left| *left)).await;
            self.expire(Instant::now());
        }
        self.has.into_iter().for_each(|has| self.believed.push((has.ends, 0.0)));
        self.believed
    }

    /// An answer that arrives after the end of the named lease is ignored.
    async fn ask(&mut self) -> bool {
        let named = self.has.as_ref().map(|has| has.lease);
        let place = self.turn % self.peers.len();
        let Some(grant) = self.peers[place].ask(&self.request, named, self.lease).await else {
            self.turn += 1;
            self.expire(Instant::now());
            return false;
        };
        self.expire(grant.at);
        if named.is_some() && self.has.is_none() {
            return false;
        }
        self.believed.push((grant.at, grant.lease.capacity.unwrap_or(0.0)));
        self.has = Some(grant);
        true
    }

    fn expire(&mut self, now: Instant) {
        if let Some(has) = self.has.take_if(|has| has.ends <= now) {
            self.believed.push((has.ends, 0.0));
        }
    }
}
