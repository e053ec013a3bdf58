//! The state shared by the handles of a client and its driver: the session, the open resources, and the number of
//! handles of each.

use std::{
    collections::{BTreeSet, HashMap},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use leaseway_core::types::Millis;
use tokio::{
    runtime::Handle,
    sync::{Notify, oneshot, watch},
    time::{Duration, Instant},
};

use crate::{
    error::{NotReady, OpenError, named},
    handles::{lease_trace::LeaseTrace, metrics, open_resource::OpenResource, outage::Throttle},
    session::{
        Basis, Capacity, Lease, Mode, Outgoing, Session, Usable, Wants,
        pool::{PoolState, Usage},
    },
    transport::SuspendedTime,
};

#[cfg(test)]
mod tests;

/// Minimum time between demand estimates triggered by waiting callers.
const MIN_ESTIMATE_INTERVAL: Millis = Millis(100);

/// Minimum time between two estimates of all demands for a stream of renewals. In between, only the demands that a message
/// states are estimated.
const STREAM_ESTIMATE_INTERVAL: Millis = Millis(1_000);

/// The first request for a resource is delayed by this, because a first caller commonly arrives right after opening.
const FIRST_REQUEST_DELAY: Millis = Millis(5);

/// How often in a window that slides the capacity in use beyond the lease is reported.
const OUTSTANDING_REPORTS: u64 = 20;

/// Upper limit for times that are converted to an instant.
const FAR_MS: u64 = 100 * 365 * 86_400 * 1000;

pub(crate) struct Shared {
    pub(crate) id: Arc<str>,
    clock: Clock,
    state: Mutex<State>,
    lease_trace: Option<LeaseTrace>,
    /// Notifies the driver of changes by handles.
    pub(crate) wakeup: Notify,
    /// Wakes the driver when callers have to wait at a limiter.
    pub(crate) pressure: Arc<Notify>,
    /// Notified when any usable capacity has changed.
    changes: watch::Sender<()>,
    /// Whether the driver has ended.
    done: watch::Sender<bool>,
}

/// The state of the connection to the servers.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Health {
    /// The server that receives requests: the last known master.
    pub server: String,
    /// Fallback servers if `server` does not answer: the configured endpoints and the discovered peers.
    pub endpoints: Vec<String>,
    /// The number of failed requests since the last answer.
    pub failures: u32,
    /// The error of the last failed request.
    pub last_error: Option<String>,
    /// Whether leases are renewed by a stream, rather than by requests that name each.
    pub renews_by_stream: bool,
    /// The debt of each rate in debt.
    pub debts: Vec<(String, u64)>,
}

/// Shared by a client and its handles. The last to drop it closes the client.
pub(crate) struct CloseGuard {
    pub(crate) shared: Arc<Shared>,
    pub(crate) mode: Mode,
    pub(crate) runtime: Handle,
    /// Dropped with the guard, which ends the thread of a blocking client.
    pub(crate) _gone: Option<oneshot::Sender<()>>,
}

impl Drop for CloseGuard {
    fn drop(&mut self) {
        self.shared.close();
    }
}

struct State {
    session: Session<Wants>,
    opened: HashMap<Arc<str>, Registration>,
    /// New resources are rejected.
    closing: bool,
    /// Requests contain only releases.
    leaving: bool,
    /// The driver sends no more requests.
    abandoned: bool,
    /// When to estimate all demands next.
    estimate_at: Option<Millis>,
    estimated: Millis,
    /// Earlier estimates of single resources.
    scheduled_estimates: BTreeSet<(Millis, Arc<str>)>,
    last_error: Option<String>,
    /// The number of leases that have expired since this was last logged.
    expired: usize,
    expiry_log: Throttle,
}

struct Registration {
    handles: usize,
    opened: Arc<OpenResource>,
    /// The demand that the session knows.
    wants: Option<Wants>,
    /// Its time in `scheduled_estimates`.
    estimate_at: Option<Millis>,
}

