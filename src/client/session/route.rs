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
        assert!(!endpoints.is_empty(), "a session is made with at least one endpoint");
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

    fn route(endpoints: &[&str]) -> Route {
        Route::new(endpoints.iter().map(|endpoint| (*endpoint).into()).collect(), 0)
    }

    #[test]
    fn it_follows_to_the_master_and_stays_there() {
        let mut route = route(&["a:1", "b:1"]);
        assert!(route.redirected("m:1"));
        route.succeeded();
        assert_eq!(&**route.target(), "m:1");
    }

    #[test]
    fn after_a_failure_the_endpoints_are_tried_in_turn() {
        let mut route = route(&["a:1", "b:1"]);
        assert!(route.redirected("m:1"));
        let mut tried = Vec::new();
        for _ in 0..3 {
            route.failed();
            tried.push(route.target().to_string());
        }
        assert_eq!(tried, ["b:1", "a:1", "b:1"]);
    }

    fn tries(route: &mut Route, times: usize) -> Vec<String> {
        let mut tried = || {
            route.failed();
            route.target().to_string()
        };
        (0..times).map(|_| tried()).collect()
    }

    #[test]
    fn peers_that_were_learnt_are_tried_after_those_that_were_given() {
        let mut route = route(&["a:1"]);
        route.learn(["b:1", "a:1", "c:1", "b:1"].map(Arc::from));
        assert_eq!(tries(&mut route, 4), ["b:1", "c:1", "a:1", "b:1"]);
        route.learn(["d:1"].map(Arc::from));
        assert_eq!(tries(&mut route, 3), ["a:1", "d:1", "a:1"], "those of before are peers no longer");
        route.learn([]);
        assert_eq!(tries(&mut route, 2), ["a:1", "a:1"]);
    }

    #[test]
    fn a_server_that_names_very_many_peers_is_heard_out_in_part() {
        let mut route = route(&["a:1"]);
        route.learn((0..100_000).map(|n| format!("p{n}:1").into()));
        assert_eq!(route.endpoints().len(), 1 + MAX_LEARNT_PEERS);
    }

    #[test]
    fn a_server_that_names_itself_is_not_asked_again_at_once() {
        assert!(!route(&["a:1"]).redirected("a:1"));
    }

    #[test]
    fn servers_that_name_each_other_are_followed_a_few_times_only() {
        let mut route = route(&["a:1"]);
        let followed = (0..100).take_while(|n| route.redirected(if n % 2 == 0 { "b:1" } else { "a:1" })).count();
        assert_eq!(followed, 5);
    }
}
