//! Queries the cluster on a thread of its own, so that keys are handled at once.

use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError, mpsc};
use std::time::{Duration, Instant};
use std::{io, thread};

use leaseway_proto::status::{GetStatusRequest, Resource};
use leaseway_server::checkup::Severity;
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::sync::Notify;

use crate::{connect::Target, error::CliError, inspect::check};

/// The maximum number of clients to fetch.
const MAX_HOLDERS: u32 = 1000;

pub(super) enum Update {
    Observation(Box<Result<Snapshot, String>>),
    /// A signal asked the program to end.
    Stop,
}

/// The cluster at one moment.
pub(super) struct Snapshot {
    pub(super) at: Instant,
    /// The worst severity, and all checks that are not OK.
    pub(super) severity: Severity,
    pub(super) findings: Vec<String>,
    /// The master's id and address.
    pub(super) master: Option<String>,
    pub(super) configuration: String,
    pub(super) resources: Vec<Resource>,
    /// The opened resource, with its holders.
    pub(super) opened: Option<Resource>,
}

pub(super) struct Source {
    updates: mpsc::Receiver<Update>,
    wanted: Arc<Wanted>,
}

/// The resource to query besides the list.
#[derive(Default)]
struct Wanted {
    resource: Mutex<Option<String>>,
    changed: Notify,
}

impl Source {
    pub(super) fn start(target: Target, token: Option<PathBuf>, every: Duration) -> Result<Source, CliError> {
        let (sender, updates) = mpsc::channel();
        let wanted = Arc::new(Wanted::default());
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().map_err(CliError::Runtime)?;
        let of_thread = Arc::clone(&wanted);
        thread::Builder::new()
            .name("top".into())
            .spawn(move || runtime.block_on(ask(&target, token.as_ref(), every, &of_thread, &sender)))
            .map_err(CliError::Runtime)?;
        Ok(Source { updates, wanted })
    }

    pub(super) fn next_update(&self) -> Result<Update, mpsc::TryRecvError> {
        self.updates.try_recv()
    }

    /// Queries immediately, including this resource.
    pub(super) fn look_at(&self, resource: Option<&str>) {
        *self.wanted.resource.lock().unwrap_or_else(PoisonError::into_inner) = resource.map(str::to_owned);
        self.wanted.changed.notify_one();
    }
}

/// Handles the signals that would otherwise end the program without restoring the terminal.
struct Stop([Signal; 4]);

impl Stop {
    fn listen() -> io::Result<Stop> {
        let [term, int, hup, quit] =
            [SignalKind::terminate(), SignalKind::interrupt(), SignalKind::hangup(), SignalKind::quit()].map(signal);
        Ok(Stop([term?, int?, hup?, quit?]))
    }

    async fn asked(&mut self) {
        let [term, int, hup, quit] = &mut self.0;
        tokio::select! {
            _ = term.recv() => {}
            _ = int.recv() => {}
            _ = hup.recv() => {}
            _ = quit.recv() => {}
        }
    }
}

/// Queries repeatedly until the receiver is gone.
async fn ask(
    target: &Target,
    token: Option<&PathBuf>,
    every: Duration,
    wanted: &Wanted,
    sender: &mpsc::Sender<Update>,
) {
    let Ok(mut stop) = Stop::listen() else { return };
    loop {
        let resource = wanted.resource.lock().unwrap_or_else(PoisonError::into_inner).clone();
        let seen = tokio::select! {
            seen = look(target, token, resource) => Update::Observation(Box::new(seen.map_err(|error| crate::output::in_words(&error)))),
            () = stop.asked() => Update::Stop,
        };
        let stops = matches!(seen, Update::Stop);
        if sender.send(seen).is_err() || stops {
            return;
        }
        tokio::select! {
            () = tokio::time::sleep(every) => {}
            () = wanted.changed.notified() => {}
            () = stop.asked() => drop(sender.send(Update::Stop)),
        }
    }
}

async fn look(target: &Target, token: Option<&PathBuf>, resource: Option<String>) -> Result<Snapshot, CliError> {
    let at = Instant::now();
    let looked = check::look(target, token).await?;
    let severity = looked.severity();
    let mut worst: Vec<_> = looked.checks.iter().filter(|check| check.severity > Severity::Ok).collect();
    worst.sort_by_key(|check| std::cmp::Reverse(check.severity));
    let findings = worst.iter().map(|check| format!("{}: {}", check.subject, check.message)).collect();
    let status = looked.master().unwrap_or_default();
    let opened = match resource {
        Some(resource_id) => {
            let request = GetStatusRequest { resource_id, page_size: MAX_HOLDERS, ..GetStatusRequest::default() };
            target.observe(&request, false).await?.status.resources.pop()
        }
        None => None,
    };
    let master = status.is_master.then(|| match status.master_address.as_str() {
        "" => status.server_id.clone(),
        address => format!("{} at {address}", status.server_id),
    });
    let configuration = format!("{}, version {}", status.config_source, status.config_version);
    Ok(Snapshot { at, severity, findings, master, configuration, resources: status.resources, opened })
}
