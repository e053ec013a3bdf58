//! What the peers agree on, carried to the node: who answers, which configuration is in force. And what a master does
//! for the peers now and then: it tells them what they need not remember any more.

use std::{sync::Arc, time::Duration};

use leaseway_core::{Epoch, Millis, Promises};
use leaseway_quorum::{Fact, Mastership, Quorum, Reign};

use crate::{
    actors::{Gone, Handover, Memory, NodeHandle},
    config,
    first::{FirstConfiguration, longest_lease},
};

/// How often a peer looks whether another has put a configuration in force.
const LOOK_EVERY: Duration = Duration::from_millis(200);
/// How often a master looks for promises that have ended with nobody left to say so.
const SWEEP_EVERY: Millis = Millis::from_secs(10);
/// A pool that nobody has asked for so long is not remembered.
const POOLS_LAST: Millis = Millis::from_secs(24 * 3600);
/// So many resources are forgotten in one go.
const SWEEP_MOST: usize = 1000;

/// Goes on until the node or the quorum is gone.
pub(crate) async fn follow(memory: Memory, node: NodeHandle, first: FirstConfiguration) {
    let Memory { quorum, handover } = memory;
    let mut mastership = quorum.mastership();
    mastership.mark_changed();
    let mut look = tokio::time::interval(LOOK_EVERY);
    look.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    let mut sweep = Sweep { at: node.clock.at() };
    let mut first = Some(first);
    loop {
        let followed = tokio::select! {
            changed = mastership.changed() => match changed {
                Ok(()) => {
                    // Before the first resource comes to life.
                    let adopted = adopt_newest(&quorum, &node).await;
                    let now = mastership.borrow_and_update().clone();
                    let stands = match &now {
                        Mastership::Master(reign) => handover == Handover::Promises || warn_successors(&quorum, reign, &node).await,
                        Mastership::Follower { .. } | Mastership::Unknown => true,
                    };
                    if stands { adopted.and(node.stand(now).await) } else { adopted }
                }
                Err(_) => return,
            },
            _ = look.tick() => adopt_newest(&quorum, &node).await,
        };
        if let Err(Gone) = followed {
            return;
        }
        if node.config().version > 0
            && let Some(first) = first.take()
        {
            tell_if_different(&first, &node);
        }
        let reign = match &*mastership.borrow() {
            Mastership::Master(reign) => reign.clone(),
            Mastership::Follower { .. } | Mastership::Unknown => continue,
        };
        match handover {
            Handover::Promises => sweep.maybe(&quorum, &reign, &node),
            Handover::Learning => drop(warn_successors(&quorum, &reign, &node).await),
        }
    }
}

/// A master that keeps no promises says so before it gives its first lease, and again before that is forgotten: should
/// the next one keep promises, it must not take what is written down for all there is. Returns whether that is known.
async fn warn_successors(quorum: &Quorum, reign: &Reign, node: &NodeHandle) -> bool {
    let longest = longest_lease(&node.config().repository).max(node.longest_lent());
    let lasts = |until: Millis| until.since(node.clock.at()) > longest;
    if quorum.read(|facts| facts.listen_until()).is_some_and(lasts) {
        return true;
    }
    let length = Millis(longest.0.saturating_mul(2));
    let told = quorum.propose(reign, vec![Fact::Listen { length, whole: false }]).await;
    if let Err(error) = &told {
        tracing::warn!(%error, "the peers do not know yet that this master keeps no promises");
    }
    told.is_ok()
}

/// A file that was given, and is not what the peers keep, is easily taken for what is in force.
fn tell_if_different(first: &FirstConfiguration, node: &NodeHandle) {
    let config = node.config();
    if first.is_file && first.loaded.repository != config.repository {
        let (file, version, source) = (&first.source, config.version, &config.source);
        tracing::warn!(
            "{file} differs from what is in force, version {version} from {source}, which the peers keep: \
             `leaseway config diff {file}` shows how, `leaseway config apply {file}` changes that"
        );
    }
}

/// Puts the newest configuration of the peers in force here.
pub(crate) async fn adopt_newest(quorum: &Quorum, node: &NodeHandle) -> Result<(), Gone> {
    if node.parent().is_some() {
        // Whatever is kept is from a time when it had none.
        return Ok(());
    }
    let in_force = node.config().version;
    let newest = quorum.read(|facts| facts.configuration().filter(|newest| newest.version != in_force).cloned());
    let Some(newest) = newest else { return Ok(()) };
    match config::parse(&newest.source, &newest.text) {
        Ok(loaded) => {
            tracing::info!(version = newest.version, source = %newest.source, "configuration of the peers in force");
            node.adopt(loaded.repository, newest.version, newest.source.to_string()).await
        }
        // Applied by a server that understands more than this one.
        Err(error) if node.config().rejected.is_none() => {
            let version = newest.version;
            tracing::error!(version, "the configuration of the peers is not understood here:\n{error}");
            node.reject(error.to_string()).await
        }
        Err(_) => Ok(()),
    }
}

/// When a master looked last.
struct Sweep {
    at: Millis,
}

impl Sweep {
    /// Proposes to forget what has ended. If that is lost, the next look finds it again.
    fn maybe(&mut self, quorum: &Quorum, reign: &Reign, node: &NodeHandle) {
        let now = node.clock.at();
        if now.since(self.at) < SWEEP_EVERY {
            return;
        }
        self.at = now;
        let ended = ended(quorum, node, now);
        if ended.is_empty() {
            return;
        }
        let (quorum, reign) = (quorum.clone(), reign.clone());
        actix_rt::spawn(async move {
            if let Err(error) = quorum.propose(&reign, ended).await {
                tracing::debug!(%error, "what has ended is forgotten later");
            }
        });
    }
}

/// Resources that were promised and have ended with a master before this one, and the time of listening if that is
/// over.
fn ended(quorum: &Quorum, node: &NodeHandle, now: Millis) -> Vec<Fact> {
    let over = |promises: &Promises| promises.iter().all(|(_, until)| until <= now);
    let books: Vec<(Arc<str>, Option<Epoch>)> = quorum.read(|facts| {
        let named = facts.promised().map(|resource| (resource, facts.promises(resource)));
        let ended = named.filter(|(_, promises)| promises.is_some_and(over));
        let newest = ended.map(|(resource, promises)| (Arc::clone(resource), promises.and_then(Promises::newest)));
        newest.take(SWEEP_MOST).collect()
    });
    let forgotten = books.into_iter().filter(|(resource, _)| !node.is_alive(resource));
    let mut facts: Vec<Fact> = forgotten
        .map(|(resource, newest)| Fact::ForgetPromises { resource, epoch: newest.unwrap_or(Epoch(0)) })
        .collect();
    facts.extend(ended_pools(quorum, node, now));
    if quorum.read(|facts| facts.listen_until()).is_some_and(|until| until <= now) {
        facts.push(Fact::Listen { length: Millis(0), whole: false });
    }
    facts
}

/// Pools that nobody asks for, and of which nothing matters any more that is remembered.
fn ended_pools(quorum: &Quorum, node: &NodeHandle, now: Millis) -> Vec<Fact> {
    let ended: Vec<Arc<str>> = quorum.read(|facts| {
        let ended = facts.pools().filter(|(_, pool)| pool.age(now) >= POOLS_LAST || pool.is_worthless(now));
        ended.map(|(resource, _)| Arc::clone(resource)).take(SWEEP_MOST).collect()
    });
    let unasked = ended.into_iter().filter(|resource| !node.is_alive(resource));
    unasked.map(|resource| Fact::ForgetPool { resource }).collect()
}
