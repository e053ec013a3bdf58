//! Records which peers claim to be master, and finds two peers of a node that were masters at the same time.
//!
//! The watch asks every peer every few milliseconds (Discovery) and bypasses the degraded links. A claim proves that
//! the peer was master, in the named term, at some time between question and answer. A term that has ended never
//! returns, so between two claims for the same term the peer was master all the time: from the arrival of the first
//! answer until the last question was sent. Two peers of a node were masters at the same time if two such spans
//! overlap, or if a claim lies entirely within the span of another peer. This assumes nothing about clocks or message
//! delays: on a busy machine spans become shorter, but there is no false alarm.

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
    chaos::{
        accounting::MachineClock,
        clients::raw::{NamedMaster, RawClient},
    },
    common::error::Error,
};

/// The interval at which each peer is asked.
const POLL_INTERVAL: Duration = Duration::from_millis(5);

/// An answer in which the peer claims to be master.
#[derive(Clone, Copy, Debug)]
struct Answer {
    term: Option<u64>,
    asked: Instant,
    answered: Instant,
}

/// A claim to be master, with times on the machine's clock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Claim {
    pub(crate) peer: usize,
    pub(crate) term: u64,
    pub(crate) asked_us: u64,
    pub(crate) answered_us: u64,
}

/// Two peers of a node that were masters at the same time.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct TwoMasters {
    /// The two peers and their terms.
    pub(crate) masters: [(usize, u64); 2],
    /// The beginning, on the machine's clock. The duration is a lower bound.
    pub(crate) from_us: u64,
    pub(crate) lasted_us: u64,
    /// The number of claims of one that lie entirely within the span of the other.
    pub(crate) claims: usize,
}

/// Polls all peers on its own thread, until it is dropped.
pub(crate) struct MasterWatch {
    answers: Arc<Mutex<Answers>>,
    runtime: Runtime,
}

#[derive(Default)]
struct Answers {
    /// The newest answer of each peer, if it claims to be master.
    newest: Vec<Option<Answer>>,
    claims: Vec<(usize, Answer)>,
}

impl MasterWatch {
    /// Starts to poll. `peers` are addresses that bypass the degraded links.
    pub(crate) fn start(transport: &Transport, peers: &[SocketAddr]) -> Result<MasterWatch, Error> {
        let runtime = runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build();
        let runtime = runtime.map_err(Error::io("start a runtime"))?;
        let answers = Arc::new(Mutex::new(Answers { newest: vec![None; peers.len()], ..Answers::default() }));
        for (peer, &address) in peers.iter().enumerate() {
            let _inside = runtime.enter();
            runtime.spawn(ask(Arc::clone(&answers), peer, RawClient::to(transport, address)));
        }
        Ok(MasterWatch { answers, runtime })
    }

    /// Whether this peer claimed to be master in its newest answer.
    pub(crate) fn is_master(&self, peer: usize) -> bool {
        lock(&self.answers).newest[peer].is_some()
    }

    /// The master among these peers, by the newest claim.
    pub(crate) fn master(&self, peers: Range<usize>) -> Option<usize> {
        let answers = lock(&self.answers);
        let claims = peers.filter_map(|peer| Some((peer, answers.newest[peer]?)));
        claims.max_by_key(|(_, answer)| answer.asked).map(|(peer, _)| peer)
    }

    /// Stops polling, and returns all claims with a term. Claims without a term prove nothing.
    pub(crate) fn finish(self, clock: MachineClock) -> Vec<Claim> {
        drop(self.runtime);
        let claim = |&(peer, Answer { term, asked, answered }): &(usize, Answer)| {
            Some(Claim { peer, term: term?, asked_us: clock.us(asked), answered_us: clock.us(answered) })
        };
        lock(&self.answers).claims.iter().filter_map(claim).collect()
    }
}

fn lock(answers: &Mutex<Answers>) -> MutexGuard<'_, Answers> {
    answers.lock().unwrap_or_else(PoisonError::into_inner)
}

