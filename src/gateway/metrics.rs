//! What a gateway counts.

use std::time::Duration;

use metrics::{Unit, counter, describe_counter, describe_gauge, describe_histogram, gauge};
use metrics_exporter_prometheus::{PrometheusBuilder, PrometheusHandle};

/// Gauges of a gateway.
const GAUGES: [(&str, &str); 4] = [
    ("leaseway_gateway_resources", "Resources that are open at this gateway."),
    ("leaseway_rlqs_streams", "Streams of Envoys that report."),
    ("leaseway_rlqs_envoys", "Envoys that are served, with those that have gone and may go by what they were told."),
    ("leaseway_rlqs_buckets", "Buckets of all Envoys."),
];

/// Counters of a gateway without labels.
const COUNTERS: [(&str, &str); 6] = [
    ("leaseway_rlqs_reports_total", "Reports of Envoys."),
    ("leaseway_rlqs_buckets_refused_total", "Reports of buckets that get no quota: of too many, or not permitted."),
    ("leaseway_rls_unknown_domains_total", "Requests of a domain that no file has; they pass."),
    ("leaseway_gateway_resources_opened_total", "Resources that were opened because a request named them."),
    (
        "leaseway_gateway_resources_given_back_total",
        "Resources that were given back because no request named them any more.",
    ),
    ("leaseway_gateway_resources_refused_total", "Resources that were not opened because there are too many."),
];

/// Doorman's buckets: the only histograms are the client library's.
const SECONDS: [f64; 11] = [0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0];

/// How often histograms are folded, so that they do not grow without scrapes.
const UPKEEP_INTERVAL: Duration = Duration::from_secs(5);

/// Installs a recorder for this process, which renders `/metrics`. Must be called within a tokio runtime.
pub fn install() -> PrometheusHandle {
    let builder = PrometheusBuilder::new().set_buckets(&SECONDS).expect("there are some");
    let recorder = builder.build_recorder();
    let handle = recorder.handle();
    // A second gateway in one process keeps the first one's recorder; both then count together.
    let _ = metrics::set_global_recorder(recorder);
    let upkeep = handle.clone();
    tokio::spawn(async move {
        loop {
            tokio::time::sleep(UPKEEP_INTERVAL).await;
            upkeep.run_upkeep();
        }
    });
    handle
}

/// What the client library counts.
const OF_CLIENT: [(&str, &str); 6] = [
    ("doorman_client_requests", "Requests to the cluster, by method and server."),
    ("doorman_client_request_errors", "Requests to the cluster that failed, by method and server."),
    ("leaseway_client_redirects_total", "Times a server was asked that was not the master."),
    ("leaseway_client_left_out_total", "Resources that an answer of the cluster left out: it has no room for them."),
    ("leaseway_client_leases_ended_total", "Leases that ended unrenewed."),
    ("leaseway_client_hints_total", "Hints of the cluster that asking now would change something."),
];

/// Explains all of them, and begins counters at zero.
pub(crate) fn describe() {
    for (name, help) in OF_CLIENT {
        describe_counter!(name, help);
    }
    describe_histogram!("doorman_client_request_durations", Unit::Seconds, "Time to an answer of the cluster.");
    for (name, help) in GAUGES {
        describe_gauge!(name, help);
    }
    for (name, help) in COUNTERS {
        describe_counter!(name, help);
        counter!(name).absolute(0);
    }
    describe_counter!("leaseway_rlqs_actions_total", "What Envoys were told, by kind.");
    for kind in ACTIONS {
        counter!("leaseway_rlqs_actions_total", "kind" => kind).absolute(0);
    }
    describe_counter!("leaseway_rls_reloads_total", "Attempts to read rules again, by outcome.");
    for outcome in RELOADS {
        counter!("leaseway_rls_reloads_total", "outcome" => outcome).absolute(0);
    }
    describe_counter!("leaseway_rls_requests_total", "Requests of Envoy, by domain and result.");
    describe_counter!("leaseway_rls_decisions_total", "Descriptors that fell under a limit, by rule and result.");
}

pub(crate) fn domain_unknown() {
    counter!("leaseway_rls_unknown_domains_total").increment(1);
}

/// What Envoys are told.
const ACTIONS: [&str; 3] = ["assign", "deny", "abandon"];

pub(crate) fn told(kind: &'static str) {
    counter!("leaseway_rlqs_actions_total", "kind" => kind).increment(1);
}

pub(crate) fn reported() {
    counter!("leaseway_rlqs_reports_total").increment(1);
}

pub(crate) fn bucket_refused() {
    counter!("leaseway_rlqs_buckets_refused_total").increment(1);
}

pub(crate) fn stream_opened() {
    gauge!("leaseway_rlqs_streams").increment(1.0);
}

pub(crate) fn stream_closed() {
    gauge!("leaseway_rlqs_streams").decrement(1.0);
}

pub(crate) fn envoys(many: usize) {
    gauge!("leaseway_rlqs_envoys").set(many as f64);
}

pub(crate) fn buckets(many: usize) {
    gauge!("leaseway_rlqs_buckets").set(many as f64);
}

/// The outcomes of an attempt to read rules again.
const RELOADS: [&str; 2] = ["applied", "rejected"];

pub(crate) fn rules_reloaded(outcome: &'static str) {
    counter!("leaseway_rls_reloads_total", "outcome" => outcome).increment(1);
}

pub(crate) fn resource_opened() {
    counter!("leaseway_gateway_resources_opened_total").increment(1);
}

pub(crate) fn resources_given_back(many: usize) {
    counter!("leaseway_gateway_resources_given_back_total").increment(many as u64);
}

pub(crate) fn resource_refused() {
    counter!("leaseway_gateway_resources_refused_total").increment(1);
}

pub(crate) fn resources_open(many: usize) {
    gauge!("leaseway_gateway_resources").set(many as f64);
}
