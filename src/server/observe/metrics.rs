//! All metrics. Doorman's names are kept; others begin with `leaseway_`. Gauges are set at each scrape
//! (`api/http/metrics.rs`). [`requests`] bypasses the registry.

pub(crate) mod process;
mod requests;

use std::sync::LazyLock;

use leaseway_core::resource::{Counters, watch_list::HintReason};
use metrics::{Counter, Unit, counter, describe_counter, describe_gauge, describe_histogram, histogram};
use metrics_exporter_prometheus::{BuildError, Matcher, PrometheusBuilder, PrometheusHandle};
use metrics_util::MetricKindMask;

pub(crate) use self::{
    process::free_bytes,
    requests::{RequestMethod, put_requests},
};
use crate::config::listeners::Service;

/// Doorman's buckets, the defaults of the Go client library for Prometheus.
const SECONDS: [f64; 11] = [0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0];

/// Buckets for commits: from a write to a fast disk up to the duration of an election.
const COMMIT_SECONDS: [f64; 12] = [0.0002, 0.0005, 0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.25, 0.5, 1.0];

/// Gauges that are no longer set, such as those of removed peers, disappear after this time.
const GAUGE_TIMEOUT: std::time::Duration = std::time::Duration::from_secs(10);

/// Installs the recorder. The handle renders `/metrics`.
pub(crate) fn install() -> Result<PrometheusHandle, BuildError> {
    let recorder = PrometheusBuilder::new()
        .set_buckets_for_metric(Matcher::Full("leaseway_uplink_seconds".into()), &SECONDS)?
        .set_buckets_for_metric(Matcher::Prefix("leaseway_raft_".into()), &COMMIT_SECONDS)?
        .idle_timeout(MetricKindMask::GAUGE, Some(GAUGE_TIMEOUT))
        .build_recorder();
    let handle = recorder.handle();
    // A second server in the same process uses the first one's recorder.
    let _ = metrics::set_global_recorder(recorder);
    describe();
    Ok(handle)
}

fn describe() {
    process::describe();
    describe_gauge!("leaseway_build_info", "Always 1; the label has the version of the server.");
    describe_counter!("leaseway_config_reloads_total", "Attempts to reload the configuration, by outcome.");
    describe_counter!("leaseway_hints_total", "Refresh hints for watchers, by reason.");
    for why in HintReason::ALL {
        counter!("leaseway_hints_total", "reason" => why.name()).absolute(0);
    }
    describe_counter!("leaseway_entry_problems_total", "Request entries with a problem, by reason.");
    for (_, reason) in Reason::NAMES {
        counter!("leaseway_entry_problems_total", "reason" => reason).absolute(0);
    }
    describe_counter!("leaseway_connections_closed_total", "Connections closed by this server, by reason.");
    for why in Closed::NAMES {
        counter!("leaseway_connections_closed_total", "reason" => why).absolute(0);
    }
    describe_counter!("leaseway_handshakes_failed_total", "Failed handshakes and protocol mismatches, by listener.");
    for service in Service::ALL {
        counter!("leaseway_handshakes_failed_total", "listener" => service.name()).absolute(0);
    }
    for outcome in RELOADS {
        counter!("leaseway_config_reloads_total", "outcome" => outcome).absolute(0);
    }
    describe_counter!("leaseway_webhook_events_total", "Attempts to post an event to the webhook, by outcome.");
    for outcome in ["delivered", "failed", "dropped"] {
        counter!("leaseway_webhook_events_total", "outcome" => outcome).absolute(0);
    }
    describe_counter!("leaseway_access_denied_total", "Denied calls, by method.");
    for (_, call) in CallKind::NAMES {
        counter!("leaseway_access_denied_total", "call" => call).absolute(0);
    }
    describe_counter!("leaseway_tokens_reloads_total", "Attempts to reload the files of tokens and keys, by outcome.");
    for outcome in ["applied", "rejected"] {
        counter!("leaseway_tokens_reloads_total", "outcome" => outcome).absolute(0);
    }
    for outcome in ParentOutcome::NAMES {
        counter!("leaseway_uplink_requests_total", "outcome" => outcome).absolute(0);
    }
    describe_counter!("leaseway_uplink_requests_total", "Requests to the parent, by outcome.");
    describe_histogram!("leaseway_uplink_seconds", Unit::Seconds, "Time until the parent answers a request.");
    for (name, help) in leaseway_raft::METRICS {
        match name {
            _ if name.ends_with("_total") => describe_counter!(name, help),
            _ if name.ends_with("_seconds") => describe_histogram!(name, Unit::Seconds, help),
            _ => describe_gauge!(name, help),
        }
    }
    leaseway_raft::begin_counters();
    for (name, help) in GAUGES {
        describe_gauge!(name, help);
    }
    for (name, help) in COUNTERS {
        describe_counter!(name, help);
        // Exported from the start, so that rates include the first event.
        counter!(name).absolute(0);
    }
}

