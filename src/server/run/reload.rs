//! Reloads the configuration, tokens and keys when a file has changed, and on SIGHUP. An invalid file changes nothing.
//!
//! Leases survive a new configuration. With new tokens or keys, callers are authenticated again with their next call.

use std::{io, path::PathBuf};

use serde_json::json;
use tokio::{
    signal::unix::{Signal, SignalKind, signal},
    time::{Interval, MissedTickBehavior},
};

use crate::{
    auth::{Authorizer, CredentialFiles},
    config::{
        self,
        watched_files::{POLL_INTERVAL, WatchedFiles},
    },
    node::NodeHandle,
    observe::{audit::Event, metrics},
};

/// Watches files and SIGHUP.
pub(crate) struct Reload {
    /// The configuration file. `None` without one; SIGHUP is handled anyway, because it would otherwise end the
    /// process.
    config: Option<WatchedFiles>,
    credentials: WatchedFiles,
    hangup: Signal,
    poll: Interval,
}

impl Reload {
    /// Called before the files are first read, so that no change is missed.
    pub(crate) fn prepare(config: Option<PathBuf>, credentials: &CredentialFiles) -> io::Result<Reload> {
        let hangup = signal(SignalKind::hangup())?;
        let credentials = WatchedFiles::new(credentials.watched());
        let mut poll = tokio::time::interval(POLL_INTERVAL);
        poll.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let config = config.map(|path| WatchedFiles::new(vec![path]));
        Ok(Reload { config, credentials, hangup, poll })
    }

    /// Waits for the next change. `None` if there is nothing to reload.
    pub(crate) async fn next(&mut self) -> Option<Changed> {
        if self.config.is_none() && self.credentials.paths().is_empty() {
            while self.hangup.recv().await.is_some() {
                tracing::info!("SIGHUP: no file to reload");
            }
            return None;
        }
        loop {
            let asked = tokio::select! {
                received = self.hangup.recv() => {
                    received?;
                    true
                }
                _ = self.poll.tick() => false,
            };
            let credentials = self.credentials.have_changed() || (asked && !self.credentials.paths().is_empty());
            if credentials {
                self.credentials.mark_read();
            }
            let config = self.config.as_mut().and_then(|file| {
                let is_to_read = file.have_changed() || asked;
                is_to_read.then(|| {
                    file.mark_read();
                    file.paths()[0].clone()
                })
            });
            if credentials || config.is_some() {
                return Some(Changed { credentials, config });
            }
        }
    }

    /// Reloads until the node ends. With peers the stored configuration is in force, so a changed file is only logged.
    pub(crate) async fn on_change(mut self, node: NodeHandle, files: CredentialFiles, among_peers: bool) {
        while let Some(changed) = self.next().await {
            if changed.credentials {
                reload_credentials(&files, node.authorizer());
            }
            if let Some(path) = changed.config
                && reload_config(&path, &node, among_peers).await.is_err()
            {
                return;
            }
        }
    }
}

/// Files that have to be reloaded.
pub(crate) struct Changed {
    /// Files of tokens and keys.
    pub(crate) credentials: bool,
    pub(crate) config: Option<PathBuf>,
}

pub(crate) fn reload_credentials(files: &CredentialFiles, authorizer: &Authorizer) {
    let outcome = match files.read() {
        Ok(credentials) => {
            let found = credentials.in_words();
            tracing::info!(%found, "tokens reloaded");
            authorizer.set_credentials(credentials);
            metrics::credentials_reloaded("applied");
            "done".to_owned()
        }
        Err(error) => {
            tracing::error!("tokens rejected, the previous ones stay in force: {error}");
            metrics::credentials_reloaded("rejected");
            error.to_string()
        }
    };
    authorizer.record(Event::of_server("tokens_reloaded", outcome, json!({})));
}

async fn reload_config(path: &std::path::Path, node: &NodeHandle, among_peers: bool) -> Result<(), crate::node::Gone> {
    let file = path.display().to_string();
    let loaded = config::load(path).and_then(|loaded| {
        loaded.check_templates(&file, node.parent().is_some())?;
        Ok(loaded)
    });
    let loaded = loaded.map_err(|error| error.to_string()).and_then(|loaded| {
        node.authorizer().check_policy(&file, loaded.access.as_ref())?;
        Ok(loaded)
    });
    match loaded {
        Ok(loaded) => {
            for warning in &loaded.warnings {
                tracing::warn!("{warning}");
            }
            if node.config().is_same_as(&loaded) && node.config().rejected.is_none() {
                metrics::config_reloaded("unchanged");
                return Ok(());
            }
            if among_peers {
                metrics::config_reloaded("kept");
                tracing::warn!(%file, "the file has changed, but the configuration stored by the peers stays in force: to apply the file, run `leaseway config apply {file}`");
                return Ok(());
            }
            metrics::config_reloaded("applied");
            tracing::info!(%file, "configuration reloaded; leases are kept");
            node.authorizer().record(Event::of_server("config_reloaded", "done".into(), json!({ "source": file })));
            node.configure(loaded).await
        }
        Err(error) => {
            metrics::config_reloaded("rejected");
            tracing::error!("configuration rejected, the previous one stays in force:\n{error}");
            let details = json!({ "source": file });
            node.authorizer().record(Event::of_server("config_reloaded", error.clone(), details));
            node.reject(error).await
        }
    }
}