/// What the driver has to do now.
pub(crate) struct NextStep {
    /// The request to send.
    pub(crate) outgoing: Option<Outgoing<Wants>>,
    /// The request whose answer still counts.
    pub(crate) in_flight: Option<u64>,
    /// When to take the next step at the latest.
    pub(crate) wake: Option<Instant>,
    /// Whether pressure at a limiter requires a step; it does not if demands will be estimated soon anyway.
    pub(crate) watches_pressure: bool,
    /// The session has ended.
    pub(crate) finished: bool,
}

impl Shared {
    pub(crate) fn new(id: Arc<str>, session: Session<Wants>, lease_trace: Option<LeaseTrace>) -> Shared {
        let state = State {
            session,
            opened: HashMap::new(),
            closing: false,
            leaving: false,
            abandoned: false,
            estimate_at: None,
            estimated: Millis(0),
            scheduled_estimates: BTreeSet::new(),
            last_error: None,
            expired: 0,
            expiry_log: Throttle::default(),
        };
        let (done, _) = watch::channel(false);
        Shared {
            id,
            clock: Clock::start(),
            state: Mutex::new(state),
            lease_trace,
            wakeup: Notify::new(),
            pressure: Arc::default(),
            changes: watch::Sender::new(()),
            done,
        }
    }

    /// No foreign code runs under this lock. Waking a task may drop the task and a handle with it, and a recorder of
    /// logs or metrics may call this client: neither can deadlock, and a panic in them leaves the state consistent.
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Adds a handle of a resource. The first handle calls `make`; for others `fits` has to succeed.
    pub(crate) fn open(
        &self,
        id: &Arc<str>,
        make: impl FnOnce(&Arc<Notify>) -> OpenResource,
        fits: impl FnOnce(&OpenResource) -> Result<(), OpenError>,
    ) -> Result<Arc<OpenResource>, OpenError> {
        let now = self.clock.now();
        let mut state = self.lock();
        if state.closing {
            return Err(OpenError::Closed);
        }
        if let Some(slot) = state.opened.get_mut(id) {
            fits(&slot.opened)?;
            slot.handles += 1;
            return Ok(Arc::clone(&slot.opened));
        }
        let opened = Arc::new(make(&self.pressure));
        state.opened.insert(
            Arc::clone(id),
            Registration { handles: 1, opened: Arc::clone(&opened), wants: None, estimate_at: None },
        );
        state.want(now, id);
        if opened.estimates_wants() {
            state.session.postpone(id, now.plus(FIRST_REQUEST_DELAY));
        }
        state.session.report_again(id);
        drop(state);
        self.wakeup.notify_one();
        Ok(opened)
    }

    /// Adds a handle of an open resource.
    pub(crate) fn reopen(&self, id: &Arc<str>) {
        if let Some(slot) = self.lock().opened.get_mut(id) {
            slot.handles += 1;
        }
    }

    /// Removes a handle. With the last one the lease is released.
    pub(crate) fn close_handle(&self, id: &Arc<str>) {
        let mut state = self.lock();
        let Some(slot) = state.opened.get_mut(id) else { return };
        slot.handles -= 1;
        if slot.handles > 0 {
            return;
        }
        let opened = Arc::clone(&slot.opened);
        state.opened.remove(id);
        // Nobody can spend any more: reservations are handles, too.
        state.report_last(self.clock.now(), &opened);
        drop(state);
        // Close the limiter before releasing the lease.
        self.close_resource(&opened);
        let mut state = self.lock();
        if !state.opened.contains_key(id) {
            state.give_back(&opened);
        }
        drop(state);
        self.wakeup.notify_one();
    }

    fn close_resource(&self, opened: &OpenResource) {
        if opened.debt() > 0 || opened.changed_debt().is_some() {
            // The debt is dropped with the limiter.
            metrics::owed(&opened.id, 0);
        }
        opened.close();
        if let Some(lease_trace) = &self.lease_trace {
            lease_trace.record(&self.id, &opened.id, 0.0);
        }
    }