/// The help text of a gauge whose series are written without the registry.
pub(crate) fn help_of_gauge(name: &str) -> &'static str {
    GAUGES.iter().find(|(known, _)| *known == name).map_or("", |(_, help)| help)
}

const GAUGES: [(&str, &str); 50] = [
    ("doorman_server_has", "Sum of the newest leases of all clients, by resource."),
    ("doorman_server_wants", "Sum of the wants of all clients, by resource."),
    ("doorman_server_subclients", "Number of clients, including those of child nodes, by resource."),
    ("leaseway_resource_capacity", "Capacity of the resource; absent if it is not divided."),
    ("leaseway_resource_held", "Capacity that may still be in use, by resource."),
    ("leaseway_resource_learning", "1 while the resource is in learning mode, by resource."),
    ("leaseway_resource_promised", "Total of all promises stored by the peers, by resource."),
    ("leaseway_resource_unclaimed", "Inherited capacity that no holder has claimed yet, by resource."),
    ("leaseway_resource_lent_seconds", "Remaining seconds of the parent's lease, by resource."),
    ("leaseway_resource_awaits_supply", "1 until the parent has granted the first lease, by resource."),
    ("leaseway_resource_override_seconds", "Remaining seconds of the override, by resource."),
    ("leaseway_group_override_seconds", "Remaining seconds of the override of a group, by resource and group."),
    ("leaseway_resource_groups", "Number of groups of clients, by resource; absent if clients are not grouped."),
    ("leaseway_group_share", "What a group of clients is due, by resource and group."),
    ("leaseway_group_wants", "Sum of the wants of the clients of a group, by resource and group."),
    ("leaseway_group_held", "Capacity that the clients of a group may still be using, by resource and group."),
    ("leaseway_unlisted_groups", "Groups of clients without series of their own."),
    ("leaseway_pool_total", "Maximum capacity of connected clients, by pool."),
    ("leaseway_pool_connected", "Capacity of connected clients, by pool."),
    ("leaseway_pool_priority_connected", "Capacity of connected priority clients, by pool."),
    ("leaseway_pool_priority_assigned", "Capacity assigned to clients, connected or not, by pool."),
    ("leaseway_pool_recharging", "Capacity counted as used, by pool."),
    ("leaseway_pool_waiting", "Number of clients that wait for a place, by pool."),
    ("leaseway_pool_subscribers", "Open streams of pool events."),
    ("leaseway_uplink_resources", "Resources with a lease of the parent."),
    ("leaseway_uplink_failures", "Failed requests to the parent since its last answer."),
    ("leaseway_peer_ineligible", "1 while this peer neither votes nor serves, by reason."),
    ("leaseway_is_master", "1 if this server answers for its node."),
    ("leaseway_resources", "Active resources."),
    (
        "leaseway_resources_over_capacity",
        "Resources that hold more than their capacity, including those without series.",
    ),
    ("leaseway_unlisted_resources", "Resources without series of their own, beyond --metrics-resources."),
    ("leaseway_unlisted_capacity", "Sum of the capacities of resources without series."),
    ("leaseway_unlisted_wants", "Sum of the wants for resources without series."),
    ("leaseway_unlisted_has", "Sum of the newest leases for resources without series."),
    ("leaseway_unlisted_held", "Capacity that may still be in use, of resources without series."),
    ("leaseway_unlisted_subclients", "Clients of resources without series."),
    ("leaseway_peer_lag_entries", "Log entries that a peer has not acknowledged, by peer; on the master only."),
    ("leaseway_peer_last_contact_seconds", "Seconds since the last contact with another peer, by peer."),
    ("leaseway_data_free_bytes", "Free bytes on the file system of the data directory."),
    ("leaseway_data_failed", "1 after a write to the data directory has failed: nothing more is stored."),
    ("leaseway_peers", "Known peers of this node, including this one."),
    ("leaseway_config_version", "Version of the configuration in force."),
    ("leaseway_overrides", "Overrides in force."),
    ("leaseway_limits", "Resources with a limit of their own."),
    ("leaseway_declarations", "Declarations of templates by gateways."),
    ("leaseway_config_rejected", "1 if the newest configuration was refused and an older one stays in force."),
    ("leaseway_connections", "Open gRPC connections."),
    ("leaseway_waiting_bytes", "Buffered bytes of requests and answers, as charged to --max-waiting-bytes."),
    (
        "leaseway_tls_certificate_expires_seconds",
        "Seconds until this server's certificate expires; negative after its expiry.",
    ),
    ("leaseway_watchers", "Clients and child nodes that watch for hints."),
];

