//! Resources that are open at a gateway, and what holds them.
//!
//! A gateway is one client of the cluster: of each resource it has one lease, and a limiter in this process that decides.
//! What is asked for the first time is opened then; what has not been asked for any more is given back. No request
//! waits for the cluster but the first for a resource, and that not for long.
//!
//! What strangers name is bounded: so many resources in all, and of one caller its share of them. A caller that may
//! have no more is answered as if there were no lease.

mod caller_shares;
mod entry;
mod shards;

use std::{
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicU32, Ordering},
    },
    time::Duration,
};

use leaseway_client::{BuildError, Client, OpenError, Transport, Window};
use leaseway_core::{Glob, Principal, PrincipalShare};
use tokio::time::{MissedTickBehavior, interval, timeout};

pub(crate) use self::caller_shares::{CallerShares, SharePermit};
pub use self::entry::{LeaseEntry, Taken};
use self::shards::Shards;
use crate::metrics;

/// How often resources are looked at that no caller asks for.
const SWEEP_INTERVAL: Duration = Duration::from_secs(1);
/// How often wants are looked at of resources that have refused something.
const WANTS_INTERVAL: Duration = Duration::from_millis(100);
/// How long giving back may take when a gateway stops. What is not given back ends by itself.
const CLOSE_TIMEOUT: Duration = Duration::from_secs(3);

/// How a bridge is to be.
#[derive(Debug, Clone)]
pub struct LeaseTableOptions {
    /// Servers of the node, as `host:port`.
    pub servers: Vec<String>,
    /// How they are reached.
    pub transport: Transport,
    /// What the gateway calls itself; without it as the client library does.
    pub id: Option<String>,
    /// Resources that may be open at once.
    pub most_resources: usize,
    /// What part of them a lone caller may have.
    pub share: PrincipalShare,
    /// A resource is given back when it has not been asked for so long, and for as long as its window is.
    pub idle: Duration,
    /// The first request for a resource waits so long for a lease.
    pub first_wait: Duration,
    /// What is answered where there is no lease.
    pub without_lease: WithoutLease,
    /// Resources of which callers say what they have used, rather than ask for it: it counts whether or not it is
    /// there.
    pub charged: Vec<Glob>,
}

/// What is answered while there is no lease: for the first request of all it may not have come yet, and later leases
/// have ended and no server answers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum WithoutLease {
    /// Everything passes: what is behind the limit must bear it.
    Allow,
    #[default]
    Deny,
}

/// The resources of a gateway. Callers share it.
#[derive(Debug)]
pub struct LeaseTable {
    client: Client,
    options: LeaseTableOptions,
    table: Shards,
    caller_shares: CallerShares,
    /// Sweeps so far: the time by which use is noted.
    sweeps: Arc<AtomicU32>,
    /// Those that have refused something since wants were last looked at.
    pressed: Mutex<Vec<Arc<LeaseEntry>>>,
}

/// Why a resource is not opened.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
pub enum NotOpened {
    /// There are as many as there may be.
    #[error("this gateway has as many resources open as it may ({0}); it can be started with a larger --max-resources")]
    TooMany(usize),
    /// The caller has its share.
    #[error(
        "your address has as many resources open at this gateway as it may while others could need the rest of {0}; it \
         can be started with a larger --max-resources or --address-share"
    )]
    OfCaller(usize),
    /// An Envoy has as many as it may.
    #[error("this Envoy has as many buckets as it may ({0}): --max-buckets")]
    OfEnvoy(usize),
    /// It is no resource, or the gateway is closing.
    #[error(transparent)]
    Refused(#[from] OpenError),
}

impl LeaseTable {
    /// A bridge, and what looks after it for as long as there is one. Must be called within a tokio runtime.
    pub fn start(options: LeaseTableOptions) -> Result<Arc<LeaseTable>, BuildError> {
        let servers = options.servers.iter().cloned();
        let mut builder = Client::builder().endpoints(servers).transport(&options.transport).gateway();
        if let Some(id) = &options.id {
            builder = builder.id(id.as_str());
        }
        let lease_table = Arc::new(LeaseTable {
            client: builder.build()?,
            table: Shards::new(),
            caller_shares: CallerShares::new(options.most_resources, options.share),
            sweeps: Arc::default(),
            pressed: Mutex::default(),
            options,
        });
        tokio::spawn(run_sweeps(Arc::downgrade(&lease_table)));
        Ok(lease_table)
    }