async fn ask(answers: Arc<Mutex<Answers>>, peer: usize, mut client: RawClient) {
    let mut tick = interval(POLL_INTERVAL);
    tick.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        tick.tick().await;
        let asked = Instant::now();
        let said = client.discover().await;
        let answered = Instant::now();
        let answer = match said {
            Some(NamedMaster::Itself { term }) => Some(Answer { term, asked, answered }),
            _ => None,
        };
        let mut answers = lock(&answers);
        answers.newest[peer] = answer;
        answers.claims.extend(answer.map(|answer| (peer, answer)));
    }
}

/// The claims for one term.
struct Span {
    claims: Vec<Claim>,
    /// The span in which the peer was certainly master. Empty if it ends before it starts.
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

/// All pairs of peers that were masters of a node at the same time. `nodes` are the peers of each node.
pub(crate) fn two_masters(claims: &[Claim], nodes: &[Range<usize>]) -> Vec<TwoMasters> {
    let mut found = Vec::new();
    for node in nodes {
        let mut terms: BTreeMap<(usize, u64), Vec<Claim>> = BTreeMap::new();
        for claim in claims.iter().filter(|claim| node.contains(&claim.peer)) {
            terms.entry((claim.peer, claim.term)).or_default().push(*claim);
        }
        let spans: Vec<_> = terms.into_iter().map(|(master, claims)| (master, Span::of(claims))).collect();
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

/// The times without a master between two terms of a node: from the last question that one master answered until the
/// first answer of the next one.
pub(crate) fn gaps_ms(claims: &[Claim], nodes: &[Range<usize>]) -> Vec<f64> {
    let mut gaps = Vec::new();
    for node in nodes {
        let mut terms: BTreeMap<u64, (u64, u64)> = BTreeMap::new();
        for claim in claims.iter().filter(|claim| node.contains(&claim.peer)) {
            let (first, last) = terms.entry(claim.term).or_insert((u64::MAX, 0));
            (*first, *last) = ((*first).min(claim.answered_us), (*last).max(claim.asked_us));
        }
        let terms: Vec<_> = terms.into_values().collect();
        gaps.extend(terms.windows(2).map(|two| two[1].0.saturating_sub(two[0].1) as f64 / 1000.0));
    }
    gaps
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Claims of a peer for one term, each `(asked, answered)` in milliseconds.
    fn claims(peer: usize, term: u64, at: &[(u64, u64)]) -> Vec<Claim> {
        let claim = |&(asked, answered)| Claim { peer, term, asked_us: asked * 1000, answered_us: answered * 1000 };
        at.iter().map(claim).collect()
    }

    fn found(claims: &[Vec<Claim>]) -> Vec<TwoMasters> {
        two_masters(&claims.concat(), &[0..3, 3..6])
    }

    #[test]
    fn masters_that_follow_each_other_do_not_overlap() {
        let first = claims(0, 1, &[(0, 2), (5, 8), (10, 30)]);
        // Late answers of the first may be from before the second began.
        let second = claims(1, 2, &[(9, 14), (20, 26)]);
        assert_eq!(found(&[first.clone(), second.clone()]), []);
        assert_eq!(found(&[first, second, claims(0, 3, &[(25, 40), (45, 50)])]), []);
    }

    #[test]
    fn overlapping_spans_are_two_masters_at_once() {
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
        assert_eq!((at(1, 5), at(2, 6)), (vec![], vec![]), "it may have been master outside of the span");
    }

    #[test]
    fn peers_of_different_nodes_and_terms_of_one_peer_are_not_compared() {
        let long = [(0, 1), (100, 101)];
        assert_eq!(found(&[claims(0, 1, &long), claims(4, 1, &long)]), []);
        assert_eq!(found(&[claims(0, 1, &long), claims(0, 2, &long)]), []);
        assert_eq!(found(&[claims(3, 7, &long), claims(5, 7, &long)]).len(), 1, "two peers in the same term");
    }

    #[test]
    fn gaps_are_between_the_terms_of_a_node() {
        let all =
            [claims(0, 1, &[(0, 2), (100, 104)]), claims(1, 2, &[(400, 450), (900, 910)]), claims(4, 1, &[(0, 1)])];
        assert_eq!(gaps_ms(&all.concat(), &[0..3, 3..6]), [350.0]);
    }
}
