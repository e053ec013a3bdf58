//! Tests of the core as a whole: rules, random histories, recorded vectors of the Go server, transcripts.

mod budgets;
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

/// Runs `cases` random cases, unless `PROPTEST_CASES` overrides the number. A failing case is shrunk and printed; turn
/// it into a named test.
pub(crate) fn cases(cases: u32) -> ProptestConfig {
    let config = ProptestConfig { failure_persistence: None, ..ProptestConfig::default() };
    if std::env::var_os("PROPTEST_CASES").is_some() { config } else { ProptestConfig { cases, ..config } }
}
