//! Reads the states of resources, for pages, `leaseway status` and plans.

use std::{collections::BinaryHeap, sync::Arc};

use futures_util::future::join_all;
use leaseway_core::{
    policy::settings::Settings,
    resource::{
        Resource,
        report::{
            self,
            explain::{Explanation, explain},
            forecast::{Forecast, ForecastReport, copy_holders},
        },
    },
    types::{Amount, Glob, HolderKind, Millis},
};
use tokio::task::spawn_blocking;

use super::NodeHandle;
use crate::{
    node::resource_actor::{Operate, Report, ResourceHandle, Status},
    runtime::coop::{ENTRIES, pause},
};

/// Number of holders copied at a time, which takes a resource less than a millisecond.
const COPIED: usize = 1000;

impl NodeHandle {
    /// Runs `look` on a resource. `None` if it is not active, is too busy, or this peer may not decide.
    async fn read_resource<T: Send + 'static>(
        &self,
        id: &str,
        look: impl FnOnce(&Resource, Millis) -> T + Send + 'static,
    ) -> Option<T> {
        let look = move |resource: &mut Resource, now| look(resource, now);
        self.shared.directory.get(id)?.ask(Operate(look)).ok()?.await.ok()?
    }

    /// What the holders of a resource would be due under other settings, with up to `most` of them. Holders are copied
    /// in pages and divided on another thread, so that requests are answered meanwhile.
    pub(crate) async fn forecast(&self, id: &str, settings: Settings, most: usize) -> Option<ForecastReport> {
        let mut forecast =
            self.read_resource(id, move |resource, now| Forecast::begin(resource, now, settings)).await??;
        let mut from = Some(0);
        while let Some(start) = from {
            let copy = move |resource: &Resource, now| copy_holders(resource, now, start, COPIED);
            let (page, next) = self.read_resource(id, copy).await?;
            page.into_iter().for_each(|copy| forecast.add(copy));
            from = next;
        }
        spawn_blocking(move || forecast.finish(most)).await.ok()
    }

    /// The ids of the active resources, in no order.
    pub(crate) fn living(&self) -> Vec<Arc<str>> {
        self.shared.directory.ids()
    }

    /// The number of active resources that `is_shown` selects.
    pub(crate) fn resources_shown(&self, is_shown: impl Fn(&str) -> bool) -> usize {
        self.living().iter().filter(|id| is_shown(id)).count()
    }

    /// The sorted ids of the active resources that match a pattern.
    pub(crate) fn ids_matching(&self, pattern: &str) -> Vec<Arc<str>> {
        let glob = Glob::new(pattern).ok();
        let mut ids = self.living();
        ids.retain(|id| &**id == pattern || glob.as_ref().is_some_and(|glob| glob.matches(id)));
        ids.sort_unstable();
        ids
    }

    /// The state of a resource, with a page of holders.
    pub(crate) async fn resource_status(&self, id: &str, from: usize, limit: usize) -> Option<Status> {
        self.shared.directory.get(id)?.ask(Report { from, limit }).ok()?.await.ok()
    }

    /// Explains the lease of a holder. `None` if the holder is unknown.
    pub(crate) async fn explain(&self, id: &str, kind: HolderKind, holder: String) -> Option<Explanation> {
        self.read_resource(id, move |resource, now| explain(resource, now, kind, &holder)).await?
    }

    /// What each of these child nodes holds of a resource. `None` if the resource is not alive, or too busy.
    pub(crate) async fn held_by_nodes(&self, id: &str, nodes: Arc<[String]>) -> Option<Vec<f64>> {
        let look = move |resource: &Resource, now| {
            let held = |node: &String| report::held_by(resource, now, HolderKind::Node, node).map_or(0.0, Amount::get);
            nodes.iter().map(held).collect()
        };
        self.read_resource(id, look).await
    }

    /// Up to `limit` resources in the order of their ids, from the first after `after` on, and the last id if there are
    /// more. Busy resources are left out.
    pub(crate) async fn statuses(&self, after: &str, limit: usize) -> (Vec<Status>, Option<Arc<str>>) {
        self.statuses_of(after, limit, |_| true).await
    }

    /// Like [`statuses`](Self::statuses), for the resources that `is_shown` selects.
    pub(crate) async fn statuses_of(
        &self,
        after: &str,
        limit: usize,
        is_shown: impl Fn(&str) -> bool,
    ) -> (Vec<Status>, Option<Arc<str>>) {
        let mut ids = self.first_ids(after, limit.saturating_add(1), is_shown).await;
        let more = ids.len() > limit;
        ids.truncate(limit);
        let next = ids.last().filter(|_| more).cloned();
        let mut statuses = Vec::with_capacity(ids.len());
        self.visit_each(&ids, |status| statuses.push(status)).await;
        (statuses, next)
    }

    /// Up to `most` ids after `after` that `is_shown` selects, in order. Visits all resources once, and pauses between
    /// parts.
    async fn first_ids(&self, after: &str, most: usize, is_shown: impl Fn(&str) -> bool) -> Vec<Arc<str>> {
        let mut first = BinaryHeap::new();
        for part in self.shared.directory.parts() {
            for id in part.iter().map(ResourceHandle::id) {
                let is_candidate = first.len() < most || first.peek().is_some_and(|last: &Arc<str>| id < last);
                if is_candidate && (after.is_empty() || **id > *after) && is_shown(id) {
                    first.push(Arc::clone(id));
                    if first.len() > most {
                        first.pop();
                    }
                }
            }
            if part.len() > ENTRIES {
                pause().await;
            }
        }
        first.into_sorted_vec()
    }

    /// The states of those of these resources that are active.
    pub(crate) async fn statuses_named(&self, ids: &[Arc<str>]) -> Vec<Status> {
        let mut statuses = Vec::with_capacity(ids.len());
        self.visit_each(ids, |status| statuses.push(status)).await;
        statuses
    }

    /// Visits all resources, in no order.
    pub(crate) async fn for_each_status(&self, mut look: impl FnMut(Status)) {
        for part in self.shared.directory.parts() {
            let ids: Vec<Arc<str>> = part.iter().map(|handle| Arc::clone(handle.id())).collect();
            self.visit_each(&ids, &mut look).await;
        }
    }

    async fn visit_each(&self, ids: &[Arc<str>], mut look: impl FnMut(Status)) {
        // Yields between chunks, because these threads answer requests.
        for part in ids.chunks(ENTRIES) {
            let part = part.iter().map(|id| self.resource_status(id, 0, 0));
            join_all(part).await.into_iter().flatten().for_each(&mut look);
            pause().await;
        }
    }
}
