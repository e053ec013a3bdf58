//! What of a server may go wrong in a while, for `leaseway check` and the page.

use std::{
    path::PathBuf,
    sync::Arc,
    time::{Duration, SystemTime, UNIX_EPOCH},
};

use leaseway_proto::status::{Health, LimitUse};
use leaseway_raft::RaftHandle;

use crate::{
    listen::{budget::Budget, open_connections::OpenConnections, tls::Tls},
    node::{NodeHandle, server_info::ServerInfo},
    observe::metrics,
};

/// A healthy disk answers sooner.
const DISK_PATIENCE: Duration = Duration::from_millis(500);

/// Where it is looked up.
#[derive(Clone)]
pub(crate) struct HealthSources {
    pub(crate) connections: OpenConnections,
    pub(crate) budget: Arc<Budget>,
    /// What is stored, and where.
    pub(crate) stored: Option<(RaftHandle, Arc<PathBuf>)>,
    pub(crate) tls: Option<Arc<Tls>>,
}

impl HealthSources {
    pub(crate) async fn look(&self, node: &NodeHandle, info: &ServerInfo) -> Health {
        let (free_bytes, data_error, slowest_flush_ms) = match &self.stored {
            Some((quorum, data)) => {
                let failure = quorum.failure().borrow().as_ref().map(ToString::to_string);
                let slowest = quorum.slowest_flush().as_millis() as u64;
                (free_bytes(data).await, failure.unwrap_or_default(), Some(slowest))
            }
            None => (None, String::new(), None),
        };
        let ends = self.tls.as_ref().and_then(|tls| tls.credentials().expires());
        Health {
            unix_ms: node.clock.unix_ms(),
            certificate_ends_unix: ends.map(unix),
            free_bytes,
            data_error,
            limit: self.limits(node),
            admin_address: info.admin.to_string(),
            http_address: info.http.to_string(),
            slowest_flush_ms,
        }
    }

    fn limits(&self, node: &NodeHandle) -> Vec<LimitUse> {
        let limits = &node.limits;
        let limit = |what: &str, flag: &str, used: usize, most: usize| LimitUse {
            what: what.to_owned(),
            flag: flag.to_owned(),
            used: used as u64,
            most: most as u64,
            soft: false,
        };
        let soft = |what, flag, most| LimitUse { soft: true, ..limit(what, flag, node.resources(), most) };
        let mut all = vec![
            limit("resources", "--max-resources", node.resources(), limits.resources),
            limit("holders", "--max-clients", node.holders(), limits.clients),
            limit("connections", "--max-connections", self.connections.count(), limits.connections),
            limit("listeners for hints", "--max-watchers", node.watching(), limits.watchers),
            limit("bytes that wait", "--max-waiting-bytes", self.budget.used(), limits.waiting_bytes),
        ];
        // 0: none are wanted.
        let shown = [
            soft("resources with metric series", "--metrics-resources", limits.metrics_resources),
            soft("resources with a history", "--history-resources", limits.history_resources),
        ];
        all.extend(shown.into_iter().filter(|limit| limit.most > 0));
        all
    }
}

/// Free bytes at the data directory. A disk that hangs blocks neither the page nor the thread that serves it.
pub(crate) async fn free_bytes(data: &Arc<PathBuf>) -> Option<u64> {
    let data = Arc::clone(data);
    let asked = tokio::task::spawn_blocking(move || metrics::free_bytes(&data));
    tokio::time::timeout(DISK_PATIENCE, asked).await.ok()?.ok().flatten()
}

/// Seconds since the epoch.
fn unix(moment: SystemTime) -> i64 {
    match moment.duration_since(UNIX_EPOCH) {
        Ok(since) => since.as_secs() as i64,
        Err(before) => -(before.duration().as_secs() as i64),
    }
}
