//! Rules are read again when their files change. A bad file changes nothing.

use std::{path::PathBuf, sync::Weak};

use leaseway_server::config::watched_files::{POLL_INTERVAL, WatchedFiles};
use tokio::time::{MissedTickBehavior, interval};

use super::{CurrentRules, file};
use crate::metrics;

/// Watches files of rules, or directories of them. Call it before they are read, so that no change is missed.
pub fn watch(paths: Vec<PathBuf>) -> WatchedFiles {
    WatchedFiles::listed(paths, |path| file::files(path).unwrap_or_else(|_| vec![path.to_owned()]))
}

/// Reads rules again when their files change, until the rules are dropped.
pub async fn reload(mut files: WatchedFiles, rules: Weak<CurrentRules>) {
    let mut interval = interval(POLL_INTERVAL);
    interval.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        interval.tick().await;
        let Some(rules) = rules.upgrade() else { return };
        if files.have_changed() {
            files.mark_read();
            read_again(files.paths(), &rules);
        }
    }
}

fn read_again(paths: &[PathBuf], rules: &CurrentRules) {
    match file::load(paths) {
        Ok(loaded) => {
            loaded.warnings.iter().for_each(|warning| tracing::warn!("{warning}"));
            rules.replace(loaded.rules);
            metrics::rules_reloaded("applied");
            tracing::info!("rules reloaded; leases stay as they are");
        }
        Err(error) => {
            metrics::rules_reloaded("rejected");
            tracing::error!("rules refused, those before stay in force:\n{error}");
        }
    }
}
