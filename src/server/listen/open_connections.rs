//! The open connections of a listener: their number, the shares of principals, and idle timeouts.
//!
//! A connection is charged to its address, and to an identity once a certificate or a token proves one. If all slots
//! are taken, a newcomer displaces an idle connection of the principal with most connections, which can reconnect.
//! Connections that are idle, or do not read their answers, are closed after a timeout. The handshake has a deadline of
//! its own ([`crate::listen`]).
//!
//! One task sweeps all connections once a second. Requests set no timer and take no lock.

use std::{
    net::IpAddr,
    sync::{
        Arc, Mutex, MutexGuard, OnceLock, PoisonError, Weak,
        atomic::{AtomicBool, AtomicU32, AtomicUsize, Ordering},
    },
    time::{Duration, Instant, SystemTime},
};

use leaseway_core::types::{Principal, PrincipalShare};
use slab::Slab;
use tokio::sync::watch;

use crate::{
    listen::{
        accounts::{Account, Accounts, RequestOrigin, SlotsTaken},
        waiting_bytes::{Activity, ConnectionBytes, WaitingBytes},
    },
    observe::metrics::{self, Closed},
};

/// How often connections are checked.
const POLL_INTERVAL: Duration = Duration::from_secs(1);
/// How long a connection may take to close after [`Ending::Soon`].
pub(crate) const CLOSE_TIMEOUT: Duration = Duration::from_secs(5);
/// Maximum number of recent invalid tokens of a connection. The count falls by one in each [`POLL_INTERVAL`].
const MAX_REFUSED: u32 = 20;
/// Accounts are swept with every tenth check.
const POLLS_PER_SWEEP: u32 = 10;

/// Bounds on the connections of a listener.
#[derive(Debug, Clone, Copy)]
pub(crate) struct ConnectionLimits {
    pub(crate) most: usize,
    pub(crate) share: PrincipalShare,
    /// The idle timeout. `None` if requests are not counted: then connections are neither closed as idle nor displaced.
    pub(crate) idle: Option<Duration>,
    /// The timeout for a connection that does not read its answers.
    pub(crate) stalled: Duration,
}

/// The connections of a listener.
#[derive(Clone)]
pub(crate) struct OpenConnections(Arc<Connections>);

struct Connections {
    limits: ConnectionLimits,
    accounts: Arc<Accounts>,
    waiting_bytes: Arc<WaitingBytes>,
    count: AtomicUsize,
    table: Mutex<ConnectionTable>,
}

#[derive(Default)]
struct ConnectionTable {
    connections: Slab<ConnectionEntry>,
    /// Counts the connections that were not asked to close.
    taken: SlotsTaken,
}

struct ConnectionEntry {
    connection: Arc<OpenConnection>,
    /// The activity at the last check. It has not changed since `quiet_since`.
    activity: Activity,
    quiet_since: Instant,
    /// It was asked to close, and no longer takes a slot.
    is_leaving: bool,
}

#[derive(Debug)]
pub(crate) struct OpenConnection {
    address: IpAddr,
    /// The account of the address.
    account: Arc<Account>,
    /// The principal that is charged. Written while the table is locked.
    principal: AtomicU32,
    /// Whether the principal is an identity.
    is_known: AtomicBool,
    listener: Weak<Connections>,
    key: usize,
    pub(crate) waiting_bytes: Arc<ConnectionBytes>,
    /// The expiry of its certificate.
    ends: OnceLock<SystemTime>,
    /// The number of recent invalid tokens.
    refused: AtomicU32,
    ending: watch::Sender<Option<Ending>>,
}

/// When a connection must close.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Ending {
    /// When all requests under way are answered.
    WhenDone,
    /// When all requests under way are answered, but at the latest after [`CLOSE_TIMEOUT`].
    Soon,
    Now,
}

impl OpenConnection {
    /// The origin of its calls, unless they are authenticated themselves.
    pub(crate) fn origin(&self) -> RequestOrigin {
        RequestOrigin { address: self.address, principal: self.principal() }
    }

    fn principal(&self) -> Principal {
        Principal(self.principal.load(Ordering::Relaxed))
    }