    /// Updates the demand for a resource. It is sent immediately if it has changed by more than a tenth.
    pub(crate) fn demand_changed(&self, id: &Arc<str>) {
        let now = self.clock.now();
        self.lock().want(now, id);
        self.wakeup.notify_one();
    }

    /// Releases all leases and ends the driver.
    pub(crate) fn close(&self) {
        let mut state = self.lock();
        state.closing = true;
        let opened = std::mem::take(&mut state.opened);
        drop(state);
        for slot in opened.values() {
            self.close_resource(&slot.opened);
        }
        let mut state = self.lock();
        state.leaving = true;
        // Only the leases of limiters that are closed and have reported what was spent. A concurrent call that closes
        // others releases those.
        for slot in opened.values() {
            state.report_last(self.clock.now(), &slot.opened);
            state.give_back(&slot.opened);
        }
        state.session.end_backoff();
        drop(state);
        self.wakeup.notify_one();
    }

    /// Ends the driver without releasing leases; they count until they expire.
    pub(crate) fn abandon(&self) {
        self.lock().abandoned = true;
        self.close();
    }

    /// See [`Client::ask_for`](crate::Client::ask_for).
    pub(crate) fn ask_for(&self, span: Duration) {
        let span = Millis(u64::try_from(span.as_millis()).unwrap_or(u64::MAX));
        let now = self.clock.now();
        self.lock().session.ask_until(now.plus(span));
        self.wakeup.notify_one();
    }

    /// Notified when any usable capacity has changed.
    pub(crate) fn changes(&self) -> watch::Receiver<()> {
        self.changes.subscribe()
    }

    /// The time on the clock of the leases.
    pub(crate) fn now(&self) -> Millis {
        self.clock.now()
    }

    pub(crate) fn is_closing(&self) -> bool {
        self.lock().closing
    }

    /// Waits until the driver has ended.
    pub(crate) async fn closed(&self) {
        // Cannot fail: the sender is in `self`.
        let _ = self.done.subscribe().wait_for(|done| *done).await;
    }

    /// Called when the driver has ended. Leases are not renewed after that.
    pub(crate) fn driver_ended(&self) {
        self.close();
        self.done.send_replace(true);
    }

    pub(crate) fn health(&self) -> Health {
        let state = self.lock();
        let debts = state.opened.iter().map(|(id, slot)| (id.to_string(), slot.opened.debt()));
        let mut debts: Vec<_> = debts.filter(|(_, debt)| *debt > 0).collect();
        debts.sort();
        Health {
            server: state.session.target().to_string(),
            endpoints: state.session.endpoints().iter().map(ToString::to_string).collect(),
            failures: state.session.failures(),
            last_error: state.last_error.clone(),
            renews_by_stream: state.session.stream().is_some(),
            debts,
        }
    }

    /// Describes the capacity that may be used while no server answers, for the log.
    pub(crate) fn describe_fallback(&self) -> String {
        const MAX_NAMED: usize = 5;
        let now = self.clock.now();
        let state = self.lock();
        let one = |(id, slot): (&Arc<str>, &Registration)| {
            let (usable, mode) = (slot.opened.usable(), format!("{:?}", slot.opened.mode).to_lowercase());
            let capacity = usable.capacity.get();
            match state.session.lease(now, id) {
                Some(lease) => {
                    let left = lease.end.since(now).0 / 1000;
                    format!("`{id}` may use its lease of {capacity} for another {left} s, then mode {mode} decides")
                }
                None => format!("`{id}` may use {capacity} (mode {mode})"),
            }
        };
        let mut described: Vec<_> = state.opened.iter().take(MAX_NAMED).map(one).collect();
        if let more @ 1.. = state.opened.len().saturating_sub(MAX_NAMED) {
            described.push(format!("{more} more resources"));
        }
        if described.is_empty() { "nothing is wanted".to_owned() } else { described.join(", ") }
    }

