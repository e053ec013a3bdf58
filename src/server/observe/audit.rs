//! The audit log: changes and denials, as lines of JSON in a file or on standard output.
//!
//! Lines go through a bounded queue to a writer thread. If the queue is full or writing fails, lines are lost, and the
//! next one is preceded by their number. The rate of denials, which anyone can cause, is limited.

use std::{
    fs::{File, OpenOptions},
    io::{self, Write},
    net::IpAddr,
    os::unix::fs::OpenOptionsExt as _,
    path::{Path, PathBuf},
    sync::{
        Arc, Mutex,
        atomic::{AtomicU64, Ordering},
        mpsc::{SyncSender, TrySendError, sync_channel},
    },
    thread::JoinHandle,
    time::{Duration, Instant, SystemTime},
};

use leaseway_core::{policy::access::Identity, resource::budget::thresholds::BudgetEvent};
use serde_json::{Map, Value, json};

use crate::observe::{
    changes::{Change, ChangeKind, Changes},
    metrics,
    refusals::Refusals,
    webhook::Webhook,
};

const AUDIT_QUEUE: usize = 1024;
/// Maximum number of lines per second about denials and early requests.
const DENIALS_PER_SECOND: u32 = 20;

/// The destination of the audit log.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum AuditTarget {
    Stdout,
    /// Appends to a file.
    File(PathBuf),
}

/// A change, which may have been refused.
#[derive(Debug)]
pub(crate) struct Event {
    pub(crate) who: Identity,
    pub(crate) address: Option<IpAddr>,
    /// Such as `config_applied` or `peer_added`.
    pub(crate) what: &'static str,
    /// `done`, or the error.
    pub(crate) outcome: String,
    /// Further fields of the line. Must not contain secrets.
    pub(crate) details: Value,
}

impl Event {
    /// A change by the server itself, because a file has changed.
    pub(crate) fn of_server(what: &'static str, outcome: String, details: Value) -> Event {
        Event { who: Identity::Operator, address: None, what, outcome, details }
    }
}

/// The audit log and the webhook, if there are any, and the recent changes and refusals for pages.
#[derive(Clone, Default)]
pub(crate) struct Audit {
    log: Option<Arc<AuditLog>>,
    webhook: Option<Webhook>,
    changes: Arc<Changes>,
    refusals: Arc<Refusals>,
}

struct AuditLog {
    lines: Mutex<Option<SyncSender<String>>>,
    lost: Arc<AtomicU64>,
    denials: Mutex<DenialRate>,
    writer: Mutex<Option<JoinHandle<()>>>,
}

/// Denials written since `since`.
struct DenialRate {
    since: Instant,
    written: u32,
    left_out: u64,
}

impl Audit {
    pub(crate) fn none() -> Audit {
        Audit::default()
    }

    pub(crate) fn open(target: &AuditTarget) -> io::Result<Audit> {
        let out: Box<dyn Write + Send> = match target {
            AuditTarget::Stdout => Box::new(io::stdout()),
            AuditTarget::File(path) => Box::new(append(path)?),
        };
        let (lines, waiting) = sync_channel(AUDIT_QUEUE);
        let lost = Arc::<AtomicU64>::default();
        let writer = {
            let lost = Arc::clone(&lost);
            let write = move || waiting.iter().fold(out, |out, line: String| write_line(out, &line, &lost));
            std::thread::Builder::new().name("audit".into()).spawn(move || drop(write()))?
        };
        let log = Arc::new(AuditLog {
            lines: Mutex::new(Some(lines)),
            lost,
            denials: Mutex::new(DenialRate { since: Instant::now(), written: 0, left_out: 0 }),
            writer: Mutex::new(Some(writer)),
        });
        Ok(Audit { log: Some(log), ..Audit::default() })
    }

    /// Posts events of budgets, too.
    pub(crate) fn with_webhook(self, webhook: Option<Webhook>) -> Audit {
        Audit { webhook, ..self }
    }

    /// Records that a budget has reached thresholds, and posts it.
    pub(crate) fn record_budget_events(&self, resource: &str, events: &[BudgetEvent]) {
        for event in events {
            let BudgetEvent { period, percent, spent, amount } = *event;
            metrics::budget_threshold_reached();
            let details = json!({
                "resource": resource, "percent": percent, "spent": spent.get(), "amount": amount.get(),
                "period_start": period.start, "period_end": (!period.is_unending()).then_some(period.end),
            });
            if let Some(webhook) = &self.webhook {
                let now = humantime::format_rfc3339_seconds(SystemTime::now()).to_string();
                let body = json!({ "type": "budget.threshold_reached", "timestamp": now, "data": details });
                webhook.post(&format!("{resource}\n{}\n{percent}\n{}", period.start, amount.get()), &body);
            }
            self.record(Event::of_server("budget_threshold_reached", "done".to_owned(), details));
        }
    }

