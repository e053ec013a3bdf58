//! What is counted of requests and of rules. Labels are names that stand in the operator's files, and nothing that a
//! request says.

use std::sync::OnceLock;

use metrics::{Counter, counter};

/// What becomes of a request, or of one of its descriptors.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Verdict {
    Ok,
    /// There is too little.
    OverLimit,
    /// There is too little, and it passes all the same: the rule is in shadow mode.
    Shadow,
    /// There is no lease to decide by.
    NoLease,
}

impl Verdict {
    pub const ALL: [Verdict; 4] = [Verdict::Ok, Verdict::OverLimit, Verdict::Shadow, Verdict::NoLease];

    pub fn name(self) -> &'static str {
        match self {
            Verdict::Ok => "ok",
            Verdict::OverLimit => "over_limit",
            Verdict::Shadow => "shadow",
            Verdict::NoLease => "no_lease",
        }
    }
}

/// Counters of a rule or of a domain, looked up when the first is needed: a look-up costs more than a decision.
#[derive(Default)]
pub struct Meters(OnceLock<[Counter; Verdict::ALL.len()]>);

impl Meters {
    pub(super) fn count_of_domain(&self, domain: &str, verdict: Verdict) {
        let make = |verdict: Verdict| counter!("leaseway_rls_requests_total", "domain" => domain.to_owned(), "result" => verdict.name());
        self.0.get_or_init(|| Verdict::ALL.map(make))[verdict as usize].increment(1);
    }

    pub(super) fn count_of_rule(&self, path: &str, verdict: Verdict) {
        let make = |verdict: Verdict| counter!("leaseway_rls_decisions_total", "rule" => path.to_owned(), "result" => verdict.name());
        self.0.get_or_init(|| Verdict::ALL.map(make))[verdict as usize].increment(1);
    }
}

impl std::fmt::Debug for Meters {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Meters")
    }
}
