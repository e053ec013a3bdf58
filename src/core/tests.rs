//! Tests of the core as a whole: rules, random histories, recorded vectors of the Go server, transcripts.

mod churn;
mod failovers;
pub(crate) mod harness;
mod hints;
mod histories;
mod peers;
mod pool;
mod rules;
mod transcripts;
mod trees;
mod vectors;

use proptest::prelude::ProptestConfig;

/// So many random cases; `PROPTEST_CASES=100000` asks for another number. A failing case is printed, shrunk; it becomes
/// a test with a name, not a line in a file.
pub(crate) fn cases(cases: u32) -> ProptestConfig {
    let config = ProptestConfig { failure_persistence: None, ..ProptestConfig::default() };
    if std::env::var_os("PROPTEST_CASES").is_some() { config } else { ProptestConfig { cases, ..config } }
}