    /// Records a change.
    pub(crate) fn record(&self, event: Event) {
        let Event { who, address, what, outcome, details } = event;
        self.changes.tell(Change {
            outcome: outcome.clone(),
            who: who.to_string(),
            address,
            resource: details["resource"].as_str().unwrap_or_default().to_owned(),
            ..Change::new(ChangeKind::of_audited(what), in_words(what, &details))
        });
        let Some(log) = &self.log else { return };
        log.put(what, &who.to_string(), address, &outcome, details);
    }

    /// Records a denied request, at a limited rate.
    pub(crate) fn denied(&self, who: &Identity, address: Option<IpAddr>, call: &str, why: &str) {
        self.record_denial("denied", who.text(), address, call, why);
    }

    /// Records an invalid credential, at a limited rate.
    pub(crate) fn refused(&self, address: Option<IpAddr>, call: &str, why: &str) {
        self.record_denial("not_known", Identity::Anonymous.text(), address, call, why);
    }

    fn record_denial(&self, what: &'static str, who: &str, address: Option<IpAddr>, call: &str, why: &str) {
        self.changes.tell(Change {
            outcome: why.to_owned(),
            who: who.to_owned(),
            address,
            ..Change::new(ChangeKind::Denial, call)
        });
        self.put_limited(what, who, address, why, json!({ "call": call }));
    }

    /// Records a client that asked too soon, at a limited rate.
    pub(crate) fn too_soon(&self, who: &Identity, address: Option<IpAddr>, client: &str, resource: &str) {
        let details = json!({ "client": client, "resource": resource });
        self.put_limited(
            "asked_too_soon",
            who.text(),
            address,
            "no entry in the answer; the client keeps its lease",
            details,
        );
    }

    fn put_limited(&self, what: &str, who: &str, address: Option<IpAddr>, outcome: &str, mut details: Value) {
        let Some(log) = &self.log else { return };
        let left_out = {
            let mut rate = log.denials.lock().expect("no panic while counting");
            if rate.since.elapsed() >= Duration::from_secs(1) {
                (rate.since, rate.written) = (Instant::now(), 0);
            }
            if rate.written >= DENIALS_PER_SECOND {
                rate.left_out += 1;
                return;
            }
            rate.written += 1;
            std::mem::take(&mut rate.left_out)
        };
        if left_out > 0 {
            details["left_out"] = left_out.into();
        }
        log.put(what, who, address, outcome, details);
    }

    /// Recent changes.
    pub(crate) fn changes(&self) -> &Arc<Changes> {
        &self.changes
    }

    /// Recent refusals by client.
    pub(crate) fn refusals(&self) -> &Refusals {
        &self.refusals
    }

    /// Waits until all lines are written.
    pub(crate) fn close(&self) {
        let Some(log) = &self.log else { return };
        log.lines.lock().expect("no panic while sending").take();
        if let Some(writer) = log.writer.lock().expect("no panic while closing").take() {
            let _ = writer.join();
        }
    }
}

impl AuditLog {
    fn put(&self, what: &str, who: &str, address: Option<IpAddr>, outcome: &str, details: Value) {
        let mut line = Map::new();
        let time = humantime::format_rfc3339_millis(SystemTime::now()).to_string();
        line.insert("time".into(), time.into());
        line.insert("who".into(), who.into());
        if let Some(address) = address {
            line.insert("address".into(), address.to_string().into());
        }
        line.insert("what".into(), what.into());
        if let Value::Object(details) = details {
            line.extend(details);
        }
        line.insert("outcome".into(), outcome.into());
        let lines = self.lines.lock().expect("no panic while sending");
        let sent = lines.as_ref().map(|lines| lines.try_send(Value::Object(line).to_string()));
        if let Some(Err(TrySendError::Full(_) | TrySendError::Disconnected(_))) = sent {
            lose(&self.lost);
        }
    }
}