const COUNTERS: [(&str, &str); 23] = [
    ("leaseway_audit_lost_total", "Audit log lines lost because they could not be written."),
    (
        "leaseway_connections_refused_total",
        "New connections closed because of the limit of all connections or of one address.",
    ),
    ("leaseway_tls_reload_failures_total", "Failed reloads of certificates; the previous ones stay in use."),
    ("leaseway_watchers_refused_total", "Watchers refused because of --max-watchers."),
    ("leaseway_rounds_total", "Rounds of all resources; a round handles a batch of requests."),
    ("leaseway_leases_granted_total", "Leases granted."),
    (
        "leaseway_leases_renewed_in_place_total",
        "Leases renewed by streams of renewals without a round, because nothing had changed.",
    ),
    ("leaseway_leases_expired_total", "Holders removed because their leases expired."),
    ("leaseway_requests_too_soon_total", "Requests ignored because they came before min_request_interval."),
    ("leaseway_requests_stale_total", "Requests dropped because their holder has already confirmed a newer lease."),
    ("leaseway_holders_refused_total", "Requests refused because of the limit of holders."),
    (
        "leaseway_holder_shares_refused_total",
        "Requests refused because their principal has used up its share of all holders.",
    ),
    ("leaseway_learning_excess_total", "Claims in learning mode that exceeded the remaining capacity."),
    ("leaseway_unaccounted_leases_total", "Requests with a lease that is unknown to this server."),
    ("leaseway_resources_unmatched_total", "Resources created without a matching template."),
    ("leaseway_resources_refused_total", "Resources refused because of --max-resources."),
    ("leaseway_pool_overloads_total", "Times that the usage of a pool exceeded its capacity."),
    ("leaseway_budget_thresholds_reached_total", "Thresholds that budgets have reached."),
    ("leaseway_pool_events_dropped_total", "Pool events dropped because a subscriber was too slow."),
    ("leaseway_uplink_supplies_total", "Leases received from the parent."),
    ("leaseway_uplink_rejected_total", "Times that the parent sent settings that this server cannot apply."),
    ("leaseway_uplink_restarts_total", "Restarts of the uplink after a failure."),
    ("leaseway_resource_restarts_total", "Restarts of resources after a failure."),
];

/// The kind of a problem with a request entry.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Reason {
    BadValue,
    BadId,
    TooManyInRequest,
    TooManyBands,
    TooManyClients,
    /// Another node with the same name holds leases.
    NameTaken,
    /// A client that does not report what it has spent asks for a budget.
    NeedsReport,
    /// A budget below a parent, on a node that keeps no promises.
    NeedsStorage,
    TooManyResources,
    /// The queue of the resource is full.
    Busy,
    /// The resource panicked.
    Failed,
    TooSoon,
    /// The node has no lease from its parent yet.
    NotYet,
    Denied,
}

