//! The open resources of a gateway, with their leases and limiters.
//!
//! A gateway is one client of the cluster. It holds one lease of each resource, and a limiter in this process decides.
//! A resource is opened by the first request for it, and released after a time without requests. Only the first request
//! for a resource waits for the cluster, and only for a short time.
//!
//! The number of resources is bounded, in total and by a share for each caller. Requests beyond the share are
//! answered as if there were no lease.

mod budgets;
pub(crate) mod caller_shares;
mod entry;
mod reach;
mod shards;

use std::{
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicU32, AtomicU64, Ordering},
    },
    time::Duration,
};

use leaseway_client::{
    BuildError, Client, OpenError, Transport, Window,
    limiter::{Binding, Claim, LimiterRef, try_acquire_all},
};
use leaseway_core::types::{Glob, Principal, PrincipalShare};
use metrics::{Counter, counter, gauge};
use smallvec::SmallVec;
use tokio::time::{MissedTickBehavior, interval, sleep, timeout};

pub(crate) use self::caller_shares::{CallerShares, SharePermit};
pub use self::{budgets::BudgetEntry, entry::LeaseEntry};
use self::{budgets::Budgets, shards::Shards};

/// How often idle resources are released.
const SWEEP_INTERVAL: Duration = Duration::from_secs(1);
/// How often the wants of resources that refused requests are estimated.
const WANTS_INTERVAL: Duration = Duration::from_millis(100);
/// How many sweeps there are between two log messages about requests without a lease.
const LOG_SWEEPS: u32 = 10;
/// Permits of such windows have come back before a gateway stops.
const SHORT_WINDOW: Duration = Duration::from_secs(1);
/// How long a stopping gateway waits until the cluster knows what is in use.
const HAND_OVER: Duration = Duration::from_millis(500);
/// How long releasing all leases may take when a gateway stops. The others expire.
const CLOSE_TIMEOUT: Duration = Duration::from_secs(3);

#[derive(Debug, Clone)]
pub struct LeaseTableOptions {
    /// Servers of the node, as `host:port`.
    pub servers: Vec<String>,
    pub transport: Transport,
    /// The client id of the gateway. `None` selects the default of the client library.
    pub id: Option<String>,
    /// The maximum number of open resources.
    pub most_resources: usize,
    /// The fraction of `most_resources` that one caller may open.
    pub share: PrincipalShare,
    /// Idle time after which a resource is released; at least the length of its window.
    pub idle: Duration,
    /// Maximum time that the first request for a resource waits for a lease.
    pub first_wait: Duration,
    pub without_lease: WithoutLease,
    /// Resources whose callers report their usage afterwards. All of it is charged, even if it exceeds the available
    /// permits.
    pub charged: Vec<Glob>,
    /// Resources whose unused permits are saved up for a window, so that up to twice the limit passes in one.
    pub saving: Vec<Glob>,
}

/// The answer while there is no lease: before the first one arrives, or after the last one expired without an answer of
/// any server.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum WithoutLease {
    /// Admit every request. The protected service must handle the load.
    Allow,
    #[default]
    Deny,
}

#[derive(Debug)]
pub struct LeaseTable {
    client: Client,
    options: LeaseTableOptions,
    table: Shards,
    budgets: Budgets,
    caller_shares: CallerShares,
    /// The number of sweeps so far, which serves as a clock for idle times.
    sweeps: Arc<AtomicU32>,
    /// The resources that refused a request since wants were last estimated.
    pressed: Mutex<Vec<Arc<LeaseEntry>>>,
    without_lease: [WithoutLeaseCount; NoLease::ALL.len()],
}

/// Why there is no lease to decide by.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NoLease {
    /// The cluster has not answered yet.
    NotYet,
    /// The cluster does not answer: the first request has failed, or the lease has ended.
    Unreachable,
    /// The resource could not be opened.
    NoRoom,
}

impl NoLease {
    const ALL: [NoLease; 3] = [NoLease::NotYet, NoLease::Unreachable, NoLease::NoRoom];

    fn name(self) -> &'static str {
        match self {
            NoLease::NotYet => "not_yet",
            NoLease::Unreachable => "unreachable",
            NoLease::NoRoom => "no_room",
        }
    }
}

/// Requests that were decided without a lease.
struct WithoutLeaseCount {
    metric: Counter,
    /// Since the last log message.
    unlogged: AtomicU64,
}

impl WithoutLeaseCount {
    fn new(why: NoLease) -> WithoutLeaseCount {
        let metric = counter!("leaseway_gateway_without_lease_total", "reason" => why.name());
        metric.absolute(0);
        WithoutLeaseCount { metric, unlogged: AtomicU64::new(0) }
    }
}

impl std::fmt::Debug for WithoutLeaseCount {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.unlogged.fmt(f)
    }
}