    /// Waits until `only`, or every open resource, has its first lease.
    pub(crate) async fn ready(&self, only: Option<&Arc<str>>, timeout: Duration) -> Result<(), NotReady> {
        let selected = |state: &State| -> Vec<Arc<OpenResource>> {
            let opened = state.opened.values().map(|slot| Arc::clone(&slot.opened));
            opened.filter(|opened| only.is_none_or(|only| *only == opened.id)).collect()
        };
        let opened = selected(&self.lock());
        let all = async {
            for opened in &opened {
                // Cannot fail: the sender is in `opened`.
                let _ = opened.watch().wait_for(|usable| usable.basis == Basis::Lease || opened.is_closed()).await;
            }
        };
        // The result is seen below.
        let _ = tokio::time::timeout(timeout, all).await;
        let state = self.lock();
        // Resources that were closed meanwhile do not count, unless the client was.
        let without = opened.iter().filter(|opened| opened.usable().basis != Basis::Lease);
        let without = without.filter(|opened| state.closing || !opened.is_closed());
        let mut resources: Vec<_> = without.map(|opened| opened.id.to_string()).collect();
        resources.sort();
        if state.closing {
            resources.extend(only.map(ToString::to_string).filter(|_| opened.is_empty()));
        } else if resources.is_empty() {
            return Ok(());
        }
        let failed = state.last_error.clone().filter(|_| state.session.failures() > 0);
        let why = match failed {
            _ if state.closing => "the client was closed".to_owned(),
            Some(error) => error,
            None => {
                format!("no request has failed, and {} has not answered within {timeout:?}", state.session.target())
            }
        };
        Err(NotReady { resources, why })
    }

    pub(crate) fn lease(&self, id: &str) -> Option<(Lease, Duration)> {
        let now = self.clock.now();
        let lease = self.lock().session.lease(now, id)?;
        Some((lease, Duration::from_millis(lease.end.since(now).0)))
    }

    /// Schedules an estimate because a caller has to wait at a limiter.
    pub(crate) fn note_pressure(&self) {
        self.lock().estimate_soon(self.clock.now());
    }

    pub(crate) fn step(&self) -> NextStep {
        let now = self.clock.now();
        let mut state = self.lock();
        let mut debts = Vec::new();
        for id in state.take_due_estimates(now) {
            state.want(now, &id);
            let owed = state.opened.get(&id).and_then(|slot| slot.opened.changed_debt());
            debts.extend(owed.map(|owed| (id, owed)));
        }
        let outgoing = if state.abandoned { None } else { state.session.poll(now) };
        let changes = state.changes(now);
        let estimate = state.scheduled_estimates.first().map(|(at, _)| *at);
        let wake = [state.session.wake(now), state.estimate_at, estimate].into_iter().flatten().min();
        let next = NextStep {
            in_flight: state.session.in_flight(),
            wake: wake.map(|at| self.clock.instant(at)),
            watches_pressure: state.estimate_at.is_none_or(|at| at > now.plus(MIN_ESTIMATE_INTERVAL)),
            // Leases that cannot be released now expire.
            finished: state.abandoned
                || (state.leaving
                    && state.session.in_flight().is_none()
                    && (state.session.is_idle() || state.session.release_failed())),
            outgoing,
        };
        drop(state);
        debts.iter().for_each(|(id, debt)| metrics::owed(id, *debt));
        self.apply_changes(changes);
        next
    }

    /// Reports the outcome of a request to the session.
    pub(crate) fn finish_request(&self, apply: impl FnOnce(&mut Session<Wants>, Millis), error: Option<String>) {
        let now = self.clock.now();
        let mut state = self.lock();
        apply(&mut state.session, now);
        state.take_allowances(now);
        state.last_error = error.or(state.last_error.take());
        let changes = state.changes(now);
        drop(state);
        self.apply_changes(changes);
    }

    /// Learns the peers that the master has named, if any, and from how many resources on it should be sent a stream of
    /// renewals.
    pub(crate) fn discovered(&self, master: &Arc<str>, peers: Vec<Arc<str>>, streamed_from: Option<usize>) {
        let session = &mut self.lock().session;
        session.offer_stream(master, streamed_from);
        if !peers.is_empty() {
            session.learn(peers);
        }
    }