    /// Charges the connection to an identity, unless one is charged already. Returns `false` if the identity has used
    /// up its share.
    pub(crate) fn count_to(&self, account: &Arc<Account>) -> bool {
        if self.is_known.load(Ordering::Relaxed) {
            return true;
        }
        let Some(listener) = self.listener.upgrade() else { return true };
        let mut table = listener.table();
        if table.connections.get(self.key).is_none_or(|entry| entry.is_leaving) {
            return true;
        }
        let (before, identity) = (self.principal(), account.principal());
        // The connection keeps its slot. If all slots are taken, the share alone would refuse the identity, so it is
        // enough that another principal has more connections.
        let is_full = table.taken.in_all() >= listener.limits.most;
        let may_have = table.may_have(identity, table.taken.in_all() - 1, &listener.limits);
        if !(may_have || is_full && table.has_fewer(identity)) {
            drop(table);
            metrics::connection_refused();
            return false;
        }
        table.taken.give_back(before);
        table.taken.add(identity);
        self.principal.store(identity.0, Ordering::Relaxed);
        self.is_known.store(true, Ordering::Relaxed);
        drop(table);
        self.waiting_bytes.count_to(account);
        true
    }

    /// Sets the expiry of its certificate, at which it ends.
    pub(crate) fn ends_at(&self, end: SystemTime) {
        self.ends.get_or_init(|| end);
    }

    /// Whether signatures of its tokens may be checked.
    pub(crate) fn may_prove(&self) -> bool {
        self.account.may_prove()
    }

    /// Counts an invalid token. Checking signatures is expensive, so a connection with many invalid tokens is closed,
    /// and the tokens of an address with many are not checked for a while.
    #[cold]
    pub(crate) fn refused_token(&self) {
        self.account.refused_token();
        if self.refused.fetch_add(1, Ordering::Relaxed) == MAX_REFUSED {
            metrics::connection_closed(Closed::Refused);
            self.end(Ending::Soon);
        }
    }

    fn forget_refused(&self) {
        // A connection that was asked to close has `MAX_REFUSED + 1`, and keeps it.
        let forget = |refused: u32| if refused > MAX_REFUSED { None } else { refused.checked_sub(1) };
        let _ = self.refused.fetch_update(Ordering::Relaxed, Ordering::Relaxed, forget);
    }

    /// Waits until it is asked to close.
    pub(crate) async fn wait_for_ending(&self) -> Ending {
        let mut ending = self.ending.subscribe();
        let told = ending.wait_for(Option::is_some).await.ok().and_then(|told| *told);
        told.unwrap_or(Ending::Now)
    }

    pub(crate) fn end(&self, how: Ending) {
        self.ending.send_replace(Some(how));
    }
}

/// Counts a connection until it is dropped.
pub(crate) struct ConnectionPermit {
    pub(crate) connection: Arc<OpenConnection>,
    listener: Arc<Connections>,
    key: usize,
}

impl ConnectionPermit {
    pub(crate) fn accounts(&self) -> &Accounts {
        &self.listener.accounts
    }
}

impl Drop for ConnectionPermit {
    fn drop(&mut self) {
        self.listener.count.fetch_sub(1, Ordering::Relaxed);
        let mut table = self.listener.table();
        let entry = table.connections.remove(self.key);
        if !entry.is_leaving {
            table.taken.give_back(entry.connection.principal());
        }
    }
}

impl ConnectionTable {
    /// Whether a principal may have one more connection, if `taken` of the slots are taken.
    fn may_have(&self, principal: Principal, taken: usize, limits: &ConnectionLimits) -> bool {
        limits.share.allows(self.taken.of(principal), 1, taken, limits.most)
    }

    /// Whether another principal has more connections than this one would have with one more.
    fn has_fewer(&self, principal: Principal) -> bool {
        let own = self.taken.of(principal);
        self.taken.by_principal().any(|(_, count)| count > own + 1)
    }

    /// Closes the longest-idle connection of the principal with the most connections, if that principal has more
    /// connections than the newcomer would have.
    fn make_room(&mut self, newcomer: Principal) -> bool {
        let own = self.taken.of(newcomer);
        let largest = self.taken.by_principal().max_by_key(|(principal, count)| (*count, *principal));
        let Some((largest, _)) = largest.filter(|(_, count)| *count > own + 1) else { return false };
        let idle = self.connections.iter_mut().map(|(_, entry)| entry).filter(|entry| {
            let connection = &entry.connection;
            !entry.is_leaving && connection.principal() == largest && connection.waiting_bytes.activity().is_idle()
        });
        let Some(entry) = idle.min_by_key(|entry| entry.quiet_since) else { return false };
        entry.is_leaving = true;
        entry.connection.end(Ending::Soon);
        metrics::connection_closed(Closed::Displaced);
        self.taken.give_back(largest);
        true
    }
}

