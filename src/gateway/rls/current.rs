//! The rules in force, and how they are reloaded. A request takes no lock: each thread caches the rules, and compares
//! one version number that rarely changes.

use std::{
    cell::RefCell,
    collections::BTreeSet,
    path::PathBuf,
    sync::{
        Arc, Mutex, PoisonError, Weak,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use leaseway_server::config::watched_files::{POLL_INTERVAL, WatchedFiles};
use metrics::counter;
use tokio::{
    sync::watch,
    time::{MissedTickBehavior, interval, timeout},
};

use super::{
    file,
    rules::{RequestLimit, Rules},
};

/// Versions are unique over all gateways of this process, because threads recognise cached rules by their version.
static VERSIONS: AtomicU64 = AtomicU64::new(1);

thread_local! {
    static SEEN: RefCell<Option<(u64, Arc<Rules>)>> = const { RefCell::new(None) };
}

#[derive(Debug)]
pub struct CurrentRules {
    version: AtomicU64,
    newest: Mutex<(u64, Arc<Rules>)>,
    /// The limits that requests brought with them.
    request_limits: Mutex<BTreeSet<RequestLimit>>,
    /// The number of changes of the rules and of these limits.
    changes: watch::Sender<u64>,
    /// The number of changes that the cluster knows. `None` unless the gateway declares templates.
    declared: watch::Sender<Option<u64>>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NotedLimit {
    Known,
    /// The cluster needs a template for it.
    New,
    /// Requests bring too many different limits.
    TooMany,
}

/// The maximum number of different limits that requests may bring with them. Each needs a template in the cluster.
const MAX_REQUEST_LIMITS: usize = 256;

impl CurrentRules {
    pub fn new(rules: Rules) -> CurrentRules {
        let version = VERSIONS.fetch_add(1, Ordering::Relaxed);
        let newest = Mutex::new((version, Arc::new(rules)));
        CurrentRules {
            version: AtomicU64::new(version),
            newest,
            request_limits: Mutex::default(),
            changes: watch::Sender::default(),
            declared: watch::Sender::default(),
        }
    }

    pub fn replace(&self, rules: Rules) {
        let mut newest = self.newest.lock().unwrap_or_else(PoisonError::into_inner);
        *newest = (VERSIONS.fetch_add(1, Ordering::Relaxed), Arc::new(rules));
        self.version.store(newest.0, Ordering::Release);
        self.changes.send_modify(|count| *count += 1);
    }

    /// Notes that requests bring this limit with them.
    pub fn note_request_limit(&self, limit: RequestLimit) -> NotedLimit {
        let mut known = self.request_limits.lock().unwrap_or_else(PoisonError::into_inner);
        match known.len() {
            _ if known.contains(&limit) => NotedLimit::Known,
            MAX_REQUEST_LIMITS.. => NotedLimit::TooMany,
            _ => {
                known.insert(limit);
                self.changes.send_modify(|count| *count += 1);
                NotedLimit::New
            }
        }
    }

    pub fn request_limits(&self) -> BTreeSet<RequestLimit> {
        self.request_limits.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Notes that the cluster knows this number of changes.
    pub fn note_declared(&self, changes: u64) {
        self.declared.send_replace(Some(changes));
    }

    /// Waits until the cluster knows all changes so far, if this gateway declares them.
    pub async fn declared(&self, at_most: Duration) {
        let changes = *self.changes.borrow();
        let mut declared = self.declared.subscribe();
        let _ = timeout(at_most, declared.wait_for(|known| known.is_none_or(|known| known >= changes))).await;
    }

    /// Changes with the rules and the limits of requests.
    pub fn changes(&self) -> watch::Receiver<u64> {
        self.changes.subscribe()
    }

    /// Calls `act` with the rules in force. `act` must not call this method again.
    pub fn with<R>(&self, act: impl FnOnce(&Rules) -> R) -> R {
        let version = self.version.load(Ordering::Acquire);
        SEEN.with_borrow_mut(|seen| match seen {
            Some((known, rules)) if *known == version => act(rules),
            seen => {
                let newest = self.newest.lock().unwrap_or_else(PoisonError::into_inner).clone();
                let (_, rules) = seen.insert(newest);
                act(rules)
            }
        })
    }
}

/// Watches files or directories of rules. Call it before reading them, so that no change is missed.
pub fn watch(paths: Vec<PathBuf>) -> WatchedFiles {
    WatchedFiles::listed(paths, |path| file::files(path).unwrap_or_else(|_| vec![path.to_owned()]))
}

/// Reloads the rules when their files change, until the rules are dropped. Invalid files change nothing.
pub async fn reload(mut files: WatchedFiles, rules: Weak<CurrentRules>, merge_domains: bool) {
    let mut interval = interval(POLL_INTERVAL);
    interval.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        interval.tick().await;
        let Some(rules) = rules.upgrade() else { return };
        if files.have_changed() {
            files.mark_read();
            reload_once(files.paths(), &rules, merge_domains);
        }
    }
}

fn reload_once(paths: &[PathBuf], rules: &CurrentRules, merge_domains: bool) {
    match file::load(paths, merge_domains) {
        Ok(loaded) => {
            loaded.warnings.iter().for_each(|warning| tracing::warn!("{warning}"));
            rules.replace(loaded.rules);
            counter!("leaseway_rls_reloads_total", "outcome" => "applied").increment(1);
            tracing::info!("rules reloaded; leases stay as they are");
        }
        Err(error) => {
            counter!("leaseway_rls_reloads_total", "outcome" => "rejected").increment(1);
            tracing::error!("rules rejected, the previous ones stay in force:\n{error}");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_thread_sees_the_newest_rules_of_each_gateway() {
        let (one, other) = (CurrentRules::new(Rules::default()), CurrentRules::new(Rules::default()));
        let at = |rules: &CurrentRules| rules.with(std::ptr::from_ref::<Rules>).addr();
        assert_ne!(at(&one), at(&other));
        let before = at(&one);
        assert_eq!(before, at(&one));
        let kept = one.newest.lock().expect("no panic").1.clone();
        one.replace(Rules::default());
        assert_ne!(at(&one), std::ptr::from_ref::<Rules>(&kept).addr());
    }
}