    /// Applies the pool states of an answer, each with the usage that its request reported.
    pub(crate) fn set_pool_states(&self, pools: Vec<(Arc<str>, Option<PoolState>, Option<Usage>)>) {
        let now = self.clock.now();
        let state = self.lock();
        for (id, pool, usage) in pools {
            if let Some(slot) = state.opened.get(&id) {
                slot.opened.set_pool_state(now, pool, usage);
            }
        }
    }

    /// Applies the priorities at which the server counts this client.
    pub(crate) fn set_priorities(&self, priorities: Vec<(Arc<str>, i64)>) {
        let mut differing = Vec::new();
        for (id, priority) in priorities {
            let opened = self.lock().opened.get(&id).map(|slot| Arc::clone(&slot.opened));
            let Some(opened) = opened else { continue };
            if opened.set_effective_priority(priority) && priority != opened.priority {
                differing.push((id, opened.priority, priority));
            }
        }
        if let Some((resource, claimed, priority)) = differing.first() {
            tracing::info!(
                %resource, claimed, priority, resources = differing.len(),
                "the server gives this client another priority than it requested"
            );
        }
    }

    /// Applies which resources have no limit. A warning tells when one has none, because that is rarely intended.
    pub(crate) fn set_unlimited(&self, unlimited: Vec<(Arc<str>, bool)>) {
        let mut without = Vec::new();
        for (id, is_unlimited) in unlimited {
            let opened = self.lock().opened.get(&id).map(|slot| Arc::clone(&slot.opened));
            if opened.is_some_and(|opened| opened.set_unlimited(is_unlimited)) && is_unlimited {
                without.push(id);
            }
        }
        if !without.is_empty() {
            tracing::warn!(
                client = %self.id,
                "no template of the server limits {}, so every request is granted: add one to the configuration",
                named(&without)
            );
        }
    }

    /// Called by the driver only, so that changes are applied in order.
    fn apply_changes(&self, changes: Vec<UsableChange>) {
        let has_changes = !changes.is_empty();
        let mut expired = Vec::new();
        for UsableChange { opened, usable, end } in changes {
            let usable = end.map_or(usable, |end| self.unless_expired(&opened.id, usable, end));
            let leased = |usable: &Usable| if usable.basis == Basis::Lease { usable.capacity } else { Capacity::NONE };
            let before = opened.usable();
            // The trace records a rise before it is applied and a fall afterwards, so it errs upwards.
            let (now, lease_rises) = (leased(&usable), leased(&usable) > leased(&before));
            let rises = usable.capacity > before.capacity;
            let record =
                || self.lease_trace.iter().for_each(|lease_trace| lease_trace.record(&self.id, &opened.id, now.get()));
            if lease_rises {
                record();
            }
            opened.apply(usable);
            if !lease_rises {
                record();
            }
            if opened.exceeds_lease() {
                // The next request confirms the smaller lease, so it has to say what is in use beyond it.
                self.demand_changed(&opened.id);
            }
            if rises && opened.is_under_pressure() {
                // Estimated wants may grow with the capacity.
                self.note_pressure();
                self.wakeup.notify_one();
            }
            if before.basis == Basis::Lease && usable.basis == Basis::Fallback {
                metrics::lease_ended(&opened.id);
                expired.push(Arc::clone(&opened.id));
            }
        }
        if !expired.is_empty() {
            self.log_expired(&expired);
        }
        if has_changes {
            self.changes.send_replace(());
        }
    }

    /// Logs leases that have expired without a refresh. There may be very many, so the log gets a line per minute.
    fn log_expired(&self, expired: &[Arc<str>]) {
        let mut state = self.lock();
        state.expired += expired.len();
        if state.expiry_log.passes() {
            let leases = std::mem::take(&mut state.expired);
            drop(state);
            tracing::warn!(client = %self.id, leases, "leases expired without a refresh, lately of {}", named(expired));
        }
    }

