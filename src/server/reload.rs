//! A configuration file that changes is read again: on SIGHUP, and when the file has changed. Leases stay; a bad file
//! changes nothing.
//!
//! The file is looked at once a second instead of being watched: that notices every way of replacing a file (rename,
//! symlink swap, network mounts), which watches do not.

use std::{
    io,
    path::PathBuf,
    time::{Duration, SystemTime},
};

use tokio::signal::unix::{Signal, SignalKind, signal};

use crate::{actors::NodeHandle, config, metrics};

const LOOK_EVERY: Duration = Duration::from_secs(1);

/// Identifies a version of the file. `None`: it cannot be read.
type Stamp = Option<(SystemTime, u64, u64)>;

/// Listens for SIGHUP, and knows what the file looked like before it was first read.
pub(crate) struct Reload {
    /// Without a file SIGHUP means nothing; left alone it would end the server.
    path: Option<PathBuf>,
    loaded: Stamp,
    hangup: Signal,
}

impl Reload {
    /// Call it before the file is read: what happens from here on is not missed.
    pub(crate) fn prepare(path: Option<PathBuf>) -> io::Result<Reload> {
        Ok(Reload { loaded: path.as_deref().and_then(stamp), path, hangup: signal(SignalKind::hangup())? })
    }

    /// Runs until the node is gone.
    ///
    /// Among peers the configuration is what they keep: a file that changes is only told about.
    pub(crate) async fn on_change(mut self, node: NodeHandle, among_peers: bool) {
        let Some(path) = self.path.take() else {
            while self.hangup.recv().await.is_some() {
                tracing::info!("SIGHUP: there is no configuration file to reload");
            }
            return;
        };
        let mut look = tokio::time::interval(LOOK_EVERY);
        look.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        let mut seen = self.loaded;
        loop {
            tokio::select! {
                received = self.hangup.recv() => if received.is_none() { return },
                _ = look.tick() => {
                    let now = stamp(&path);
                    // A file that is still being written looks different each time.
                    let settled = now == seen;
                    seen = now;
                    if now == self.loaded || !settled {
                        continue;
                    }
                }
            }
            self.loaded = stamp(&path);
            seen = self.loaded;
            if reload(&path, &node, among_peers).await.is_err() {
                return;
            }
        }
    }
}

fn stamp(path: &std::path::Path) -> Stamp {
    use std::os::unix::fs::MetadataExt as _;
    let metadata = std::fs::metadata(path).ok()?;
    Some((metadata.modified().ok()?, metadata.len(), metadata.ino()))
}

async fn reload(path: &std::path::Path, node: &NodeHandle, among_peers: bool) -> Result<(), crate::actors::Gone> {
    match config::load(path) {
        Ok(loaded) => {
            for warning in &loaded.warnings {
                tracing::warn!("{warning}");
            }
            if loaded.repository == node.config().repository && node.config().rejected.is_none() {
                metrics::config_reloaded("unchanged");
                return Ok(());
            }
            if among_peers {
                metrics::config_reloaded("kept");
                let file = path.display();
                tracing::warn!(%file, "the file differs from what is in force, which the peers keep: `leaseway config apply {file}` changes that");
                return Ok(());
            }
            metrics::config_reloaded("applied");
            tracing::info!(file = %path.display(), "configuration reloaded; leases stay as they are");
            node.configure(loaded.repository).await
        }
        Err(error) => {
            metrics::config_reloaded("rejected");
            tracing::error!("configuration refused, the one before stays in force:\n{error}");
            node.reject(error.to_string()).await
        }
    }
}
