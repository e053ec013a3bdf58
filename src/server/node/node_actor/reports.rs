//! Resources as they are at a moment, for pages and `leaseway status`.

use std::sync::{Arc, atomic::Ordering};

use futures_util::future::join_all;
use leaseway_core::{Explanation, Glob, HolderKind, Millis};
use leaseway_raft::RaftHandle;
use tokio::sync::oneshot;

use super::{
    super::resource_actor::{ResourceMessage, Status},
    NodeHandle,
};
use crate::runtime::coop::{ENTRIES, pause};

impl NodeHandle {
    /// How long a lease of the parent's may last that this node lends on; zero without one.
    pub(crate) fn longest_loan(&self) -> Millis {
        self.uplink_status.longest()
    }

    /// Committed data that other peers have lost, in words, as this peer has noticed.
    pub(crate) fn losses(&self) -> Vec<String> {
        self.quorum.as_ref().map_or_else(Vec::new, RaftHandle::losses)
    }

    /// How many holders all resources have.
    pub(crate) fn holders(&self) -> usize {
        self.holders.load(Ordering::Relaxed)
    }

    /// How many resources that are alive are shown.
    pub(crate) fn resources_shown(&self, is_shown: impl Fn(&str) -> bool) -> usize {
        self.directory.ids_after("").iter().filter(|id| is_shown(id)).count()
    }

    /// The resources that are alive and match a pattern, in their order.
    pub(crate) fn ids_matching(&self, pattern: &str) -> Vec<Arc<str>> {
        let glob = Glob::new(pattern).ok();
        let mut ids = self.directory.ids_after("");
        ids.retain(|id| &**id == pattern || glob.as_ref().is_some_and(|glob| glob.matches(id)));
        ids
    }

    /// A resource with a page of holders.
    pub(crate) async fn resource_status(&self, id: &str, from: usize, limit: usize) -> Option<Status> {
        let handle = self.lookup(id)?;
        let (reply, status) = oneshot::channel();
        handle.send(ResourceMessage::Report { from, limit, reply }).ok()?;
        status.await.ok()
    }

    /// Why a holder has what it has; nothing if it is not known here.
    pub(crate) async fn explain(&self, id: &str, kind: HolderKind, holder: String) -> Option<Explanation> {
        self.look_at(id, move |resource, now| resource.explain(now, kind, &holder)).await?
    }

    /// Up to `limit` resources in the order of their ids, from the first after `after` on, and the id to go on after if
    /// there are more. Those too busy to say are left out.
    pub(crate) async fn statuses(&self, after: &str, limit: usize) -> (Vec<Status>, Option<Arc<str>>) {
        self.statuses_of(after, limit, |_| true).await
    }

    /// As [`statuses`](Self::statuses), of those that are shown.
    pub(crate) async fn statuses_of(
        &self,
        after: &str,
        limit: usize,
        is_shown: impl Fn(&str) -> bool,
    ) -> (Vec<Status>, Option<Arc<str>>) {
        let mut ids = self.directory.ids_after(after);
        ids.retain(|id| is_shown(id));
        let more = ids.len() > limit;
        ids.truncate(limit);
        let next = ids.last().filter(|_| more).cloned();
        let mut statuses = Vec::with_capacity(ids.len());
        self.look_at_each(&ids, |status| statuses.push(status)).await;
        (statuses, next)
    }

    /// Of these resources, those that are alive.
    pub(crate) async fn statuses_named(&self, ids: &[Arc<str>]) -> Vec<Status> {
        let mut statuses = Vec::with_capacity(ids.len());
        self.look_at_each(ids, |status| statuses.push(status)).await;
        statuses
    }

    /// Looks at all resources, in no order; none of them is kept.
    pub(crate) async fn for_each_status(&self, look: impl FnMut(Status)) {
        self.look_at_each(&self.directory.ids(), look).await;
    }

    async fn look_at_each(&self, ids: &[Arc<str>], mut look: impl FnMut(Status)) {
        // Threads that answer others do other work between.
        for part in ids.chunks(ENTRIES) {
            let part = part.iter().map(|id| self.resource_status(id, 0, 0));
            join_all(part).await.into_iter().flatten().for_each(&mut look);
            pause().await;
        }
    }
}
