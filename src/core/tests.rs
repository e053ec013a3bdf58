//! The core as a whole: the documents' examples, the Go server's vectors, random histories, hints that are followed,
//! transcripts.

mod churn;
mod documents;
mod failovers;
mod harness;
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
