//! Streams of hints, each with its pending resources.
//!
//! Resources hint holders; streams send the hints. Between them is one [`Watcher`] for each watched holder. It has a
//! list of the resources that the holder should ask for, each once. Beyond [`MAX_PENDING`] the list is replaced by
//! "everything". So a slow stream costs a few hundred bytes and never delays a resource.
//!
//! Resources learn which holders are watched without a lookup per request, because few holders are ever hinted:
//! - a resource looks a holder up when it first sees it ([`Watchers::is_watched`]);
//! - a new stream is appended to a log ([`Watchers::started_since`]). A resource reads the log with its next round, or
//!   within a second if one of its holders waits. If there is nothing new, that costs one read of a number that rarely
//!   changes;
//! - the end of a stream is not announced. A resource learns of it when it hints the holder ([`Watchers::hint`]).
//!
//! There is no list of the resources of each holder: it would have to be maintained for all holders, or be collected
//! from all resources whenever a stream starts.

use std::{
    collections::{HashMap, VecDeque},
    sync::{
        Arc, Mutex, MutexGuard,
        atomic::{AtomicU64, Ordering},
    },
};

use leaseway_core::{
    resource::watch_list::Hint,
    types::{HolderKind, Principal, PrincipalShare},
};
use tokio::sync::Notify;

use crate::{listen::accounts::SlotsTaken, observe::metrics};

/// Maximum number of resources in a hint. With more, the hint asks the holder to refresh everything.
const MAX_PENDING: usize = 64;
/// Maximum number of entries in the log. A resource that is further behind gets all watched holders; one of few holders
/// looks these up instead.
const LOG: usize = 16_384;

#[derive(Debug)]
pub(crate) struct Watchers {
    listening: Mutex<Listeners>,
    /// The number of streams that have ever started. Read without the lock, because it rarely changes.
    started: AtomicU64,
    most: usize,
    share: PrincipalShare,
}

#[derive(Debug, Default)]
struct Listeners {
    clients: HashMap<Arc<str>, Arc<Watcher>>,
    nodes: HashMap<Arc<str>, Arc<Watcher>>,
    /// The newest streams; the last one has the number `started`.
    log: VecDeque<(HolderKind, Arc<str>)>,
    by_principal: SlotsTaken,
}

impl Listeners {
    fn of(&mut self, kind: HolderKind) -> &mut HashMap<Arc<str>, Arc<Watcher>> {
        match kind {
            HolderKind::Client => &mut self.clients,
            HolderKind::Node => &mut self.nodes,
        }
    }

    fn count(&self) -> usize {
        self.clients.len() + self.nodes.len()
    }
}

#[derive(Debug, Default)]
struct Watcher {
    pending: Mutex<PendingHints>,
    wake: Notify,
}

/// The pending hints of a holder.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct PendingHints {
    /// The resources to ask for, in the order of their hints.
    pub(crate) resources: Vec<Arc<str>>,
    /// There were more than [`MAX_PENDING`] resources: the holder should ask for all.
    pub(crate) everything: bool,
    ended: Option<Ended>,
}

impl PendingHints {
    fn add(&mut self, resource: &Arc<str>) {
        if self.everything || self.resources.contains(resource) {
            return;
        }
        if self.resources.len() < MAX_PENDING {
            self.resources.push(Arc::clone(resource));
        } else {
            self.everything = true;
            self.resources = Vec::new();
        }
    }

    fn is_empty(&self) -> bool {
        self.resources.is_empty() && !self.everything
    }
}

/// The limit of watchers is reached.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub(crate) enum TooManyWatchers {
    #[error("too many watchers on this server (limit {0}): raise its --max-watchers")]
    InAll(usize),
    #[error(
        "your identity or address has too many watchers at this server: each may use only a share of {0}; raise the \
         server's --max-watchers or --address-share"
    )]
    OfPrincipal(usize),
}

/// Why a watch has ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Ended {
    /// Another stream for the same holder has started.
    Replaced,
    /// This server has lost mastership.
    Dismissed,
}

impl Watchers {
    pub(crate) fn new(most: usize, share: PrincipalShare) -> Watchers {
        Watchers { listening: Mutex::default(), started: AtomicU64::new(0), most, share }
    }

