//! Asks the cluster on a thread of its own, so that keys are never waited for.

use std::{
    io,
    path::PathBuf,
    sync::{Arc, Mutex, PoisonError, mpsc},
    thread,
    time::{Duration, Instant},
};

use leaseway_proto::status::{GetStatusRequest, Resource};
use leaseway_server::checkup::Severity;
use tokio::{
    signal::unix::{Signal, SignalKind, signal},
    sync::Notify,
};

use crate::{connect::Target, error::CliError, inspect::check};

/// Clients of a resource that are looked at.
const MAX_HOLDERS: u32 = 1000;

pub(super) enum News {
    Observation(Box<Result<Snapshot, String>>),
    /// A signal has asked it to end.
    Stop,
}

/// The cluster at one moment.
pub(super) struct Snapshot {
    pub(super) at: Instant,
    /// The worst verdict, and all that are not well, in words.
    pub(super) grade: Severity,
    pub(super) findings: Vec<String>,
    /// The master, as it calls itself, and where it is.
    pub(super) master: Option<String>,
    pub(super) configuration: String,
    pub(super) resources: Vec<Resource>,
    /// The one that is looked at, with its holders.
    pub(super) opened: Option<Resource>,
}

pub(super) struct Source {
    news: mpsc::Receiver<News>,
    wanted: Arc<Attention>,
}

/// What is to be looked at besides the list.
#[derive(Default)]
struct Attention {
    resource: Mutex<Option<String>>,
    changed: Notify,
}

impl Source {
    pub(super) fn start(target: Target, token: Option<PathBuf>, every: Duration) -> Result<Source, CliError> {
        let (told, news) = mpsc::channel();
        let wanted = Arc::new(Attention::default());
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().map_err(CliError::Runtime)?;
        let of_thread = Arc::clone(&wanted);
        thread::Builder::new()
            .name("top".into())
            .spawn(move || runtime.block_on(ask(&target, token.as_ref(), every, &of_thread, &told)))
            .map_err(CliError::Runtime)?;
        Ok(Source { news, wanted })
    }

    pub(super) fn news(&self) -> Result<News, mpsc::TryRecvError> {
        self.news.try_recv()
    }

    /// Looks at once, at this resource too.
    pub(super) fn look_at(&self, resource: Option<&str>) {
        *self.wanted.resource.lock().unwrap_or_else(PoisonError::into_inner) = resource.map(str::to_owned);
        self.wanted.changed.notify_one();
    }
}

/// The signals that end it in good order: by themselves they would leave the terminal as it is.
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

/// Until the other side is gone.
async fn ask(target: &Target, token: Option<&PathBuf>, every: Duration, wanted: &Attention, told: &mpsc::Sender<News>) {
    let Ok(mut stop) = Stop::listen() else { return };
    loop {
        let resource = wanted.resource.lock().unwrap_or_else(PoisonError::into_inner).clone();
        let seen = tokio::select! {
            seen = look(target, token, resource) => News::Observation(Box::new(seen.map_err(|error| crate::output::in_words(&error)))),
            () = stop.asked() => News::Stop,
        };
        let stops = matches!(seen, News::Stop);
        if told.send(seen).is_err() || stops {
            return;
        }
        tokio::select! {
            () = tokio::time::sleep(every) => {}
            () = wanted.changed.notified() => {}
            () = stop.asked() => drop(told.send(News::Stop)),
        }
    }
}

async fn look(target: &Target, token: Option<&PathBuf>, resource: Option<String>) -> Result<Snapshot, CliError> {
    let at = Instant::now();
    let looked = check::look(target, token).await?;
    let grade = looked.grade();
    let mut worst: Vec<_> = looked.verdicts.iter().filter(|verdict| verdict.grade > Severity::Ok).collect();
    worst.sort_by_key(|verdict| std::cmp::Reverse(verdict.grade));
    let findings = worst.iter().map(|verdict| format!("{}: {}", verdict.about, verdict.found)).collect();
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
    Ok(Snapshot { at, grade, findings, master, configuration, resources: status.resources, opened })
}
