//! Rules are read again when their files change. A bad file changes nothing.

use std::{
    os::unix::fs::MetadataExt as _,
    path::PathBuf,
    sync::Weak,
    time::{Duration, SystemTime},
};

use tokio::time::{MissedTickBehavior, interval};

use super::{CurrentRules, file};
use crate::metrics;

/// How often files are looked at: that notices every way of replacing them, which watches do not.
const POLL_INTERVAL: Duration = Duration::from_secs(1);

/// What the files look like: which there are, and of each when it was changed, its length and its inode.
type Look = Vec<(PathBuf, Option<(SystemTime, u64, u64)>)>;

fn look(paths: &[PathBuf]) -> Look {
    let files = paths.iter().flat_map(|path| file::files(path).unwrap_or_else(|_| vec![path.clone()]));
    files
        .map(|file| {
            let metadata = std::fs::metadata(&file).ok();
            let stamp = metadata.and_then(|seen| Some((seen.modified().ok()?, seen.len(), seen.ino())));
            (file, stamp)
        })
        .collect()
}

/// Files, and what they looked like when they were last read.
#[derive(Debug)]
pub struct Watched {
    paths: Vec<PathBuf>,
    read: Look,
}

impl Watched {
    /// To be called before they are read, so that no change is missed.
    pub fn new(paths: Vec<PathBuf>) -> Watched {
        let read = look(&paths);
        Watched { paths, read }
    }

    /// Puts what changes in force, for as long as there are rules.
    pub async fn reload(mut self, rules: Weak<CurrentRules>) {
        let (mut seen, mut interval) = (self.read.clone(), interval(POLL_INTERVAL));
        interval.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            interval.tick().await;
            let Some(rules) = rules.upgrade() else { return };
            let now = look(&self.paths);
            // What is being written still looks different each time.
            let is_settled = now == std::mem::replace(&mut seen, now.clone());
            if is_settled && now != self.read {
                self.read = now;
                self.read_again(&rules);
            }
        }
    }

    fn read_again(&self, rules: &CurrentRules) {
        match file::load(&self.paths) {
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
}