    /// How it was to be.
    pub fn options(&self) -> &LeaseTableOptions {
        &self.options
    }

    /// The client that holds the leases.
    pub fn client(&self) -> &Client {
        &self.client
    }

    /// How many resources are open.
    pub fn resources(&self) -> usize {
        self.caller_shares.used()
    }

    /// Those that are open, in no order.
    pub fn all(&self) -> Vec<Arc<LeaseEntry>> {
        self.table.select(|_| true)
    }

    /// A resource that is open.
    pub fn find(&self, id: &str) -> Option<Arc<LeaseEntry>> {
        let entry = self.table.find(id)?;
        entry.note_use(self.sweeps.load(Ordering::Relaxed));
        Some(entry)
    }

    /// As [`find`](Self::find), for one that is only looked at: that is no use.
    pub fn look(&self, id: &str) -> Option<Arc<LeaseEntry>> {
        self.table.find(id)
    }

    /// A resource, opened if it is not: for `caller`, who then has one more.
    pub fn open(&self, id: &str, window: Window, caller: Principal) -> Result<Arc<LeaseEntry>, NotOpened> {
        if let Some(entry) = self.find(id) {
            return Ok(entry);
        }
        let permit = self.caller_shares.admit(caller).inspect_err(|_| metrics::resource_refused())?;
        let rate = self.client.resource(id).window(window).rate()?;
        let is_charged = self.options.charged.iter().any(|glob| glob.matches(id));
        let now = self.sweeps.load(Ordering::Relaxed);
        let entry = LeaseEntry::new(rate, window, self.options.first_wait, now, permit).charged(is_charged);
        metrics::resource_opened();
        // Another request may have been faster: then this handle goes, and the lease stays.
        Ok(self.table.insert(Arc::new(entry)))
    }

    /// Lets `many` pass at a resource, or not. Waits only for the first lease of all.
    pub async fn take(&self, entry: &Arc<LeaseEntry>, many: u32) -> Taken {
        match entry.take(many) {
            Taken::NoLease if entry.first_lease().await => self.pressing(entry, entry.take(many)),
            taken => self.pressing(entry, taken),
        }
    }

    /// As [`take`](Self::take) where nothing is to be waited for.
    pub fn try_take(&self, entry: &Arc<LeaseEntry>, many: u32) -> Taken {
        self.pressing(entry, entry.take(many))
    }

    fn pressing(&self, entry: &Arc<LeaseEntry>, taken: Taken) -> Taken {
        if taken != Taken::Yes {
            self.refused(entry);
        }
        taken
    }

    /// A resource has refused something: it wants more, which is looked at soon.
    pub fn refused(&self, entry: &Arc<LeaseEntry>) {
        if entry.presses() {
            self.pressed.lock().unwrap_or_else(PoisonError::into_inner).push(Arc::clone(entry));
        }
    }

    /// Whether something passes where there is no lease.
    pub fn passes_without_lease(&self) -> bool {
        self.options.without_lease == WithoutLease::Allow
    }

    /// Gives everything back, and waits until that is done or takes too long.
    pub async fn close(&self) {
        self.table.clear();
        if timeout(CLOSE_TIMEOUT, self.client.close()).await.is_err() {
            tracing::warn!("leases could not be given back; they end by themselves");
        }
    }

    fn look_at_wants(&self) {
        let pressed = std::mem::take(&mut *self.pressed.lock().unwrap_or_else(PoisonError::into_inner));
        for entry in pressed {
            entry.look_at_wants();
        }
    }

    fn sweep(&self) {
        let now = self.sweeps.fetch_add(1, Ordering::Relaxed) + 1;
        let idle = u32::try_from(self.options.idle.as_secs().max(1)).unwrap_or(u32::MAX);
        // Where there is little room left a long window protects no more.
        let is_tight = self.resources() > self.options.most_resources / 8 * 7;
        for entry in self.table.select(|entry| entry.has_fallen(now)) {
            entry.look_at_wants();
        }
        let given_back = self.table.remove_where(|entry| entry.is_idle(now, idle, is_tight));
        metrics::resources_given_back(given_back.len());
        metrics::resources_open(self.resources());
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
        if sweeps { lease_table.sweep() } else { lease_table.look_at_wants() }
    }
}