    /// The same capacity, or the fallback if the lease has expired meanwhile, as in a process that was stopped.
    fn unless_expired(&self, id: &str, usable: Usable, end: Millis) -> Usable {
        let now = self.clock.now();
        if now < end { usable } else { self.lock().session.usable(now, id).unwrap_or(usable) }
    }

    /// Passes a hint of the server on to the session; `None` stands for all resources.
    pub(crate) fn hinted(&self, ids: Option<&[String]>) {
        metrics::hinted(ids.is_none_or(|ids| !ids.is_empty()));
        let now = self.clock.now();
        let session = &mut self.lock().session;
        match ids {
            Some(ids) => ids.iter().for_each(|id| session.hint(now, id)),
            None => session.hint_all(now),
        }
    }
}

impl State {
    /// The changes to apply once the lock is released.
    #[must_use]
    fn changes(&mut self, now: Millis) -> Vec<UsableChange> {
        let (opened, mut changes) = (&self.opened, Vec::new());
        self.session.changes(now, |id, usable| {
            if let Some(slot) = opened.get(id) {
                changes.push(UsableChange { opened: Arc::clone(&slot.opened), usable, end: None });
            }
        });
        for change in &mut changes {
            change.end = self.session.lease(now, &change.opened.id).map(|lease| lease.end);
        }
        changes
    }

    /// Gives budgets their new allowances. Under the lock of the session, so that no request reports less than was spent
    /// before.
    fn take_allowances(&mut self, now: Millis) {
        let mut asks = Vec::new();
        for (id, slot) in self.opened.iter().filter(|(_, slot)| slot.opened.is_budget()) {
            let lease = self.session.lease(now, id);
            if lease.is_some_and(|lease| slot.opened.take(now, &lease)) {
                asks.push(Arc::clone(id));
            }
        }
        asks.iter().for_each(|id| self.want(now, id));
    }

    /// Reports what was spent of a budget before it is released.
    fn report_last(&mut self, now: Millis, opened: &OpenResource) {
        if opened.is_budget() {
            self.session.want(now, &opened.id, opened.wants(now), opened.mode);
        }
    }

    /// Releases the lease of a resource, unless permits of a window that slides are in use.
    fn give_back(&mut self, opened: &OpenResource) {
        if opened.is_in_use() {
            self.session.leave(&opened.id);
        } else {
            self.session.release(&opened.id);
        }
    }

    fn want(&mut self, now: Millis, id: &Arc<str>) {
        if let Some(slot) = self.opened.get(id) {
            let wants = slot.opened.wants(now);
            self.set_wants(now, id, wants);
        }
    }

    fn set_wants(&mut self, now: Millis, id: &Arc<str>, mut wants: Wants) {
        let Some(slot) = self.opened.get_mut(id) else { return };
        slot.wants = Some(wants);
        let (slot, mode) = (&*slot, slot.opened.mode);
        if self.session.lease(now, id).is_some_and(|lease| wants.outstanding <= lease.capacity.get()) {
            wants.outstanding = 0.0;
        }
        let changing = self.session.want(now, id, wants, mode);
        let again = slot.opened.next_sample_at();
        let window = slot.opened.sliding_window();
        if (wants.outstanding > 0.0 && window.is_none()) || (changing && slot.opened.is_under_pressure()) {
            self.estimate_soon(now);
        }
        if let Some(window) = window.filter(|_| wants.outstanding > 0.0) {
            // The capacity in use becomes free as time passes.
            let pause = Millis(window.0 / OUTSTANDING_REPORTS).max(MIN_ESTIMATE_INTERVAL);
            self.schedule_estimate(id, now.plus(pause));
        }
        if let Some(at) = again {
            self.schedule_estimate(id, at.max(now.plus(MIN_ESTIMATE_INTERVAL)));
        }
    }

