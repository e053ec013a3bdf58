//! What would become of a resource under other settings.

use leaseway_core::{Foreseen, Millis, Resource, Settings};
use tokio::{sync::oneshot, task::spawn_blocking};

use super::{super::resource_actor::ResourceMessage, NodeHandle};

/// Holders copied at once: less than a millisecond of the resource's time.
const COPIED: usize = 1000;

impl NodeHandle {
    /// Looks at a resource. Nothing if it is not alive, is too busy, or this peer may not decide.
    pub(super) async fn look_at<T: Send + 'static>(
        &self,
        id: &str,
        look: impl FnOnce(&Resource, Millis) -> T + Send + 'static,
    ) -> Option<T> {
        let handle = self.lookup(id)?;
        let (reply, seen) = oneshot::channel();
        let work = Box::new(move |resource: &mut Resource, now| {
            // The caller may have gone away meanwhile.
            let _ = reply.send(look(resource, now));
        });
        handle.send(ResourceMessage::Operate { work }).ok()?;
        seen.await.ok()
    }

    /// What would become of a resource under these settings, with up to `most` of its holders. Other requests are
    /// answered meanwhile: holders are copied in pages, and divided beside the threads that answer.
    pub(crate) async fn foresee(&self, id: &str, settings: Settings, most: usize) -> Option<Foreseen> {
        let mut forecast = self.look_at(id, move |resource, now| resource.forecast(now, settings)).await??;
        let mut from = Some(0);
        while let Some(place) = from {
            let copy = move |resource: &Resource, now| resource.copy_holders(now, place, COPIED);
            let (page, next) = self.look_at(id, copy).await?;
            page.into_iter().for_each(|copy| forecast.add(copy));
            from = next;
        }
        spawn_blocking(move || forecast.finish(most)).await.ok()
    }
}