/// Why a resource was not opened.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
pub enum NotOpened {
    #[error("too many open resources at this gateway (limit {0}): raise the gateway's --max-resources")]
    TooMany(usize),
    #[error(
        "your identity or address has opened too many resources at this gateway: each may use only a share of {0}; \
         raise the gateway's --max-resources or --address-share"
    )]
    OfCaller(usize),
    #[error("too many buckets for this Envoy (limit {0}): raise the gateway's --max-buckets")]
    OfEnvoy(usize),
    /// The id is invalid, or the gateway is closing.
    #[error(transparent)]
    Refused(#[from] OpenError),
}

impl LeaseTable {
    /// Creates the client, and starts the task that releases idle resources. Must be called within a tokio runtime.
    pub fn start(options: LeaseTableOptions) -> Result<Arc<LeaseTable>, BuildError> {
        let servers = options.servers.iter().cloned();
        let mut builder = Client::builder().endpoints(servers).transport(&options.transport).gateway();
        if let Some(id) = &options.id {
            builder = builder.id(id.as_str());
        }
        let lease_table = Arc::new(LeaseTable {
            client: builder.build()?,
            table: Shards::new(),
            budgets: Budgets::default(),
            caller_shares: CallerShares::new(options.most_resources, options.share),
            sweeps: Arc::default(),
            pressed: Mutex::default(),
            without_lease: NoLease::ALL.map(WithoutLeaseCount::new),
            options,
        });
        tokio::spawn(run_sweeps(Arc::downgrade(&lease_table)));
        tokio::spawn(reach::run(Arc::downgrade(&lease_table)));
        Ok(lease_table)
    }

    pub fn options(&self) -> &LeaseTableOptions {
        &self.options
    }

    pub fn client(&self) -> &Client {
        &self.client
    }

    /// The number of open resources.
    pub fn resources(&self) -> usize {
        self.caller_shares.used()
    }

    /// All open resources, in arbitrary order.
    pub fn all(&self) -> Vec<Arc<LeaseEntry>> {
        self.table.select(|_| true)
    }

    /// Finds an open resource, and counts that as use.
    pub fn find(&self, id: &str) -> Option<Arc<LeaseEntry>> {
        let entry = self.table.find(id)?;
        entry.note_use(self.sweeps.load(Ordering::Relaxed));
        Some(entry)
    }

    /// Finds an open resource without counting that as use.
    pub fn look(&self, id: &str) -> Option<Arc<LeaseEntry>> {
        self.table.find(id)
    }

    /// Finds or opens a resource. A newly opened one counts toward the share of `caller`.
    pub fn open(&self, id: &str, window: Window, caller: Principal) -> Result<Arc<LeaseEntry>, NotOpened> {
        if let Some(entry) = self.find(id) {
            return Ok(entry);
        }
        let permit = self.admit(caller)?;
        let matches = |globs: &[Glob]| globs.iter().any(|glob| glob.matches(id));
        let window = Window { slides: window.slides && !matches(&self.options.saving), ..window };
        let rate = self.client.resource(id).window(window).rate()?;
        let is_charged = matches(&self.options.charged);
        let now = self.sweeps.load(Ordering::Relaxed);
        let entry = LeaseEntry::new(rate, window, self.options.first_wait, now, permit).charged(is_charged);
        counter!("leaseway_gateway_resources_opened_total").increment(1);
        // If a concurrent request has inserted an entry, this handle is dropped. The other one keeps the lease.
        Ok(self.table.insert(Arc::new(entry)))
    }

    /// Finds or opens a budget. A newly opened one counts toward the share of `caller`.
    pub fn open_budget(&self, id: &str, caller: Principal) -> Result<Arc<BudgetEntry>, NotOpened> {
        self.budgets.get_or_open(id, self.sweeps.load(Ordering::Relaxed), || {
            let permit = self.admit(caller)?;
            Ok((self.client.budget(id)?, permit))
        })
    }

    fn admit(&self, caller: Principal) -> Result<SharePermit, NotOpened> {
        let admitted = self.caller_shares.admit(caller);
        admitted.inspect_err(|_| counter!("leaseway_gateway_resources_refused_total").increment(1))
    }

