//! A binary of the version before: `LEASEWAY_TEST_PREVIOUS` names it, as `.ci/run` does where one was released.

use std::{io::Write as _, path::PathBuf};

/// The binary, if there is one; if not that is said where no test runner keeps it to itself.
pub(crate) fn binary() -> Option<PathBuf> {
    let named = std::env::var_os("LEASEWAY_TEST_PREVIOUS").map(PathBuf::from);
    if named.is_none() {
        let told = "SKIPPED: no binary of the version before (LEASEWAY_TEST_PREVIOUS names one)\n";
        std::io::stderr().write_all(told.as_bytes()).unwrap();
    }
    named
}
