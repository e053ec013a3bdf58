//! The choice of server: one of the configured or learnt endpoints, or the master that they name.

use std::sync::Arc;

/// Maximum number of redirects in a row.
const MAX_REDIRECTS: u32 = 5;

/// Maximum number of learnt peers; further ones are ignored.
const MAX_LEARNT_PEERS: usize = 64;

/// Stays with a master that answers, and goes round the endpoints while none does.
#[derive(Debug)]
pub(super) struct Route {
    /// The configured endpoints, at least one, followed by the learnt ones.
    endpoints: Vec<Arc<str>>,
    given: usize,
    /// Index of the endpoint that was tried last.
    tried: usize,
    target: Arc<str>,
    /// Redirects since a master last answered.
    redirects: u32,
}

impl Route {
    /// `first` selects the first endpoint. It is random, so that clients do not all begin with the same server.
    pub(super) fn new(endpoints: Vec<Arc<str>>, first: usize) -> Route {
        assert!(!endpoints.is_empty(), "a session needs at least one endpoint");
        let tried = first % endpoints.len();
        Route { target: Arc::clone(&endpoints[tried]), given: endpoints.len(), endpoints, tried, redirects: 0 }
    }

    pub(super) fn target(&self) -> &Arc<str> {
        &self.target
    }

    pub(super) fn endpoints(&self) -> &[Arc<str>] {
        &self.endpoints
    }

    /// Replaces the learnt peers.
    pub(super) fn learn(&mut self, peers: impl IntoIterator<Item = Arc<str>>) {
        self.endpoints.truncate(self.given);
        for peer in peers {
            if self.endpoints.len() >= self.given + MAX_LEARNT_PEERS {
                return;
            }
            if !self.endpoints.contains(&peer) {
                self.endpoints.push(peer);
            }
        }
    }

    pub(super) fn succeeded(&mut self) {
        self.redirects = 0;
    }

    /// The target names `master`. Returns whether to go there at once. If not, this counts as a failure: servers that
    /// name themselves or each other are asked again only after a pause.
    pub(super) fn redirected(&mut self, master: &str) -> bool {
        self.redirects += 1;
        if *self.target == *master || self.redirects > MAX_REDIRECTS {
            return false;
        }
        self.target = master.into();
        true
    }

    /// Moves on to the next endpoint.
    pub(super) fn failed(&mut self) {
        self.redirects = 0;
        self.tried = (self.tried + 1) % self.endpoints.len();
        self.target = Arc::clone(&self.endpoints[self.tried]);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn learnt_peers_are_tried_after_the_configured_endpoints_and_replaced() {
        let mut route = Route::new(vec!["a:1".into()], 0);
        let tries = |route: &mut Route, times| -> Vec<String> {
            let tries = (0..times).map(|_| {
                route.failed();
                route.target().to_string()
            });
            tries.collect()
        };
        route.learn(["b:1", "a:1", "c:1", "b:1"].map(Arc::from));
        assert_eq!(tries(&mut route, 4), ["b:1", "c:1", "a:1", "b:1"]);
        route.learn(["d:1"].map(Arc::from));
        assert_eq!(tries(&mut route, 3), ["a:1", "d:1", "a:1"]);
        route.learn([]);
        assert_eq!(tries(&mut route, 2), ["a:1", "a:1"]);
        route.learn((0..100_000).map(|n| format!("p{n}:1").into()));
        assert_eq!(route.endpoints().len(), 1 + MAX_LEARNT_PEERS);
    }
}