impl Reason {
    /// All reasons in the order of the variants, with their names on the wire and in metrics.
    const NAMES: [(Reason, &'static str); 14] = [
        (Reason::BadValue, "bad_value"),
        (Reason::BadId, "bad_id"),
        (Reason::TooManyInRequest, "too_many_in_request"),
        (Reason::TooManyBands, "too_many_bands"),
        (Reason::TooManyClients, "too_many_clients"),
        (Reason::NameTaken, "name_taken"),
        (Reason::NeedsReport, "needs_report"),
        (Reason::NeedsStorage, "needs_storage"),
        (Reason::TooManyResources, "too_many_resources"),
        (Reason::Busy, "busy"),
        (Reason::Failed, "failed"),
        (Reason::TooSoon, "too_soon"),
        (Reason::NotYet, "not_yet"),
        (Reason::Denied, "denied"),
    ];

    pub(crate) fn name(self) -> &'static str {
        Reason::NAMES[self as usize].1
    }
}

/// A call that a policy may deny.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum CallKind {
    Discovery,
    GetCapacity,
    GetServerCapacity,
    ReleaseCapacity,
    Watch,
    /// A stream of renewals.
    Renew,
    GetStatus,
    Config,
    Peers,
    Pools,
    Http,
    /// A request to a gateway.
    Gateway,
    /// An unknown method.
    Other,
}

impl CallKind {
    /// All calls in the order of the variants, with their names in metrics and the audit log.
    const NAMES: [(CallKind, &'static str); 13] = [
        (CallKind::Discovery, "Discovery"),
        (CallKind::GetCapacity, "GetCapacity"),
        (CallKind::GetServerCapacity, "GetServerCapacity"),
        (CallKind::ReleaseCapacity, "ReleaseCapacity"),
        (CallKind::Watch, "Watch"),
        (CallKind::Renew, "Renew"),
        (CallKind::GetStatus, "GetStatus"),
        (CallKind::Config, "Config"),
        (CallKind::Peers, "Peers"),
        (CallKind::Pools, "Pools"),
        (CallKind::Http, "HTTP"),
        (CallKind::Gateway, "gateway"),
        (CallKind::Other, "other"),
    ];

    pub(crate) fn name(self) -> &'static str {
        CallKind::NAMES[self as usize].1
    }

    /// The call of a gRPC path. `None` for the health and reflection services, which are open to all.
    pub(crate) fn of(path: &str) -> Option<CallKind> {
        if path.starts_with("/grpc.") {
            return None;
        }
        if path.starts_with("/envoy.") {
            return Some(CallKind::Gateway);
        }
        let method = path.rsplit('/').next().unwrap_or_default();
        let known = CallKind::NAMES.into_iter().find(|(_, name)| *name == method);
        Some(known.map_or(CallKind::Other, |(call, _)| call))
    }
}

type Count = fn(&Counters) -> u64;

/// Adds an increase of the counters of resources.
pub(crate) fn resources_counted(more: &Counters) {
    static METERS: LazyLock<[(Counter, Count); 9]> = LazyLock::new(|| {
        [
            (counter!("leaseway_rounds_total"), |counters| counters.rounds),
            (counter!("leaseway_leases_granted_total"), |counters| counters.granted),
            (counter!("leaseway_leases_expired_total"), |counters| counters.expired),
            (counter!("leaseway_requests_too_soon_total"), |counters| counters.too_soon),
            (counter!("leaseway_requests_stale_total"), |counters| counters.stale),
            (counter!("leaseway_holders_refused_total"), |counters| counters.full),
            (counter!("leaseway_holder_shares_refused_total"), |counters| counters.share_full),
            (counter!("leaseway_learning_excess_total"), |counters| counters.learning_excess),
            (counter!("leaseway_unaccounted_leases_total"), |counters| counters.unaccounted),
        ]
    });
    for (meter, count) in &*METERS {
        let more = count(more);
        if more > 0 {
            meter.increment(more);
        }
    }
}

pub(crate) fn entry_has_problem(reason: Reason) {
    // Cached, because a request can have very many problems.
    static METERS: LazyLock<[Counter; Reason::NAMES.len()]> = LazyLock::new(|| {
        Reason::NAMES.map(|(_, reason)| counter!("leaseway_entry_problems_total", "reason" => reason))
    });
    METERS[reason as usize].increment(1);
}

pub(crate) fn access_denied(call: CallKind) {
    entries_denied(call, 1);
}

pub(crate) fn entries_denied(call: CallKind, entries: usize) {
    counter!("leaseway_access_denied_total", "call" => call.name()).increment(entries as u64);
}

pub(crate) fn audit_lost() {
    counter!("leaseway_audit_lost_total").increment(1);
}

