//! Which peers say that they are master, and whether two of a node ever were at once.
//!
//! All peers are asked all the time (Discovery), directly: not over links that are made bad. A claim says that its peer
//! decided, in the named reign, at some moment between the question and the answer. A reign that has ended never
//! returns, so between two claims for the same reign its peer decided all the time: from when the first answer was
//! there until the last question was sent. Two peers of a node decided at once if two such spans have a moment in
//! common, or a claim lies entirely within the span of another peer. Nothing is assumed about clocks or about how long
//! messages take; a busy machine makes the spans shorter and causes no false alarm.

use std::{
    collections::BTreeMap,
    net::SocketAddr,
    ops::Range,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::{Duration, Instant},
};

use leaseway_client::Transport;
use serde::{Deserialize, Serialize};
use tokio::{
    runtime::{self, Runtime},
    time::{MissedTickBehavior, interval},
};

use crate::{
    book::MachineClock,
    chaos::raw_client::{NamedMaster, RawClient},
    error::Error,
};

/// How often each peer is asked.
const POLL_INTERVAL: Duration = Duration::from_millis(5);

/// An answer "I am the master".
#[derive(Clone, Copy, Debug)]
struct Answer {
    reign: Option<u64>,
    asked: Instant,
    answered: Instant,
}

/// An answer "I am the master" on the machine's clock: in this reign the peer decided at some moment between the two.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Claim {
    pub(super) peer: usize,
    pub(super) reign: u64,
    pub(super) asked_us: u64,
    pub(super) answered_us: u64,
}

/// Two peers of a node that decided at once.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct TwoMasters {
    /// Each with the number of its reign.
    pub(super) masters: [(usize, u64); 2],
    /// From when on, on the machine's clock, and for how long at least.
    pub(super) from_us: u64,
    pub(super) lasted_us: u64,
    /// How many claims of either lie entirely within the span of the other.
    pub(super) claims: usize,
}

/// Asks until it is dropped, on a thread of its own.
pub(super) struct MasterWatch {
    heard: Arc<Mutex<Heard>>,
    runtime: Runtime,
}

#[derive(Default)]
struct Heard {
    /// The newest answer of each peer, if it says that it is master.
    newest: Vec<Option<Answer>>,
    claims: Vec<(usize, Answer)>,
}

impl MasterWatch {
    /// `peers` are their own addresses.
    pub(super) fn start(transport: &Transport, peers: &[SocketAddr]) -> Result<MasterWatch, Error> {
        let runtime = runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build();
        let runtime = runtime.map_err(Error::io("start a runtime"))?;
        let heard = Arc::new(Mutex::new(Heard { newest: vec![None; peers.len()], ..Heard::default() }));
        for (peer, &address) in peers.iter().enumerate() {
            let _inside = runtime.enter();
            runtime.spawn(ask(Arc::clone(&heard), peer, RawClient::to(transport, address)));
        }
        Ok(MasterWatch { heard, runtime })
    }

    /// Whether this peer says so.
    pub(super) fn is_master(&self, peer: usize) -> bool {
        lock(&self.heard).newest[peer].is_some()
    }

    /// The one of these peers that says so, by the newest answer.
    pub(super) fn master(&self, peers: Range<usize>) -> Option<usize> {
        let heard = lock(&self.heard);
        let claims = peers.filter_map(|peer| Some((peer, heard.newest[peer]?)));
        claims.max_by_key(|(_, answer)| answer.asked).map(|(peer, _)| peer)
    }

    /// All claims. Those that do not name their reign prove nothing and are left out.
    pub(super) fn finish(self, clock: MachineClock) -> Vec<Claim> {
        drop(self.runtime);
        let claim = |&(peer, Answer { reign, asked, answered }): &(usize, Answer)| {
            Some(Claim { peer, reign: reign?, asked_us: clock.us(asked), answered_us: clock.us(answered) })
        };
        lock(&self.heard).claims.iter().filter_map(claim).collect()
    }
}

fn lock(heard: &Mutex<Heard>) -> MutexGuard<'_, Heard> {
    heard.lock().unwrap_or_else(PoisonError::into_inner)
}

async fn ask(heard: Arc<Mutex<Heard>>, peer: usize, mut client: RawClient) {
    let mut tick = interval(POLL_INTERVAL);
    tick.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        tick.tick().await;
        let asked = Instant::now();
        let said = client.discover().await;
        let answered = Instant::now();
        let answer = match said {
            Some(NamedMaster::Itself { reign }) => Some(Answer { reign, asked, answered }),
            _ => None,
        };
        let mut heard = lock(&heard);
        heard.newest[peer] = answer;
        heard.claims.extend(answer.map(|answer| (peer, answer)));
    }
}

/// What the claims for one reign prove.
struct Span {
    claims: Vec<Claim>,
    /// Between the two the peer decided all the time. Empty if the first is not before the second.
    from_us: u64,
    until_us: u64,
}