impl Connections {
    fn table(&self) -> MutexGuard<'_, ConnectionTable> {
        self.table.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Closes connections that are stalled or idle for too long, or whose certificate has expired.
    fn check(&self, now: Instant, time: SystemTime) {
        let mut table = self.table();
        let mut left = Vec::new();
        for (_, entry) in &mut table.connections {
            let connection = &entry.connection;
            let activity = connection.waiting_bytes.activity();
            if activity != entry.activity {
                (entry.activity, entry.quiet_since) = (activity, now);
            }
            connection.forget_refused();
            if entry.is_leaving {
                continue;
            }
            let quiet = now.saturating_duration_since(entry.quiet_since);
            let (why, how) = if activity.has_answers() && quiet >= self.limits.stalled {
                (Closed::Stalled, Ending::Now)
            } else if connection.ends.get().is_some_and(|end| *end <= time) {
                (Closed::Expired, Ending::Soon)
            } else if activity.is_idle() && self.limits.idle.is_some_and(|idle| quiet >= idle) {
                (Closed::Idle, Ending::Soon)
            } else {
                continue;
            };
            metrics::connection_closed(why);
            tracing::debug!(address = %connection.address, why = why.name(), "connection closed");
            entry.is_leaving = true;
            connection.end(how);
            left.push(connection.principal());
        }
        left.into_iter().for_each(|principal| table.taken.give_back(principal));
    }
}

impl OpenConnections {
    pub(crate) fn new(
        limits: ConnectionLimits,
        accounts: Arc<Accounts>,
        waiting_bytes: Arc<WaitingBytes>,
    ) -> OpenConnections {
        let (count, table) = (AtomicUsize::new(0), Mutex::default());
        OpenConnections(Arc::new(Connections { limits, accounts, waiting_bytes, count, table }))
    }

    /// Limits the number of connections and nothing else.
    #[cfg(test)]
    pub(crate) fn at_most(most: usize) -> OpenConnections {
        let (share, stalled) = (PrincipalShare::ALL, Duration::from_secs(60));
        let limits = ConnectionLimits { most, share, idle: None, stalled };
        OpenConnections::new(limits, Arc::default(), Arc::new(WaitingBytes::new(1 << 20, 1 << 20, share)))
    }

    pub(crate) fn count(&self) -> usize {
        self.0.count.load(Ordering::Relaxed)
    }

    /// Admits a connection. `None` if there is no slot for it.
    pub(crate) fn admit(&self, address: IpAddr) -> Option<ConnectionPermit> {
        let listener = &self.0;
        let account = listener.accounts.of_address(address);
        let principal = account.principal();
        let mut table = listener.table();
        let may_displace = listener.limits.idle.is_some() && table.taken.in_all() >= listener.limits.most;
        let has_slot = table.may_have(principal, table.taken.in_all(), &listener.limits);
        if !(has_slot || may_displace && table.make_room(principal)) {
            drop(table);
            metrics::connection_refused();
            return None;
        }
        table.taken.add(principal);
        let connection = Arc::new(OpenConnection {
            address,
            account: Arc::clone(&account),
            principal: AtomicU32::new(principal.0),
            is_known: AtomicBool::new(false),
            listener: Arc::downgrade(listener),
            key: table.connections.vacant_key(),
            waiting_bytes: Arc::new(ConnectionBytes::new(Arc::clone(&listener.waiting_bytes), account)),
            ends: OnceLock::new(),
            refused: AtomicU32::new(0),
            ending: watch::Sender::new(None),
        });
        let (activity, quiet_since) = (Activity::default(), Instant::now());
        let entry = ConnectionEntry { connection: Arc::clone(&connection), activity, quiet_since, is_leaving: false };
        let key = table.connections.insert(entry);
        drop(table);
        listener.count.fetch_add(1, Ordering::Relaxed);
        Some(ConnectionPermit { connection, listener: Arc::clone(listener), key })
    }

    /// Asks all connections to close when their requests are answered.
    pub(crate) fn end_all(&self) {
        let table = self.0.table();
        table.connections.iter().for_each(|(_, entry)| entry.connection.end(Ending::WhenDone));
    }
}

/// Checks connections and accounts until the server stops.
pub(crate) async fn sweep(listeners: Vec<OpenConnections>, accounts: Arc<Accounts>) {
    let mut interval = tokio::time::interval(POLL_INTERVAL);
    interval.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    for poll in 1_u32.. {
        interval.tick().await;
        let (now, time) = (Instant::now(), SystemTime::now());
        listeners.iter().for_each(|listener| listener.0.check(now, time));
        accounts.forget_refused();
        if poll.is_multiple_of(POLLS_PER_SWEEP) {
            accounts.sweep();
        }
    }
}

impl std::fmt::Debug for OpenConnections {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("OpenConnections").field("count", &self.count()).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests;
