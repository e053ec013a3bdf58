//! Observability: metrics, the audit log, webhooks, recent changes and refusals, traces and throttled log lines.

pub(crate) mod audit;
pub(crate) mod changes;
pub(crate) mod logging;
pub(crate) mod metrics;
pub(crate) mod refusals;
#[cfg(feature = "otlp")]
pub(crate) mod traces;
pub(crate) mod webhook;
