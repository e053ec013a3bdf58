//! What a master tells its peers now and then: that they need not remember what has ended.

use std::sync::Arc;

use leaseway_core::{ClusterTime, Epoch, Millis, Promises};
use leaseway_raft::{Command, Listening, MasterLease, RaftHandle};

use super::{super::directory::Directory, actor::NodeActor};

/// How often a master looks for promises that have ended with no resource left to say so.
const SWEEP_INTERVAL: Millis = Millis::from_secs(10);
/// A pool that was not asked for so long is not remembered.
const POOLS_LAST: Millis = Millis::from_secs(24 * 3600);
/// So many resources are forgotten in one go.
const MAX_SWEPT: usize = 1000;

impl NodeActor {
    /// Proposes to forget what has ended. If that is lost, the next look finds it again.
    pub(super) fn sweep(&mut self, reign: &MasterLease) {
        let now = self.clock.at();
        if now.since(self.swept) < SWEEP_INTERVAL {
            return;
        }
        self.swept = now;
        let Some(membership) = &self.membership else { return };
        let ended = ended(&membership.quorum, &self.shared.directory, now, reign.clock().at(now));
        if ended.is_empty() {
            return;
        }
        let (quorum, reign) = (membership.quorum.clone(), reign.clone());
        actix_rt::spawn(async move {
            if let Err(error) = quorum.propose(&reign, ended).await {
                tracing::debug!(%error, "what has ended is forgotten later");
            }
        });
    }
}

/// Resources that were promised and have ended with a master before this one, and the time of listening if that is
/// over.
fn ended(quorum: &RaftHandle, directory: &Directory, now: Millis, moment: ClusterTime) -> Vec<Command> {
    let ended: Vec<(Arc<str>, Option<Epoch>)> = quorum.read(|state| {
        let named = state.promised().filter_map(|resource| Some((resource, state.promises(resource)?)));
        let ended = named.filter(|(_, promises)| promises.until() <= moment);
        let newest = |promises: &Promises| promises.newest().map(|(epoch, _)| epoch);
        ended.map(|(resource, promises)| (Arc::clone(resource), newest(promises))).take(MAX_SWEPT).collect()
    });
    let forgotten = ended.into_iter().filter(|(resource, _)| directory.get(resource).is_none());
    let mut commands: Vec<Command> = forgotten
        .map(|(resource, newest)| Command::ForgetPromises { resource, epoch: newest.unwrap_or(Epoch(0)) })
        .collect();
    commands.extend(ended_pools(quorum, directory, now));
    if quorum.read(|state| state.listen_until()).is_some_and(|until| until <= moment) {
        commands.push(Command::Listen(Listening::default()));
    }
    commands
}

/// Pools that are not asked for, and of which nothing matters any more that is remembered.
fn ended_pools(quorum: &RaftHandle, directory: &Directory, now: Millis) -> Vec<Command> {
    let ended: Vec<Arc<str>> = quorum.read(|state| {
        let ended = state.pools().filter(|(_, pool)| pool.age(now) >= POOLS_LAST || pool.is_worthless(now));
        ended.map(|(resource, _)| Arc::clone(resource)).take(MAX_SWEPT).collect()
    });
    let unasked = ended.into_iter().filter(|resource| directory.get(resource).is_none());
    unasked.map(|resource| Command::ForgetPool { resource }).collect()
}