pub(crate) fn credentials_reloaded(outcome: &'static str) {
    counter!("leaseway_tokens_reloads_total", "outcome" => outcome).increment(1);
}

pub(crate) fn resource_unmatched() {
    counter!("leaseway_resources_unmatched_total").increment(1);
}

pub(crate) fn resource_refused() {
    counter!("leaseway_resources_refused_total").increment(1);
}

pub(crate) fn resource_restarted() {
    counter!("leaseway_resource_restarts_total").increment(1);
}

/// Outcomes of an attempt to reload the configuration. `kept`: the peers have another one in force.
const RELOADS: [&str; 4] = ["applied", "unchanged", "kept", "rejected"];

/// The outcome of a request to the parent.
#[derive(Debug, Clone, Copy)]
pub(crate) enum ParentOutcome {
    Answered,
    Redirected,
    Failed,
    /// Timed out.
    Late,
}

impl ParentOutcome {
    const NAMES: [&str; 4] = ["answered", "redirected", "failed", "late"];
}

pub(crate) fn parent_asked(outcome: ParentOutcome, took: std::time::Duration) {
    counter!("leaseway_uplink_requests_total", "outcome" => ParentOutcome::NAMES[outcome as usize]).increment(1);
    if let ParentOutcome::Answered = outcome {
        histogram!("leaseway_uplink_seconds").record(took.as_secs_f64());
    }
}

pub(crate) fn supplied() {
    counter!("leaseway_uplink_supplies_total").increment(1);
}

pub(crate) fn parent_misunderstood() {
    counter!("leaseway_uplink_rejected_total").increment(1);
}

pub(crate) fn uplink_restarted() {
    counter!("leaseway_uplink_restarts_total").increment(1);
}

pub(crate) fn pool_overloaded(times: u64) {
    if times > 0 {
        counter!("leaseway_pool_overloads_total").increment(times);
    }
}

pub(crate) fn budget_threshold_reached() {
    counter!("leaseway_budget_thresholds_reached_total").increment(1);
}

/// `delivered`, `failed` or `dropped`.
pub(crate) fn webhook_event(outcome: &'static str) {
    counter!("leaseway_webhook_events_total", "outcome" => outcome).increment(1);
}

pub(crate) fn pool_events_dropped(events: usize) {
    counter!("leaseway_pool_events_dropped_total").increment(events as u64);
}

pub(crate) fn connection_refused() {
    counter!("leaseway_connections_refused_total").increment(1);
}

/// Why the server closed a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Closed {
    Idle,
    /// Answers were not read.
    Stalled,
    /// Idle, and replaced by a new connection.
    Displaced,
    /// The client's certificate expired.
    Expired,
    /// Too many invalid tokens.
    Refused,
}

impl Closed {
    const NAMES: [&str; 5] = ["idle", "stalled", "displaced", "expired", "refused"];

    pub(crate) fn name(self) -> &'static str {
        Closed::NAMES[self as usize]
    }
}

pub(crate) fn connection_closed(why: Closed) {
    counter!("leaseway_connections_closed_total", "reason" => why.name()).increment(1);
}

pub(crate) fn handshake_failed(service: Service) {
    counter!("leaseway_handshakes_failed_total", "listener" => service.name()).increment(1);
}

pub(crate) fn certificates_refused() {
    counter!("leaseway_tls_reload_failures_total").increment(1);
}

pub(crate) fn watcher_refused() {
    counter!("leaseway_watchers_refused_total").increment(1);
}

/// Counts leases that were renewed without a round.
pub(crate) fn renewed_in_place(leases: u64) {
    static METER: LazyLock<Counter> = LazyLock::new(|| counter!("leaseway_leases_renewed_in_place_total"));
    METER.increment(leases);
}

pub(crate) fn hinted(why: HintReason) {
    counter!("leaseway_hints_total", "reason" => why.name()).increment(1);
}

pub(crate) fn config_reloaded(outcome: &'static str) {
    counter!("leaseway_config_reloads_total", "outcome" => outcome).increment(1);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_in_the_order_of_the_variants() {
        assert!(Reason::NAMES.iter().enumerate().all(|(at, (reason, _))| *reason as usize == at));
        assert!(CallKind::NAMES.iter().enumerate().all(|(at, (call, _))| *call as usize == at));
    }
}