impl Span {
    fn of(claims: Vec<Claim>) -> Span {
        let from_us = claims.iter().map(|claim| claim.answered_us).min().unwrap_or(u64::MAX);
        let until_us = claims.iter().map(|claim| claim.asked_us).max().unwrap_or(0);
        Span { claims, from_us, until_us }
    }

    fn within<'a>(&'a self, other: &'a Span) -> impl Iterator<Item = &'a Claim> {
        self.claims.iter().filter(|claim| other.from_us <= claim.asked_us && claim.answered_us <= other.until_us)
    }
}

/// All pairs of masters that decided at once. `nodes` are the peers of each node.
pub(super) fn two_masters(claims: &[Claim], nodes: &[Range<usize>]) -> Vec<TwoMasters> {
    let mut found = Vec::new();
    for node in nodes {
        let mut reigns: BTreeMap<(usize, u64), Vec<Claim>> = BTreeMap::new();
        for claim in claims.iter().filter(|claim| node.contains(&claim.peer)) {
            reigns.entry((claim.peer, claim.reign)).or_default().push(*claim);
        }
        let spans: Vec<_> = reigns.into_iter().map(|(master, claims)| (master, Span::of(claims))).collect();
        for (place, (one, span)) in spans.iter().enumerate() {
            let others = spans[place + 1..].iter().filter(|((peer, _), _)| *peer != one.0);
            found.extend(others.filter_map(|(other, with)| at_once((*one, span), (*other, with))));
        }
    }
    found
}

fn at_once((one, span): ((usize, u64), &Span), (other, with): ((usize, u64), &Span)) -> Option<TwoMasters> {
    let (from_us, until_us) = (span.from_us.max(with.from_us), span.until_us.min(with.until_us));
    let within: Vec<_> = span.within(with).chain(with.within(span)).collect();
    if from_us >= until_us && within.is_empty() {
        return None;
    }
    let from_us = within.iter().map(|claim| claim.asked_us).fold(from_us, u64::min);
    let lasted_us = until_us.saturating_sub(span.from_us.max(with.from_us));
    Some(TwoMasters { masters: [one, other], from_us, lasted_us, claims: within.len() })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Claims of a peer for one reign, each `(asked, answered)` in milliseconds.
    fn claims(peer: usize, reign: u64, at: &[(u64, u64)]) -> Vec<Claim> {
        let claim = |&(asked, answered)| Claim { peer, reign, asked_us: asked * 1000, answered_us: answered * 1000 };
        at.iter().map(claim).collect()
    }

    fn found(claims: &[Vec<Claim>]) -> Vec<TwoMasters> {
        two_masters(&claims.concat(), &[0..3, 3..6])
    }

    #[test]
    fn masters_that_follow_each_other_never_decide_at_once() {
        let first = claims(0, 1, &[(0, 2), (5, 8), (10, 30)]);
        // The answers of the first may be from before the second began, however late they are.
        let second = claims(1, 2, &[(9, 14), (20, 26)]);
        assert_eq!(found(&[first.clone(), second.clone()]), []);
        assert_eq!(found(&[first, second, claims(0, 3, &[(25, 40), (45, 50)])]), []);
    }

    #[test]
    fn spans_with_a_moment_in_common_are_two_masters_at_once() {
        let one = claims(0, 1, &[(0, 2), (30, 60)]);
        let other = claims(1, 2, &[(3, 20), (25, 26), (50, 51)]);
        let [both] = &found(&[one, other])[..] else { panic!("it is one pair") };
        assert_eq!((both.masters, both.lasted_us), ([(0, 1), (1, 2)], 10_000));
        assert_eq!((both.from_us, both.claims), (3_000, 2), "the claims that end at 20 and 26 are within");
    }

    #[test]
    fn a_single_claim_within_the_span_of_another_peer_is_enough() {
        let one = claims(0, 1, &[(0, 2), (5, 7)]);
        let at = |asked, answered| found(&[one.clone(), claims(2, 9, &[(asked, answered)])]);
        assert_eq!(at(2, 5).iter().map(|both| both.claims).collect::<Vec<_>>(), [1]);
        assert_eq!((at(1, 5), at(2, 6)), (vec![], vec![]), "it may have decided outside of the span");
    }

    #[test]
    fn peers_of_different_nodes_and_reigns_of_one_peer_are_not_compared() {
        let long = [(0, 1), (100, 101)];
        assert_eq!(found(&[claims(0, 1, &long), claims(4, 1, &long)]), []);
        assert_eq!(found(&[claims(0, 1, &long), claims(0, 2, &long)]), []);
        assert_eq!(found(&[claims(3, 7, &long), claims(5, 7, &long)]).len(), 1, "two peers in the same reign");
    }
}