    /// Takes the permits of all claims, or of none, and does not wait. `claims[i]` is of `entries[i]`. A request that
    /// is `vetoed` takes nothing. Returns whether it passes.
    pub fn try_take_all(&self, entries: &[&Arc<LeaseEntry>], claims: &mut [Claim], vetoed: bool) -> bool {
        let passes = match (entries, &mut *claims) {
            // The usual case, which a limiter decides faster alone.
            ([entry], [claim]) if claim.needs == u64::from(claim.takes) && !vetoed => {
                claim.outcome = entry.rate().try_acquire(claim.takes);
                claim.outcome.is_ok() || claim.binding == Binding::Never
            }
            _ => {
                let limiters: SmallVec<[LimiterRef<'_>; 4]> =
                    entries.iter().map(|entry| LimiterRef::Rate(entry.rate().limiter())).collect();
                try_acquire_all(&limiters, claims, vetoed)
            }
        };
        let refusing = entries.iter().zip(claims).filter(|(_, claim)| claim.outcome.is_err());
        refusing.for_each(|(entry, _)| self.refused(entry));
        passes
    }

    /// Notes that a resource refused a request, so that its wants are estimated soon.
    pub fn refused(&self, entry: &Arc<LeaseEntry>) {
        if entry.note_refusal() {
            self.pressed.lock().unwrap_or_else(PoisonError::into_inner).push(Arc::clone(entry));
        }
    }

    pub fn passes_without_lease(&self) -> bool {
        self.options.without_lease == WithoutLease::Allow
    }

    /// Counts a request that is decided without a lease.
    pub fn note_without_lease(&self, why: NoLease) {
        let WithoutLeaseCount { metric, unlogged } = &self.without_lease[why as usize];
        metric.increment(1);
        unlogged.fetch_add(1, Ordering::Relaxed);
    }

    fn log_without_lease(&self) {
        let decided = if self.passes_without_lease() { "allowed" } else { "denied" };
        for why in NoLease::ALL {
            let requests = self.without_lease[why as usize].unlogged.swap(0, Ordering::Relaxed);
            if requests == 0 {
                continue;
            }
            match why {
                NoLease::NotYet => tracing::warn!(
                    requests,
                    "requests were {decided} without a lease: the cluster had not answered within {:?}; if the cluster \
                     is slow, raise --first-wait-ms",
                    self.options.first_wait
                ),
                NoLease::Unreachable => tracing::warn!(
                    requests,
                    error = self.client.health().last_error,
                    "requests were {decided} without a lease: the cluster does not answer"
                ),
                NoLease::NoRoom => tracing::warn!(
                    requests,
                    "requests were {decided} without a lease: too many open resources; raise --max-resources or \
                     --address-share"
                ),
            }
        }
    }

    /// Gives back what is not in use of limits whose window slides. The rest counts until the leases end.
    async fn hand_over(&self) {
        let in_use = self.table.select(LeaseEntry::is_in_use);
        let short = in_use.iter().any(|entry| entry.window() <= SHORT_WINDOW);
        in_use.iter().for_each(|entry| entry.give_up());
        if !in_use.is_empty() {
            // Long enough for a smaller lease, and for the request after it, which says what is in use.
            sleep(if short { SHORT_WINDOW + HAND_OVER } else { HAND_OVER }).await;
        }
    }

    /// Releases all leases, within a time limit.
    pub async fn close(&self) {
        self.hand_over().await;
        self.table.clear();
        self.budgets.clear();
        if timeout(CLOSE_TIMEOUT, self.client.close()).await.is_err() {
            tracing::warn!("could not release all leases in time; the others will expire");
        }
    }

    fn estimate_wants(&self) {
        let pressed = std::mem::take(&mut *self.pressed.lock().unwrap_or_else(PoisonError::into_inner));
        for entry in pressed {
            entry.estimate_wants();
        }
    }

    fn sweep(&self) {
        let now = self.sweeps.fetch_add(1, Ordering::Relaxed) + 1;
        let idle = u32::try_from(self.options.idle.as_secs().max(1)).unwrap_or(u32::MAX);
        // If the table is nearly full, idle resources are released even within a long window.
        let is_tight = self.resources() > self.options.most_resources / 8 * 7;
        for entry in self.table.select(|entry| entry.has_fallen(now)) {
            entry.estimate_wants();
        }
        self.budgets.release_idle(now, idle);
        let released = self.table.remove_where(|entry| entry.is_idle(now, idle, is_tight));
        counter!("leaseway_gateway_resources_released_total").increment(released.len() as u64);
        if now.is_multiple_of(LOG_SWEEPS) {
            self.log_without_lease();
        }
        gauge!("leaseway_gateway_resources").set(self.resources() as f64);
    }
}

async fn run_sweeps(lease_table: std::sync::Weak<LeaseTable>) {
    let (mut look, mut sweep) = (interval(WANTS_INTERVAL), interval(SWEEP_INTERVAL));
    look.set_missed_tick_behavior(MissedTickBehavior::Delay);
    sweep.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        let sweeps = tokio::select! {
            _ = look.tick() => false,
            _ = sweep.tick() => true,
        };
        let Some(lease_table) = lease_table.upgrade() else { return };
        if sweeps { lease_table.sweep() } else { lease_table.estimate_wants() }
    }
}
