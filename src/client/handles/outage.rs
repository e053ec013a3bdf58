//! Log messages about outages: one after several failed requests in a row, one per interval during the outage, and one
//! at its end.

use std::{collections::BTreeMap, sync::Arc};

use tokio::time::{Duration, Instant};

/// Failures in a row before the first warning.
const FAILURES_BEFORE_WARNING: u32 = 3;
/// The time between warnings.
const WARNING_INTERVAL: Duration = Duration::from_secs(60);
/// Maximum number of servers whose last error is remembered.
const MAX_SERVERS: usize = 8;

/// Lets one log message per minute pass, of those that every answer of a server can cause.
#[derive(Debug, Default)]
pub(crate) struct Throttle(Option<Instant>);

impl Throttle {
    pub(crate) fn passes(&mut self) -> bool {
        let passes = self.0.is_none_or(|last| last.elapsed() >= WARNING_INTERVAL);
        if passes {
            self.0 = Some(Instant::now());
        }
        passes
    }
}

/// The failures since the last answer.
#[derive(Debug, Default)]
pub(crate) struct Outage {
    failures: u32,
    since: Option<Instant>,
    warned: Option<Instant>,
    /// The last error of each server.
    servers: BTreeMap<Arc<str>, String>,
}

impl Outage {
    /// Records a failure; `why` begins with the server. Returns the message to log, if one is due. `describe_fallback`
    /// describes the capacity that may be used during the outage.
    pub(crate) fn failed(
        &mut self,
        server: &Arc<str>,
        why: &str,
        describe_fallback: impl FnOnce() -> String,
    ) -> Option<String> {
        let now = Instant::now();
        self.failures = self.failures.saturating_add(1);
        self.since.get_or_insert(now);
        if self.servers.len() < MAX_SERVERS || self.servers.contains_key(server) {
            self.servers.insert(Arc::clone(server), why.to_owned());
        }
        if self.failures < FAILURES_BEFORE_WARNING
            || self.warned.is_some_and(|at| now.duration_since(at) < WARNING_INTERVAL)
        {
            return None;
        }
        self.warned = Some(now);
        let errors: Vec<_> = self.servers.values().map(String::as_str).collect();
        Some(format!(
            "no server has answered the last {} requests: {}; meanwhile {}",
            self.failures,
            errors.join("; "),
            describe_fallback()
        ))
    }

    /// Records an answer. Returns the message to log, if a warning was logged.
    pub(crate) fn over(&mut self, server: &str) -> Option<String> {
        let outage = std::mem::take(self);
        let since = outage.warned.and(outage.since)?;
        Some(format!(
            "{server} has answered, after {} failed requests in {:.1} s",
            outage.failures,
            since.elapsed().as_secs_f64()
        ))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn an_outage_is_logged_after_three_failures_once_a_minute_and_at_its_end() {
        let mut outage = Outage::default();
        let (a, b): (Arc<str>, Arc<str>) = ("a:1".into(), "b:1".into());
        let describe_fallback = || "`r` may use 5".to_owned();
        assert_eq!(outage.failed(&a, "a:1: first", describe_fallback), None);
        assert_eq!(outage.failed(&b, "b:1: refused", describe_fallback), None);
        let message = outage.failed(&a, "a:1: gone", describe_fallback).expect("a warning");
        let expected = "no server has answered the last 3 requests: a:1: gone; b:1: refused; meanwhile `r` may use 5";
        assert_eq!(message, expected);
        for _ in 0..59 {
            tokio::time::advance(Duration::from_secs(1)).await;
            assert_eq!(outage.failed(&b, "b:1: refused", describe_fallback), None);
        }
        tokio::time::advance(Duration::from_secs(1)).await;
        assert!(
            outage
                .failed(&b, "b:1: refused", describe_fallback)
                .is_some_and(|message| message.contains("the last 63 requests"))
        );
        let message = outage.over("a:1").expect("a warning was logged");
        assert_eq!(message, "a:1 has answered, after 63 failed requests in 60.0 s");
        assert_eq!(outage.over("a:1"), None, "once");
    }

    #[tokio::test(start_paused = true)]
    async fn one_message_a_minute_passes() {
        let mut throttle = Throttle::default();
        let mut passed = 0;
        for _ in 0..180 {
            passed += usize::from(throttle.passes());
            tokio::time::advance(Duration::from_secs(1)).await;
        }
        assert_eq!(passed, 3);
    }

    #[tokio::test(start_paused = true)]
    async fn two_failures_are_not_logged() {
        let mut outage = Outage::default();
        let server: Arc<str> = "a:1".into();
        for _ in 0..10 {
            for _ in 0..2 {
                assert_eq!(outage.failed(&server, "a:1: hiccup", String::new), None);
            }
            assert_eq!(outage.over("a:1"), None);
        }
    }
}