    /// Updates the demands of all resources, for the next message on a stream of renewals. The session hears of those
    /// that have changed. Most have not, and there may be a hundred thousand.
    fn want_all(&mut self, now: Millis) {
        (self.estimate_at, self.estimated) = (None, now);
        let changed = |(id, slot): (&Arc<str>, &Registration)| {
            let wants = slot.opened.wants(now);
            let is_same = slot.wants == Some(wants) && wants.outstanding == 0.0 && wants.usage.is_none();
            (!is_same).then(|| (Arc::clone(id), wants))
        };
        let changed: Vec<_> = self.opened.iter().filter_map(changed).collect();
        changed.iter().for_each(|(id, wants)| self.set_wants(now, id, *wants));
    }

    /// Estimates all demands at `at`, or a little later.
    fn estimate_soon(&mut self, at: Millis) {
        let at = at.max(self.estimated.plus(MIN_ESTIMATE_INTERVAL));
        self.estimate_at = Some(self.estimate_at.map_or(at, |before| before.min(at)));
    }

    /// Estimates the demand of one resource at `at`, or earlier if that was scheduled.
    fn schedule_estimate(&mut self, id: &Arc<str>, at: Millis) {
        let Some(slot) = self.opened.get_mut(id) else { return };
        if slot.estimate_at.is_some_and(|before| before <= at) {
            return;
        }
        if let Some(before) = slot.estimate_at.replace(at) {
            self.scheduled_estimates.remove(&(before, Arc::clone(id)));
        }
        self.scheduled_estimates.insert((at, Arc::clone(id)));
    }

    /// The resources whose demands to estimate now: all of them if callers wait at some, else those of the next request
    /// and those that are scheduled. Others are skipped, because there may be a hundred thousand.
    fn take_due_estimates(&mut self, now: Millis) -> Vec<Arc<str>> {
        if self.estimate_at.is_some_and(|at| at <= now) {
            (self.estimate_at, self.estimated) = (None, now);
            return self.opened.keys().cloned().collect();
        }
        let is_due = self.session.is_due(now);
        let mut due_resources = Vec::new();
        if is_due && self.session.stream().is_some() {
            // A refresh of very many leases has several messages.
            if now.since(self.estimated) >= STREAM_ESTIMATE_INTERVAL {
                self.want_all(now);
            } else {
                // A message that names a cut lease must also report what is in use beyond it.
                due_resources = self.session.next_stated(now);
            }
        } else if is_due {
            due_resources = self.session.due_resources(now);
        }
        if !due_resources.is_empty() && due_resources.len() == self.opened.len() {
            // The next request asks for all resources, as with most clients.
            (self.estimate_at, self.estimated) = (None, now);
        }
        while let Some((_, id)) = self.scheduled_estimates.first().filter(|(at, _)| *at <= now) {
            let id = Arc::clone(id);
            self.scheduled_estimates.pop_first();
            if let Some(slot) = self.opened.get_mut(&id) {
                slot.estimate_at = None;
                due_resources.push(id);
            }
        }
        due_resources
    }
}

/// A change of a resource's usable capacity.
struct UsableChange {
    opened: Arc<OpenResource>,
    usable: Usable,
    /// The expiry of the lease.
    end: Option<Millis>,
}

/// Milliseconds since the client was created, including the time during which the machine was suspended.
struct Clock {
    origin: Instant,
    suspended: SuspendedTime,
}

impl Clock {
    fn start() -> Clock {
        Clock { origin: Instant::now(), suspended: SuspendedTime::start() }
    }

    /// Rounded down, so a lease starts no later than its request was sent.
    fn now(&self) -> Millis {
        let elapsed = self.origin.elapsed() + self.suspended.total();
        Millis(u64::try_from(elapsed.as_millis()).unwrap_or(u64::MAX))
    }

    /// Bounded, because an instant cannot represent every number.
    fn instant(&self, at: Millis) -> Instant {
        self.origin + Duration::from_millis(at.0.min(FAR_MS)).saturating_sub(self.suspended.total())
    }
}