    fn listening(&self) -> MutexGuard<'_, Listeners> {
        self.listening.lock().expect("no panic while the list of watchers is locked")
    }

    /// Watches a holder until the result is dropped, or until another stream for the same holder starts.
    pub(crate) fn start(
        self: &Arc<Self>,
        kind: HolderKind,
        id: Arc<str>,
        principal: Principal,
    ) -> Result<Watch, TooManyWatchers> {
        let watcher = Arc::<Watcher>::default();
        let mut listening = self.listening();
        let (used, own) = (listening.count(), listening.by_principal.of(principal));
        if !self.share.allows(own, 1, used, self.most) && !listening.of(kind).contains_key(&id) {
            drop(listening);
            metrics::watcher_refused();
            let is_full = used >= self.most;
            return Err(if is_full { TooManyWatchers::InAll } else { TooManyWatchers::OfPrincipal }(self.most));
        }
        listening.by_principal.add(principal);
        let before = listening.of(kind).insert(Arc::clone(&id), Arc::clone(&watcher));
        if listening.log.len() == LOG {
            listening.log.pop_front();
        }
        listening.log.push_back((kind, Arc::clone(&id)));
        self.started.fetch_add(1, Ordering::Release);
        drop(listening);
        if let Some(before) = before {
            before.end(Ended::Replaced);
        }
        Ok(Watch { watchers: Arc::clone(self), watcher, kind, id, principal })
    }

    /// Ends every watch: another peer is master.
    pub(crate) fn dismiss(&self) {
        let mut listening = self.listening();
        let Listeners { clients, nodes, .. } = &mut *listening;
        for (_, watcher) in clients.drain().chain(nodes.drain()) {
            watcher.end(Ended::Dismissed);
        }
    }

    /// The number of watched holders.
    pub(crate) fn count(&self) -> usize {
        self.listening().count()
    }

    pub(crate) fn is_watched(&self, kind: HolderKind, id: &str) -> bool {
        self.started() > 0 && self.listening().of(kind).contains_key(id)
    }

    /// The end of the log, where a new resource starts reading.
    pub(crate) fn started(&self) -> u64 {
        self.started.load(Ordering::Acquire)
    }

    /// The holders whose streams have started since position `seen` of the log, which is advanced. Some of these
    /// streams may have ended again.
    pub(crate) fn started_since(&self, seen: &mut u64) -> Vec<(HolderKind, Arc<str>)> {
        if *seen == self.started() {
            return Vec::new();
        }
        let listening = self.listening();
        let started = self.started();
        let missed = usize::try_from(started - std::mem::replace(seen, started)).unwrap_or(usize::MAX);
        if let Some(known) = listening.log.len().checked_sub(missed) {
            return listening.log.range(known..).cloned().collect();
        }
        let clients = listening.clients.keys().map(|id| (HolderKind::Client, Arc::clone(id)));
        clients.chain(listening.nodes.keys().map(|id| (HolderKind::Node, Arc::clone(id)))).collect()
    }

    /// Delivers hints to watched holders. Leaves those for unwatched holders in `hints`.
    pub(crate) fn hint(&self, resource: &Arc<str>, hints: &mut Vec<Hint>) {
        let mut listening = self.listening();
        hints.retain(|hint| {
            let Some(watcher) = listening.of(hint.kind).get(&hint.id) else { return true };
            watcher.pending().add(resource);
            watcher.wake.notify_one();
            metrics::hinted(hint.reason);
            false
        });
    }
}

impl Watcher {
    fn end(&self, why: Ended) {
        self.pending().ended = Some(why);
        self.wake.notify_one();
    }

    fn pending(&self) -> MutexGuard<'_, PendingHints> {
        self.pending.lock().expect("no panic while pending hints are locked")
    }
}

/// A watch; it ends when this is dropped.
#[derive(Debug)]
pub(crate) struct Watch {
    watchers: Arc<Watchers>,
    watcher: Arc<Watcher>,
    kind: HolderKind,
    id: Arc<str>,
    principal: Principal,
}

impl Watch {
    pub(crate) fn holder(&self) -> (HolderKind, &str) {
        (self.kind, &self.id)
    }

    /// Waits for pending hints and takes them.
    pub(crate) async fn pending(&self) -> Result<PendingHints, Ended> {
        loop {
            {
                let mut pending = self.watcher.pending();
                if let Some(why) = pending.ended {
                    return Err(why);
                }
                if !pending.is_empty() {
                    return Ok(std::mem::take(&mut *pending));
                }
            }
            // `Notify` stores a wake-up that precedes this.
            self.watcher.wake.notified().await;
        }
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        let mut listening = self.watchers.listening();
        listening.by_principal.give_back(self.principal);
        let map = listening.of(self.kind);
        // Another stream may have replaced it.
        if map.get(&self.id).is_some_and(|watcher| Arc::ptr_eq(watcher, &self.watcher)) {
            map.remove(&self.id);
        }
    }
}

#[cfg(test)]
mod tests;