/// A readable form of an event. Omits the resource, which is shown separately.
fn in_words(what: &str, details: &Value) -> String {
    let mut words = what.replace('_', " ");
    for (name, value) in details.as_object().into_iter().flatten().filter(|(name, _)| *name != "resource") {
        let value = value.as_str().map_or_else(|| value.to_string(), str::to_owned);
        words.push_str(&format!(", {} {value}", name.replace('_', " ")));
    }
    words
}

fn lose(lost: &AtomicU64) {
    lost.fetch_add(1, Ordering::Relaxed);
    metrics::audit_lost();
}

/// Opens the file for appending, readable by its owner only.
fn append(path: &Path) -> io::Result<File> {
    OpenOptions::new().create(true).append(true).mode(0o600).open(path)
}

fn write_line(mut out: Box<dyn Write + Send>, line: &str, lost: &AtomicU64) -> Box<dyn Write + Send> {
    let before = lost.swap(0, Ordering::Relaxed);
    let mut text = String::new();
    if before > 0 {
        let time = humantime::format_rfc3339_millis(SystemTime::now()).to_string();
        text = format!("{}\n", json!({ "time": time, "what": "lines_lost", "count": before }));
    }
    text.push_str(&leaseway_core::types::escaped(line));
    text.push('\n');
    if let Err(error) = out.write_all(text.as_bytes()).and_then(|()| out.flush()) {
        if before == 0 {
            tracing::error!(%error, "cannot write the audit log: until writing succeeds, lines are lost (and counted)");
        }
        lost.fetch_add(before, Ordering::Relaxed);
        lose(lost);
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lines(path: &Path) -> Vec<Value> {
        let text = std::fs::read_to_string(path).expect("the log");
        text.lines().map(|line| serde_json::from_str(line).expect("a line of JSON")).collect()
    }

    fn event(details: Value) -> Event {
        let who = Identity::named("web").expect("a name");
        let address = Some("192.0.2.1".parse().expect("an address"));
        Event { who, address, what: "config_applied", outcome: "done".into(), details }
    }

    #[test]
    fn lines_have_identity_event_and_outcome() {
        let directory = tempfile::tempdir().expect("a directory");
        let path = directory.path().join("audit.jsonl");
        for version in [3, 4] {
            let audit = Audit::open(&AuditTarget::File(path.clone())).expect("a log");
            audit.record(event(json!({ "version": version, "source": "a\n\u{202e}b" })));
            audit.close();
        }
        let lines = lines(&path);
        assert_eq!(lines.len(), 2, "appended: {lines:?}");
        let line = &lines[1];
        assert_eq!((&line["who"], &line["address"]), (&json!("web"), &json!("192.0.2.1")));
        assert_eq!((&line["what"], &line["outcome"]), (&json!("config_applied"), &json!("done")));
        assert_eq!((&line["version"], &line["source"]), (&json!(4), &json!("a\n\u{202e}b")));
        let text = std::fs::read_to_string(&path).expect("the log");
        assert!(!text.contains('\u{202e}'), "control characters are escaped");
        use std::os::unix::fs::PermissionsExt as _;
        assert_eq!(std::fs::metadata(&path).expect("the log").permissions().mode() & 0o777, 0o600);
    }

    #[test]
    fn denials_beyond_the_rate_are_counted() {
        let directory = tempfile::tempdir().expect("a directory");
        let path = directory.path().join("audit.jsonl");
        let audit = Audit::open(&AuditTarget::File(path.clone())).expect("a log");
        let many = u64::from(10 * DENIALS_PER_SECOND);
        let deny = || audit.denied(&Identity::Anonymous, None, "GetCapacity", "no");
        (0..many).for_each(|_| deny());
        // One second later.
        audit.log.as_ref().expect("a log").denials.lock().expect("unlocked").since -= Duration::from_secs(2);
        deny();
        audit.close();
        let lines = lines(&path);
        let left_out: u64 = lines.iter().filter_map(|line| line["left_out"].as_u64()).sum();
        assert_eq!(lines.len() as u64 + left_out, many + 1, "all are written or counted");
        assert!(left_out > 0 && lines.last().expect("some")["left_out"].is_u64());
    }

    #[test]
    fn lines_that_cannot_be_written_are_counted() {
        let target = AuditTarget::File("/dev/full".into());
        let Ok(audit) = Audit::open(&target) else { return };
        for _ in 0..10 {
            audit.record(event(json!({})));
        }
        audit.close();
        assert_eq!(audit.log.expect("a log").lost.load(Ordering::Relaxed), 10);
    }
}
